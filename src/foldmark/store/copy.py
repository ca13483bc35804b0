"""A session copied from one store into another, row by row as it is.

So a PostgreSQL database is backed up into a file, and a file moved into PostgreSQL.
"""

from foldmark.errors import StoreError

from .engine import Engine
from .rows import ACT_ROW, EVENT, MESSAGE, PART, SESSION, SessionRow, session_row
from .schema import key_at

_CHUNK = 500
# All but the key, how far it is indexed, and who writes to it.
_KEPT = ", ".join(
    name for name in SESSION.split(", ") if name not in {"key", "indexed", "holder", "expires"}
)


def copy_session(source: Engine, row: SessionRow, target: Engine) -> SessionRow:
    """Copy a session with everything that is kept of it; the caller holds both transactions.

    Its words are indexed by who searches first.
    """
    if target.read("SELECT 1 FROM sessions WHERE id = ?", (row.id,)):
        raise StoreError(target.name, f"session {row.id} is there already")
    kept = source.read(f"SELECT {_KEPT} FROM sessions WHERE key = ?", (row.key,))  # noqa: S608
    target.run(_insert("sessions", f"indexed, {_KEPT}"), (0, *kept[0]))
    found = target.read(f"SELECT {SESSION} FROM sessions WHERE id = ?", (row.id,))  # noqa: S608
    new = session_row(found[0])
    _copy_messages(source, row, target, new.key)
    for table, columns in (("parts", PART), ("acts", ACT_ROW), ("events", EVENT)):
        rows = source.read(f"SELECT {columns} FROM {table} WHERE session = ?", (row.key,))  # noqa: S608
        target.run_many(_insert(table, f"session, {columns}"), ((new.key, *held) for held in rows))
    return new


def _copy_messages(source: Engine, row: SessionRow, target: Engine, key: int) -> None:
    statement = _insert("messages", f"key, {MESSAGE}")
    for start in range(0, row.places, _CHUNK):
        rows = source.read(
            f"SELECT {MESSAGE} FROM messages WHERE key >= ? AND key < ?",  # noqa: S608 - constants
            (key_at(row.key, start), key_at(row.key, min(start + _CHUNK, row.places))),
        )
        target.run_many(statement, ((key_at(key, held[0]), *held) for held in rows))


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" for _ in columns.split(", "))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608 - constants
