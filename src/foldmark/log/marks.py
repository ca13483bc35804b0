"""Write marks into messages for export, and remove them again.

A pruned part has OpenCode's `time.compacted`, the marker of an undone pivot has `undone`. The
session's info lists the messages that reverts hide, in OpenCode's `revert` if none follows them.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET
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
    """All messages of a log with its current marks; unchanged messages are the same objects.

    `times` has the times at which pivots were undone, by the indexes of their markers.
    """
    return tuple(_marked(log, entry, times or {}) for entry in log.entries.values())


def with_reverts(
    info: SessionInfo, messages: Sequence[Message], gaps: Sequence[range]
) -> SessionInfo:
    """Session info that lists the messages that reverts hide, given as ranges of indexes."""
    earlier = tuple((gap.start, gap.stop) for gap in gaps if gap.stop < len(messages))
    last = next((gap.start for gap in gaps if gap.start < gap.stop == len(messages)), None)
    revert = UNSET if last is None else Revert(message_id=messages[last].id)
    return replace(info, revert=revert, reverted=earlier or UNSET)


def unmarked(message: Message, *, undone: bool = True) -> Message:
    """The message without its marks, which a store keeps separately."""

    def change(_: int, part: AnyPart) -> AnyPart:
        match part:
            case ToolPart(state=Completed() as state) if not message.is_user and _compacted(state):
                return replace(part, state=_with_mark(state, None))
            case CompactionPart() if message.is_user and undone and part.undone:
                return replace(part, undone=UNSET)
            case _:
                return part

    return with_parts(message, change)


def with_parts(message: Message, change: Callable[[int, AnyPart], AnyPart]) -> Message:
    """The message with its parts changed, or the same object if no part changes."""
    parts = tuple([change(offset, part) for offset, part in enumerate(message.parts)])
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=parts)


def _marked(log: Log, entry: Entry, times: Mapping[int, Number]) -> Message:
    marker = marker_part(entry.message) if entry.message.is_user else None
    undone = times.get(entry.index, 1) if entry.index in log.undone else UNSET

    def mark(offset: int, part: AnyPart) -> AnyPart:
        if marker is not None and part is marker:
            return part if bool(undone) == bool(marker.undone) else replace(marker, undone=undone)
        match part:
            case ToolPart(state=Completed() as state) if not entry.message.is_user:
                at = log.marks.get(entry.ordinal + offset)
                is_same = at == (_compacted(state) or None)
                return part if is_same else replace(part, state=_with_mark(state, at))
            case _:  # the log only has calls of assistants
                return part

    return with_parts(entry.message, mark)


def _compacted(state: Completed) -> Number:
    return (state.time.compacted or 0) if state.time else 0


def _with_mark(state: Completed, at: Number | None) -> Completed:
    time = state.time or Time()
    return replace(state, time=replace(time, compacted=UNSET if at is None else at))
