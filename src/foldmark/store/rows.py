"""Rows of a store as values, and the queries that read them."""

from collections.abc import Iterable
from typing import Any

from msgspec import UnsetType

from foldmark.errors import BadInput, StoreError
from foldmark.log.log import Entry, LogCheckpoint
from foldmark.model.messages import SessionInfo, Transcript, decode_message
from foldmark.model.operations import Operation
from foldmark.model.values import Extra, Frozen, Json, decoder
from foldmark.tokens.sizes import Size

from .encoding import blob, from_column, key_at, unpack
from .engine import Engine, Row

IN_FORCE = "undone IS NULL AND reverted IS NULL"
# Pivots waiting for a summary: neither failed nor undone.
QUEUED = f"kind = 'pivot' AND summary IS NULL AND failed IS NULL AND {IN_FORCE}"
SESSION = (
    "key, id, info, estimate, created, updated, places, parts, tokens, size, "
    "acts, events, indexed, settled, version, holder, expires"
)
OPERATION = (
    "number, kind, at, place, marker, summary, tail, tail_id, before, after, "
    "claimed, failed, undone, reverted"
)
OPERATION_ROW = f"{OPERATION}, memory, marks, last_mark"  # every column of an operation
MESSAGE = "place, ordinal, id, data"
PART = "ordinal, place, kind, fixed, body, attached"
EVENT = "number, at, data"
_OPERATION_FIELDS = tuple(OPERATION.split(", "))
Key = tuple[Engine, int]  # a session: its engine and its key
_CHUNK = 500  # messages copied at once
_decode_shell = decoder(Transcript)
_decode_events = decoder(list[tuple[str, Json]])


class SessionRow(Frozen):
    """A session's row; the fields are named after the columns."""

    key: int
    id: str
    info: SessionInfo
    extra: Extra | UnsetType  # unknown fields beside info and messages
    estimate: str  # the counter used for its tokens
    created: int
    updated: int
    places: int  # number of messages
    parts: int
    tokens: int
    size: int  # of its JSON, uncompressed
    acts: int  # number of operations
    events: int
    indexed: int  # messages from this index on are not in the search index yet
    settled: int  # number of messages when an operation last changed the view
    version: int  # incremented by every change
    holder: str | None
    expires: int | None


class LoadedSession(Frozen):
    """The part of a session that its view shows."""

    row: SessionRow
    past: LogCheckpoint
    messages: list[Entry]
    end: int
    parts: int


def read_session_rows(engine: Engine, where: str, *args: object) -> list[SessionRow]:
    """The sessions for an SQL condition, order or both."""
    sql = f"SELECT {SESSION} FROM sessions {where}"  # noqa: S608 - constants
    return [_session(row) for row in engine.read(sql, args)]


def _session(row: Row) -> SessionRow:
    """The session of a `SESSION` row."""
    names = SESSION.split(", ")
    fields: dict[str, Any] = dict(zip(names, row, strict=True))
    try:
        shell = _decode_shell(unpack(fields["info"]))
        fields |= {"info": shell.info, "extra": shell.extra}
    except ValueError as error:
        raise BadInput(f"damaged: {error}", source=f"session {fields['id']}") from None
    return SessionRow(**fields)


def _operation(row: Row) -> Operation:
    """The operation of an `OPERATION` row."""
    fields: dict[str, Any] = dict(zip(_OPERATION_FIELDS, row, strict=True))
    for name in ("tail_id", "failed"):
        fields[name] = from_column(fields[name])
    return Operation(**fields)


def read_operations(
    engine: Engine, session: int, where: str = "TRUE", *args: object, order: str = "number"
) -> list[Operation]:
    """The operations of a session that match an SQL condition, oldest first."""
    sql = f"SELECT {OPERATION} FROM acts WHERE session = ? AND {where} ORDER BY {order}"  # noqa: S608
    return list(map(_operation, engine.read(sql, (session, *args))))


def read_gaps(engine: Engine, session: int, in_force: str = IN_FORCE) -> list[range]:
    """The index ranges hidden by reverts, in order."""
    reverts = read_operations(engine, session, f"kind = 'revert' AND {in_force}", order="tail")
    return [range(revert.tail or 0, revert.marker or 0) for revert in reverts]


def is_hidden(engine: Engine, session: int, index: int) -> bool:
    """Whether a revert hides the message at an index."""
    return any(index in gap for gap in read_gaps(engine, session))


def decode_events(data: object) -> list[tuple[str, Json]]:
    """Kinds and data of the events of one transaction, which share one row."""
    try:
        return _decode_events(blob(data))
    except ValueError as error:
        raise BadInput(f"damaged: {error}", source="an event") from None


def row_json(engine: Engine, data: object) -> bytes:
    """The JSON in a column. Raises StoreError if it is damaged."""
    try:
        return unpack(data)
    except ValueError as error:
        raise StoreError(engine.name, str(error)) from None


def read_messages(
    engine: Engine, session: int, first: int, end: int, *, sized: bool = True
) -> list[Entry]:
    """The messages of an index range."""
    return _entries(engine, session, _message_rows(engine, session, first, end), sized=sized)


def read_contents(
    engine: Engine, session: int, first: int, end: int
) -> list[tuple[int, int, bytes]]:
    """Index, ordinal and JSON of the messages of a range, not decoded."""
    rows = _message_rows(engine, session, first, end)
    return [(index, ordinal, row_json(engine, data)) for index, ordinal, data in rows]


def _message_rows(engine: Engine, session: int, first: int, end: int) -> list[Row]:
    return engine.read(
        "SELECT place, ordinal, data FROM messages WHERE key >= ? AND key < ? ORDER BY key",
        (key_at(session, first), key_at(session, end)),
    )


def read_messages_at(engine: Engine, session: int, indexes: list[int]) -> list[Entry]:
    """The messages at these indexes, newest first."""
    keys = one_of("key", [key_at(session, index) for index in indexes])
    rows = engine.read(
        f"SELECT place, ordinal, data FROM messages WHERE {keys} ORDER BY key DESC"  # noqa: S608
    )
    return _entries(engine, session, rows, sized=False)


def one_of(column: str, numbers: list[int]) -> str:
    """An SQL condition; the numbers are inlined because engines limit the count of arguments."""
    return f"{column} IN ({', '.join(map(str, numbers))})" if numbers else "1 = 0"


def _entries(engine: Engine, session: int, rows: list[Row], *, sized: bool) -> list[Entry]:
    if not rows:
        return []
    messages = [decode_message(row_json(engine, data)) for _, _, data in rows]
    end = rows[-1][1] + len(messages[-1].parts)
    sizes = _sizes(engine, session, rows[0][1], end) if sized else {}
    entries: list[Entry] = []
    for (index, ordinal, _), message in zip(rows, messages, strict=True):
        last = ordinal + len(message.parts)
        part_sizes = tuple(sizes[number] for number in range(ordinal, last)) if sized else ()
        entries.append(Entry(index=index, ordinal=ordinal, message=message, sizes=part_sizes))
    return entries


def _sizes(engine: Engine, session: int, first: int, end: int) -> dict[int, Size]:
    rows = engine.read(
        "SELECT ordinal, fixed, body, attached FROM parts "
        "WHERE session = ? AND ordinal >= ? AND ordinal < ?",
        (session, first, end),
    )
    return {row[0]: Size(fixed=row[1], body=row[2], attached=row[3]) for row in rows}


# --- copying rows; the caller holds the transactions ---


def copy_messages(source: Key, target: Key, ranges: Iterable[range]) -> None:
    """Copy the messages of these index ranges, with their parts, to another session."""
    insert = insertion("messages", f"key, {MESSAGE}")
    for indexes in ranges:
        for first in range(indexes.start, indexes.stop, _CHUNK):
            last = min(first + _CHUNK, indexes.stop)
            sql = f"SELECT {MESSAGE} FROM messages WHERE key >= ? AND key < ?"  # noqa: S608
            rows = source[0].read(sql, (key_at(source[1], first), key_at(source[1], last)))
            target[0].run_many(insert, ((key_at(target[1], row[0]), *row) for row in rows))
        where = "place >= ? AND place < ?"
        copy_rows(source, target, "parts", PART, where, indexes.start, indexes.stop)


def copy_rows(
    source: Key, target: Key, table: str, columns: str, where: str = "TRUE", *args: object
) -> None:
    """Copy a session's rows of a table that match an SQL condition to another session."""
    sql = f"SELECT {columns} FROM {table} WHERE session = ? AND {where}"  # noqa: S608 - constants
    rows = source[0].read(sql, (source[1], *args))
    insert = insertion(table, f"session, {columns}")
    target[0].run_many(insert, ((target[1], *row) for row in rows))


def insertion(table: str, columns: str) -> str:
    """The statement that inserts one row."""
    placeholders = ", ".join("?" for _ in columns.split(", "))
    return f"INSERT INTO {table} ({columns}) VALUES ({placeholders})"  # noqa: S608 - constants
