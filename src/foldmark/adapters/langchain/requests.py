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

from foldmark.adapters.conversations import split_passing, with_passing
from foldmark.wire.codec import Read

from .dialect import LangChainDialect

_DIALECT = LangChainDialect()


class RequestMessages(NamedTuple):
    """The messages of a request: prompts in front, those that are followed, those that pass."""

    prompts: list[BaseMessage]
    history: list[BaseMessage]
    passing: list[tuple[BaseMessage, int]]

    def passing_reads(self) -> list[Read]:
        """What the passing messages say."""
        return [_DIALECT.read(message) for message, _ in self.passing]

    def shown(self, view: list[BaseMessage]) -> list[BaseMessage]:
        """A view of the history behind the prompts, with the passing messages at their places."""
        known = {held.id: place for place, held in enumerate(view) if held.id}
        places = [known.get(held.id or "") for held in self.history]
        return [*self.prompts, *with_passing(view, places, self.passing, _is_result)]


def _is_result(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage)


def said_in(given: Iterable[Any], state: Iterable[Any] | None) -> RequestMessages:
    """What a request says, also in dicts and pairs; without a known state all of it is followed."""
    messages = list(given)
    if not all(isinstance(message, BaseMessage) for message in messages):
        messages = convert_to_messages(messages)
    # What only removes a message is none.
    messages = [message for message in messages if not isinstance(message, RemoveMessage)]
    first = sum(1 for _ in takewhile(lambda held: _DIALECT.prompt(held) is not None, messages))
    prompts, rest = messages[:first], messages[first:]
    if state is None:
        return RequestMessages(prompts, rest, [])
    known, names = set[int](), set[str | None]()
    for held in state:
        known.add(id(held))
        names.add(getattr(held, "id", None))
    names.discard(None)
    calls = set[str | None]()  # of messages that pass

    def is_followed(message: BaseMessage) -> bool:
        if id(message) in known or message.id in names:
            return True
        if isinstance(message, ToolMessage):
            return message.tool_call_id not in calls
        if isinstance(message, AIMessage):
            calls.update(call["id"] for call in message.tool_calls)
        return False

    return RequestMessages(prompts, *split_passing(rest, is_followed))


def after_known(known: Sequence[BaseMessage], state: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What a state has behind the last message that is known; nothing, where that is not there."""
    last = known[-1].id if known else None
    if last is None:
        return []
    place = next((n for n, held in enumerate(state) if held.id == last), len(state))
    return list(state[place + 1 :])
