"""Load a session: only what its view shows is read."""

from collections.abc import Iterator

from msgspec.structs import replace

from foldmark.log.log import Entry, LogCheckpoint, Pivot
from foldmark.log.user_requests import RequestMemory, Requests
from foldmark.model.events import PRUNED, QUEUED, REDONE, REVERTED, UNDONE
from foldmark.model.messages import Number
from foldmark.model.operations import Operation, reverted_by
from foldmark.model.values import Frozen, Json, decoder

from .encoding import unpack_marks
from .engine import Engine
from .rows import (
    IN_FORCE,
    LoadedSession,
    SessionRow,
    decode_events,
    one_of,
    read_gaps,
    read_messages,
    read_operations,
    row_json,
)

_memory = decoder(RequestMemory)
_CHUNK = 200


class Slice(Frozen):
    """How much of a session to load."""

    everything: bool = False  # all messages, not only those in the view
    reverted: bool = False  # with `everything`: also messages hidden by reverts
    dangling: bool = False  # a missing tail start means: load everything
    operation: int | None = None  # the session as it was before this operation
    after: bool = False  # or right after it


class _Reader:
    """Reads one session as it is, or as it was before or after an operation."""

    def __init__(self, engine: Engine, row: SessionRow, end: int, part: Slice) -> None:
        self.engine = engine
        self.row = row
        self.end = end
        self.in_force = IN_FORCE
        if part.operation is not None:
            numbers = in_force_at(engine, row.key, part.operation, end, after=part.after)
            self.in_force = one_of("number", numbers)

    def pivots(self, where: str, *args: object, order: str = "marker") -> list[Operation]:
        """The complete pivots that match an SQL condition."""
        where = f"kind = 'pivot' AND summary IS NOT NULL AND {where}"
        return read_operations(self.engine, self.row.key, where, *args, order=order)

    def latest(self) -> Operation | None:
        where = f"{self.in_force} AND summary < ?"
        return next(iter(self.pivots(where, self.end, order="marker DESC LIMIT 1")), None)

    def memory(self, marker: int | None) -> RequestMemory:
        rows = self.engine.read(
            "SELECT memory FROM acts WHERE session = ? AND marker = ? AND kind = 'pivot' "
            "AND memory IS NOT NULL",
            (self.row.key, marker),
        )
        return _memory(row_json(self.engine, rows[0][0])) if rows else RequestMemory()

    def gaps(self) -> list[range]:
        """The index ranges hidden by reverts."""
        return read_gaps(self.engine, self.row.key, self.in_force)

    def marks(self, ordinal: int) -> dict[int, Number]:
        rows = self.engine.read(
            "SELECT marks FROM acts WHERE session = ? AND last_mark >= ? "  # noqa: S608 - constants
            f"AND {self.in_force} ORDER BY number DESC",
            (self.row.key, ordinal),
        )
        marks: dict[int, Number] = {}
        for (data,) in rows:  # the oldest mark of a part counts
            marks |= unpack_marks(data)
        return marks


def load(engine: Engine, row: SessionRow, part: Slice, *, sized: bool) -> LoadedSession:
    """The part of a session that its view needs; the caller holds a `reading` transaction."""
    end = row.places
    if part.operation is not None:
        for operation in read_operations(engine, row.key, "number = ?", part.operation):
            end = operation.order[0] if part.after else operation.place
    reader = _Reader(engine, row, end, part)
    latest = reader.latest()
    start, memory = 0, RequestMemory()
    pivots: list[Operation] = []
    if latest is not None:
        start = 0 if part.everything else _start(latest, dangling=part.dangling)
        memory = reader.memory(latest.marker) if start else memory
        where = f"{reader.in_force} AND summary < ? AND summary >= ?"
        pivots = reader.pivots(where, end, start)
    messages: list[Entry] = []
    for indexes in visible_ranges(start, end, [] if part.reverted else reader.gaps()):
        messages += read_messages(engine, row.key, indexes.start, indexes.stop, sized=sized)
    first_ordinal = messages[0].ordinal if messages else row.parts
    # Pivots not in force; if reverted messages are loaded, only undone ones.
    retired = "undone IS NOT NULL" if part.reverted else f"NOT ({reader.in_force})"
    undone = reader.pivots(f"summary >= ? AND {retired}", start)
    past = LogCheckpoint(
        index=messages[0].index if messages else end,
        ordinal=first_ordinal,
        memory=memory,
        pivots=tuple(
            Pivot(marker=pivot.marker or 0, summary=pivot.summary or 0, tail_id=pivot.tail_id)
            for pivot in pivots
        ),
        undone=frozenset(pivot.marker or 0 for pivot in undone),
        retired_indexes=frozenset(pivot.summary or 0 for pivot in undone),
        marks=reader.marks(first_ordinal),
    )
    last = messages[-1] if messages and part.operation is not None else None
    parts = row.parts if last is None else last.ordinal + len(last.message.parts)
    return LoadedSession(row=row, past=past, messages=messages, end=end, parts=parts)


def request_memory(engine: Engine, row: SessionRow, marker: int, before: int) -> RequestMemory:
    """The user requests that a new pivot must remember from before an index.

    For older messages, the memory of the latest pivot is used.
    """
    reader = _Reader(engine, row, marker, Slice())
    latest = reader.latest()
    start, requests = 0, Requests()
    if latest is not None:
        start, requests = _start(latest), Requests(reader.memory(latest.marker))
    for indexes in visible_ranges(start, marker, reader.gaps()):
        for chunk in range(indexes.start, indexes.stop, _CHUNK):
            end = min(chunk + _CHUNK, indexes.stop)
            for entry in read_messages(engine, row.key, chunk, end, sized=False):
                requests.add_message(entry.index, entry.ordinal, entry.message)
                if entry.index < before:
                    del requests.all[1:-1]  # bounds memory use
    return requests.memory(before)


def in_force_at(engine: Engine, session: int, number: int, end: int, *, after: bool) -> list[int]:
    """Operations in force just before or after an operation, when there were `end` messages.

    Events tell what was undone and redone since.
    """
    rows = read_operations(engine, session, "number < ?", number + after)
    operations = {row.number: row for row in rows}
    for kind, data in _events_newest_first(engine, session):
        act = data.get("act")
        if kind in {UNDONE, REDONE} and act in operations:
            operations[act] = replace(operations[act], undone=None if kind == UNDONE else 1)
        elif kind in {PRUNED, QUEUED, REVERTED} and act == number:
            break
    # A pivot had no summary yet if that was written later.
    earlier = [
        replace(row, summary=None) if row.summary is not None and row.summary >= end else row
        for row in operations.values()
    ]
    reverted = reverted_by(earlier)
    return [row.number for row in earlier if row.undone is None and reverted[row.number] is None]


def queued_options(engine: Engine, session: int, number: int) -> Json:
    """The options with which a compaction was queued, from hooks and its caller."""
    for kind, data in _events_newest_first(engine, session):
        if kind == QUEUED and data.get("act") == number:
            return data
    return {}


def _events_newest_first(engine: Engine, session: int) -> Iterator[tuple[str, Json]]:
    """Kinds and data of all events, newest first."""
    last = 2**62
    while rows := engine.read(
        "SELECT number, data FROM events WHERE session = ? AND number < ? "
        "ORDER BY number DESC LIMIT ?",
        (session, last, _CHUNK),
    ):
        for number, data in rows:
            yield from reversed(decode_events(data))
            last = number


def visible_ranges(start: int, end: int, gaps: list[range]) -> list[range]:
    """The index ranges between `start` and `end` without the gaps, which are sorted."""
    ranges: list[range] = []
    for gap in gaps:
        ranges.append(range(start, min(gap.start, end)))
        start = max(start, gap.stop)
    return [indexes for indexes in (*ranges, range(start, end)) if indexes]


def _start(latest: Operation, *, dangling: bool = False) -> int:
    if latest.tail is not None:
        return latest.tail
    return 0 if latest.tail_id and dangling else latest.marker or 0
