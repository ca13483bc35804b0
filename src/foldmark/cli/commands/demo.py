"""`foldmark demo`: the whole story, on a recorded session of a coding agent."""

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict
from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.history import sampled
from foldmark.demo.demonstration import MODEL, WINDOW, DemoReport, UndoCheck, demonstrate, sample
from foldmark.files import write_private
from foldmark.model.values import encode
from foldmark.tokens.budget import pressure

from ..layout import facts, pressure_text, quoted, section, show, show_json, words
from ..options import AsJson
from ..plot import GrowthPlot
from ..text import number
from .show import operations_table

_SUMMARY_LINES, _RECALLED_LINES = 14, 4
_ON_THE_FILE = ("inspect {}", "plan {} --window 32000", "compact {} --window 32000")
_ON_THE_STORE = ("show latest", "search latest keyset", "undo latest")


def demo(*, json: AsJson = False) -> None:
    """Let a recorded session outgrow a small window, and show how it is compacted and undone.

    No model is asked and nothing is sent anywhere. The session stays in a private folder, as a
    file and in a store, so that the other commands can be tried on it.

    Example: foldmark demo
    """
    transcript = sample()
    path = Path(tempfile.mkdtemp(prefix="foldmark-demo-")) / "session.json"
    store = path.with_name("agent.db")
    write_private(path, encode(transcript))
    report = demonstrate(transcript, store)
    if json:
        figures = asdict(report) | {"points": sampled(list(report.points))}
        show_json({"path": str(path), "store": str(store), "model": MODEL, **figures})
        return
    title = Text("Try it yourself", style="bold")
    show(*_story(report), title, commands=_commands(path, store, report))


def _story(report: DemoReport) -> Iterator[RenderableType]:
    yield _growth(report)
    yield _operations(report)
    yield _constraint(report)
    if report.undo is not None:
        yield _undo(report.undo)
    yield _recall(report)


def _growth(report: DemoReport) -> RenderableType:
    about = (
        f"A coding agent fixes a web service: {number(report.messages, 'message')}, "
        f"{number(report.tokens, 'token')}. The window has {WINDOW:,}, {report.usable:,} of them "
        "usable."
    )
    acts = {kind: [act.place for act in report.acts if act.kind == kind] for kind in _KINDS}
    plot = GrowthPlot(report.points, pivots=acts["pivot"], prunes=acts["prune"])
    return section("1. The session grows, what the model is shown does not", Text(about), plot)


_KINDS = ("prune", "pivot")


def _operations(report: DemoReport) -> RenderableType:
    full = pressure(report.largest, report.usable)
    largest = f"The largest request filled {pressure_text(full)} of what is usable."
    title = "2. Old outputs are pruned; if that is not enough, the older part is folded"
    return section(title, operations_table(report.acts), Text(largest))


def _constraint(report: DemoReport) -> RenderableType:
    verdict = "is still shown word for word" if report.survived else "was LOST"
    text = f"The user's rule of message 1, “{report.constraint}”, {verdict}."
    style = "green" if report.survived else "bold red"
    pieces = quoted(report.summary, _SUMMARY_LINES)
    return section("3. The user's words survive; the summary begins so", Text(text, style), *pieces)


def _undo(check: UndoCheck) -> RenderableType:
    exact = check.is_exact
    verdict = "Undo gives the very view of before, byte for byte." if exact else "They differ!"
    rows = ((name, Text(digest)) for name, digest in asdict(check).items())
    note = "the hash of what the model is shown"
    style = "green" if exact else "bold red"
    return section("4. It can be undone", Text(verdict, style=style), facts(rows), note=note)


def _recall(report: DemoReport) -> RenderableType:
    state = "unchanged" if report.unchanged else "CHANGED"
    text = f"All {report.messages:,} messages are in the log, {state}."
    pieces: list[RenderableType] = [Text(text, style="green" if report.unchanged else "bold red")]
    if (recall := report.recall) is not None:
        pieces.append(Text.assemble("The model sees: ", words(recall.shown, "yellow")))
        pieces.append(Text(f"The handle {recall.handle} recalls:"))
        pieces += quoted(recall.recalled, _RECALLED_LINES)
    return section("5. Nothing is lost", *pieces)


def _commands(path: Path, store: Path, report: DemoReport) -> list[str]:
    file, place = shlex.quote(str(path)), shlex.quote(str(store))
    recall = [f"recall latest {report.recall.handle}"] if report.recall else []
    return [
        *(f"foldmark {command.format(file)}" for command in _ON_THE_FILE),
        *(f"foldmark {command} --store {place}" for command in (*_ON_THE_STORE, *recall)),
    ]
