"""A transcript of any format into a store: what is new of it, in one transaction.

The same file again adds nothing; one that has grown adds what it grew by.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import UnsetType, field
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import SessionInfo
from foldmark.model.values import Extra, Frozen
from foldmark.store import leases
from foldmark.store.importing import Diverged, SessionImport
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store
from foldmark.tokens.counters import Counter, counter

from .build import Opened, Step
from .read import OPENCODE, Reading, tell, with_origin

State = Literal["new", "grown", "same"]
Watch = Callable[[int], None]  # is told how many bytes were read
_LEASE = 60.0
_TITLE = 80  # characters


class Imported(Frozen):
    """A session of a file, as the store has it now."""

    file: str
    id: str
    title: str | None
    format: str | None
    messages: int
    tokens: int
    pivots: int
    pruned: int
    state: State


class Apart(Frozen):
    """Sessions that are kept beside those of the same ids, which are others: under longer ids."""

    suffix: str = ""
    ids: set[str] = field(default_factory=set[str])  # those that are found to be others are added


def store_reading(
    store: Store,
    reading: Reading,
    *,
    estimate: str,
    name: str | None = None,
    apart: Apart | None = None,
    watch: Watch | None = None,
) -> list[Imported]:
    """Write all sessions of a file; whole or not at all. `name` is another id for its only one."""
    with store.engine.writing():
        writer = _Writer(store, reading, estimate, name)
        writer.apart = apart or writer.apart
        for step in reading.steps():
            writer.take(step)
            if watch is not None:
                watch(reading.source.position)
        return writer.finish()


class _Writer:
    def __init__(self, store: Store, reading: Reading, estimate: str, name: str | None) -> None:
        self._store = store
        self._file = reading.source.name
        self._format = reading.format.name
        self._estimate = estimate
        self._count: Counter = counter(estimate)
        self._name = name
        self._holder = leases.new_holder()
        self._told: dict[str, tuple[SessionInfo, Extra | UnsetType]] = {}
        self._open: dict[str, _StoredSession] = {}
        self._now = ""
        self._diverged: dict[str, Diverged] = {}
        self.apart = Apart()

    def take(self, step: Step) -> None:
        if isinstance(step, Opened):
            self._now = step.info.id
            info = with_origin(self._named(step.info), self._format)
            self._told[self._now] = (info, step.extra)
        elif self._now not in self._diverged:
            try:
                tell(self._session().filling, step)
            except Diverged as error:
                self._diverged[self._now] = error  # others of the file may be, too

    def finish(self) -> list[Imported]:
        if not self._open and self._told and self._format == OPENCODE:
            self._session()  # our own form, which may tell of a session without a message
        done: list[Imported] = []
        for name, held in self._open.items():
            if name not in self._diverged:
                try:
                    done.append(self._finished(name, held))
                except Diverged as error:
                    self._diverged[name] = error
        if self._diverged:
            self.apart.ids.update(self._diverged)
            raise next(iter(self._diverged.values()))
        return done

    def _named(self, info: SessionInfo) -> SessionInfo:
        if self._name is not None:
            if any(known != info.id for known in self._told):
                raise BadInput("--as names one session, but the file holds several")
            return replace(info, id=self._name)
        if info.id in self.apart.ids:
            return replace(info, id=f"{info.id}-{self.apart.suffix}")
        if not info.id.strip() or info.id == LATEST:
            raise BadInput(f"its id, {info.id!r}, cannot be one; give --as ID")
        return info

    def _session(self) -> "_StoredSession":
        """The session that is told of now; it is begun with its first message."""
        held = self._open.get(self._now)
        if held is None:
            held = self._open[self._now] = self._begun(*self._told[self._now])
        return held

    def _begun(self, info: SessionInfo, extra: Extra | UnsetType) -> "_StoredSession":
        row = self._store.find(info.id)
        is_new = row is None
        if row is None:
            row = self._store.begin(info, self._estimate, extra)
        else:
            self._store.engine.lock_session(row.key)
            if not leases.take(self._store.engine, row.key, self._holder, _LEASE):
                raise leases.busy(self._store.engine, row.key, row.id)
            row = self._store.row(row.key)
        # As its other messages were counted, whatever is counted by now.
        count = self._count if row.estimate == self._estimate else counter(row.estimate)
        return _StoredSession(row, SessionImport(self._store.engine, row, count), is_new=is_new)

    def _entitled(self, info: SessionInfo, row: SessionRow, filling: SessionImport) -> SessionInfo:
        """A session without a title is known by its first request; OpenCode's is left as it is."""
        if info.title or self._format == OPENCODE:
            return info
        if title := row.info.title:
            return replace(info, title=title)
        first = " ".join(filling.first_request[: 4 * _TITLE].split())
        title = first if len(first) <= _TITLE else f"{first[: _TITLE - 1]}…"
        return replace(info, title=title) if title else info

    def _finished(self, name: str, held: "_StoredSession") -> Imported:
        row, filling = held.filling.finish(), held.filling
        info = self._entitled(self._told[name][0], held.row, held.filling)
        grown = bool(filling.changed or filling.pruned)
        if info != held.row.info and not filling.is_behind:
            self._store.entitle(row, info)
            grown = True
        if not held.is_new:
            leases.release(self._store.engine, row.key, self._holder)
        return Imported(
            file=self._file,
            id=row.id,
            title=info.title or None,
            format=self._format,
            messages=row.places,
            tokens=row.tokens,
            pivots=filling.pivots,
            pruned=filling.pruned,
            state="new" if held.is_new else "grown" if grown else "same",
        )


class _StoredSession(NamedTuple):
    row: SessionRow
    filling: SessionImport
    is_new: bool
