"""The plan: what prune and compact would do to a session now, and why."""

from foldmark.compaction.fold import check_window, session_fold, tokens_used
from foldmark.compaction.prune import Prune, tokens_after, view_prune
from foldmark.compaction.tail import Fold
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.tokens.budget import is_overflow, pressure, usable
from foldmark.tokens.limits import Limit


class Plan(Frozen):
    """The figures of a session, the outputs to prune and keep, and the start of the tail."""

    overflow: bool
    usable: int
    tokens: int
    pressure: float
    prune: Prune
    pruned_tokens: int  # after the prune
    prune_is_enough: bool  # the view overflows, and pruning alone makes it fit
    fold: Fold  # of the pivot

    @property
    def tail_start(self) -> str | None:
        """The id of the first message that a pivot would keep verbatim."""
        return self.fold.tail_start


def session_plan(viewer: Viewer, limit: Limit, *, model: str = "", fixed: int = 0) -> Plan:
    """Return what prune and compact would do to a session with this model.

    Raises WindowTooSmall if no pivot could make the view fit.
    """
    policy = viewer.policy
    budget = usable(policy, limit, model)
    count = tokens_used(viewer, fixed=fixed)
    overflow = is_overflow(policy, count, limit, model)
    if overflow and policy.tail.capped:
        check_window(viewer, budget, fixed=fixed)
    prune = view_prune(viewer, budget)
    pruned_tokens = count
    if prune.prune:
        pruned_tokens = tokens_after(viewer, prune, lambda: tokens_used(viewer, fixed=fixed))
    return Plan(
        overflow=overflow,
        usable=budget,
        tokens=count,
        pressure=pressure(count, budget) if limit.context else 0.0,
        prune=prune,
        pruned_tokens=pruned_tokens,
        prune_is_enough=overflow and not is_overflow(policy, pruned_tokens, limit, model),
        fold=session_fold(viewer, budget, fixed=fixed),
    )
