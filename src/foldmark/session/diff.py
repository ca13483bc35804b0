"""How two views differ: what a prune or a pivot did, told message by message."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from foldmark.log.view import View
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Frozen, encode

Change = Literal["removed", "added"]
_Place = tuple[int, int]  # in the old view, and in the new one


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
    done = (0, 0)
    for place in [*_same(olds, news), (len(olds), len(news))]:
        changes.extend(("removed", message) for message in old.messages[done[0] : place[0]])
        changes.extend(("added", message) for message in new.messages[done[1] : place[1]])
        done = place[0] + 1, place[1] + 1
    return ViewDiff(changes=tuple(changes), before=old.tokens, after=new.tokens)


def _same(olds: Sequence[bytes], news: Sequence[bytes]) -> Iterator[_Place]:
    """Where both hold the same, in order.

    Messages that stand once in each are found first, and what agrees between two of these is
    added to them: views are long, and a comparison of all with all would take minutes.
    """
    done = (0, 0)
    for place in [*_rising(_unique(olds, news)), (len(olds), len(news))]:
        yield from _agreeing(olds, news, done, place)
        if place[0] < len(olds):
            yield place
        done = place[0] + 1, place[1] + 1


def _unique(olds: Sequence[bytes], news: Sequence[bytes]) -> Iterator[_Place]:
    old_counts, new_counts = Counter(olds), Counter(news)
    places = {held: place for place, held in enumerate(news) if new_counts[held] == 1}
    for place, held in enumerate(olds):
        if old_counts[held] == 1 and held in places:
            yield place, places[held]


def _rising(places: Iterator[_Place]) -> list[_Place]:
    """The most of these that rise in both."""
    ends: list[int] = []  # the smallest end of a row of each length
    rows: list[tuple[_Place, int | None]] = []  # each with the one before it
    at: list[int] = []  # where in `rows` such a row ends
    for place in places:
        length = bisect_left(ends, place[1])
        rows.append((place, at[length - 1] if length else None))
        ends[length : length + 1] = [place[1]]
        at[length : length + 1] = [len(rows) - 1]
    found: list[_Place] = []
    last = at[-1] if at else None
    while last is not None:
        place, last = rows[last]
        found.append(place)
    return found[::-1]


def _agreeing(
    olds: Sequence[bytes], news: Sequence[bytes], start: _Place, end: _Place
) -> Iterator[_Place]:
    """What agrees from the start and from the end of a stretch; all of it, where it is as long."""
    (a, c), (b, d) = start, end
    if b - a == d - c:
        yield from ((a + i, c + i) for i in range(b - a) if olds[a + i] == news[c + i])
        return
    while a < b and c < d and olds[a] == news[c]:
        yield a, c
        a, c = a + 1, c + 1
    tail: list[_Place] = []
    while a < b and c < d and olds[b - 1] == news[d - 1]:
        b, d = b - 1, d - 1
        tail.append((b, d))
    yield from reversed(tail)
