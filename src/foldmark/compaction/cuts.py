"""Where a session may be cut, so that what is kept is still a valid request.

Each provider's demand is one function: it takes messages in their order and gives the places
(a cut at i keeps message i and all after it) that it has nothing against. A cut is safe where
all of them agree.
"""

import math
from collections.abc import Callable, Iterable, Sequence

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
from foldmark.policy import Cut

Messages = Sequence[Message]


def pairs(messages: Messages) -> set[int]:
    """A call and its result stay together: no cut after a call that is still running."""
    safe = set(range(len(messages) + 1))
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].is_user:
            break  # calls left open before a newer request were interrupted, and are closed
        if any(_is_open(part) for part in _calls(messages[index])):
            safe -= set(range(index + 1, len(messages) + 1))
    return safe


def batches(messages: Messages) -> set[int]:
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


def thinking(messages: Messages) -> set[int]:
    """Thoughts go before what they led to: no cut between thoughts alone and the next answer."""
    return {
        index
        for index in range(len(messages) + 1)
        if not (0 < index < len(messages))
        or messages[index].is_user
        or not _only_thinks(messages[index - 1])
    }


def roles(messages: Messages) -> set[int]:
    """A request begins with the user: a cut is before one of their messages, or at the end."""
    return {
        index
        for index in range(len(messages) + 1)
        if index == len(messages) or messages[index].is_user
    }


DEMANDS: dict[Cut, Callable[[Messages], set[int]]] = {
    "pairs": pairs,
    "batches": batches,
    "thinking": thinking,
    "roles": roles,
}


def safe_cuts(messages: Messages, demands: Iterable[Cut]) -> set[int]:
    """The places at which all these demands allow a cut."""
    safe = set(range(len(messages) + 1))
    for demand in demands:
        safe &= DEMANDS[demand](messages)
    return safe


def _calls(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


def _is_open(part: ToolPart) -> bool:
    return isinstance(part.state, Pending | Running)


def _only_thinks(message: Message) -> bool:
    if not isinstance(message.info, AssistantInfo):
        return False
    said = [part for part in message.parts if not isinstance(part, StepStartPart | StepFinishPart)]
    return any(isinstance(part, ReasoningPart) for part in said) and all(
        isinstance(part, ReasoningPart) or (isinstance(part, TextPart) and not part.text.strip())
        for part in said
    )
