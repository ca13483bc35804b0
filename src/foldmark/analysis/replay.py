"""What a policy would have done with a session, and when, had it been in force from the start.

The log once more, without its recorded pivots and prunes. Before each answer, where the window is
full, old outputs are pruned, and where that is not enough, messages are folded. No model is
asked: a summary is taken to have a usual length. All is estimated; a rehearsal changes nothing.
"""

from typing import Literal

from msgspec.structs import replace

from foldmark.compaction.fit import fit
from foldmark.compaction.pivot import Made, marker_message, summary_message
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest, Situation
from foldmark.errors import CompactionStopped, WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.marks import unmarked
from foldmark.log.render import is_marker, is_summary
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.policy import Policy
from foldmark.tokens.budget import is_overflow, usable
from foldmark.tokens.limits import Limit

SUMMARY = 1_500  # tokens of a summary
MOST_DEEDS = 100  # that are told one by one
_SENTENCE = "The work went on as it was asked for, and what came of it is told in these words.\n"


class SimulatedStep(Frozen):
    """What would have been done before the message of this number came; tokens of the view."""

    kind: Literal["prune", "compact"]
    message: int
    before: int
    after: int
    outputs: int = 0  # that were pruned
    messages: int = 0  # that were folded


class Rehearsal(Frozen):
    """What a policy would have done."""

    policy: str
    model: str | None
    window: int
    usable: int
    fixed: int  # tokens of each request beside the view: the system prompt and the tools
    summary: int  # tokens that a summary is taken to have
    prunes: int
    compactions: int
    peak: int  # tokens of the largest request, and before which message it was
    peak_message: int
    stuck: int | None  # before this message nothing helped any more
    first_prune: SimulatedStep | None
    first_compaction: SimulatedStep | None
    deeds: tuple[SimulatedStep, ...]  # the first of them


def rehearsal(
    log: Log, policy: Policy, limit: Limit, *, model: str = "", fixed: int = 0
) -> Rehearsal:
    """What a policy would have done with a session in a window."""
    stage = PolicySimulator(log, policy, limit, model, fixed)
    stage.play(log)
    prunes = [deed for deed in stage.deeds if deed.kind == "prune"]
    compactions = [deed for deed in stage.deeds if deed.kind == "compact"]
    return Rehearsal(
        policy=policy.name,
        model=model or None,
        window=limit.context,
        usable=stage.room,
        fixed=fixed,
        summary=SUMMARY,
        prunes=len(prunes),
        compactions=len(compactions),
        peak=stage.peak,
        peak_message=stage.peak_message,
        stuck=stage.stuck,
        first_prune=prunes[0] if prunes else None,
        first_compaction=compactions[0] if compactions else None,
        deeds=tuple(stage.deeds[:MOST_DEEDS]),
    )


class PolicySimulator:
    """A log that grows as the recorded one did, with a policy in force."""

    def __init__(self, recorded: Log, policy: Policy, limit: Limit, model: str, fixed: int) -> None:
        self.room = usable(policy, limit, model)
        self.deeds: list[SimulatedStep] = []
        self.peak = self.peak_message = 0
        self.stuck: int | None = None
        self._policy = policy
        self._limit = limit
        self._model = model
        self._fixed = fixed
        self._log = Log(recorded.count)
        self._viewer = Viewer(self._log, policy, model=model, usable=self.room)

    def play(self, recorded: Log) -> None:
        """Take message by message."""
        for entry in recorded.entries.values():
            if is_marker(entry.message) or is_summary(entry.message):
                continue
            if not entry.message.is_user:
                self._make_room(entry.index + 1)
                self._look(entry.index + 1)
            self._log.append(unmarked(entry.message), entry.sizes)

    def _look(self, message: int) -> None:
        tokens = self._viewer.tokens + self._fixed
        if tokens > self.peak:
            self.peak, self.peak_message = tokens, message

    def _is_full(self) -> bool:
        tokens = self._viewer.tokens + self._fixed
        return is_overflow(self._policy, tokens, self._limit, self._model)

    def _make_room(self, message: int) -> None:
        if self.stuck is not None:
            return
        request = CompactionRequest(
            viewer=self._viewer, limit=self._limit, model=self._model, fixed=self._fixed
        )
        try:
            for step in fit(request, is_full=self._is_full, may_prune=_always, passes=1):
                self.deeds.append(self._do(step, message))
        except (WindowTooSmall, CompactionStopped):
            self.stuck = message

    def _do(self, step: Prune | Situation, message: int) -> SimulatedStep:
        before = self._viewer.tokens
        done = SimulatedStep(kind="prune", message=message, before=before, after=before)
        if isinstance(step, Prune):
            self._log.mark(step.ordinals, at=1)
            return replace(done, after=self._viewer.tokens, outputs=len(step.prune))
        self._fold(f"rehearsed-{message}", step)
        folded = len(step.fold.head)
        return replace(done, kind="compact", after=self._viewer.tokens, messages=folded)

    def _fold(self, name: str, situation: Situation) -> None:
        marker, summary = (
            Made(session="", message=f"{name}-{what}", part=f"{name}-{what}-text", at=1)
            for what in ("marker", "summary")
        )
        text = _filler(self._log, min(SUMMARY, situation.max_summary_tokens))
        self._log.append(marker_message(marker, auto=True, tail_start=situation.fold.tail_start))
        self._log.append(summary_message(summary, text, marker=marker.message))


def _always(_: Prune) -> bool:
    return True


def _filler(log: Log, tokens: int) -> str:
    """A text of about so many tokens."""
    ten = log.count(_SENTENCE * 10)
    return _SENTENCE * max(1, tokens * 10 // max(1, ten))
