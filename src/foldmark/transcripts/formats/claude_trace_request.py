"""A request to Anthropic's Messages API as it was recorded, and its response.

Its messages are decoded only where they must be: digests tell which of them were there before,
however they are written and wherever the cached prefix ends.
"""

import json
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.model.values import Json, parsed
from foldmark.wire.codec import Reply, kind_words, without

from .claude_trace_stream import streamed

PATH = "/v1/messages"
_CACHE = "cache_control"
# What Claude Code writes.
_SUMMARISE = "Your task is to create a detailed summary of"
_CONTINUED = "This session is being continued from a previous conversation"
T = TypeVar("T")


class Request(Struct, gc=False):
    """A request; other endpoints have other bodies."""

    body: Raw | UnsetType = UNSET
    url: Any = UNSET
    timestamp: Any = UNSET


class Response(Struct, gc=False):
    """Its response: whole, or as the stream that it was."""

    body: Raw | UnsetType = UNSET
    body_raw: Raw | UnsetType = UNSET
    timestamp: Any = UNSET


class Line(Struct, gc=False):
    """One exchange."""

    request: Request
    response: Response | UnsetType | None = UNSET
    logged_at: Any = UNSET


class Body(Struct, gc=False):
    """What matters of a request for an answer."""

    messages: list[Raw]
    system: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET


_line = msgspec.json.Decoder(Line)
_body = msgspec.json.Decoder(Body)


def decoded_line(data: bytes) -> Line:
    """One exchange, undecoded but for its outline."""
    try:
        return _strict(_line, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Broken, or half of a character in it: that the API refuses as well.
        mended = json.dumps(parsed(data), ensure_ascii=False).encode(errors="replace")
        return _strict(_line, mended)


def body_of(line: Line) -> Body | None:
    """What was asked, if it was an answer that was asked for."""
    url, body = line.request.url, line.request.body
    if isinstance(url, str) and not url.partition("?")[0].endswith(PATH):
        return None
    return _strict(_body, bytes(body)) if isinstance(body, Raw) else None


def response_of(line: Line) -> Json | None:
    """The response, whole."""
    given = line.response or Response()
    body = decoded(given.body)
    if isinstance(body, dict):
        return cast("Json", body)
    stream = decoded(given.body_raw)
    return streamed(stream) if isinstance(stream, str) else None


def _strict(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        cause, _, path = str(error).partition(" - at ")
        raise BadInput(cause, place=path.strip("`") or None) from None


def bytes_of(raw: Raw | UnsetType) -> bytes:
    """What is undecoded yet, as it came."""
    return bytes(raw) if isinstance(raw, Raw) else b"null"


def decoded(raw: Raw | UnsetType) -> Any:
    """The same, decoded."""
    return parsed(bytes_of(raw))


def has_tools(body: Body) -> bool:
    """Whether the model may call tools."""
    return bytes_of(body.tools) not in (b"null", b"[]")


class Exchange(Struct, gc=False):
    """A request and its response."""

    messages: list[Raw | Json]
    digests: list[int]
    kind: int  # the digest of its system prompt, and whether it has tools
    reply: Reply | None = None
    reply_digest: int = 0
    at: int | None = None
    replied: int | None = None

    def message(self, place: int) -> Json:
        """One of its messages."""
        held = self.messages[place]
        return as_message(held) if isinstance(held, Raw) else held


def as_message(raw: Raw) -> Json:
    """One message of a request."""
    found = parsed(bytes(raw))
    if not isinstance(found, dict):
        raise BadInput(f"a message is an object, not {kind_words(found)}")
    return cast("Json", found)


def asks_for_summary(exchange: Exchange) -> bool:
    """Whether a request ends with the program's own demand for a summary."""
    return any(_SUMMARISE in text_of(block) for block in blocks_of(exchange.message(-1)))


def begins_with_summary(exchange: Exchange) -> bool:
    """Whether a request goes on with a conversation of which only a summary is left."""
    return any(continues(block) for block in blocks_of(exchange.message(0)))


def continues(block: Json) -> bool:
    """Whether a block is the summary of what went before."""
    return text_of(block).startswith(_CONTINUED)


def blocks_of(message: Json) -> list[Json]:
    """The content of a message or a result as blocks, though it be a mere text."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    held = cast("list[object]", content) if isinstance(content, list) else []
    return [cast("Json", block) for block in held if isinstance(block, dict)]


def text_of(block: Json) -> str:
    """What a block of text says."""
    text = block.get("text")
    return text if isinstance(text, str) and block.get("type") == "text" else ""


# --- digests -------------------------------------------------------------------------------


def message_digest(message: Json) -> int:
    """The same for a message however it is written, and wherever its cache ends."""
    return _digest({"role": message.get("role"), "content": _bare(blocks_of(message))})


def results_of(message: Json) -> Iterator[tuple[str, int]]:
    """The calls that a message answers, and the digests of what it says of each."""
    for block in blocks_of(message):
        call = block.get("tool_use_id")
        if isinstance(call, str):
            yield call, result_digest(block)


def result_digest(block: Json) -> int:
    """The same for a result as long as it says the same."""
    return _digest(_bare(blocks_of(block)))


def _bare(blocks: list[Json]) -> list[Json]:
    """Blocks without the marks where a cached prefix ends."""
    bare = [without(block, _CACHE) for block in blocks]
    for block in bare:
        if isinstance(block.get("content"), list):
            block["content"] = [without(held, _CACHE) for held in blocks_of(block)]
    return bare


def _digest(value: object) -> int:
    try:
        return hash(json.dumps(value, sort_keys=True))
    except RecursionError:
        raise BadInput("nested too deeply") from None
