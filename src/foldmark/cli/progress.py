"""A bar for who waits at a terminal."""

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

from .text import plain

_LARGE = 4 * 2**20  # bytes: from here on one waits long enough to wonder


@contextmanager
def progress(what: str, files: Sequence[str]) -> Generator[Callable[[str], None]]:
    """Shows how far it is through these files; what it gives is called when one is done."""
    sizes = {file: _size(file) for file in files}
    whole = sum(sizes.values())
    if whole < _LARGE or not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield lambda _: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        # Of one file nothing is known but that it goes on.
        task = bar.add_task(what, total=whole if len(files) > 1 else None)

        def done(file: str) -> None:
            bar.update(task, advance=sizes[file], description=f"{what} {_last(file)}")

        yield done


def _last(file: str) -> str:
    return plain(Path(file).name, most=30).replace("[", "(")


def _size(file: str) -> int:
    with suppress(OSError, ValueError):
        return Path(file).stat().st_size
    return 0
