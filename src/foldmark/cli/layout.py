"""What all tables and lines of the command line look like, and where answers are written.

A transcript is never trusted: its text goes through `words`, so that neither rich nor the
terminal takes anything in it for a command.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from foldmark.errors import BadInput
from foldmark.files import harmless, write_private
from foldmark.model.values import encode

from .text import escaped, harmless_line, harmless_text, number, percent, plain

Cell = RenderableType | int
Row = Sequence[Cell]

QUIET = "dim"
STANDARD_OUTPUT = "-"
FORCE = ("--force", "Overwrite the file if it is there.")
_TIGHT, _FULL = 0.75, 1.0
_BAR_TRACK = "grey23"
# Columns that give way where a terminal is narrow, with their shares of what is left.
_CUT = {"about": 2, "title": 2}
_WRAPPED = {"reason": 3, "snippet": 3}
_NUMBERS = frozenset({"tokens", "outputs", "messages", "size", "pivots", "pruned", "act"})
_STYLES = {"handle": "cyan", "id": "cyan", "format": QUIET, "reason": QUIET, "when": QUIET}
_STATES = {
    "pruned": "yellow",
    "folded": "magenta",
    "reverted": "red",
    "undone": QUIET,
    "answered": "green",
    "open": "bold yellow",
    "new": "green",
    "grown": "yellow",
    "added": "green",
    "deleted": "red",
}
_NAME_COLUMNS = frozenset({"what", "tool"})
_LONGEST_NAME, _LONGEST_QUOTE = 16, 400


def terminal_console() -> Console:
    """A console on standard output that takes nothing for markup."""
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def show(*pieces: RenderableType, commands: Sequence[str] = ()) -> None:
    """Print pieces below each other, then commands to copy: those are never cut or broken."""
    console = terminal_console()
    for piece in pieces:
        console.print()
        console.print(piece)
    for command in commands:
        console.print(Text(f"  {command}", style="bold"), soft_wrap=True)
    console.print()


def answer(value: Any, *pieces: RenderableType, json: bool) -> None:
    """Print a command's answer: as one JSON object, or as pieces for people."""
    if json:
        show_json(value)
    else:
        show(*pieces)


def show_json(value: Any) -> None:
    """Print one JSON object; indented where a person reads it."""
    data = encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    sys.stdout.write(escaped(data.decode()) + "\n")


# --- files, and standard output as it is ---------------------------------------------------


def write_text(data: bytes) -> None:
    """Print lines of text as they are; where a terminal reads them, without what steers it."""
    if sys.stdout.isatty():
        data = harmless_text(data.decode().expandtabs(4)).encode("utf-8", "replace")
    write_bytes(data)


def write_json(data: bytes) -> None:
    """Print JSON as it is; what steers a terminal is escaped where one reads it."""
    if sys.stdout.isatty():
        data = escaped(data.decode()).encode()
    write_bytes(data + b"\n")


def write_bytes(data: bytes) -> None:
    """Print bytes unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_file(path: str, data: bytes) -> None:
    """Write a private file; BadInput names it where it cannot be written."""
    try:
        write_private(path, data)
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None


def unwritable(path: str, error: Exception) -> BadInput:
    """That a file cannot be written, and why."""
    cause = getattr(error, "strerror", None) or error
    return BadInput(f"cannot be written: {cause}", source=harmless(path))


def check_output(path: str, *, force: bool) -> None:
    """Refuse what is there, before any work is done."""
    if Path(path).is_dir():
        raise BadInput("this is a folder, not a file", source=harmless(path))
    if not force and os.path.lexists(path):
        cause = "the file is there already; give another one, or --force to overwrite it"
        raise BadInput(cause, source=harmless(path))


# --- pieces --------------------------------------------------------------------------------


def words(text: str, style: str = "", *, most: int = 200) -> Text:
    """Text that no one here wrote."""
    return Text(plain(text, most=most), style=style)


class About:
    """What a call was about, cut to its column: a path at its beginning, all else at its end."""

    def __init__(self, text: str) -> None:
        """Take text that no one here wrote."""
        self._text = plain(text)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Anything from one character to the whole."""
        return Measurement(1, max(1, min(cell_len(self._text), options.max_width)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line."""
        text, room = self._text, options.max_width
        if cell_len(text) > room and "/" in text and " " not in text:
            while text and cell_len(text) >= room:
                text = text[1:]
            text = f"…{text}"
        yield Text(text, no_wrap=True, overflow="ellipsis")


def count(tokens: int, style: str = "") -> Text:
    """A number, to be aligned on the right."""
    return Text(f"{tokens:,}", style=style, justify="right")


def section(title: str, *pieces: RenderableType, note: str = "") -> Group:
    """A titled group, with a sentence for who sees it for the first time."""
    head = [Text(title, style="bold")]
    if note:
        head.append(Text(note, style=QUIET))
    return Group(*head, *(Padding(piece, (0, 0, 0, 2)) for piece in pieces))


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Names and what they stand for, below each other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, words(value) if isinstance(value, str) else value)
    return table


def titled(title: str, rows: Iterable[tuple[str, RenderableType]]) -> Group:
    """The head of a report on a session."""
    return Group(words(title or "a session without a title", "bold"), facts(rows))


def listing(columns: str, rows: Iterable[Row]) -> Table:
    """A table with headings: `listing("handle about tokens", rows)`.

    A text or a number is drawn as its column needs it; anything else is drawn as it is. The columns
    for text share what the others leave. An underscore is a space, and alone no heading at all.
    """
    names = [name.replace("_", " ").strip() for name in columns.split()]
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style=QUIET,
        expand=any(name in _CUT or name in _WRAPPED for name in names),
    )
    for name in names:
        if name in _CUT:
            table.add_column(name, ratio=_CUT[name], no_wrap=True, overflow="ellipsis")
        elif name in _WRAPPED:
            table.add_column(name, ratio=_WRAPPED[name])
        else:
            justify = "right" if name in _NUMBERS else "left"
            table.add_column(name, no_wrap=True, justify=justify)
    for row in rows:
        table.add_row(*map(_cell, names, row))
    return table


def _cell(column: str, value: Cell) -> RenderableType:
    if isinstance(value, int):
        return count(value)
    if not isinstance(value, str):
        return value
    if column in _CUT:
        return About(value)
    most = _LONGEST_NAME if column in _NAME_COLUMNS else 200
    return words(value, _STYLES.get(column) or _STATES.get(value, ""), most=most)


def quoted(text: str, most: int) -> Iterator[RenderableType]:
    """The first lines of a text that no one here wrote, each on one line of the terminal."""
    lines = text.splitlines()
    for line in lines[:most]:
        yield _quote(harmless_line(line[:_LONGEST_QUOTE]))
    if len(lines) > most:
        yield _quote(f"… {number(len(lines) - most, 'line')} more")


def _quote(line: str) -> Text:
    text = Text.assemble(("│ ", "cyan"), (line, QUIET))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def labelled(held: object, names: Mapping[str, tuple[str, str]]) -> list[tuple[str, int, str]]:
    """The fields of a value that are not 0, each with its label and its colour, for `bars`."""
    rows = ((label, int(getattr(held, name)), colour) for name, (label, colour) in names.items())
    return [row for row in rows if row[1]]


def bars(rows: Iterable[tuple[str, int, str]], whole: int) -> Table:
    """Names, tokens and their share of a whole as bars, each in its colour."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, min_width=5)
    for name, tokens, colour in rows:
        share = Text(percent(tokens, whole), style=QUIET)
        table.add_row(words(name), bar(tokens, whole, colour), count(tokens), share)
    return table


def bar(part: float, whole: float, colour: str) -> ProgressBar:
    """A share of a whole, as long as there is room."""
    return ProgressBar(
        total=max(1.0, whole),
        completed=min(part, whole),
        style=_BAR_TRACK,
        complete_style=colour,
        finished_style=colour,
    )


def gauge(pressure: float) -> Table:
    """How full a window is."""
    colour = pressure_colour(pressure)
    label = Column(no_wrap=True, justify="right", style=f"bold {colour}")
    table = Table.grid(Column(ratio=1), label, padding=(0, 1), expand=True)
    table.add_row(bar(pressure, 1, colour), pressure_text(pressure))
    return table


def pressure_text(pressure: float) -> str:
    """Used ÷ usable, in words."""
    return percent(pressure, 1) if isfinite(pressure) else "no room at all"


def pressure_colour(pressure: float) -> str:
    """Green, yellow or red."""
    if pressure >= _FULL:
        return "red"
    return "yellow" if pressure >= _TIGHT else "green"
