"""What was done to a session beside writing messages: prunes, pivots and reverts.

An act is in force or taken back; the view is told by the messages and the acts in force, and by
nothing else. So each can be undone and redone, and each gives the very view of before.
"""

from typing import Literal

from .values import Frozen

Kind = Literal["prune", "pivot", "revert"]
State = Literal["queued", "claimed", "failed", "done", "undone", "reverted"]


class Act(Frozen):
    """One act, by its number in the session."""

    number: int
    kind: Kind
    at: int
    place: int  # how many messages there were
    marker: int | None = None  # of a pivot; of a revert: where what it hides ends
    summary: int | None = None
    tail: int | None = None  # of a pivot; of a revert: where what it hides begins
    tail_id: str | None = None
    before: int | None = None  # tokens of the view
    after: int | None = None
    claimed: str | None = None  # who makes the summary
    failed: str | None = None  # why there will be none
    undone: int | None = None  # when it was taken back
    reverted: int | None = None  # the number of the revert that took it back

    @property
    def in_force(self) -> bool:
        """Whether it shapes the view."""
        complete = self.kind != "pivot" or self.summary is not None
        return complete and self.undone is None and self.reverted is None

    @property
    def state(self) -> State:
        """What has become of it."""
        if self.undone is not None:
            return "undone"
        if self.reverted is not None:
            return "reverted"
        if self.failed is not None:
            return "failed"
        if self.in_force:
            return "done"
        return "queued" if self.claimed is None else "claimed"
