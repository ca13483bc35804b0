"""SQLite engine: a store in one file, the default.

It uses write-ahead logging; each commit is on disk before it is acknowledged. A file that is not a
database, belongs to another program or has a newer version is refused and left untouched.
"""

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import cast
from urllib.parse import quote

from foldmark.errors import NoStore, StoreError
from foldmark.files import open_regular, printable

from .engine import Args, Engine
from .schema import VERSION, Dialect

MAGIC = b"SQLite format 3\0"
APPLICATION_ID = 0x464F4C44  # "FOLD", in the header field that SQLite reserves for applications
COMPANION_SUFFIXES = ("-wal", "-shm", "-journal")  # of files beside a database
_DIALECT = Dialect(
    key="INTEGER PRIMARY KEY AUTOINCREMENT",  # keys are never reused
    big="INTEGER",
    bytes="BLOB",
    narrow="WITHOUT ROWID",
    search="CREATE VIRTUAL TABLE words USING fts5(text, content='', detail=none, columnsize=0, "
    "tokenize='ascii')",  # Foldmark splits and lowercases words itself
    begin_reading="BEGIN",
    begin_writing="BEGIN IMMEDIATE",  # takes the write lock at once
)
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full; nothing was lost: free some space and try again",
    sqlite3.SQLITE_READONLY: "the file is read-only; allow writing, or copy it elsewhere",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup, or try `sqlite3 FILE .recover`",
    sqlite3.SQLITE_NOTADB: "the file is not a database; use another path",
    sqlite3.SQLITE_BUSY: "another process holds the file; try again",
    sqlite3.SQLITE_LOCKED: "another process holds the file; try again",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that its folder exists and is yours",
    sqlite3.SQLITE_PERM: "permission denied; check who owns the file",
    sqlite3.SQLITE_IOERR: "the disk failed or is full; check it and try again",
    sqlite3.SQLITE_TOOBIG: "a message exceeds SQLite's limit of 1 GB; shorten it",
}
# A damaged file may contain invalid UTF-8, and sizes larger than the memory.
_DRIVER_ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError, OSError)


class Sqlite(Engine):
    """One connection to a file."""

    dialect = _DIALECT
    _driver_errors = _DRIVER_ERRORS
    now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

    def __init__(
        self, path: Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
    ) -> None:
        """Open the file, or create it, readable by its owner only, if `make` is set."""
        super().__init__(printable(str(path)))
        self._path = path
        with self._errors():
            if not make and not (path.exists() and path.stat().st_size):
                raise NoStore(self.name)
            header = _create_file(path)
            if header and header != MAGIC:
                raise StoreError(self.name, _ADVICE[sqlite3.SQLITE_NOTADB])
            self._read_only = _is_read_only(path.absolute())
            # A plain path, never a `file:…` URI that SQLite would interpret.
            name = quote(str(path.absolute())) if self._read_only else str(path.absolute())
            self._connection = sqlite3.connect(
                f"file:{name}?mode=ro&immutable=1" if self._read_only else name,
                uri=self._read_only,
                timeout=wait,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                self._set_up(durable=durable, wait=wait)
            except BaseException:
                self._connection.close()
                raise

    def _set_up(self, *, durable: bool, wait: float) -> None:
        run = self._connection.execute
        self._check_owner()
        if self._read_only:
            return
        if not self._version():  # before the log: marks the file as ours from the start
            run(f"PRAGMA application_id = {APPLICATION_ID}")
        self._enable_wal(monotonic() + wait)
        run(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        run("PRAGMA temp_store = MEMORY")
        run("PRAGMA wal_autocheckpoint = 4000")  # pages (16 MB): the same pages are written often
        self._create_tables()

    def _enable_wal(self, deadline: float) -> None:
        """Switch to write-ahead logging; SQLite does not wait for others that switch as well."""
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                    raise
                sleep(0.01)
            else:
                return

    def _check_owner(self) -> None:
        """Refuse a database of another program before anything is changed."""
        run = self._connection.execute
        tables, application = (
            run("SELECT count(*) FROM sqlite_master").fetchone()[0],
            run("PRAGMA application_id").fetchone()[0],
        )
        if tables and application != APPLICATION_ID:
            raise StoreError(self.name, "the file belongs to another program; use another path")
        self._check_version()

    def _version(self) -> int:
        return self._connection.execute("PRAGMA user_version").fetchone()[0]

    def _prepare(self) -> None:
        self._check_owner()

    def _set_version(self) -> None:
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    # --- search index ---

    def index(self, doc: int, words: set[str]) -> None:
        """Add a document to the search index under these words."""
        self.run("INSERT INTO words (rowid, text) VALUES (?, ?)", (doc, " ".join(sorted(words))))

    def unindex(self, doc: int, words: set[str]) -> None:
        """Remove a document; FTS5 needs the words it was indexed with."""
        text = " ".join(sorted(words))
        self.run("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (doc, text))

    def matches(self, words: Sequence[str], first: int, end: int) -> tuple[str, Args]:
        """SQL for the `doc` rows of a key range with every word, each matched as a prefix."""
        query = " AND ".join(f'"{word}"*' for word in words)  # words contain no quotes
        sql = "SELECT rowid AS doc FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ?"
        return sql, (query, first, end)

    # --- the file ---

    def size(self) -> int:
        """The size of the file and its log in bytes."""
        files = (Path(f"{self._path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def tidy(self) -> None:
        """Return unused space to the disk."""
        self.run("INSERT INTO words (words) VALUES ('optimize')")
        self.run("VACUUM")
        self.read("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, path: Path) -> None:
        """Copy the store, as of one moment, into a new file. Raises StoreError if it is damaged."""
        with self._lock, self._errors():
            target = sqlite3.connect(path)
            try:
                self._connection.backup(target)
                if target.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise StoreError(self.name, _ADVICE[sqlite3.SQLITE_CORRUPT])
                target.execute("PRAGMA journal_mode = DELETE")
            finally:
                target.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _store_error(self, error: Exception) -> StoreError:
        if isinstance(error, OSError):
            return StoreError(self.name, f"cannot be opened or written: {error.strerror}")
        if not isinstance(error, sqlite3.Error):
            return StoreError(self.name, _ADVICE[sqlite3.SQLITE_CORRUPT])
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return StoreError(self.name, "the store is closed; open it again")
        code = cast("int | None", getattr(error, "sqlite_errorcode", None))
        advice = _ADVICE.get((code or 0) & 0xFF)
        return StoreError(self.name, advice or f"SQLite reports: {error}")


def _is_read_only(path: Path) -> bool:
    """Whether neither the file nor a log beside it can be written."""
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return not writable and not Path(f"{path}-wal").exists()


def _create_file(path: Path) -> bytes:
    """The first bytes of the file; creates the file and its folders if they are missing."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a path cannot contain a NUL character")
    for folder in reversed(path.parents):  # `parents=True` would not set the mode of the outer ones
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with open_regular(path, links=True) as file:
        return file.read(len(MAGIC))
