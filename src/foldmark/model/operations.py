"""What was done to a session beside writing messages: prunes, pivots, reverts; files changed.

An act is in force or taken back; the view is told by the messages and the acts in force, and by
nothing else. So each can be undone and redone, and each gives the very view of before.
"""

from collections.abc import Iterable
from typing import Literal

from .values import Frozen

Kind = Literal["prune", "pivot", "revert"]
Change = Literal["added", "changed", "deleted"]
State = Literal["queued", "claimed", "failed", "done", "undone", "reverted"]


class Operation(Frozen):
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
    def order(self) -> tuple[int, int]:
        """Tells which act came later: a pivot counts from when its summary was there."""
        return self.place if self.summary is None else self.summary + 1, self.number

    def reaches(self, other: "Operation") -> bool:
        """Whether this revert takes back an act that came before it."""
        back_to = (1 if self.tail is None else self.tail) - 1  # -1: to before the first message
        if other.kind == "revert" and (other.tail or 0) <= back_to < (other.marker or 0):
            return True  # it hides what this one goes back to
        if other.kind != "pivot":
            return other.place > back_to + 1
        # One that was queued by then, and completed only after the revert, is not of its past.
        waited = other.summary is None or other.summary >= self.place
        found = other.marker if waited else other.summary
        return (found or 0) > back_to

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


def reverted_by(acts: Iterable[Operation]) -> dict[int, int | None]:
    """By which revert in force each act is taken back, if by any."""
    found: dict[int, int | None] = {}
    reverts: list[Operation] = []
    for act in sorted(acts, key=lambda act: act.number, reverse=True):
        by = next((revert.number for revert in reverts if revert.reaches(act)), None)
        found[act.number] = by
        if act.kind == "revert" and act.undone is None and by is None:
            reverts.append(act)
    return found


class FileDiff(Frozen):
    """One file between two snapshots; the texts are empty where it was not there, or is no text."""

    file: str  # from the working folder on, with slashes
    before: str
    after: str
    additions: int  # lines
    deletions: int
    change: Change = "changed"
    binary: bool = False
