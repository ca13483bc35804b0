"""Difference between two views, message by message."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from foldmark.log.view import View
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Frozen, encode

Change = Literal["removed", "added"]
_Position = tuple[int, int]  # (index in the old view, index in the new view)


class ViewDiff(Frozen):
    """The messages that are in only one of two views, in order, and the tokens of both views."""

    changes: tuple[tuple[Change, PromptMessage], ...]
    before: int
    after: int

    @property
    def removed(self) -> tuple[PromptMessage, ...]:
        """The messages that are only in the old view."""
        return tuple(message for change, message in self.changes if change == "removed")

    @property
    def added(self) -> tuple[PromptMessage, ...]:
        """The messages that are only in the new view."""
        return tuple(message for change, message in self.changes if change == "added")


def view_diff(old: View, new: View) -> ViewDiff:
    """The difference between two views."""
    olds, news = [encode(m) for m in old.messages], [encode(m) for m in new.messages]
    changes: list[tuple[Change, PromptMessage]] = []
    start = (0, 0)
    for position in [*_matches(olds, news), (len(olds), len(news))]:
        changes.extend(("removed", message) for message in old.messages[start[0] : position[0]])
        changes.extend(("added", message) for message in new.messages[start[1] : position[1]])
        start = position[0] + 1, position[1] + 1
    return ViewDiff(changes=tuple(changes), before=old.tokens, after=new.tokens)


def _matches(olds: Sequence[bytes], news: Sequence[bytes]) -> Iterator[_Position]:
    """The positions of equal messages, in order.

    Matches messages that occur once in each view first, then the stretches between them: views are
    long, and comparing all pairs would take minutes.
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
    """The longest subsequence of positions that increases in both views."""
    ends: list[int] = []  # for each length, the smallest end of a sequence of that length
    rows: list[tuple[_Position, int | None]] = []  # each position, and the row before it
    at: list[int] = []  # for each length, the row where that sequence ends
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
    """Matches from both ends of a stretch, or at every index if both sides have the same length."""
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
