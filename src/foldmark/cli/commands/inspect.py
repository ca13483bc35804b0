"""`foldmark inspect` and `formats`: where a session's tokens are, and what happened to them."""

from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace
from rich.console import RenderableType
from rich.text import Text

from foldmark.analysis.history import (
    Growth,
    PolicyReplay,
    RecordedCompaction,
    RecordedPrune,
    SimulatedStep,
    growth,
    policy_replay,
)
from foldmark.analysis.inspection import (
    Inspection,
    LargePart,
    OutputWaste,
    WastedOutput,
    combined_inspection,
    inspection,
    newest_model,
)
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.policy import Policy
from foldmark.tokens.budget import pressure
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import limits_or_default, limits_with_window
from foldmark.transcripts.format import formats as known_formats
from foldmark.transcripts.read import pick_session

from ..layout import (
    QUIET,
    Cell,
    Row,
    answer,
    bars,
    facts,
    labeled,
    listing,
    pressure_color,
    pressure_text,
    report_head,
    safe_text,
    section,
)
from ..options import AsJson, File, ModelOptions, ReadOptions, policy_named
from ..plot import GrowthPlot
from ..text import duration, number, strip_folder

_KINDS = {
    "user": ("user messages", "cyan"),
    "assistant": ("model messages", "green"),
    "reasoning": ("model thinking", "magenta"),
    "tool_input": ("tool calls", "blue"),
    "tool_output": ("tool outputs", "yellow"),
    "file": ("files", "white"),
}
# Outputs that could be left out: field, name, table columns and explanation.
_NEEDLESS = {
    "duplicated": (
        "repeated output",
        "handle what about times tokens",
        "identical to another output of the same tool",
    ),
    "superseded": (
        "superseded output",
        "handle about tokens since_then",
        "stale, because the file was written or read again later",
    ),
}
_MOST_TOOLS, _MOST_FILES, _MOST_NEEDLESS, _MOST_FOLDED = 10, 10, 5, 6
_LONGEST_NAME = 40


def formats(*, json: AsJson = False) -> None:
    """List the known transcript formats, including those of installed plugins.

    Example: foldmark formats
    """
    all_formats = list(known_formats())
    rows = ((safe_text(format.name, "cyan"), format.about) for format in all_formats)
    value = [{"format": format.name, "about": format.about} for format in all_formats]
    answer(value, listing("format written_by", rows), json=json)


def inspect(
    file: File, *, json: AsJson = False, models: ModelOptions, reading: ReadOptions
) -> None:
    """Show where the tokens of a session are, how it grew, and what a policy would have done.

    The figures cover all sessions in the file, or the one that --pick names. Growth and the policy
    simulation cover that session, or the longest one.

    Example: foldmark inspect session.jsonl --policy opencode --window 200000
    """
    source, policy = reading.read(file), policy_named(models.policy)
    index, sessions = pick_session(source, reading.pick, file), source.sessions
    numbers = range(len(sessions)) if reading.pick is None else (index,)
    count = counter(policy.estimate)
    viewers = {at: Viewer(Log(count, sessions[at].messages), policy) for at in numbers}
    log, folder = viewers[index].log, sessions[index].info.directory or ""
    history = growth(log, policy, session=index + 1, folder=folder)
    inspections: dict[int, Inspection] = {}
    for at, viewer in viewers.items():
        own = history if at == index else None
        inspections[at] = inspection(viewer, sessions[at].info, session=at + 1, history=own)
    figures = combined_inspection(list(inspections.values()))
    if len(inspections) == len(sessions):
        counts = {"tool_calls": source.calls, "tool_results": source.results}
        figures = replace(figures, format=source.format, messages=source.messages, **counts)
    fixed = inspections[index].tokens.fixed
    replay = _replay(log, policy, models, max(history.unseen, fixed.system + fixed.tools))
    value = {"session": index + 1, "growth": history.points, "rehearsal": replay}
    name = f"session {index + 1}" if figures.sessions > 1 else "the session"
    pieces = (
        *_overview(figures, models.policy),
        *_needless(figures),
        *_growth(history, name, figures.sessions, len(log)),
        *_compactions(figures),
        *_prunes(figures),
        _replayed(replay, name),
    )
    answer(asdict(figures) | value, *pieces, json=json)


def _replay(log: Log, policy: Policy, models: ModelOptions, fixed: int) -> PolicyReplay:
    """What the policy would have done in the session."""
    name = models.model or newest_model(log) or ""
    if models.window is None:
        limit = limits_or_default(name, is_explicit=models.model is not None)
    else:
        limit = limits_with_window(name, models.window)
    return policy_replay(log, policy, limit, model=name, fixed=fixed)


# --- overview and tokens -------------------------------------------------------------------


def _overview(figures: Inspection, policy: str) -> Iterator[RenderableType]:
    title = f"{figures.sessions:,} sessions in total" if figures.sessions > 1 else figures.title
    yield report_head(title or "", _head(figures, policy))
    tokens = figures.tokens
    if tokens.total:
        kinds = sorted(labeled(tokens.by_kind, _KINDS), key=lambda row: -row[1])
        yield section("Tokens by kind", bars(kinds, tokens.total), *_fixed(figures))
    if tools := list(tokens.by_tool.items()):
        rows = [(name, tokens_used, "blue") for name, tokens_used in tools[:_MOST_TOOLS]]
        if rest := [tokens_used for _, tokens_used in tools[_MOST_TOOLS:]]:
            rows.append((f"… {number(len(rest), 'other')}", sum(rest), "blue"))
        note = "calls and outputs of each tool"
        yield section("Tokens by tool", bars(rows, tokens.total), note=note)
    if tokens.by_file:
        note = "calls and outputs about each file"
        yield section("Tokens by file", _files(figures), note=note)
    if figures.largest:
        table = _parts(figures, "handle what about tokens state", figures.largest)
        yield section("Largest parts", table)
    else:
        yield Text("This session has no tokens.", style=QUIET)


def _head(figures: Inspection, policy: str) -> Iterator[tuple[str, str]]:
    yield "format", figures.format
    yield "model", ", ".join(figures.models) or "unknown"
    # The log joins the parts of a reply, so a file may have more messages.
    lasted = f" over {duration(figures.seconds)}" if figures.seconds is not None else ""
    messages = f"{figures.messages:,}"
    if figures.messages != figures.log:
        messages += f" in the file, {figures.log:,} in the log{',' if lasted else ''}"
    yield "messages", f"{messages}{lasted}, with {number(figures.requests, 'user request')}"
    calls, results = number(figures.tool_calls, "call"), number(figures.tool_results, "result")
    yield "tools", f"{calls}, {results}, {figures.pruned:,} pruned"
    yield "log", f"{number(figures.tokens.total, 'token')} in total"
    view = f"{number(figures.view.tokens, 'token')} in {number(figures.view.messages, 'message')}"
    yield "view", f"{view}: what the model sees"
    yield "policy", policy


def _fixed(figures: Inspection) -> Iterator[RenderableType]:
    """The fixed parts of every request, which are not in the log."""
    fixed = figures.tokens.fixed
    shares = ((fixed.system, "system prompt"), (fixed.tools, "tool definitions"))
    parts = [f"{number(tokens, 'token')} of {name}" for tokens, name in shares if tokens]
    if parts:
        where = "every request" if figures.sessions == 1 else "one request of each session"
        yield Text(f"plus, in {where}: {' and '.join(parts)}", style=QUIET)


def _files(figures: Inspection) -> RenderableType:
    files, sums = figures.tokens.by_file, ("reads", "writes", "tokens")
    rows: list[Row] = [
        (strip_folder(usage.file, figures.directory), *(getattr(usage, name) for name in sums))
        for usage in files[:_MOST_FILES]
    ]
    if rest := files[_MOST_FILES:]:
        total = (sum(getattr(usage, name) for usage in rest) for name in sums)
        rows.append((Text(f"… {number(len(rest), 'other')}"), *total))
    return listing("about reads writes tokens", rows)


def _parts(
    figures: Inspection, columns: str, parts: Sequence[LargePart | WastedOutput]
) -> RenderableType:
    """A table of parts, with session numbers if there are several sessions."""
    columns = columns if figures.sessions == 1 else f"session {columns}"

    def cell(part: LargePart | WastedOutput, column: str) -> Cell:
        if column == "about":
            return strip_folder(part.target, figures.directory)
        if column == "what":
            return part.name if isinstance(part, LargePart) else part.tool
        if column == "since_then" and isinstance(part, WastedOutput):
            return safe_text(part.reason.rpartition(" was ")[2], QUIET)
        return getattr(part, column)

    return listing(columns, ([cell(part, name) for name in columns.split()] for part in parts))


def _needless(figures: Inspection) -> Iterator[RenderableType]:
    """Repeated and stale outputs."""
    if not figures.duplicated.outputs and not figures.superseded.outputs:
        yield Text("No tool output is repeated or stale.", QUIET)
    for name, (what, columns, note) in _NEEDLESS.items():
        needless: OutputWaste = getattr(figures, name)
        if needless.outputs:
            title = f"{number(needless.outputs, what)} ({number(needless.tokens, 'token')})"
            table = _parts(figures, columns, needless.largest[:_MOST_NEEDLESS])
            yield section(title, table, note=note)


# --- growth and recorded compactions -------------------------------------------------------


def _growth(history: Growth, name: str, sessions: int, last: int) -> Iterator[RenderableType]:
    if len(history.points) > 1:
        plot = GrowthPlot(
            history.points,
            pivots=[event.message for event in history.compactions],
            prunes=[event.message or last for event in history.prunes],
        )
        note = f"the longest of {sessions:,}; choose another with --pick N" if sessions > 1 else ""
        yield section(f"How {name} grew", plot, note=note)


def _compactions(figures: Inspection) -> Iterator[RenderableType]:
    compactions = figures.compactions
    if not compactions:
        yield Text("No compactions: no messages were summarized yet.", style=QUIET)
        return
    pieces: list[RenderableType] = []
    for compaction in compactions[:_MOST_FOLDED]:
        change = _change(compaction.before, compaction.after)
        title = f"{_where(figures, compaction)}message {compaction.message:,}: {change}"
        rows = _compaction_rows(compaction, figures.directory)
        visible = ((name, safe_text(value, limit=400)) for name, value in rows if value)
        pieces += [Text(), Text(title, style="magenta"), facts(visible)]
    note = "where earlier messages were replaced by a summary"
    yield section("Recorded compactions", *pieces[1:], *_more(compactions), note=note)


def _where(figures: Inspection, event: RecordedCompaction | RecordedPrune) -> str:
    return f"session {event.session}, " if figures.sessions > 1 else ""


def _more(events: Sequence[object]) -> Iterator[RenderableType]:
    if len(events) > _MOST_FOLDED:
        yield Text(f"… and {len(events) - _MOST_FOLDED:,} more; see all with --json", QUIET)


def _compaction_rows(compaction: RecordedCompaction, folder: str) -> Iterator[tuple[str, str]]:
    tail = f"; kept verbatim from message {compaction.tail:,} on" if compaction.tail else ""
    yield "summary", f"{number(compaction.summary, 'token')}{tail}"
    hidden = compaction.hidden
    outputs = number(hidden.outputs, "tool output")
    messages = number(hidden.messages, "message")
    yield "hidden", f"{messages}, {outputs}, {number(hidden.tokens, 'token')}"
    yield "lost", _lost(compaction, folder)
    if compaction.measured_before and compaction.measured_after:
        change = _change(compaction.measured_before, compaction.measured_after)
        yield "measured", f"{change} of input"
    ways = ((compaction.input, "in"), (compaction.output, "out"))
    costs = [f"{tokens:,} tokens {way}" for tokens, way in ways if tokens is not None]
    yield "cost", ", ".join([*costs, f"${compaction.cost:,.4f}"] if compaction.cost else costs)
    if compaction.input is None:
        recorded = (  # figures in the transcript itself, and the trigger
            f"{name} {value}" if name == "trigger" else f"{name} {value:,}"
            for name, value in compaction.told.items()
            if name == "trigger" or type(value) in (int, float)
        )
        yield "recorded", ", ".join(recorded)


def _lost(compaction: RecordedCompaction, folder: str) -> str:
    lost = compaction.lost
    if lost is None:
        return "unknown: only the provider can read the summary"
    parts: list[str] = []
    if lost.files:
        names = ", ".join(_short(strip_folder(name, folder)) for name in lost.largest[:3])
        more = ", …" if lost.files > 3 else ""
        parts.append(f"the names of {number(lost.files, 'file')} ({names}{more})")
    if lost.requests:
        parts.append(f"the text of {number(lost.requests, 'user request')}")
    return " and ".join(parts) or "no file names and no user requests"


def _short(path: str) -> str:
    """The end of a long path."""
    ends = path.replace("\\", "/").rsplit("/", 2)
    return path if len(path) <= _LONGEST_NAME or len(ends) < 3 else f"…/{ends[1]}/{ends[2]}"


def _prunes(figures: Inspection) -> Iterator[RenderableType]:
    lines: list[Text] = []
    for prune in figures.prunes[:_MOST_FOLDED]:
        outputs = f"{number(prune.outputs, 'output')} of {number(prune.tokens, 'token')}"
        when = f"before message {prune.message:,}" if prune.message else "after the last message"
        change = f"{outputs}; the view shrank {_change(prune.before, prune.after)}"
        where = (f"{_where(figures, prune)}{when}: ", "yellow")
        lines.append(Text.assemble(where, (change, "default")))
    if lines:
        note = "where old tool outputs were hidden"
        yield section("Recorded prunes", *lines, *_more(figures.prunes), note=note)


def _change(before: int, after: int) -> str:
    return f"from {before:,} to {number(after, 'token')}"


# --- policy simulation ---------------------------------------------------------------------


def _replayed(replay: PolicyReplay, name: str) -> RenderableType:
    model = f", {replay.model}" if replay.model else ""
    window = f"{number(replay.window, 'token')}, {replay.usable:,} of them usable{model}"
    full = pressure(replay.peak, replay.usable) if replay.window else 0.0
    share = f" ({pressure_text(full)} of the usable tokens)" if replay.window else ""
    largest = f"{number(replay.peak, 'token')}{share}, for message {replay.peak_message:,}"
    rows: list[tuple[str, RenderableType]] = [
        ("window", window if replay.window else f"no limit ({replay.model})"),
        ("prune", _first(replay.first_prune, replay.prunes)),
        ("compact", _first(replay.first_compaction, replay.compactions)),
        ("largest request", Text(largest, style=pressure_color(full))),
    ]
    if replay.stuck is not None:
        warning = f"From message {replay.stuck:,} on, the window is too small for any compaction."
        rows.append(("", Text(warning, style="bold red")))
    title = f"What the policy {replay.policy} would have done in {name}"
    beside = f" and {replay.fixed:,} fixed tokens in each request" if replay.fixed else ""
    note = f"an estimate, with summaries of {replay.summary:,} tokens{beside}"
    return section(title, facts(rows), note=note)


def _first(step: SimulatedStep | None, times: int) -> str:
    if step is None:
        return "never"
    outputs, messages = number(step.outputs, "output"), number(step.messages, "message")
    what = outputs if step.kind == "prune" else messages
    when = "once, " if times == 1 else f"{times:,} times, first "
    return f"{when}before message {step.message:,}: {what}, from {step.before:,} to {step.after:,}"
