"""The sessions that an MCP server serves: those of a store, of a file, or of a folder.

A client's session name is looked up among existing names; it never becomes part of a path. Only a
private copy of a transcript is written, to an unlinked file that disappears with the process. The
caller supplies the reader of transcripts and the list of files.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from foldmark.errors import BadInput, FoldmarkError, NoSession
from foldmark.files import open_folder, open_input, open_regular, printable
from foldmark.session.settings import Settings
from foldmark.session.state import SessionSetup, SessionState
from foldmark.store.rows import SessionRow
from foldmark.store.sqlite import Sqlite
from foldmark.store.store import LATEST, Store

from .reader import SessionReader, line

_MAX_READERS = 4  # per store
_MAX_COPIES, _MAX_BYTES = 16, 2**28  # cached transcripts
_WORTH_INDEXING = 256  # messages

# Imports the new lines of an open file into a store; returns the number of unreadable lines.
Fill = Callable[[Store, BinaryIO, str], int]
OpenFile = Callable[[], AbstractContextManager[BinaryIO]]
Files = Callable[[], Sequence[Path]]
_Stamp = tuple[int, int, int, int]


class _ReadOnly(Sqlite):
    """A store file that is only read; its journal mode is left as it is."""

    def _set_up(self, *, durable: bool, wait: float) -> None:  # noqa: ARG002 - as in the base class
        self._connection.execute("PRAGMA query_only = ON")
        self._check_owner()
        self._create_tables(make=False)


def read_only_store(location: str, *, wait: float) -> Store:
    """Open the store at a path or URL for reading. Raises NoStore if there is none."""
    path = Path(location)
    with suppress(RuntimeError):
        path = path.expanduser()
    if path.is_file():
        return Store(_ReadOnly(path, wait=wait, make=False))
    return Store.open(location, wait=wait, make=False)


def unknown_session(name: str, nearest: Sequence[str] = ()) -> BadInput:
    """The error for an unknown session, with similar names."""
    hint = f"did you mean {', '.join(map(line, nearest[:3]))}?" if nearest else ""
    return BadInput(f"there is no session {line(name)!r}; {hint or '`inspect` lists them'}")


# --- a store -------------------------------------------------------------------------------


class StoreSource:
    """The sessions of a store, or a single one of them."""

    unreadable_lines = 0  # of a transcript

    def __init__(self, store: Store, settings: Settings, only: str | None = None) -> None:
        """Serve this store and close it at the end; `only` limits it to one session."""
        self.store = store
        self._settings = settings
        self._rules = settings.rules()
        self._only = None if only is None else store.resolve(only)
        self._readers: dict[int, SessionReader] = {}  # by key of the session

    def find(self, name: str | None) -> SessionReader:
        """The reader of the session with this name, or of the newest one."""
        only = self._only
        if only is None:
            try:
                return self.reader(self.store.resolve(name or LATEST))
            except NoSession as error:
                raise unknown_session(name or LATEST, error.nearest) from None
        if name and name not in {only.id, LATEST}:
            raise unknown_session(name, (only.id,))
        return self.reader(only)

    def reader(self, row: SessionRow) -> SessionReader:
        """The reader of a session, created once."""
        if row.key not in self._readers:
            while len(self._readers) >= _MAX_READERS:
                self._readers.pop(next(iter(self._readers)))
            reader = SessionReader(
                SessionState(row, SessionSetup(self.store, self._settings, self._rules))
            )
            self._readers[row.key] = reader
        return self._readers[row.key]

    def names(self) -> list[str]:
        """The ids of the sessions."""
        return [row.id for row in ([self._only] if self._only else self.store.sessions())]

    def close(self) -> None:
        """Close the store."""
        self.store.close()


# --- transcripts ---------------------------------------------------------------------------


class TranscriptSource:
    """The sessions of a transcript in a private store, updated when the file has changed.

    The file is opened once per lookup, so that the checked file is the one that is read. If others
    can write to its folder, pass `open_file`.
    """

    def __init__(
        self, path: Path, settings: Settings, fill: Fill, open_file: OpenFile | None = None
    ) -> None:
        """Serve this file; it is read when it is first needed."""
        absolute_path = os.fspath(path.absolute())  # `-` would mean standard input
        self.path = path
        self._open_file = open_file or (lambda: open_input(absolute_path))
        self._settings = settings
        self._fill = fill
        self.unreadable_lines = 0  # in the transcript
        self._copy: StoreSource | None = None
        self._stamp: _Stamp | None = None

    def find(self, name: str | None = None) -> SessionReader:
        """The reader of the session with this id, or of the longest one."""
        copy = self._fresh()
        if name:
            return copy.find(name)
        return copy.reader(max(copy.store.sessions(), key=lambda row: row.places))

    def names(self) -> list[str]:
        """The ids of its sessions as of the last read."""
        return (self._copy or self._fresh()).names()

    def _fresh(self) -> StoreSource:
        """The sessions of the file in its current state."""
        with _name_in_errors(self.path), self._open_file() as file:
            stamp = _stamp(os.fstat(file.fileno()))
            if self._copy is None or stamp != self._stamp:
                self._copy = self._updated_copy(file)
                self._stamp = stamp  # from before the read: later changes are read next time
            return self._copy

    @property
    def size(self) -> int:
        """The size of the file in bytes when it was read."""
        return self._stamp[2] if self._stamp else 0

    def _updated_copy(self, file: BinaryIO) -> StoreSource:
        if self._copy is not None:
            # This fails if the file was rewritten instead of extended.
            with suppress(FoldmarkError):
                self._import(self._copy.store, file)
                return self._copy
            self.close()
            file.seek(0)
        store = private_store()
        try:
            self._import(store, file)
        except BaseException:
            store.close()
            raise
        return StoreSource(store, self._settings)

    def _import(self, store: Store, file: BinaryIO) -> None:
        self.unreadable_lines = self._fill(store, file, os.fspath(self.path))
        rows = store.sessions()
        if not rows:
            raise BadInput("there is no session in it")
        for row in rows:
            if row.places - row.indexed >= _WORTH_INDEXING:
                store.index(row.key)

    def close(self) -> None:
        """Drop what was read."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()


def private_store() -> Store:
    """A new store whose files disappear with the process, however it ends."""
    folder = tempfile.mkdtemp(prefix="foldmark-")  # with mode 0700
    try:
        return Store.open(Path(folder) / "copy.db", durable=False)
    finally:
        # SQLite works with unlinked files. On systems that forbid unlinking, they stay.
        shutil.rmtree(folder, ignore_errors=True)


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _path_stamp(path: Path) -> _Stamp | None:
    """The stamp of a path, without following links; None if nothing is there."""
    with suppress(OSError):
        return _stamp(path.lstat())
    return None


@contextmanager
def _name_in_errors(path: Path) -> Generator[None]:
    """Add the name of a file to errors about it."""
    try:
        yield
    except BadInput as error:
        if error.source is not None:
            raise
        name = printable(path.name)
        raise type(error)(error.cause, source=name, location=error.location) from None


@contextmanager
def open_within(folder: Path, path: Path) -> Generator[BinaryIO]:
    """Open a regular file of a folder. Raises BadInput for other files and for links on its path.

    The folder itself may be a link, as the user named it.
    """
    try:
        *folders, name = path.relative_to(folder).parts or (os.pardir,)
        if os.pardir in (*folders, name):
            raise ValueError("not inside the served folder")  # noqa: TRY301 - converted below
        with open_folder(folder, folders) as number:
            file = open_regular(name, folder=number)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise BadInput(f"cannot be read: {cause or error}") from None
    with file:
        yield file


class FolderSource:
    """The transcripts of a folder, named by their paths in it; by default the newest."""

    def __init__(self, folder: Path, settings: Settings, fill: Fill, files: Files) -> None:
        """Serve this folder; `files` lists the files that may be transcripts.

        Raises BadInput on systems that cannot open a file below a folder without following links.
        """
        if os.open not in os.supports_dir_fd:
            raise BadInput("this system cannot serve a folder safely; pass one transcript instead")
        self._folder = folder
        self._settings = settings
        self._fill = fill
        self._files = files
        self._copies: dict[Path, TranscriptSource] = {}
        self._refused: dict[Path, _Stamp | None] = {}
        self.unreadable_lines = 0  # in the transcript that was read last

    def find(self, name: str | None) -> SessionReader:
        """The reader of the longest session of a file, by default of the newest file."""
        if name:
            return self._read_file(self._find_path(name))
        for path in self._newest():
            if path in self._refused and self._refused[path] == _path_stamp(path):
                continue
            with suppress(FoldmarkError):  # a folder may contain anything
                return self._read_file(path)
        raise BadInput("there is no transcript in this folder", source=printable(str(self._folder)))

    def _read_file(self, path: Path) -> SessionReader:
        # Since the files were listed, a part of the path may have become a link.
        copy = self._copies.pop(path, None) or TranscriptSource(
            path, self._settings, self._fill, lambda: open_within(self._folder, path)
        )
        try:
            reader = copy.find()
        except FoldmarkError:
            self._refused[path] = _path_stamp(path)
            copy.close()
            raise
        reader.label = self._name(path)  # session ids may repeat across files
        self._copies[path], self.unreadable_lines = copy, copy.unreadable_lines
        self._drop_old_copies()
        return reader

    def _drop_old_copies(self) -> None:
        """Close the least recently used copies beyond the limits, but never the newest."""
        total = sum(copy.size for copy in self._copies.values())
        while len(self._copies) > 1 and (len(self._copies) > _MAX_COPIES or total > _MAX_BYTES):
            oldest = self._copies.pop(next(iter(self._copies)))
            total -= oldest.size
            oldest.close()

    def _find_path(self, name: str) -> Path:
        """The file with this path, stem, or unique prefix of a path or name."""
        paths = {self._name(path): path for path in self._newest()}
        if name in paths:
            return paths[name]
        matches = [key for key, path in paths.items() if path.stem == name]
        matches = matches or [key for key in paths if key.startswith(name)]
        matches = matches or [key for key, path in paths.items() if path.name.startswith(name)]
        if len(matches) == 1:
            return paths[matches[0]]
        raise unknown_session(name, matches)

    def names(self) -> list[str]:
        """The paths of the files in the folder."""
        return [self._name(path) for path in self._newest()]

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _newest(self) -> list[Path]:
        """The existing files without links, the most recently modified first."""
        times: dict[Path, int] = {}
        for path in self._files():
            with suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    times[path] = status.st_mtime_ns
        return sorted(times, key=lambda path: (-times[path], os.fspath(path)))

    def close(self) -> None:
        """Drop what was read."""
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()


SessionSource = StoreSource | TranscriptSource | FolderSource
