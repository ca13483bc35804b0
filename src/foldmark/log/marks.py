"""Marks written into messages, for files that are to hold them, and taken out of them again.

A pruned part has OpenCode's `time.compacted`; the marker of a pivot that was taken back, `undone`.
What reverts hide is named in the session's info, by OpenCode's `revert` where nothing follows it.
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


def unmarked(message: Message, *, undone: bool = True) -> Message:
    """A message without such marks, for a store that keeps them apart."""

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
    """A message with its parts changed; the same one, where none is."""
    parts = tuple([change(offset, part) for offset, part in enumerate(message.parts)])
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=parts)


def _marked(log: Log, entry: Entry, times: Mapping[int, Number]) -> Message:
    marker = marker_part(entry.message) if entry.message.is_user else None
    undone = times.get(entry.index, 1) if entry.index in log.undone else UNSET

    def marked(offset: int, part: AnyPart) -> AnyPart:
        if marker is not None and part is marker:
            return part if bool(undone) == bool(marker.undone) else replace(marker, undone=undone)
        match part:
            case ToolPart(state=Completed() as state) if not entry.message.is_user:
                at = log.marks.get(entry.ordinal + offset)
                is_same = at == (_compacted(state) or None)
                return part if is_same else replace(part, state=_with_mark(state, at))
            case _:  # the log knows of calls by assistants only
                return part

    return with_parts(entry.message, marked)


def _compacted(state: Completed) -> Number:
    return (state.time.compacted or 0) if state.time else 0


def _with_mark(state: Completed, at: Number | None) -> Completed:
    time = state.time or Time()
    return replace(state, time=replace(time, compacted=UNSET if at is None else at))
