"""A transcript made to fit a window, and where each of its tokens went.

It draws nothing and writes nothing; the transcript's own messages stay as they are.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from foldmark.analysis.inspection import newest_model
from foldmark.analysis.token_usage import fixed_tokens
from foldmark.compaction.plan import tokens_used
from foldmark.compaction.situation import CompactionRequest, SummaryInstructions
from foldmark.digest.previous import BEGINNING
from foldmark.errors import BadInput, WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.render import message_text
from foldmark.log.view import BEGINNING as FIRST
from foldmark.log.view import GO_ON, NO_REPLY, NOTE_TOKENS, Viewer
from foldmark.model.messages import SessionInfo, ToolPart, Transcript
from foldmark.model.prompt_messages import Declared, PromptMessage, ToolMessage, message_texts
from foldmark.model.values import Frozen, Json
from foldmark.policy import Policy
from foldmark.providers.models import limits_name
from foldmark.session.in_memory import Fitted, Fitter
from foldmark.summary.ladder import ModelUsage, added
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.budget import usable
from foldmark.tokens.limits import Limit, limits_or_usual
from foldmark.transcripts.write_wires import wire_view
from foldmark.wire.codec import wire_named
from foldmark.wire.tools import declared

from .plan import narrowed
from .waiting import waiting

_ANSWER_SHARE = 4  # of a window whose reserve would leave less than this share, it gets one
# Under which names the wires keep what is their own.
_BY_KEY = {
    "anthropic": "anthropic",
    "openai-chat": "openai-chat",
    "openai": "openai-responses",
    "google": "gemini",
}
_BY_FORMAT = {
    "swe-agent": "openai-chat",
    "mini-swe-agent": "openai-chat",
    "openhands": "openai-chat",
    "gemini-cli": "gemini",
}
_BY_PROVIDER = {"anthropic": "anthropic", "google": "gemini", "openai": "openai-chat"}
_USUAL_WIRE = "anthropic"
_NOTES = {(NO_REPLY,), (GO_ON,), (FIRST,)}
_SHORT_DIGEST = re.compile(r"\[[^\n\]]*\]")  # a digest that had no room


class Goal(Frozen):
    """What a session shall fit into, and who summarises; nobody for a digest."""

    policy: Policy
    window: int | None = None
    target: int | None = None
    model: str | None = None
    wire: str | None = None
    instructions: str = ""
    summarizer: Summarizer | None = None


class Shares(Frozen):
    """What the view is made of, in tokens."""

    words: int = 0  # the user's own, carried across a pivot
    summary: int = 0  # what a model wrote
    digest: int = 0
    kept: int = 0  # messages word for word
    placeholders: int = 0  # in place of pruned outputs
    notes: int = 0  # between messages, so that a provider takes them


class Gone(Frozen):
    """What became of the tokens of the view before."""

    kept: int
    pruned: int
    folded: int


class Compacted(Frozen):
    """A session that fits now, and all that can be told of how it came to."""

    info: SessionInfo
    viewer: Viewer
    goal: Goal
    model: str
    wire: str
    limit: Limit
    usable: int
    fixed: int
    used: int  # tokens of the next request, as they were
    fitted: Fitted
    folded_places: tuple[int, ...]  # of messages that said something
    gone: Gone
    shares: Shares

    @property
    def summary(self) -> str | None:
        """The summary that was made, if one was."""
        return self.fitted.folded[-1].text if self.fitted.folded else None

    @property
    def spent(self) -> ModelUsage:
        """What all passes used up."""
        whole = ModelUsage()
        for held in self.fitted.folded:
            whole = ModelUsage(
                calls=whole.calls + held.spent.calls,
                tokens=added(whole.tokens, held.spent.tokens),
                cost=whole.cost + held.spent.cost,
                flaws=whole.flaws + held.spent.flaws,
            )
        return whole

    def messages(self) -> list[Json]:
        """The view on its wire."""
        return wire_view(self.viewer.view().messages, self.info, self.wire)


def compacted(transcript: Transcript, log: Log, goal: Goal, *, file: str = "") -> Compacted:
    """Make a session fit; WindowTooSmall or CompactionStopped where that cannot be."""
    model = goal.model or newest_model(log) or ""
    limit = _limit(model, goal, file)
    held = fixed_tokens(transcript.info, log.count)
    fixed = held.system + held.tools
    room = usable(goal.policy, limit, model)
    viewer = Viewer(log, goal.policy, model=model, usable=room)
    before = {place: cell.tokens for place, cell in viewer.cells.items()}
    used = tokens_used(viewer, fixed=fixed)
    job = CompactionRequest(
        viewer=viewer,
        limit=limit,
        model=model,
        fixed=fixed,
        target=goal.target,
        wish=SummaryInstructions(instructions=goal.instructions),
        system=_system(transcript.info),
        tools=_tools(transcript.info),
    )
    fitted = _fitted(job, goal.summarizer)
    return Compacted(
        info=transcript.info,
        viewer=viewer,
        goal=goal,
        model=model,
        wire=wire_named(goal.wire).name if goal.wire else own_wire(transcript, model),
        limit=limit,
        usable=room,
        fixed=fixed,
        used=used,
        fitted=fitted,
        folded_places=_folded_places(fitted, before),
        gone=_gone(before, viewer),
        shares=shares(viewer),
    )


def _fitted(job: CompactionRequest, summarizer: Summarizer | None) -> Fitted:
    if job.limit is not None and job.limit.context and job.room <= job.fixed:
        largest = "the system prompt and the tools"
        raise WindowTooSmall(usable=job.room, fixed=job.fixed, largest=largest)
    if summarizer is None:
        return Fitter(job).fitted()
    with waiting(summarizer.name) as delta:
        return Fitter(job, summarizer, delta=delta).fitted()


# --- the window ----------------------------------------------------------------------------


def _limit(model: str, goal: Goal, file: str) -> Limit:
    if goal.window is not None:
        return _with_room(narrowed(limits_name(model), goal.window), goal.policy, model)
    if not model and goal.target is None:
        cause = "no message names a model; give --window N, or --model PROVIDER:NAME"
        raise BadInput(cause, source=file or None)
    is_given = goal.target is None or bool(goal.model)  # a target alone needs no model
    return limits_or_usual(limits_name(model), is_given=is_given)


def _with_room(limit: Limit, policy: Policy, model: str) -> Limit:
    """A window of the user's own: an answer as long as a larger model's would leave no room."""
    if usable(policy, limit, model) * _ANSWER_SHARE >= limit.context:
        return limit
    return replace(limit, output=max(1, limit.context // _ANSWER_SHARE))


# --- what stands beside the messages -------------------------------------------------------


def _system(info: SessionInfo) -> str:
    return (info.origin.system or "") if info.origin else ""


def _tools(info: SessionInfo) -> tuple[Declared, ...]:
    given: Any = info.origin.tools if info.origin else None
    try:
        return declared(cast("list[object]", given)) if isinstance(given, list) else ()
    except BadInput:
        return ()  # of a form that no provider is asked in


def own_wire(transcript: Transcript, model: str = "") -> str:
    """The wire that a transcript speaks itself, else that of its model's provider."""
    found: Counter[str] = Counter()
    for message in transcript.messages:
        found.update(_BY_KEY.keys() & (message.info.wire or {}).keys())
        for part in message.parts:
            metadata: Any = getattr(part, "metadata", None)
            if isinstance(metadata, Mapping):
                found.update(_BY_KEY.keys() & cast("Json", metadata).keys())
    if found:
        return _BY_KEY[found.most_common(1)[0][0]]
    format = (transcript.info.origin.format or "") if transcript.info.origin else ""
    provider = limits_name(model).partition(":")[0]
    wire = _BY_FORMAT.get(format) or _BY_KEY.get(format) or _BY_PROVIDER.get(provider)
    return wire or _USUAL_WIRE


# --- where the tokens went -----------------------------------------------------------------


def _folded_places(fitted: Fitted, before: Mapping[int, int]) -> tuple[int, ...]:
    places = {place for held in fitted.folded for place in held.fold.head_places}
    return tuple(sorted(place for place in places if before.get(place)))


def _gone(before: Mapping[int, int], viewer: Viewer) -> Gone:
    view, cells = viewer.view(), viewer.cells
    pivot = () if view.pivot is None else (view.pivot.marker, view.pivot.summary)
    kept = {place: cells[place].tokens for place in before if place in cells}
    hidden = sum(before[place] - tokens for place, tokens in kept.items() if place not in pivot)
    folded = sum(tokens for place, tokens in before.items() if place not in kept)
    return Gone(kept=sum(kept.values()), pruned=hidden, folded=folded)


def shares(viewer: Viewer) -> Shares:
    """What the view is made of now."""
    view, cells, log = viewer.view(), viewer.cells, viewer.log
    placeholders = _placeholders(viewer)
    total = sum(cell.tokens for cell in cells.values())
    # Beside its cells a view has notes, and the open request where that was folded.
    beside = viewer.tokens - total
    if (pivot := view.pivot) is None:
        return Shares(kept=total - placeholders, placeholders=placeholders, notes=beside)
    notes = min(beside, NOTE_TOKENS * sum(map(_is_note, view.messages)))
    marker, summary = cells[pivot.marker].tokens, cells[pivot.summary].tokens
    digest = _digest_tokens(message_text(log.entries[pivot.summary].message), summary, log)
    return Shares(
        words=marker + beside - notes,
        summary=summary - digest,
        digest=digest,
        kept=total - marker - summary - placeholders,
        placeholders=placeholders,
        notes=notes,
    )


def _is_note(message: PromptMessage) -> bool:
    return tuple(message_texts(message)) in _NOTES


def _digest_tokens(text: str, whole: int, log: Log) -> int:
    """The tokens of the digest at the end of a summary, or of one that is nothing else."""
    if text.startswith(BEGINNING) or _SHORT_DIGEST.fullmatch(text):
        return whole
    before, found, digest = text.rpartition(f"\n\n{BEGINNING}")
    return min(whole, log.count(found + digest)) if before else 0


def _placeholders(viewer: Viewer) -> int:
    """The tokens of what stands in place of pruned outputs."""
    log, tokens = viewer.log, 0
    for place, cell in viewer.cells.items():
        entry = log.entries[place]
        shown = (held for held in cell.shown if isinstance(held, ToolMessage))
        results = [result for held in shown for result in held.content]
        ordinals = [
            entry.ordinal + offset
            for offset, part in enumerate(entry.message.parts)
            if isinstance(part, ToolPart)
        ]
        for ordinal, result in zip(ordinals, results, strict=False):
            if ordinal in log.marks:
                tokens += log.count(result.output.value)
    return tokens
