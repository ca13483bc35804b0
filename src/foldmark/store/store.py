"""The store: sessions in a database.

It knows rows and transactions. `session` knows what a prune or a pivot means; `sqlite` and
`postgres` know their databases.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from difflib import get_close_matches
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput, NoSession, StoreError
from foldmark.log.log import Entry
from foldmark.model.events import FORKED, Event
from foldmark.model.messages import SessionInfo, ToolPart, Transcript
from foldmark.model.operations import Operation
from foldmark.model.values import Extra, encode

from .address import open_engine
from .encoding import clean, key_at, pack
from .engine import Engine
from .loading import Slice, load, visible_ranges
from .rows import (
    OPERATION_ROW,
    LoadedSession,
    SessionRow,
    copy_messages,
    copy_rows,
    decode_events,
    read_gaps,
    read_messages,
    read_operations,
    read_session_rows,
)
from .transaction import CALL, Change, milliseconds

LATEST = "latest"
_NEWEST_FIRST = "ORDER BY updated DESC, key DESC"


class Store(AbstractContextManager["Store"]):
    """All sessions of one database; closed at the end of a `with`."""

    def __init__(self, engine: Engine) -> None:
        """Use this database."""
        self.engine = engine
        self.name = engine.name  # for display

    @classmethod
    def open(
        cls, where: str | Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
    ) -> "Store":
        """The store at a path or address, created if missing. Raises NoStore if `make` is false."""
        return cls(open_engine(where, durable=durable, wait=wait, make=make))

    def close(self) -> None:
        """Close the database."""
        self.engine.close()

    def __exit__(self, *_: object) -> None:
        """Close the store."""
        self.close()

    # --- sessions ---

    def sessions(self) -> list[SessionRow]:
        """All sessions, most recently written first."""
        return read_session_rows(self.engine, _NEWEST_FIRST)

    def find(self, name: str) -> SessionRow | None:
        """The session with this id, or None."""
        return next(iter(read_session_rows(self.engine, "WHERE id = ?", clean(name))), None)

    def resolve(self, name: str) -> SessionRow:
        """The session with this id or unique id prefix; `latest` is the newest."""
        newest = f"{_NEWEST_FIRST} LIMIT 1"
        if name == LATEST and (latest := read_session_rows(self.engine, newest)):
            return latest[0]
        if (row := self.find(name)) is not None:
            return row
        ids = [found[0] for found in self.engine.read("SELECT id FROM sessions ORDER BY id")]
        matches = [each for each in ids if each.startswith(clean(name))] if name else []
        if len(matches) == 1:
            return self.resolve(matches[0])
        near = matches[:3] or get_close_matches(name, ids, n=3)
        raise NoSession(self.name, name, tuple(near))

    def create(self, info: SessionInfo, *, estimate: str) -> SessionRow:
        """Create a session. Raises StoreError if the id is in use."""
        with self.engine.writing():
            return self.insert_session(info, estimate)

    def insert_session(
        self, info: SessionInfo, estimate: str, extra: Extra | UnsetType = UNSET
    ) -> SessionRow:
        """Create a session within the caller's transaction."""
        shell = Transcript(info=info, messages=(), extra=extra)
        now = milliseconds()
        inserted = self.engine.run(
            "INSERT INTO sessions (id, info, estimate, created, updated, places, parts, tokens, "
            "size, acts, events, indexed, settled, version) "
            "VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING",
            (clean(info.id), pack(encode(shell)), estimate, now, now),
        )
        row = self.find(info.id)
        if inserted != 1 or row is None:
            raise StoreError(self.name, f"session {info.id} already exists; use another id")
        return row

    def update_info(self, row: SessionRow, info: SessionInfo) -> None:
        """Replace a session's info, such as its title; the caller holds a transaction."""
        shell = Transcript(info=info, messages=(), extra=row.extra)
        data = pack(encode(shell))
        self.engine.run("UPDATE sessions SET info = ? WHERE key = ?", (data, row.key))

    def has_imported(self, path: str, size: int, modified: int, format: str | None = None) -> bool:
        """Whether this state of a file was imported, in this format if one is given."""
        rows = self.engine.read(
            "SELECT size, modified, format FROM sources WHERE path = ?", (clean(path),)
        )
        if not rows or tuple(rows[0][:2]) != (size, modified):
            return False
        return format is None or rows[0][2] == format

    def record_import(self, path: str, size: int, modified: int, format: str) -> None:
        """Record the state of a file that was imported."""
        self.engine.run(
            "INSERT INTO sources (path, size, modified, format) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET size = excluded.size, "
            "modified = excluded.modified, format = excluded.format",
            (clean(path), size, modified, format),
        )

    def row(self, key: int) -> SessionRow:
        """The current row of a session."""
        rows = read_session_rows(self.engine, "WHERE key = ?", key)
        if not rows:
            raise NoSession(self.name, f"key {key}")
        return rows[0]

    def version(self, key: int) -> int:
        """The version of a session, which every change increments."""
        rows = self.engine.read("SELECT version FROM sessions WHERE key = ?", (key,))
        return rows[0][0] if rows else -1

    # --- reading ---

    def load(self, key: int, part: Slice, *, estimate: str) -> LoadedSession:
        """The requested part of a session, with token sizes if they were counted by `estimate`."""
        with self.engine.reading():
            row = self.row(key)
            return load(self.engine, row, part, sized=row.estimate == estimate)

    def message_at(self, key: int, index: int) -> Entry | None:
        """The message at an index, whether the view shows it or not."""
        entries = read_messages(self.engine, key, index, index + 1)
        return entries[0] if entries else None

    def message_with_part(self, key: int, ordinal: int) -> Entry | None:
        """The message that contains a part."""
        rows = self.engine.read(
            "SELECT place FROM parts WHERE session = ? AND ordinal = ?", (key, ordinal)
        )
        return self.message_at(key, rows[0][0]) if rows else None

    def pending_calls(self, key: int, before: int) -> Iterator[tuple[Entry, int, ToolPart]]:
        """Calls without a result before an ordinal, newest first, without reverted ones."""
        rows = self.engine.read(
            "SELECT ordinal FROM parts WHERE session = ? AND ordinal < ? AND kind = ? "
            "ORDER BY ordinal DESC",
            (key, before, CALL),
        )
        gaps = read_gaps(self.engine, key)
        for (ordinal,) in rows:
            entry = self.message_with_part(key, ordinal)
            if entry is None or any(entry.index in gap for gap in gaps):
                continue
            offset: int = ordinal - entry.ordinal
            part = entry.message.parts[offset]
            if isinstance(part, ToolPart):
                yield entry, offset, part

    def message_index(self, key: int, message_id: str) -> int | None:
        """The index of the newest message with this id that is not reverted."""
        rows = self.engine.read(
            "SELECT place FROM messages WHERE key >= ? AND key < ? AND id = ? ORDER BY key DESC",
            (key_at(key, 0), key_at(key + 1, 0), clean(message_id)),
        )
        gaps = read_gaps(self.engine, key)
        visible = (index for (index,) in rows if not any(index in gap for gap in gaps))
        return next(visible, None)

    def operations(self, key: int, kind: str | None = None) -> list[Operation]:
        """The operations of a session, oldest first."""
        return read_operations(self.engine, key, *(("kind = ?", kind) if kind else ()))

    def events(self, row: SessionRow, after: int, limit: int = 1_000) -> list[Event]:
        """The events of a session after an event number, in order."""
        rows = self.engine.read(
            "SELECT number, at, data FROM events "
            "WHERE session = ? AND number > ? ORDER BY number LIMIT ?",
            (row.key, after, max(limit, 0)),
        )
        events: list[Event] = []
        for last, at, data in rows:  # one row per transaction, numbered by its last event
            batch = decode_events(data)
            events += [
                Event(number=number, session=row.id, kind=kind, at=at, data=event_data)
                for number, (kind, event_data) in enumerate(batch, start=last - len(batch) + 1)
                if number > after
            ]
        return events[: max(limit, 0)]

    # --- writing ---

    def index(self, key: int) -> None:
        """Add all messages of a session to the search index."""
        with self.engine.writing():
            self.engine.lock_session(key)
            change = Change(self.engine, self.row(key))
            change.index()
            change.finish()

    def fork(self, key: int, name: str, index: int | None) -> SessionRow:
        """Create a session with this id that starts as a copy of another up to an index."""
        with self.engine.writing():
            self.engine.lock_session(key)
            old, now = self.row(key), milliseconds()
            time = old.info.time and replace(old.info.time, created=now, updated=now)
            info = replace(old.info, id=name, parent_id=old.id, time=time)
            new = self.insert_session(info, old.estimate, old.extra)
            end = old.places if index is None else index + 1
            source, target = (self.engine, key), (self.engine, new.key)
            copy_messages(source, target, visible_ranges(0, end, read_gaps(self.engine, key)))
            where, limits = _COPIED_OPERATIONS, ()
            if index is not None:
                where, limits = f"{where} AND {_UP_TO_INDEX}", (index, end)
            copy_rows(source, target, "acts", OPERATION_ROW, where, *limits)
            change = Change(self.engine, self._with_totals(old, new, end))
            change.add_event(FORKED, origin=old.id, messages=end)
            change.finish()
        return change.row

    def _with_totals(self, old: SessionRow, new: SessionRow, end: int) -> SessionRow:
        """The row of a fork with messages up to `end`, with its totals."""
        sums = self.engine.read(
            "SELECT coalesce(max(ordinal) + 1, 0), coalesce(sum(fixed + body + attached), 0) "
            "FROM parts WHERE session = ?",
            (new.key,),
        )
        return replace(
            new,
            places=end,
            parts=int(sums[0][0]),
            tokens=int(sums[0][1]),
            size=int(old.size * end / max(1, old.places)),
            acts=old.acts,
            settled=min(old.settled, end),
        )


# Operations copied into a fork: those in force, but no reverts. Undone pivots are copied too, or
# their messages would make them pivots again.
_COPIED_OPERATIONS = (
    "reverted IS NULL AND ((kind = 'prune' AND undone IS NULL) "
    "OR (kind = 'pivot' AND summary IS NOT NULL))"
)
# Operations made before a message was written.
_UP_TO_INDEX = "((kind = 'pivot' AND summary <= ?) OR (kind <> 'pivot' AND place <= ?))"


def check_session_id(name: str) -> str:
    """The name, if a session may have it. Raises BadInput if not."""
    if not isinstance(name, str) or not name.strip() or name == LATEST or name != clean(name):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"{name!r} cannot be a session id; use another one")
    return name
