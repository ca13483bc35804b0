"""Messages of a model request: those of the agent's state, and transient ones.

Other middleware may insert messages that are not in the state, such as open files or the time.
They are sent at their position and counted, but not stored, as the next request has others.
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

from foldmark.adapters.conversations import insert_transient, split_transient
from foldmark.wire.codec import ReadMessage

from .dialect import LangChainDialect

_DIALECT = LangChainDialect()


class RequestMessages(NamedTuple):
    """The messages of a request: leading prompts, the history, and transient messages."""

    prompts: list[BaseMessage]
    history: list[BaseMessage]
    transient: list[tuple[BaseMessage, int]]

    def transient_contents(self) -> list[ReadMessage]:
        """The content of the transient messages."""
        return [_DIALECT.read(message) for message, _ in self.transient]

    def with_view(self, view: list[BaseMessage]) -> list[BaseMessage]:
        """The prompts, then a view of the history with the transient messages in position."""
        indexes_by_id = {message.id: index for index, message in enumerate(view) if message.id}
        indexes = [indexes_by_id.get(message.id or "") for message in self.history]
        return [*self.prompts, *insert_transient(view, indexes, self.transient, _is_result)]


def _is_result(message: BaseMessage) -> bool:
    return isinstance(message, ToolMessage)


def split_request(raw_messages: Iterable[Any], state: Iterable[Any] | None) -> RequestMessages:
    """Split the messages of a request (also dicts and pairs); without a state, all are history."""
    messages = list(raw_messages)
    if not all(isinstance(message, BaseMessage) for message in messages):
        messages = convert_to_messages(messages)
    # A RemoveMessage has no content.
    messages = [message for message in messages if not isinstance(message, RemoveMessage)]
    first = sum(1 for _ in takewhile(lambda entry: _DIALECT.prompt(entry) is not None, messages))
    prompts, rest = messages[:first], messages[first:]
    if state is None:
        return RequestMessages(prompts, rest, [])
    object_ids, message_ids = set[int](), set[str | None]()
    for entry in state:
        object_ids.add(id(entry))
        message_ids.add(getattr(entry, "id", None))
    message_ids.discard(None)
    transient_calls = set[str | None]()  # ids

    def is_followed(message: BaseMessage) -> bool:
        if id(message) in object_ids or message.id in message_ids:
            return True
        if isinstance(message, ToolMessage):
            return message.tool_call_id not in transient_calls
        if isinstance(message, AIMessage):
            transient_calls.update(call["id"] for call in message.tool_calls)
        return False

    return RequestMessages(prompts, *split_transient(rest, is_followed))


def messages_after(past: Sequence[BaseMessage], state: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The messages of a state after the last one of `past`; none if that is not in it."""
    last = past[-1].id if past else None
    if last is None:
        return []
    index = next((n for n, message in enumerate(state) if message.id == last), len(state))
    return list(state[index + 1 :])
