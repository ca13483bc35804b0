"""Taking files into a store, one by one, and remembering what came of each."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from pathlib import Path

from foldmark.errors import BadInput, FoldmarkError, StoreError
from foldmark.files import STANDARD_INPUT, harmless
from foldmark.model.values import Frozen
from foldmark.session.opening import DEFAULT_STORE
from foldmark.session.settings import Settings
from foldmark.store.copy import copy_session
from foldmark.store.importing import Diverged
from foldmark.store.loading import Slice
from foldmark.store.rows import SessionRow
from foldmark.store.sqlite import Sqlite
from foldmark.store.store import Store
from foldmark.transcripts.read import Reading, opened_reading
from foldmark.transcripts.source import Unrecognised
from foldmark.transcripts.store import Apart, Imported, State, Watch, store_reading

from .opening import opened_store

_MAGIC = b"SQLite format 3\0"
_ENDINGS = frozenset({".jsonl", ".json", ".traj", ".md", ".db"})


_AIDER = ".aider.chat.history.md"  # the one that hides


class Kept(Frozen):
    """A session that is in the store."""

    file: str
    id: str
    title: str | None
    format: str | None
    messages: int
    tokens: int
    pivots: int
    pruned: int
    state: State


class Refused(Frozen):
    """A file, or a session of one, that is not, and why."""

    file: str
    problem: str


class LeftOut(Frozen):
    """A line that could not be read."""

    file: str
    line: int
    cause: str


class Importer:
    """Takes files one by one, and remembers what came of each."""

    def __init__(
        self, settings: Settings, stack: ExitStack, *, name: str | None, max_size: int
    ) -> None:
        """Take the settings, and where to leave the store to be closed."""
        self.format: str | None = None
        self.lenient = False
        self._settings = settings
        self._estimate = settings.rules().estimate
        self._stack = stack
        self._name = name
        self._max_size = max_size
        self._store: Store | None = None
        self._in_folder: set[str] = set()
        self.watch: Watch | None = None  # is told how many bytes of a file are done
        self.kept: list[Kept] = []
        self.refused: list[Refused] = []
        self.skipped: list[LeftOut] = []
        self.unchanged: list[str] = []
        self.passed_over: list[str] = []

    @property
    def store_name(self) -> str | None:
        """The store, if any file had something for it."""
        return self._store.name if self._store else None

    def sessions(self) -> list[SessionRow]:
        """All sessions of the store by now."""
        return self._store.sessions() if self._store else []

    def found(self, files: Sequence[str]) -> list[str]:
        """The files that are meant: those of folders in their order, hidden ones left out."""
        found: list[str] = []
        for file in files:
            if file == STANDARD_INPUT or not _is_folder(file):
                found.append(file)
                continue
            if self._name is not None:
                raise _in_file(file, "--as names one session, but this is a folder")
            held = list(_in_folder(file, self._closed))
            self._in_folder.update(held)
            if not held:
                self._refuse(file, _in_file(file, "there is no transcript in this folder"))
            found += held
        return list(dict.fromkeys(found))

    def _closed(self, error: OSError) -> None:
        """A folder that cannot be looked into."""
        file = str(error.filename)
        self._refuse(file, _in_file(file, f"cannot be opened: {error.strerror}"))

    def take(self, file: str) -> None:
        """Import a file, or remember why not."""
        try:
            if not _is_database(file):
                self._read(file)
            elif (source := self._source(file)) is not None:
                self._copy_all(file, source)
        except Unrecognised as error:
            # A folder may hold anything; only what was named must be a transcript.
            if file in self._in_folder:
                self.passed_over.append(file)
            else:
                self._refuse(file, error)
        except FoldmarkError as error:
            if self._store is None and isinstance(error, StoreError) and not _is_database(file):
                raise  # where the store cannot be opened, there is no use in going on
            self._refuse(file, error)

    def _refuse(self, file: str, error: FoldmarkError) -> None:
        self.refused.append(Refused(file=file, problem=str(error)))

    def _target(self) -> Store:
        """The store, opened only once there is something for it."""
        if self._store is None:
            self._store = self._stack.enter_context(opened_store(self._settings, make=True))
        return self._store

    # --- transcripts ---

    def _read(self, file: str) -> None:
        known = _as_it_is(file) if self._name is None else None
        if known is not None and self._has_imported(known):
            self.unchanged.append(file)
            return
        apart = Apart() if known is None else Apart(suffix=_mark(known[0]))
        try:
            reading, stored = self._stored(file, apart)
        except Diverged:
            if known is None:
                raise
            # Another file of that name, or a session that went on here: one of its own.
            reading, stored = self._stored(file, apart)
        if not stored:
            raise Unrecognised("there is no session in it", source=harmless(file))
        if known is not None:
            store = self._target()
            with store.engine.writing():
                store.note_import(*known, reading.format.name)
        for held in stored:
            self.kept.append(
                Kept(
                    file=file,
                    id=held.id,
                    title=held.title,
                    format=reading.format.name,
                    messages=held.messages,
                    tokens=held.tokens,
                    pivots=held.pivots,
                    pruned=held.pruned,
                    state=held.state,
                )
            )
        self.skipped += [
            LeftOut(file=file, line=held.line, cause=held.cause) for held in reading.skipped
        ]

    def _stored(self, file: str, apart: Apart) -> tuple[Reading, list[Imported]]:
        """Read a file into the store."""
        with opened_reading(
            file, format=self.format, lenient=self.lenient, most_bytes=self._max_size
        ) as reading:
            try:
                return reading, store_reading(
                    self._target(),
                    reading,
                    estimate=self._estimate,
                    name=self._name,
                    apart=apart,
                    watch=self.watch,
                )
            except BadInput as error:
                if error.source is not None:
                    raise
                raise type(error)(error.cause, source=harmless(file)) from None

    def _has_imported(self, known: tuple[str, int, int]) -> bool:
        """Whether a file is just as it was when it was imported; no store is made to know that."""
        if self._store is None:
            with suppress(BadInput):
                self._store = self._stack.enter_context(opened_store(self._settings))
        return self._store is not None and self._store.has_imported(*known, self.format)

    # --- stores ---

    def _source(self, file: str) -> Store | None:
        """Another store; None for what lies in a folder and is not one of ours, or is our own."""
        if self._name is not None:
            raise _in_file(file, "--as is for a transcript; the sessions of a store keep their ids")
        try:
            with suppress(OSError):
                if Path(file).samefile(self._settings.store or DEFAULT_STORE):
                    raise _in_file(file, "this is the store that is imported into")
            source = Store(Sqlite(Path(file), make=False))
        except FoldmarkError:
            if file not in self._in_folder:
                raise
            self.passed_over.append(file)
            return None
        self._stack.callback(source.close)
        return source

    def _copy_all(self, file: str, source: Store) -> None:
        """Copy the sessions of another store as of one moment, each whole or not at all."""
        target = self._target()
        with source.engine.reading():
            for row in reversed(source.sessions()):
                try:
                    self._copy(file, source, row, target)
                except FoldmarkError as error:
                    self._refuse(file, error)

    def _copy(self, file: str, source: Store, row: SessionRow, target: Store) -> None:
        if target.find(row.id) is not None:
            raise _in_file(file, f"session {row.id} is in {target.name} already; it was skipped")
        with target.engine.writing():
            copied = copy_session(source.engine, row, target.engine)
        past = target.load(copied.key, Slice(everything=True), estimate=copied.estimate).past
        origin = copied.info.origin
        self.kept.append(
            Kept(
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


def _is_folder(file: str) -> bool:
    with suppress(OSError, ValueError):
        return Path(file).is_dir()
    return False


def _in_folder(folder: str, closed: Callable[[OSError], None]) -> Iterator[str]:
    """The files of a folder that may be transcripts, and of those in it; links are not followed."""
    for root, folders, names in os.walk(folder, onerror=closed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            is_hidden = name.startswith(".") and name != _AIDER
            is_wanted = path.suffix in _ENDINGS and not is_hidden
            if is_wanted and not path.is_symlink():
                yield str(path)


def _as_it_is(file: str) -> tuple[str, int, int] | None:
    """A file by its path, size and time, to know it again."""
    if file == STANDARD_INPUT:
        return None
    with suppress(OSError, ValueError):
        told = Path(file).stat()
        return str(Path(file).resolve()), told.st_size, told.st_mtime_ns
    return None


def _mark(path: str) -> str:
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
