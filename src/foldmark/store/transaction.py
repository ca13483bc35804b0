"""One transaction on one session: what is written in it is there whole, or not at all."""

from collections.abc import Iterable, Iterator, Sequence
from time import time
from typing import Any

from msgspec.structs import replace

from foldmark.errors import StoreError
from foldmark.log.user_requests import RequestMemory
from foldmark.model.events import Event
from foldmark.model.messages import Message, Number, ToolPart, has_result, kind_of
from foldmark.model.operations import taken_back
from foldmark.model.values import Json, encode
from foldmark.tokens.sizes import Size

from .encoding import Body, hollowed, packed, packed_body, with_keys
from .engine import Engine
from .marking import packed_marks
from .rows import PART, SessionRow, read_acts, read_messages
from .schema import key_at
from .search_terms import clean, column, message_words

# What is shown is quickly looked through: words are indexed when messages are folded, when a
# session is closed, or when so many messages wait for it.
MOST_WAITING, WORTH_INDEXING = 2_048, 256
_CHUNK = 256  # messages, or keys of bodies, that are read at once
Row = tuple[object, ...]
New = tuple[Message, Sequence[Size], bytes]  # a message, what its parts cost, and its JSON

# The kind, in its narrow row, of a tool's part that waits for its result.
CALL = "call"


def milliseconds() -> int:
    """The time."""
    return int(time() * 1000)


class Change:
    """What is written to a session in one transaction."""

    def __init__(self, engine: Engine, row: SessionRow) -> None:
        """Take the session as it is inside the transaction."""
        self._engine = engine
        self.row = row
        self._key = row.key
        self.places = row.places
        self.parts = row.parts
        self.acts = row.acts
        self.settled = row.settled
        self.at = milliseconds()
        self._told: list[tuple[str, Json]] = []  # the events: kinds and data
        self._tokens = row.tokens
        self._size = row.size
        self._indexed = row.indexed

    # --- messages ---

    def append(self, message: Message, sizes: Sequence[Size], encoded: bytes | None = None) -> int:
        """Add a message at the end; its place. It may have been encoded already."""
        self.append_many([(message, sizes, encoded or encode(message))])
        return self.places - 1

    def append_many(self, new: Sequence[New]) -> None:
        """Add messages at the end, in as few statements as that takes."""
        first = self.places
        contents = [(first + number, data) for number, (_, _, data) in enumerate(new)]
        self._size += sum(len(data) for _, data in contents)
        messages: list[Row] = []
        parts: list[Row] = []
        for data, (message, sizes, _) in zip(
            kept_rows(self._engine, self._key, contents), new, strict=True
        ):
            place, ordinal = self.places, self.parts
            messages.append(message_row(self._key, place, ordinal, message, data))
            parts += self._part_rows(message, sizes, place, ordinal)
            self.places += 1
            self.parts += len(sizes)
        self._engine.run_many(INSERT_MESSAGE, messages)
        self._engine.run_many(_INSERT_PART, parts)

    def put(
        self, place: int, ordinal: int, old: Message, new: Message, sizes: Sequence[Size]
    ) -> None:
        """Put a newer state of a message in its place; it may have more parts if it is the last."""
        self._engine.run("DELETE FROM refs WHERE session = ? AND place = ?", (self._key, place))
        self._forget_parts(ordinal, old)
        data = self._keep(encode(new), place)
        self._engine.run(
            "UPDATE messages SET data = ? WHERE key = ?", (data, key_at(self._key, place))
        )
        self._engine.run_many(_INSERT_PART, self._part_rows(new, sizes, place, ordinal))
        if place == self.places - 1:
            self.parts = ordinal + len(sizes)
        if place < self._indexed:
            self._index_anew(place, old, new)

    def _forget_parts(self, ordinal: int, old: Message) -> None:
        where = "WHERE session = ? AND ordinal >= ? AND ordinal < ?"
        span = (self._key, ordinal, ordinal + len(old.parts))
        rows = self._engine.read(
            f"SELECT coalesce(sum(fixed + body + attached), 0) FROM parts {where}",  # noqa: S608
            span,
        )
        self._tokens -= int(rows[0][0])
        self._size -= len(encode(old))
        self._engine.run(f"DELETE FROM parts {where}", span)  # noqa: S608 - constants

    def _index_anew(self, place: int, old: Message, new: Message) -> None:
        key = key_at(self._key, place)
        doc = self._engine.read("SELECT doc FROM messages WHERE key = ?", (key,))[0][0]
        if doc is None:
            self._hand_on(key, old)
            self._engine.index(key, message_words(new), instead_of=message_words(old))
            return
        # It was found by the words of the message that it is a copy of.
        self._engine.run("UPDATE messages SET doc = NULL WHERE key = ?", (key,))
        self._engine.index(key, message_words(new))

    def _hand_on(self, key: int, old: Message) -> None:
        """Let copies of a message that changes be found by the words that they still have."""
        heir = self._engine.read("SELECT min(key) FROM messages WHERE doc = ?", (key,))[0][0]
        if heir is not None:
            self._engine.run("UPDATE messages SET doc = NULL WHERE key = ?", (heir,))
            self._engine.run("UPDATE messages SET doc = ? WHERE doc = ?", (heir, key))
            self._engine.index(heir, message_words(old))

    def _part_rows(
        self, message: Message, sizes: Sequence[Size], place: int, ordinal: int
    ) -> list[Row]:
        rows: list[Row] = []
        for offset, (part, size) in enumerate(zip(message.parts, sizes, strict=True)):
            tool = clean(part.tool) if isinstance(part, ToolPart) else None
            kind = kind_of(part)
            if tool is not None and not has_result(part):
                kind = CALL
            fixed, body, attached = size.fixed, size.body, size.attached
            rows.append((self._key, ordinal + offset, place, kind, tool, fixed, body, attached))
            self._tokens += fixed + body + attached
        return rows

    def _keep(self, data: bytes, place: int) -> bytes:
        """The bytes of a row, its long texts put apart."""
        self._size += len(data)
        return kept_row(self._engine, data, self._key, place)

    # --- acts ---

    def act(self, kind: str, memory: RequestMemory | None = None, **fields: Any) -> int:
        """Note an act; its number."""
        self.acts += 1
        fields = _in_columns(fields)
        held: Json = {
            "number": self.acts,
            "kind": kind,
            "at": self.at,
            "place": self.places,
            **fields,
        }
        if memory is not None:
            held["memory"] = self._remembered(memory, held["marker"])
        columns = ", ".join(("session", *held))
        marks = ", ".join("?" for _ in range(len(held) + 1))
        self._engine.run(
            f"INSERT INTO acts ({columns}) VALUES ({marks})",  # noqa: S608 - our own names
            (self._key, *held.values()),
        )
        return self.acts

    def change_act(self, number: int, memory: RequestMemory | None = None, **fields: Any) -> None:
        """Change what is noted of an act."""
        fields = _in_columns(fields)
        if memory is not None:
            fields["memory"] = self._remembered(memory, fields["marker"])
        columns = ", ".join(f"{name} = ?" for name in fields)
        self._engine.run(
            f"UPDATE acts SET {columns} WHERE session = ? AND number = ?",  # noqa: S608 - our own
            (*fields.values(), self._key, number),
        )

    def _remembered(self, memory: RequestMemory, marker: int) -> bytes:
        size = self._size
        data = self._keep(encode(memory), marker)
        self._size = size  # it is told by the messages already
        return data

    def claim(self, number: int, holder: str, *, anew: bool = True) -> bool:
        """Take a queued compaction for oneself; False where it is done.

        Who writes holds the session's lease, so whoever claimed it before is gone, and it is taken
        `anew`; without that, it must be one's own still.
        """
        taken = self._engine.run(
            "UPDATE acts SET claimed = ? WHERE session = ? AND number = ? AND summary IS NULL "
            "AND failed IS NULL AND (claimed = ? OR ?)",
            (holder, self._key, number, holder, anew),
        )
        return taken == 1

    def prune(self, ordinals: Iterable[int], at: list[Number] | Number, **fields: Any) -> int:
        """Mark parts as pruned: one act, one statement, however many; see `packed_marks`."""
        data, last = packed_marks(ordinals, at)
        number = self.act("prune", marks=data, last_mark=last, **fields)
        self.settled = self.places
        return number

    def take_back(self, number: int, *, undone: bool) -> None:
        """Take an act back, or put it in force again; with what a revert took back."""
        # Each a millisecond later at least, so that what was undone last is known.
        newest = max((act.undone or 0 for act in read_acts(self._engine, self._key)), default=0)
        self.change_act(number, undone=max(self.at, newest + 1) if undone else None)
        self._settle_reverts()

    def revert(self, place: int) -> int:
        """Hide all after a place, and take back what was done since."""
        number = self.act("revert", tail=place + 1, marker=self.places)
        self._settle_reverts()
        return number

    def _settle_reverts(self) -> None:
        """Note of each act by which revert it is taken back, as the acts are now."""
        acts = read_acts(self._engine, self._key)
        reverted = taken_back(acts)
        for act in acts:
            if act.reverted != reverted[act.number]:
                self.change_act(act.number, reverted=reverted[act.number])
        self.settled = self.places

    # --- events, and the end ---

    def row_now(self) -> SessionRow:
        """The session as it is by now."""
        return replace(
            self.row,
            places=self.places,
            parts=self.parts,
            acts=self.acts,
            settled=self.settled,
            tokens=self._tokens,
            size=self._size,
            indexed=self._indexed,
        )

    def row_after(self) -> SessionRow:
        """The session as the transaction left it."""
        events = self.row.events + len(self._told)
        return replace(self.row_now(), events=events, version=self.row.version + 1)

    def event(self, kind: str, /, **data: Any) -> None:
        """Note that something happened; it is told when the transaction is done."""
        self._told.append((kind, data))

    def events(self) -> Iterator[Event]:
        """What happened, as it is told."""
        for number, (kind, data) in enumerate(self._told, start=self.row.events + 1):
            yield Event(number=number, session=self.row.id, kind=kind, at=self.at, data=data)

    def finish(self, *, lease: int | None = None, index: bool = True) -> None:
        """Write what is kept of the session itself; words are indexed when it is time to."""
        if index and self.places - self._indexed >= MOST_WAITING:
            self.index_all()
        last = self.row.events + len(self._told)
        if self._told:
            # All of one transaction in one row, under the number of the last.
            self._engine.run(
                "INSERT INTO events (session, number, at, data) VALUES (?, ?, ?, ?)",
                (self._key, last, self.at, encode(self._told)),
            )
        renewed = f"coalesce({self._engine.now} + ?, expires)"
        self._engine.run(
            f"UPDATE sessions SET {_KEPT}, version = version + 1, expires = {renewed} "  # noqa: S608
            "WHERE key = ?",
            (
                *(self.at, self.places, self.parts, self._tokens, self._size, self.acts),
                *(last, self._indexed, self.settled),
                *(lease, self._key),
            ),
        )

    def index_all(self) -> None:
        """Let all messages be found by their words."""
        for first in range(self._indexed, self.places, _CHUNK):
            end = min(first + _CHUNK, self.places)
            for held in read_messages(self._engine, self._key, first, end, sized=False):
                self._engine.index(key_at(self._key, held.place), message_words(held.message))
        self._indexed = self.places


def kept_row(engine: Engine, data: bytes, session: int, place: int) -> bytes:
    """The bytes of a row as a store keeps them: its long texts are put apart."""
    return kept_rows(engine, session, [(place, data)])[0]


def kept_rows(engine: Engine, session: int, rows: Iterable[tuple[int, bytes]]) -> list[bytes]:
    """The same for many rows, each with its place."""
    hollow = [(place, *hollowed(data)) for place, data in rows]
    found = {body.digest: body for _, _, bodies in hollow for body in bodies}
    keys = _kept(engine, found) if found else {}
    refs: list[Row] = []
    packed_rows: list[bytes] = []
    for place, pieces, bodies in hollow:
        used = [keys[body.digest] for body in bodies]
        refs += [(session, place, key) for key in sorted(set(used))]
        packed_rows.append(packed(with_keys(pieces, used)))
    if refs:
        engine.run_many(_INSERT_REF, refs)
    return packed_rows


def _kept(engine: Engine, bodies: dict[bytes, Body]) -> dict[bytes, int]:
    """The keys of these bodies; the ones that are new are stored."""
    engine.lock_bodies(alone=False)
    # In the order of their digests: two transactions that add the same ones never wait in a ring.
    keys = _known(engine, sorted(bodies))
    new = [digest for digest in sorted(bodies) if digest not in keys]
    if new:
        held = ((digest, bodies[digest].data) for digest in new)
        rows = ((digest, len(data), packed_body(data)) for digest, data in held)
        engine.run_many(_INSERT_BODY, rows)
        keys |= _known(engine, new)
    if len(keys) < len(bodies):
        raise StoreError(engine.name, "a body was removed while it was written; try again")
    return keys


def _known(engine: Engine, digests: list[bytes]) -> dict[bytes, int]:
    """The keys of bodies that are there."""
    keys: dict[bytes, int] = {}
    for start in range(0, len(digests), _CHUNK):
        wanted = digests[start : start + _CHUNK]
        marks = ", ".join("?" for _ in wanted)
        sql = f"SELECT digest, key FROM bodies WHERE digest IN ({marks})"  # noqa: S608 - marks
        keys |= {bytes(digest): key for digest, key in engine.read(sql, wanted)}
    return keys


def _in_columns(fields: Json) -> Json:
    """The fields of an act, with texts as every engine can hold them."""
    return {name: column(held) if name in _TEXTS else held for name, held in fields.items()}


def message_row(session: int, place: int, ordinal: int, message: Message, data: bytes) -> Row:
    """The row of `INSERT_MESSAGE`."""
    role = "user" if message.is_user else "assistant"
    return key_at(session, place), session, place, ordinal, clean(message.id), role, data


INSERT_MESSAGE = (
    "INSERT INTO messages (key, session, place, ordinal, id, role, data) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_BODY = (
    "INSERT INTO bodies (digest, size, data) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING"
)
_TEXTS = ("tail_id", "failed")
_KEPT = (
    "updated = ?, places = ?, parts = ?, tokens = ?, size = ?, acts = ?, events = ?, "
    "indexed = ?, settled = ?"
)
_INSERT_PART = f"INSERT INTO parts (session, {PART}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - constants
_INSERT_REF = "INSERT INTO refs (session, place, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
