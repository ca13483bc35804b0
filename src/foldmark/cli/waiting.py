"""A line for who waits at a terminal while a model writes."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from foldmark.summary.protocol import Delta

from .text import number, plain


@contextmanager
def waiting(name: str) -> Generator[Delta]:
    """What is to be told of each piece of an answer; it is drawn on a terminal only."""
    if not sys.stderr.isatty():
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
