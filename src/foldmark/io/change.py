"""One transaction on one session: what is written in it is there whole, or not at all."""

from collections.abc import Iterable, Sequence
from time import time
from typing import Any

from msgspec.structs import replace

from foldmark.errors import StoreError
from foldmark.events import Event
from foldmark.messages import Message, Number, ToolPart
from foldmark.requests import Memory
from foldmark.sizes import Size
from foldmark.values import Json, encode

from .engine import Engine
from .packing import Body, hollowed, packed, packed_body, with_keys
from .rows import SessionRow, read_messages
from .words import clean, message_words

# So many messages wait for their words to be indexed: at once they cost a fraction.
BATCH = 32


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
        self.events: list[Event] = []
        self._tokens = row.tokens
        self._size = row.size
        self._indexed = row.indexed

    # --- messages ---

    def append(self, message: Message, sizes: Sequence[Size]) -> int:
        """Add a message at the end; its place."""
        place, ordinal = self.places, self.parts
        data = self._keep(encode(message), place)
        self._engine.run(
            "INSERT INTO messages (session, place, ordinal, id, role, data) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (self._key, place, ordinal, clean(message.id), _role(message), data),
        )
        self._engine.run_many(_INSERT_PART, self._part_rows(message, sizes, place, ordinal))
        self.places += 1
        self.parts += len(sizes)
        return place

    def put(
        self, place: int, ordinal: int, old: Message, new: Message, sizes: Sequence[Size]
    ) -> None:
        """Put a newer state of a message in its place; it may have more parts if it is the last."""
        self._engine.run("DELETE FROM refs WHERE session = ? AND place = ?", (self._key, place))
        self._forget_parts(place, old)
        data = self._keep(encode(new), place)
        self._engine.run(
            "UPDATE messages SET data = ? WHERE session = ? AND place = ?",
            (data, self._key, place),
        )
        self._engine.run_many(_INSERT_PART, self._part_rows(new, sizes, place, ordinal))
        if place == self.places - 1:
            self.parts = ordinal + len(sizes)
        if place < self._indexed:
            self._index_anew(place, old, new)

    def _forget_parts(self, place: int, old: Message) -> None:
        rows = self._engine.read(
            "SELECT coalesce(sum(fixed + body + attached), 0) FROM parts "
            "WHERE session = ? AND place = ? AND ordinal >= ?",
            (self._key, place, 0),
        )
        self._tokens -= int(rows[0][0])
        self._size -= len(encode(old))
        self._engine.run("DELETE FROM parts WHERE session = ? AND place = ?", (self._key, place))

    def _index_anew(self, place: int, old: Message, new: Message) -> None:
        rows = self._engine.read(
            "SELECT key, doc FROM messages WHERE session = ? AND place = ?", (self._key, place)
        )
        key, doc = rows[0]
        if doc is None:
            self._engine.index(key, message_words(new), instead_of=message_words(old))
            return
        # It was found by the words of the message that it is a copy of.
        self._engine.run("UPDATE messages SET doc = NULL WHERE key = ?", (key,))
        self._engine.index(key, message_words(new))

    def _part_rows(
        self, message: Message, sizes: Sequence[Size], place: int, ordinal: int
    ) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for offset, (part, size) in enumerate(zip(message.parts, sizes, strict=True)):
            tool = clean(part.tool) if isinstance(part, ToolPart) else None
            kind = clean(str(getattr(part.__struct_config__, "tag", "")))
            figures = (size.fixed, size.body, size.attached)
            rows.append((self._key, ordinal + offset, place, kind, tool, *figures))
            self._tokens += size.total
        return rows

    def _keep(self, data: bytes, place: int) -> bytes:
        """The bytes of a row, its long texts put apart."""
        self._size += len(data)
        hollow, bodies = hollowed(data)
        if bodies:
            keys = kept(self._engine, bodies)
            hollow = with_keys(hollow, keys)
            rows = [(self._key, place, key) for key in sorted(set(keys.values()))]
            self._engine.run_many(_INSERT_REF, rows)
        return packed(hollow)

    # --- acts ---

    def act(self, kind: str, memory: Memory | None = None, **fields: Any) -> int:
        """Note an act; its number."""
        self.acts += 1
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

    def change_act(self, number: int, memory: Memory | None = None, **fields: Any) -> None:
        """Change what is noted of an act."""
        if memory is not None:
            fields["memory"] = self._remembered(memory, fields["marker"])
        columns = ", ".join(f"{name} = ?" for name in fields)
        self._engine.run(
            f"UPDATE acts SET {columns} WHERE session = ? AND number = ?",  # noqa: S608 - our own
            (*fields.values(), self._key, number),
        )

    def _remembered(self, memory: Memory, marker: int) -> bytes:
        size = self._size
        data = self._keep(encode(memory), marker)
        self._size = size  # it is told by the messages already
        return data

    def claim(self, number: int, holder: str) -> bool:
        """Take a queued compaction for oneself; False where another one has it, or it is done."""
        taken = self._engine.run(
            "UPDATE acts SET claimed = ? WHERE session = ? AND number = ? AND summary IS NULL "
            "AND failed IS NULL AND (claimed IS NULL OR claimed = ?)",
            (holder, self._key, number, holder),
        )
        return taken == 1

    def mark(self, act: int, ordinals: Iterable[int], at: Number) -> None:
        """Mark parts as pruned: one statement, however many."""
        engine = self._engine
        engine.run(
            "INSERT INTO marks (session, ordinal, act, at) "  # noqa: S608 - constants
            f"SELECT ?, n, ?, ? FROM ({engine.numbers}) AS wanted",
            (self._key, act, at, engine.many_numbers(ordinals)),
        )

    def mark_each(self, act: int, marks: Iterable[tuple[int, Number]]) -> None:
        """The same, each with its own time."""
        rows = [(self._key, ordinal, act, at) for ordinal, at in marks]
        self._engine.run_many(
            "INSERT INTO marks (session, ordinal, act, at) VALUES (?, ?, ?, ?)", rows
        )

    def take_back(self, number: int, *, undone: bool) -> None:
        """Take an act back, or put it in force again; with what a revert took back."""
        self.change_act(number, undone=self.at if undone else None)
        if undone:
            self._engine.run(
                "UPDATE acts SET reverted = NULL WHERE session = ? AND reverted = ?",
                (self._key, number),
            )
        self.settled = self.places

    def revert(self, place: int) -> int:
        """Hide all after a place, and take back what was done since."""
        number = self.act("revert", tail=place + 1, marker=self.places)
        self.reverted(number, place)
        return number

    def reverted(self, number: int, place: int) -> None:
        """Take back the acts that came after a place, in the name of a revert."""
        self._engine.run(
            "UPDATE acts SET reverted = ? WHERE session = ? AND number < ? AND reverted IS NULL "
            "AND ((kind = 'pivot' AND coalesce(summary, marker) > ?) "
            "OR (kind <> 'pivot' AND place > ?))",
            (number, self._key, number, place, place + 1),
        )
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
        events = self.row.events + len(self.events)
        return replace(self.row_now(), events=events, version=self.row.version + 1)

    def event(self, kind: str, /, **data: Any) -> None:
        """Note that something happened; it is told when the transaction is done."""
        number = self.row.events + len(self.events) + 1
        event = Event(number=number, session=self.row.id, kind=kind, at=self.at, data=data)
        self.events.append(event)

    def finish(self, *, expires: int | None) -> None:
        """Write what is kept of the session itself."""
        if self.places - self._indexed >= BATCH:
            self.index_all()
        self._engine.run_many(
            "INSERT INTO events (session, number, kind, at, data) VALUES (?, ?, ?, ?, ?)",
            [(self._key, e.number, e.kind, e.at, encode(e.data)) for e in self.events],
        )
        self._engine.run(
            "UPDATE sessions SET updated = ?, places = ?, parts = ?, tokens = ?, size = ?, "
            "acts = ?, events = ?, indexed = ?, settled = ?, version = version + 1, "
            "expires = coalesce(?, expires) WHERE key = ?",
            (
                *(self.at, self.places, self.parts, self._tokens, self._size, self.acts),
                *(self.row.events + len(self.events), self._indexed, self.settled),
                *(expires, self._key),
            ),
        )

    def index_all(self) -> None:
        """Let all messages be found by their words."""
        docs = dict(
            self._engine.read(
                "SELECT place, key FROM messages WHERE session = ? AND place >= ?",
                (self._key, self._indexed),
            )
        )
        for held in read_messages(self._engine, self._key, self._indexed, self.places, sized=False):
            self._engine.index(docs[held.place], message_words(held.message))
        self._indexed = self.places


def kept(engine: Engine, bodies: dict[bytes, Body]) -> dict[bytes, int]:
    """The keys of these bodies; the ones that are new are stored."""
    engine.lock_bodies(alone=False)
    keys: dict[bytes, int] = {}
    # In the order of their digests: two transactions that add the same ones never wait in a ring.
    for digest in sorted(bodies):
        key = _known(engine, digest)
        if key is None:
            data = bodies[digest].data
            engine.run(
                "INSERT INTO bodies (digest, size, data) VALUES (?, ?, ?) "
                "ON CONFLICT (digest) DO NOTHING",
                (digest, len(data), packed_body(data)),
            )
            key = _known(engine, digest)
        if key is None:
            raise StoreError(engine.name, "a body was removed while it was written; try again")
        keys[digest] = key
    return keys


def _known(engine: Engine, digest: bytes) -> int | None:
    rows = engine.read("SELECT key FROM bodies WHERE digest = ?", (digest,))
    return rows[0][0] if rows else None


def _role(message: Message) -> str:
    return "user" if message.is_user else "assistant"


_INSERT_PART = (
    "INSERT INTO parts (session, ordinal, place, kind, tool, fixed, body, attached) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_REF = "INSERT INTO refs (session, place, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
