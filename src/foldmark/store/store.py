"""The store: sessions in a database, whole, and quick to open.

Knows rows and transactions. What a prune or a pivot means is told in `session`; how a database is
spoken to, in `sqlite` and `postgres`.
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
from .encoding import clean, key_at, packed
from .engine import Engine
from .loading import Slice, load, segments
from .rows import (
    ACT_ROW,
    Loaded,
    SessionRow,
    copy_messages,
    copy_rows,
    read_acts,
    read_gaps,
    read_messages,
    read_session_rows,
    read_told,
)
from .transaction import CALL, Change, milliseconds

LATEST = "latest"
_NEWEST_FIRST = "ORDER BY updated DESC, key DESC"


class Store(AbstractContextManager["Store"]):
    """All sessions of one database; closed at the end of a `with`."""

    def __init__(self, engine: Engine) -> None:
        """Take the database."""
        self.engine = engine
        self.name = engine.name  # as it can be shown

    @classmethod
    def open(
        cls, where: str | Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
    ) -> "Store":
        """The store at a path or an address; where there is none it is made, or NoStore raised."""
        return cls(open_engine(where, durable=durable, wait=wait, make=make))

    def close(self) -> None:
        """Let the database go."""
        self.engine.close()

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    # --- sessions ---

    def sessions(self) -> list[SessionRow]:
        """All sessions, the one that was last written to first."""
        return read_session_rows(self.engine, _NEWEST_FIRST)

    def find(self, name: str) -> SessionRow | None:
        """The session of this id."""
        return next(iter(read_session_rows(self.engine, "WHERE id = ?", clean(name))), None)

    def named(self, name: str) -> SessionRow:
        """The session of this id, or of the only id that begins so; `latest` is the newest."""
        newest = f"{_NEWEST_FIRST} LIMIT 1"
        if name == LATEST and (latest := read_session_rows(self.engine, newest)):
            return latest[0]
        if (found := self.find(name)) is not None:
            return found
        ids = [row[0] for row in self.engine.read("SELECT id FROM sessions ORDER BY id")]
        begins = [known for known in ids if known.startswith(clean(name))] if name else []
        if len(begins) == 1:
            return self.named(begins[0])
        near = begins[:3] or get_close_matches(name, ids, n=3)
        raise NoSession(self.name, name, tuple(near))

    def create(self, info: SessionInfo, *, estimate: str) -> SessionRow:
        """A new session; StoreError where there is one of this id."""
        with self.engine.writing():
            return self.begin(info, estimate)

    def begin(
        self, info: SessionInfo, estimate: str, extra: Extra | UnsetType = UNSET
    ) -> SessionRow:
        """The same within a transaction of the caller's."""
        shell = Transcript(info=info, messages=(), extra=extra)
        now = milliseconds()
        made = self.engine.run(
            "INSERT INTO sessions (id, info, estimate, created, updated, places, parts, tokens, "
            "size, acts, events, indexed, settled, version) "
            "VALUES (?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (id) DO NOTHING",
            (clean(info.id), packed(encode(shell)), estimate, now, now),
        )
        row = self.find(info.id)
        if made != 1 or row is None:
            raise StoreError(self.name, f"session {info.id} is there already; give another id")
        return row

    def entitle(self, row: SessionRow, info: SessionInfo) -> None:
        """Say something else of a session: its title, as a rule; the caller holds a transaction."""
        shell = Transcript(info=info, messages=(), extra=row.extra)
        data = packed(encode(shell))
        self.engine.run("UPDATE sessions SET info = ? WHERE key = ?", (data, row.key))

    def has_imported(self, path: str, size: int, modified: int, format: str | None = None) -> bool:
        """Whether a file was imported as it is now, in this format if one is given."""
        rows = self.engine.read(
            "SELECT size, modified, format FROM sources WHERE path = ?", (clean(path),)
        )
        if not rows or tuple(rows[0][:2]) != (size, modified):
            return False
        return format is None or rows[0][2] == format

    def note_import(self, path: str, size: int, modified: int, format: str) -> None:
        """Remember how a file was when it was imported."""
        self.engine.run(
            "INSERT INTO sources (path, size, modified, format) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET size = excluded.size, "
            "modified = excluded.modified, format = excluded.format",
            (clean(path), size, modified, format),
        )

    def row(self, key: int) -> SessionRow:
        """A session as it is now."""
        rows = read_session_rows(self.engine, "WHERE key = ?", key)
        if not rows:
            raise NoSession(self.name, f"number {key}")
        return rows[0]

    def version(self, key: int) -> int:
        """Counts every change of a session."""
        rows = self.engine.read("SELECT version FROM sessions WHERE key = ?", (key,))
        return rows[0][0] if rows else -1

    # --- reading ---

    def load(self, key: int, part: Slice, *, estimate: str) -> Loaded:
        """A session as far as is asked for; counted sizes only where they were counted so."""
        with self.engine.reading():
            row = self.row(key)
            return load(self.engine, row, part, sized=row.estimate == estimate)

    def message_at(self, key: int, place: int) -> Entry | None:
        """The message at a place, shown or not."""
        found = read_messages(self.engine, key, place, place + 1)
        return found[0] if found else None

    def holding(self, key: int, ordinal: int) -> Entry | None:
        """The message that holds a part."""
        rows = self.engine.read(
            "SELECT place FROM parts WHERE session = ? AND ordinal = ?", (key, ordinal)
        )
        return self.message_at(key, rows[0][0]) if rows else None

    def waiting(self, key: int, before: int) -> Iterator[tuple[Entry, int, ToolPart]]:
        """Calls below an ordinal that wait for their results, the newest first; no hidden ones."""
        rows = self.engine.read(
            "SELECT ordinal FROM parts WHERE session = ? AND ordinal < ? AND kind = ? "
            "ORDER BY ordinal DESC",
            (key, before, CALL),
        )
        gaps = read_gaps(self.engine, key)
        for (ordinal,) in rows:
            held = self.holding(key, ordinal)
            if held is None or any(held.index in gap for gap in gaps):
                continue
            offset: int = ordinal - held.ordinal
            part = held.message.parts[offset]
            if isinstance(part, ToolPart):
                yield held, offset, part

    def place_of(self, key: int, message_id: str) -> int | None:
        """Where a message stands, by its id; the newest of several that is not hidden."""
        rows = self.engine.read(
            "SELECT place FROM messages WHERE key >= ? AND key < ? AND id = ? ORDER BY key DESC",
            (key_at(key, 0), key_at(key + 1, 0), clean(message_id)),
        )
        gaps = read_gaps(self.engine, key)
        shown = (place for (place,) in rows if not any(place in gap for gap in gaps))
        return next(shown, None)

    def acts(self, key: int, kind: str | None = None) -> list[Operation]:
        """What was done to a session, oldest first."""
        return read_acts(self.engine, key, *(("kind = ?", kind) if kind else ()))

    def events(self, row: SessionRow, after: int, most: int = 1_000) -> list[Event]:
        """What happened to a session after an event, in order."""
        rows = self.engine.read(
            "SELECT number, at, data FROM events "
            "WHERE session = ? AND number > ? ORDER BY number LIMIT ?",
            (row.key, after, max(most, 0)),
        )
        found: list[Event] = []
        for last, at, data in rows:  # the events of one transaction, under the number of the last
            told = read_told(data)
            found += [
                Event(number=number, session=row.id, kind=kind, at=at, data=held)
                for number, (kind, held) in enumerate(told, start=last - len(told) + 1)
                if number > after
            ]
        return found[: max(most, 0)]

    # --- writing ---

    def index(self, key: int) -> None:
        """Let all messages of a session be found by their words."""
        with self.engine.writing():
            self.engine.lock_session(key)
            change = Change(self.engine, self.row(key))
            change.index()
            change.finish()

    def fork(self, key: int, name: str, place: int | None) -> SessionRow:
        """A new session of this id that begins as another one was at a place."""
        with self.engine.writing():
            self.engine.lock_session(key)
            old, now = self.row(key), milliseconds()
            time = old.info.time and replace(old.info.time, created=now, updated=now)
            info = replace(old.info, id=name, parent_id=old.id, time=time)
            new = self.begin(info, old.estimate, old.extra)
            end = old.places if place is None else place + 1
            source, target = (self.engine, key), (self.engine, new.key)
            copy_messages(source, target, segments(0, end, read_gaps(self.engine, key)))
            if place is None:
                copy_rows(source, target, "acts", ACT_ROW, _FORKED)
            else:
                copy_rows(source, target, "acts", ACT_ROW, f"{_FORKED} AND {_UNTIL}", place, end)
            begun = Change(self.engine, self._counted(old, new, end))
            begun.event(FORKED, origin=old.id, messages=end)
            begun.finish()
        return begun.row

    def _counted(self, old: SessionRow, new: SessionRow, end: int) -> SessionRow:
        """A fork that holds the messages before a place, with its figures."""
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


# The acts that a fork has: those in force; a revert is none of them. A pivot that was undone is:
# its messages are there, and would make it a pivot again.
_FORKED = (
    "reverted IS NULL AND ((kind = 'prune' AND undone IS NULL) "
    "OR (kind = 'pivot' AND summary IS NOT NULL))"
)
# By the time a place was written.
_UNTIL = "((kind = 'pivot' AND summary <= ?) OR (kind <> 'pivot' AND place <= ?))"


def checked_id(name: str) -> str:
    """A name that a session may have; BadInput where it may not."""
    if not isinstance(name, str) or not name.strip() or name == LATEST or name != clean(name):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"{name!r} cannot be the id of a session; give another")
    return name
