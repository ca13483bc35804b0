"""What a pivot keeps verbatim, and what it folds.

A tail is whole turns, newest first, within a budget; the turn that does not fit is split where
that is safe. A turn begins at a user message that is no marker.
"""

from collections.abc import Callable, Sequence

from .cuts import safe_cuts
from .log import is_complete, marker_part
from .messages import AssistantInfo, Message
from .policy import TailRules
from .values import Frozen

Measure = Callable[[int, int], int]  # the tokens of messages[start:end]


class Fold(Frozen):
    """What a pivot would do to the messages of a view."""

    head: tuple[Message, ...]  # is summarised
    tail_start: str | None  # the id of the first message kept verbatim
    replay: Message | None  # the request that overflowed, to be sent again after the summary
    previous: Message | None  # the summary that the new one replaces


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
    for begin in reversed(turn_starts(messages)):
        size = measure(begin, end)
        if size > left:
            split = _split(
                messages, rules, (begin, end), lambda i, j, room=left: measure(i, j) <= room
            )
            return start if split is None else split
        left -= size
        start = end = begin
    return start


def _split(
    messages: Sequence[Message],
    rules: TailRules,
    turn: tuple[int, int],
    fits: Callable[[int, int], bool],
) -> int | None:
    """The earliest place within a turn from which its rest fits."""
    begin, end = turn
    safe = safe_cuts(messages, rules.cuts)
    places = [place for place in range(begin + 1, end) if place in safe]
    # The rest shrinks as the place moves on, so the first that fits is found by halving.
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if fits(places[middle], end):
            high = middle
        else:
            low = middle + 1
    return places[low] if low < len(places) else None


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Where turns begin."""
    return [
        index
        for index, message in enumerate(messages)
        if message.is_user and marker_part(message) is None
    ]


def fold(
    messages: Sequence[Message],
    rules: TailRules,
    *,
    overflow: bool,
    budget: int,
    measure: Callable[[Sequence[Message]], Measure],
) -> Fold:
    """What a pivot after these messages of a view would fold, keep and replay."""
    replay = _replayed(messages) if overflow else None
    history = messages[: messages.index(replay)] if replay else messages
    history, previous = _without_pivots(history)
    start = tail_start(history, rules, budget, measure(history))
    return Fold(
        head=tuple(history if start is None else history[:start]),
        tail_start=None if start is None else history[start].id,
        replay=replay,
        previous=previous,
    )


def _replayed(messages: Sequence[Message]) -> Message | None:
    """The newest request, if another one stands before it."""
    starts = turn_starts(messages)
    return messages[starts[-1]] if len(starts) > 1 else None


def _without_pivots(messages: Sequence[Message]) -> tuple[Sequence[Message], Message | None]:
    """The messages without earlier pivots, and the summary of the last of these."""
    summaries = {
        message.info.parent_id: message
        for message in messages
        if isinstance(message.info, AssistantInfo) and is_complete(message.info)
    }
    pairs = {
        message.id: summaries[message.id]
        for message in messages
        if marker_part(message) is not None and message.id in summaries
    }
    if not pairs:
        return messages, None
    hidden = set(pairs) | {summary.id for summary in pairs.values()}
    return [m for m in messages if m.id not in hidden], list(pairs.values())[-1]
