"""Where the tokens of a session are: its messages, calls and marks in figures.

All is told in full size, as if nothing were hidden, beside what the view shows of it. Sizes come
from the log. This module reads no file and draws no table.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from .log import Entry, Log, handle
from .messages import (
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
from .sizes import MESSAGE_OVERHEAD
from .targets import target
from .tokens import Counter as TokenCounter
from .values import Frozen
from .view import Viewer

Kind = Literal["user", "assistant", "reasoning", "tool_input", "tool_output", "file"]
State = Literal["shown", "pruned", "folded"]

FORMAT = "opencode"
LARGEST = 10
_LONGEST_LIFE = 10**11  # seconds; beyond it, times are nonsense
_LABEL = 160


class Kinds(Frozen):
    """Tokens by what they are; a message's own wrapping counts for who sent it."""

    user: int = 0
    assistant: int = 0
    reasoning: int = 0
    tool_input: int = 0
    tool_output: int = 0
    file: int = 0


class Spent(Frozen):
    """The tokens of a whole log, nothing hidden."""

    total: int
    by_kind: Kinds
    by_tool: dict[str, int]  # a tool's calls and results, the largest first


class Seen(Frozen):
    """What the view shows: how many messages of the log, and what they cost."""

    messages: int
    tokens: int


class Piece(Frozen):
    """One part, and what became of it."""

    handle: str
    name: str  # the tool, or the kind of any other part
    target: str
    tokens: int
    state: State


class Folded(Frozen):
    """A pivot by its places in the log, and the tokens of its summary."""

    marker: int
    summary: int
    tail: int | None
    tokens: int


class Inspection(Frozen):
    """A session in figures."""

    format: str
    title: str
    directory: str  # where the session worked
    models: tuple[str, ...]  # in the order in which they came
    seconds: float | None  # from the first to the last time that is known
    messages: int
    requests: int
    tool_calls: int
    tool_results: int
    pivots: int
    pruned: int
    tokens: Spent
    view: Seen
    largest: tuple[Piece, ...]
    folds: tuple[Folded, ...]


def inspection(viewer: Viewer, info: SessionInfo | None = None) -> Inspection:
    """The figures of the session that a viewer shows."""
    log = viewer.log
    states = [part.state for part in _tool_parts(log)]
    return Inspection(
        format=FORMAT,
        title=(info.title or "") if info else "",
        directory=(info.directory or "") if info else "",
        models=tuple(dict.fromkeys(model_names(log))),
        seconds=_seconds(log),
        messages=len(log),
        requests=len(log.requests.all),
        tool_calls=len(states),
        tool_results=sum(isinstance(state, Completed | Failed) for state in states),
        pivots=len(log.pivots),
        pruned=len(log.marks),
        tokens=_spent(log),
        view=Seen(
            messages=sum(bool(cell.shown) for cell in viewer.cells.values()),
            tokens=viewer.view().tokens,
        ),
        largest=_largest(viewer),
        folds=tuple(_folds(log)),
    )


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


# --- tokens --------------------------------------------------------------------------------


def _spent(log: Log) -> Spent:
    kinds: Counter[Kind] = Counter()
    tools: Counter[str] = Counter()
    for entry in log.entries.values():
        kinds["user" if entry.message.is_user else "assistant"] += _overhead(entry)
        for part, size in zip(entry.message.parts, entry.sizes, strict=True):
            match part:
                case ToolPart():
                    output = size.body + size.attached + _error_tokens(part, log.count)
                    kinds["tool_output"] += output
                    kinds["tool_input"] += size.total - output
                    tools[part.tool] += size.total
                case ReasoningPart():
                    kinds["reasoning"] += size.fixed
                case FilePart():
                    kinds["file"] += size.fixed
                case _:
                    kinds["user" if entry.message.is_user else "assistant"] += size.fixed
    return Spent(total=kinds.total(), by_kind=Kinds(**kinds), by_tool=dict(tools.most_common()))


def _error_tokens(part: ToolPart, count: TokenCounter) -> int:
    """The tokens of an error, which a size holds together with its call's."""
    return count(part.state.error) if isinstance(part.state, Failed) else 0


def _overhead(entry: Entry) -> int:
    """What the wrapping of a message costs; results travel in a message of their own."""
    said = any(size.fixed for size in entry.sizes)
    has_results = any(isinstance(part, ToolPart) for part in entry.message.parts)
    return MESSAGE_OVERHEAD * (said + has_results)


def _tool_parts(log: Log) -> Iterator[ToolPart]:
    for entry in log.entries.values():
        for part in entry.message.parts:
            if isinstance(part, ToolPart):
                yield part


# --- the largest parts, and the pivots -----------------------------------------------------


def _largest(viewer: Viewer) -> tuple[Piece, ...]:
    sized = (
        (size.total, -entry.ordinal - offset)
        for entry in viewer.log.entries.values()
        for offset, size in enumerate(entry.sizes)
    )
    places = set(viewer.view().places)
    largest = heapq.nlargest(LARGEST, (pair for pair in sized if pair[0]))
    return tuple(_pieces(viewer.log, places, largest))


def _pieces(log: Log, places: set[int], sized: Iterable[tuple[int, int]]) -> Iterator[Piece]:
    for tokens, negated in sized:
        found = log.part_at(-negated)
        if found is None:
            continue
        entry, offset = found
        name, label = _named(entry.message, offset)
        yield Piece(
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


def _folds(log: Log) -> Iterator[Folded]:
    for pivot in log.pivots:
        yield Folded(
            marker=pivot.marker,
            summary=pivot.summary,
            tail=None if pivot.tail_id is None else log.place(pivot.tail_id, below=pivot.marker),
            tokens=sum(size.fixed for size in log.entries[pivot.summary].sizes),
        )
