"""`foldmark demo`: the main job, on a session made on the spot."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from foldmark.inspection import inspection
from foldmark.io.files import write_private
from foldmark.io.store import Store
from foldmark.lab.generate import generate
from foldmark.limits import model_limits
from foldmark.log import Log
from foldmark.messages import Transcript, encode_transcript
from foldmark.presets import FOLDMARK
from foldmark.session.opening import open as open_session
from foldmark.tokens import counter

from .demonstration import SUMMARY, Demonstration, Example, Figures, Kept, Outcome
from .inspect import overview
from .options import AsJson
from .plan import planned
from .planned import fill, prune_sections
from .tables import QUIET, pressure_colour, section, show, show_json, words
from .text import harmless_line, number

EXAMPLE = "Example: foldmark demo --seed 11"
MODEL, MESSAGES, OUTPUT_CHARS = "anthropic:claude-sonnet-4-5", 900, 2_500
_ON_THE_STORE = ("show latest", "search latest wheel", "undo latest", "sessions")
_ROWS, _RECALLED_LINES, _LONGEST_LINE = 5, 3, 200

Seed = Annotated[int, typer.Option("--seed", help="Another number makes another session.")]


def demo(*, seed: Seed = 7, json: AsJson = False) -> None:
    """Make a session that is too long for its model, and show how it is made to fit.

    No model is asked and nothing is sent anywhere. The session stays in a private folder, as a
    file and in a store, so that the other commands can be tried on it.
    """
    limit = model_limits(MODEL)
    transcript = generate(
        seed, messages=MESSAGES, output_chars=OUTPUT_CHARS, model=MODEL, window=limit.context
    )
    path = _stored(transcript)
    made = Demonstration(transcript, limit)
    if json:
        outcome = msgspec.structs.asdict(made.outcome())
        store = _kept(transcript, path.with_name("agent.db"))
        show_json({"path": str(path), "store": str(store), "seed": seed, "model": MODEL, **outcome})
    else:
        pieces = [*_opening(made, transcript), *_closing(made.outcome())]
        store = _kept(transcript, path.with_name("agent.db"))
        commands = [f"foldmark {command} {path}" for command in ("inspect", "plan")]
        commands += [f"foldmark {command} --store {store}" for command in _ON_THE_STORE]
        show(*pieces, commands=commands)


def _stored(transcript: Transcript) -> Path:
    """The session as a file, in a folder that only this user may enter."""
    path = Path(tempfile.mkdtemp(prefix="foldmark-demo-")) / "session.json"
    write_private(path, encode_transcript(transcript))
    return path


def _kept(transcript: Transcript, path: Path) -> Path:
    """The same session in a store, pruned and compacted there."""
    with Store.open(path) as store:
        log = Log(counter(FOLDMARK.estimate), transcript.messages)
        store.fill(transcript.info, log, estimate=FOLDMARK.estimate, extra=transcript.extra)
    with open_session(path, session="latest", model=MODEL) as session:
        session.prune()
        session.compact(SUMMARY)
    return path


def _opening(made: Demonstration, transcript: Transcript) -> list[RenderableType]:
    """Where the tokens are, and what the plan says; built at once, for the session will change."""
    found = inspection(made.viewer, transcript.info)
    plan = planned(made.viewer, made.limit, transcript.info, model=made.model)
    return [*overview(found, FOLDMARK.name), fill(plan), *prune_sections(plan, _ROWS)]


def _closing(outcome: Outcome) -> Iterator[RenderableType]:
    """What carrying the plan out came to, and how to go on."""
    yield section(
        "Now the plan is carried out",
        _comparison(outcome),
        _unchanged(outcome.log.before, outcome.log.after),
    )
    recalled = [piece for example in outcome.examples for piece in (_recalled(example), Text())]
    yield section("In place of two pruned outputs, and what their handles recall", *recalled[:-1])
    yield Text("Try it yourself", style="bold")


def _comparison(outcome: Outcome) -> Table:
    steps = {"before": outcome.before, "pruned": outcome.after_prune}
    if outcome.compacted:
        steps["compacted"] = outcome.after
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style=QUIET)
    table.add_column()
    for name in steps:
        table.add_column(name, justify="right")
    shown = list(steps.values())
    table.add_row("messages in view", *(Text(f"{held.messages:,}") for held in shown))
    table.add_row("tokens", *(Text(f"{held.tokens:,}", _colour(held)) for held in shown))
    table.add_row("pressure", *(Text(f"{held.pressure:.0%}", _colour(held)) for held in shown))
    table.add_row("pruned outputs", *(Text(f"{held.pruned:,}") for held in shown))
    table.add_row("folded messages", *(Text(f"{held.folded:,}") for held in shown))
    return table


def _colour(held: Figures) -> str:
    return f"bold {pressure_colour(held.pressure)}"


def _unchanged(before: Kept, after: Kept) -> RenderableType:
    added = after.messages - before.messages
    more = f", and {added} were added: the marker and its summary" if added else ""
    same = "unchanged" if before.hash == after.hash else "CHANGED"
    return Group(
        Text(),
        Text(f"Nothing in the log changed: its {before.messages:,} messages are all there{more}."),
        Text(f"their hash: {before.hash} → {after.hash} ({same})", style=QUIET),
    )


def _recalled(example: Example) -> RenderableType:
    lines = example.recalled.splitlines()
    rest = len(lines) - _RECALLED_LINES
    shown = [_quoted(line) for line in lines[:_RECALLED_LINES]]
    if rest > 0:
        shown.append(_quoted(f"… {number(rest, 'line')} more"))
    return Group(words(example.placeholder, "yellow"), *shown)


def _quoted(line: str) -> Text:
    text = Text.assemble(("  │ ", "cyan"), (harmless_line(line[:_LONGEST_LINE]), QUIET))
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
