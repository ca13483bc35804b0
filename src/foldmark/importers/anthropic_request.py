"""A request to Anthropic's Messages API as it was recorded, and its response.

Its messages are decoded only where they must be: digests tell which of them were there before,
however they are written and wherever the cached prefix ends.
"""

import json
from collections.abc import Iterator
from typing import cast

import msgspec

from foldmark.errors import BadInput
from foldmark.values import Json, parsed
from foldmark.wire.model import Reply, kind_words, without

_CACHE = "cache_control"
# What Claude Code writes.
_SUMMARISE = "Your task is to create a detailed summary of"
_CONTINUED = "This session is being continued from a previous conversation"


class Exchange(msgspec.Struct, gc=False):
    """A request and its response."""

    messages: list[msgspec.Raw | Json]
    digests: list[int]
    system: int
    reply: Reply | None = None
    reply_digest: int = 0
    at: int | None = None
    replied: int | None = None

    def message(self, place: int) -> Json:
        """One of its messages."""
        held = self.messages[place]
        return as_message(held) if isinstance(held, msgspec.Raw) else held


def as_message(raw: msgspec.Raw) -> Json:
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
    return text_of(block).startswith(_CONTINUED)


def blocks_of(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    held = cast("list[object]", content) if isinstance(content, list) else []
    return [cast("Json", block) for block in held if isinstance(block, dict)]


def text_of(block: Json) -> str:
    text = block.get("text")
    return text if isinstance(text, str) and block.get("type") == "text" else ""


# --- digests -------------------------------------------------------------------------------


def message_digest(message: Json) -> int:
    """The same for a message however it is written, and wherever its cache ends."""
    return _digest({"role": message.get("role"), "content": _bare(blocks_of(message))})


def results_of(message: Json) -> Iterator[tuple[str, int]]:
    for block in blocks_of(message):
        call = block.get("tool_use_id")
        if isinstance(call, str):
            yield call, result_digest(block)


def result_digest(block: Json) -> int:
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
