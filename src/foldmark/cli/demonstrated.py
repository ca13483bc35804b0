"""What became of the session of `foldmark demo`, told step by step."""

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .compacted import quoted
from .demonstration import Deed, Example, Hidden, Outcome, full
from .plots import GrowthPlot
from .tables import (
    QUIET,
    About,
    Row,
    count,
    facts,
    listing,
    pressure_colour,
    pressure_text,
    section,
    words,
)
from .text import number, within

_DIGEST_LINES, _RECALLED_LINES = 16, 3
_NAMES = {"prune": "pruned", "pivot": "compacted"}


def story(found: Outcome, *, model: str, window: int, folder: str) -> Iterator[RenderableType]:
    """All steps, each of them a section."""
    yield _growth(found, model, window)
    yield from _prune(found, folder)
    yield from _pivot(found)
    yield _continuation(found)
    yield from _undo(found)
    yield _nothing_lost(found)


def _growth(found: Outcome, model: str, window: int) -> RenderableType:
    told = (
        f"A coding agent at work, made on the spot: {number(len(found.points), 'message')}, "
        f"{number(found.tokens, 'token')}. {model} has a window of {window:,}, "
        f"of which {found.usable:,} are usable."
    )
    plot = GrowthPlot(
        found.points,
        pivots=[deed.message for deed in found.deeds if deed.kind == "pivot"],
        prunes=[deed.message for deed in found.deeds if deed.kind == "prune"],
    )
    return section(
        "1. A session grows, and what the model is shown of it does not", Text(told), plot
    )


def _prune(found: Outcome, folder: str) -> Iterator[RenderableType]:
    deed = next((deed for deed in found.deeds if deed.kind == "prune"), None)
    if deed is None:
        return
    before, after = full(deed, found.usable)
    told = (
        f"Before message {deed.message:,} the view had {number(deed.before, 'token')} "
        f"({pressure_text(before)}). {number(deed.hidden, 'old tool output')} were hidden: "
        f"{deed.after:,} ({pressure_text(after)}). The largest of them, and why:"
    )
    rows = [_hidden_row(held, folder) for held in found.pruned]
    table = listing(("handle", "tool", "about", "tokens", "reason"), rows)
    yield section("2. Where the window is full, old outputs are pruned", Text(told), table)


def _hidden_row(held: Hidden, folder: str) -> Row:
    reason = held.reason.replace(held.about, "its file", 1) if held.about else held.reason
    return (
        Text(held.handle, style="cyan"),
        words(held.tool, most=16),
        About(within(held.about, folder)),
        count(held.tokens, "yellow"),
        words(reason, QUIET),
    )


def _pivot(found: Outcome) -> Iterator[RenderableType]:
    deed = next((deed for deed in found.deeds if deed.kind == "pivot"), None)
    if deed is None:
        return
    before, after = full(deed, found.usable)
    told = (
        f"Before message {deed.message:,} pruning could not free enough. "
        f"{number(deed.hidden, 'message')} were folded behind a digest of "
        f"{number(found.digest_tokens, 'token')}: from {deed.before:,} ({pressure_text(before)}) "
        f"to {deed.after:,} ({pressure_text(after)}). No model was asked; it begins so:"
    )
    title = "3. Where that is not enough, a pivot"
    yield section(title, Text(told), *quoted(found.digest, _DIGEST_LINES))


def _continuation(found: Outcome) -> RenderableType:
    verdict = "each one fitted" if found.largest < 1 else "it did NOT fit"
    told = (
        f"{number(found.after_pivot, 'message')} came after the first pivot. Of all "
        f"{number(found.requests, 'request')} to the model, the largest filled "
        f"{100 * found.largest:.1f} % of what is usable: {verdict}."
    )
    return section("4. The session goes on", Text(told), _deeds(found))


def _deeds(found: Outcome) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style=QUIET)
    table.add_column("before message", justify="right")
    table.add_column("was")
    table.add_column("hidden", justify="right")
    table.add_column("tokens", justify="right")
    table.add_column("of the window", justify="right")
    for deed in found.deeds:
        table.add_row(*_deed_row(deed, found.usable))
    return table


def _deed_row(deed: Deed, usable: int) -> Row:
    before, after = full(deed, usable)
    what = "output" if deed.kind == "prune" else "message"
    share = Text.assemble(
        (pressure_text(before), pressure_colour(before)),
        " → ",
        (pressure_text(after), f"bold {pressure_colour(after)}"),
    )
    return (
        count(deed.message),
        Text(_NAMES[deed.kind], style="yellow" if deed.kind == "prune" else "magenta"),
        Text(number(deed.hidden, what)),
        Text(f"{deed.before:,} → {deed.after:,}"),
        share,
    )


def _undo(found: Outcome) -> Iterator[RenderableType]:
    held = found.undo
    if held is None:
        return
    same = held.before == held.undone and held.compacted == held.redone
    rows = [
        ("before the pivot", held.before),
        ("compacted", held.compacted),
        ("undone", held.undone),
        ("done again", held.redone),
    ]
    verdict = "Undo gives the very view of before, byte for byte." if same else "They differ!"
    yield section(
        "5. It can be undone",
        Text(verdict, style="green" if same else "bold red"),
        facts((name, Text(shown)) for name, shown in rows),
        note="the hash of what the model is shown",
    )


def _nothing_lost(found: Outcome) -> RenderableType:
    log = found.log
    same = log.said == log.kept
    told = (
        f"All {log.messages:,} messages are in the log: their hash was {log.said} when they were "
        f"said, and is {log.kept} now ({'unchanged' if same else 'CHANGED'})."
    )
    recalled = [piece for example in found.examples for piece in _recalled(example)]
    colour = "green" if same else "bold red"
    return section("6. Nothing is lost", Text(told, style=colour), *recalled)


def _recalled(example: Example) -> Iterator[RenderableType]:
    yield Text()
    yield Text.assemble("The model sees: ", words(example.shown, "yellow"))
    yield Text(f"The handle {example.handle} recalls:")
    yield from quoted(example.recalled, _RECALLED_LINES)
