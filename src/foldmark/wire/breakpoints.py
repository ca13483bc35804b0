"""Where Anthropic's cache breakpoints stand in a request.

Four are allowed in a request, and the system prompt and the tools have theirs. Those on what is
still shown stay where they are, the newest first; so that what was marked and then folded is not
paid for in full, the last message always has one if any had.
"""

from typing import cast

from foldmark.model.values import Json

MARK = "cache_control"
_MOST = 4
_FOR_MESSAGES = _MOST - 2  # the other two are for the system prompt and the tools
_UNMARKABLE = ("thinking", "redacted_thinking")


def with_breakpoints(messages: list[Json]) -> list[Json]:
    """The same messages with as many breakpoints as are allowed."""
    marked = [block for message in messages for block in _blocks(message) if _take_mark(block)]
    if not marked:
        return messages
    last = _last_markable(messages)
    mark = marked[-1][MARK]
    kept = [block for block in marked if block is not last and _is_markable(block)]
    kept = kept[-(_FOR_MESSAGES - 1) :]
    for block in marked:
        if not any(block is held for held in kept):
            del block[MARK]
    if last is not None:
        last[MARK] = mark
    return messages


def _take_mark(block: Json) -> bool:
    """Whether a block is marked; a mark on what a result holds is moved to the result."""
    marked = [held for held in _within(block) if held.get(MARK)]
    if marked:
        block["content"] = [
            {name: value for name, value in held.items() if name != MARK} for held in _within(block)
        ]
        block[MARK] = block.get(MARK) or marked[-1][MARK]
    return bool(block.get(MARK))


def _within(block: Json) -> list[Json]:
    content = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(content, list):
        return []
    return cast("list[Json]", content)


def _last_markable(messages: list[Json]) -> Json | None:
    for message in reversed(messages):
        content = message["content"]
        if isinstance(content, str):
            message["content"] = [{"type": "text", "text": content}]
        for block in reversed(_blocks(message)):
            if _is_markable(block):
                return block
    return None


def _is_markable(block: Json) -> bool:
    return block.get("type") not in _UNMARKABLE


def _blocks(message: Json) -> list[Json]:
    content = message["content"]
    return cast("list[Json]", content) if isinstance(content, list) else []
