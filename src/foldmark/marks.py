"""Marks written into messages, for files that are to hold them: OpenCode's `time.compacted`."""

from msgspec import UNSET
from msgspec.structs import replace

from .log import Entry, Log
from .messages import Completed, Message, Number, Time, ToolPart


def marked_messages(log: Log) -> tuple[Message, ...]:
    """All messages of a log, with its marks as they are now; what did not change is the same."""
    return tuple(_marked(log, entry) for entry in log.entries.values())


def _marked(log: Log, entry: Entry) -> Message:
    changed = False
    parts = list(entry.message.parts)
    for offset, part in enumerate(parts):
        if isinstance(part, ToolPart) and isinstance(part.state, Completed):
            at = log.marks.get(entry.ordinal + offset)
            if at != (_compacted(part.state) or None):
                parts[offset] = replace(part, state=_with_mark(part.state, at))
                changed = True
    return replace(entry.message, parts=tuple(parts)) if changed else entry.message


def _compacted(state: Completed) -> Number:
    return (state.time.compacted or 0) if state.time else 0


def _with_mark(state: Completed, at: Number | None) -> Completed:
    time = state.time or Time()
    return replace(state, time=replace(time, compacted=UNSET if at is None else at))
