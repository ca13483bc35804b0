"""Draw the demo's chart for the README: docs/assets/demo-light.svg and demo-dark.svg.

    .venv/bin/python scripts/demo_chart.py

The curves come from the demonstration itself, so they are what `make demo` shows.
"""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from foldmark.demo.demonstration import WINDOW, DemoReport, demonstrate, sample

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
WIDTH, HEIGHT = 760, 330
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 44, 50
TICK = 10_000  # tokens between two lines of the grid


class Colors(NamedTuple):
    """The colors of one theme."""

    text: str
    grid: str
    log: str
    view: str
    window: str


THEMES = {
    "light": Colors("#1f2328", "#d8dee4", "#8c959f", "#0f766e", "#b42318"),
    "dark": Colors("#e6edf3", "#30363d", "#8b949e", "#2dd4bf", "#ff7b72"),
}


def report() -> DemoReport:
    """What the demonstration measures."""
    with tempfile.TemporaryDirectory() as folder:
        return demonstrate(sample(), Path(folder) / "demo.db")


def chart(report: DemoReport, colors: Colors) -> str:
    """The chart as SVG: the whole log, what the model sees, and where the view was made smaller."""
    top = max(point.log for point in report.points) * 1.05

    def x(message: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * message / report.messages

    def y(tokens: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * tokens / top

    log = _points((x(point.message), y(point.log)) for point in report.points)
    view = _points((x(point.message), y(point.view)) for point in report.points)
    base = f"{x(report.messages):.1f},{y(0):.1f} {x(1):.1f},{y(0):.1f}"
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="Tokens of the whole session and of the view that the model sees" '
            f'font-family="system-ui, sans-serif" font-size="13" fill="{colors.text}">'
        )
    ]
    lines += [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tokens):.1f}" y2="{y(tokens):.1f}" '
        f'stroke="{colors.grid}"/><text x="{LEFT - 8}" y="{y(tokens) + 4:.1f}" '
        f'text-anchor="end">{tokens // 1000}k</text>'
        for tokens in range(0, int(top), TICK)
    ]
    lines += [
        f'<polygon points="{view} {base}" fill="{colors.view}" fill-opacity="0.25"/>',
        f'<polyline points="{view}" fill="none" stroke="{colors.view}" stroke-width="2"/>',
        (
            f'<polyline points="{log}" fill="none" stroke="{colors.log}" stroke-width="2" '
            f'stroke-dasharray="5 4"/>'
        ),
        (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(WINDOW):.1f}" y2="{y(WINDOW):.1f}" '
            f'stroke="{colors.window}"/>'
        ),
        (
            f'<text x="{LEFT + 6}" y="{y(WINDOW) - 6:.1f}" fill="{colors.window}">'
            f"context window: {WINDOW // 1000}k tokens</text>"
        ),
        (
            f'<text x="{LEFT}" y="20" font-weight="600">A recorded session of {report.messages} '
            f"messages: the whole session (dashed) and what the model sees</text>"
        ),
    ]
    for operation in report.acts:
        label = "old outputs hidden" if operation.kind == "prune" else "older messages summarized"
        at, anchor = x(operation.place), "end" if operation.kind == "prune" else "start"
        lines.append(
            f'<path d="M{at:.1f} {y(0) + 4:.1f} l5 9 h-10 z" fill="{colors.view}"/>'
            f'<text x="{at:.1f}" y="{y(0) + 28:.1f}" text-anchor="{anchor}">{label}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def main() -> None:
    """Write the chart in both themes."""
    measured = report()
    for theme, colors in THEMES.items():
        (ASSETS / f"demo-{theme}.svg").write_text(chart(measured, colors), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
