"""One transaction on one session: all of its changes are written, or none."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from time import time
from typing import Any

from msgspec.structs import replace

from foldmark.errors import NoSession
from foldmark.log.log import Entry, handle
from foldmark.model.events import MESSAGE_WRITTEN, PART_WRITTEN, Event
from foldmark.model.messages import Message, Number, ToolPart, has_result, kind_of
from foldmark.model.operations import reverted_by
from foldmark.model.values import Json, encode
from foldmark.tokens.counters import Counter
from foldmark.tokens.sizes import Size, message_sizes

from .encoding import clean, column, key_at, pack, pack_marks
from .engine import Engine, Row
from .leases import overtaken_error
from .rows import MESSAGE, PART, SessionRow, insertion, read_messages, read_operations
from .search import message_words

# Visible messages are scanned without the search index. Words are indexed when messages are folded,
# when a session is closed, or when this many messages are not indexed yet.
MAX_UNINDEXED, WORTH_INDEXING = 2_048, 256
_CHUNK = 256  # messages read at once
NewMessage = tuple[Message, tuple[Size, ...], bytes]  # message, sizes of its parts, JSON

# The kind stored for a tool part that waits for its result.
CALL = "call"


class StaleSession(Exception):
    """The session was changed by another writer since it was read; nothing was written."""


def milliseconds() -> int:
    """The current time."""
    return int(time() * 1000)


@contextmanager
def open_change(
    engine: Engine, row: SessionRow, holder: str, seconds: float, count: Counter | None = None
) -> Generator["Change"]:
    """One transaction on a session by the holder of its lease, who knows its current version.

    Raises SessionOvertaken or StaleSession before anything is written. Pass `count` if new sizes
    are not counted like the session's other sizes.
    """
    with engine.writing():
        locked = engine.lock_session(row.key)
        if locked is None:
            raise NoSession(engine.name, row.id)
        if locked[1] != holder:
            raise overtaken_error(engine, row.key, row.id)
        if locked[0] != row.version:
            raise StaleSession
        change = Change(engine, row, count)
        yield change
        change.finish(lease=int(seconds * 1000))


class Change:
    """The changes to a session in one transaction."""

    def __init__(self, engine: Engine, row: SessionRow, count: Counter | None = None) -> None:
        """Start from the session's row inside the transaction; `count` as in `open_change`."""
        self._engine = engine
        self.row = row  # updated by `finish`
        self._key = row.key
        self._count = count
        self.places = row.places
        self.parts = row.parts
        self.acts = row.acts
        self.settled = row.settled
        self.at = milliseconds()
        self._pending_events: list[tuple[str, Json]] = []  # kinds and data
        self.events: list[Event] = []  # filled by `finish`
        self._tokens = row.tokens
        self._size = row.size
        self._indexed = row.indexed

    # --- messages ---

    def append(
        self, message: Message, sizes: tuple[Size, ...], data: bytes, *, with_events: bool = False
    ) -> None:
        """Append a message with its JSON; `with_events` records events for it and its parts."""
        sizes = message_sizes(message, self._count) if self._count else sizes
        if with_events:
            tokens = sum(size.total for size in sizes)
            self.add_event(MESSAGE_WRITTEN, message=message.id, place=self.places, tokens=tokens)
        self.append_many([(message, sizes, data)], with_events=with_events)

    def append_many(self, new: Sequence[NewMessage], *, with_events: bool = False) -> None:
        """Append messages in as few statements as possible."""
        messages: list[Row] = []
        parts: list[Row] = []
        for message, sizes, data in new:
            entry = Entry(message=message, index=self.places, ordinal=self.parts, sizes=sizes)
            key = key_at(self._key, entry.index)
            messages.append((key, entry.index, entry.ordinal, clean(message.id), pack(data)))
            parts += self._part_rows(entry, range(len(sizes)), with_events=with_events)
            self._size += len(data)
            self.places += 1
            self.parts += len(sizes)
        self._engine.run_many(_INSERT_MESSAGE, messages)
        self._engine.run_many(_PUT_PART, parts)

    def put(self, old: Entry, new: Entry, data: bytes, *, with_events: bool = False) -> None:
        """Replace a message with a newer state, given with its JSON.

        Only the last message may change its number of parts. `with_events` records events for the
        parts that differ.
        """
        if self._count:
            old = replace(old, sizes=message_sizes(old.message, self._count))
            new = replace(new, sizes=message_sizes(new.message, self._count))
        before, after = old.message.parts, new.message.parts
        for offset, size in enumerate(old.sizes):
            if offset >= len(after) or after[offset] is not before[offset]:
                self._tokens -= size.fixed + size.body + size.attached
        changed = [at for at, now in enumerate(after) if at >= len(before) or now is not before[at]]
        rows = self._part_rows(new, changed, with_events=with_events)
        self._size += len(data) - len(encode(old.message))
        key = key_at(self._key, new.index)
        self._engine.run("UPDATE messages SET data = ? WHERE key = ?", (pack(data), key))
        self._engine.run_many(_PUT_PART, rows)
        if new.index == self.places - 1:
            self.parts = new.ordinal + len(after)
            if len(after) < len(before):
                sql = "DELETE FROM parts WHERE session = ? AND ordinal >= ?"
                self._engine.run(sql, (self._key, self.parts))
        if new.index < self._indexed:
            self._engine.unindex(key, message_words(old.message))
            self._engine.index(key, message_words(new.message))

    def _part_rows(self, entry: Entry, offsets: Iterable[int], *, with_events: bool) -> list[Row]:
        """The rows of some parts, which are added to the totals and, if asked, to the events."""
        rows: list[Row] = []
        for offset in offsets:
            part, size = entry.message.parts[offset], entry.sizes[offset]
            fixed, body, attached = size.fixed, size.body, size.attached
            tokens, ordinal = fixed + body + attached, entry.ordinal + offset
            kind, call = kind_of(part), part if isinstance(part, ToolPart) else None
            row_kind = CALL if call and not has_result(call) else kind
            rows.append((self._key, ordinal, entry.index, row_kind, fixed, body, attached))
            self._tokens += tokens
            if with_events:
                data = {"handle": handle(ordinal), "place": entry.index, "kind": kind}
                call_id = {"call": call.call_id} if call and call.call_id else {}
                self._pending_events.append((PART_WRITTEN, {**data, "tokens": tokens, **call_id}))
        return rows

    # --- operations ---

    def add_operation(self, kind: str, **fields: Any) -> int:
        """Record an operation and return its number."""
        self.acts += 1
        row: Json = {"number": self.acts, "kind": kind, "at": self.at, "place": self.places}
        columns = {"session": self._key, **row, **_columns_of(fields)}
        self._engine.run(insertion("acts", ", ".join(columns)), tuple(columns.values()))
        return self.acts

    def update_operation(self, number: int, **fields: Any) -> None:
        """Change columns of an operation."""
        columns = ", ".join(f"{name} = ?" for name in fields)
        self._engine.run(
            f"UPDATE acts SET {columns} WHERE session = ? AND number = ?",  # noqa: S608 - constants
            (*_columns_of(fields).values(), self._key, number),
        )

    def claim(self, number: int, holder: str, *, anew: bool = True) -> bool:
        """Claim a queued compaction; return False if it is already done.

        Writing needs the session's lease, so an earlier claimer is gone and the claim moves to
        `holder`. Without `anew`, the claim must still be the holder's own.
        """
        claimed = self._engine.run(
            "UPDATE acts SET claimed = ? WHERE session = ? AND number = ? AND summary IS NULL "
            "AND failed IS NULL AND (claimed = ? OR ?)",
            (holder, self._key, number, holder, anew),
        )
        return claimed == 1

    def prune(self, ordinals: Iterable[int], at: list[Number] | Number, **fields: Any) -> int:
        """Mark parts as pruned: one operation and one statement; see `pack_marks`."""
        data, last = pack_marks(ordinals, at)
        number = self.add_operation("prune", marks=data, last_mark=last, **fields)
        self.settled = self.places
        return number

    def set_undone(self, number: int, *, undone: bool) -> None:
        """Undo an operation or redo it, and update what reverts hide."""
        # At least a millisecond apart, so that the last undone operation is known.
        operations = read_operations(self._engine, self._key)
        newest = max((each.undone or 0 for each in operations), default=0)
        self.update_operation(number, undone=max(self.at, newest + 1) if undone else None)
        self._settle_reverts()

    def revert(self, index: int) -> int:
        """Hide everything after an index, and the operations made since."""
        number = self.add_operation("revert", tail=index + 1, marker=self.places)
        self._settle_reverts()
        return number

    def _settle_reverts(self) -> None:
        """Update which revert hides each operation."""
        operations = read_operations(self._engine, self._key)
        reverted = reverted_by(operations)
        for operation in operations:
            if operation.reverted != reverted[operation.number]:
                self.update_operation(operation.number, reverted=reverted[operation.number])
        self.settled = self.places

    # --- events and end ---

    def current_row(self) -> SessionRow:
        """The session's row with the changes so far."""
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

    def add_event(self, kind: str, /, **data: Any) -> None:
        """Record an event; it is published after the transaction."""
        self._pending_events.append((kind, data))

    def finish(self, *, lease: int | None = None, index: bool = True) -> None:
        """Write the session's row and events; index words if many messages are not indexed yet."""
        if index and self.places - self._indexed >= MAX_UNINDEXED:
            self.index(self._indexed + MAX_UNINDEXED)  # more would take too long for one step
        last = self.row.events + len(self._pending_events)
        self.events = [
            Event(number=number, session=self.row.id, kind=kind, at=self.at, data=data)
            for number, (kind, data) in enumerate(self._pending_events, start=self.row.events + 1)
        ]
        self.row = replace(self.current_row(), events=last, version=self.row.version + 1)
        if self._pending_events:
            # All events of a transaction share one row, numbered by the last.
            self._engine.run(
                "INSERT INTO events (session, number, at, data) VALUES (?, ?, ?, ?)",
                (self._key, last, self.at, encode(self._pending_events)),
            )
        expiry = f"coalesce({self._engine.now} + ?, expires)"
        self._engine.run(
            f"UPDATE sessions SET {_UPDATED_COLUMNS}, version = version + 1, expires = {expiry} "  # noqa: S608
            "WHERE key = ?",
            (
                *(self.at, self.places, self.parts, self._tokens, self._size, self.acts),
                *(last, self._indexed, self.settled),
                *(lease, self._key),
            ),
        )

    def index(self, end: int | None = None) -> None:
        """Index the words of all messages, or of those before an index."""
        end = self.places if end is None else end
        for first in range(self._indexed, end, _CHUNK):
            chunk_end = min(first + _CHUNK, end)
            for entry in read_messages(self._engine, self._key, first, chunk_end, sized=False):
                self._engine.index(key_at(self._key, entry.index), message_words(entry.message))
        self._indexed = end


def _columns_of(fields: Json) -> Json:
    """An operation's fields as every engine can store them."""
    texts = ("tail_id", "failed")
    columns = {name: column(value) if name in texts else value for name, value in fields.items()}
    if (memory := columns.get("memory")) is not None:
        columns["memory"] = pack(encode(memory))
    return columns


_INSERT_MESSAGE = insertion("messages", f"key, {MESSAGE}")
_UPDATED_COLUMNS = (
    "updated = ?, places = ?, parts = ?, tokens = ?, size = ?, acts = ?, events = ?, "
    "indexed = ?, settled = ?"
)
_PUT_PART = (
    insertion("parts", f"session, {PART}")
    + " ON CONFLICT (session, ordinal) DO UPDATE SET kind = excluded.kind, "
    "fixed = excluded.fixed, body = excluded.body, attached = excluded.attached"
)
