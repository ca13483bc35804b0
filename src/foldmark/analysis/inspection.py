"""A session in figures: its messages and calls, where its tokens are, and what became of them.

All is told in full size, as if nothing were hidden, beside what the view shows of it. This module
reads no file and draws no table.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from foldmark.compaction.prune import Decision, NewerCalls
from foldmark.log.log import CompletedCall, Log, handle
from foldmark.log.tool_targets import target
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Number,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
)
from foldmark.model.values import Frozen

from .history import Growth, RecordedCompaction, RecordedPrune, growth
from .token_usage import TokenUsage, files_together, spent


class NeedlessOutput(Frozen):
    """An output that is needless, by its session and place."""

    session: int
    handle: str
    tool: str
    target: str


class Group(NeedlessOutput):
    """An output that came several times from the same tool, described by its newest."""

    times: int
    tokens: int  # of all but one


class Repeats(Frozen):
    """The outputs that are the same as another one of their tool."""

    outputs: int = 0  # all but one of each
    tokens: int = 0
    largest: tuple[Group, ...] = ()


class Stale(NeedlessOutput):
    """A read whose file was written since, or read again as far."""

    tokens: int
    by: str  # the handle of the call that made it stale
    reason: str


class Superseded(Frozen):
    """The outputs that later calls have made stale."""

    outputs: int = 0
    tokens: int = 0
    largest: tuple[Stale, ...] = ()


def repeats(log: Log, session: int = 1) -> Repeats:
    """The outputs of a log that stand there more than once."""
    times: Counter[tuple[str, str]] = Counter()
    newest: dict[tuple[str, str], CompletedCall] = {}
    for tool in log.calls.values():
        if tool.tokens:
            key = (tool.part.tool, tool.state.output)
            times[key] += 1
            newest[key] = tool
    groups = [
        Group(
            **_named_output(call, session), times=times[key], tokens=call.tokens * (times[key] - 1)
        )
        for key, call in newest.items()
        if times[key] > 1
    ]
    return Repeats(
        outputs=sum(group.times - 1 for group in groups),
        tokens=sum(group.tokens for group in groups),
        largest=_most_tokens(groups),
    )


def superseded(log: Log, session: int = 1) -> Superseded:
    """The outputs of a log whose files were read again or written since."""
    stale = list(_stale(log, session))[::-1]
    return Superseded(
        outputs=len(stale),
        tokens=sum(one.tokens for one in stale),
        largest=_most_tokens(stale),
    )


def _named_output(call: CompletedCall, session: int) -> dict[str, Any]:
    return {
        "session": session,
        "handle": handle(call.ordinal),
        "tool": call.part.tool,
        "target": call.target.label,
    }


def _stale(log: Log, session: int) -> Iterator[Stale]:
    """Stale reads, the newest first."""
    newer = NewerCalls()
    for call in reversed(log.calls.values()):
        found = newer.superseding(call) if call.tokens else None
        if found is not None:
            yield Stale(
                **_named_output(call, session),
                tokens=found.tokens,
                by=handle(found.other),
                reason=found.reason,
            )
        newer.add(call, is_pruned=False)


class Alike(Frozen):
    """Outputs of which the same becomes, for one reason."""

    reason: str
    outputs: int
    tokens: int


def by_reason(decisions: Iterable[Decision]) -> list[Alike]:
    """The reasons, each with its outputs and tokens; the heaviest first."""
    grouped: dict[str, list[int]] = {}
    for held in decisions:
        grouped.setdefault(held.reason, []).append(held.tokens)
    found = [
        Alike(reason=reason, outputs=len(tokens), tokens=sum(tokens))
        for reason, tokens in grouped.items()
    ]
    return sorted(found, key=lambda held: -held.tokens)


# --- a session in figures: its messages and calls, where its tokens are, and what became of them --

State = Literal["shown", "pruned", "folded"]

FORMAT = "opencode"
LARGEST = 10
_LONGEST_LIFE = 10**11  # seconds; beyond it, times are nonsense
_LABEL = 160


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
    state: State


S = TypeVar("S", bound=Struct)
P = TypeVar("P", Piece, Group, Stale)


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
    duplicated: Repeats
    superseded: Superseded
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
    states = [part.state for part in _tool_parts(log)]
    folder = (info.directory or "") if info else ""
    if grown is None and (log.pivots or log.marks):
        grown = growth(log, viewer.policy, session=session, folder=folder)
    return Inspection(
        format=(info.origin.format or FORMAT) if info and info.origin else FORMAT,
        title=(info.title or "") if info else "",
        directory=folder,
        models=tuple(dict.fromkeys(model_names(log))),
        seconds=_seconds(log),
        sessions=1,
        messages=len(log),
        tool_calls=len(states),
        tool_results=sum(isinstance(state, Completed | Failed) for state in states),
        log=len(log),
        requests=len(log.requests.all),
        pivots=len(log.pivots),
        pruned=len(log.marks),
        tokens=spent(log, info),
        view=view_size(viewer),
        largest=_largest(viewer, session),
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
    times = [one.seconds for one in found if one.seconds is not None]
    return replace(
        whole,
        title="",
        directory=whole.directory if len({one.directory for one in found}) == 1 else "",
        models=tuple(dict.fromkeys(whole.models)),
        seconds=sum(times) if times else None,
        tokens=replace(whole.tokens, by_file=files_together(whole.tokens.by_file)),
        largest=_most_tokens(whole.largest),
        duplicated=replace(whole.duplicated, largest=_most_tokens(whole.duplicated.largest)),
        superseded=replace(whole.superseded, largest=_most_tokens(whole.superseded.largest)),
    )


def summed(structs: Sequence[S]) -> S:
    """Structs added field by field: figures are summed, tuples joined, other values the first."""
    first = structs[0]
    fields = {
        name: _sum([getattr(one, name) for one in structs]) for name in first.__struct_fields__
    }
    return replace(first, **fields)


def _sum(values: Sequence[Any]) -> object:
    match values[0]:
        case Struct():
            return summed(values)
        case int():
            return sum(values)
        case tuple():
            return tuple(chain.from_iterable(values))
        case dict():
            tallies: Counter[str] = Counter()
            for value in values:
                tallies.update(value)
            return dict(tallies.most_common())
        case value:
            return value


def _most_tokens(pieces: Iterable[P]) -> tuple[P, ...]:
    return tuple(heapq.nlargest(LARGEST, pieces, key=lambda piece: piece.tokens))


# --- models and times ----------------------------------------------------------------------


def model_names(log: Log) -> Iterator[str]:
    """The model of every message that names one, oldest first; not those that wrote summaries."""
    for entry in log.entries.values():
        if name := _model_name(entry.message):
            yield name


def newest_model(log: Log) -> str | None:
    """The model that the session has come to, as `provider:model`."""
    return next(
        filter(None, (_model_name(entry.message) for entry in reversed(log.entries.values()))), None
    )


def _model_name(message: Message) -> str | None:
    info = message.info
    if not isinstance(info, AssistantInfo):
        return f"{info.model.provider_id}:{info.model.model_id}" if info.model else None
    if info.summary or not info.model_id:
        return None
    return f"{info.provider_id}:{info.model_id}" if info.provider_id else info.model_id


def _seconds(log: Log) -> float | None:
    times: list[Number] = []
    for entry in log.entries.values():
        if time := entry.message.info.time:
            times.extend(moment for moment in (time.created, time.completed) if moment)
    seconds = (max(times) - min(times)) / 1000 if times else None
    return seconds if seconds is not None and seconds < _LONGEST_LIFE else None


# --- parts ---------------------------------------------------------------------------------


def _tool_parts(log: Log) -> Iterator[ToolPart]:
    for entry in log.entries.values():
        for part in entry.message.parts:
            if isinstance(part, ToolPart):
                yield part


def _largest(viewer: Viewer, session: int) -> tuple[Piece, ...]:
    sized = (
        (size.total, -entry.ordinal - offset)
        for entry in viewer.log.entries.values()
        for offset, size in enumerate(entry.sizes)
    )
    largest = heapq.nlargest(LARGEST, (pair for pair in sized if pair[0]))
    return tuple(_pieces(viewer, largest, session))


def _pieces(viewer: Viewer, sized: Iterable[tuple[int, int]], session: int) -> Iterator[Piece]:
    log, places = viewer.log, viewer.cells
    for tokens, negated in sized:
        found = log.part_at(-negated)
        if found is None:
            continue
        entry, offset = found
        name, label = _named(entry.message, offset)
        yield Piece(
            session=session,
            handle=handle(-negated),
            name=name,
            target=label,
            tokens=tokens,
            state=_state(log, -negated, is_shown=entry.index in places),
        )


def _state(log: Log, ordinal: int, *, is_shown: bool) -> State:
    if not is_shown:
        return "folded"
    return "pruned" if ordinal in log.marks else "shown"


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
