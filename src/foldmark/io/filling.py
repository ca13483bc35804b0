"""A whole session written at once: messages, and the marks and pivots that its log derives."""

from foldmark import events
from foldmark.log import Log, Pivot, marker_part
from foldmark.marks import unmarked

from .change import Change
from .engine import Engine
from .rows import SessionRow

_LATEST = 2**53  # milliseconds that a column, and JSON, hold exactly


def fill(engine: Engine, row: SessionRow, log: Log) -> None:
    """Write a log into a session that has nothing yet; the caller holds a transaction."""
    change = Change(engine, row)
    undone = {place: pivot for place in sorted(log.undone) if (pivot := _undone(log, place))}
    for entry in log.entries.values():
        message = unmarked(entry.message, undone=entry.index in undone)
        change.append(message, entry.sizes)
    if log.marks:
        change.prune(sorted(log.marks), [log.marks[ordinal] for ordinal in sorted(log.marks)])
    for pivot in log.pivots:
        _fill_pivot(change, log, pivot, undone=None)
    for pivot, at in undone.values():
        _fill_pivot(change, log, pivot, undone=at)
    change.index_all()
    change.settled = 0
    change.event(
        events.IMPORTED, messages=change.places, marks=len(log.marks), pivots=len(log.pivots)
    )
    change.finish()


def _fill_pivot(change: Change, log: Log, pivot: Pivot, undone: int | None) -> None:
    tail = log.place(pivot.tail_id, below=pivot.marker) if pivot.tail_id else None
    start = pivot.marker if tail is None else tail
    change.act(
        "pivot",
        log.requests.memory(start),
        place=pivot.marker,
        marker=pivot.marker,
        summary=pivot.summary,
        tail=tail,
        tail_id=pivot.tail_id,
        undone=undone,
    )


def _undone(log: Log, marker: int) -> tuple[Pivot, int] | None:
    """A pivot that was taken back before the session was written here, and when that was.

    None where there is no summary, or no time as we keep it: then its mark stays in the message.
    """
    message = log.entries[marker].message
    part = marker_part(message)
    at = (part.undone if part else None) or 1
    if part is None or not isinstance(at, int) or not 0 < at < _LATEST:
        return None
    for place in log.summaries:
        info = log.entries[place].message.info
        if place > marker and getattr(info, "parent_id", None) == message.id:
            return Pivot(marker=marker, summary=place, tail_id=part.tail_start_id or None), at
    return None
