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

from .encoding import blob, from_column, key_at, unpacked
from .engine import Engine, Row

IN_FORCE = "undone IS NULL AND reverted IS NULL"
# Pivots without a summary that nobody has given up or taken back.
QUEUED = f"kind = 'pivot' AND summary IS NULL AND failed IS NULL AND {IN_FORCE}"
SESSION = (
    "key, id, info, estimate, created, updated, places, parts, tokens, size, "
    "acts, events, indexed, settled, version, holder, expires"
)
ACT = (
    "number, kind, at, place, marker, summary, tail, tail_id, before, after, "
    "claimed, failed, undone, reverted"
)
ACT_ROW = f"{ACT}, memory, marks, last_mark"  # all that is kept of an act
MESSAGE = "place, ordinal, id, data"
PART = "ordinal, place, kind, fixed, body, attached"
EVENT = "number, at, data"
_ACT_FIELDS = tuple(ACT.split(", "))
Key = tuple[Engine, int]  # a session, by its engine and its key
_CHUNK = 500  # messages that are copied at once
_shell = decoder(Transcript)
_told = decoder(list[tuple[str, Json]])


class SessionRow(Frozen):
    """What is kept of a session beside its messages."""

    key: int
    id: str
    info: SessionInfo
    extra: Extra | UnsetType  # what stood beside info and messages where it came from
    estimate: str  # the counter by which its tokens were counted
    created: int
    updated: int
    places: int
    parts: int
    tokens: int
    size: int  # of its JSON, before it is compressed
    acts: int
    events: int
    indexed: int  # messages from here on are not in the index of words yet
    settled: int  # how many messages there were when the view was last changed by an act
    version: int  # counts every change
    holder: str | None
    expires: int | None


class Loaded(Frozen):
    """A session as far as its view shows it."""

    row: SessionRow
    past: LogCheckpoint
    messages: list[Entry]
    end: int
    parts: int


def read_session_rows(engine: Engine, where: str, *args: object) -> list[SessionRow]:
    """The sessions that fit a condition or come in an order, both in SQL."""
    sql = f"SELECT {SESSION} FROM sessions {where}"  # noqa: S608 - constants
    return [_session(row) for row in engine.read(sql, args)]


def _session(row: Row) -> SessionRow:
    """The session that a row of `SESSION` tells of."""
    names = SESSION.split(", ")
    fields: dict[str, Any] = dict(zip(names, row, strict=True))
    try:
        shell = _shell(unpacked(fields["info"]))
        fields |= {"info": shell.info, "extra": shell.extra}
    except ValueError as error:
        raise BadInput(f"damaged: {error}", source=f"session {fields['id']}") from None
    return SessionRow(**fields)


def _act(row: Row) -> Operation:
    """The act that a row of `ACT` tells of."""
    fields: dict[str, Any] = dict(zip(_ACT_FIELDS, row, strict=True))
    for name in ("tail_id", "failed"):
        fields[name] = from_column(fields[name])
    return Operation(**fields)


def read_acts(
    engine: Engine, session: int, where: str = "TRUE", *args: object, order: str = "number"
) -> list[Operation]:
    """What was done to a session and fits a condition in SQL, oldest first."""
    sql = f"SELECT {ACT} FROM acts WHERE session = ? AND {where} ORDER BY {order}"  # noqa: S608
    return list(map(_act, engine.read(sql, (session, *args))))


def read_gaps(engine: Engine, session: int, in_force: str = IN_FORCE) -> list[range]:
    """The places that reverts hide, in their order."""
    reverts = read_acts(engine, session, f"kind = 'revert' AND {in_force}", order="tail")
    return [range(act.tail or 0, act.marker or 0) for act in reverts]


def is_hidden(engine: Engine, session: int, place: int) -> bool:
    """Whether a revert hides a place."""
    return any(place in gap for gap in read_gaps(engine, session))


def read_told(data: object) -> list[tuple[str, Json]]:
    """Kinds and data of the events of one transaction, which are kept in one row."""
    try:
        return _told(blob(data))
    except ValueError as error:
        raise BadInput(f"damaged: {error}", source="an event") from None


def whole(engine: Engine, data: object) -> bytes:
    """The JSON that a row holds; StoreError where it is damaged."""
    try:
        return unpacked(data)
    except ValueError as error:
        raise StoreError(engine.name, str(error)) from None


def read_messages(
    engine: Engine, session: int, first: int, end: int, *, sized: bool = True
) -> list[Entry]:
    """The messages of a range of places."""
    return _stored(engine, session, _message_rows(engine, session, first, end), sized=sized)


def read_contents(
    engine: Engine, session: int, first: int, end: int
) -> list[tuple[int, int, bytes]]:
    """The places, ordinals and JSON of a range of messages: not all that is read is decoded."""
    rows = _message_rows(engine, session, first, end)
    return [(place, ordinal, whole(engine, data)) for place, ordinal, data in rows]


def _message_rows(engine: Engine, session: int, first: int, end: int) -> list[Row]:
    return engine.read(
        "SELECT place, ordinal, data FROM messages WHERE key >= ? AND key < ? ORDER BY key",
        (key_at(session, first), key_at(session, end)),
    )


def read_places(engine: Engine, session: int, places: list[int]) -> list[Entry]:
    """The messages at some places, the newest first."""
    keys = one_of("key", [key_at(session, place) for place in places])
    rows = engine.read(
        f"SELECT place, ordinal, data FROM messages WHERE {keys} ORDER BY key DESC"  # noqa: S608
    )
    return _stored(engine, session, rows, sized=False)


def one_of(column: str, numbers: list[int]) -> str:
    """A condition in SQL; numbers need no arguments, of which engines take a limited count."""
    return f"{column} IN ({', '.join(map(str, numbers))})" if numbers else "1 = 0"


def _stored(engine: Engine, session: int, rows: list[Row], *, sized: bool) -> list[Entry]:
    if not rows:
        return []
    messages = [decode_message(whole(engine, data)) for _, _, data in rows]
    end = rows[-1][1] + len(messages[-1].parts)
    sizes = _sizes(engine, session, rows[0][1], end) if sized else {}
    found: list[Entry] = []
    for (place, ordinal, _), message in zip(rows, messages, strict=True):
        last = ordinal + len(message.parts)
        held = tuple(sizes[number] for number in range(ordinal, last)) if sized else ()
        found.append(Entry(index=place, ordinal=ordinal, message=message, sizes=held))
    return found


def _sizes(engine: Engine, session: int, first: int, end: int) -> dict[int, Size]:
    rows = engine.read(
        "SELECT ordinal, fixed, body, attached FROM parts "
        "WHERE session = ? AND ordinal >= ? AND ordinal < ?",
        (session, first, end),
    )
    return {row[0]: Size(fixed=row[1], body=row[2], attached=row[3]) for row in rows}


# --- rows as they are; the caller holds the transactions ---


def copy_messages(source: Key, target: Key, places: Iterable[range]) -> None:
    """Copy the messages of these places of a session, and their parts, to another."""
    insert = insertion("messages", f"key, {MESSAGE}")
    for shown in places:
        for first in range(shown.start, shown.stop, _CHUNK):
            last = min(first + _CHUNK, shown.stop)
            sql = f"SELECT {MESSAGE} FROM messages WHERE key >= ? AND key < ?"  # noqa: S608
            rows = source[0].read(sql, (key_at(source[1], first), key_at(source[1], last)))
            target[0].run_many(insert, ((key_at(target[1], row[0]), *row) for row in rows))
        where = "place >= ? AND place < ?"
        copy_rows(source, target, "parts", PART, where, shown.start, shown.stop)


def copy_rows(
    source: Key, target: Key, table: str, columns: str, where: str = "TRUE", *args: object
) -> None:
    """Copy the rows of a session in a table that fit a condition in SQL to another."""
    sql = f"SELECT {columns} FROM {table} WHERE session = ? AND {where}"  # noqa: S608 - constants
    rows = source[0].read(sql, (source[1], *args))
    insert = insertion(table, f"session, {columns}")
    target[0].run_many(insert, ((target[1], *row) for row in rows))


def insertion(table: str, columns: str) -> str:
    """The statement that inserts a row."""
    marks = ", ".join("?" for _ in columns.split(", "))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608 - constants
