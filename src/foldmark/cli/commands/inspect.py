"""`foldmark inspect` and `formats`: where the tokens of a session are, and what became of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import asdict, replace
from rich.console import Group, RenderableType
from rich.text import Text

from foldmark.analysis.history import (
    Growth,
    RecordedCompaction,
    RecordedPrune,
    Rehearsal,
    SimulatedStep,
    growth,
    rehearsal,
)
from foldmark.analysis.inspection import Inspection, inspected_together, inspection, newest_model
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.policy import Policy
from foldmark.tokens.budget import pressure
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import limits_or_usual, narrowed
from foldmark.transcripts.format import formats as known_formats
from foldmark.transcripts.read import ReadFile, picked

from ..layout import (
    QUIET,
    Row,
    answer,
    bars,
    facts,
    listing,
    pressure_colour,
    pressure_text,
    section,
    titled,
    words,
)
from ..options import AsJson, File, ModelOptions, ReadOptions, policy_named
from ..plot import GrowthPlot
from ..text import duration, number, within

_KINDS = {
    "user": ("the user's words", "cyan"),
    "assistant": ("the model's words", "green"),
    "reasoning": ("the model's thinking", "magenta"),
    "tool_input": ("tool calls", "blue"),
    "tool_output": ("tool outputs", "yellow"),
    "file": ("files", "white"),
}
_MOST_TOOLS, _MOST_FILES, _MOST_NEEDLESS, _MOST_FOLDED = 10, 10, 5, 6
_LONGEST_NAME = 40


def formats(*, json: AsJson = False) -> None:
    """List the formats of transcripts that are known, those of installed plugins too.

    Example: foldmark formats
    """
    known = list(known_formats())
    rows = ((words(format.name, "cyan"), format.about) for format in known)
    value = [{"format": format.name, "about": format.about} for format in known]
    answer(value, listing("format written_by", rows), json=json)


def inspect(
    file: File, *, json: AsJson = False, models: ModelOptions, reading: ReadOptions
) -> None:
    """Show where the tokens of a session are, how it grew, and what a policy would have done.

    The figures are of all sessions in the file, or of the one that --pick names. Growth, and what
    the policy would have done in the model's window, are of that one, or of the longest.

    Example: foldmark inspect session.jsonl --policy opencode --window 200000
    """
    read = reading.read(file)
    place = picked(read, reading.pick, file)
    is_alone = reading.pick is not None
    found = _inspected(read, place, policy_named(models.policy), is_alone=is_alone)
    replay = _replay(found, models)
    grown = {"session": found.number, "growth": found.grown.points, "rehearsal": replay}
    pieces = () if json else (*_overview(found.figures, models.policy), *_report(found, replay))
    answer(asdict(found.figures) | grown, *pieces, json=json)


@dataclass(frozen=True, kw_only=True)
class FileInspection:
    """A file's figures, and one of its sessions with its own, by its number."""

    figures: Inspection
    viewer: Viewer
    own: Inspection
    number: int
    grown: Growth

    @property
    def name(self) -> str:
        """The session that growth is told of."""
        return f"session {self.number}" if self.figures.sessions > 1 else "the session"


def _inspected(read: ReadFile, place: int, policy: Policy, *, is_alone: bool) -> FileInspection:
    """The figures of a file's sessions, or of one alone, and how that one grew."""
    count, held = counter(policy.estimate), read.sessions
    viewers = {
        number: Viewer(Log(count, held[number].messages), policy)
        for number in ((place,) if is_alone else range(len(held)))
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
    return FileInspection(
        figures=figures, viewer=viewers[place], own=found[place], number=place + 1, grown=grown
    )


def _replay(found: FileInspection, models: ModelOptions) -> Rehearsal:
    """What the policy would have done with the session."""
    log, fixed = found.viewer.log, found.own.tokens.fixed
    name = models.model or newest_model(log) or ""
    if models.window is None:
        limit = limits_or_usual(name, is_given=models.model is not None)
    else:
        limit = narrowed(name, models.window)
    beside = max(found.grown.unseen, fixed.system + fixed.tools)
    return rehearsal(log, found.viewer.policy, limit, model=name, fixed=beside)


# --- the head of the report, and where the tokens are --------------------------------------


def _overview(figures: Inspection, policy: str) -> Iterator[RenderableType]:
    title = figures.title
    if figures.sessions > 1:
        title = f"{figures.sessions:,} sessions, summed up"
    yield titled(title or "", _head(figures, policy))
    if figures.tokens.total:
        yield section("Tokens by kind", _by_kind(figures), *_fixed(figures))
    if figures.tokens.by_tool:
        yield section("Tokens by tool", _by_tool(figures), note="its calls and outputs together")


def _head(figures: Inspection, policy: str) -> Iterator[tuple[str, str]]:
    yield "format", figures.format
    yield "model", ", ".join(figures.models) or "not named"
    # A file may count otherwise than the log, which holds whole answers.
    lasted = f" over {duration(figures.seconds)}" if figures.seconds is not None else ""
    messages = f"{figures.messages:,}"
    if figures.messages != figures.log:
        messages += f" in the file, {figures.log:,} in the log{',' if lasted else ''}"
    yield "messages", f"{messages}{lasted}, with {number(figures.requests, 'request')}"
    calls, results = number(figures.tool_calls, "call"), number(figures.tool_results, "result")
    yield "tools", f"{calls}, {results}, {figures.pruned:,} pruned"
    yield "log", f"{number(figures.tokens.total, 'token')} if all of it were shown"
    view = f"{number(figures.view.tokens, 'token')} in {number(figures.view.messages, 'message')}"
    yield "view", f"{view}: what a model sees"
    yield "policy", policy


def _by_kind(figures: Inspection) -> RenderableType:
    kinds = figures.tokens.by_kind
    rows = [(label, int(getattr(kinds, kind)), colour) for kind, (label, colour) in _KINDS.items()]
    rows.sort(key=lambda row: -row[1])
    return bars([row for row in rows if row[1]], figures.tokens.total)


def _fixed(figures: Inspection) -> Iterator[RenderableType]:
    """What is no part of the log, and in every request."""
    fixed = figures.tokens.fixed
    shares = ((fixed.system, "the system prompt"), (fixed.tools, "the definitions of the tools"))
    parts = [f"{number(tokens, 'token')} of {name}" for tokens, name in shares if tokens]
    if parts:
        where = "every request" if figures.sessions == 1 else "one request of each session"
        yield Text(f"and in {where}: {' and '.join(parts)}", style=QUIET)


def _by_tool(figures: Inspection) -> RenderableType:
    tools = list(figures.tokens.by_tool.items())
    rows = [(name, tokens, "blue") for name, tokens in tools[:_MOST_TOOLS]]
    if rest := tools[_MOST_TOOLS:]:
        others = f"… {number(len(rest), 'other')}"
        rows.append((others, sum(tokens for _, tokens in rest), "blue"))
    return bars(rows, figures.tokens.total)


def _report(found: FileInspection, replay: Rehearsal) -> Iterator[RenderableType]:
    figures = found.figures
    yield from _files(figures)
    yield from _largest(figures)
    yield from _needless(figures)
    yield from _growth(found)
    yield from _compactions(figures)
    yield from _prunes(figures)
    yield _replayed(replay, found.name)


def _files(figures: Inspection) -> Iterator[RenderableType]:
    files = figures.tokens.by_file
    if not files:
        return
    rows: list[Row] = [
        (within(held.file, figures.directory), held.reads, held.writes, held.tokens)
        for held in files[:_MOST_FILES]
    ]
    if rest := files[_MOST_FILES:]:
        sums = (sum(getattr(held, name) for held in rest) for name in ("reads", "writes", "tokens"))
        rows.append((Text(f"… {number(len(rest), 'other')}"), *sums))
    table = listing("about reads writes tokens", rows)
    yield section("Tokens by file", table, note="the calls and outputs that were about it")


def _largest(figures: Inspection) -> Iterator[RenderableType]:
    if not figures.largest:
        yield Text("Nothing in this session has any tokens.", style=QUIET)
        return
    rows = [
        (one.session, one.handle, one.name, _about(one.target, figures), one.tokens, one.state)
        for one in figures.largest
    ]
    table = _numbered(figures, "handle what about tokens state", rows)
    yield section("The largest parts", table)


def _about(target: str, figures: Inspection) -> str:
    return within(target, figures.directory)


def _numbered(figures: Inspection, columns: str, rows: Iterable[Row]) -> RenderableType:
    """A table whose rows begin with the number of their session; shown where there are several."""
    if figures.sessions == 1:
        return listing(columns, (row[1:] for row in rows))
    return listing(f"session {columns}", rows)


def _needless(figures: Inspection) -> Iterator[RenderableType]:
    """What is repeated, and what is stale."""
    twice, stale = figures.duplicated, figures.superseded
    if not twice.outputs and not stale.outputs:
        yield Text("No tool output is repeated, and none was made stale by a later one.", QUIET)
    if twice.outputs:
        rows: list[Row] = [
            (one.session, one.handle, one.tool, _about(one.target, figures), one.times, one.tokens)
            for one in twice.largest[:_MOST_NEEDLESS]
        ]
        yield section(
            f"{number(twice.outputs, 'repeated output')} ({number(twice.tokens, 'token')})",
            _numbered(figures, "handle what about times tokens", rows),
            note="the same, word for word, as another one of the same tool",
        )
    if stale.outputs:
        rows = [
            (
                one.session,
                one.handle,
                _about(one.target, figures),
                one.tokens,
                words(one.reason.rpartition(" was ")[2], QUIET),
            )
            for one in stale.largest[:_MOST_NEEDLESS]
        ]
        yield section(
            f"{number(stale.outputs, 'superseded output')} ({number(stale.tokens, 'token')})",
            _numbered(figures, "handle about tokens since_then", rows),
            note="read, and stale since: the file was written, or read again as far",
        )


# --- how it grew, and what was folded ------------------------------------------------------


def _growth(found: FileInspection) -> Iterator[RenderableType]:
    grown = found.grown
    if len(grown.points) > 1:
        plot = GrowthPlot(
            grown.points,
            pivots=[held.message for held in grown.compactions],
            prunes=[held.message or len(found.viewer.log) for held in grown.prunes],
        )
        several = found.figures.sessions
        note = f"the longest of {several:,}; another one: --pick N" if several > 1 else ""
        yield section(f"How {found.name} grew", plot, note=note)


def _compactions(figures: Inspection) -> Iterator[RenderableType]:
    held = figures.compactions
    if not held:
        yield Text("No pivots: no messages were folded into a summary yet.", style=QUIET)
        return
    pieces = [_compaction(figures, one) for one in held[:_MOST_FOLDED]]
    pieces = [piece for one in pieces for piece in (Text(), one)][1:]  # a line between them
    note = "where earlier messages were folded into a summary"
    yield section("Recorded compactions", *pieces, *_more(held), note=note)


def _more(held: Sequence[object]) -> Iterator[RenderableType]:
    if len(held) > _MOST_FOLDED:
        yield Text(f"… and {len(held) - _MOST_FOLDED:,} more; --json tells all", QUIET)


def _compaction(figures: Inspection, held: RecordedCompaction) -> RenderableType:
    where = f"session {held.session}, " if figures.sessions > 1 else ""
    title = f"{where}message {held.message:,}: {_change(held.before, held.after)}"
    rows = _compaction_rows(held, figures.directory)
    shown = ((name, words(value, most=400)) for name, value in rows if value)
    return Group(Text(title, style="magenta"), facts(shown))


def _compaction_rows(held: RecordedCompaction, folder: str) -> Iterator[tuple[str, str]]:
    kept = f"; kept word for word: from message {held.tail:,} on" if held.tail else ""
    yield "summary", f"{number(held.summary, 'token')}{kept}"
    gone = held.hidden
    outputs = number(gone.outputs, "tool output")
    yield "hid", f"{number(gone.messages, 'message')}, {outputs}, {number(gone.tokens, 'token')}"
    yield "lost", _lost(held, folder)
    if held.measured_before and held.measured_after:
        yield "measured", f"{_change(held.measured_before, held.measured_after)} of input"
    ways = ((held.input, "in"), (held.output, "out"))
    costs = [f"{tokens:,} tokens {way}" for tokens, way in ways if tokens is not None]
    yield "cost", ", ".join([*costs, f"${held.cost:,.4f}"] if held.cost else costs)
    if held.input is None:
        yield "recorded", ", ".join(_recorded(held))


def _lost(held: RecordedCompaction, folder: str) -> str:
    lost = held.lost
    if lost is None:
        return "not known: only its provider can read the summary"
    parts: list[str] = []
    if lost.files:
        names = ", ".join(_short(within(name, folder)) for name in lost.largest[:3])
        more = ", …" if lost.files > 3 else ""
        parts.append(f"the names of {number(lost.files, 'file')} ({names}{more})")
    if lost.requests:
        parts.append(f"the words of {number(lost.requests, 'request')}")
    return " and ".join(parts) or "no file's name, and no request's words"


def _short(path: str) -> str:
    """A path by its end, where it is long."""
    ends = path.replace("\\", "/").rsplit("/", 2)
    return path if len(path) <= _LONGEST_NAME or len(ends) < 3 else f"…/{ends[1]}/{ends[2]}"


def _recorded(held: RecordedCompaction) -> Iterator[str]:
    """What the transcript itself says in figures, and what set it off."""
    for name, value in held.told.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{name} {value:,}"
        elif name == "trigger":
            yield f"{name} {value}"


def _prunes(figures: Inspection) -> Iterator[RenderableType]:
    held = figures.prunes
    if held:
        lines = [_pruning(figures, one) for one in held[:_MOST_FOLDED]]
        note = "where old tool outputs were hidden"
        yield section("Recorded prunes", *lines, *_more(held), note=note)


def _pruning(figures: Inspection, held: RecordedPrune) -> RenderableType:
    where = f"session {held.session}, " if figures.sessions > 1 else ""
    outputs = f"{number(held.outputs, 'output')} of {number(held.tokens, 'token')}"
    when = f"before message {held.message:,}" if held.message else "after the last message"
    title = Text(f"{where}{when}: ", style="yellow")
    change = _change(held.before, held.after)
    return title.append(f"{outputs}; the view went {change}", style="default")


def _change(before: int, after: int) -> str:
    return f"from {before:,} to {number(after, 'token')}"


# --- what a policy would have done ---------------------------------------------------------


def _replayed(held: Rehearsal, name: str) -> RenderableType:
    title = f"What the policy {held.policy} would have done with {name}"
    beside = f", and {held.fixed:,} in each request beside the view" if held.fixed else ""
    note = f"an estimate, with summaries of {held.summary:,} tokens{beside}"
    return section(title, facts(_replay_rows(held)), note=note)


def _replay_rows(held: Rehearsal) -> Iterator[tuple[str, RenderableType]]:
    named = f", {held.model}" if held.model else ""
    window = f"{number(held.window, 'token')}, {held.usable:,} of them usable{named}"
    yield "window", window if held.window else f"without limit ({held.model})"
    yield "prune", _first(held.first_prune, held.prunes)
    yield "compact", _first(held.first_compaction, held.compactions)
    full = pressure(held.peak, held.usable) if held.window else 0.0
    share = f" ({pressure_text(full)} of what is usable)" if held.window else ""
    largest = f"{number(held.peak, 'token')}{share}, for message {held.peak_message:,}"
    yield "largest request", Text(largest, style=pressure_colour(full))
    if held.stuck is not None:
        gone = f"From message {held.stuck:,} on nothing helps: the window is too small."
        yield "", Text(gone, style="bold red")


def _first(step: SimulatedStep | None, times: int) -> str:
    if step is None:
        return "never"
    outputs, messages = number(step.outputs, "output"), number(step.messages, "message")
    what = outputs if step.kind == "prune" else messages
    when = "once, " if times == 1 else f"{times:,} times, first "
    return f"{when}before message {step.message:,}: {what}, from {step.before:,} to {step.after:,}"
