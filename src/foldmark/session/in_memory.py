"""Makes a transcript fit a window once, in memory: no store, no lease, no queued markers.

Takes the same steps as a stored session: prune, then compact if that is not enough.
`fit_transcript` also reports where each token went. The messages of the transcript do not change.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from foldmark.analysis.inspection import ViewSize, fixed_tokens, newest_model, view_size
from foldmark.compaction.fit import fit, is_full
from foldmark.compaction.fold import tokens_used
from foldmark.compaction.pivot import append_pivot
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest, prepare
from foldmark.digest.previous import BEGINNING
from foldmark.errors import BadInput, WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.render import message_text
from foldmark.log.view import BEGINNING as FIRST
from foldmark.log.view import CONTINUE, NO_REPLY, NOTE_TOKENS, Viewer
from foldmark.model.messages import SessionInfo, ToolPart, Transcript
from foldmark.model.prompt_messages import ToolDeclaration, ToolMessage, message_texts
from foldmark.model.values import Frozen, sum_fields
from foldmark.policy import Policy
from foldmark.providers.driver import drive
from foldmark.providers.models import limits_name
from foldmark.summary.fallback import ModelUsage, Summary, summarize
from foldmark.summary.protocol import Summarizer, TextHandler
from foldmark.tokens.budget import usable
from foldmark.tokens.limits import Limit, limits_or_default, limits_with_window
from foldmark.wire.tools import tool_declarations

from .compactor import summarizer_limits

_REPLY_SHARE = 4  # if the reserve leaves less than 1/4 of the window, it becomes 1/4
_NOTES = {(NO_REPLY,), (CONTINUE,), (FIRST,)}
_SHORT_DIGEST = re.compile(r"\[[^\n\]]*\]")  # the shortest form of a digest


class CompactionOutcome(NamedTuple):
    """How a view was made to fit; nothing was pruned or summarized if it did fit."""

    before: ViewSize
    after: ViewSize
    pruned: tuple[int, ...] = ()  # ordinals
    summaries: tuple[Summary, ...] = ()  # one for each pass


def fit_view(
    request: CompactionRequest,
    summarizer: Summarizer | None = None,
    *,
    delta: TextHandler = lambda _: None,
) -> CompactionOutcome:
    """Prune a view, and compact it if that is not enough; without a summarizer, into a digest.

    Raises WindowTooSmall if it cannot be made to fit.
    """
    viewer, log = request.viewer, request.viewer.log
    before = view_size(viewer)
    pruned: tuple[int, ...] = ()
    summaries: list[Summary] = []
    limits = summarizer_limits(request, summarizer)

    def look() -> tuple[CompactionRequest, int]:
        # Usage measured by another program would include its own prompt and tools.
        return request, viewer.tokens + request.fixed

    for step in fit(look):
        if isinstance(step, Prune):
            pruned = tuple(step.ordinals)
            log.mark(pruned, at=1)
        else:
            summary = drive(summarize(prepare(step), limits), summarizer, on_text=delta)
            tail, budget = summary.fold.tail_start, summary.user_text
            append_pivot(log, summary.text, tail_start=tail, user_text=budget)
            summaries.append(summary)
    if is_full(*look()):
        budget = request.target or request.budget
        raise WindowTooSmall(usable=budget, fixed=viewer.tokens + request.fixed, largest="the view")
    return CompactionOutcome(before, view_size(viewer), pruned, tuple(summaries))


# --- transcripts, and where their tokens went ----------------------------------------------


class FitGoal(Frozen):
    """The window or size to fit, and the summarizer; without one, summaries are digests."""

    policy: Policy
    window: int | None = None
    target: int | None = None
    model: str | None = None
    instructions: str = ""
    summarizer: Summarizer | None = None


class ViewShares(Frozen):
    """The tokens of each kind of content in the view."""

    words: int = 0  # the user's text, carried across a pivot
    summary: int = 0  # written by a model
    digest: int = 0
    kept: int = 0  # verbatim messages
    placeholders: int = 0  # for pruned outputs
    notes: int = 0  # between messages, where providers need them


class TokenFates(Frozen):
    """What happened to the tokens of the old view."""

    kept: int
    pruned: int
    folded: int


class FitReport(Frozen):
    """A session that fits now, and how it was made to fit."""

    info: SessionInfo
    viewer: Viewer
    goal: FitGoal
    model: str
    limit: Limit
    usable: int
    fixed: int
    used: int  # tokens of the next request, as they were
    outcome: CompactionOutcome
    folded_indexes: tuple[int, ...]  # of messages with content
    fates: TokenFates
    shares: ViewShares

    @property
    def summary(self) -> str | None:
        """The text of the last summary, or None."""
        return self.outcome.summaries[-1].text if self.outcome.summaries else None

    @property
    def usage(self) -> ModelUsage:
        """The model usage of all passes."""
        return sum_fields([ModelUsage(), *(summary.usage for summary in self.outcome.summaries)])


def fit_transcript(
    transcript: Transcript,
    log: Log,
    goal: FitGoal,
    *,
    file: str = "",
    delta: TextHandler = lambda _: None,
) -> FitReport:
    """Make a session fit; raises WindowTooSmall or CompactionStopped if it cannot."""
    info, model = transcript.info, goal.model or newest_model(log) or ""
    limit = _limit(model, goal, file)
    overhead = fixed_tokens(info, log.count)
    fixed = overhead.system + overhead.tools
    budget = usable(goal.policy, limit, model)
    viewer = Viewer(log, goal.policy, model=model, usable=budget)
    before = {index: cell.tokens for index, cell in viewer.cells.items()}
    used = tokens_used(viewer, fixed=fixed)
    request = CompactionRequest(
        viewer=viewer,
        limit=limit,
        model=model,
        fixed=fixed,
        target=goal.target,
        instructions=goal.instructions,
        system=(info.origin.system or "") if info.origin else "",
        tools=_tools(info),
    )
    if limit.context and request.budget <= fixed:
        largest = "the system prompt and the tools"
        raise WindowTooSmall(usable=request.budget, fixed=fixed, largest=largest)
    outcome = fit_view(request, goal.summarizer, delta=delta)
    folded = {index for summary in outcome.summaries for index in summary.fold.head_indexes}
    return FitReport(
        info=info,
        viewer=viewer,
        goal=goal,
        model=model,
        limit=limit,
        usable=budget,
        fixed=fixed,
        used=used,
        outcome=outcome,
        folded_indexes=tuple(sorted(index for index in folded if before.get(index))),
        fates=_token_fates(before, viewer),
        shares=_shares(viewer),
    )


def _limit(model: str, goal: FitGoal, file: str) -> Limit:
    if goal.window is not None:
        limit = limits_with_window(limits_name(model), goal.window)
        if usable(goal.policy, limit, model) * _REPLY_SHARE >= limit.context:
            return limit
        # In a small window, a reserve for the replies of a larger model would leave nothing.
        return replace(limit, output=max(1, limit.context // _REPLY_SHARE))
    if not model and goal.target is None:
        cause = "no message names a model; give --window N or --model PROVIDER:NAME"
        raise BadInput(cause, source=file or None)
    is_explicit = goal.target is None or bool(goal.model)  # a target alone needs no model
    return limits_or_default(limits_name(model), is_explicit=is_explicit)


def _tools(info: SessionInfo) -> tuple[ToolDeclaration, ...]:
    tools: Any = info.origin.tools if info.origin else None
    try:
        return tool_declarations(cast("list[object]", tools)) if isinstance(tools, list) else ()
    except BadInput:
        return ()  # in no known API format


def _token_fates(before: Mapping[int, int], viewer: Viewer) -> TokenFates:
    view, cells = viewer.view(), viewer.cells
    pivot = () if view.pivot is None else (view.pivot.marker, view.pivot.summary)
    visible = {index: cells[index].tokens for index in before if index in cells}
    hidden = sum(before[index] - tokens for index, tokens in visible.items() if index not in pivot)
    folded = sum(tokens for index, tokens in before.items() if index not in visible)
    return TokenFates(kept=sum(visible.values()), pruned=hidden, folded=folded)


def _shares(viewer: Viewer) -> ViewShares:
    """The tokens of each kind of content in the view."""
    view, cells, log = viewer.view(), viewer.cells, viewer.log
    placeholders = _placeholders(viewer)
    total = sum(cell.tokens for cell in cells.values())
    # Besides its cells, a view has notes, and the open request if that was folded.
    other_tokens = viewer.tokens - total
    if (pivot := view.pivot) is None:
        return ViewShares(kept=total - placeholders, placeholders=placeholders, notes=other_tokens)
    notes = sum(tuple(message_texts(message)) in _NOTES for message in view.messages)
    notes = min(other_tokens, NOTE_TOKENS * notes)
    marker, summary = cells[pivot.marker].tokens, cells[pivot.summary].tokens
    digest = _digest_tokens(message_text(log.entries[pivot.summary].message), summary, log)
    return ViewShares(
        words=marker + other_tokens - notes,
        summary=summary - digest,
        digest=digest,
        kept=total - marker - summary - placeholders,
        placeholders=placeholders,
        notes=notes,
    )


def _digest_tokens(text: str, whole: int, log: Log) -> int:
    """The tokens of the digest at the end of a summary, which may be a digest only."""
    if text.startswith(BEGINNING) or _SHORT_DIGEST.fullmatch(text):
        return whole
    before, heading, digest = text.rpartition(f"\n\n{BEGINNING}")
    return min(whole, log.count(heading + digest)) if before else 0


def _placeholders(viewer: Viewer) -> int:
    """The tokens of the placeholders for pruned outputs."""
    log, tokens = viewer.log, 0
    for index, cell in viewer.cells.items():
        entry = log.entries[index]
        messages = (message for message in cell.messages if isinstance(message, ToolMessage))
        results = [result for message in messages for result in message.content]
        ordinals = [
            entry.ordinal + offset
            for offset, part in enumerate(entry.message.parts)
            if isinstance(part, ToolPart)
        ]
        for ordinal, result in zip(ordinals, results, strict=False):
            if ordinal in log.marks:
                tokens += log.count(result.output.value)
    return tokens
