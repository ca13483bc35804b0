"""A whole session written at once: messages, and the marks and pivots that its log derives."""

from foldmark import events
from foldmark.log import Log, Pivot, marker_part
from foldmark.marks import unmarked

from .change import Change
from .engine import Engine
from .rows import SessionRow


def fill(engine: Engine, row: SessionRow, log: Log) -> None:
    """Write a log into a session that has nothing yet; the caller holds a transaction."""
    change = Change(engine, row)
    for entry in log.entries.values():
        change.append(unmarked(entry.message), entry.sizes)
    if log.marks:
        change.prune(log.marks)
    for pivot in log.pivots:
        _fill_pivot(change, log, pivot, undone=None)
    for marker in sorted(log.undone):
        _fill_undone(change, log, marker)
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


def _fill_undone(change: Change, log: Log, marker: int) -> None:
    """A pivot that was taken back before the session was written here."""
    message = log.entries[marker].message
    part = marker_part(message)
    for place in log.summaries:
        info = log.entries[place].message.info
        if place > marker and getattr(info, "parent_id", None) == message.id and part is not None:
            pivot = Pivot(marker=marker, summary=place, tail_id=part.tail_start_id or None)
            _fill_pivot(change, log, pivot, undone=int(part.undone or 1))
            return
