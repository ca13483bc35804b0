"""Conversations of threads, and session ids derived from thread ids, which users may choose.

A second run of a thread at the same time gets a session of its own, or the two histories would
revert each other. Only our suffixes follow a `~` in an id: `ada~beside-2` is a second run of thread
`ada`. Thread ids are escaped, so that no thread id can name such a session.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import count

from langchain_core.messages import BaseMessage

from foldmark.adapters.conversations import Conversation, Conversations
from foldmark.errors import BadInput
from foldmark.model.values import encode
from foldmark.session.session import Session
from foldmark.store.store import check_session_id

from .dialect import LangChainDialect

_DIALECT = LangChainDialect()


class ThreadConversation(Conversation[BaseMessage]):
    """The conversation of one thread or run."""

    def __init__(self, name: str, session: Session) -> None:
        """Mirror into this session; `name` is its key in the pool."""
        super().__init__(name, session, _DIALECT)
        self.last_history: Sequence[BaseMessage] = ()  # as of the last request

    def take(self, history: Sequence[BaseMessage], *, whole: bool) -> None:
        """Bring the session up to date with the history; call it inside a turn."""
        super().take(history, whole=whole)
        self.last_history = history

    def is_continued_by(self, history: Sequence[BaseMessage]) -> bool:
        """Whether this history starts with a message of the last one."""
        first = history[0].id if history else None
        return first is not None and any(message.id == first for message in self.last_history)


def candidate_names(name: str) -> Iterator[str]:
    """The id of a thread's session, then those for runs at the same time."""
    return (numbered_name(name, number) for number in count(1))


def names_following(
    name: str, history: Sequence[BaseMessage], conversations: Conversations[ThreadConversation]
) -> Iterator[str]:
    """The ids of open conversations that have mirrored this history before."""
    for candidate in candidate_names(name):
        conversation = conversations.find(candidate)
        if conversation is None:
            return
        if conversation.is_continued_by(history):
            yield candidate


def conversation_name(thread: str | None, namespace: str, first: BaseMessage | None) -> str:
    """The session id of a conversation.

    `namespace` is LangGraph's checkpoint namespace, which names the graphs that enclose the agent.
    For an agent on its own the thread id is enough. Nested agents, and runs without a thread, are
    distinguished by their first message.
    """
    steps = ["" if thread is None else escape_name(thread)]
    steps += [_escape(step) for step in _graphs(namespace) if step and not step.isdigit()]
    if uses_first_message(thread, namespace):
        content = b"" if first is None else encode(_DIALECT.read(first))
        steps.append(f"run-{_digest(content)}")
    return "~".join(steps)


def uses_first_message(thread: str | None, namespace: str) -> bool:
    """Whether the first message is part of a conversation's id."""
    return thread is None or bool(_graphs(namespace))


def numbered_name(name: str, number: int) -> str:
    """The id of the session for the run with this number at the same time."""
    return name if number == 1 else f"{name}~beside-{number}"


def escape_name(name: str) -> str:
    """A user's name as a valid session id that never equals one of ours."""
    try:
        return check_session_id(_escape(name))
    except BadInput:
        return f"~named-{_digest(name.encode('utf-8', 'surrogatepass'))}"


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace("~", "%7E")


def _graphs(namespace: str) -> list[str]:
    return [step.partition(":")[0] for step in namespace.split("|")[:-1]]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=9).hexdigest()
