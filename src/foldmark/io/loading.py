"""Opening a session: what its view shows is read, and nothing else."""

from foldmark.log import Past, Pivot
from foldmark.messages import Number
from foldmark.requests import Memory
from foldmark.values import Frozen, decoder

from .engine import Engine
from .marking import unpacked_marks
from .rows import IN_FORCE, Loaded, SessionRow, Stored, read_messages, whole
from .words import from_column

_memory = decoder(Memory)


class Slice(Frozen):
    """How much of a session to load."""

    everything: bool = False  # not only what the view shows
    dangling: bool = False  # a tail that is not found means: all of it
    act: int | None = None  # as it was before this act


class _Reader:
    """Reads one session at one moment; acts from `until` on count as not done."""

    def __init__(self, engine: Engine, row: SessionRow, end: int, until: int | None) -> None:
        self.engine = engine
        self.row = row
        self.end = end
        self.until = 2**62 if until is None else until

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
        where = f"{IN_FORCE} AND number < ? AND summary < ? ORDER BY marker DESC LIMIT 1"
        found = self.pivots(where, self.until, self.end)
        return found[0] if found else None

    def memory(self, marker: int) -> Memory:
        rows = self.engine.read(
            "SELECT memory FROM acts WHERE session = ? AND marker = ? AND kind = 'pivot' "
            "AND memory IS NOT NULL",
            (self.row.key, marker),
        )
        return _memory(whole(self.engine, [rows[0][0]])[0]) if rows else Memory()

    def undone(self, start: int) -> frozenset[int]:
        where = f"summary >= ? AND NOT ({IN_FORCE} AND number < ?)"
        return frozenset(row[0] for row in self.pivots(where, start, self.until))

    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of places that reverts hide."""
        rows = self.engine.read(
            "SELECT tail, marker FROM acts WHERE session = ? AND kind = 'revert' "  # noqa: S608
            f"AND {IN_FORCE} AND number < ? ORDER BY tail",
            (self.row.key, self.until),
        )
        return [(row[0], row[1]) for row in rows]

    def marks(self, ordinal: int) -> dict[int, Number]:
        rows = self.engine.read(
            "SELECT marks FROM acts WHERE session = ? AND last_mark >= ? "  # noqa: S608 - constants
            f"AND {IN_FORCE} AND number < ? ORDER BY number DESC",
            (self.row.key, ordinal, self.until),
        )
        found: dict[int, Number] = {}
        for (data,) in rows:  # the first of several that mark a part is the one that counts
            found |= unpacked_marks(bytes(data))
        return found


def load(engine: Engine, row: SessionRow, part: Slice, *, sized: bool) -> Loaded:
    """A session as its view needs it; the caller holds one moment (`reading`)."""
    end = row.places if part.act is None else _length_before(engine, row, part.act)
    reader = _Reader(engine, row, end, part.act)
    latest = reader.latest()
    start, memory = 0, Memory()
    pivots: list[Pivot] = []
    if latest is not None and not part.everything:
        start = _start(latest, part)
        memory = reader.memory(latest[0]) if start else memory
    if latest is not None:
        where = f"{IN_FORCE} AND number < ? AND summary < ? AND summary >= ? ORDER BY marker"
        found = reader.pivots(where, reader.until, end, start)
        pivots = [
            Pivot(marker=row[0], summary=row[1], tail_id=from_column(row[3])) for row in found
        ]
    messages: list[Stored] = []
    for first, last in segments(start, end, reader.gaps()):
        messages += read_messages(engine, row.key, first, last, sized=sized)
    first_ordinal = messages[0].ordinal if messages else row.parts
    past = Past(
        place=messages[0].place if messages else end,
        ordinal=first_ordinal,
        memory=memory,
        pivots=tuple(pivots),
        undone=reader.undone(start),
        marks=reader.marks(first_ordinal),
    )
    parts = row.parts if part.act is None or not messages else _parts_after(messages[-1])
    return Loaded(row=row, past=past, messages=messages, settled=row.settled, end=end, parts=parts)


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


def _length_before(engine: Engine, row: SessionRow, act: int) -> int:
    rows = engine.read("SELECT place FROM acts WHERE session = ? AND number = ?", (row.key, act))
    return rows[0][0] if rows else row.places


def _parts_after(last: Stored) -> int:
    return last.ordinal + len(last.message.parts)
