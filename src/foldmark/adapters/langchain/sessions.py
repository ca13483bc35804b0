"""The sessions of an agent's conversations: one for each, opened when it is first needed.

A conversation is lent to one model call at a time. Where a second run of the same thread asks
while the first one waits for its model, it gets a session of its own: two histories in one would
take each other back. No lease is held while a model is asked, nor between two calls, so another
process may go on; `adapters.sharing` keeps the turns of both apart.
"""

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count

from langchain_core.messages import BaseMessage

from foldmark.adapters.sharing import Shared
from foldmark.errors import FoldmarkError
from foldmark.providers.background import uncut
from foldmark.session.history_mirror import HistoryMirror
from foldmark.session.session import Session

from .dialect import LangChainDialect
from .names import beside

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
        version = session.info.version
        self.following = HistoryMirror[BaseMessage](session, _DIALECT)
        self.shared = Shared(session, self._learn, version)
        self.equipped: object = None  # of what its fixed tokens were counted
        self.fixed = 0  # these tokens
        self.window: int | None = None  # that the model's profile told
        self.used = 0  # by how many it is used right now
        self.lent = False
        self.known: Sequence[BaseMessage] = ()  # the history that was seen last

    def _learn(self) -> None:
        self.following = HistoryMirror(self.session, _DIALECT)

    def knows(self, history: Sequence[BaseMessage]) -> bool:
        """Whether a history begins with a message of the one that was seen last."""
        first = history[0].id if history else None
        return first is not None and any(held.id == first for held in self.known)

    def take(self, history: Sequence[BaseMessage], *, whole: bool) -> None:
        """Bring the session up to date with the history, in a turn."""
        self.following.take(history, whole=whole)
        self.known = history

    def record(self, history: Sequence[BaseMessage], *, whole: bool) -> None:
        """Take an answer at once: who goes on from the store alone has no other way to it."""
        try:
            with self.shared.alone():
                self.take(history, whole=whole)
        except FoldmarkError as error:  # the answer is there, and is taken with the next request
            _log.warning("an answer was not written to %s yet: %s", self.session.id, error)

    def shrunk(
        self, error: Exception, history: Sequence[BaseMessage], *, whole: bool
    ) -> list[BaseMessage]:
        """A view that is shorter than the one that was refused with this error."""
        try:
            with self.shared.alone():
                self.take(history, whole=whole)  # another may have written meanwhile
                return self.following.shrunk(error)
        except FoldmarkError as stopped:
            raise error from stopped

    async def ashrunk(
        self, error: Exception, history: Sequence[BaseMessage], *, whole: bool
    ) -> list[BaseMessage]:
        """`shrunk`, async."""
        try:
            async with self.shared.aalone():
                await uncut(self.take, history, whole=whole)
                return await self.following.ashrunk(error)
        except FoldmarkError as stopped:
            raise error from stopped


class Conversations:
    """All that are open; the one that was used longest ago is closed where they get too many."""

    def __init__(self, opened: Callable[[str], Session], most: int = MOST_OPEN) -> None:
        """Take what opens a session by its name, and how many may be open at a time."""
        self._opened = opened
        self._most = most
        self._lock = threading.Lock()
        self._open: dict[str, Conversation] = {}
        self._opening = [threading.Lock() for _ in range(_OPENING)]

    @contextmanager
    def lent(self, name: str, history: Sequence[BaseMessage]) -> Generator[Conversation]:
        """The conversation of this name, for one call; another one beside it while it is lent.

        Of several that are free, the one that has followed this history before.
        """
        held = self._lend(name, history)
        try:
            yield held
        finally:
            self._take_back(held)

    @asynccontextmanager
    async def alent(
        self, name: str, history: Sequence[BaseMessage]
    ) -> AsyncGenerator[Conversation]:
        """`lent`, async."""
        lent: list[Conversation] = []  # also by a call of which nobody hears the end
        try:
            await uncut(lambda: lent.append(self._lend(name, history)))
            yield lent[0]
        finally:
            for held in lent:
                await uncut(self._take_back, held)

    @contextmanager
    def lent_again(
        self, name: str, history: Sequence[BaseMessage]
    ) -> Generator[Conversation | None]:
        """The conversation that has followed this history before, if it is open and free."""
        held = self._known(name, history)
        try:
            yield held
        finally:
            if held is not None:
                self._take_back(held)

    def _lend(self, name: str, history: Sequence[BaseMessage]) -> Conversation:
        return self._known(name, history) or self._first_free(name)

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

    def _take_back(self, held: Conversation) -> None:
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
