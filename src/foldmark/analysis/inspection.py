"""The figures of a session: messages, calls, and where its tokens are.

Figures are for the whole log, as if nothing were hidden, and beside them for the view. This
module reads no file and draws no table.
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
from foldmark.model.values import Frozen, encode, sum_fields
from foldmark.tokens.counters import Counter as TokenCounter

from .history import Growth, RecordedCompaction, RecordedPrune, growth, wrapping_tokens

FORMAT = "opencode"
LARGEST = 10
_MAX_SECONDS = 10**11  # seconds; longer times are invalid
_LABEL = 160

# --- where the tokens of a log are ----------------------------------------------------------


class TokensByKind(Frozen):
    """Tokens by kind; the wrapping of a message counts for its role."""

    user: int = 0
    assistant: int = 0
    reasoning: int = 0
    tool_input: int = 0
    tool_output: int = 0
    file: int = 0


class FixedTokens(Frozen):
    """Tokens of the system prompt and the tools in every request, if recorded."""

    system: int = 0
    tools: int = 0


class FileUsage(Frozen):
    """The tool calls and outputs that concern one file."""

    file: str
    tokens: int
    reads: int
    writes: int


class TokenUsage(Frozen):
    """The tokens of a whole log, with nothing hidden; `fixed` is not part of the total."""

    total: int
    by_kind: TokensByKind
    by_tool: dict[str, int]  # calls and results, largest first
    by_file: tuple[FileUsage, ...]  # largest first
    fixed: FixedTokens


def fixed_tokens(info: SessionInfo | None, count: TokenCounter) -> FixedTokens:
    """The tokens of the recorded system prompt and tool definitions."""
    origin = info.origin if info else None
    if not origin:
        return FixedTokens()
    return FixedTokens(
        system=count(origin.system) if origin.system else 0,
        tools=count(encode(origin.tools).decode()) if origin.tools else 0,
    )


def token_usage(log: Log, info: SessionInfo | None = None) -> TokenUsage:
    """The tokens of a log by kind, tool and file."""
    kinds: Counter[str] = Counter()
    tools: Counter[str] = Counter()
    files: list[FileUsage] = []
    for entry in log.entries.values():
        role = "user" if entry.message.is_user else "assistant"
        kinds[role] += wrapping_tokens(entry)
        for part, size in zip(entry.message.parts, entry.sizes, strict=True):
            match part:
                case ToolPart(state=state):
                    # An error cannot be pruned, so `size` counts it as part of the call.
                    error = log.count(state.error) if isinstance(state, Failed) else 0
                    output = size.body + size.attached + error
                    kinds.update(tool_output=output, tool_input=size.total - output)
                    tools[part.tool] += size.total
                    files += _file_usage(part, size.total)
                case ReasoningPart():
                    kinds["reasoning"] += size.fixed
                case FilePart():
                    kinds["file"] += size.fixed
                case _:
                    kinds[role] += size.fixed
    return TokenUsage(
        total=kinds.total(),
        by_kind=TokensByKind(**kinds),
        by_tool=dict(tools.most_common()),
        by_file=_by_file(files),
        fixed=fixed_tokens(info, log.count),
    )


def _file_usage(part: ToolPart, tokens: int) -> Iterator[FileUsage]:
    """The files of a call, each with its share of the tokens."""
    subject = target(part.tool, part.state.input or {})
    reads, writes = subject.access == "read", subject.access == "write"
    share, remainder = divmod(tokens, max(1, len(subject.files)))
    for file in subject.files:
        yield FileUsage(file=file, tokens=share + remainder, reads=reads, writes=writes)
        remainder = 0


def _by_file(usages: Iterable[FileUsage]) -> tuple[FileUsage, ...]:
    """The usage summed up by file, largest first."""
    files: dict[str, list[FileUsage]] = {}
    for usage in usages:
        files.setdefault(usage.file, []).append(usage)
    return tuple(sorted(map(sum_fields, files.values()), key=lambda use: (-use.tokens, use.file)))


# --- wasted tokens ---------------------------------------------------------------------------


class WastedOutput(Frozen, omit_defaults=True):
    """An output that its tool gave several times, or a read that a later call superseded."""

    session: int
    handle: str  # of the newest copy of a repeated output
    tool: str
    target: str
    tokens: int  # of a repeated output: all copies but the newest
    times: int = 0
    by: str = ""  # the handle of the superseding call
    reason: str = ""


class OutputWaste(Frozen):
    """The wasted outputs of one kind, and how many could be left out."""

    outputs: int
    tokens: int
    largest: tuple[WastedOutput, ...]


def repeats(log: Log, session: int = 1) -> OutputWaste:
    """The outputs of a log that equal another output of the same tool."""
    same: dict[tuple[str, str], list[CompletedCall]] = {}
    for call in log.calls.values():
        if call.tokens:
            same.setdefault((call.part.tool, call.state.output), []).append(call)
    outputs = [
        _output(calls[-1], session, tokens=calls[-1].tokens * (len(calls) - 1), times=len(calls))
        for calls in same.values()
        if len(calls) > 1
    ]
    return _waste(outputs, outputs=sum(output.times - 1 for output in outputs))


def superseded(log: Log, session: int = 1) -> OutputWaste:
    """The reads of a log whose files were later written, or read again to the same extent."""
    newer, outputs = NewerCalls(), list[WastedOutput]()
    for call in reversed(log.calls.values()):
        stale = newer.superseding(call) if call.tokens else None
        if stale is not None:
            by = handle(stale.other)
            outputs.append(_output(call, session, tokens=stale.tokens, by=by, reason=stale.reason))
        newer.add(call, is_pruned=False)
    return _waste(outputs[::-1], outputs=len(outputs))


def _output(call: CompletedCall, session: int, **figures: Any) -> WastedOutput:
    fields = {"handle": handle(call.ordinal), "tool": call.part.tool, "target": call.target.label}
    return WastedOutput(session=session, **fields, **figures)


def _waste(items: Sequence[WastedOutput], *, outputs: int) -> OutputWaste:
    tokens = sum(item.tokens for item in items)
    return OutputWaste(outputs=outputs, tokens=tokens, largest=_largest(items))


def by_reason(decisions: Iterable[Decision]) -> list[tuple[str, int, int]]:
    """Each reason with its number of outputs and their tokens, largest first."""
    outputs: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for decision in decisions:
        outputs[decision.reason] += 1
        tokens[decision.reason] += decision.tokens
    return [(reason, outputs[reason], total) for reason, total in tokens.most_common()]


# --- the figures of a session ----------------------------------------------------------------


class ViewSize(Frozen):
    """How many messages of the log are in the view, and their tokens."""

    messages: int
    tokens: int


def view_size(viewer: Viewer) -> ViewSize:
    """The current size of a view."""
    messages = sum(bool(cell.messages) for cell in viewer.cells.values())
    return ViewSize(messages=messages, tokens=viewer.tokens)


class LargePart(Frozen):
    """One of the largest parts, and whether the view shows it."""

    session: int
    handle: str
    name: str  # the tool, or the kind of part
    target: str
    tokens: int
    state: Literal["shown", "pruned", "folded"]


P = TypeVar("P", LargePart, WastedOutput)


class Inspection(Frozen):
    """The figures of one session, or the sums of several."""

    format: str
    title: str
    directory: str  # where the session worked
    models: tuple[str, ...]  # in order of first use
    seconds: float | None  # from the first to the last recorded time
    sessions: int
    messages: int  # these three as the transcript counts them, if it does
    tool_calls: int
    tool_results: int
    log: int  # messages in the log
    requests: int
    pivots: int
    pruned: int
    tokens: TokenUsage
    view: ViewSize
    largest: tuple[LargePart, ...]
    duplicated: OutputWaste
    superseded: OutputWaste
    compactions: tuple[RecordedCompaction, ...]
    prunes: tuple[RecordedPrune, ...]


def inspection(
    viewer: Viewer,
    info: SessionInfo | None = None,
    *,
    session: int = 1,
    history: Growth | None = None,
) -> Inspection:
    """The figures of the session in a viewer; pass its `growth` if already computed."""
    log = viewer.log
    parts = [part for entry in log.entries.values() for part in entry.message.parts]
    folder = (info.directory or "") if info else ""
    if history is None and (log.pivots or log.marks):
        history = growth(log, viewer.policy, session=session, folder=folder)
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
        tokens=token_usage(log, info),
        view=view_size(viewer),
        largest=tuple(_largest_parts(viewer, session)),
        duplicated=repeats(log, session),
        superseded=superseded(log, session),
        compactions=history.compactions if history else (),
        prunes=history.prunes if history else (),
    )


def combined_inspection(inspections: Sequence[Inspection]) -> Inspection:
    """The combined figures of several sessions; equal outputs of two sessions are not repeats."""
    if len(inspections) == 1:
        return inspections[0]
    total = sum_fields(inspections)
    return replace(
        total,
        title="",
        directory=total.directory if len({each.directory for each in inspections}) == 1 else "",
        models=tuple(dict.fromkeys(total.models)),
        tokens=replace(total.tokens, by_file=_by_file(total.tokens.by_file)),
        largest=_largest(total.largest),
        duplicated=replace(total.duplicated, largest=_largest(total.duplicated.largest)),
        superseded=replace(total.superseded, largest=_largest(total.superseded.largest)),
    )


def _largest(items: Iterable[P]) -> tuple[P, ...]:
    return tuple(heapq.nlargest(LARGEST, items, key=attrgetter("tokens")))


def newest_model(log: Log) -> str | None:
    """The model that the session used last, as `provider:model`."""
    return next(iter(list(_model_names(log))[::-1]), None)


def _model_names(log: Log) -> Iterator[str]:
    """The model of each message that names one, oldest first, except summaries."""
    for info in (entry.message.info for entry in log.entries.values()):
        if not isinstance(info, AssistantInfo):
            if info.model:
                yield f"{info.model.provider_id}:{info.model.model_id}"
        elif info.model_id and not info.summary:
            yield f"{info.provider_id}:{info.model_id}" if info.provider_id else info.model_id


def _seconds(log: Log) -> float | None:
    times = [entry.message.info.time or Time() for entry in log.entries.values()]
    moments = [moment for time in times for moment in (time.created, time.completed) if moment]
    seconds = (max(moments) - min(moments)) / 1000 if moments else _MAX_SECONDS
    return seconds if seconds < _MAX_SECONDS else None


def _largest_parts(viewer: Viewer, session: int) -> Iterator[LargePart]:
    log, cells = viewer.log, viewer.cells
    sized = (
        (size.total, entry, offset)
        for entry in log.entries.values()
        for offset, size in enumerate(entry.sizes)
        if size.total
    )
    for tokens, entry, offset in heapq.nlargest(LARGEST, sized, key=itemgetter(0)):
        ordinal = entry.ordinal + offset
        name, label = _part_label(entry.message, offset)
        state = "pruned" if ordinal in log.marks else "shown"
        yield LargePart(
            session=session,
            handle=handle(ordinal),
            name=name,
            target=label,
            tokens=tokens,
            state=state if entry.index in cells else "folded",
        )


def _part_label(message: Message, offset: int) -> tuple[str, str]:
    """The name of a part, and its target or the start of its text."""
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
