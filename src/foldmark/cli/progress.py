"""Progress, shown on terminals only: a bar for files, a line while a model writes."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from foldmark.summary.protocol import Delta

from .text import number, plain

_LARGE = 4 * 2**20  # bytes: from here on one waits long enough to wonder
_STEP = 2**18  # bytes, by which it moves


class Bar:
    """Shows how far it is through some files; nothing where nobody waits."""

    def __init__(self, files: Sequence[str], bar: Progress | None = None, what: str = "") -> None:
        """Take the files, and what is drawn, if anything is."""
        self._sizes = {file: _size(file) for file in files}
        self._bar = bar
        self._what = what
        self._done = 0  # bytes of the files before this one
        self._shown = 0
        if bar is not None:
            self._task = bar.add_task(what, total=self.whole or None)

    @property
    def whole(self) -> int:
        """The bytes of all files."""
        return sum(self._sizes.values())

    def begin(self, file: str) -> None:
        """A file is read from now on."""
        if self._bar is not None:
            name = plain(Path(file).name, most=30).replace("[", "(")
            self._bar.update(self._task, description=f"{self._what} {name}")

    def move(self, position: int) -> None:
        """So many bytes of it were read."""
        if self._bar is not None and abs(self._done + position - self._shown) >= _STEP:
            self._shown = self._done + position
            self._bar.update(self._task, completed=self._shown)

    def end(self, file: str) -> None:
        """It is done."""
        self._done += self._sizes[file]
        self.move(0)


@contextmanager
def progress(what: str, files: Sequence[str]) -> Generator[Bar]:
    """A bar where there is much to do, and a terminal to draw it on."""
    nothing = Bar(files)
    if nothing.whole < _LARGE or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield nothing
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        yield Bar(files, drawn, what)


def _size(file: str) -> int:
    with suppress(OSError, ValueError):
        return Path(file).stat().st_size
    return 0


@contextmanager
def waiting(name: str | None) -> Generator[Delta]:
    """What is to be told of each piece of a model's answer; without a model nothing is drawn."""
    if name is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    asked = f"asking {plain(name, most=60)}"
    written = 0
    with console.status(Text(f"{asked} for a summary …")) as status:

        def told(piece: str) -> None:
            nonlocal written
            written += len(piece)
            status.update(Text(f"{asked}: {number(written, 'character')} so far …"))

        yield told
