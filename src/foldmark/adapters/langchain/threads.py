"""The conversations of threads, and the ids of their sessions, made of ids that users may choose.

While a second run of the same thread asks, it gets a session of its own: two histories in one would
take each other back. After `~` in an id stands only what is ours: `ada~beside-2` is a second run of
the thread `ada`. What others give is quoted, so nobody comes upon these by a name.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import count

from langchain_core.messages import BaseMessage

from foldmark.adapters.conversations import Conversation, Conversations
from foldmark.errors import BadInput
from foldmark.model.values import encode
from foldmark.session.session import Session
from foldmark.store.store import checked_id

from .dialect import LangChainDialect

_DIALECT = LangChainDialect()


class ThreadConversation(Conversation[BaseMessage]):
    """The conversation of one thread or run."""

    def __init__(self, name: str, session: Session) -> None:
        """Take the session, under the name by which it is asked for."""
        super().__init__(name, session, _DIALECT)
        self.known: Sequence[BaseMessage] = ()  # the history that was seen last

    def take(self, history: Sequence[BaseMessage], *, whole: bool) -> None:
        """Bring the session up to date with the history, in a turn."""
        super().take(history, whole=whole)
        self.known = history

    def knows(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history begins with a message of the one that was seen last."""
        first = history[0].id if history else None
        return first is not None and any(held.id == first for held in self.known)


def names_beside(name: str) -> Iterator[str]:
    """The ids of a thread's session, and of those that are used while that one is."""
    return (beside(name, number) for number in count(1))


def names_of_known(
    name: str, history: Sequence[BaseMessage], conversations: Conversations[ThreadConversation]
) -> Iterator[str]:
    """The ids of those that are open and have followed this history before."""
    for each in names_beside(name):
        held = conversations.find(each)
        if held is None:
            return
        if held.knows(history):
            yield each


def conversation_name(thread: str | None, place: str, first: BaseMessage | None) -> str:
    """The id of the session of a conversation.

    `place` is LangGraph's name for where a node runs: it tells the graphs around an agent. The id
    of the thread is enough for an agent that stands alone. Agents inside others, and runs without
    a thread, are told apart by the message that they begin with.
    """
    steps = ["" if thread is None else quoted(thread)]
    steps += [_escaped(step) for step in _graphs(place) if step and not step.isdigit()]
    if begins_by_itself(thread, place):
        read = b"" if first is None else encode(_DIALECT.read(first))
        steps.append(f"run-{_digest(read)}")
    return "~".join(steps)


def begins_by_itself(thread: str | None, place: str) -> bool:
    """Whether a conversation is known by its first message."""
    return thread is None or bool(_graphs(place))


def beside(name: str, number: int) -> str:
    """The id of a session that is used while the one of this name is."""
    return name if number == 1 else f"{name}~beside-{number}"


def quoted(name: str) -> str:
    """A name that users gave, as a session may be called: never one that we have made."""
    try:
        return checked_id(_escaped(name))
    except BadInput:
        return f"~named-{_digest(name.encode('utf-8', 'surrogatepass'))}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("~", "%7E")


def _graphs(place: str) -> list[str]:
    return [step.partition(":")[0] for step in place.split("|")[:-1]]


def _digest(said: bytes) -> str:
    return blake2b(said, digest_size=9).hexdigest()
