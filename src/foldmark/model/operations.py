"""Operations on a session: prunes, pivots and reverts; and the changes of files.

An operation is in force or undone. The view depends only on the messages and on the operations in
force, so undoing and redoing an operation restores exactly the same view.
"""

from collections.abc import Iterable
from typing import Literal

from .values import Frozen

Kind = Literal["prune", "pivot", "revert"]
Change = Literal["added", "changed", "deleted"]
State = Literal["queued", "claimed", "failed", "done", "undone", "reverted"]


class Operation(Frozen):
    """One operation, with its number in the session."""

    number: int
    kind: Kind
    at: int
    place: int  # the number of messages at that time
    marker: int | None = None  # of a pivot; of a revert: the end of the range that it hides
    summary: int | None = None
    tail: int | None = None  # of a pivot; of a revert: the start of the range that it hides
    tail_id: str | None = None
    before: int | None = None  # tokens of the view
    after: int | None = None
    claimed: str | None = None  # the process that makes the summary
    failed: str | None = None  # why there will be no summary
    undone: int | None = None  # when it was undone
    reverted: int | None = None  # the number of the revert that undid it

    @property
    def in_force(self) -> bool:
        """Whether it affects the view."""
        complete = self.kind != "pivot" or self.summary is not None
        return complete and self.undone is None and self.reverted is None

    @property
    def order(self) -> tuple[int, int]:
        """Sort key by time of completion: a pivot is complete once it has its summary."""
        return self.place if self.summary is None else self.summary + 1, self.number

    def undoes(self, other: "Operation") -> bool:
        """Whether this revert undoes an earlier operation."""
        last = (1 if self.tail is None else self.tail) - 1  # -1: before the first message
        if other.kind == "revert" and (other.tail or 0) <= last < (other.marker or 0):
            return True  # it hides the message that this revert goes back to
        if other.kind != "pivot":
            return other.place > last + 1
        # A pivot that was completed after the revert counts from its marker only.
        is_later = other.summary is None or other.summary >= self.place
        index = other.marker if is_later else other.summary
        return (index or 0) > last

    @property
    def state(self) -> State:
        """The current state."""
        if self.undone is not None:
            return "undone"
        if self.reverted is not None:
            return "reverted"
        if self.failed is not None:
            return "failed"
        if self.in_force:
            return "done"
        return "queued" if self.claimed is None else "claimed"


def reverted_by(operations: Iterable[Operation]) -> dict[int, int | None]:
    """Map each operation's number to that of the revert in force that undoes it, or to None."""
    numbers: dict[int, int | None] = {}
    reverts: list[Operation] = []
    for operation in sorted(operations, key=lambda one: one.number, reverse=True):
        by = next((revert.number for revert in reverts if revert.undoes(operation)), None)
        numbers[operation.number] = by
        if operation.kind == "revert" and operation.undone is None and by is None:
            reverts.append(operation)
    return numbers


class FileDiff(Frozen):
    """The change of one file between two snapshots; the text of a missing or binary file is ""."""

    file: str  # relative to the working folder, with slashes
    before: str
    after: str
    additions: int  # lines
    deletions: int
    change: Change = "changed"
    binary: bool = False
