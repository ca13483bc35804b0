"""Keeping a store for years: old sessions are removed, unused room given back, copies made."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import harmless
from foldmark.model.values import Frozen

from .encoding import key_at
from .engine import Engine
from .rows import (
    ACT_ROW,
    EVENT,
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
# All but the key, how far it is indexed, and who writes to it.
_KEPT = ", ".join(
    name for name in SESSION.split(", ") if name not in {"key", "indexed", "holder", "expires"}
)


class Freed(Frozen):
    """What a collection removed."""

    sessions: tuple[str, ...]
    before: int  # bytes of the whole store
    after: int


def collect(store: Store, *, older_than: float | None = None, dry_run: bool = False) -> Freed:
    """Give unused room back to the disk; first remove sessions older than so many days, if asked.

    A session that someone is writing to is never removed.
    """
    engine = store.engine
    before = engine.size()
    with engine.writing():
        old = [] if older_than is None else _old(store, older_than)
        for row in () if dry_run else old:
            _remove(engine, row)
    if not dry_run:
        engine.tidy()
    return Freed(sessions=tuple(row.id for row in old), before=before, after=engine.size())


def _old(store: Store, days: float) -> list[SessionRow]:
    engine = store.engine
    now = engine.read(f"SELECT {engine.now}")[0][0]
    kept_since = now - days * _DAY

    def is_old(row: SessionRow) -> bool:
        return row.updated < kept_since and (row.holder is None or (row.expires or 0) < now)

    old: list[SessionRow] = []
    for candidate in sorted(filter(is_old, store.sessions()), key=lambda row: row.key):
        engine.lock_session(candidate.key)
        row = store.find(candidate.id)  # someone may have begun to write to it meanwhile
        if row is not None and is_old(row):
            old.append(row)
    return old


def _remove(engine: Engine, row: SessionRow) -> None:
    """Remove a session, and the words by which its messages are found."""
    for start in range(0, row.indexed, _CHUNK):
        end = min(start + _CHUNK, row.indexed)
        for held in read_messages(engine, row.key, start, end, sized=False):
            engine.unindex(key_at(row.key, held.index), message_words(held.message))
    engine.run(
        "DELETE FROM messages WHERE key >= ? AND key < ?",
        (key_at(row.key, 0), key_at(row.key + 1, 0)),
    )
    for table in ("parts", "acts", "events"):
        engine.run(f"DELETE FROM {table} WHERE session = ?", (row.key,))  # noqa: S608 - constants
    engine.run("DELETE FROM sessions WHERE key = ?", (row.key,))


def backup(store: Store, path: Path) -> None:
    """Copy the whole store, as of one moment, into a new file that only its owner may read."""
    if path.exists():
        raise StoreError(harmless(str(path)), "the file is there already; give another path")
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.")
    except OSError as error:
        raise StoreError(harmless(str(path)), f"cannot be written: {error.strerror}") from None
    os.close(number)
    made = Path(name)
    try:
        if isinstance(store.engine, Sqlite):
            store.engine.backup(made)
        else:
            target = Sqlite(made)
            try:
                with store.engine.reading(), target.writing():
                    for row in reversed(store.sessions()):
                        copy_session(store.engine, row, target)
            finally:
                target.close()
        made.replace(path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{name}{suffix}").unlink()


def copy_session(source: Engine, row: SessionRow, target: Engine) -> SessionRow:
    """Copy a session with everything that is kept of it; the caller holds both transactions.

    Its words are indexed by who searches first.
    """
    if target.read("SELECT 1 FROM sessions WHERE id = ?", (row.id,)):
        raise StoreError(target.name, f"session {row.id} is there already")
    kept = source.read(f"SELECT {_KEPT} FROM sessions WHERE key = ?", (row.key,))  # noqa: S608
    target.run(insertion("sessions", f"indexed, {_KEPT}"), (0, *kept[0]))
    (new,) = read_session_rows(target, "WHERE id = ?", row.id)
    old, copy = (source, row.key), (target, new.key)
    copy_messages(old, copy, [range(row.places)])
    for table, columns in (("acts", ACT_ROW), ("events", EVENT)):
        copy_rows(old, copy, table, columns)
    return new
