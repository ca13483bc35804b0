"""How two views differ: what a prune or a pivot did, told message by message."""

from difflib import SequenceMatcher
from typing import Literal

from foldmark.shown import AnyShown
from foldmark.values import Frozen, encode
from foldmark.view import View

Change = Literal["removed", "added"]


class ViewDiff(Frozen):
    """The messages that are only in one of two views, in their order, and the tokens of both."""

    changes: tuple[tuple[Change, AnyShown], ...]
    before: int
    after: int

    @property
    def removed(self) -> tuple[AnyShown, ...]:
        """What is no longer shown."""
        return tuple(message for change, message in self.changes if change == "removed")

    @property
    def added(self) -> tuple[AnyShown, ...]:
        """What is shown instead, or more."""
        return tuple(message for change, message in self.changes if change == "added")


def view_diff(old: View, new: View) -> ViewDiff:
    """What became of one view in another."""
    olds, news = [encode(m) for m in old.messages], [encode(m) for m in new.messages]
    changes: list[tuple[Change, AnyShown]] = []
    for tag, a, b, c, d in SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        if tag != "equal":
            changes.extend(("removed", message) for message in old.messages[a:b])
            changes.extend(("added", message) for message in new.messages[c:d])
    return ViewDiff(changes=tuple(changes), before=old.tokens, after=new.tokens)
