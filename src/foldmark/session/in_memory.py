"""One session made to fit once, in memory: no store, no lease, no marker that waits.

The same steps as a stored session takes: prune where that is enough, else fold. For commands and
programs that have a list of messages and want one that fits.
"""

import threading

from foldmark.compaction.fit import fit
from foldmark.compaction.pivot import Made, marker_message, summary_message
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest, Situation
from foldmark.errors import WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.providers.driver import drive
from foldmark.summary.ladder import Summary, summarize
from foldmark.summary.protocol import Delta, Summarizer
from foldmark.tokens.budget import exceeds

from .compactor import summarizer_limits


class Figures(Frozen):
    """How large a view is."""

    messages: int
    tokens: int


class Fitted(Frozen):
    """What was done to make a view fit; nothing, where it did."""

    before: Figures
    after: Figures
    pruned: tuple[int, ...] = ()  # ordinals
    folded: tuple[Summary, ...] = ()  # one for each pass


class Fitter:
    """Makes a view fit."""

    def __init__(
        self,
        request: CompactionRequest,
        summarizer: Summarizer | None = None,
        *,
        delta: Delta = lambda _: None,
        aborted: threading.Event | None = None,
    ) -> None:
        """Take the session and its window, and who summarises: nobody for a digest."""
        self._request = request
        self._summarizer = summarizer
        self._delta = delta
        self._aborted = aborted
        self._viewer = request.viewer

    def fitted(self) -> Fitted:
        """Prune, and fold where that is not enough; WindowTooSmall where nothing is."""
        before = figures(self._viewer)
        pruned: tuple[int, ...] = ()
        folded: list[Summary] = []
        for step in fit(self._request, is_full=self._is_full, may_prune=self._is_enough):
            if isinstance(step, Prune):
                pruned = tuple(step.ordinals)
                self._viewer.log.mark(pruned, at=1)
            else:
                folded.append(self._fold(step))
        if self._is_full():
            room, fixed = self._request.target or self._request.room, self._request.fixed
            raise WindowTooSmall(usable=room, fixed=self._viewer.tokens + fixed, largest="the view")
        return Fitted(
            before=before, after=figures(self._viewer), pruned=pruned, folded=tuple(folded)
        )

    def _is_full(self) -> bool:
        request, tokens = self._request, self._viewer.tokens
        if request.target is not None and tokens > request.target:
            return True
        if request.limit is None:
            return False
        # What another program measured held its own prompt and tools: it tells nothing here.
        policy = self._viewer.policy
        return exceeds(policy, tokens + request.fixed, request.limit, request.model)

    def _is_enough(self, prune: Prune) -> bool:
        """Whether a prune alone makes the view fit: tried on the log, and taken back."""
        log = self._viewer.log
        log.mark(prune.ordinals, at=1)
        is_enough = not self._is_full()
        log.unmark(prune.ordinals)
        return is_enough

    def _fold(self, situation: Situation) -> Summary:
        request = self._request
        limits = summarizer_limits(
            self._viewer.policy.compact,
            self._summarizer,
            model=request.model,
            limit=request.limit,
            overflowed=request.overflow,
        )
        flow = summarize(situation, limits)
        made = drive(flow, self._summarizer, delta=self._delta, aborted=self._aborted)
        _pivot(self._viewer.log, made)
        return made


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
