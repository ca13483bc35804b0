"""Marks written into messages, for files that are to hold them, and taken out of them again.

A pruned part has OpenCode's `time.compacted`; the marker of a pivot that was taken back, `undone`.
"""

from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from .log import Entry, Log
from .messages import AnyPart, CompactionPart, Completed, Message, Number, Time, ToolPart


def marked_messages(log: Log) -> tuple[Message, ...]:
    """All messages of a log, with its marks as they are now; what did not change is the same."""
    return tuple(_marked(log, entry) for entry in log.entries.values())


def unmarked(message: Message) -> Message:
    """A message without such marks, for a store that keeps them apart."""
    return with_parts(message, lambda _, part: _part_unmarked(part))


def with_parts(message: Message, change: Callable[[int, AnyPart], AnyPart]) -> Message:
    """A message with its parts changed; the same one, where none is."""
    parts = tuple([change(offset, part) for offset, part in enumerate(message.parts)])
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=parts)


def _part_unmarked(part: AnyPart) -> AnyPart:
    match part:
        case ToolPart(state=Completed() as state) if _compacted(state):
            return replace(part, state=_with_mark(state, None))
        case CompactionPart() if part.undone:
            return replace(part, undone=UNSET)
        case _:
            return part


def _marked(log: Log, entry: Entry) -> Message:
    changed = False
    parts = list(entry.message.parts)
    for offset, part in enumerate(parts):
        if isinstance(part, ToolPart) and isinstance(part.state, Completed):
            at = log.marks.get(entry.ordinal + offset)
            if at != (_compacted(part.state) or None):
                parts[offset] = replace(part, state=_with_mark(part.state, at))
                changed = True
        elif isinstance(part, CompactionPart):
            undone = entry.index in log.undone
            if undone != bool(part.undone):
                parts[offset] = replace(part, undone=1 if undone else UNSET)
                changed = True
    return replace(entry.message, parts=tuple(parts)) if changed else entry.message


def _compacted(state: Completed) -> Number:
    return (state.time.compacted or 0) if state.time else 0


def _with_mark(state: Completed, at: Number | None) -> Completed:
    time = state.time or Time()
    return replace(state, time=replace(time, compacted=UNSET if at is None else at))
