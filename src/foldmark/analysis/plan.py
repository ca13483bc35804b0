"""The plan: what prune and compact would do to a session now, and why, before it is done."""

from foldmark.compaction.fold import check_window, session_fold, tokens_used
from foldmark.compaction.prune import Prune, tokens_after, view_prune
from foldmark.compaction.tail import Fold
from foldmark.log.view import Viewer
from foldmark.model.values import Frozen
from foldmark.tokens.budget import is_overflow, pressure, usable
from foldmark.tokens.limits import Limit


class Plan(Frozen):
    """What would be done: figures, outputs to prune and keep, and where the tail would begin."""

    overflow: bool
    usable: int
    tokens: int
    pressure: float
    prune: Prune
    pruned_tokens: int  # what that would leave
    prune_is_enough: bool  # whether it brings a view that overflows into its window
    fold: Fold  # what a pivot would fold

    @property
    def tail_start(self) -> str | None:
        """The first message that a pivot would keep verbatim."""
        return self.fold.tail_start


def session_plan(viewer: Viewer, limit: Limit, *, model: str = "", fixed: int = 0) -> Plan:
    """What prune and compact would do to a session with this model.

    Raises WindowTooSmall where no pivot could help.
    """
    policy = viewer.policy
    room = usable(policy, limit, model)
    count = tokens_used(viewer, fixed=fixed)
    overflow = is_overflow(policy, count, limit, model)
    if overflow and policy.tail.capped:
        check_window(viewer, room, fixed=fixed)
    prune = view_prune(viewer, room)
    left = count
    if prune.prune:
        left = tokens_after(viewer, prune, lambda: tokens_used(viewer, fixed=fixed))
    return Plan(
        overflow=overflow,
        usable=room,
        tokens=count,
        pressure=pressure(count, room) if limit.context else 0.0,
        prune=prune,
        pruned_tokens=left,
        prune_is_enough=overflow and not is_overflow(policy, left, limit, model),
        fold=session_fold(viewer, room, fixed=fixed),
    )
