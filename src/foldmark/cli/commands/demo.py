"""`foldmark demo`: the whole story, on a recorded session of a coding agent."""

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict
from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.history import sampled
from foldmark.demo.demonstration import MODEL, WINDOW, DemoReport, demonstrate, sample
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
    about = (
        f"A coding agent fixes a web service: {number(report.messages, 'message')}, "
        f"{number(report.tokens, 'token')}. The window has {WINDOW:,}, {report.usable:,} of them "
        "usable."
    )
    pivots, prunes = (
        [act.place for act in report.acts if act.kind == kind] for kind in ("pivot", "prune")
    )
    plot = GrowthPlot(report.points, pivots=pivots, prunes=prunes)
    yield section("1. The session grows, what the model is shown does not", Text(about), plot)
    full = pressure_text(pressure(report.largest, report.usable))
    largest = Text(f"The largest request filled {full} of what is usable.")
    title = "2. Old outputs are pruned; if that is not enough, the older part is folded"
    yield section(title, operations_table(report.acts), largest)
    rule = f"The user's rule of message 1, “{report.constraint}”,"
    kept = _verdict(f"{rule} is still shown word for word.", f"{rule} was LOST.", report.survived)
    summary = quoted(report.summary, _SUMMARY_LINES)
    yield section("3. The user's words survive; the summary begins so", kept, *summary)
    if (check := report.undo) is not None:
        exact = "Undo gives the very view of before, byte for byte."
        hashes = facts((name, Text(digest)) for name, digest in asdict(check).items())
        verdict = _verdict(exact, "They differ!", check.is_exact)
        note = "the hash of what the model is shown"
        yield section("4. It can be undone", verdict, hashes, note=note)
    all_messages = f"All {report.messages:,} messages are in the log,"
    pieces: list[RenderableType] = [
        _verdict(f"{all_messages} unchanged.", f"{all_messages} CHANGED.", report.unchanged)
    ]
    if (recall := report.recall) is not None:
        pieces.append(Text.assemble("The model sees: ", words(recall.shown, "yellow")))
        pieces.append(Text(f"The handle {recall.handle} recalls:"))
        pieces += quoted(recall.recalled, _RECALLED_LINES)
    yield section("5. Nothing is lost", *pieces)


def _verdict(good: str, bad: str, is_good: object) -> Text:
    return Text(good, "green") if is_good else Text(bad, "bold red")


def _commands(path: Path, store: Path, report: DemoReport) -> list[str]:
    file, place = shlex.quote(str(path)), shlex.quote(str(store))
    recall = [f"recall latest {report.recall.handle}"] if report.recall else []
    return [
        *(f"foldmark {command.format(file)}" for command in _ON_THE_FILE),
        *(f"foldmark {command} --store {place}" for command in (*_ON_THE_STORE, *recall)),
    ]
