"""Rows of a store as values, and the queries that read them."""

from typing import Any

from msgspec import UnsetType

from foldmark.errors import BadInput, StoreError
from foldmark.log.log import LogCheckpoint
from foldmark.model.messages import Message, SessionInfo, Transcript, decode_message
from foldmark.model.operations import Operation
from foldmark.model.values import Extra, Frozen, Json, decoder
from foldmark.tokens.sizes import Size

from .encoding import filled, referred, unpacked
from .engine import Engine, Row
from .schema import key_at
from .search_terms import from_column

IN_FORCE = "undone IS NULL AND reverted IS NULL"
SESSION = (
    "key, id, info, estimate, created, updated, places, parts, tokens, size, "
    "acts, events, indexed, settled, version, holder, expires"
)
ACT = (
    "number, kind, at, place, marker, summary, tail, tail_id, before, after, "
    "claimed, failed, undone, reverted"
)
PART = "ordinal, place, kind, tool, fixed, body, attached"
_ACT_FIELDS = tuple(ACT.split(", "))
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
    size: int  # of its JSON, before anything is shared or compressed
    acts: int
    events: int
    indexed: int  # messages from here on are not in the index of words yet
    settled: int  # how many messages there were when the view was last changed by an act
    version: int  # counts every change
    holder: str | None
    expires: int | None


class Stored(Frozen, gc=False):
    """A message in its place."""

    place: int
    ordinal: int
    message: Message
    sizes: tuple[Size, ...]


class Loaded(Frozen):
    """A session as far as its view shows it."""

    row: SessionRow
    past: LogCheckpoint
    messages: list[Stored]
    end: int
    parts: int


def session_row(row: Row) -> SessionRow:
    """The session that a row of `SESSION` tells of."""
    names = SESSION.split(", ")
    fields: dict[str, Any] = dict(zip(names, row, strict=True))
    try:
        shell = _shell(unpacked(_blob(fields["info"])))
        fields |= {"info": shell.info, "extra": shell.extra}
    except ValueError as error:
        raise BadInput(f"damaged: {error}", source=f"session {fields['id']}") from None
    return SessionRow(**fields)


def act_row(row: Row) -> Operation:
    """The act that a row of `ACT` tells of."""
    fields: dict[str, Any] = dict(zip(_ACT_FIELDS, row, strict=True))
    for name in ("tail_id", "failed"):
        fields[name] = from_column(fields[name])
    return Operation(**fields)


def read_acts(engine: Engine, session: int, kind: str | None = None) -> list[Operation]:
    """What was done to a session, oldest first."""
    where = "" if kind is None else " AND kind = ?"
    args = (session,) if kind is None else (session, kind)
    sql = f"SELECT {ACT} FROM acts WHERE session = ?{where} ORDER BY number"  # noqa: S608
    return [act_row(row) for row in engine.read(sql, args)]


def read_told(data: bytes) -> list[tuple[str, Json]]:
    """Kinds and data of the events of one transaction, which are kept in one row."""
    try:
        return _told(_blob(data))
    except ValueError as error:
        raise BadInput(f"damaged: {error}", source="an event") from None


class Bodies:
    """The long texts that some stored JSON refers to."""

    def __init__(self, engine: Engine, stored: list[bytes]) -> None:
        """Read all that these refer to at once."""
        keys = {key for data in stored for key in referred(data)}
        self._engine = engine
        self._held: dict[int, object] = {}
        if keys:
            rows = engine.read(
                f"SELECT key, data FROM bodies WHERE key IN ({engine.numbers})",  # noqa: S608
                (engine.many_numbers(keys),),
            )
            self._held = dict(rows)

    def __call__(self, key: int) -> bytes:
        """One of them."""
        if key not in self._held:
            raise StoreError(self._engine.name, f"damaged: body {key} is missing")
        return unpacked(_blob(self._held[key]))


def _blob(data: object) -> bytes:
    """Bytes as a row holds them; a damaged row may hold anything, `bytes(2**40)` among it."""
    if not isinstance(data, bytes):
        raise ValueError("damaged: a row without content")  # noqa: TRY004 - no mistake of a caller
    return data


def whole(engine: Engine, stored: list[bytes]) -> list[bytes]:
    """Stored JSON as it was given, long texts in their places."""
    try:
        opened = [unpacked(_blob(data)) for data in stored]
        bodies = Bodies(engine, opened)
        return [filled(data, bodies) for data in opened]
    except ValueError as error:
        raise StoreError(engine.name, str(error)) from None


def read_messages(
    engine: Engine, session: int, first: int, end: int, *, sized: bool = True
) -> list[Stored]:
    """The messages of a range of places."""
    return _stored(engine, session, _message_rows(engine, session, first, end), sized=sized)


def read_contents(
    engine: Engine, session: int, first: int, end: int
) -> list[tuple[int, int, bytes]]:
    """The places, ordinals and JSON of a range of messages: not all that is read is decoded."""
    rows = _message_rows(engine, session, first, end)
    contents = whole(engine, [row[2] for row in rows])
    return [(row[0], row[1], data) for row, data in zip(rows, contents, strict=True)]


def _message_rows(engine: Engine, session: int, first: int, end: int) -> list[Row]:
    return engine.read(
        "SELECT place, ordinal, data FROM messages WHERE key >= ? AND key < ? ORDER BY key",
        (key_at(session, first), key_at(session, end)),
    )


def read_sayings(
    engine: Engine, session: int, first: int, end: int
) -> list[tuple[int, int, Message]]:
    """The same messages for who wants the user's words: long texts of answers are left out."""
    found: list[tuple[int, int, Message]] = []
    for place, ordinal, data in _message_rows(engine, session, first, end):
        message = decode_message(unpacked(_blob(data)))
        if message.is_user:
            message = decode_message(whole(engine, [data])[0])
        found.append((place, ordinal, message))
    return found


def read_places(engine: Engine, session: int, places: list[int]) -> list[Stored]:
    """The messages at some places, the newest first."""
    keys = engine.many_numbers(key_at(session, place) for place in places)
    rows = engine.read(
        "SELECT place, ordinal, data FROM messages "  # noqa: S608 - constants
        f"WHERE key IN ({engine.numbers}) ORDER BY key DESC",
        (keys,),
    )
    return _stored(engine, session, rows, sized=False)


def _stored(engine: Engine, session: int, rows: list[Row], *, sized: bool) -> list[Stored]:
    if not rows:
        return []
    contents = whole(engine, [row[2] for row in rows])
    messages = [decode_message(data) for data in contents]
    end = rows[-1][1] + len(messages[-1].parts)
    sizes = _sizes(engine, session, rows[0][1], end) if sized else {}
    found: list[Stored] = []
    for (place, ordinal, _), message in zip(rows, messages, strict=True):
        last = ordinal + len(message.parts)
        held = tuple(sizes[number] for number in range(ordinal, last)) if sized else ()
        found.append(Stored(place=place, ordinal=ordinal, message=message, sizes=held))
    return found


def _sizes(engine: Engine, session: int, first: int, end: int) -> dict[int, Size]:
    rows = engine.read(
        "SELECT ordinal, fixed, body, attached FROM parts "
        "WHERE session = ? AND ordinal >= ? AND ordinal < ?",
        (session, first, end),
    )
    return {row[0]: Size(fixed=row[1], body=row[2], attached=row[3]) for row in rows}
