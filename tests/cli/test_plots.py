from io import BytesIO, TextIOWrapper

import pytest
from rich.cells import cell_len
from rich.console import Console

from foldmark.analysis.history import Point
from foldmark.cli.plot import HEIGHT, GrowthPlot, thousands

COLOURS = {"blue": "\x1b[34m", "green": "\x1b[32m", "magenta": "\x1b[35m"}


def climb(messages: int, *, folded_at: int = 0) -> list[Point]:
    """A log that grows by a thousand tokens a message, folded once."""
    return [
        Point(message=n, log=1_000 * n, view=1_000 * (n - folded_at if n > folded_at else n))
        for n in range(1, messages + 1)
    ]


class Stream(TextIOWrapper):
    """A terminal that knows this encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__(BytesIO(), encoding=encoding)


def drawn(plot: GrowthPlot, width: int, *, colours: bool = False, encoding: str = "utf-8") -> str:
    system = "standard" if colours else None
    console = Console(
        file=Stream(encoding), width=width, force_terminal=colours, color_system=system
    )
    with console.capture() as captured:
        console.print(plot)
    return captured.get()


@pytest.mark.parametrize("width", [12, 20, 50, 80, 120, 300])
@pytest.mark.parametrize("messages", [1, 2, 3, 40, 5_000])
def test_a_plot_fits_its_terminal_whatever_it_shows(width: int, messages: int):
    plot = GrowthPlot(climb(messages, folded_at=messages // 2), pivots=[messages // 2 + 1])
    lines = drawn(plot, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert sum("│" in line or "┤" in line for line in lines) == HEIGHT


def test_the_axes_name_round_thousands_and_the_numbers_of_messages():
    lines = drawn(GrowthPlot(climb(200)), 80).splitlines()
    labels = [line.partition("┤")[0].strip() for line in lines if "┤" in line]
    assert labels == ["200k", "150k", "100k", "50k", "0"]
    assert lines[-1].split() == ["message", "1", "100", "200"]


def test_an_ascii_terminal_gets_ascii_only():
    plot = GrowthPlot(climb(60, folded_at=30), pivots=[31], prunes=[20])
    output = drawn(plot, 80, encoding="ascii")
    assert output.isascii()
    floor = next(line for line in output.splitlines() if line.lstrip().startswith("+--"))
    assert floor.index("'") < floor.index("^")


def test_a_compaction_is_marked_where_the_area_falls():
    lines = drawn(GrowthPlot(climb(60, folded_at=40), pivots=[41]), 80, encoding="ascii")
    rows = [line.partition("|")[2] for line in lines.splitlines() if "|" in line]
    floor = next(line for line in lines.splitlines() if "^" in line and "-" in line)
    fall = floor.index("^") - floor.index("+") - 1
    highest = next(row for row in rows if "#" in row)
    assert abs(len(highest[: highest.rindex("#")]) - fall) <= 2
    # The line of the log goes on where the area has fallen.
    assert rows[0].rstrip().endswith("*")
    assert "*" not in rows[0][:fall]


def test_line_area_and_marks_have_different_colors():
    plot = GrowthPlot(climb(60, folded_at=30), pivots=[31])
    output = drawn(plot, 80, colours=True)
    for escape in COLOURS.values():
        assert escape in output
    assert "\x1b" not in drawn(plot, 80)


def test_an_empty_view_has_no_area():
    points = [Point(message=n, log=1_000, view=0) for n in (1, 2, 3)]
    assert "#" not in drawn(GrowthPlot(points), 60, encoding="ascii").partition("\n")[2]
    nothing = [Point(message=n, log=0, view=0) for n in (1, 2, 3)]
    assert drawn(GrowthPlot(nothing), 60)


@pytest.mark.parametrize(
    ("tokens", "result"),
    [(0, "0"), (100, "0.1k"), (2_000, "2k"), (5_617, "5.6k"), (12_345, "12k"), (2e6, "2,000k")],
)
def test_tokens_are_shown_in_thousands(tokens: float, result: str):
    assert thousands(tokens) == result
