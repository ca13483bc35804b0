"""The interface of a codec, which reads and writes the messages of one API format.

A codec handles one message at a time; `lists` reads whole lists and `pairing` joins results with
their calls. A codec stores fields that it does not know under its own key: in a part's `metadata`,
or in a message's `info.wire`. A block of an unknown type becomes a text part whose metadata holds
the block. A codec never writes what another codec stored.
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
from foldmark.model.prompt_messages import Block, PromptMessage, Result, UserMessage
from foldmark.model.values import Frozen, Json

from .plain import plain_object

M_contra = TypeVar("M_contra", contravariant=True)
# `other`: a role that the codec does not know; the message passes through unchanged.
Role = Literal["user", "assistant", "system", "other"]

# Under a codec's key in a call's metadata: what the codec stores about the call's result.
RESULT = "result"
# In `info.wire`: the tool results before the message were part of the same API message.
JOINED = "joined"
_CAPITAL = re.compile("([A-Z])")
_WHOLE = "message"  # beside BLOCK: the stored value is a message, not a block


class ReadResult(Frozen):
    """A tool result as read from an API list."""

    call_id: str
    output: str
    tool: str = ""  # if the API format names it
    is_error: bool = False
    files: tuple[FilePart, ...] = ()
    rest: Json = field(default_factory=dict)  # stored in the call's metadata
    raw: Json = field(default_factory=dict)  # the original, for a result without a call


class ReadMessage(Frozen):
    """One message as read from an API list."""

    role: Role
    parts: tuple[AnyPart, ...] = ()
    results: tuple[ReadResult, ...] = ()  # they precede the parts
    rest: Json = field(default_factory=dict)  # stored in `info.wire`
    joins: bool = False  # it continues the assistant message before it
    id: str = ""
    tokens: Tokens | None = None  # usage of its request, if stated beside the message


class ReadReply(Frozen):
    """A complete model response as read."""

    message: ReadMessage
    tokens: Tokens | None
    finish: str
    model: str
    rest: Json  # the response without its content


class MessageReader(Protocol[M_contra]):
    """Reads messages: a codec, or an adapter for a framework's objects."""

    name: str
    key: str  # under which it stores its data in metadata

    def read(self, message: M_contra, /) -> ReadMessage:
        """Read one message. Raises BadInput if it is malformed."""
        ...


class Codec(ABC):
    """Reads and writes the messages and responses of one API format."""

    name: str
    key: str
    provider: str  # the default if no provider is named

    @abstractmethod
    def recognizes(self, messages: Sequence[Json]) -> bool:
        """Whether a list can have this API format."""

    @abstractmethod
    def read(self, message: Json) -> ReadMessage:
        """Read one message. Raises BadInput if it is malformed."""

    @abstractmethod
    def write(self, messages: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Write prompt messages, unchanged if `as_is`, else as the provider accepts them."""

    def system(self, text: str) -> list[Json]:
        """The messages for a system prompt; none if the API takes it as a separate field."""
        del text
        return []

    @abstractmethod
    def recognizes_reply(self, response: Json) -> bool:
        """Whether a response has this API format."""

    @abstractmethod
    def read_reply(self, response: Json) -> ReadReply:
        """Read a complete response."""

    @abstractmethod
    def write_reply(self, messages: Sequence[PromptMessage], rest: Json) -> Json:
        """Rebuild a response from its content and its other fields."""


# --- codecs by name ------------------------------------------------------------------------

_CODECS = {
    "openai-chat": ("openai_chat", "OpenAIChat"),
    "openai-responses": ("openai_responses", "OpenAIResponses"),
    "anthropic": ("anthropic", "Anthropic"),
    "gemini": ("gemini", "Gemini"),
}
WIRES = tuple(_CODECS)
_ALIASES = {
    "openai": "openai-chat",
    "chat": "openai-chat",
    "responses": "openai-responses",
    "anthropic-messages": "anthropic",
    "google": "gemini",
}


@cache
def load_codec(name: str) -> Codec:
    """The codec with exactly this name, imported on first use."""
    module, kind = _CODECS[name]
    return cast("Codec", getattr(import_module(f".{module}", __package__), kind)())


def codec_named(name: str) -> Codec:
    """The codec with this name or alias. Raises BadInput if there is none."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"the name of an API format is a string, not {type(name).__name__}")
    key = name.strip().lower().replace("_", "-")
    key = _ALIASES.get(key, key)
    if key not in _CODECS:
        raise BadInput(f"unknown API format {name!r}; known: {', '.join(WIRES)}")
    return load_codec(key)


# --- reading untrusted JSON ----------------------------------------------------------------


def text_at(data: Mapping[str, Any], name: str) -> str:
    """The string in a field. Raises BadInput if there is none."""
    value = data.get(name, UNSET)
    if isinstance(value, str):
        return value
    if value is UNSET:
        raise BadInput(f"the field '{name}' is missing")
    raise BadInput(f"'{name}' is {json_type(value)}, not a string")


def object_at(data: Mapping[str, Any], name: str) -> Json:
    """The object in a field. Raises BadInput if there is none."""
    value = data.get(name)
    if isinstance(value, dict):
        return cast("Json", value)
    raise BadInput(f"'{name}' is {json_type(value)}, not an object")


def objects(items: object, what: str) -> list[Json]:
    """The items as a list of objects. Raises BadInput if they are anything else."""
    if not isinstance(items, list):
        raise BadInput(f"{what} is {json_type(items)}, not a list")
    values = cast("list[object]", items)
    for item in values:
        if not isinstance(item, dict):
            raise BadInput(f"{what} contains {json_type(item)}, not only objects")
    return cast("list[Json]", values)


def json_type(value: object) -> str:
    """The type of a JSON value, with an article, for error messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def without(data: Mapping[str, Any], *names: str) -> Json:
    """A copy of the object without these fields."""
    return {name: value for name, value in data.items() if name not in names}


def codec_metadata(key: str, rest: Json) -> Json | UnsetType:
    """Part metadata with a codec's data under its key; UNSET if there is no data."""
    return {key: rest} if rest else UNSET


def subobject(value: object, key: str) -> Json:
    """The object under `key`, or {} if there is none."""
    if isinstance(value, dict):
        child = cast("Json", value).get(key)
        if isinstance(child, dict):
            return cast("Json", child)
    return {}


def result_notes(result: Result, key: str) -> Json:
    """What a codec stored about the result of a call."""
    return subobject(subobject(result.provider_options, key), RESULT)


def is_joined(message: PromptMessage) -> bool:
    """Whether the tool results before a user message were part of the same API message."""
    notes = cast("object", message.wire)
    return isinstance(message, UserMessage) and isinstance(notes, dict) and JOINED in notes


def opaque_part(key: str, block: Json, text: str = "") -> TextPart:
    """A text part for a block that only its own codec can write; `text` is for other codecs."""
    return TextPart(text=text, metadata={key: {BLOCK: block}})


def read_unknown_role(key: str, message: Json) -> ReadMessage:
    """Read a message with an unknown role into a text part that holds the whole message."""
    part = opaque_part(key, message, _readable_text(message))
    metadata = {key: {BLOCK: message, _WHOLE: True}}
    return ReadMessage(role="other", parts=(replace(part, synthetic=True, metadata=metadata),))


def _readable_text(message: Json) -> str:
    """The text in a message of any form."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        return content
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    texts = [cast("Json", block).get("text") for block in blocks if isinstance(block, dict)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def whole_message(block: Block, key: str) -> Json | None:
    """The original message of unknown role that a text block stands for, if any."""
    notes = subobject(block.provider_options, key)
    return dict(subobject(notes, BLOCK)) if notes.get(_WHOLE) is True and BLOCK in notes else None


def with_whole_messages(
    messages: Sequence[PromptMessage], whole: Callable[[Block], Json | None]
) -> Iterator[PromptMessage | Json]:
    """Prompt messages, with blocks that stand for whole messages replaced by these, as JSON."""
    for message in messages:
        if not isinstance(message, UserMessage):
            yield message
            continue
        raw_messages = [whole(block) for block in message.content]
        if not any(raw_messages):
            yield message
            continue
        for is_whole, group in groupby(zip(raw_messages, message.content, strict=True), _is_whole):
            pairs = list(group)
            if is_whole:
                yield from (raw for raw, _ in pairs if raw is not None)
            else:
                yield replace(message, content=tuple(block for _, block in pairs))


def _is_whole(pair: tuple[Json | None, Block]) -> bool:
    return pair[0] is not None


def positive_int(value: object) -> int:
    """The value if it is a positive integer, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class UsageFields(Frozen):
    """Names of an API's usage fields; `a.b` is field b within object a."""

    input: str
    output: str
    cache_read: str
    cache_write: str = ""
    reasoning: str = ""
    total: str = ""
    is_cache_separate: bool = False  # input does not include cached tokens
    is_reasoning_separate: bool = False  # output does not include reasoning


def read_usage(fields: UsageFields, usage: object) -> Tokens | None:
    """The token usage that a response states; None if it states none."""
    if not isinstance(usage, dict):
        return None

    def count(name: str) -> int:
        outer, _, inner = name.rpartition(".")
        counts = subobject(cast("object", usage), outer) if outer else cast("Json", usage)
        return positive_int(any_case(counts, inner)) if name else 0

    prompt, reasoning = count(fields.input), count(fields.reasoning)
    cache_read, cache_write = count(fields.cache_read), count(fields.cache_write)
    cached = cache_read + cache_write
    output = count(fields.output) + (reasoning if fields.is_reasoning_separate else 0)
    fresh = prompt if fields.is_cache_separate else max(prompt - cached, 0)
    return Tokens(
        input=fresh,
        output=output,
        reasoning=reasoning,
        total=count(fields.total) or prompt + output + (cached if fields.is_cache_separate else 0),
        cache=Cache(read=cache_read, write=cache_write),
    )


def any_case(data: Json, name: str) -> Any:
    """A field by its camelCase name, or by its snake_case name as in Python SDKs."""
    return data[name] if name in data else data.get(snake_case(name))


def snake_case(name: str) -> str:
    """A camelCase name in snake_case."""
    return _CAPITAL.sub(r"_\1", name).lower()


# --- names that every provider accepts -----------------------------------------------------
# A session may come from another provider, whose ids are longer or have other characters.

NOTHING_TO_READ = "[Content that only another provider can read.]"


class NameFitter:
    """Makes names acceptable to a provider; the same name always gives the same result."""

    def __init__(self, max_length: int, extra: str = "") -> None:
        """Take the length limit, and characters allowed beside letters, digits, _ and -."""
        self._max_length = max_length
        self._refused = re.compile(f"[^a-zA-Z0-9_{re.escape(extra)}-]")

    def fit(self, name: str) -> str:
        """The call id or tool name in a form that the provider accepts."""
        fitting = self._refused.sub("_", name)
        if name and fitting == name and len(name) <= self._max_length:
            return name
        # A hash keeps changed names distinct: two names must not become one.
        mark = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"{fitting[: self._max_length - 9]}_{mark}"


# --- inline files: data URLs ---------------------------------------------------------------


def data_url(mime: str, data: str) -> str:
    """The data URL of an inline file."""
    return f"data:{mime};base64,{data}"


def url_parts(url: str) -> tuple[str, str | None]:
    """The MIME type and base64 text of a data URL; no text for any other URL."""
    head, separator, data = url.partition(";base64,")
    if not separator or not head.startswith("data:"):
        return "", None
    return head.removeprefix("data:"), data


# --- arguments of tool calls: JSON in a string, as models write it -------------------------

ARGUMENTS = "arguments"  # the original string, if compact JSON would differ from it
_MAX_BRACKETS = 100  # a string with fewer brackets cannot be nested too deeply


def compact_json(value: object, *, is_sorted: bool = False) -> str:
    """The compact JSON of a value, as models write arguments."""
    try:
        return msgspec.json.encode(value, order="deterministic" if is_sorted else None).decode()
    except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=is_sorted)
    except (ValueError, RecursionError):
        raise BadInput("JSON is nested too deeply or contains too long a number") from None


def arguments_object(arguments: str) -> Json | None:
    """The object in an arguments string; None if the string is not valid JSON of an object."""
    try:
        value: object = msgspec.json.decode(arguments)
        if not isinstance(value, dict):
            return None
        if arguments.count("{") + arguments.count("[") < _MAX_BRACKETS:
            return cast("Json", value)
        return plain_object(cast("object", value))
    except (ValueError, RecursionError, BadInput):
        return None


def arguments_input(arguments: str) -> Json:
    """The tool input for an arguments string, valid JSON or not."""
    value = arguments_object(arguments)
    if value is not None:
        return value
    # Some models write nothing if there are no arguments, and some write broken JSON.
    return {ARGUMENTS: arguments} if arguments.strip() else {}


# --- tool output in several blocks ---------------------------------------------------------


def read_output(
    content: object, text_types: Container[object], read_file: Callable[[Json], FilePart | None]
) -> tuple[str, tuple[FilePart, ...]]:
    """The text and the files of a tool's output, which is a string or a list of blocks."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    files: list[FilePart] = []
    for block in objects(content, "'content' of a tool_result"):
        text, kind = block.get("text"), block.get("type")
        if isinstance(kind, str) and kind in text_types and isinstance(text, str):
            texts.append(text)
        elif (file := read_file(block)) is not None:
            files.append(file)
    return "\n".join(texts), tuple(files)
