"""The sessions of an agent's conversations: one for each, opened when it is first needed.

A conversation is lent to one model call at a time. Where a second run of the same thread asks
while the first one waits for its model, it gets a session of its own: two histories in one would
take each other back. No lease is held while a model is asked, nor between two calls, so another
process may go on.
"""

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count

from langchain_core.messages import BaseMessage

from foldmark.adapters.following import Following
from foldmark.errors import FoldmarkError
from foldmark.session.session import Session

from .dialect import LangChainDialect
from .names import beside
from .requests import led

MOST_OPEN = 64
_OPENING = 16  # sessions that may be opened at the same time
_log = logging.getLogger("foldmark")
_DIALECT = LangChainDialect()


class Conversation:
    """A session that follows the messages of one thread or run."""

    def __init__(self, name: str, session: Session) -> None:
        """Take the session, under the name by which it is asked for."""
        self.name = name
        self.session = session
        self.following = Following[BaseMessage](session, _DIALECT)
        self.equipped: object = None  # of what its fixed tokens were counted
        self.fixed = 0  # these tokens
        self.window: int | None = None  # that the model's profile told
        self.used = 0  # by how many it is used right now
        self.lent = False
        self.spoiled = False  # whether it may know less, or more, than the store has
        self._version = session.info.version
        self.known: list[BaseMessage] = []  # the history that was seen last

    def catch_up(self) -> None:
        """Learn anew what was followed, where another process has gone on meanwhile."""
        if self.spoiled or self.session.info.version != self._version:
            self.following = Following(self.session, _DIALECT)
            self.spoiled = False

    def settle(self) -> None:
        """Let other processes write; what they write from now on is noticed."""
        try:
            self._version = self.session.info.version
            self.session.release()
        except FoldmarkError as error:  # the lease ends by itself
            self.spoiled = True
            _log.warning("session %s was not given back: %s", self.session.id, error)

    def knows(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history begins as the one that was seen last."""
        if not self.known or not history or history[0].id is None:
            return False
        return self.known[0].id == history[0].id

    def whole(self, history: list[BaseMessage]) -> list[BaseMessage]:
        """A history with what was trimmed from its front since it was last seen.

        Without that it would look like another run, and be taken a second time.
        """
        ahead = led(history)
        body, before = history[ahead:], self.known[led(self.known) :]
        if body and before and body[0] is not before[0] and body[0].id is not None:
            name = body[0].id
            place = next((n for n, held in enumerate(before) if held.id == name), 0)
            history = [*history[:ahead], *before[:place], *body]
        self.known = history
        return history


class Conversations:
    """All that are open; the one that was used longest ago is closed where they get too many."""

    def __init__(self, opened: Callable[[str], Session], most: int = MOST_OPEN) -> None:
        """Take what opens a session by its name, and how many may be open at a time."""
        self._opened = opened
        self._most = most
        self._lock = threading.Lock()
        self._open: dict[str, Conversation] = {}
        self._opening = [threading.Lock() for _ in range(_OPENING)]

    def lend(self, name: str, history: Sequence[BaseMessage] = ()) -> Conversation:
        """The conversation of this name, for one call; another one beside it while it is lent.

        Of several that are free, the one that has followed this history before.
        """
        return self.lend_again(name, history) or self._up_to_date(self._first_free(name))

    def lend_again(self, name: str, history: Sequence[BaseMessage]) -> Conversation | None:
        """The conversation that has followed this history before, if it is open and free."""
        found = self._known(name, history)
        return None if found is None else self._up_to_date(found)

    def _up_to_date(self, lent: Conversation) -> Conversation:
        try:
            lent.catch_up()
        except BaseException:
            self.take_back(lent)
            raise
        return lent

    def _known(self, name: str, history: Sequence[BaseMessage]) -> Conversation | None:
        with self._lock:
            for number in count(1):
                held = self._open.get(beside(name, number))
                if held is None:
                    return None
                if not held.lent and held.knows(history):
                    held.lent = True
                    held.used += 1
                    return held
        return None

    def _first_free(self, name: str) -> Conversation:
        number = 1
        while True:
            found = self._used(beside(name, number))
            with self._lock:
                if not found.lent:
                    found.lent = True
                    return found
                found.used -= 1
            number += 1

    def take_back(self, held: Conversation) -> None:
        """End a call's use of a conversation; it has its answer, so nothing is raised."""
        try:
            held.settle()
        finally:
            with self._lock:
                held.lent = False
                held.used -= 1
            self._close_some()

    @contextmanager
    def looked_at(self, name: str) -> Generator[Session]:
        """The session of this name, to be read, whoever else uses it."""
        found = self._used(name)
        try:
            yield found.session
        finally:
            with self._lock:
                found.used -= 1
            self._close_some()

    def _used(self, name: str) -> Conversation:
        """The conversation of this name, which is not closed before it is given back."""
        with self._opening[hash(name) % _OPENING]:  # others go on: a session may be long
            with self._lock:
                found = self._open.pop(name, None)
                if found is not None:
                    self._open[name] = found  # as the last one that was used
                    found.used += 1
                    return found
            made = Conversation(name, self._opened(name))
            made.used = 1
            with self._lock:
                self._open[name] = made
            return made

    def _close_some(self) -> None:
        with self._lock:
            idle = [held for held in self._open.values() if not held.used]
            closed = idle[: max(len(self._open) - self._most, 0)]
            for held in closed:
                del self._open[held.name]
        for held in closed:
            held.session.close()

    def close(self) -> None:
        """Close all sessions; one that is asked for later is opened again."""
        with self._lock:
            held = list(self._open.values())
            self._open.clear()
        for conversation in held:
            conversation.session.close()
