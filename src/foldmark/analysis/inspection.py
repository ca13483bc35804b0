"""A session in figures: its messages and calls, where its tokens are, and what became of them.

All is told in full size, as if nothing were hidden, beside what the view shows of it. This module
reads no file and draws no table.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from foldmark.compaction.prune import Decision, NewerCalls
from foldmark.log.log import CompletedCall, Log, handle
from foldmark.log.tool_targets import target
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Failed,
    FilePart,
    Message,
    ReasoningPart,
    SessionInfo,
    TextPart,
    Time,
    ToolPart,
    has_result,
)
from foldmark.model.values import Frozen, encode, summed
from foldmark.tokens.counters import Counter as TokenCounter

from .history import Growth, RecordedCompaction, RecordedPrune, growth, wrapping_tokens

FORMAT = "opencode"
LARGEST = 10
_LONGEST_LIFE = 10**11  # seconds; beyond it, times are nonsense
_LABEL = 160

# --- where the tokens of a log are ----------------------------------------------------------


class Kinds(Frozen):
    """Tokens by what they are; a message's own wrapping counts for who sent it."""

    user: int = 0
    assistant: int = 0
    reasoning: int = 0
    tool_input: int = 0
    tool_output: int = 0
    file: int = 0


class Fixed(Frozen):
    """What stands before the log in every request, as far as the transcript tells."""

    system: int = 0
    tools: int = 0


class Touched(Frozen):
    """The calls and outputs of tools that were about one file."""

    file: str
    tokens: int
    reads: int
    writes: int


class TokenUsage(Frozen):
    """The tokens of a whole log, nothing hidden; `fixed` is no part of the log or of the total."""

    total: int
    by_kind: Kinds
    by_tool: dict[str, int]  # a tool's calls and results, the largest first
    by_file: tuple[Touched, ...]  # the largest first
    fixed: Fixed


def fixed_tokens(info: SessionInfo | None, count: TokenCounter) -> Fixed:
    """The tokens of the system prompt and the definitions of tools, where they are told."""
    origin = info.origin if info else None
    if not origin:
        return Fixed()
    return Fixed(
        system=count(origin.system) if origin.system else 0,
        tools=count(encode(origin.tools).decode()) if origin.tools else 0,
    )


def spent(log: Log, info: SessionInfo | None = None) -> TokenUsage:
    """Where the tokens of a log are."""
    kinds: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    touched: list[Touched] = []
    for entry in log.entries.values():
        who = "user" if entry.message.is_user else "assistant"
        kinds[who] += wrapping_tokens(entry)
        for part, size in zip(entry.message.parts, entry.sizes, strict=True):
            match part:
                case ToolPart(state=state):
                    # An error cannot be pruned: its size is told together with its call's.
                    error = log.count(state.error) if isinstance(state, Failed) else 0
                    output = size.body + size.attached + error
                    kinds.update(tool_output=output, tool_input=size.total - output)
                    tools[part.tool] += size.total
                    touched += _touched(part, size.total)
                case ReasoningPart():
                    kinds["reasoning"] += size.fixed
                case FilePart():
                    kinds["file"] += size.fixed
                case _:
                    kinds[who] += size.fixed
    return TokenUsage(
        total=kinds.total(),
        by_kind=Kinds(**kinds),
        by_tool=dict(tools.most_common()),
        by_file=_by_file(touched),
        fixed=fixed_tokens(info, log.count),
    )


def _touched(part: ToolPart, tokens: int) -> Iterator[Touched]:
    """A call that is about several files counts for each of them with its share."""
    about = target(part.tool, part.state.input or {})
    reads, writes = about.act == "read", about.act == "write"
    share, rest = divmod(tokens, max(1, len(about.files)))
    for file in about.files:
        yield Touched(file=file, tokens=share + rest, reads=reads, writes=writes)
        rest = 0


def _by_file(touched: Iterable[Touched]) -> tuple[Touched, ...]:
    """Each file once, the largest first."""
    files: dict[str, list[Touched]] = {}
    for one in touched:
        files.setdefault(one.file, []).append(one)
    return tuple(sorted(map(summed, files.values()), key=lambda one: (-one.tokens, one.file)))


# --- what is needless ------------------------------------------------------------------------


class NeedlessOutput(Frozen, omit_defaults=True):
    """An output that came several times from its tool, or a read that a later call made stale."""

    session: int
    handle: str  # of the newest, where it came several times
    tool: str
    target: str
    tokens: int  # of all but the newest, where it came several times
    times: int = 0
    by: str = ""  # the handle of the call that made it stale
    reason: str = ""


class Needless(Frozen):
    """The needless outputs of one kind, each counted as often as it could be left out."""

    outputs: int
    tokens: int
    largest: tuple[NeedlessOutput, ...]


def repeats(log: Log, session: int = 1) -> Needless:
    """The outputs of a log that are the same as another one of their tool."""
    same: dict[tuple[str, str], list[CompletedCall]] = {}
    for call in log.calls.values():
        if call.tokens:
            same.setdefault((call.part.tool, call.state.output), []).append(call)
    found = [
        _output(calls[-1], session, tokens=calls[-1].tokens * (len(calls) - 1), times=len(calls))
        for calls in same.values()
        if len(calls) > 1
    ]
    return _needless(found, outputs=sum(one.times - 1 for one in found))


def superseded(log: Log, session: int = 1) -> Needless:
    """The reads of a log whose files were written since, or read again as far."""
    newer, found = NewerCalls(), list[NeedlessOutput]()
    for call in reversed(log.calls.values()):
        stale = newer.superseding(call) if call.tokens else None
        if stale is not None:
            by = handle(stale.other)
            found.append(_output(call, session, tokens=stale.tokens, by=by, reason=stale.reason))
        newer.add(call, is_pruned=False)
    return _needless(found[::-1], outputs=len(found))


def _output(call: CompletedCall, session: int, **figures: Any) -> NeedlessOutput:
    named = {"handle": handle(call.ordinal), "tool": call.part.tool, "target": call.target.label}
    return NeedlessOutput(session=session, **named, **figures)


def _needless(found: Sequence[NeedlessOutput], *, outputs: int) -> Needless:
    tokens = sum(one.tokens for one in found)
    return Needless(outputs=outputs, tokens=tokens, largest=_largest(found))


def by_reason(decisions: Iterable[Decision]) -> list[tuple[str, int, int]]:
    """The reasons, each with its outputs and their tokens; the heaviest first."""
    outputs: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for decision in decisions:
        outputs[decision.reason] += 1
        tokens[decision.reason] += decision.tokens
    return [(reason, outputs[reason], total) for reason, total in tokens.most_common()]


# --- a session in figures --------------------------------------------------------------------


class ViewSize(Frozen):
    """What the view shows: how many messages of the log, and what they cost."""

    messages: int
    tokens: int


def view_size(viewer: Viewer) -> ViewSize:
    """The size of a view as it is now."""
    shown = sum(bool(cell.shown) for cell in viewer.cells.values())
    return ViewSize(messages=shown, tokens=viewer.tokens)


class Piece(Frozen):
    """One part, and what became of it."""

    session: int
    handle: str
    name: str  # the tool, or the kind of any other part
    target: str
    tokens: int
    state: Literal["shown", "pruned", "folded"]


P = TypeVar("P", Piece, NeedlessOutput)


class Inspection(Frozen):
    """A session in figures, or several summed up; places and times are never mixed."""

    format: str
    title: str
    directory: str  # where the session worked
    models: tuple[str, ...]  # in the order in which they came
    seconds: float | None  # from the first to the last time that is known
    sessions: int
    messages: int  # these three as the transcript itself counts them, where it does
    tool_calls: int
    tool_results: int
    log: int  # messages in the log
    requests: int
    pivots: int
    pruned: int
    tokens: TokenUsage
    view: ViewSize
    largest: tuple[Piece, ...]
    duplicated: Needless
    superseded: Needless
    compactions: tuple[RecordedCompaction, ...]
    prunes: tuple[RecordedPrune, ...]


def inspection(
    viewer: Viewer,
    info: SessionInfo | None = None,
    *,
    session: int = 1,
    grown: Growth | None = None,
) -> Inspection:
    """The figures of the session that a viewer shows; its growth may be known already."""
    log = viewer.log
    parts = [part for entry in log.entries.values() for part in entry.message.parts]
    folder = (info.directory or "") if info else ""
    if grown is None and (log.pivots or log.marks):
        grown = growth(log, viewer.policy, session=session, folder=folder)
    return Inspection(
        format=(info.origin.format or FORMAT) if info and info.origin else FORMAT,
        title=(info.title or "") if info else "",
        directory=folder,
        models=tuple(dict.fromkeys(_model_names(log))),
        seconds=_seconds(log),
        sessions=1,
        messages=len(log),
        tool_calls=sum(isinstance(part, ToolPart) for part in parts),
        tool_results=sum(map(has_result, parts)),
        log=len(log),
        requests=len(log.requests.all),
        pivots=len(log.pivots),
        pruned=len(log.marks),
        tokens=spent(log, info),
        view=view_size(viewer),
        largest=tuple(_largest_parts(viewer, session)),
        duplicated=repeats(log, session),
        superseded=superseded(log, session),
        compactions=grown.compactions if grown else (),
        prunes=grown.prunes if grown else (),
    )


def inspected_together(found: Sequence[Inspection]) -> Inspection:
    """The figures of several sessions as those of one; what two of them say is no repeat."""
    if len(found) == 1:
        return found[0]
    whole = summed(found)
    return replace(
        whole,
        title="",
        directory=whole.directory if len({one.directory for one in found}) == 1 else "",
        models=tuple(dict.fromkeys(whole.models)),
        tokens=replace(whole.tokens, by_file=_by_file(whole.tokens.by_file)),
        largest=_largest(whole.largest),
        duplicated=replace(whole.duplicated, largest=_largest(whole.duplicated.largest)),
        superseded=replace(whole.superseded, largest=_largest(whole.superseded.largest)),
    )


def _largest(pieces: Iterable[P]) -> tuple[P, ...]:
    return tuple(heapq.nlargest(LARGEST, pieces, key=attrgetter("tokens")))


def newest_model(log: Log) -> str | None:
    """The model that the session has come to, as `provider:model`."""
    return next(iter(list(_model_names(log))[::-1]), None)


def _model_names(log: Log) -> Iterator[str]:
    """The model of every message that names one, oldest first; not those that wrote summaries."""
    for info in (entry.message.info for entry in log.entries.values()):
        if not isinstance(info, AssistantInfo):
            if info.model:
                yield f"{info.model.provider_id}:{info.model.model_id}"
        elif info.model_id and not info.summary:
            yield f"{info.provider_id}:{info.model_id}" if info.provider_id else info.model_id


def _seconds(log: Log) -> float | None:
    times = [entry.message.info.time or Time() for entry in log.entries.values()]
    moments = [moment for time in times for moment in (time.created, time.completed) if moment]
    seconds = (max(moments) - min(moments)) / 1000 if moments else _LONGEST_LIFE
    return seconds if seconds < _LONGEST_LIFE else None


def _largest_parts(viewer: Viewer, session: int) -> Iterator[Piece]:
    log, cells = viewer.log, viewer.cells
    sized = (
        (size.total, entry, offset)
        for entry in log.entries.values()
        for offset, size in enumerate(entry.sizes)
        if size.total
    )
    for tokens, entry, offset in heapq.nlargest(LARGEST, sized, key=itemgetter(0)):
        ordinal = entry.ordinal + offset
        name, label = _named(entry.message, offset)
        state = "pruned" if ordinal in log.marks else "shown"
        yield Piece(
            session=session,
            handle=handle(ordinal),
            name=name,
            target=label,
            tokens=tokens,
            state=state if entry.index in cells else "folded",
        )


def _named(message: Message, offset: int) -> tuple[str, str]:
    """What a part is called, and what it is about."""
    match message.parts[offset]:
        case ToolPart() as part:
            return part.tool, target(part.tool, part.state.input or {}).label
        case ReasoningPart() as part:
            return "reasoning", part.text[:_LABEL]
        case FilePart() as part:
            return "file", part.filename or part.mime
        case TextPart() as part:
            return "user" if message.is_user else "assistant", part.text[:_LABEL]
        case _:
            return "other", ""
