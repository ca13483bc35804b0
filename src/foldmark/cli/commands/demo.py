"""`foldmark demo`: prune, compact, undo and recall on a recorded session of a coding agent."""

import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import asdict
from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.history import sample_points
from foldmark.demo.demonstration import MODEL, WINDOW, DemoReport, demonstrate, sample
from foldmark.files import write_private
from foldmark.model.values import encode
from foldmark.tokens.budget import pressure

from ..layout import facts, pressure_text, quote_lines, safe_text, section, show, show_json
from ..options import AsJson
from ..plot import GrowthPlot
from ..text import number
from .show import operations_table

_SUMMARY_LINES, _RECALLED_LINES = 14, 4
_FILE_COMMANDS = ("inspect {}", "plan {} --window 32000", "compact {} --window 32000")
_STORE_COMMANDS = ("show latest", "search latest keyset", "undo latest")


def demo(*, json: AsJson = False) -> None:
    """Show on a recorded session how a small window overflows, and how compaction works.

    Calls no model and sends nothing. Leaves the session in a private folder, as a file and in a
    store, so that you can try the other commands on it.

    Example: foldmark demo
    """
    transcript = sample()
    path = Path(tempfile.mkdtemp(prefix="foldmark-demo-")) / "session.json"
    store = path.with_name("agent.db")
    write_private(path, encode(transcript))
    report = demonstrate(transcript, store)
    if json:
        figures = asdict(report) | {"points": sample_points(list(report.points))}
        show_json({"path": str(path), "store": str(store), "model": MODEL, **figures})
        return
    title = Text("Try it yourself", style="bold")
    show(*_story(report), title, commands=_commands(path, store, report))


def _story(report: DemoReport) -> Iterator[RenderableType]:
    about = (
        f"A coding agent fixes a web service: {number(report.messages, 'message')}, "
        f"{number(report.tokens, 'token')}. The window has {WINDOW:,} tokens, {report.usable:,} of "
        "them usable."
    )
    pivots, prunes = (
        [operation.place for operation in report.acts if operation.kind == kind]
        for kind in ("pivot", "prune")
    )
    plot = GrowthPlot(report.points, pivots=pivots, prunes=prunes)
    yield section("1. The session grows, but not what the model sees", Text(about), plot)
    full = pressure_text(pressure(report.largest, report.usable))
    largest = Text(f"The largest request used {full} of the usable tokens.")
    title = "2. Old outputs are pruned; if that is not enough, older messages are summarized"
    yield section(title, operations_table(report.acts), largest)
    rule = f"The user's rule in message 1, “{report.constraint}”,"
    is_kept, is_lost = f"{rule} is still there word for word.", f"{rule} was LOST."
    rule_verdict = _verdict(is_kept, is_lost, report.survived)
    summary = quote_lines(report.summary, _SUMMARY_LINES)
    yield section("3. The user's requests survive; the summary starts with", rule_verdict, *summary)
    if (check := report.undo) is not None:
        exact = "Undo restores the earlier view, byte for byte."
        hashes = facts((name, Text(digest)) for name, digest in asdict(check).items())
        verdict = _verdict(exact, "They differ!", check.is_exact)
        note = "hashes of what the model sees"
        yield section("4. It can be undone", verdict, hashes, note=note)
    all_messages = f"All {report.messages:,} messages are in the log,"
    pieces: list[RenderableType] = [
        _verdict(f"{all_messages} unchanged.", f"{all_messages} CHANGED.", report.unchanged)
    ]
    if (recall := report.recall) is not None:
        pieces.append(Text.assemble("The model sees: ", safe_text(recall.shown, "yellow")))
        pieces.append(Text(f"Its handle, {recall.handle}, recalls the whole output:"))
        pieces += quote_lines(recall.recalled, _RECALLED_LINES)
    yield section("5. Nothing is lost", *pieces)


def _verdict(good: str, bad: str, is_good: object) -> Text:
    return Text(good, "green") if is_good else Text(bad, "bold red")


def _commands(path: Path, store: Path, report: DemoReport) -> list[str]:
    file, database = shlex.quote(str(path)), shlex.quote(str(store))
    recall = [f"recall latest {report.recall.handle}"] if report.recall else []
    return [
        *(f"foldmark {command.format(file)}" for command in _FILE_COMMANDS),
        *(f"foldmark {command} --store {database}" for command in (*_STORE_COMMANDS, *recall)),
    ]
