"""What a request to a model says: messages of the agent's state, and such as only pass through.

Other middlewares put messages into each request that are in no state: files at hand, the time.
They are shown at their place and counted, and no session follows them: the next request has others.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
)

from foldmark.model.messages import ToolPart
from foldmark.tokens.counters import Counter
from foldmark.tokens.sizes import CALL_OVERHEAD, MESSAGE_OVERHEAD, part_size

from .dialect import LangChainDialect

_DIALECT = LangChainDialect()


class PassingMessage(NamedTuple):
    """A message that is only in this request, and the one of the history that it stands before."""

    message: BaseMessage
    before: int


class RequestMessages(NamedTuple):
    """The messages of a request: prompts in front, those that are followed, those that pass."""

    prompts: list[BaseMessage]
    history: list[BaseMessage]
    passing: list[PassingMessage]

    def tokens(self, count: Counter) -> int:
        """How many tokens the passing messages have."""
        return sum(_tokens(held.message, count) for held in self.passing)

    def shown(self, view: list[BaseMessage]) -> list[BaseMessage]:
        """A view of the history behind the prompts, with the passing messages at their places."""
        if not self.passing:
            return [*self.prompts, *view]
        places = {held.id: place for place, held in enumerate(view) if held.id is not None}
        after: dict[int, list[BaseMessage]] = {}
        for held in self.passing:
            after.setdefault(self._place(held.before, view, places), []).append(held.message)
        made = list(self.prompts)
        for place in range(len(view) + 1):
            made += after.get(place, ())
            made += view[place : place + 1]
        return made

    def _place(self, before: int, view: Sequence[BaseMessage], places: dict[Any, int]) -> int:
        """Where in the view a message stands that stood before this one of the history."""
        if not before:
            return 0
        later = (places[held.id] for held in self.history[before:] if held.id in places)
        place = next(later, len(view))
        while place < len(view) and isinstance(view[place], ToolMessage):
            place += 1  # nothing stands between a call and its result
        return place


def messages_of(given: Iterable[Any]) -> list[BaseMessage]:
    """Messages, also of dicts and pairs; what only removes a message is none."""
    held = list(given)
    if not all(isinstance(message, BaseMessage) for message in held):
        held = convert_to_messages(held)
    return [message for message in held if not isinstance(message, RemoveMessage)]


def said_in(given: Iterable[Any], state: Iterable[Any] | None) -> RequestMessages:
    """What a request says; where no state is known, all of it is followed."""
    messages = messages_of(given)
    first = led(messages)
    prompts, rest = messages[:first], messages[first:]
    if state is None:
        return RequestMessages(prompts, rest, [])
    known, names = set[int](), set[str | None]()
    for held in state:
        known.add(id(held))
        names.add(getattr(held, "id", None))
    names.discard(None)
    history, passing = list[BaseMessage](), list[PassingMessage]()
    calls = set[str | None]()  # of messages that pass
    for message in rest:
        if id(message) in known or message.id in names or _answers(message, calls) is False:
            history.append(message)
            continue
        passing.append(PassingMessage(message, len(history)))
        if isinstance(message, AIMessage):
            calls |= {call["id"] for call in message.tool_calls}
    return RequestMessages(prompts, history, passing)


def _answers(message: BaseMessage, calls: set[str | None]) -> bool | None:
    """Whether a result is of one of these calls; None where it is no result."""
    return message.tool_call_id in calls if isinstance(message, ToolMessage) else None


def led(history: Sequence[BaseMessage]) -> int:
    """How many system prompts lead a history."""
    return sum(1 for _ in takewhile(lambda held: _DIALECT.prompt(held) is not None, history))


def _tokens(message: BaseMessage, count: Counter) -> int:
    read = _DIALECT.read(message)
    # A call that waits is counted with room for its result, which is a message by itself here.
    spare = sum(CALL_OVERHEAD for part in read.parts if isinstance(part, ToolPart))
    parts = sum(part_size(part, count).total for part in read.parts) - spare
    for answer in read.answers:
        parts += count(answer.output) + sum(part_size(file, count).total for file in answer.files)
    return MESSAGE_OVERHEAD + parts


def after_known(known: Sequence[BaseMessage], state: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What a state has behind the last message that is known; nothing, where that is not there."""
    last = known[-1].id if known else None
    if last is None:
        return []
    place = next((n for n, held in enumerate(state) if held.id == last), len(state))
    return list(state[place + 1 :])
