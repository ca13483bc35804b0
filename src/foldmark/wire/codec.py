"""What a wire is: how one provider's API writes messages, read into ours and written back.

A codec knows one message at a time. Which result belongs to which call, and how a list is read as
a whole, is told in `lists`. What a codec does not know of a message it keeps: on a part under
the codec's key in `metadata`, on a message in `info.wire`; a block of a kind it does not know is
a text whose metadata holds it whole. What is under another wire's key it never writes.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from importlib import import_module
from itertools import groupby
from typing import Any, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import BLOCK, AnyPart, Cache, FilePart, TextPart, Tokens
from foldmark.model.prompt_messages import Block, PromptMessage, UserMessage
from foldmark.model.values import Frozen, Json

from .plain import plain_object

M_contra = TypeVar("M_contra", contravariant=True)
# `other`: a role that the codec does not know; the message passes through as it came.
Role = Literal["user", "assistant", "system", "other"]

# Under a codec's key in the metadata of a call: what it keeps of the call's result.
RESULT = "result"
# In `info.wire`: that the results before it stood in the same message.
JOINED = "joined"
_CAPITAL = re.compile("([A-Z])")
_WHOLE = "message"  # beside BLOCK: that it is a message, not a block of one


class Answer(Frozen):
    """The result of a call, as a wire tells it."""

    call_id: str
    output: str
    tool: str = ""  # where the wire names it
    is_error: bool = False
    files: tuple[FilePart, ...] = ()
    rest: Json = field(default_factory=dict)  # what the codec keeps of it
    raw: Json = field(default_factory=dict)  # the whole of it, for a result without a call


class Read(Frozen):
    """One message of a wire, read."""

    role: Role
    parts: tuple[AnyPart, ...] = ()
    answers: tuple[Answer, ...] = ()  # they come before the parts
    rest: Json = field(default_factory=dict)  # what the codec keeps of the message
    joins: bool = False  # it goes on with the answer before it
    id: str = ""
    tokens: Tokens | None = None  # of the request that it answers, where that is told beside it


class Reply(Frozen):
    """A whole response of a model, read."""

    read: Read
    tokens: Tokens | None
    finish: str
    model: str
    rest: Json  # the response without its content


class Reader(Protocol[M_contra]):
    """Who reads messages of some kind: a codec, or one of a framework's own objects."""

    name: str
    key: str  # under which it keeps its own in metadata

    def read(self, message: M_contra, /) -> Read:
        """One message; BadInput where it is none."""
        ...


class Wire(ABC):
    """A codec."""

    name: str
    key: str
    provider: str  # who is meant where nobody is named

    @abstractmethod
    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire."""

    @abstractmethod
    def read(self, message: Json) -> Read:
        """One message; BadInput where it is none."""

    @abstractmethod
    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Shown messages on this wire: just as they came, or so that a provider takes them."""

    def system(self, text: str) -> list[Json]:
        """The messages that carry a system prompt; none where it stands beside them."""
        del text
        return []

    @abstractmethod
    def recognises_reply(self, response: Json) -> bool:
        """Whether this is a response of this wire."""

    @abstractmethod
    def read_reply(self, response: Json) -> Reply:
        """A whole response."""

    @abstractmethod
    def write_reply(self, shown: Sequence[PromptMessage], rest: Json) -> Json:
        """A response again, of its content and what was kept of it."""


# --- the codecs by their names -----------------------------------------------------------------

_HOMES = {
    "openai-chat": ("openai_chat", "OpenAIChat"),
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "gemini": ("gemini", "Gemini"),
}
WIRES = tuple(_HOMES)
_ALIASES = {
    "openai": "openai-chat",
    "chat": "openai-chat",
    "responses": "openai-responses",
    "anthropic-messages": "anthropic",
    "google": "gemini",
}


@cache
def codec_of(name: str) -> Wire:
    """The codec of this very name; it is imported when it is first used."""
    module, kind = _HOMES[name]
    return cast("Wire", getattr(import_module(f".{module}", __package__), kind)())


def wire_named(name: str) -> Wire:
    """The codec of this name; BadInput names those that there are."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"a wire is named by a text, not {type(name).__name__}")
    found = name.strip().lower().replace("_", "-")
    found = _ALIASES.get(found, found)
    if found not in _HOMES:
        raise BadInput(f"there is no wire {name!r}; there are: {', '.join(WIRES)}")
    return codec_of(found)


# --- for codecs: looking into JSON that may hold anything --------------------------------------


def text_at(data: Mapping[str, Any], name: str) -> str:
    """The text of a field; BadInput where there is none."""
    held = data.get(name, UNSET)
    if isinstance(held, str):
        return held
    if held is UNSET:
        raise BadInput(f"the field '{name}' is missing")
    raise BadInput(f"'{name}' is {kind_words(held)}, not a text")


def object_at(data: Mapping[str, Any], name: str) -> Json:
    """The object of a field; BadInput where there is none."""
    held = data.get(name)
    if isinstance(held, dict):
        return cast("Json", held)
    raise BadInput(f"'{name}' is {kind_words(held)}, not an object")


def objects(items: object, what: str) -> list[Json]:
    """A list of objects; BadInput where it is none."""
    if not isinstance(items, list):
        raise BadInput(f"{what} is {kind_words(items)}, not a list")
    found = cast("list[object]", items)
    for item in found:
        if not isinstance(item, dict):
            raise BadInput(f"{what} holds {kind_words(item)} where an object is expected")
    return cast("list[Json]", found)


def kind_words(value: object) -> str:
    """What a JSON value is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def without(data: Mapping[str, Any], *names: str) -> Json:
    """A copy without these fields."""
    return {name: held for name, held in data.items() if name not in names}


def kept(key: str, rest: Json) -> Json | UnsetType:
    """Metadata with what a codec keeps; absent where that is nothing."""
    return {key: rest} if rest else UNSET


def options(held: object, key: str) -> Json:
    """What a codec kept in the options of a shown block or message."""
    if isinstance(held, dict):
        own = cast("Json", held).get(key)
        if isinstance(own, dict):
            return cast("Json", own)
    return {}


def is_joined(message: UserMessage) -> bool:
    """Whether the results before it stood in the same message of the wire."""
    held = cast("object", message.wire)
    return isinstance(held, dict) and JOINED in held


def opaque(key: str, block: Json, text: str = "") -> TextPart:
    """A block of a kind that only its own wire can write, with what others may read of it."""
    return TextPart(text=text, metadata={key: {BLOCK: block}})


def unknown_role(key: str, message: Json) -> Read:
    """A message of a role that a codec does not know: it is kept whole, in its place."""
    own = {key: {BLOCK: message, _WHOLE: True}}
    return Read(role="other", parts=(TextPart(text=_words(message), synthetic=True, metadata=own),))


def _words(message: Json) -> str:
    """What a message of any form says in words."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        return content
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    texts = [cast("Json", block).get("text") for block in blocks if isinstance(block, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def whole_message(block: Block, key: str) -> Json | None:
    """The message of an unknown role that a shown text stands for, if it does."""
    own = options(block.provider_options, key)
    return dict(options(own, BLOCK)) if own.get(_WHOLE) is True and BLOCK in own else None


def with_whole_messages(
    shown: Sequence[PromptMessage], whole: Callable[[Block], Json | None]
) -> Iterator[PromptMessage | Json]:
    """Shown messages, and as JSON those that pass through whole, which stand among their texts."""
    for message in shown:
        if not isinstance(message, UserMessage):
            yield message
            continue
        found = [whole(block) for block in message.content]
        if not any(found):
            yield message
            continue
        for is_whole, group in groupby(zip(found, message.content, strict=True), _is_whole):
            held = list(group)
            if is_whole:
                yield from (json for json, _ in held if json is not None)
            else:
                yield replace(message, content=tuple(block for _, block in held))


def _is_whole(held: tuple[Json | None, Block]) -> bool:
    return held[0] is not None


def as_number(value: object) -> int:
    """A count of tokens; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class UsageFields(Frozen):
    """Where an API tells what was measured: names of fields, `a.b` for one within another."""

    given: str
    made: str
    read: str  # from the cache
    written: str = ""  # to the cache
    thought: str = ""
    total: str = ""
    is_cached_apart: bool = False  # what is given does not include what was cached
    is_thought_apart: bool = False  # what was made does not include what was thought


def measured(fields: UsageFields, usage: object) -> Tokens | None:
    """What was measured; None where nothing is told."""
    if not isinstance(usage, dict):
        return None

    def count(name: str) -> int:
        outer, _, inner = name.rpartition(".")
        told = options(cast("object", usage), outer) if outer else cast("Json", usage)
        return as_number(either(told, inner)) if name else 0

    given, read, written = count(fields.given), count(fields.read), count(fields.written)
    thought = count(fields.thought)
    made = count(fields.made) + (thought if fields.is_thought_apart else 0)
    cached = read + written
    fresh = given if fields.is_cached_apart else max(given - cached, 0)
    return Tokens(
        input=fresh,
        output=made,
        reasoning=thought,
        total=count(fields.total) or given + made + (cached if fields.is_cached_apart else 0),
        cache=Cache(read=read, write=written),
    )


def either(data: Json, name: str) -> Any:
    """A field by its name in JSON or in Python's SDKs."""
    return data[name] if name in data else data.get(in_snake_case(name))


def in_snake_case(name: str) -> str:
    """A name of a field as Python's SDKs have it."""
    return _CAPITAL.sub(r"_\1", name).lower()


# --- names that every provider takes ------------------------------------------------------------
# A session may have come from another provider, whose ids are longer or hold other letters.

NOTHING_TO_READ = "[Content that only another provider can read.]"


class Names:
    """Makes names fit, the same one each time."""

    def __init__(self, longest: int, also: str = "") -> None:
        """Say how long a name may be, and what it may hold beside letters, digits, _ and -."""
        self._longest = longest
        self._refused = re.compile(f"[^a-zA-Z0-9_{re.escape(also)}-]")

    def fit(self, name: str) -> str:
        """The id of a call or the name of a tool, as it is taken."""
        fitting = self._refused.sub("_", name)
        if name and fitting == name and len(name) <= self._longest:
            return name
        # What was changed is told apart by a digest: two names must not become one.
        mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"{fitting[: self._longest - 9]}_{mark}"


# --- files inside messages: data URLs, taken apart and put together ---------------------------


def data_url(mime: str, data: str) -> str:
    """A file that is inline, as an address."""
    return f"data:{mime};base64,{data}"


def url_parts(url: str) -> tuple[str, str | None]:
    """The kind and the base64 text of an inline file; no text where the address is elsewhere."""
    head, found, data = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        return "", None
    return head.removeprefix("data:"), data


# --- arguments of calls: JSON inside a text, as models write it --------------------------------

ARGUMENTS = "arguments"  # as they came, where compact JSON would not give the same
_MOST_BRACKETS = 100  # a text with fewer cannot be nested too deeply


def compact(value: object, *, is_sorted: bool = False) -> str:
    """JSON as models write arguments."""
    try:
        return msgspec.json.encode(value, order="deterministic" if is_sorted else None).decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)
    except (ValueError, RecursionError):
        raise BadInput("nested too deeply, or a number too long") from None


def arguments_object(arguments: str) -> Json | None:
    """The object that arguments hold; None where a model wrote no such JSON."""
    try:
        found: object = msgspec.json.decode(arguments)
        if not isinstance(found, dict):
            return None
        if arguments.count("{") + arguments.count("[") < _MOST_BRACKETS:
            return cast("Json", found)
        return plain_object(cast("object", found))
    except (ValueError, RecursionError, BadInput):
        return None


def arguments_input(arguments: str) -> Json:
    """The input that arguments say."""
    found = arguments_object(arguments)
    if found is not None:
        return found
    # Where there are no arguments some write nothing; models write JSON that is broken.
    return {ARGUMENTS: arguments} if arguments.strip() else {}


# --- a tool's output that came in several pieces -----------------------------------------------


def read_output(
    content: object, texts: Container[object], read_file: Callable[[Json], FilePart | None]
) -> tuple[str, tuple[FilePart, ...]]:
    """What a tool gave back: a text, or texts among blocks, and the files among these."""
    if content is None or isinstance(content, str):
        return content or "", ()
    said: list[str] = []
    files: list[FilePart] = []
    for block in objects(content, "'content' of a tool_result"):
        text, kind = block.get("text"), block.get("type")
        if isinstance(kind, str) and kind in texts and isinstance(text, str):
            said.append(text)
        elif (file := read_file(block)) is not None:
            files.append(file)
    return "\n".join(said), tuple(files)
