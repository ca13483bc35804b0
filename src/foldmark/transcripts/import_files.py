"""Imports files, folders and other stores into a store, and remembers what came of each.

Each file is imported whole or not at all; one that cannot be read does not keep the others from it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import replace

from foldmark.errors import BadInput, FoldmarkError, StoreError
from foldmark.files import MOST_BYTES, STANDARD_INPUT, harmless
from foldmark.model.values import Frozen
from foldmark.store.importing import Diverged
from foldmark.store.loading import Slice
from foldmark.store.maintenance import copy_session
from foldmark.store.rows import SessionRow
from foldmark.store.sqlite import Sqlite
from foldmark.store.store import Store

from .read import Skipped, opened_reading
from .source import Unrecognised
from .store import Apart, Imported, Watch, store_reading

_MAGIC = b"SQLite format 3\0"
_ENDINGS = frozenset({".jsonl", ".json", ".traj", ".md", ".db"})
_AIDER = ".aider.chat.history.md"  # the one that hides


class RefusedFile(Frozen):
    """A file, or a session of one, that is not imported, and why."""

    file: str
    problem: str


class ImportTarget(Frozen):
    """The store to import into, and how tokens are counted there."""

    place: str  # its path or address
    open: Callable[[], Store]  # BadInput if there is none
    make: Callable[[], Store]  # opens it as well, if there is one
    estimate: str


class BatchImport:
    """Imports files one by one; what came of them is in its lists."""

    def __init__(
        self,
        target: ImportTarget,
        *,
        name: str | None = None,
        format: str | None = None,
        lenient: bool = False,
        max_size: int = MOST_BYTES,
    ) -> None:
        """Take the store; the id for the one session that is meant, and how files are read."""
        self._target = target
        self._name = name
        self._format = format
        self._lenient = lenient
        self._max_size = max_size
        self._store: Store | None = None
        self._in_folder: set[str] = set()
        self.watch: Watch | None = None  # is told how many bytes of a file are done
        self.imported: list[Imported] = []
        self.refused: list[RefusedFile] = []
        self.skipped: list[Skipped] = []
        self.unchanged: list[str] = []
        self.passed_over: list[str] = []

    @property
    def store(self) -> Store | None:
        """The store, if any file had something for it."""
        return self._store

    def files(self, paths: Sequence[str]) -> list[str]:
        """The files that are meant: those of folders in their order, hidden ones left out."""
        files: list[str] = []
        for path in paths:
            if path == STANDARD_INPUT or not is_folder(path):
                files.append(path)
                continue
            if self._name is not None:
                raise _in_file(path, "--as names one session, but this is a folder")
            inside = list(folder_files(path, self._refuse_folder))
            self._in_folder.update(inside)
            if not inside:
                self._refuse(path, _in_file(path, "there is no transcript in this folder"))
            files += inside
        return list(dict.fromkeys(files))

    def take(self, file: str) -> None:
        """Import a file, or remember why not."""
        is_database = _is_database(file)
        try:
            (self._import_store if is_database else self._import_file)(file)
        except Unrecognised as error:
            # A folder may hold anything; only what was named must be a transcript.
            if file in self._in_folder:
                self.passed_over.append(file)
            else:
                self._refuse(file, error)
        except FoldmarkError as error:
            if self._store is None and isinstance(error, StoreError) and not is_database:
                raise  # where the store cannot be opened, there is no use in going on
            self._refuse(file, error)

    def _refuse(self, file: str, error: FoldmarkError) -> None:
        self.refused.append(RefusedFile(file=file, problem=str(error)))

    def _refuse_folder(self, error: OSError) -> None:
        """A folder that cannot be looked into."""
        file = str(error.filename)
        self._refuse(file, _in_file(file, f"cannot be opened: {error.strerror}"))

    def _opened(self) -> Store:
        """The store, opened only once there is something for it."""
        if self._store is None:
            self._store = self._target.make()
        return self._store

    # --- transcripts ---

    def _import_file(self, file: str) -> None:
        state = _file_state(file) if self._name is None else None
        if state is not None and self._is_unchanged(state):
            self.unchanged.append(file)
            return
        apart = Apart() if state is None else Apart(suffix=_path_mark(state[0]))
        try:
            imported = self._read(file, apart)
        except Diverged:
            if state is None:
                raise
            # Another file of that name, or a session that went on here: one of its own.
            imported = self._read(file, apart)
        if not imported:
            raise Unrecognised("there is no session in it", source=harmless(file))
        if state is not None:
            store = self._opened()
            with store.engine.writing():
                store.note_import(*state, imported[0].format or "")
        self.imported += [replace(held, file=file) for held in imported]

    def _read(self, file: str, apart: Apart) -> list[Imported]:
        """Read a file into the store."""
        with opened_reading(
            file, format=self._format, lenient=self._lenient, most_bytes=self._max_size
        ) as reading:
            imported = store_reading(
                self._opened(),
                reading,
                estimate=self._target.estimate,
                name=self._name,
                apart=apart,
                watch=self.watch,
            )
        if imported:
            self.skipped += [replace(held, file=file) for held in reading.skipped]
        return imported

    def _is_unchanged(self, state: tuple[str, int, int]) -> bool:
        """Whether a file is just as it was when it was imported; no store is made to know that."""
        if self._store is None:
            with suppress(BadInput):
                self._store = self._target.open()
        return self._store is not None and self._store.has_imported(*state, self._format)

    # --- stores ---

    def _import_store(self, file: str) -> None:
        """Copy the sessions of another store as of one moment, each whole or not at all."""
        if self._name is not None:
            raise _in_file(file, "--as is for a transcript; the sessions of a store keep their ids")
        try:
            with suppress(OSError):
                if Path(file).samefile(self._target.place):
                    raise _in_file(file, "this is the store that is imported into")
            source = Store(Sqlite(Path(file), make=False))
        except FoldmarkError:
            # What lies in a folder need not be a store of ours.
            if file not in self._in_folder:
                raise
            self.passed_over.append(file)
            return
        with source, source.engine.reading():
            for row in reversed(source.sessions()):
                try:
                    self._copy(file, source, row, self._opened())
                except FoldmarkError as error:
                    self._refuse(file, error)

    def _copy(self, file: str, source: Store, row: SessionRow, target: Store) -> None:
        if target.find(row.id) is not None:
            raise _in_file(file, f"session {row.id} is in {target.name} already; it was skipped")
        with target.engine.writing():
            copied = copy_session(source.engine, row, target.engine)
        past = target.load(copied.key, Slice(everything=True), estimate=copied.estimate).past
        origin = copied.info.origin
        self.imported.append(
            Imported(
                file=file,
                id=copied.id,
                title=copied.info.title or None,
                format=(origin.format or None) if origin else None,
                messages=copied.places,
                tokens=copied.tokens,
                pivots=len(past.pivots),
                pruned=len(past.marks),
                state="new",
            )
        )


# --- files and folders ---------------------------------------------------------------------


def is_folder(path: str) -> bool:
    """Whether a path is a folder that can be looked at."""
    with suppress(OSError, ValueError):
        return Path(path).is_dir()
    return False


def folder_files(folder: str, on_error: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """The files of a folder that may be transcripts, and of those in it; links are not followed."""
    for root, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            is_hidden = name.startswith(".") and name != _AIDER
            is_wanted = path.suffix in _ENDINGS and not is_hidden
            if is_wanted and not path.is_symlink():
                yield str(path)


def _file_state(file: str) -> tuple[str, int, int] | None:
    """A file's path, size and time, to know it again."""
    if file == STANDARD_INPUT:
        return None
    with suppress(OSError, ValueError):
        stat = Path(file).stat()
        return str(Path(file).resolve()), stat.st_size, stat.st_mtime_ns
    return None


def _path_mark(path: str) -> str:
    """A few characters that stand for a path."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()


def _in_file(file: str, cause: str) -> BadInput:
    return BadInput(cause, source=harmless(file))


def _is_database(file: str) -> bool:
    with suppress(OSError, ValueError):
        if file != STANDARD_INPUT and Path(file).is_file():
            with Path(file).open("rb") as opened:
                return opened.read(len(_MAGIC)) == _MAGIC
    return False
