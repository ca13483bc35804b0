"""One session made to fit once, in memory: no store, no lease, no marker that waits.

The same steps as a stored session takes: prune where that is enough, else fold. For commands and
programs that have a list of messages and want one that fits.
"""

import threading

from msgspec.structs import replace

from foldmark.compaction.pivot import Made, marker_message, summary_message
from foldmark.compaction.plan import session_plan
from foldmark.compaction.situation import CompactionRequest, prepare
from foldmark.compaction.tail import Fold
from foldmark.errors import WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.providers.driver import drive
from foldmark.summary.ladder import How, ModelUsage, Summary, summarize
from foldmark.summary.protocol import Delta, Summarizer
from foldmark.tokens.budget import exceeds

from .means import means

_PASSES = 4


class Figures(Frozen):
    """How large a view is."""

    messages: int
    tokens: int


class Folded(Frozen):
    """A pivot that was made."""

    summary: str
    how: How
    fold: Fold
    spent: ModelUsage


class Fitted(Frozen):
    """What was done to make a view fit; nothing, where it did."""

    before: Figures
    after: Figures
    pruned: tuple[int, ...] = ()  # ordinals
    folded: tuple[Folded, ...] = ()  # one for each pass


class Fitter:
    """Makes a view fit."""

    def __init__(
        self,
        job: CompactionRequest,
        summarizer: Summarizer | None = None,
        *,
        delta: Delta = lambda _: None,
        aborted: threading.Event | None = None,
    ) -> None:
        """Take the session and its window, and who summarises: nobody for a digest."""
        self._job = job
        self._summarizer = summarizer
        self._delta = delta
        self._aborted = aborted
        self._viewer = job.viewer

    def fitted(self) -> Fitted:
        """Prune, and fold where that is not enough; WindowTooSmall where nothing is."""
        before = figures(self._viewer)
        pruned = self._prune()
        folded: list[Folded] = []
        while self._is_full():
            if len(folded) == _PASSES:
                room = self._job.target or self._job.room
                fixed = self._viewer.tokens + self._job.fixed
                raise WindowTooSmall(usable=room, fixed=fixed, largest="the view")
            folded.append(self._fold(len(folded)))
        return Fitted(
            before=before, after=figures(self._viewer), pruned=pruned, folded=tuple(folded)
        )

    def _is_full(self) -> bool:
        job, tokens = self._job, self._viewer.tokens
        if job.target is not None and tokens > job.target:
            return True
        if job.limit is None:
            return False
        # What another program measured held its own prompt and tools: it tells nothing here.
        return exceeds(self._viewer.policy, tokens + job.fixed, job.limit, job.model)

    def _prune(self) -> tuple[int, ...]:
        """Hide old outputs, if that alone is enough: a pivot would make it useless."""
        job, viewer = self._job, self._viewer
        if job.limit is None or job.target is not None or not self._is_full():
            return ()
        plan = session_plan(viewer, job.limit, model=job.model, fixed=job.fixed, explain=False)
        viewer.log.mark(plan.prune.ordinals, at=1)
        if not self._is_full():
            return tuple(plan.prune.ordinals)
        viewer.log.unmark(plan.prune.ordinals)
        return ()

    def _fold(self, passes: int) -> Folded:
        target = self._job.target
        if passes and target is not None:
            target = target * 3 // (3 + passes)
        ready = prepare(replace(self._job, target=target))
        job = self._job
        asked = means(
            self._viewer.policy.compact,
            self._summarizer,
            model=job.model,
            limit=job.limit,
            overflowed=job.overflow,
        )
        flow = summarize(ready, asked)
        made = drive(flow, self._summarizer, delta=self._delta, aborted=self._aborted)
        _pivot(self._viewer.log, made)
        return Folded(summary=made.text, how=made.how, fold=made.fold, spent=made.spent)


def figures(viewer: Viewer) -> Figures:
    """How large a view is now."""
    shown = sum(bool(cell.shown) for cell in viewer.cells.values())
    return Figures(messages=shown, tokens=viewer.tokens)


def _pivot(log: Log, summary: Summary) -> None:
    number = len(log)
    made = [
        Made(session="", message=f"msg_{kind}_{number}", part=f"prt_{kind}_{number}", at=number)
        for kind in ("marker", "summary")
    ]
    tail = summary.fold.tail_start
    log.append(marker_message(made[0], auto=True, tail_start=tail, words=summary.words))
    log.append(summary_message(made[1], summary.text, marker=made[0].message))
