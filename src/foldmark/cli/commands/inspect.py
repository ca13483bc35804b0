"""`foldmark inspect` and `formats`: where the tokens of a session are, and what became of them."""

from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace
from rich.console import RenderableType
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
from foldmark.analysis.inspection import (
    Inspection,
    Needless,
    NeedlessOutput,
    Piece,
    inspected_together,
    inspection,
    newest_model,
)
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.policy import Policy
from foldmark.tokens.budget import pressure
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import limits_or_usual, narrowed
from foldmark.transcripts.format import formats as known_formats
from foldmark.transcripts.read import picked

from ..layout import (
    QUIET,
    Cell,
    Row,
    answer,
    bars,
    facts,
    labelled,
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
# What could be left out: by its field, with its name, its columns, and what it is.
_NEEDLESS = {
    "duplicated": (
        "repeated output",
        "handle what about times tokens",
        "the same, word for word, as another one of the same tool",
    ),
    "superseded": (
        "superseded output",
        "handle about tokens since_then",
        "read, and stale since: the file was written, or read again as far",
    ),
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
    read, policy = reading.read(file), policy_named(models.policy)
    place, held = picked(read, reading.pick, file), read.sessions
    numbers = range(len(held)) if reading.pick is None else (place,)
    count = counter(policy.estimate)
    viewers = {at: Viewer(Log(count, held[at].messages), policy) for at in numbers}
    log, folder = viewers[place].log, held[place].info.directory or ""
    grown = growth(log, policy, session=place + 1, folder=folder)
    found = {
        at: inspection(viewer, held[at].info, session=at + 1, grown=grown if at == place else None)
        for at, viewer in viewers.items()
    }
    figures = inspected_together(list(found.values()))
    if len(found) == len(held):
        counts = {"tool_calls": read.calls, "tool_results": read.results}
        figures = replace(figures, format=read.format, messages=read.messages, **counts)
    fixed = found[place].tokens.fixed
    replay = _replay(log, policy, models, max(grown.unseen, fixed.system + fixed.tools))
    value = {"session": place + 1, "growth": grown.points, "rehearsal": replay}
    name = f"session {place + 1}" if figures.sessions > 1 else "the session"
    pieces = (
        *_overview(figures, models.policy),
        *_needless(figures),
        *_growth(grown, name, figures.sessions, len(log)),
        *_compactions(figures),
        *_prunes(figures),
        _replayed(replay, name),
    )
    answer(asdict(figures) | value, *pieces, json=json)


def _replay(log: Log, policy: Policy, models: ModelOptions, fixed: int) -> Rehearsal:
    """What the policy would have done with the session."""
    name = models.model or newest_model(log) or ""
    if models.window is None:
        limit = limits_or_usual(name, is_given=models.model is not None)
    else:
        limit = narrowed(name, models.window)
    return rehearsal(log, policy, limit, model=name, fixed=fixed)


# --- the head of the report, and where the tokens are --------------------------------------


def _overview(figures: Inspection, policy: str) -> Iterator[RenderableType]:
    title = f"{figures.sessions:,} sessions, summed up" if figures.sessions > 1 else figures.title
    yield titled(title or "", _head(figures, policy))
    tokens = figures.tokens
    if tokens.total:
        kinds = sorted(labelled(tokens.by_kind, _KINDS), key=lambda row: -row[1])
        yield section("Tokens by kind", bars(kinds, tokens.total), *_fixed(figures))
    if tools := list(tokens.by_tool.items()):
        rows = [(name, held, "blue") for name, held in tools[:_MOST_TOOLS]]
        if rest := [held for _, held in tools[_MOST_TOOLS:]]:
            rows.append((f"… {number(len(rest), 'other')}", sum(rest), "blue"))
        note = "its calls and outputs together"
        yield section("Tokens by tool", bars(rows, tokens.total), note=note)
    if tokens.by_file:
        note = "the calls and outputs that were about it"
        yield section("Tokens by file", _files(figures), note=note)
    if figures.largest:
        table = _parts(figures, "handle what about tokens state", figures.largest)
        yield section("The largest parts", table)
    else:
        yield Text("Nothing in this session has any tokens.", style=QUIET)


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


def _fixed(figures: Inspection) -> Iterator[RenderableType]:
    """What is no part of the log, and in every request."""
    fixed = figures.tokens.fixed
    shares = ((fixed.system, "the system prompt"), (fixed.tools, "the definitions of the tools"))
    parts = [f"{number(tokens, 'token')} of {name}" for tokens, name in shares if tokens]
    if parts:
        where = "every request" if figures.sessions == 1 else "one request of each session"
        yield Text(f"and in {where}: {' and '.join(parts)}", style=QUIET)


def _files(figures: Inspection) -> RenderableType:
    files, sums = figures.tokens.by_file, ("reads", "writes", "tokens")
    rows: list[Row] = [
        (within(held.file, figures.directory), *(getattr(held, name) for name in sums))
        for held in files[:_MOST_FILES]
    ]
    if rest := files[_MOST_FILES:]:
        total = (sum(getattr(held, name) for held in rest) for name in sums)
        rows.append((Text(f"… {number(len(rest), 'other')}"), *total))
    return listing("about reads writes tokens", rows)


def _parts(
    figures: Inspection, columns: str, parts: Sequence[Piece | NeedlessOutput]
) -> RenderableType:
    """A table of parts, with the numbers of their sessions where there are several."""
    columns = columns if figures.sessions == 1 else f"session {columns}"

    def cell(part: Piece | NeedlessOutput, column: str) -> Cell:
        if column == "about":
            return within(part.target, figures.directory)
        if column == "what":
            return part.name if isinstance(part, Piece) else part.tool
        if column == "since_then" and isinstance(part, NeedlessOutput):
            return words(part.reason.rpartition(" was ")[2], QUIET)
        return getattr(part, column)

    return listing(columns, ([cell(part, name) for name in columns.split()] for part in parts))


def _needless(figures: Inspection) -> Iterator[RenderableType]:
    """What is repeated, and what is stale."""
    if not figures.duplicated.outputs and not figures.superseded.outputs:
        yield Text("No tool output is repeated, and none was made stale by a later one.", QUIET)
    for name, (what, columns, note) in _NEEDLESS.items():
        held: Needless = getattr(figures, name)
        if held.outputs:
            title = f"{number(held.outputs, what)} ({number(held.tokens, 'token')})"
            table = _parts(figures, columns, held.largest[:_MOST_NEEDLESS])
            yield section(title, table, note=note)


# --- how it grew, and what was folded ------------------------------------------------------


def _growth(grown: Growth, name: str, sessions: int, last: int) -> Iterator[RenderableType]:
    if len(grown.points) > 1:
        plot = GrowthPlot(
            grown.points,
            pivots=[held.message for held in grown.compactions],
            prunes=[held.message or last for held in grown.prunes],
        )
        note = f"the longest of {sessions:,}; another one: --pick N" if sessions > 1 else ""
        yield section(f"How {name} grew", plot, note=note)


def _compactions(figures: Inspection) -> Iterator[RenderableType]:
    held = figures.compactions
    if not held:
        yield Text("No pivots: no messages were folded into a summary yet.", style=QUIET)
        return
    pieces: list[RenderableType] = []
    for one in held[:_MOST_FOLDED]:
        title = f"{_where(figures, one)}message {one.message:,}: {_change(one.before, one.after)}"
        rows = _compaction_rows(one, figures.directory)
        shown = ((name, words(value, most=400)) for name, value in rows if value)
        pieces += [Text(), Text(title, style="magenta"), facts(shown)]
    note = "where earlier messages were folded into a summary"
    yield section("Recorded compactions", *pieces[1:], *_more(held), note=note)


def _where(figures: Inspection, held: RecordedCompaction | RecordedPrune) -> str:
    return f"session {held.session}, " if figures.sessions > 1 else ""


def _more(held: Sequence[object]) -> Iterator[RenderableType]:
    if len(held) > _MOST_FOLDED:
        yield Text(f"… and {len(held) - _MOST_FOLDED:,} more; --json tells all", QUIET)


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
        told = (  # what the transcript itself says in figures, and what set it off
            f"{name} {value}" if name == "trigger" else f"{name} {value:,}"
            for name, value in held.told.items()
            if name == "trigger" or type(value) in (int, float)
        )
        yield "recorded", ", ".join(told)


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


def _prunes(figures: Inspection) -> Iterator[RenderableType]:
    lines: list[Text] = []
    for held in figures.prunes[:_MOST_FOLDED]:
        outputs = f"{number(held.outputs, 'output')} of {number(held.tokens, 'token')}"
        when = f"before message {held.message:,}" if held.message else "after the last message"
        change = f"{outputs}; the view went {_change(held.before, held.after)}"
        where = (f"{_where(figures, held)}{when}: ", "yellow")
        lines.append(Text.assemble(where, (change, "default")))
    if lines:
        note = "where old tool outputs were hidden"
        yield section("Recorded prunes", *lines, *_more(figures.prunes), note=note)


def _change(before: int, after: int) -> str:
    return f"from {before:,} to {number(after, 'token')}"


# --- what a policy would have done ---------------------------------------------------------


def _replayed(held: Rehearsal, name: str) -> RenderableType:
    named = f", {held.model}" if held.model else ""
    window = f"{number(held.window, 'token')}, {held.usable:,} of them usable{named}"
    full = pressure(held.peak, held.usable) if held.window else 0.0
    share = f" ({pressure_text(full)} of what is usable)" if held.window else ""
    largest = f"{number(held.peak, 'token')}{share}, for message {held.peak_message:,}"
    rows: list[tuple[str, RenderableType]] = [
        ("window", window if held.window else f"without limit ({held.model})"),
        ("prune", _first(held.first_prune, held.prunes)),
        ("compact", _first(held.first_compaction, held.compactions)),
        ("largest request", Text(largest, style=pressure_colour(full))),
    ]
    if held.stuck is not None:
        gone = f"From message {held.stuck:,} on nothing helps: the window is too small."
        rows.append(("", Text(gone, style="bold red")))
    title = f"What the policy {held.policy} would have done with {name}"
    beside = f", and {held.fixed:,} in each request beside the view" if held.fixed else ""
    note = f"an estimate, with summaries of {held.summary:,} tokens{beside}"
    return section(title, facts(rows), note=note)


def _first(step: SimulatedStep | None, times: int) -> str:
    if step is None:
        return "never"
    outputs, messages = number(step.outputs, "output"), number(step.messages, "message")
    what = outputs if step.kind == "prune" else messages
    when = "once, " if times == 1 else f"{times:,} times, first "
    return f"{when}before message {step.message:,}: {what}, from {step.before:,} to {step.after:,}"
