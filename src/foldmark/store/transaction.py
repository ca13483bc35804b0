"""One transaction on one session: what is written in it is there whole, or not at all."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from time import time
from typing import Any

from msgspec.structs import replace

from foldmark.errors import NoSession
from foldmark.log.log import Entry, handle
from foldmark.model.events import MESSAGE_WRITTEN, PART_WRITTEN, Event
from foldmark.model.messages import Message, Number, ToolPart, has_result, kind_of
from foldmark.model.operations import taken_back
from foldmark.model.values import Json, encode
from foldmark.tokens.counters import Counter
from foldmark.tokens.sizes import Size, message_sizes

from .encoding import clean, column, key_at, packed, packed_marks
from .engine import Engine, Row
from .leases import overtaken
from .rows import MESSAGE, PART, SessionRow, insertion, read_acts, read_messages
from .search import message_words

# What is shown is quickly looked through: words are indexed when messages are folded, when a
# session is closed, or when so many messages wait for it.
MOST_WAITING, WORTH_INDEXING = 2_048, 256
_CHUNK = 256  # messages that are read at once
New = tuple[Message, tuple[Size, ...], bytes]  # a message, what its parts cost, and its JSON

# The kind, in its narrow row, of a tool's part that waits for its result.
CALL = "call"


class Outdated(Exception):
    """The session has been changed by another since it was read; nothing was written."""


def milliseconds() -> int:
    """The time."""
    return int(time() * 1000)


@contextmanager
def open_change(
    engine: Engine, row: SessionRow, holder: str, seconds: float, count: Counter | None = None
) -> Generator["Change"]:
    """One transaction on a session, by the one who holds its lease and knows it as it is.

    Raises SessionOvertaken or Outdated, before anything is written, where that is not so. `count`
    is given where the sizes that come are not counted as the session's others are.
    """
    with engine.writing():
        found = engine.lock_session(row.key)
        if found is None:
            raise NoSession(engine.name, row.id)
        if found[1] != holder:
            raise overtaken(engine, row.key, row.id)
        if found[0] != row.version:
            raise Outdated
        change = Change(engine, row, count)
        yield change
        change.finish(lease=int(seconds * 1000))


class Change:
    """What is written to a session in one transaction."""

    def __init__(self, engine: Engine, row: SessionRow, count: Counter | None = None) -> None:
        """Take the session as it is inside the transaction; `count` as in `open_change`."""
        self._engine = engine
        self.row = row  # with `finish`, as the transaction leaves it
        self._key = row.key
        self._count = count
        self.places = row.places
        self.parts = row.parts
        self.acts = row.acts
        self.settled = row.settled
        self.at = milliseconds()
        self._told: list[tuple[str, Json]] = []  # kinds and data of the events
        self.events: list[Event] = []  # with `finish`
        self._tokens = row.tokens
        self._size = row.size
        self._indexed = row.indexed

    # --- messages ---

    def append(
        self, message: Message, sizes: tuple[Size, ...], data: bytes, *, tell: bool = False
    ) -> None:
        """Add a message with its JSON at the end; tell of it and its parts, if that is wanted."""
        sizes = message_sizes(message, self._count) if self._count else sizes
        if tell:
            tokens = sum(size.total for size in sizes)
            self.event(MESSAGE_WRITTEN, message=message.id, place=self.places, tokens=tokens)
        self.append_many([(message, sizes, data)], tell=tell)

    def append_many(self, new: Sequence[New], *, tell: bool = False) -> None:
        """Add messages at the end, in as few statements as that takes."""
        messages: list[Row] = []
        parts: list[Row] = []
        for message, sizes, data in new:
            entry = Entry(message=message, index=self.places, ordinal=self.parts, sizes=sizes)
            key = key_at(self._key, entry.index)
            messages.append((key, entry.index, entry.ordinal, clean(message.id), packed(data)))
            parts += self._part_rows(entry, range(len(sizes)), tell=tell)
            self._size += len(data)
            self.places += 1
            self.parts += len(sizes)
        self._engine.run_many(_INSERT_MESSAGE, messages)
        self._engine.run_many(_PUT_PART, parts)

    def put(self, old: Entry, new: Entry, data: bytes, *, tell: bool = False) -> None:
        """Put a newer state of a message, with its JSON, in its place.

        It may have other parts than before if it is the last. By `tell`, the parts that are not
        the same are told of.
        """
        if self._count:
            old = replace(old, sizes=message_sizes(old.message, self._count))
            new = replace(new, sizes=message_sizes(new.message, self._count))
        was, now = old.message.parts, new.message.parts
        for at, size in enumerate(old.sizes):
            if at >= len(now) or now[at] is not was[at]:
                self._tokens -= size.fixed + size.body + size.attached
        changed = [at for at, part in enumerate(now) if at >= len(was) or part is not was[at]]
        rows = self._part_rows(new, changed, tell=tell)
        self._size += len(data) - len(encode(old.message))
        key = key_at(self._key, new.index)
        self._engine.run("UPDATE messages SET data = ? WHERE key = ?", (packed(data), key))
        self._engine.run_many(_PUT_PART, rows)
        if new.index == self.places - 1:
            self.parts = new.ordinal + len(now)
            if len(now) < len(was):
                sql = "DELETE FROM parts WHERE session = ? AND ordinal >= ?"
                self._engine.run(sql, (self._key, self.parts))
        if new.index < self._indexed:
            self._engine.unindex(key, message_words(old.message))
            self._engine.index(key, message_words(new.message))

    def _part_rows(self, entry: Entry, offsets: Iterable[int], *, tell: bool) -> list[Row]:
        """The narrow rows of some parts, which are counted and, if that is wanted, told of."""
        rows: list[Row] = []
        for offset in offsets:
            part, size = entry.message.parts[offset], entry.sizes[offset]
            fixed, body, attached = size.fixed, size.body, size.attached
            tokens, ordinal = fixed + body + attached, entry.ordinal + offset
            kind, call = kind_of(part), part if isinstance(part, ToolPart) else None
            stored = CALL if call and not has_result(call) else kind
            rows.append((self._key, ordinal, entry.index, stored, fixed, body, attached))
            self._tokens += tokens
            if tell:
                data = {"handle": handle(ordinal), "place": entry.index, "kind": kind}
                called = {"call": call.call_id} if call and call.call_id else {}
                self._told.append((PART_WRITTEN, {**data, "tokens": tokens, **called}))
        return rows

    # --- acts ---

    def act(self, kind: str, **fields: Any) -> int:
        """Note an act; its number."""
        self.acts += 1
        told: Json = {"number": self.acts, "kind": kind, "at": self.at, "place": self.places}
        held = {"session": self._key, **told, **_in_columns(fields)}
        self._engine.run(insertion("acts", ", ".join(held)), tuple(held.values()))
        return self.acts

    def change_act(self, number: int, **fields: Any) -> None:
        """Change what is noted of an act."""
        columns = ", ".join(f"{name} = ?" for name in fields)
        self._engine.run(
            f"UPDATE acts SET {columns} WHERE session = ? AND number = ?",  # noqa: S608 - our own
            (*_in_columns(fields).values(), self._key, number),
        )

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

    def event(self, kind: str, /, **data: Any) -> None:
        """Note that something happened; it is told when the transaction is done."""
        self._told.append((kind, data))

    def finish(self, *, lease: int | None = None, index: bool = True) -> None:
        """Write what is kept of the session itself; words are indexed when it is time to."""
        if index and self.places - self._indexed >= MOST_WAITING:
            self.index(self._indexed + MOST_WAITING)  # more would take a step too long
        last = self.row.events + len(self._told)
        self.events = [
            Event(number=number, session=self.row.id, kind=kind, at=self.at, data=data)
            for number, (kind, data) in enumerate(self._told, start=self.row.events + 1)
        ]
        self.row = replace(self.row_now(), events=last, version=self.row.version + 1)
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

    def index(self, place: int | None = None) -> None:
        """Let all messages, or those before a place, be found by their words."""
        place = self.places if place is None else place
        for first in range(self._indexed, place, _CHUNK):
            end = min(first + _CHUNK, place)
            for held in read_messages(self._engine, self._key, first, end, sized=False):
                self._engine.index(key_at(self._key, held.index), message_words(held.message))
        self._indexed = place


def _in_columns(fields: Json) -> Json:
    """The fields of an act as every engine can hold them."""
    texts = ("tail_id", "failed")
    columns = {name: column(held) if name in texts else held for name, held in fields.items()}
    if (memory := columns.get("memory")) is not None:
        columns["memory"] = packed(encode(memory))
    return columns


_INSERT_MESSAGE = insertion("messages", f"key, {MESSAGE}")
_KEPT = (
    "updated = ?, places = ?, parts = ?, tokens = ?, size = ?, acts = ?, events = ?, "
    "indexed = ?, settled = ?"
)
_PUT_PART = (
    insertion("parts", f"session, {PART}")
    + " ON CONFLICT (session, ordinal) DO UPDATE SET kind = excluded.kind, "
    "fixed = excluded.fixed, body = excluded.body, attached = excluded.attached"
)
