"""What a pivot keeps verbatim, and what it folds.

A tail is whole turns, newest first, within a budget; the turn that does not fit is split where
that is safe. A turn begins at a user message that is no marker. Messages are looked at from the
newest back, and no farther than the turn in which the tail begins.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from foldmark.log.log import marker_part
from foldmark.model.messages import (
    AssistantInfo,
    Message,
    Pending,
    ReasoningPart,
    Running,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
)
from foldmark.model.values import Frozen
from foldmark.policy import Cut, TailRules

Measure = Callable[[int, int], int]  # the tokens of messages[start:end]


class Fold(Frozen):
    """What a pivot would do to the messages of a view."""

    history: Sequence[Message]
    start: int | None  # where in the history the tail begins
    tail_start: str | None  # the id of the message there, or its handle where ids repeat
    replay: Message | None  # the request that overflowed, to be sent again after the summary
    previous: Message | None  # the summary that the new one replaces
    indexes: Sequence[int] = ()  # of the history in the log

    @property
    def head(self) -> Sequence[Message]:
        """What is summarised."""
        return self.history if self.start is None else self.history[: self.start]

    @property
    def head_indexes(self) -> Sequence[int]:
        """Where in the log that is."""
        return self.indexes if self.start is None else self.indexes[: self.start]

    @property
    def tail_indexes(self) -> Sequence[int]:
        """Where in the log that is which stays."""
        return () if self.start is None else self.indexes[self.start :]


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
    return min(rules.max_tokens, max(rules.min_tokens, int(usable * rules.fraction)))


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
            safe = safe_cuts(messages[begin:], rules.cuts)
            places = [place for place in range(begin + 1, end) if place - begin in safe]
            split = _first_fitting(places, end, left, measure)
            return start if split is None else split
        left -= size
        start = end = begin
    return start


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


def replay_index(messages: Sequence[Message]) -> int | None:
    """Where the request stands that overflowed: the newest, if another one is before it."""
    newest = list(islice(turn_starts(messages), 2))
    return newest[0] if len(newest) == 2 else None


# --- where a session may be cut ---------------------------------------------------------------
# Each provider's demand is one function: it takes messages in their order and gives the places
# (a cut at i keeps message i and all after it) that it has nothing against. A cut is safe where
# all of them agree.


def pairs(messages: Sequence[Message]) -> set[int]:
    """A call and its result stay together: no cut after a call that is still running."""
    safe = set(range(len(messages) + 1))
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].is_user:
            break  # calls left open before a newer request were interrupted, and are closed
        if any(isinstance(call.state, Pending | Running) for call in _calls(messages[index])):
            safe -= set(range(index + 1, len(messages) + 1))
    return safe


def batches(messages: Sequence[Message]) -> set[int]:
    """Calls that ran at the same time were one answer: no cut between them.

    A cut parts two such calls where one before it ends later than one after it begins.
    """
    spans = [_span(message) for message in messages]
    begins = [math.inf] * (len(messages) + 1)  # the first call from here to the end of the turn
    for index in range(len(messages) - 1, -1, -1):
        later = begins[index + 1]
        begins[index] = math.inf if messages[index].is_user else min(later, spans[index][0])
    safe = {0, len(messages)}
    ended = 0.0
    for index in range(1, len(messages)):
        ended = 0.0 if messages[index - 1].is_user else max(ended, spans[index - 1][1])
        if ended <= begins[index]:
            safe.add(index)
    return safe


def _span(message: Message) -> tuple[float, float]:
    """When the first call of a message began, and the last ended."""
    times = [part.state.time for part in _calls(message) if part.state.time]
    begun = min((time.start for time in times if time.start), default=math.inf)
    return float(begun), float(max((time.end or 0 for time in times), default=0))


def thinking(messages: Sequence[Message]) -> set[int]:
    """Thoughts go before what they led to: no cut between thoughts alone and the next answer."""
    return {
        index
        for index in range(len(messages) + 1)
        if not (0 < index < len(messages))
        or messages[index].is_user
        or not _only_thinks(messages[index - 1])
    }


def roles(messages: Sequence[Message]) -> set[int]:
    """A request begins with the user: a cut is before one of their messages, or at the end."""
    return {
        index
        for index in range(len(messages) + 1)
        if index == len(messages) or messages[index].is_user
    }


DEMANDS: dict[Cut, Callable[[Sequence[Message]], set[int]]] = {
    "pairs": pairs,
    "batches": batches,
    "thinking": thinking,
    "roles": roles,
}


def safe_cuts(messages: Sequence[Message], demands: Iterable[Cut]) -> set[int]:
    """The places at which all these demands allow a cut."""
    safe = set(range(len(messages) + 1))
    for demand in demands:
        safe &= DEMANDS[demand](messages)
    return safe


def _calls(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


def _only_thinks(message: Message) -> bool:
    if not isinstance(message.info, AssistantInfo):
        return False
    said = [part for part in message.parts if not isinstance(part, StepStartPart | StepFinishPart)]
    return any(isinstance(part, ReasoningPart) for part in said) and all(
        isinstance(part, ReasoningPart) or (isinstance(part, TextPart) and not part.text.strip())
        for part in said
    )
