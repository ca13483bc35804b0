"""Imports a transcript of any format into a store, in one transaction.

Importing the same file again adds nothing; of a file that has grown, only the new part is added.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import UnsetType, field
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import SessionInfo
from foldmark.model.values import Extra, Frozen
from foldmark.store import leases
from foldmark.store.importing import SessionConflict, SessionImport
from foldmark.store.rows import SessionRow
from foldmark.store.store import LATEST, Store
from foldmark.tokens.counters import Counter, counter

from .build import SessionOpened, Step
from .read import OPENCODE, Reading, apply_step, with_origin

State = Literal["new", "grown", "same"]
OnProgress = Callable[[int], None]  # called with the number of bytes read so far
_LEASE = 60.0
_TITLE = 80  # characters


class ImportResult(Frozen):
    """An imported session, as it is in the store now."""

    file: str
    id: str
    title: str | None
    format: str | None
    messages: int
    tokens: int
    pivots: int
    pruned: int
    state: State


class IdConflicts(Frozen):
    """Ids that the store has for other sessions; the file's sessions get a suffix instead."""

    suffix: str = ""
    ids: set[str] = field(default_factory=set[str])  # extended by each import that finds more


def store_reading(
    store: Store,
    reading: Reading,
    *,
    estimate: str,
    name: str | None = None,
    conflicts: IdConflicts | None = None,
    on_progress: OnProgress | None = None,
) -> list[ImportResult]:
    """Import all sessions of a file, or none; `name` replaces the id of a file's only session."""
    with store.engine.writing():
        writer = _Importer(store, reading, estimate, name)
        writer.conflicts = conflicts or writer.conflicts
        for step in reading.steps():
            writer.add(step)
            if on_progress is not None:
                on_progress(reading.source.position)
        return writer.finish()


class _Importer:
    def __init__(self, store: Store, reading: Reading, estimate: str, name: str | None) -> None:
        self._store = store
        self._file = reading.source.name
        self._format = reading.format.name
        self._estimate = estimate
        self._count: Counter = counter(estimate)
        self._name = name
        self._holder = leases.new_holder()
        self._infos: dict[str, tuple[SessionInfo, Extra | UnsetType]] = {}  # by the file's ids
        self._sessions: dict[str, _StoredSession] = {}
        self._current = ""  # id of the session that steps belong to
        self._errors: dict[str, SessionConflict] = {}
        self.conflicts = IdConflicts()

    def add(self, step: Step) -> None:
        if isinstance(step, SessionOpened):
            self._current = step.info.id
            info = with_origin(self._with_store_id(step.info), self._format)
            self._infos[self._current] = (info, step.extra)
        elif self._current not in self._errors:
            try:
                apply_step(self._session().importing, step)
            except SessionConflict as error:
                self._errors[self._current] = error  # read on, to find all conflicts of the file

    def finish(self) -> list[ImportResult]:
        if not self._sessions and self._infos and self._format == OPENCODE:
            self._session()  # our own format may have a session without messages
        results: list[ImportResult] = []
        for id, session in self._sessions.items():
            if id not in self._errors:
                try:
                    results.append(self._finish_session(id, session))
                except SessionConflict as error:
                    self._errors[id] = error
        if self._errors:
            self.conflicts.ids.update(self._errors)
            raise next(iter(self._errors.values()))
        return results

    def _with_store_id(self, info: SessionInfo) -> SessionInfo:
        if self._name is not None:
            if any(id != info.id for id in self._infos):
                raise BadInput("--as names one session, but the file has several")
            return replace(info, id=self._name)
        if info.id in self.conflicts.ids:
            return replace(info, id=f"{info.id}-{self.conflicts.suffix}")
        if not info.id.strip() or info.id == LATEST:
            raise BadInput(f"its session id {info.id!r} cannot be used; give another: --as ID")
        return info

    def _session(self) -> "_StoredSession":
        """The current session, which is stored with its first message."""
        session = self._sessions.get(self._current)
        if session is None:
            session = self._open_session(*self._infos[self._current])
            self._sessions[self._current] = session
        return session

    def _open_session(self, info: SessionInfo, extra: Extra | UnsetType) -> "_StoredSession":
        row = self._store.find(info.id)
        is_new = row is None
        if row is None:
            row = self._store.insert_session(info, self._estimate, extra)
        else:
            self._store.engine.lock_session(row.key)
            if not leases.acquire(self._store.engine, row.key, self._holder, _LEASE):
                raise leases.busy_error(self._store.engine, row.key, row.id)
            row = self._store.row(row.key)
        # A session keeps the token counter of its first messages.
        count = self._count if row.estimate == self._estimate else counter(row.estimate)
        return _StoredSession(row, SessionImport(self._store.engine, row, count), is_new=is_new)

    def _with_title(self, info: SessionInfo, session: "_StoredSession") -> SessionInfo:
        """The info with the first request as title if it has none; OpenCode's info is unchanged."""
        if info.title or self._format == OPENCODE:
            return info
        if title := session.row.info.title:
            return replace(info, title=title)
        first = " ".join(session.importing.first_request[: 4 * _TITLE].split())
        title = first if len(first) <= _TITLE else f"{first[: _TITLE - 1]}…"
        return replace(info, title=title) if title else info

    def _finish_session(self, id: str, session: "_StoredSession") -> ImportResult:
        importing = session.importing
        row = importing.finish()
        info = self._with_title(self._infos[id][0], session)
        has_grown = bool(importing.changed or importing.pruned)
        if info != session.row.info and not importing.is_behind:
            self._store.update_info(row, info)
            has_grown = True
        if not session.is_new:
            leases.release(self._store.engine, row.key, self._holder)
        return ImportResult(
            file=self._file,
            id=row.id,
            title=info.title or None,
            format=self._format,
            messages=row.places,
            tokens=row.tokens,
            pivots=importing.pivots,
            pruned=importing.pruned,
            state="new" if session.is_new else "grown" if has_grown else "same",
        )


class _StoredSession(NamedTuple):
    row: SessionRow
    importing: SessionImport
    is_new: bool
