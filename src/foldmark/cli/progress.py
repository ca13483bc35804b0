"""Progress, shown on terminals only: a bar for files, a line while a model writes."""

import sys
from collections.abc import Callable, Generator, Sequence
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

from foldmark.summary.protocol import TextHandler

from .text import number, plain

_LARGE = 4 * 2**20  # bytes: reading less is quick
_STEP = 2**18  # bytes between two updates of the bar


def track_files(what: str, files: Sequence[str]) -> Generator[tuple[str, Callable[[int], None]]]:
    """Each file with a function that takes its read position; large files get a progress bar."""
    sizes = [_size(file) for file in files]
    is_shown = sum(sizes) >= _LARGE and sys.stdout.isatty() and sys.stderr.isatty()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not is_shown) as bar:
        task = bar.add_task(what, total=sum(sizes) or None)
        finished = drawn = 0  # bytes: of the files before this one, and shown by the bar

        def move(position: int) -> None:
            nonlocal drawn
            if is_shown and abs(finished + position - drawn) >= _STEP:
                drawn = finished + position
                bar.update(task, completed=drawn)

        for file, size in zip(files, sizes, strict=True):
            name = plain(Path(file).name, limit=30).replace("[", "(")
            bar.update(task, description=f"{what} {name}")
            yield file, move
            finished += size


def _size(file: str) -> int:
    with suppress(OSError, ValueError):
        return Path(file).stat().st_size
    return 0


@contextmanager
def model_progress(name: str | None) -> Generator[TextHandler]:
    """A function that takes each piece of a model's reply; draws nothing without a model."""
    if name is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    label = f"asking {plain(name, limit=60)}"
    characters = 0
    with console.status(Text(f"{label} for a summary …")) as status:

        def report(piece: str) -> None:
            nonlocal characters
            characters += len(piece)
            status.update(Text(f"{label}: {number(characters, 'character')} so far …"))

        yield report
