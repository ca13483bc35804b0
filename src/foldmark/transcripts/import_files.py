"""Imports files, folders and other stores into a store, and collects the result for each.

Each file is imported completely or not at all; an unreadable file does not stop the others.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import replace

from foldmark.errors import BadInput, FoldmarkError, StoreError
from foldmark.files import MAX_BYTES, STANDARD_INPUT, printable
from foldmark.model.values import Frozen
from foldmark.store.importing import SessionConflict
from foldmark.store.loading import Slice
from foldmark.store.maintenance import copy_session
from foldmark.store.rows import SessionRow
from foldmark.store.sqlite import Sqlite
from foldmark.store.store import Store

from .read import SkippedLine, open_reading
from .source import UnrecognizedFormat
from .store import IdConflicts, ImportResult, OnProgress, store_reading

_MAGIC = b"SQLite format 3\0"
_ENDINGS = frozenset({".jsonl", ".json", ".traj", ".md", ".db"})
_AIDER = ".aider.chat.history.md"  # imported although it is hidden


class RefusedFile(Frozen):
    """A file, or a session in it, that was not imported, and the reason."""

    file: str
    problem: str


class ImportTarget(Frozen):
    """The store to import into, and the token counter for new sessions."""

    location: str  # its path or address
    open: Callable[[], Store]  # raises BadInput if there is no store
    create: Callable[[], Store]  # opens the store, and creates it first if there is none
    estimate: str


class BatchImport:
    """Imports files one by one, and lists their results by outcome."""

    def __init__(
        self,
        target: ImportTarget,
        *,
        name: str | None = None,
        format: str | None = None,
        lenient: bool = False,
        max_size: int = MAX_BYTES,
    ) -> None:
        """Prepare an import into a store; `name` is the new id if only one session is imported."""
        self._target = target
        self._name = name
        self._format = format
        self._lenient = lenient
        self._max_size = max_size
        self._store: Store | None = None
        self._in_folder: set[str] = set()
        self.on_progress: OnProgress | None = None
        self.imported: list[ImportResult] = []
        self.refused: list[RefusedFile] = []
        self.skipped: list[SkippedLine] = []
        self.unchanged: list[str] = []
        self.passed_over: list[str] = []

    @property
    def store(self) -> Store | None:
        """The store, or None if it was not needed."""
        return self._store

    def files(self, paths: Sequence[str]) -> list[str]:
        """The files to import: these, and those in folders, sorted and without hidden files."""
        files: list[str] = []
        for path in paths:
            if path == STANDARD_INPUT or not is_folder(path):
                files.append(path)
                continue
            if self._name is not None:
                raise _bad_file(path, "--as names one session, but this is a folder")
            members = list(folder_files(path, self._refuse_folder))
            self._in_folder.update(members)
            if not members:
                self._refuse(path, _bad_file(path, "there is no transcript in this folder"))
            files += members
        return list(dict.fromkeys(files))

    def import_file(self, file: str) -> None:
        """Import a file and list the result; raises StoreError if the store cannot be opened."""
        is_database = _is_database(file)
        try:
            (self._import_store if is_database else self._import_transcript)(file)
        except UnrecognizedFormat as error:
            # A folder may contain other files; a file named by the user must be a transcript.
            if file in self._in_folder:
                self.passed_over.append(file)
            else:
                self._refuse(file, error)
        except FoldmarkError as error:
            if self._store is None and isinstance(error, StoreError) and not is_database:
                raise  # without the store, the other files would fail as well
            self._refuse(file, error)

    def _refuse(self, file: str, error: FoldmarkError) -> None:
        self.refused.append(RefusedFile(file=file, problem=str(error)))

    def _refuse_folder(self, error: OSError) -> None:
        """Refuse a folder whose files cannot be listed."""
        file = str(error.filename)
        self._refuse(file, _bad_file(file, f"cannot be opened: {error.strerror}"))

    def _open_store(self) -> Store:
        """Return the store, which is opened or created on the first call."""
        if self._store is None:
            self._store = self._target.create()
        return self._store

    # --- transcripts ---

    def _import_transcript(self, file: str) -> None:
        state = _file_state(file) if self._name is None else None
        if state is not None and self._is_unchanged(state):
            self.unchanged.append(file)
            return
        conflicts = IdConflicts() if state is None else IdConflicts(suffix=_path_hash(state[0]))
        try:
            imported = self._read(file, conflicts)
        except SessionConflict:
            if state is None:
                raise
            # Another file used this id, or the stored session was continued: import under a new id.
            imported = self._read(file, conflicts)
        if not imported:
            raise UnrecognizedFormat("there is no session in this file", source=printable(file))
        if state is not None:
            store = self._open_store()
            with store.engine.writing():
                store.record_import(*state, imported[0].format or "")
        self.imported += [replace(result, file=file) for result in imported]

    def _read(self, file: str, conflicts: IdConflicts) -> list[ImportResult]:
        """Read a file into the store; the results name the file as the user did."""
        with open_reading(
            file, format=self._format, lenient=self._lenient, max_bytes=self._max_size
        ) as reading:
            imported = store_reading(
                self._open_store(),
                reading,
                estimate=self._target.estimate,
                name=self._name,
                conflicts=conflicts,
                on_progress=self.on_progress,
            )
        if imported:
            self.skipped += [replace(line, file=file) for line in reading.skipped]
        return imported

    def _is_unchanged(self, state: tuple[str, int, int]) -> bool:
        """Whether a file is unchanged since its import; creates no store to find out."""
        if self._store is None:
            with suppress(BadInput):
                self._store = self._target.open()
        return self._store is not None and self._store.has_imported(*state, self._format)

    # --- stores ---

    def _import_store(self, file: str) -> None:
        """Copy the sessions of another store from one snapshot, each completely or not at all."""
        if self._name is not None:
            raise _bad_file(
                file, "--as is for a transcript; the sessions of a store keep their ids"
            )
        try:
            with suppress(OSError):
                if Path(file).samefile(self._target.location):
                    raise _bad_file(file, "a store cannot be imported into itself")
            source = Store(Sqlite(Path(file), make=False))
        except FoldmarkError:
            # A database in a folder may belong to another program.
            if file not in self._in_folder:
                raise
            self.passed_over.append(file)
            return
        with source, source.engine.reading():
            for row in reversed(source.sessions()):
                try:
                    self._copy(file, source, row, self._open_store())
                except FoldmarkError as error:
                    self._refuse(file, error)

    def _copy(self, file: str, source: Store, row: SessionRow, target: Store) -> None:
        if target.find(row.id) is not None:
            raise _bad_file(file, f"session {row.id} is already in {target.name}; it was skipped")
        with target.engine.writing():
            copied = copy_session(source.engine, row, target.engine)
        past = target.load(copied.key, Slice(everything=True), estimate=copied.estimate).past
        origin = copied.info.origin
        self.imported.append(
            ImportResult(
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
    """Whether a path is a folder."""
    with suppress(OSError, ValueError):
        return Path(path).is_dir()
    return False


def folder_files(folder: str, on_error: Callable[[OSError], object] | None = None) -> Iterator[str]:
    """The files in a folder and its subfolders that may be transcripts; links are skipped."""
    for root, folders, names in os.walk(folder, onerror=on_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            is_hidden = name.startswith(".") and name != _AIDER
            if path.suffix in _ENDINGS and not is_hidden and not path.is_symlink():
                yield str(path)


def _file_state(file: str) -> tuple[str, int, int] | None:
    """A file's path, size and time of change, or None if it has none."""
    if file == STANDARD_INPUT:
        return None
    with suppress(OSError, ValueError):
        stat = Path(file).stat()
        return str(Path(file).resolve()), stat.st_size, stat.st_mtime_ns
    return None


def _path_hash(path: str) -> str:
    """A short hash of a path."""
    return blake2b(path.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()


def _bad_file(file: str, cause: str) -> BadInput:
    return BadInput(cause, source=printable(file))


def _is_database(file: str) -> bool:
    with suppress(OSError, ValueError):
        if file != STANDARD_INPUT and Path(file).is_file():
            with Path(file).open("rb") as stream:
                return stream.read(len(_MAGIC)) == _MAGIC
    return False
