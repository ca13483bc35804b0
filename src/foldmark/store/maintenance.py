"""Maintain a store: remove old sessions, release unused space, make backups."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import printable
from foldmark.model.values import Frozen

from .encoding import key_at
from .engine import Engine
from .rows import (
    EVENT,
    OPERATION_ROW,
    SESSION,
    SessionRow,
    copy_messages,
    copy_rows,
    insertion,
    read_messages,
    read_session_rows,
)
from .search import message_words
from .sqlite import Sqlite
from .store import Store

_CHUNK = 500
_DAY = 86_400_000
# All columns but the key, the index progress and the lease.
_COPIED_COLUMNS = ", ".join(
    name for name in SESSION.split(", ") if name not in {"key", "indexed", "holder", "expires"}
)


class Collection(Frozen):
    """The sessions that a collection removed, and the store's size before and after."""

    sessions: tuple[str, ...]
    before: int  # size of the store in bytes
    after: int


def collect(store: Store, *, older_than: float | None = None, dry_run: bool = False) -> Collection:
    """Release unused space; with `older_than`, first remove sessions older than that many days.

    A session that a process is writing to is never removed.
    """
    engine = store.engine
    before = engine.size()
    with engine.writing():
        expired = [] if older_than is None else _expired(store, older_than)
        for row in () if dry_run else expired:
            _remove(engine, row)
    if not dry_run:
        engine.tidy()
    return Collection(sessions=tuple(row.id for row in expired), before=before, after=engine.size())


def _expired(store: Store, days: float) -> list[SessionRow]:
    engine = store.engine
    now = engine.read(f"SELECT {engine.now}")[0][0]
    cutoff = now - days * _DAY

    def is_old(row: SessionRow) -> bool:
        return row.updated < cutoff and (row.holder is None or (row.expires or 0) < now)

    expired: list[SessionRow] = []
    for candidate in sorted(filter(is_old, store.sessions()), key=lambda row: row.key):
        engine.lock_session(candidate.key)
        row = store.find(candidate.id)  # it may have been written to meanwhile
        if row is not None and is_old(row):
            expired.append(row)
    return expired


def _remove(engine: Engine, row: SessionRow) -> None:
    """Remove a session and its messages from the search index."""
    for start in range(0, row.indexed, _CHUNK):
        end = min(start + _CHUNK, row.indexed)
        for entry in read_messages(engine, row.key, start, end, sized=False):
            engine.unindex(key_at(row.key, entry.index), message_words(entry.message))
    engine.run(
        "DELETE FROM messages WHERE key >= ? AND key < ?",
        (key_at(row.key, 0), key_at(row.key + 1, 0)),
    )
    for table in ("parts", "acts", "events"):
        engine.run(f"DELETE FROM {table} WHERE session = ?", (row.key,))  # noqa: S608 - constants
    engine.run("DELETE FROM sessions WHERE key = ?", (row.key,))


def backup(store: Store, path: Path) -> None:
    """Copy the whole store, as of one moment, into a new file that only its owner can read."""
    if path.exists():
        raise StoreError(printable(str(path)), "the file already exists; use another path")
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.")
    except OSError as error:
        raise StoreError(printable(str(path)), f"cannot be written: {error.strerror}") from None
    os.close(number)
    temporary = Path(name)
    try:
        if isinstance(store.engine, Sqlite):
            store.engine.backup(temporary)
        else:
            target = Sqlite(temporary)
            try:
                with store.engine.reading(), target.writing():
                    for row in reversed(store.sessions()):
                        copy_session(store.engine, row, target)
            finally:
                target.close()
        temporary.replace(path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{name}{suffix}").unlink()


def copy_session(source: Engine, row: SessionRow, target: Engine) -> SessionRow:
    """Copy a session with all its rows; the caller holds transactions on both stores.

    The copy is indexed by its first search.
    """
    if target.read("SELECT 1 FROM sessions WHERE id = ?", (row.id,)):
        raise StoreError(target.name, f"session {row.id} already exists")
    values = source.read(f"SELECT {_COPIED_COLUMNS} FROM sessions WHERE key = ?", (row.key,))  # noqa: S608
    target.run(insertion("sessions", f"indexed, {_COPIED_COLUMNS}"), (0, *values[0]))
    (new,) = read_session_rows(target, "WHERE id = ?", row.id)
    old, copy = (source, row.key), (target, new.key)
    copy_messages(old, copy, [range(row.places)])
    for table, columns in (("acts", OPERATION_ROW), ("events", EVENT)):
        copy_rows(old, copy, table, columns)
    return new
