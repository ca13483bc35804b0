"""Where Anthropic's cache breakpoints stand in a request.

Four are allowed in a request, and the system prompt and the tools have theirs. Those on what is
still shown stay where they are, the newest first; so that what was marked and then folded is not
paid for in full, the last message always has one if any had.
"""

from typing import cast

from foldmark.values import Json

MARK = "cache_control"
_MOST = 4
_FOR_MESSAGES = 2  # the other two are for the system prompt and the tools
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})


def with_breakpoints(messages: list[Json]) -> list[Json]:
    """The same messages with as many breakpoints as are allowed."""
    marked = [block for message in messages for block in _blocks(message) if MARK in block]
    if not marked:
        return messages
    last = _last_markable(messages)
    mark = marked[-1][MARK]
    keep = [block for block in marked if block is not last][-(_FOR_MESSAGES - 1) :]
    kept = {id(block) for block in keep}
    for block in marked:
        if id(block) not in kept:
            del block[MARK]
    if last is not None:
        last[MARK] = mark
    return messages


def _last_markable(messages: list[Json]) -> Json | None:
    for message in reversed(messages):
        content = message["content"]
        if isinstance(content, str):
            message["content"] = [{"type": "text", "text": content}]
        for block in reversed(_blocks(message)):
            if block.get("type") not in _UNMARKABLE:
                return block
    return None


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return cast("list[Json]", content) if isinstance(content, list) else []
