"""How a file was and how it is: what a step, a turn or a session did to it."""

from typing import Literal

from .values import Frozen

Change = Literal["added", "changed", "deleted"]


class FileDiff(Frozen):
    """One file between two snapshots; the texts are empty where it was not there, or is no text."""

    file: str  # from the working folder on, with slashes
    before: str
    after: str
    additions: int  # lines
    deletions: int
    change: Change = "changed"
    binary: bool = False
