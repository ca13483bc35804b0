"""`foldmark inspect`: where the tokens of a session are, and what became of them."""

from collections.abc import Iterator

from msgspec.structs import asdict, replace
from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.analysis.growth import growth
from foldmark.analysis.inspection import Inspection, inspected_together, inspection, newest_model
from foldmark.analysis.replay import Rehearsal, rehearsal
from foldmark.files import MOST_BYTES
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.policy import Policy
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import limits_or_usual
from foldmark.transcripts.read import ReadFile, picked

from .inspected import Inspected, report
from .options import (
    DEFAULT_POLICY,
    AsJson,
    File,
    FormatName,
    Lenient,
    MaxSize,
    Pick,
    PolicyName,
    Wanted,
    policy_named,
    read_wanted,
)
from .plan import ModelName, Window, narrowed
from .tables import QUIET, bars, facts, section, show, show_json, words
from .text import duration, number

EXAMPLE = "Example: foldmark inspect session.jsonl --policy opencode --window 200000"

_KINDS = {
    "user": ("the user's words", "cyan"),
    "assistant": ("the model's words", "green"),
    "reasoning": ("the model's thinking", "magenta"),
    "tool_input": ("tool calls", "blue"),
    "tool_output": ("tool outputs", "yellow"),
    "file": ("files", "white"),
}
_MOST_TOOLS = 10


def inspect(  # noqa: PLR0913 - each is an option of the command
    file: File,
    *,
    json: AsJson = False,
    policy: PolicyName = DEFAULT_POLICY,
    model: ModelName = None,
    window: Window = None,
    format: FormatName = None,
    pick: Pick = None,
    lenient: Lenient = False,
    max_size: MaxSize = MOST_BYTES,
) -> None:
    """Show where the tokens of a session are, how it grew, and what a policy would have done.

    The figures are of all sessions in the file, or of the one that --pick names. Growth, and what
    the policy would have done in the model's window, are of that one, or of the longest.
    """
    wanted = Wanted(format=format, pick=pick, lenient=lenient, max_size=max_size)
    read = read_wanted(file, wanted)
    found = inspected(read, picked(read, pick, file), policy_named(policy), alone=pick is not None)
    rehearsed = _rehearsed(found, model, window)
    if json:
        grown = {"session": found.number, "growth": found.grown.points, "rehearsal": rehearsed}
        show_json(asdict(found.figures) | grown)
    else:
        show(*overview(found.figures, policy), *report(found, rehearsed))


def inspected(read: ReadFile, place: int, policy: Policy, *, alone: bool = False) -> Inspected:
    """The figures of a file's sessions, or of one alone, and how that one grew."""
    count, held = counter(policy.estimate), read.sessions
    viewers = {
        number: Viewer(Log(count, held[number].messages), policy)
        for number in ((place,) if alone else range(len(held)))
    }
    folder = held[place].info.directory or ""
    grown = growth(viewers[place].log, policy, session=place + 1, folder=folder)
    found = {
        number: inspection(
            viewer,
            held[number].info,
            session=number + 1,
            grown=grown if number == place else None,
        )
        for number, viewer in viewers.items()
    }
    figures = inspected_together(list(found.values()))
    if len(found) == len(held):
        counts = {"tool_calls": read.calls, "tool_results": read.results}
        figures = replace(figures, format=read.format, messages=read.messages, **counts)
    return Inspected(
        figures=figures, viewer=viewers[place], own=found[place], number=place + 1, grown=grown
    )


def _rehearsed(found: Inspected, model: str | None, window: int | None) -> Rehearsal:
    """What the policy would have done with the session."""
    log = found.viewer.log
    name = model or newest_model(log) or ""
    told = found.own.tokens.fixed
    if window is None:
        limit = limits_or_usual(name, is_given=model is not None)
    else:
        limit = narrowed(name, window)
    return rehearsal(
        log,
        found.viewer.policy,
        limit,
        model=name,
        fixed=max(found.grown.unseen, told.system + told.tools),
    )


# --- the head of the report ----------------------------------------------------------------


def overview(figures: Inspection, policy: str) -> Iterator[RenderableType]:
    """The head of the report, and the tokens by kind and by tool."""
    title = figures.title or "a session without a title"
    if figures.sessions > 1:
        title = f"{figures.sessions:,} sessions, summed up"
    yield Group(words(title, "bold"), _head(figures, policy))
    if figures.tokens.total:
        yield section("Tokens by kind", _by_kind(figures), *_fixed(figures))
    if figures.tokens.by_tool:
        yield section("Tokens by tool", _by_tool(figures), note="its calls and outputs together")


def _head(figures: Inspection, policy: str) -> RenderableType:
    tools = (
        f"{number(figures.tool_calls, 'call')}, {number(figures.tool_results, 'result')}, "
        f"{figures.pruned:,} pruned"
    )
    view = f"{number(figures.view.tokens, 'token')} in {number(figures.view.messages, 'message')}"
    rows = [
        ("format", figures.format),
        ("model", ", ".join(figures.models) or "not named"),
        ("messages", _messages(figures)),
        ("tools", tools),
        ("log", f"{number(figures.tokens.total, 'token')} if all of it were shown"),
        ("view", f"{view}: what a model sees"),
        ("policy", policy),
    ]
    return facts((name, words(told)) for name, told in rows)


def _messages(figures: Inspection) -> str:
    """How many there are; a file may count otherwise than the log, which holds whole answers."""
    lasted = f" over {duration(figures.seconds)}" if figures.seconds is not None else ""
    told = f"{figures.messages:,}"
    if figures.messages != figures.log:
        told += f" in the file, {figures.log:,} in the log{',' if lasted else ''}"
    return f"{told}{lasted}, with {number(figures.requests, 'request')}"


def _by_kind(figures: Inspection) -> RenderableType:
    kinds = figures.tokens.by_kind
    rows = [(label, int(getattr(kinds, kind)), colour) for kind, (label, colour) in _KINDS.items()]
    rows.sort(key=lambda row: -row[1])
    return bars([row for row in rows if row[1]], figures.tokens.total)


def _fixed(figures: Inspection) -> Iterator[RenderableType]:
    """What is no part of the log, and in every request."""
    fixed = figures.tokens.fixed
    told = ((fixed.system, "the system prompt"), (fixed.tools, "the definitions of the tools"))
    parts = [f"{number(tokens, 'token')} of {name}" for tokens, name in told if tokens]
    if parts:
        where = "every request" if figures.sessions == 1 else "one request of each session"
        yield Text(f"and in {where}: {' and '.join(parts)}", style=QUIET)


def _by_tool(figures: Inspection) -> RenderableType:
    tools = list(figures.tokens.by_tool.items())
    rows = [(name, tokens, "blue") for name, tokens in tools[:_MOST_TOOLS]]
    rest = tools[_MOST_TOOLS:]
    if rest:
        tokens = sum(tokens for _, tokens in rest)
        rows.append((f"… {number(len(rest), 'other')}", tokens, "blue"))
    return bars(rows, figures.tokens.total)
