"""How two views differ: what a prune or a pivot did, told message by message."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from foldmark.log.view import View
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Frozen, encode

Change = Literal["removed", "added"]
_Position = tuple[int, int]  # in the old view, and in the new one


class ViewDiff(Frozen):
    """The messages that are only in one of two views, in their order, and the tokens of both."""

    changes: tuple[tuple[Change, PromptMessage], ...]
    before: int
    after: int

    @property
    def removed(self) -> tuple[PromptMessage, ...]:
        """What is no longer shown."""
        return tuple(message for change, message in self.changes if change == "removed")

    @property
    def added(self) -> tuple[PromptMessage, ...]:
        """What is shown instead, or more."""
        return tuple(message for change, message in self.changes if change == "added")


def view_diff(old: View, new: View) -> ViewDiff:
    """What became of one view in another."""
    olds, news = [encode(m) for m in old.messages], [encode(m) for m in new.messages]
    changes: list[tuple[Change, PromptMessage]] = []
    start = (0, 0)
    for position in [*_matches(olds, news), (len(olds), len(news))]:
        changes.extend(("removed", message) for message in old.messages[start[0] : position[0]])
        changes.extend(("added", message) for message in new.messages[start[1] : position[1]])
        start = position[0] + 1, position[1] + 1
    return ViewDiff(changes=tuple(changes), before=old.tokens, after=new.tokens)


def _matches(olds: Sequence[bytes], news: Sequence[bytes]) -> Iterator[_Position]:
    """Where both hold the same, in order.

    Messages that stand once in each are found first, and what agrees between two of these is
    added to them: views are long, and a comparison of all with all would take minutes.
    """
    start = (0, 0)
    for position in [*_longest_rising(_unique_matches(olds, news)), (len(olds), len(news))]:
        yield from _edge_matches(olds, news, start, position)
        if position[0] < len(olds):
            yield position
        start = position[0] + 1, position[1] + 1


def _unique_matches(olds: Sequence[bytes], news: Sequence[bytes]) -> Iterator[_Position]:
    old_counts, new_counts = Counter(olds), Counter(news)
    positions = {text: position for position, text in enumerate(news) if new_counts[text] == 1}
    for position, text in enumerate(olds):
        if old_counts[text] == 1 and text in positions:
            yield position, positions[text]


def _longest_rising(positions: Iterator[_Position]) -> list[_Position]:
    """The most of these that rise in both."""
    ends: list[int] = []  # the smallest end of a row of each length
    rows: list[tuple[_Position, int | None]] = []  # each with the one before it
    at: list[int] = []  # where in `rows` such a row ends
    for position in positions:
        length = bisect_left(ends, position[1])
        rows.append((position, at[length - 1] if length else None))
        ends[length : length + 1] = [position[1]]
        at[length : length + 1] = [len(rows) - 1]
    path: list[_Position] = []
    last = at[-1] if at else None
    while last is not None:
        position, last = rows[last]
        path.append(position)
    return path[::-1]


def _edge_matches(
    olds: Sequence[bytes], news: Sequence[bytes], start: _Position, end: _Position
) -> Iterator[_Position]:
    """What agrees from the start and from the end of a stretch; all of it, where it is as long."""
    (a, c), (b, d) = start, end
    if b - a == d - c:
        yield from ((a + i, c + i) for i in range(b - a) if olds[a + i] == news[c + i])
        return
    while a < b and c < d and olds[a] == news[c]:
        yield a, c
        a, c = a + 1, c + 1
    tail: list[_Position] = []
    while a < b and c < d and olds[b - 1] == news[d - 1]:
        b, d = b - 1, d - 1
        tail.append((b, d))
    yield from reversed(tail)
