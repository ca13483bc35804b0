"""Tables, text and colors that all commands share, and functions that write output.

Transcripts are untrusted: their text goes through `safe_text`, so that neither rich nor the
terminal interprets it.
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
from foldmark.files import printable, write_private
from foldmark.model.values import encode

from .text import escape_json, harmless_line, harmless_text, number, percent, plain

Cell = RenderableType | int
Row = Sequence[Cell]

QUIET = "dim"
STANDARD_OUTPUT = "-"
FORCE = ("--force", "Overwrite an existing file.")
_TIGHT, _FULL = 0.75, 1.0
_BAR_TRACK = "grey23"
# Columns that shrink in narrow terminals, with their shares of the remaining width.
_CUT = {"about": 2, "title": 2}
_WRAPPED = {"reason": 3, "snippet": 3}
_NUMBERS = frozenset({"tokens", "outputs", "messages", "size", "pivots", "pruned", "operation"})
_STYLES = {"handle": "cyan", "id": "cyan", "format": QUIET, "reason": QUIET, "when": QUIET}
_STATES = {
    "pruned": "yellow",
    "summarized": "magenta",
    "reverted": "red",
    "undone": QUIET,
    "answered": "green",
    "open": "bold yellow",
    "new": "green",
    "grown": "yellow",
    "added": "green",
    "deleted": "red",
}
# Words for users in place of the words of the code and of --json.
USER_WORDS = {"folded": "summarized", "pivot": "compaction"}
_NAME_COLUMNS = frozenset({"what", "tool"})
_LONGEST_NAME, _LONGEST_QUOTE = 16, 400


def terminal_console() -> Console:
    """A console on standard output that interprets no markup."""
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def show(*pieces: RenderableType, commands: Sequence[str] = ()) -> None:
    """Print pieces below each other, then commands to copy, which are never wrapped."""
    console = terminal_console()
    for piece in pieces:
        console.print()
        console.print(piece)
    for command in commands:
        console.print(Text(f"  {command}", style="bold"), soft_wrap=True)
    console.print()


def answer(value: Any, *pieces: RenderableType, json: bool) -> None:
    """Print a command's result as one JSON object or as pieces for people."""
    if json:
        show_json(value)
    else:
        show(*pieces)


def show_json(value: Any) -> None:
    """Print one JSON object, indented on a terminal."""
    data = encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    sys.stdout.write(escape_json(data.decode()) + "\n")


# --- files and raw output ------------------------------------------------------------------


def write_text(data: bytes) -> None:
    """Print text unchanged, or without control sequences on a terminal."""
    if sys.stdout.isatty():
        data = harmless_text(data.decode().expandtabs(4)).encode("utf-8", "replace")
    write_bytes(data)


def write_json(data: bytes) -> None:
    """Print JSON unchanged, or with control characters escaped on a terminal."""
    if sys.stdout.isatty():
        data = escape_json(data.decode()).encode()
    write_bytes(data + b"\n")


def write_bytes(data: bytes) -> None:
    """Print bytes unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_file(path: str, data: bytes) -> None:
    """Write a private file. Raises BadInput with its path if that fails."""
    try:
        write_private(path, data)
    except (OSError, ValueError) as error:
        raise write_error(path, error) from None


def write_error(path: str, error: Exception) -> BadInput:
    """The error for a file that cannot be written, with the cause."""
    cause = getattr(error, "strerror", None) or error
    return BadInput(f"cannot be written: {cause}; choose another file", source=printable(path))


def check_output(path: str, *, force: bool) -> None:
    """Raises BadInput if the output file is a folder, or exists without `force`."""
    if Path(path).is_dir():
        raise BadInput("this is a folder; give the path of a file", source=printable(path))
    if not force and os.path.lexists(path):
        cause = "the file exists already; give another path, or --force to overwrite it"
        raise BadInput(cause, source=printable(path))


# --- pieces --------------------------------------------------------------------------------


def safe_text(text: str, style: str = "", *, limit: int = 200) -> Text:
    """One line of untrusted text without control sequences."""
    return Text(plain(text, limit=limit), style=style)


class AboutCell:
    """The subject of a tool call, cropped to its column: paths at the start, others at the end."""

    def __init__(self, text: str) -> None:
        """Store untrusted text without its control sequences."""
        self._text = plain(text)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """From one character to the whole text."""
        return Measurement(1, max(1, min(cell_len(self._text), options.max_width)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The text on one line."""
        text, width = self._text, options.max_width
        if cell_len(text) > width and "/" in text and " " not in text:
            while text and cell_len(text) >= width:
                text = text[1:]
            text = f"…{text}"
        yield Text(text, no_wrap=True, overflow="ellipsis")


def count(tokens: int, style: str = "") -> Text:
    """A number, aligned on the right."""
    return Text(f"{tokens:,}", style=style, justify="right")


def section(title: str, *pieces: RenderableType, note: str = "") -> Group:
    """Pieces under a title, with an optional explanation."""
    head = [Text(title, style="bold")]
    if note:
        head.append(Text(note, style=QUIET))
    return Group(*head, *(Padding(piece, (0, 0, 0, 2)) for piece in pieces))


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Two columns: names and values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, safe_text(value) if isinstance(value, str) else value)
    return table


def report_head(title: str, rows: Iterable[tuple[str, RenderableType]]) -> Group:
    """The title of a session and facts about it, at the top of a report."""
    return Group(safe_text(title or "(no title)", "bold"), facts(rows))


def listing(columns: str, rows: Iterable[Row]) -> Table:
    """A table with headings: `listing("handle about tokens", rows)`.

    Text and numbers are formatted by column; other cells are printed unchanged. Text columns share
    the remaining width. An underscore stands for a space, or for no heading if it is alone.
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
    value = USER_WORDS.get(value, value) if column in ("state", "kind") else value
    if column in _CUT:
        return AboutCell(value)
    limit = _LONGEST_NAME if column in _NAME_COLUMNS else 200
    return safe_text(value, _STYLES.get(column) or _STATES.get(value, ""), limit=limit)


def quote_lines(text: str, limit: int) -> Iterator[RenderableType]:
    """The first lines of an untrusted text, each cropped to one line of the terminal."""
    lines = text.splitlines()
    for line in lines[:limit]:
        yield _quote(harmless_line(line[:_LONGEST_QUOTE]))
    if len(lines) > limit:
        yield _quote(f"… {number(len(lines) - limit, 'line')} more")


def _quote(line: str) -> Text:
    text = Text.assemble(("│ ", "cyan"), (line, QUIET))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def labeled(value: object, names: Mapping[str, tuple[str, str]]) -> list[tuple[str, int, str]]:
    """The nonzero fields of a value with their labels and colors, as rows for `bars`."""
    rows = ((label, int(getattr(value, name)), color) for name, (label, color) in names.items())
    return [row for row in rows if row[1]]


def bars(rows: Iterable[tuple[str, int, str]], whole: int) -> Table:
    """Names, tokens and their shares of a whole as colored bars."""
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, min_width=5)
    for name, tokens, color in rows:
        share = Text(percent(tokens, whole), style=QUIET)
        table.add_row(safe_text(name), bar(tokens, whole, color), count(tokens), share)
    return table


def bar(part: float, whole: float, color: str) -> ProgressBar:
    """A bar for a share of a whole, as wide as its column."""
    return ProgressBar(
        total=max(1.0, whole),
        completed=min(part, whole),
        style=_BAR_TRACK,
        complete_style=color,
        finished_style=color,
    )


def gauge(pressure: float) -> Table:
    """A bar and a percentage that show how full a window is."""
    color = pressure_color(pressure)
    label = Column(no_wrap=True, justify="right", style=f"bold {color}")
    table = Table.grid(Column(ratio=1), label, padding=(0, 1), expand=True)
    table.add_row(bar(pressure, 1, color), pressure_text(pressure))
    return table


def pressure_text(pressure: float) -> str:
    """Used ÷ usable as a percentage."""
    return percent(pressure, 1) if isfinite(pressure) else "no space at all"


def pressure_color(pressure: float) -> str:
    """Green, yellow or red, by how full the window is."""
    if pressure >= _FULL:
        return "red"
    return "yellow" if pressure >= _TIGHT else "green"
