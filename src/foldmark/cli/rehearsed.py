"""What a policy would have done with a session, in sentences."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.replay import Rehearsal, SimulatedStep
from foldmark.tokens.budget import pressure

from .tables import facts, pressure_colour, pressure_text, section, words
from .text import number


def rehearsed_section(held: Rehearsal, which: str) -> RenderableType:
    """What would have been done, when, and what that leaves to be sent."""
    title = f"What the policy {held.policy} would have done with {which}"
    beside = f", and {held.fixed:,} in each request beside the view" if held.fixed else ""
    note = f"an estimate, with summaries of {held.summary:,} tokens{beside}"
    return section(title, facts(_rows(held)), note=note)


def _rows(held: Rehearsal) -> Iterator[tuple[str, RenderableType]]:
    yield "window", words(_window(held))
    for name, deed, times in (
        ("prune", held.first_prune, held.prunes),
        ("compact", held.first_compaction, held.compactions),
    ):
        yield name, Text("never") if deed is None else _first(deed, times)
    full = pressure(held.peak, held.usable) if held.window else 0.0
    share = f" ({pressure_text(full)} of what is usable)" if held.window else ""
    largest = f"{number(held.peak, 'token')}{share}, for message {held.peak_message:,}"
    yield "largest request", Text(largest, style=pressure_colour(full))
    if held.stuck is not None:
        gone = f"From message {held.stuck:,} on nothing helps: the window is too small."
        yield "", Text(gone, style="bold red")


def _window(held: Rehearsal) -> str:
    if not held.window:
        return f"without limit ({held.model})"
    named = f", {held.model}" if held.model else ""
    return f"{number(held.window, 'token')}, {held.usable:,} of them usable{named}"


def _first(deed: SimulatedStep, times: int) -> Text:
    what = (
        number(deed.outputs, "output") if deed.kind == "prune" else number(deed.messages, "message")
    )
    when = "once, " if times == 1 else f"{times:,} times, first "
    return Text(
        f"{when}before message {deed.message:,}: {what}, from {deed.before:,} to {deed.after:,}"
    )
