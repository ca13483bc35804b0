"""A plot of a session's growth for terminals: a line over an area, drawn with characters.

It uses Braille characters (four rows and two columns of dots each), or ASCII if the terminal
has no others. Line and area can be distinguished without colors.
"""

from collections.abc import Iterator, Sequence
from math import floor, log10

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from foldmark.analysis.history import Point

from .layout import QUIET

HEIGHT, _WIDEST, _NARROWEST, _TICKS = 12, 100, 8, 4
_COLORS = {
    "line": "blue", "area": "green", "both": "cyan", "pivot": "magenta", "prune": "yellow",
}  # fmt: skip
_LABELS = {"prune": "pruned", "pivot": "compacted"}
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
# The symbols of each element, in Unicode and in ASCII.
_SIGNS = {
    "line": ("⠒⠒", "**"), "area": ("⣿⣿", "##"), "pivot": ("▲", "^"), "prune": ("△", "'"),
    "tick": ("┤", "+"), "side": ("│", "|"), "corner": ("└", "+"), "floor": ("─", "-"),
}  # fmt: skip


class GrowthPlot:
    """The whole log as a line, the model's view as an area, and marks where the view shrank."""

    def __init__(
        self, points: Sequence[Point], *, pivots: Sequence[int] = (), prunes: Sequence[int] = ()
    ) -> None:
        """Set the points (at least one) and the numbers of the messages that were pruned at."""
        self._points = points
        self._hidden = {"prune": prunes, "pivot": pivots}  # pivots are drawn over prunes
        self._top = max(1, *(max(point.log, point.view) for point in points))
        self._last = points[-1].message

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The legend, the plot and the axes."""
        signs = {name: pair[options.ascii_only] for name, pair in _SIGNS.items()}
        yield self._legend(signs)
        ticks = dict(self._ticks())
        margin = max(map(len, ticks.values()))
        width = max(_NARROWEST, min(_WIDEST, options.max_width) - margin - 1)
        fine = (1, 1) if options.ascii_only else (2, 4)
        for row, cells in enumerate(self._cells(width, *fine)):
            side = signs["tick" if row in ticks else "side"]
            yield Text.assemble((f"{ticks.get(row, ''):>{margin}}{side}", QUIET), cells)
        yield self._floor(signs, margin, width)
        yield Text(" " * (margin + 1) + self._numbers(width), style=QUIET)

    def _legend(self, signs: dict[str, str]) -> Columns:
        now = self._points[-1]
        items = [
            ("line", f"whole log: {thousands(now.log)}"),
            ("area", f"the model saw: {thousands(now.view)}"),
            *((sign, _LABELS[sign]) for sign, messages in self._hidden.items() if messages),
        ]
        pieces = (Text.assemble((signs[sign], _COLORS[sign]), f" {text}") for sign, text in items)
        return Columns(pieces, padding=(0, 3))

    def _ticks(self) -> Iterator[tuple[int, str]]:
        """Round numbers for the vertical axis, by row."""
        step = _round_step(self._top / _TICKS)
        for number in range(int(self._top / step), -1, -1):
            yield HEIGHT - 1 - self._height(number * step, HEIGHT), thousands(number * step)

    def _height(self, tokens: float, dots: int) -> int:
        return floor(tokens / self._top * (dots - 1) + 0.5)

    def _cells(self, width: int, across: int, down: int) -> Iterator[Text]:
        """The rows of the plot from the top, with so many dots per character."""
        logs, views = self._columns(width * across)
        ends = [self._height(tokens, HEIGHT * down) for tokens in logs]
        line = [(min(pair), pair[1]) for pair in zip([ends[0], *ends], ends, strict=False)]
        area = [(0, self._height(view, HEIGHT * down) if view else -1) for view in views]
        for low in range((HEIGHT - 1) * down, -1, -down):
            text = Text()
            for x in range(0, width * across, across):
                dots = [_bits(spans[x : x + across], low, down) for spans in (line, area)]
                text.append(*_character(*dots, ascii_only=down == 1))
            yield text

    def _columns(self, dots: int) -> tuple[list[int], list[int]]:
        """The largest log and view, in tokens, for each dot of the width."""
        buckets: list[list[Point]] = [[] for _ in range(dots)]
        for point in self._points:
            buckets[self._column(point.message, dots)].append(point)
        last = [self._points[0]]
        for column, points in enumerate(buckets):
            last = buckets[column] = points or last[-1:]
        logs = [max(point.log for point in points) for points in buckets]
        return logs, [max(point.view for point in points) for points in buckets]

    def _column(self, message: int, dots: int) -> int:
        """The horizontal position of a message."""
        share = (min(message, self._last) - 1) / max(1, self._last - 1)
        return max(0, floor(share * (dots - 1) + 0.5))

    def _floor(self, signs: dict[str, str], margin: int, width: int) -> Text:
        cells = [(signs["floor"], QUIET)] * width
        for sign, messages in self._hidden.items():
            for message in messages:
                cells[self._column(message, width)] = (signs[sign], _COLORS[sign])
        return Text.assemble((" " * margin + signs["corner"], QUIET), *cells)

    def _numbers(self, width: int) -> str:
        """The numbers of messages on the horizontal axis."""
        row, middle, last = "message 1", f"{(self._last + 1) // 2:,}", f"{self._last:,}"
        if self._last == 1 or len(row) + len(last) >= width:
            return row[:width]
        before = (width - len(middle)) // 2
        if self._last > 2 and len(row) < before < width - len(middle) - len(last):
            row = row.ljust(before) + middle
        return row + last.rjust(width - len(row))


def thousands(tokens: float) -> str:
    """Tokens in thousands, with one decimal below ten thousand."""
    if tokens < 10_000:
        return f"{tokens / 1000:.1f}k".replace(".0k", "k") if tokens else "0"
    return f"{tokens / 1000:,.0f}k"


def _round_step(minimum: float) -> float:
    """The next 1, 2 or 5 times a power of ten, and at least 100."""
    power = 10.0 ** floor(log10(max(minimum, 1)))
    return max(100, next(times * power for times in (1, 2, 5, 10) if times * power >= minimum))


def _bits(spans: Sequence[tuple[int, int]], low: int, down: int) -> int:
    """The dots of one character that lie within the spans of its columns, as bits."""
    return sum(
        _BRAILLE[down - 1 - y][x]
        for x, (start, end) in enumerate(spans)
        for y in range(down)
        if start <= low + y <= end
    )


def _character(line: int, area: int, *, ascii_only: bool) -> tuple[str, str]:
    if not line and not area:
        return " ", ""
    character = ("*" if line else "#") if ascii_only else chr(0x2800 + (line | area))
    return character, _COLORS["both" if line and area else "line" if line else "area"]
