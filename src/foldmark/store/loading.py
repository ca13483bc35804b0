"""Opening a session: what its view shows is read, and nothing else."""

from collections.abc import Iterator

from msgspec.structs import replace

from foldmark.log.log import Entry, LogCheckpoint, Pivot
from foldmark.log.user_requests import RequestMemory, Requests
from foldmark.model.events import PRUNED, QUEUED, REDONE, REVERTED, UNDONE
from foldmark.model.messages import Number
from foldmark.model.operations import Operation, taken_back
from foldmark.model.values import Frozen, Json, decoder

from .encoding import from_column, unpacked_marks
from .engine import Engine
from .rows import (
    IN_FORCE,
    Loaded,
    SessionRow,
    one_of,
    read_acts,
    read_messages,
    read_told,
    whole,
)

_memory = decoder(RequestMemory)
_CHUNK = 200


class Slice(Frozen):
    """How much of a session to load."""

    everything: bool = False  # not only what the view shows
    reverted: bool = False  # with everything: what reverts hide as well
    dangling: bool = False  # a tail that is not found means: all of it
    act: int | None = None  # as it was before this act
    after: bool = False  # or as it was right after it


class _Reader:
    """Reads one session at one moment, as it is or as it was before or after an act."""

    def __init__(self, engine: Engine, row: SessionRow, end: int, part: Slice) -> None:
        self.engine = engine
        self.row = row
        self.end = end
        self.in_force = IN_FORCE
        if part.act is not None:
            acts = in_force_at(engine, row.key, part.act, end, after=part.after)
            self.in_force = one_of("number", acts)

    def pivots(self, where: str, *args: object) -> list[tuple[int, int, int | None, str | None]]:
        return [
            (row[0], row[1], row[2], row[3])
            for row in self.engine.read(
                "SELECT marker, summary, tail, tail_id FROM acts "  # noqa: S608 - constants
                f"WHERE session = ? AND kind = 'pivot' AND summary IS NOT NULL AND {where}",
                (self.row.key, *args),
            )
        ]

    def latest(self) -> tuple[int, int, int | None, str | None] | None:
        where = f"{self.in_force} AND summary < ? ORDER BY marker DESC LIMIT 1"
        found = self.pivots(where, self.end)
        return found[0] if found else None

    def memory(self, marker: int) -> RequestMemory:
        rows = self.engine.read(
            "SELECT memory FROM acts WHERE session = ? AND marker = ? AND kind = 'pivot' "
            "AND memory IS NOT NULL",
            (self.row.key, marker),
        )
        return _memory(whole(self.engine, rows[0][0])) if rows else RequestMemory()

    def undone(self, start: int, *, reverted: bool) -> list[tuple[int, int]]:
        """Markers and summaries of pivots that are not in force; or only of those undone."""
        if reverted:
            return [row[:2] for row in self.pivots("summary >= ? AND undone IS NOT NULL", start)]
        where = f"summary >= ? AND NOT ({self.in_force})"
        return [(row[0], row[1]) for row in self.pivots(where, start)]

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of places that reverts hide."""
        rows = self.engine.read(
            "SELECT tail, marker FROM acts WHERE session = ? AND kind = 'revert' "  # noqa: S608
            f"AND {self.in_force} ORDER BY tail",
            (self.row.key,),
        )
        return [(row[0], row[1]) for row in rows]

    def marks(self, ordinal: int) -> dict[int, Number]:
        rows = self.engine.read(
            "SELECT marks FROM acts WHERE session = ? AND last_mark >= ? "  # noqa: S608 - constants
            f"AND {self.in_force} ORDER BY number DESC",
            (self.row.key, ordinal),
        )
        found: dict[int, Number] = {}
        for (data,) in rows:  # the first of several that mark a part is the one that counts
            found |= unpacked_marks(data)
        return found


def load(engine: Engine, row: SessionRow, part: Slice, *, sized: bool) -> Loaded:
    """A session as its view needs it; the caller holds one moment (`reading`)."""
    end = row.places if part.act is None else _length_at(engine, row, part.act, after=part.after)
    reader = _Reader(engine, row, end, part)
    latest = reader.latest()
    start, memory = 0, RequestMemory()
    pivots: list[Pivot] = []
    if latest is not None and not part.everything:
        start = _start(latest, part)
        memory = reader.memory(latest[0]) if start else memory
    if latest is not None:
        where = f"{reader.in_force} AND summary < ? AND summary >= ? ORDER BY marker"
        found = reader.pivots(where, end, start)
        pivots = [
            Pivot(marker=row[0], summary=row[1], tail_id=from_column(row[3])) for row in found
        ]
    messages: list[Entry] = []
    for first, last in segments(start, end, [] if part.reverted else reader.gaps()):
        messages += read_messages(engine, row.key, first, last, sized=sized)
    first_ordinal = messages[0].ordinal if messages else row.parts
    undone = reader.undone(start, reverted=part.reverted)
    past = LogCheckpoint(
        place=messages[0].index if messages else end,
        ordinal=first_ordinal,
        memory=memory,
        pivots=tuple(pivots),
        undone=frozenset(marker for marker, _ in undone),
        retired_places=frozenset(summary for _, summary in undone),
        marks=reader.marks(first_ordinal),
    )
    parts = row.parts if part.act is None or not messages else _parts_after(messages[-1])
    return Loaded(row=row, past=past, messages=messages, end=end, parts=parts)


def remembered(engine: Engine, row: SessionRow, marker: int, before: int) -> RequestMemory:
    """What a new pivot is to remember of all that was said before a place, if it is still shown.

    Of what came before the latest pivot, that one remembers all that matters.
    """
    reader = _Reader(engine, row, marker, Slice())
    latest = reader.latest()
    start, requests = 0, Requests()
    if latest is not None:
        start, requests = _start(latest, Slice()), Requests(reader.memory(latest[0]))
    for first, last in segments(start, marker, reader.gaps()):
        for chunk in range(first, last, _CHUNK):
            end = min(chunk + _CHUNK, last)
            for held in read_messages(engine, row.key, chunk, end, sized=False):
                requests.take(held.index, held.ordinal, held.message)
                if held.index < before:
                    del requests.all[1:-1]  # a session may be larger than the memory
    return requests.memory(before)


def in_force_at(engine: Engine, session: int, number: int, end: int, *, after: bool) -> list[int]:
    """The acts that were in force right before one or after it, when there were so many messages.

    What was undone and redone since is told by the events.
    """
    known = read_acts(engine, session, "number < ?", number + after)
    acts = {act.number: act for act in known}
    for kind, data in _events_backwards(engine, session):
        act = data.get("act")
        if kind in {UNDONE, REDONE} and act in acts:
            acts[act] = replace(acts[act], undone=None if kind == UNDONE else 1)
        elif kind in {PRUNED, QUEUED, REVERTED} and act == number:
            break
    earlier = [_unfinished(act, end) for act in acts.values()]
    reverted = taken_back(earlier)
    return [act.number for act in earlier if act.undone is None and reverted[act.number] is None]


def wishes(engine: Engine, session: int, number: int) -> Json:
    """What was told when a compaction was queued: what hooks and its caller wished for."""
    for kind, data in _events_backwards(engine, session):
        if kind == QUEUED and data.get("act") == number:
            return data
    return {}


def _events_backwards(engine: Engine, session: int) -> Iterator[tuple[str, Json]]:
    """Kinds and data of all events, the newest first."""
    last = 2**62
    while rows := engine.read(
        "SELECT number, data FROM events WHERE session = ? AND number < ? "
        "ORDER BY number DESC LIMIT ?",
        (session, last, _CHUNK),
    ):
        for number, data in rows:
            yield from reversed(read_told(data))
            last = number


def _unfinished(act: Operation, end: int) -> Operation:
    """A pivot as it was when its summary was not there yet."""
    return replace(act, summary=None) if act.summary is not None and act.summary >= end else act


def segments(start: int, end: int, gaps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of places that are left when gaps, in their order, are taken out."""
    found: list[tuple[int, int]] = []
    for first, last in gaps:
        if first > start:
            found.append((start, min(first, end)))
        start = max(start, last)
    if start < end:
        found.append((start, end))
    return [(first, last) for first, last in found if first < last]


def _start(latest: tuple[int, int, int | None, str | None], part: Slice) -> int:
    marker, _, tail, tail_id = latest
    if tail is not None:
        return tail
    return 0 if tail_id and part.dangling else marker


def _length_at(engine: Engine, row: SessionRow, number: int, *, after: bool) -> int:
    acts = read_acts(engine, row.key, "number = ?", number)
    if not acts:
        return row.places
    return acts[0].done[0] if after else acts[0].place


def _parts_after(last: Entry) -> int:
    return last.ordinal + len(last.message.parts)
