"""What a pivot keeps verbatim, and what it folds.

A tail is whole turns, newest first, within a budget; the turn that does not fit is split where
that is safe. A turn begins at a user message that is no marker. Messages are looked at from the
newest back, and no farther than the turn in which the tail begins.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from foldmark.log.log import marker_part
from foldmark.model.messages import Message
from foldmark.model.values import Frozen
from foldmark.policy import TailRules

from .cuts import safe_cuts

Measure = Callable[[int, int], int]  # the tokens of messages[start:end]


class Fold(Frozen):
    """What a pivot would do to the messages of a view."""

    history: Sequence[Message]
    start: int | None  # where in the history the tail begins
    tail_start: str | None  # the id of the message there, or its handle where ids repeat
    replay: Message | None  # the request that overflowed, to be sent again after the summary
    previous: Message | None  # the summary that the new one replaces
    places: Sequence[int] = ()  # of the history in the log

    @property
    def head(self) -> Sequence[Message]:
        """What is summarised."""
        return self.history if self.start is None else self.history[: self.start]

    @property
    def head_places(self) -> Sequence[int]:
        """Where in the log that is."""
        return self.places if self.start is None else self.places[: self.start]

    @property
    def tail_places(self) -> Sequence[int]:
        """Where in the log that is which stays."""
        return () if self.start is None else self.places[self.start :]


def suffix_measure(weight: Callable[[int], int], length: int) -> Measure:
    """A measure that adds weights up from the end, as far back as it is asked."""
    sums = [0]  # sums[k]: the last k messages

    def total(start: int) -> int:
        while len(sums) <= length - start:
            sums.append(sums[-1] + weight(length - len(sums)))
        return sums[length - start]

    return lambda start, end: total(start) - total(end)


def tail_budget(rules: TailRules, usable: int) -> int:
    """The tokens that a tail may have."""
    if rules.tokens is not None:
        return rules.tokens
    return min(rules.most, max(rules.least, int(usable * rules.fraction)))


def tail_start(
    messages: Sequence[Message], rules: TailRules, budget: int, measure: Measure
) -> int | None:
    """Where the tail begins; None where nothing is kept."""
    if not rules.on or not messages:
        return None
    start = _fitting(messages, rules, budget, measure)
    if start == 0:
        if not rules.keep_newest or len(messages) < 2:
            return None
        # Everything would fit: half of it is folded, so that there is something to fold.
        start = _fitting(messages, rules, measure(0, len(messages)) // 2, measure)
    return start or None


def _fitting(
    messages: Sequence[Message], rules: TailRules, budget: int, measure: Measure
) -> int | None:
    start: int | None = None
    left = budget
    end = len(messages)
    for begin in turn_starts(messages):
        size = measure(begin, end)
        if size > left:
            places = _places_to_split(messages, rules, begin, end)
            split = _first_fitting(places, end, left, measure)
            return start if split is None else split
        left -= size
        start = end = begin
    return start


def _places_to_split(
    messages: Sequence[Message], rules: TailRules, begin: int, end: int
) -> list[int]:
    """The places within a turn at which it may be cut."""
    safe = safe_cuts(messages[begin:], rules.cuts)
    return [place for place in range(begin + 1, end) if place - begin in safe]


def _first_fitting(places: list[int], end: int, room: int, measure: Measure) -> int | None:
    """The earliest place from which the rest fits: it shrinks as the place moves on."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if measure(places[middle], end) <= room:
            high = middle
        else:
            low = middle + 1
    return places[low] if low < len(places) else None


def turn_starts(messages: Sequence[Message]) -> Iterator[int]:
    """Where turns begin, the newest first."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].is_user and marker_part(messages[index]) is None:
            yield index


def replayed(messages: Sequence[Message]) -> int | None:
    """Where the request stands that overflowed: the newest, if another one is before it."""
    newest = list(islice(turn_starts(messages), 2))
    return newest[0] if len(newest) == 2 else None
