"""SQLite: a store in a file, the default.

Write-ahead logging; each commit is on the disk before it is acknowledged. A file is looked at
before it is opened: one that is no database, of another program, or of a newer version, stays
untouched.
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
from foldmark.files import harmless, open_regular

from .engine import Args, Engine
from .schema import VERSION, Dialect

MAGIC = b"SQLite format 3\0"
OURS = 0x464F4C44  # "FOLD", in the header that SQLite keeps for its users
BESIDE = ("-wal", "-shm", "-journal")  # the ends of the files that lie beside a database
_DIALECT = Dialect(
    key="INTEGER PRIMARY KEY AUTOINCREMENT",  # a number is never given twice
    big="INTEGER",
    bytes="BLOB",
    narrow="WITHOUT ROWID",
    search="CREATE VIRTUAL TABLE words USING fts5(text, content='', detail=none, columnsize=0, "
    "tokenize='ascii')",  # words are split and folded by us: all beyond ASCII is left alone
    begin_reading="BEGIN",
    begin_writing="BEGIN IMMEDIATE",  # which has the file for itself
)
_WHAT_TO_DO = {
    sqlite3.SQLITE_FULL: "the disk is full; free some of it and try again, nothing was lost",
    sqlite3.SQLITE_READONLY: "the file is read-only; give write permission, or copy it elsewhere",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a backup, or try `sqlite3 FILE .recover`",
    sqlite3.SQLITE_NOTADB: "the file is no database; give another path",
    sqlite3.SQLITE_BUSY: "another process has held the file for too long; try again",
    sqlite3.SQLITE_LOCKED: "another process has held the file for too long; try again",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened; check that its folder exists and is ours",
    sqlite3.SQLITE_PERM: "no permission for the file",
    sqlite3.SQLITE_IOERR: "the disk failed or is full; check it and try again",
    sqlite3.SQLITE_TOOBIG: "one message is larger than SQLite can hold (1 GB)",
}
# A damaged file may hold texts that are none, and sizes beyond all memory.
_COMPLAINTS = (sqlite3.Error, UnicodeDecodeError, MemoryError, OSError)


class Sqlite(Engine):
    """One connection to a file."""

    dialect = _DIALECT
    _complaints = _COMPLAINTS
    now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

    def __init__(
        self, path: Path, *, durable: bool = True, wait: float = 10.0, make: bool = True
    ) -> None:
        """Open the file, or make it if that is wanted: private to its user."""
        super().__init__(harmless(str(path)))
        self._path = path
        with self._errors():
            if not make and not (path.exists() and path.stat().st_size):
                raise NoStore(self.name)
            header = _made(path)
            if header and header != MAGIC:
                raise StoreError(self.name, _WHAT_TO_DO[sqlite3.SQLITE_NOTADB])
            self._frozen = _is_frozen(path.absolute())
            # Never to what a name like `file:…` would mean to SQLite.
            name = quote(str(path.absolute())) if self._frozen else str(path.absolute())
            self._connection = sqlite3.connect(
                f"file:{name}?mode=ro&immutable=1" if self._frozen else name,
                uri=self._frozen,
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
        if self._frozen:
            return
        if not self._version():  # before the log: the file says what it is from the first
            run(f"PRAGMA application_id = {OURS}")
        self._log_ahead(monotonic() + wait)
        run(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        run("PRAGMA temp_store = MEMORY")
        run("PRAGMA wal_autocheckpoint = 4000")  # pages, 16 MB: the same ones are written often
        self._make_tables()

    def _log_ahead(self, deadline: float) -> None:
        """Write ahead; SQLite does not wait for others who switch a new file to that as well."""
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
        """Refuse what is not ours, before anything is changed. A new file has no tables yet."""
        run = self._connection.execute
        tables, application = (
            run("SELECT count(*) FROM sqlite_master").fetchone()[0],
            run("PRAGMA application_id").fetchone()[0],
        )
        if tables and application != OURS:
            raise StoreError(self.name, "this is a database of another program; give another path")
        self._check_version()

    def _version(self) -> int:
        return self._connection.execute("PRAGMA user_version").fetchone()[0]

    def _prepare(self) -> None:
        self._check_owner()

    def _set_version(self) -> None:
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    # --- words ---

    def index(self, doc: int, words: set[str]) -> None:
        """Let a document be found by these words."""
        self.run("INSERT INTO words (rowid, text) VALUES (?, ?)", (doc, " ".join(sorted(words))))

    def unindex(self, doc: int, words: set[str]) -> None:
        """Let a document no longer be found; SQLite wants to be told what it was found by."""
        text = " ".join(sorted(words))
        self.run("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", (doc, text))

    def matches(self, words: Sequence[str], first: int, end: int) -> tuple[str, Args]:
        """SQL for the rows `doc` of a range that hold all of these words, or longer ones."""
        query = " AND ".join(f'"{word}"*' for word in words)  # a word has no quote in it
        found = "SELECT rowid AS doc FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ?"
        return found, (query, first, end)

    # --- the file ---

    def size(self) -> int:
        """The bytes of the file and its log."""
        files = (Path(f"{self._path}{suffix}") for suffix in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def tidy(self) -> None:
        """Give room that is no longer needed back to the disk."""
        self.run("INSERT INTO words (words) VALUES ('optimize')")
        self.run("VACUUM")
        self.read("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, path: Path) -> None:
        """Copy the whole store, as of one moment, into a new file; what is damaged is refused."""
        with self._lock, self._errors():
            target = sqlite3.connect(path)
            try:
                self._connection.backup(target)
                if target.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise StoreError(self.name, _WHAT_TO_DO[sqlite3.SQLITE_CORRUPT])
                target.execute("PRAGMA journal_mode = DELETE")
            finally:
                target.close()

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._connection.close()

    def _told(self, error: Exception) -> StoreError:
        if isinstance(error, OSError):
            return StoreError(self.name, f"cannot be used: {error.strerror}")
        if not isinstance(error, sqlite3.Error):
            return StoreError(self.name, _WHAT_TO_DO[sqlite3.SQLITE_CORRUPT])
        if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
            return StoreError(self.name, "the store was closed")
        code = cast("int | None", getattr(error, "sqlite_errorcode", None))
        known = _WHAT_TO_DO.get((code or 0) & 0xFF)
        return StoreError(self.name, known or f"SQLite says: {error}")


def _is_frozen(path: Path) -> bool:
    """Whether nothing can be written here: then no log can be kept beside the file, either."""
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return not writable and not Path(f"{path}-wal").exists()


def _made(path: Path) -> bytes:
    """The first bytes of the file, which is made if there is none; its folder too."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a path cannot hold a NUL character")
    for folder in reversed(path.parents):  # `parents=True` would make all but the last for anyone
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with open_regular(path, links=True) as file:
        return file.read(len(MAGIC))
