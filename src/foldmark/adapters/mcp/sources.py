"""The sessions that an MCP server was pointed at: those of a store, of a file, or of a folder.

A name that a client gives is looked for among those that are there; it is never made part of a
path. Nothing is written but a private copy of a transcript, whose file has no name any more: with
the process it is gone. How a transcript is read, and which files a folder has, comes in.
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
from foldmark.files import harmless, open_folder, open_regular, opened_input
from foldmark.session.settings import Settings
from foldmark.session.state import SessionSetup, SessionState
from foldmark.store.rows import SessionRow
from foldmark.store.sqlite import Sqlite
from foldmark.store.store import LATEST, Store

from .reader import SessionReader, line

_MOST_READERS = 4  # of sessions of one store, at a time
_MOST_COPIES, _MOST_BYTES = 16, 2**28  # of transcripts that are kept, so that none is read twice
_WORTH_INDEXING = 256  # messages

# Takes what is new of an open file of this name into a store; how many lines could not be read.
Fill = Callable[[Store, BinaryIO, str], int]
Opening = Callable[[], AbstractContextManager[BinaryIO]]
Files = Callable[[], Sequence[Path]]
_Stamp = tuple[int, int, int, int]


class _ReadOnly(Sqlite):
    """A file of another's, which is only read: its way of logging is not switched."""

    def _set_up(self, *, durable: bool, wait: float) -> None:  # noqa: ARG002 - as its base has it
        self._connection.execute("PRAGMA query_only = ON")
        self._check_owner()
        self._make_tables(make=False)


def read_only_store(place: str, *, wait: float) -> Store:
    """The store at a path or an address, to be read; NoStore where there is none."""
    path = Path(place)
    with suppress(RuntimeError):
        path = path.expanduser()
    if path.is_file():
        return Store(_ReadOnly(path, wait=wait, make=False))
    return Store.open(place, wait=wait, make=False)


def no_session(name: str, nearest: Sequence[str] = ()) -> BadInput:
    """That there is no such session, and which may be meant."""
    hint = f"did you mean {', '.join(map(line, nearest[:3]))}?" if nearest else ""
    return BadInput(f"there is no session {line(name)!r}; {hint or '`inspect` lists them'}")


# --- a store -------------------------------------------------------------------------------


class StoreSource:
    """The sessions of a store; or one of them alone, where that is what was pointed at."""

    left_out = 0  # a store has no lines that could not be read

    def __init__(self, store: Store, settings: Settings, only: str | None = None) -> None:
        """Take the store, which is closed with this, and the one session that may be read."""
        self.store = store
        self._settings = settings
        self._rules = settings.rules()
        self._only = None if only is None else store.named(only)
        self._readers: dict[int, SessionReader] = {}  # each begun once

    def look(self, name: str | None) -> SessionReader:
        """The session of this name, or the newest."""
        only = self._only
        if only is None:
            try:
                return self.reader(self.store.named(name or LATEST))
            except NoSession as error:
                raise no_session(name or LATEST, error.nearest) from None
        if name and name not in {only.id, LATEST}:
            raise no_session(name, (only.id,))
        return self.reader(only)

    def reader(self, row: SessionRow) -> SessionReader:
        """The reader of a session."""
        if row.key not in self._readers:
            while len(self._readers) >= _MOST_READERS:
                self._readers.pop(next(iter(self._readers)))
            reader = SessionReader(
                SessionState(row, SessionSetup(self.store, self._settings, self._rules))
            )
            self._readers[row.key] = reader
        return self._readers[row.key]

    def names(self) -> list[str]:
        """Their ids."""
        return [row.id for row in ([self._only] if self._only else self.store.sessions())]

    def close(self) -> None:
        """Let the store go."""
        self.store.close()


# --- transcripts ---------------------------------------------------------------------------


class TranscriptSource:
    """The sessions of a transcript in a private store, brought up to date where it has changed.

    It is opened once for each look: what is checked is what is read. It must be given what opens
    it where others can write to the folder that it lies in.
    """

    def __init__(
        self, path: Path, settings: Settings, fill: Fill, opening: Opening | None = None
    ) -> None:
        """Take the file; it is read when it is looked at."""
        whole = os.fspath(path.absolute())  # `-` would be standard input
        self.path = path
        self._opening = opening or (lambda: opened_input(whole))
        self._settings = settings
        self._fill = fill
        self.left_out = 0  # lines that could not be read
        self._copy: StoreSource | None = None
        self._stamp: _Stamp | None = None

    def look(self, name: str | None = None) -> SessionReader:
        """The session of this id, or the longest."""
        copy = self._fresh()
        if name:
            return copy.look(name)
        return copy.reader(max(copy.store.sessions(), key=lambda row: row.places))

    def names(self) -> list[str]:
        """The ids of its sessions as they were read last; it is not read again for them."""
        return (self._copy or self._fresh()).names()

    def _fresh(self) -> StoreSource:
        """The sessions of the file as it is now."""
        with _told_of(self.path), self._opening() as file:
            stamp = _stamp(os.fstat(file.fileno()))
            if self._copy is None or stamp != self._stamp:
                self._copy = self._filled(file)
                self._stamp = stamp  # of before it was read: what came meanwhile is read next time
            return self._copy

    @property
    def size(self) -> int:
        """The bytes of the file as it was read."""
        return self._stamp[2] if self._stamp else 0

    def _filled(self, file: BinaryIO) -> StoreSource:
        if self._copy is not None:
            # What was written anew, and not only at its end, does not continue what we have.
            with suppress(FoldmarkError):
                self._take(self._copy.store, file)
                return self._copy
            self.close()
            file.seek(0)
        store = private_store()
        try:
            self._take(store, file)
        except BaseException:
            store.close()
            raise
        return StoreSource(store, self._settings)

    def _take(self, store: Store, file: BinaryIO) -> None:
        self.left_out = self._fill(store, file, os.fspath(self.path))
        rows = store.sessions()
        if not rows:
            raise BadInput("there is no session in it")
        for row in rows:
            if row.places - row.indexed >= _WORTH_INDEXING:
                store.index(row.key)

    def close(self) -> None:
        """Forget what was read."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.close()


def private_store() -> Store:
    """A new store whose files are gone with the process, however that ends."""
    folder = tempfile.mkdtemp(prefix="foldmark-")  # with mode 0700
    try:
        return Store.open(Path(folder) / "copy.db", durable=False)
    finally:
        # SQLite goes on with files that have no name. Where a system forbids that, they stay.
        shutil.rmtree(folder, ignore_errors=True)


def _stamp(told: os.stat_result) -> _Stamp:
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns


def _seen(path: Path) -> _Stamp | None:
    """What lies at a path, itself and not what it leads to; None where that is nothing."""
    with suppress(OSError):
        return _stamp(path.lstat())
    return None


@contextmanager
def _told_of(path: Path) -> Generator[None]:
    """What is wrong with a file is told with its name."""
    try:
        yield
    except BadInput as error:
        if error.source is not None:
            raise
        raise type(error)(error.cause, source=harmless(path.name), place=error.place) from None


@contextmanager
def opened_within(folder: Path, path: Path) -> Generator[BinaryIO]:
    """A regular file of a folder; BadInput where it is none, or a link is on the way.

    The folder itself may be a link: it is what was pointed at.
    """
    try:
        *folders, name = path.relative_to(folder).parts or (os.pardir,)
        if os.pardir in (*folders, name):
            raise ValueError("not a file of this folder")  # noqa: TRY301 - told below
        with open_folder(folder, folders) as number:
            file = open_regular(name, folder=number)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise BadInput(f"cannot be read: {cause or error}") from None
    with file:
        yield file


class FolderSource:
    """The transcripts of a folder by their paths in it; the newest where none is named."""

    def __init__(self, folder: Path, settings: Settings, fill: Fill, files: Files) -> None:
        """Take the folder, and what tells which files of it may be transcripts.

        Raises BadInput on a system that cannot open a file below a folder without following links.
        """
        if os.open not in os.supports_dir_fd:
            raise BadInput(
                "this system cannot keep to one folder; give the path of one transcript instead"
            )
        self._folder = folder
        self._settings = settings
        self._fill = fill
        self._files = files
        self._copies: dict[Path, TranscriptSource] = {}
        self._refused: dict[Path, _Stamp | None] = {}
        self.left_out = 0  # lines of the file that was looked at last that could not be read

    def look(self, name: str | None) -> SessionReader:
        """The longest session of the file that is meant, or of the newest."""
        if name:
            return self._looked(self._named(name))
        for path in self._newest():
            if path in self._refused and self._refused[path] == _seen(path):
                continue
            with suppress(FoldmarkError):  # a folder may hold anything
                return self._looked(path)
        raise BadInput("there is no transcript in this folder", source=harmless(str(self._folder)))

    def _looked(self, path: Path) -> SessionReader:
        # A file or a folder on the way may have become a link since the files were listed.
        copy = self._copies.pop(path, None) or TranscriptSource(
            path, self._settings, self._fill, lambda: opened_within(self._folder, path)
        )
        try:
            look = copy.look()
        except FoldmarkError:
            self._refused[path] = _seen(path)
            copy.close()
            raise
        look.called = self._name(path)  # several files may tell of sessions of one id
        self._copies[path], self.left_out = copy, copy.left_out
        self._make_room()
        return look

    def _make_room(self) -> None:
        """Let go of the copies that were longest not looked at, but never of the newest."""
        held = sum(copy.size for copy in self._copies.values())
        while len(self._copies) > 1 and (len(self._copies) > _MOST_COPIES or held > _MOST_BYTES):
            oldest = self._copies.pop(next(iter(self._copies)))
            held -= oldest.size
            oldest.close()

    def _named(self, name: str) -> Path:
        """The one file that is called so, or begins so: by its path in the folder, or its name."""
        known = {self._name(path): path for path in self._newest()}
        if name in known:
            return known[name]
        found = [told for told, path in known.items() if path.stem == name]
        found = found or [told for told in known if told.startswith(name)]
        found = found or [told for told, path in known.items() if path.name.startswith(name)]
        if len(found) == 1:
            return known[found[0]]
        raise no_session(name, found)

    def names(self) -> list[str]:
        """Their paths in the folder."""
        return [self._name(path) for path in self._newest()]

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _newest(self) -> list[Path]:
        """The files that are there, the one that was last written to first; no links."""
        times: dict[Path, int] = {}
        for path in self._files():
            with suppress(OSError):
                told = path.lstat()
                if stat.S_ISREG(told.st_mode):
                    times[path] = told.st_mtime_ns
        return sorted(times, key=lambda path: (-times[path], os.fspath(path)))

    def close(self) -> None:
        """Forget what was read."""
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()


SessionSource = StoreSource | TranscriptSource | FolderSource
