"""A session copied from one store into another, act by act and event by event.

So a PostgreSQL database is backed up into a file, and a file moved into PostgreSQL.
"""

from collections.abc import Iterator

from foldmark.errors import StoreError
from foldmark.model.values import encode

from .engine import Engine, Row
from .rows import ACT, PART, SESSION, SessionRow, read_messages, session_row, whole
from .schema import key_at
from .search_terms import message_words
from .transaction import INSERT_MESSAGE, kept_row, message_row

_CHUNK = 500
_AS_THEY_ARE = {
    "parts": PART,
    "events": "number, at, data",
}
_ACTS = f"{ACT}, marks, last_mark, memory"


def copy_session(source: Engine, row: SessionRow, target: Engine) -> SessionRow:
    """Copy a session with everything that is kept of it; the caller holds both transactions."""
    key = _new_session(source, row, target)
    for start in range(0, row.places, _CHUNK):
        _copy_messages(source, row, target, key, range(start, min(start + _CHUNK, row.places)))
    for act in _rows(source, "acts", _ACTS, row.key):
        _copy_act(source, target, key, act)
    for table, columns in _AS_THEY_ARE.items():
        rows = ((key, *held) for held in _rows(source, table, columns, row.key))
        target.run_many(_insert(table, columns), rows)
    target.run("UPDATE sessions SET indexed = ? WHERE key = ?", (row.places, key))
    found = target.read(f"SELECT {SESSION} FROM sessions WHERE key = ?", (key,))  # noqa: S608
    return session_row(found[0])


def _new_session(source: Engine, row: SessionRow, target: Engine) -> int:
    if target.read("SELECT 1 FROM sessions WHERE id = ?", (row.id,)):
        raise StoreError(target.name, f"session {row.id} is there already")
    # All but the key, and who writes to it.
    columns = SESSION.removeprefix("key, ").removesuffix(", holder, expires")
    sql = f"SELECT {columns} FROM sessions WHERE key = ?"  # noqa: S608 - constants
    held = source.read(sql, (row.key,))[0]
    marks = ", ".join("?" for _ in held)
    return target.insert(f"INSERT INTO sessions ({columns}) VALUES ({marks})", held)  # noqa: S608


def _copy_messages(
    source: Engine, row: SessionRow, target: Engine, key: int, places: range
) -> None:
    for held in read_messages(source, row.key, places.start, places.stop, sized=False):
        data = kept_row(target, encode(held.message), key, held.place)
        target.run(INSERT_MESSAGE, message_row(key, held.place, held.ordinal, held.message, data))
        target.index(key_at(key, held.place), message_words(held.message))


def _copy_act(source: Engine, target: Engine, key: int, act: Row) -> None:
    *fields, memory = act
    if memory is not None:
        marker = fields[4]
        memory = kept_row(target, whole(source, [memory])[0], key, marker)
    target.run(_insert("acts", _ACTS), (key, *fields, memory))


def _rows(source: Engine, table: str, columns: str, session: int) -> Iterator[Row]:
    sql = f"SELECT {columns} FROM {table} WHERE session = ?"  # noqa: S608 - constants
    yield from source.read(sql, (session,))


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" for _ in columns.split(", "))
    return f"INSERT INTO {table} (session, {columns}) VALUES (?, {marks})"  # noqa: S608 - constants
