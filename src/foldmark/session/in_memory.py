"""A list of messages made to fit once, in memory: no store, no lease, no marker that waits.

The same steps as a stored session takes: prune where that is enough, else fold. `fit_transcript`
tells beside it where each token went. It draws nothing and writes nothing; the transcript's own
messages stay as they are.
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
from foldmark.log.view import GO_ON, NO_REPLY, NOTE_TOKENS, Viewer
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

_ANSWER_SHARE = 4  # of a window whose reserve would leave less than this share, it gets one
_NOTES = {(NO_REPLY,), (GO_ON,), (FIRST,)}
_SHORT_DIGEST = re.compile(r"\[[^\n\]]*\]")  # a digest that had no room


class CompactionOutcome(NamedTuple):
    """What was done to make a view fit; nothing, where it did."""

    before: ViewSize
    after: ViewSize
    pruned: tuple[int, ...] = ()  # ordinals
    folded: tuple[Summary, ...] = ()  # one for each pass


def fit_view(
    request: CompactionRequest,
    summarizer: Summarizer | None = None,
    *,
    delta: TextHandler = lambda _: None,
) -> CompactionOutcome:
    """Prune a view, and fold where that is not enough; WindowTooSmall where nothing is.

    Without a summarizer a digest is made.
    """
    viewer, log = request.viewer, request.viewer.log
    before = view_size(viewer)
    pruned: tuple[int, ...] = ()
    folded: list[Summary] = []
    limits = summarizer_limits(request, summarizer)

    def look() -> tuple[CompactionRequest, int]:
        # What another program measured held its own prompt and tools: it tells nothing here.
        return request, viewer.tokens + request.fixed

    for step in fit(look):
        if isinstance(step, Prune):
            pruned = tuple(step.ordinals)
            log.mark(pruned, at=1)
        else:
            summary = drive(summarize(prepare(step), limits), summarizer, delta=delta)
            append_pivot(
                log,
                summary.text,
                tail_start=summary.fold.tail_start,
                user_text_budget=summary.words,
            )
            folded.append(summary)
    if is_full(*look()):
        budget = request.target or request.budget
        raise WindowTooSmall(usable=budget, fixed=viewer.tokens + request.fixed, largest="the view")
    return CompactionOutcome(before, view_size(viewer), pruned, tuple(folded))


# --- a transcript, and where its tokens went -----------------------------------------------


class FitGoal(Frozen):
    """What a session shall fit into, and who summarises; nobody for a digest."""

    policy: Policy
    window: int | None = None
    target: int | None = None
    model: str | None = None
    instructions: str = ""
    summarizer: Summarizer | None = None


class ViewShares(Frozen):
    """What the view is made of, in tokens."""

    words: int = 0  # the user's own, carried across a pivot
    summary: int = 0  # what a model wrote
    digest: int = 0
    kept: int = 0  # messages word for word
    placeholders: int = 0  # in place of pruned outputs
    notes: int = 0  # between messages, so that a provider takes them


class TokenFates(Frozen):
    """What became of the tokens of the view before."""

    kept: int
    pruned: int
    folded: int


class FitReport(Frozen):
    """A session that fits now, and all that can be told of how it came to."""

    info: SessionInfo
    viewer: Viewer
    goal: FitGoal
    model: str
    limit: Limit
    usable: int
    fixed: int
    used: int  # tokens of the next request, as they were
    fitted: CompactionOutcome
    folded_places: tuple[int, ...]  # of messages that said something
    gone: TokenFates
    shares: ViewShares

    @property
    def summary(self) -> str | None:
        """The summary that was made, if one was."""
        return self.fitted.folded[-1].text if self.fitted.folded else None

    @property
    def spent(self) -> ModelUsage:
        """What all passes used up."""
        return sum_fields([ModelUsage(), *(summary.usage for summary in self.fitted.folded)])


def fit_transcript(
    transcript: Transcript,
    log: Log,
    goal: FitGoal,
    *,
    file: str = "",
    delta: TextHandler = lambda _: None,
) -> FitReport:
    """Make a session fit; raises WindowTooSmall or CompactionStopped if that cannot be."""
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
    fitted = fit_view(request, goal.summarizer, delta=delta)
    folded = {index for summary in fitted.folded for index in summary.fold.head_indexes}
    return FitReport(
        info=info,
        viewer=viewer,
        goal=goal,
        model=model,
        limit=limit,
        usable=budget,
        fixed=fixed,
        used=used,
        fitted=fitted,
        folded_places=tuple(sorted(index for index in folded if before.get(index))),
        gone=_token_fates(before, viewer),
        shares=_shares(viewer),
    )


def _limit(model: str, goal: FitGoal, file: str) -> Limit:
    if goal.window is not None:
        limit = limits_with_window(limits_name(model), goal.window)
        if usable(goal.policy, limit, model) * _ANSWER_SHARE >= limit.context:
            return limit
        # In a window of the user's own an answer as long as a larger model's would leave no room.
        return replace(limit, output=max(1, limit.context // _ANSWER_SHARE))
    if not model and goal.target is None:
        cause = "no message names a model; give --window N, or --model PROVIDER:NAME"
        raise BadInput(cause, source=file or None)
    is_explicit = goal.target is None or bool(goal.model)  # a target alone needs no model
    return limits_or_default(limits_name(model), is_explicit=is_explicit)


def _tools(info: SessionInfo) -> tuple[ToolDeclaration, ...]:
    tools: Any = info.origin.tools if info.origin else None
    try:
        return tool_declarations(cast("list[object]", tools)) if isinstance(tools, list) else ()
    except BadInput:
        return ()  # of a form that no provider is asked in


def _token_fates(before: Mapping[int, int], viewer: Viewer) -> TokenFates:
    view, cells = viewer.view(), viewer.cells
    pivot = () if view.pivot is None else (view.pivot.marker, view.pivot.summary)
    visible = {index: cells[index].tokens for index in before if index in cells}
    hidden = sum(before[index] - tokens for index, tokens in visible.items() if index not in pivot)
    folded = sum(tokens for index, tokens in before.items() if index not in visible)
    return TokenFates(kept=sum(visible.values()), pruned=hidden, folded=folded)


def _shares(viewer: Viewer) -> ViewShares:
    """What the view is made of now."""
    view, cells, log = viewer.view(), viewer.cells, viewer.log
    placeholders = _placeholders(viewer)
    total = sum(cell.tokens for cell in cells.values())
    # Beside its cells a view has notes, and the open request where that was folded.
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
    """The tokens of the digest at the end of a summary, or of one that is nothing else."""
    if text.startswith(BEGINNING) or _SHORT_DIGEST.fullmatch(text):
        return whole
    before, heading, digest = text.rpartition(f"\n\n{BEGINNING}")
    return min(whole, log.count(heading + digest)) if before else 0


def _placeholders(viewer: Viewer) -> int:
    """The tokens of what stands in place of pruned outputs."""
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
