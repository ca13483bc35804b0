"""Opening a session: what its view shows is read, and nothing else."""

from collections.abc import Iterator

from msgspec.structs import replace

from foldmark.log.log import Entry, LogCheckpoint, Pivot
from foldmark.log.user_requests import RequestMemory, Requests
from foldmark.model.events import PRUNED, QUEUED, REDONE, REVERTED, UNDONE
from foldmark.model.messages import Number
from foldmark.model.operations import Operation, taken_back
from foldmark.model.values import Frozen, Json, decoder

from .encoding import unpacked_marks
from .engine import Engine
from .rows import (
    IN_FORCE,
    Loaded,
    SessionRow,
    one_of,
    read_acts,
    read_gaps,
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

    def pivots(self, where: str, *args: object, order: str = "marker") -> list[Operation]:
        """The complete pivots that fit a condition in SQL."""
        where = f"kind = 'pivot' AND summary IS NOT NULL AND {where}"
        return read_acts(self.engine, self.row.key, where, *args, order=order)

    def latest(self) -> Operation | None:
        where = f"{self.in_force} AND summary < ?"
        return next(iter(self.pivots(where, self.end, order="marker DESC LIMIT 1")), None)

    def memory(self, marker: int | None) -> RequestMemory:
        rows = self.engine.read(
            "SELECT memory FROM acts WHERE session = ? AND marker = ? AND kind = 'pivot' "
            "AND memory IS NOT NULL",
            (self.row.key, marker),
        )
        return _memory(whole(self.engine, rows[0][0])) if rows else RequestMemory()

    def gaps(self) -> list[range]:
        """The places that reverts hide."""
        return read_gaps(self.engine, self.row.key, self.in_force)

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
    acts = [] if part.act is None else read_acts(engine, row.key, "number = ?", part.act)
    end = row.places
    if acts:
        end = acts[0].done[0] if part.after else acts[0].place
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
    for shown in segments(start, end, [] if part.reverted else reader.gaps()):
        messages += read_messages(engine, row.key, shown.start, shown.stop, sized=sized)
    first_ordinal = messages[0].ordinal if messages else row.parts
    # Not in force; where what reverts hide is shown, only those that were undone.
    retired = "undone IS NOT NULL" if part.reverted else f"NOT ({reader.in_force})"
    undone = reader.pivots(f"summary >= ? AND {retired}", start)
    past = LogCheckpoint(
        place=messages[0].index if messages else end,
        ordinal=first_ordinal,
        memory=memory,
        pivots=tuple(
            Pivot(marker=act.marker or 0, summary=act.summary or 0, tail_id=act.tail_id)
            for act in pivots
        ),
        undone=frozenset(act.marker or 0 for act in undone),
        retired_places=frozenset(act.summary or 0 for act in undone),
        marks=reader.marks(first_ordinal),
    )
    last = messages[-1] if messages and part.act is not None else None
    parts = row.parts if last is None else last.ordinal + len(last.message.parts)
    return Loaded(row=row, past=past, messages=messages, end=end, parts=parts)


def remembered(engine: Engine, row: SessionRow, marker: int, before: int) -> RequestMemory:
    """What a new pivot is to remember of all that was said before a place, if it is still shown.

    Of what came before the latest pivot, that one remembers all that matters.
    """
    reader = _Reader(engine, row, marker, Slice())
    latest = reader.latest()
    start, requests = 0, Requests()
    if latest is not None:
        start, requests = _start(latest), Requests(reader.memory(latest.marker))
    for shown in segments(start, marker, reader.gaps()):
        for chunk in range(shown.start, shown.stop, _CHUNK):
            end = min(chunk + _CHUNK, shown.stop)
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
    # A pivot is as it was when its summary was not there yet.
    earlier = [
        replace(act, summary=None) if act.summary is not None and act.summary >= end else act
        for act in acts.values()
    ]
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


def segments(start: int, end: int, gaps: list[range]) -> list[range]:
    """The ranges of places that are left when gaps, in their order, are taken out."""
    found: list[range] = []
    for gap in gaps:
        found.append(range(start, min(gap.start, end)))
        start = max(start, gap.stop)
    return [left for left in (*found, range(start, end)) if left]


def _start(latest: Operation, *, dangling: bool = False) -> int:
    if latest.tail is not None:
        return latest.tail
    return 0 if latest.tail_id and dangling else latest.marker or 0
