"""A plot of a session's growth for terminals: a line above an area, drawn with characters.

Braille where the terminal has it, four rows and two columns of dots to a character; letters of
ASCII where it has not. Line and area can be told apart without colours.
"""

from collections.abc import Iterator, Sequence
from math import floor, log10

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from foldmark.analysis.history import Point

from .layout import QUIET

HEIGHT, _WIDEST, _NARROWEST, _TICKS = 12, 100, 8, 4
_COLOURS = {
    "line": "blue", "area": "green", "both": "cyan", "pivot": "magenta", "prune": "yellow",
}  # fmt: skip
_DONE = {"prune": "pruned", "pivot": "compacted"}
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
# What is drawn where: by its name, in Unicode and in ASCII.
_SIGNS = {
    "line": ("⠒⠒", "**"), "area": ("⣿⣿", "##"), "pivot": ("▲", "^"), "prune": ("△", "'"),
    "tick": ("┤", "+"), "side": ("│", "|"), "corner": ("└", "+"), "floor": ("─", "-"),
}  # fmt: skip


class GrowthPlot:
    """The whole log as a line, what the model saw as an area, and where that was made smaller."""

    def __init__(
        self, points: Sequence[Point], *, pivots: Sequence[int] = (), prunes: Sequence[int] = ()
    ) -> None:
        """Take one point at least, and the numbers of the messages at which tokens were hidden."""
        self._points = points
        self._hidden = {"prune": prunes, "pivot": pivots}  # the second is drawn over the first
        self._top = max(1, *(max(point.log, point.view) for point in points))
        self._last = points[-1].message

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The legend, the plot, the axes."""
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
        shown = [
            ("line", f"whole log: {thousands(now.log)}"),
            ("area", f"the model saw: {thousands(now.view)}"),
            *((sign, _DONE[sign]) for sign, messages in self._hidden.items() if messages),
        ]
        pieces = (Text.assemble((signs[sign], _COLOURS[sign]), f" {told}") for sign, told in shown)
        return Columns(pieces, padding=(0, 3))

    def _ticks(self) -> Iterator[tuple[int, str]]:
        """Round numbers at the side, by their rows."""
        step = _round_step(self._top / _TICKS)
        for number in range(int(self._top / step), -1, -1):
            yield HEIGHT - 1 - self._height(number * step, HEIGHT), thousands(number * step)

    def _height(self, tokens: float, dots: int) -> int:
        return floor(tokens / self._top * (dots - 1) + 0.5)

    def _cells(self, width: int, across: int, down: int) -> Iterator[Text]:
        """The rows of the plot, from the top, each character so many dots across and down."""
        logs, views = self._columns(width * across)
        ends = [self._height(tokens, HEIGHT * down) for tokens in logs]
        line = [(min(pair), pair[1]) for pair in zip([ends[0], *ends], ends, strict=False)]
        area = [(0, self._height(seen, HEIGHT * down) if seen else -1) for seen in views]
        for low in range((HEIGHT - 1) * down, -1, -down):
            text = Text()
            for x in range(0, width * across, across):
                drawn = [_bits(spans[x : x + across], low, down) for spans in (line, area)]
                text.append(*_character(*drawn, ascii_only=down == 1))
            yield text

    def _columns(self, dots: int) -> tuple[list[int], list[int]]:
        """The tokens of log and view at each dot of the width: the most that came with it."""
        held: list[list[Point]] = [[] for _ in range(dots)]
        for point in self._points:
            held[self._place(point.message, dots)].append(point)
        last = [self._points[0]]
        for place, points in enumerate(held):
            last = held[place] = points or last[-1:]
        logs = [max(point.log for point in points) for points in held]
        return logs, [max(point.view for point in points) for points in held]

    def _place(self, message: int, dots: int) -> int:
        """Where on the width a message stands."""
        share = (min(message, self._last) - 1) / max(1, self._last - 1)
        return max(0, floor(share * (dots - 1) + 0.5))

    def _floor(self, signs: dict[str, str], margin: int, width: int) -> Text:
        drawn = [(signs["floor"], QUIET)] * width
        for sign, messages in self._hidden.items():
            for message in messages:
                drawn[self._place(message, width)] = (signs[sign], _COLOURS[sign])
        return Text.assemble((" " * margin + signs["corner"], QUIET), *drawn)

    def _numbers(self, width: int) -> str:
        """The numbers of messages below the plot."""
        row, middle, last = "message 1", f"{(self._last + 1) // 2:,}", f"{self._last:,}"
        if self._last == 1 or len(row) + len(last) >= width:
            return row[:width]
        before = (width - len(middle)) // 2
        if self._last > 2 and len(row) < before < width - len(middle) - len(last):
            row = row.ljust(before) + middle
        return row + last.rjust(width - len(row))


def thousands(tokens: float) -> str:
    """Tokens in thousands, with one decimal where that matters."""
    if tokens < 10_000:
        return f"{tokens / 1000:.1f}k".replace(".0k", "k") if tokens else "0"
    return f"{tokens / 1000:,.0f}k"


def _round_step(least: float) -> float:
    """The next of 1, 2 or 5 times a power of ten; never less than a tenth of a thousand."""
    power = 10.0 ** floor(log10(max(least, 1)))
    return max(100, next(times * power for times in (1, 2, 5, 10) if times * power >= least))


def _bits(spans: Sequence[tuple[int, int]], low: int, down: int) -> int:
    """The dots of a character, its lowest at a height, that lie within the spans of its columns."""
    return sum(
        _BRAILLE[down - 1 - y][x]
        for x, (start, end) in enumerate(spans)
        for y in range(down)
        if start <= low + y <= end
    )


def _character(line: int, area: int, *, ascii_only: bool) -> tuple[str, str]:
    if not line and not area:
        return " ", ""
    drawn = ("*" if line else "#") if ascii_only else chr(0x2800 + (line | area))
    return drawn, _COLOURS["both" if line and area else "line" if line else "area"]
