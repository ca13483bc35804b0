"""The tail of a pivot: the recent messages that it keeps verbatim.

A tail has the newest whole turns within a budget; the first turn that does not fit is split at a
safe cut. A turn starts at a user message that is not a marker. Messages are scanned backwards,
only as far as the turn in which the tail starts.
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
    """The effect of a pivot on the messages of a view."""

    history: Sequence[Message]
    start: int | None  # where the tail starts in the history
    tail_start: str | None  # the id of that message, or its handle if ids repeat
    replay: Message | None  # the request that overflowed, to be sent again after the summary
    previous: Message | None  # the summary that the new one replaces
    indexes: Sequence[int] = ()  # of the history's messages in the log

    @property
    def head(self) -> Sequence[Message]:
        """The messages that are summarized."""
        return self.history if self.start is None else self.history[: self.start]

    @property
    def head_indexes(self) -> Sequence[int]:
        """The indexes of the summarized messages in the log."""
        return self.indexes if self.start is None else self.indexes[: self.start]

    @property
    def tail_indexes(self) -> Sequence[int]:
        """The indexes of the tail in the log."""
        return () if self.start is None else self.indexes[self.start :]


def suffix_measure(weight: Callable[[int], int], length: int) -> Measure:
    """A measure that adds up weights from the end, only as far back as necessary."""
    sums = [0]  # sums[k]: the last k messages

    def total(start: int) -> int:
        while len(sums) <= length - start:
            sums.append(sums[-1] + weight(length - len(sums)))
        return sums[length - start]

    return lambda start, end: total(start) - total(end)


def tail_budget(rules: TailRules, usable: int) -> int:
    """The tokens for a tail in a window with this many usable tokens."""
    if rules.tokens is not None:
        return rules.tokens
    return min(rules.max_tokens, max(rules.min_tokens, int(usable * rules.fraction)))


def tail_start(
    messages: Sequence[Message], rules: TailRules, budget: int, measure: Measure
) -> int | None:
    """The position at which the tail starts, or None if nothing is kept."""
    if not rules.on or not messages:
        return None
    start = _fitting_start(messages, rules, budget, measure)
    if start == 0:
        if not rules.keep_newest or len(messages) < 2:
            return None
        # Everything would fit: fold half of it, so that there is something to fold.
        start = _fitting_start(messages, rules, measure(0, len(messages)) // 2, measure)
    return start or None


def _fitting_start(
    messages: Sequence[Message], rules: TailRules, budget: int, measure: Measure
) -> int | None:
    start: int | None = None
    end = len(messages)
    for turn in turn_starts(messages):
        size = measure(turn, end)
        if size > budget:
            safe = safe_cuts(messages[turn:], rules.cuts)
            cuts = [cut for cut in range(turn + 1, end) if cut - turn in safe]
            split = _first_fitting(cuts, end, budget, measure)
            return start if split is None else split
        budget -= size
        start = end = turn
    return start


def _first_fitting(cuts: list[int], end: int, budget: int, measure: Measure) -> int | None:
    """The earliest cut from which the rest fits, by binary search."""
    low, high = 0, len(cuts)
    while low < high:
        middle = (low + high) // 2
        if measure(cuts[middle], end) <= budget:
            high = middle
        else:
            low = middle + 1
    return cuts[low] if low < len(cuts) else None


def turn_starts(messages: Sequence[Message]) -> Iterator[int]:
    """The positions at which turns start, newest first."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].is_user and marker_part(messages[index]) is None:
            yield index


def replay_index(messages: Sequence[Message]) -> int | None:
    """The position of the request that overflowed: the newest, if there is an earlier one."""
    newest = list(islice(turn_starts(messages), 2))
    return newest[0] if len(newest) == 2 else None


# --- where a session may be cut ---------------------------------------------------------------
# Each provider's demand is one function from messages to the set of positions at which it allows a
# cut (a cut at i keeps message i and all after it). A cut is safe if all demands allow it.


def pairs(messages: Sequence[Message]) -> set[int]:
    """A call and its result stay together: no cut after a call that is still open."""
    safe = set(range(len(messages) + 1))
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].is_user:
            break  # open calls before a newer request were interrupted, so they are closed
        if any(isinstance(call.state, Pending | Running) for call in _calls(messages[index])):
            safe -= set(range(index + 1, len(messages) + 1))
    return safe


def batches(messages: Sequence[Message]) -> set[int]:
    """Calls that ran at the same time belong to one reply: no cut between them.

    A cut separates two such calls if one before it ends after one behind it starts.
    """
    spans = [_span(message) for message in messages]
    starts = [math.inf] * (len(messages) + 1)  # of the first call from here to the turn's end
    for index in range(len(messages) - 1, -1, -1):
        later = starts[index + 1]
        starts[index] = math.inf if messages[index].is_user else min(later, spans[index][0])
    safe = {0, len(messages)}
    end = 0.0
    for index in range(1, len(messages)):
        end = 0.0 if messages[index - 1].is_user else max(end, spans[index - 1][1])
        if end <= starts[index]:
            safe.add(index)
    return safe


def _span(message: Message) -> tuple[float, float]:
    """The start of a message's first call, and the end of its last."""
    times = [part.state.time for part in _calls(message) if part.state.time]
    start = min((time.start for time in times if time.start), default=math.inf)
    return float(start), float(max((time.end or 0 for time in times), default=0))


def thinking(messages: Sequence[Message]) -> set[int]:
    """Reasoning stays with its reply: no cut between reasoning alone and the next reply."""
    return {
        index
        for index in range(len(messages) + 1)
        if not (0 < index < len(messages))
        or messages[index].is_user
        or not _has_only_reasoning(messages[index - 1])
    }


def roles(messages: Sequence[Message]) -> set[int]:
    """A request starts with the user: cuts are before user messages, or at the end."""
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
    """The positions at which all these demands allow a cut."""
    safe = set(range(len(messages) + 1))
    for demand in demands:
        safe &= DEMANDS[demand](messages)
    return safe


def _calls(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


def _has_only_reasoning(message: Message) -> bool:
    if not isinstance(message.info, AssistantInfo):
        return False
    parts = [part for part in message.parts if not isinstance(part, StepStartPart | StepFinishPart)]
    return any(isinstance(part, ReasoningPart) for part in parts) and all(
        isinstance(part, ReasoningPart) or (isinstance(part, TextPart) and not part.text.strip())
        for part in parts
    )
