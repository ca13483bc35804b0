"""Marks written into messages, for files that are to hold them, and taken out of them again.

A pruned part has OpenCode's `time.compacted`; the marker of a pivot that was taken back, `undone`.
What reverts hide is named in the session's info, by OpenCode's `revert` where nothing follows it.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    CompactionPart,
    Completed,
    Message,
    Number,
    Revert,
    SessionInfo,
    Time,
    ToolPart,
)

from .log import Entry, Log, marker_part


def marked_messages(log: Log, times: Mapping[int, Number] | None = None) -> tuple[Message, ...]:
    """All messages of a log, with its marks as they are now; what did not change is the same.

    `times` tells when pivots were taken back, by the places of their markers.
    """
    return tuple(_marked(log, entry, times or {}) for entry in log.entries.values())


def with_reverts(
    info: SessionInfo, messages: Sequence[Message], hidden: Sequence[range]
) -> SessionInfo:
    """Session info that names the messages that reverts hide, given by their places."""
    earlier = tuple((gap.start, gap.stop) for gap in hidden if gap.stop < len(messages))
    last = next((gap.start for gap in hidden if gap.start < gap.stop == len(messages)), None)
    revert = UNSET if last is None else Revert(message_id=messages[last].id)
    return replace(info, revert=revert, reverted=earlier or UNSET)


def hidden_ranges(info: SessionInfo, messages: Sequence[Message]) -> list[range]:
    """The places of messages that reverts hide, as session info names them, in their order."""
    size = len(messages)
    found = [range(first, end) for first, end in info.reverted or () if 0 <= first < end < size]
    if info.revert:
        ids = [message.id for message in messages]
        if info.revert.message_id in ids:
            found.append(range(ids.index(info.revert.message_id), size))
    return found


def unmarked(message: Message, *, undone: bool = True) -> Message:
    """A message without such marks, for a store that keeps them apart."""
    if not message.is_user:
        return with_parts(message, lambda _, part: _part_unmarked(part))
    marker = marker_part(message) if undone else None
    if marker is None:
        return message
    return with_parts(message, lambda _, part: _with_undone(part) if part is marker else part)


def with_parts(message: Message, change: Callable[[int, AnyPart], AnyPart]) -> Message:
    """A message with its parts changed; the same one, where none is."""
    parts = tuple([change(offset, part) for offset, part in enumerate(message.parts)])
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=parts)


def _part_unmarked(part: AnyPart) -> AnyPart:
    match part:
        case ToolPart(state=Completed() as state) if _compacted(state):
            return replace(part, state=_with_mark(state, None))
        case _:
            return part


def _marked(log: Log, entry: Entry, times: Mapping[int, Number]) -> Message:
    marker = marker_part(entry.message) if entry.message.is_user else None
    undone = times.get(entry.index, 1) if entry.index in log.undone else UNSET

    def marked(offset: int, part: AnyPart) -> AnyPart:
        if marker is not None and part is marker:
            return part if bool(undone) == bool(marker.undone) else _with_undone(part, undone)
        # The log knows of calls by assistants only.
        if not isinstance(part, ToolPart) or entry.message.is_user:
            return part
        if not isinstance(part.state, Completed):
            return part
        at = log.marks.get(entry.ordinal + offset)
        if at == (_compacted(part.state) or None):
            return part
        return replace(part, state=_with_mark(part.state, at))

    return with_parts(entry.message, marked)


def _with_undone(part: AnyPart, at: Number | UnsetType = UNSET) -> AnyPart:
    assert isinstance(part, CompactionPart)  # noqa: S101 - it makes a message a marker
    return replace(part, undone=at)


def _compacted(state: Completed) -> Number:
    return (state.time.compacted or 0) if state.time else 0


def _with_mark(state: Completed, at: Number | None) -> Completed:
    time = state.time or Time()
    return replace(state, time=replace(time, compacted=UNSET if at is None else at))
