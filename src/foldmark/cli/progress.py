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

from foldmark.summary.protocol import Delta

from .text import number, plain

_LARGE = 4 * 2**20  # bytes: from here on one waits long enough to wonder
_STEP = 2**18  # bytes, by which it moves


def tracked(what: str, files: Sequence[str]) -> Generator[tuple[str, Callable[[int], None]]]:
    """Each file, and what is told how far it was read; a bar is drawn where there is much to do."""
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
        done = shown = 0  # bytes: of the files before this one, and as it is drawn

        def move(position: int) -> None:
            nonlocal shown
            if is_shown and abs(done + position - shown) >= _STEP:
                shown = done + position
                bar.update(task, completed=shown)

        for file, size in zip(files, sizes, strict=True):
            name = plain(Path(file).name, most=30).replace("[", "(")
            bar.update(task, description=f"{what} {name}")
            yield file, move
            done += size


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
