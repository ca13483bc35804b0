"""`foldmark import`: transcripts, and the sessions of other stores, into a store."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from foldmark.errors import BadInput, FoldmarkError
from foldmark.importers.reading import read_transcript
from foldmark.io.copying import copy_session
from foldmark.io.files import MOST_BYTES, STANDARD_INPUT, harmless
from foldmark.io.loading import Slice
from foldmark.io.rows import SessionRow
from foldmark.io.sqlite import Sqlite
from foldmark.io.store import LATEST, Store
from foldmark.log import Log
from foldmark.messages import Transcript
from foldmark.presets import PRESETS
from foldmark.session.opening import DEFAULT_STORE
from foldmark.session.settings import Settings, load_settings
from foldmark.tokens import counter
from foldmark.values import Frozen

from .opening import new_name, opened_store
from .options import AsJson, MaxSize, StorePlace
from .tables import QUIET, About, count, listing, show, show_json, words
from .text import plain

EXAMPLE = "Example: foldmark import session.json --store work.db"

FAILED = 2
_MAGIC = b"SQLite format 3\0"
_LARGE = 4 * 2**20  # bytes: from here on one waits long enough to wonder

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="Sessions from `opencode export`, or stores of Foldmark; - is standard input.",
    ),
]
NewName = Annotated[
    str | None, typer.Option("--as", metavar="ID", help="Keep the session under this id.")
]
ChosenPolicy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        help=f"Count tokens as this policy does: {', '.join(PRESETS)}.",
        show_default=False,
    ),
]


class Imported(Frozen):
    """A session that is now in the store."""

    file: str
    id: str
    title: str | None
    messages: int
    tokens: int
    pivots: int
    pruned: int


class Refused(Frozen):
    """A file, or a session of one, that is not, and why."""

    file: str
    problem: str


def import_files(
    files: Files,
    *,
    name: NewName = None,
    policy: ChosenPolicy = None,
    store: StorePlace = None,
    max_size: MaxSize = MOST_BYTES,
    json: AsJson = False,
) -> None:
    """Read sessions into a store, which is made if there is none.

    Each file is imported whole or not at all; one that cannot be read does not keep the others
    from it.
    """
    if new_name(name) and len(files) > 1:
        raise BadInput("--as names one session, but there are several files")
    settings = load_settings(store=store, policy=policy)
    with ExitStack() as stack:
        importer = Importer(settings, stack, name=name, max_size=max_size)
        with _progress(files) as advance:
            for file in files:
                importer.take(file)
                advance(file)
        shown = importer.store_name
    if json:
        show_json({"store": shown, "imported": importer.imported, "refused": importer.refused})
    elif importer.imported:
        show(_table(importer.imported), Text(f"in {shown}", style=QUIET))
    for held in importer.refused:
        sys.stderr.write(f"foldmark: {plain(held.problem, most=1_000)}\n")
    if importer.refused:
        raise typer.Exit(FAILED)


class Importer:
    """Takes files one by one, and remembers what came of each."""

    def __init__(
        self, settings: Settings, stack: ExitStack, *, name: str | None, max_size: int
    ) -> None:
        """Take the settings, and where to leave the store to be closed."""
        self._settings = settings
        self._policy = settings.rules()
        self._stack = stack
        self._name = name
        self._max_size = max_size
        self._store: Store | None = None
        self.imported: list[Imported] = []
        self.refused: list[Refused] = []

    @property
    def store_name(self) -> str | None:
        """The store, if any file had something for it."""
        return self._store.name if self._store else None

    def take(self, file: str) -> None:
        """Import a file, or remember why not."""
        try:
            found = self._source(file) if _is_database(file) else self._read(file)
        except FoldmarkError as error:
            self._refuse(file, error)
            return
        target = self._target()  # where it cannot be opened, there is no use in going on
        try:
            if isinstance(found, Store):
                self._copy_all(file, found, target)
            else:
                self._fill(file, found, target)
        except FoldmarkError as error:
            self._refuse(file, error)

    def _refuse(self, file: str, error: FoldmarkError) -> None:
        self.refused.append(Refused(file=file, problem=str(error)))

    def _target(self) -> Store:
        """The store, opened only once there is something for it."""
        if self._store is None:
            self._store = self._stack.enter_context(opened_store(self._settings, make=True))
        return self._store

    def _read(self, file: str) -> Transcript:
        transcript = read_transcript(file, most_bytes=self._max_size)
        if self._name is not None:
            return replace(transcript, info=replace(transcript.info, id=self._name))
        if not transcript.info.id.strip() or transcript.info.id == LATEST:
            raise _in_file(file, f"its id, {transcript.info.id!r}, cannot be one; give --as ID")
        return transcript

    def _fill(self, file: str, transcript: Transcript, store: Store) -> None:
        info = transcript.info
        if store.find(info.id) is not None:
            raise _in_file(
                file, f"session {info.id} is in {store.name} already; give it another id: --as ID"
            )
        log = Log(counter(self._policy.estimate), transcript.messages)
        row = store.fill(info, log, estimate=self._policy.estimate, extra=transcript.extra)
        self._note(file, row, pivots=len(log.pivots), pruned=len(log.marks))

    # --- stores ---

    def _source(self, file: str) -> Store:
        if self._name is not None:
            raise _in_file(file, "--as is for a transcript; the sessions of a store keep their ids")
        with suppress(OSError):
            if Path(file).samefile(self._settings.store or DEFAULT_STORE):
                raise _in_file(file, "this is the store that is imported into")
        source = Store(Sqlite(Path(file), make=False))
        self._stack.callback(source.close)
        return source

    def _copy_all(self, file: str, source: Store, target: Store) -> None:
        """Copy the sessions of another store as of one moment, each whole or not at all."""
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
        self._note(file, copied, pivots=len(past.pivots), pruned=len(past.marks))

    def _note(self, file: str, row: SessionRow, *, pivots: int, pruned: int) -> None:
        self.imported.append(
            Imported(
                file=file,
                id=row.id,
                title=row.info.title or None,
                messages=row.places,
                tokens=row.tokens,
                pivots=pivots,
                pruned=pruned,
            )
        )


def _in_file(file: str, cause: str) -> BadInput:
    return BadInput(cause, source=harmless(file))


def _is_database(file: str) -> bool:
    with suppress(OSError, ValueError):
        if file != STANDARD_INPUT and Path(file).is_file():
            with Path(file).open("rb") as opened:
                return opened.read(len(_MAGIC)) == _MAGIC
    return False


# --- what is printed -----------------------------------------------------------------------


def _table(imported: Sequence[Imported]) -> RenderableType:
    rows = (
        (
            words(held.id, "cyan"),
            About(held.title or ""),
            *(count(figure) for figure in (held.messages, held.tokens, held.pivots, held.pruned)),
        )
        for held in imported
    )
    return listing(("id", "title", "messages", "tokens", "pivots", "pruned"), rows)


@contextmanager
def _progress(files: Sequence[str]) -> Generator[Callable[[str], None]]:
    """A bar for who waits at a terminal; what it gives is called when a file is done."""
    sizes = {file: _size(file) for file in files}
    whole = sum(sizes[file] for file in files)
    if whole < _LARGE or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn("importing"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # Of one file nothing is known but that it goes on.
        task = progress.add_task("", total=whole if len(files) > 1 else None)
        yield lambda file: progress.advance(task, sizes[file])


def _size(file: str) -> int:
    with suppress(OSError, ValueError):
        return Path(file).stat().st_size
    return 0
