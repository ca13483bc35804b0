"""Keeping a store for years: what nobody refers to is removed, and copies are made."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import harmless
from foldmark.model.values import Frozen

from .copy import copy_session
from .engine import Engine
from .rows import SessionRow, read_messages
from .schema import key_at
from .search_terms import message_words
from .sqlite import Sqlite
from .store import Store

_CHUNK = 500
_DAY = 86_400_000


class Freed(Frozen):
    """What a collection removed."""

    sessions: tuple[str, ...]
    bodies: int
    before: int  # bytes of the whole store
    after: int


def collect(store: Store, *, older_than: float | None = None, dry_run: bool = False) -> Freed:
    """Remove bodies that no session refers to; and, if asked, sessions older than so many days.

    A session that someone is writing to is never removed.
    """
    engine = store.engine
    before = engine.size()
    with engine.writing():
        # Sessions first, then bodies: writers lock them in this order too.
        old = [] if older_than is None else _old(store, older_than)
        engine.lock_bodies(alone=True)
        orphans = _orphans(engine)
        if not dry_run:
            for row in old:
                _remove(engine, row)
            orphans = engine.run(
                "DELETE FROM bodies WHERE NOT EXISTS "
                "(SELECT 1 FROM refs WHERE refs.body = bodies.key)"
            )
    if not dry_run:
        engine.tidy()
    return Freed(
        sessions=tuple(row.id for row in old), bodies=orphans, before=before, after=engine.size()
    )


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


def _orphans(engine: Engine) -> int:
    rows = engine.read(
        "SELECT count(*) FROM bodies WHERE NOT EXISTS "
        "(SELECT 1 FROM refs WHERE refs.body = bodies.key)"
    )
    return rows[0][0]


def _remove(engine: Engine, row: SessionRow) -> None:
    """Remove a session; words by which copies of its messages are found stay."""
    for start in range(0, row.indexed, _CHUNK):
        end = min(start + _CHUNK, row.indexed)
        docs = _own_docs(engine, row, start, end)
        for held in read_messages(engine, row.key, start, end, sized=False):
            if held.place in docs:
                engine.unindex(docs[held.place], message_words(held.message))
    engine.run(
        "DELETE FROM messages WHERE key >= ? AND key < ?",
        (key_at(row.key, 0), key_at(row.key + 1, 0)),
    )
    for table in ("parts", "refs", "acts", "events"):
        engine.run(f"DELETE FROM {table} WHERE session = ?", (row.key,))  # noqa: S608 - constants
    engine.run("DELETE FROM sessions WHERE key = ?", (row.key,))


def _own_docs(engine: Engine, row: SessionRow, start: int, end: int) -> dict[int, int]:
    """The documents of a range of messages that no message of another session shares."""
    rows = engine.read(
        "SELECT m.place, coalesce(m.doc, m.key) FROM messages m "
        "WHERE m.key >= ? AND m.key < ? AND NOT EXISTS ("
        "SELECT 1 FROM messages o WHERE o.doc = coalesce(m.doc, m.key) AND o.session <> m.session"
        ") AND (m.doc IS NULL OR NOT EXISTS (SELECT 1 FROM messages o WHERE o.key = m.doc))",
        (key_at(row.key, start), key_at(row.key, end)),
    )
    return dict(rows)


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
            _copy_all(store, made)
        made.replace(path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                Path(f"{name}{suffix}").unlink()


def _copy_all(store: Store, path: Path) -> None:
    target = Sqlite(path)
    try:
        copy_sessions(store, target)
    finally:
        target.close()


def copy_sessions(store: Store, target: Engine) -> list[SessionRow]:
    """Copy all sessions of a store, as of one moment, into another."""
    with store.engine.reading(), target.writing():
        return [copy_session(store.engine, row, target) for row in reversed(store.sessions())]
