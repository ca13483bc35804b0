"""What a wire is: how one provider's API writes messages, read into ours and written back.

A codec knows one message at a time. Which result belongs to which call, and how a list is read as
a whole, is told in `reading`. What a codec does not know of a message it keeps: on a part under
the codec's key in `metadata`, on a message in `info.wire`; a block of a kind it does not know is
a text whose metadata holds it whole. What is under another wire's key it never writes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, Protocol, TypeVar, cast

from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import BLOCK, AnyPart, FilePart, TextPart, Tokens
from foldmark.model.prompt_messages import Block, PromptMessage, UserMessage
from foldmark.model.values import Frozen, Json

M_contra = TypeVar("M_contra", contravariant=True)
# `other`: a role that the codec does not know; the message passes through as it came.
Role = Literal["user", "assistant", "system", "other"]

# Under a codec's key in the metadata of a call: what it keeps of the call's result.
RESULT = "result"
# In `info.wire`: that the results before it stood in the same message.
JOINED = "joined"
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


class Wire(Protocol):
    """A codec."""

    name: str
    key: str
    provider: str  # who is meant where nobody is named

    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire."""
        ...

    def read(self, message: Json) -> Read:
        """One message; BadInput where it is none."""
        ...

    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Shown messages on this wire: just as they came, or so that a provider takes them."""
        ...

    def system(self, text: str) -> list[Json]:
        """The messages that carry a system prompt; none where it stands beside them."""
        ...

    def recognises_reply(self, response: Json) -> bool:
        """Whether this is a response of this wire."""
        ...

    def read_reply(self, response: Json) -> Reply:
        """A whole response."""
        ...

    def write_reply(self, shown: Sequence[PromptMessage], rest: Json) -> Json:
        """A response again, of its content and what was kept of it."""
        ...


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
        found = [whole(block) for block in message.content]
        if not any(found) or not isinstance(message, UserMessage):
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
