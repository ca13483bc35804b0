"""A session that several objects or processes write in turn: each has it only while it works.

Nobody else writes between the first look and the last write of a turn, and what others wrote before
it is learnt first. What is learnt, and what is done in a turn, this module does not know.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

from foldmark.errors import FoldmarkError
from foldmark.providers.background import uncut
from foldmark.session.session import Session

_log = logging.getLogger("foldmark")


class Shared:
    """A session, and the version of it that is known."""

    def __init__(
        self, session: Session, learn: Callable[[], object], version: int | None = None
    ) -> None:
        """Take the session, what reads it anew, and the version that was read already."""
        self.session = session
        self._learn = learn
        self._version = version

    def look(self) -> None:
        """Learn what others have written, if they have."""
        version = self.session.info.version
        if version != self._version:
            self._learn()
            self._version = version

    @contextmanager
    def alone(self) -> Generator[None]:
        """A turn. After one that failed, all is learnt anew."""
        try:
            self._begin()
            yield
            self._note()
        finally:
            self._give_back()

    @asynccontextmanager
    async def aalone(self) -> AsyncGenerator[None]:
        """`alone`, async."""
        try:
            await uncut(self._begin)
            yield
            await uncut(self._note)
        finally:
            await uncut(self._give_back)

    def _begin(self) -> None:
        self.session.acquire()  # one that is taken with the first write comes too late
        self.look()
        self._version = None

    def _note(self) -> None:
        self._version = self.session.info.version

    def _give_back(self) -> None:
        try:
            self.session.release()
        except FoldmarkError as error:  # it ends by itself
            _log.warning("session %s was not given back: %s", self.session.id, error)
