"""Place Anthropic's cache breakpoints in a request.

A request may have four; two are left for the system prompt and the tools. The newest breakpoints
of the caller stay where they are. The last message always gets one if any message had one, so
that a prefix whose marked blocks were compacted away is still cached.
"""

from typing import cast

from foldmark.model.values import Json

from .codec import without

MARK = "cache_control"
_MAX = 4
_FOR_MESSAGES = _MAX - 2  # the other two are for the system prompt and the tools
_UNMARKABLE = ("thinking", "redacted_thinking")


def with_breakpoints(messages: list[Json]) -> list[Json]:
    """The same messages, changed in place to have no more breakpoints than allowed."""
    marked = [block for message in messages for block in _blocks(message) if _hoist_mark(block)]
    if not marked:
        return messages
    last = _last_markable(messages)
    mark = marked[-1][MARK]
    remaining = [block for block in marked if block is not last and _is_markable(block)]
    remaining = remaining[-(_FOR_MESSAGES - 1) :]
    for block in marked:
        if not any(block is other for other in remaining):
            del block[MARK]
    if last is not None:
        last[MARK] = mark
    return messages


def _hoist_mark(block: Json) -> bool:
    """Whether a block is marked; a mark inside a tool result is moved to the result."""
    blocks = _result_blocks(block)
    marks = [inner[MARK] for inner in blocks if inner.get(MARK)]
    if marks:
        block["content"] = [without(inner, MARK) for inner in blocks]
        block[MARK] = block.get(MARK) or marks[-1]
    return bool(block.get(MARK))


def _result_blocks(block: Json) -> list[Json]:
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
