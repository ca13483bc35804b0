"""One agent's conversation in ADK, followed by a session; from whichever thread it is called.

The session is opened when it is first needed, and again after it was closed. What ADK calls a
session has one of ours for each agent, branch and scope in it, as each is shown a history of its
own. How contents are read and written is told in `contents`.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from google.genai import types
from msgspec.structs import replace

from foldmark.adapters.sharing import Shared
from foldmark.refusals import is_context_overflow
from foldmark.session.history_mirror import HistoryMirror
from foldmark.session.session import Session
from foldmark.summary.ladder import declared_tokens
from foldmark.tokens.counters import counter

from .contents import AdkDialect, Measured, Turn, Turns, with_joined_results
from .requests import Request, with_passing


class Conversation:
    """What one agent is shown of one conversation."""

    def __init__(self, name: str, opened: Callable[[str], Session]) -> None:
        """Take the name of its session, and what opens one."""
        self.name = name
        self._opened = opened
        self._lock = threading.RLock()
        self._turns = Turns()
        self._shared: Shared | None = None
        self._followed: HistoryMirror[Turn] | None = None
        self._request: Request | None = None  # the latest

    @property
    def session(self) -> Session | None:
        """The session, while it is open."""
        shared = self._shared
        return shared.session if shared else None

    @property
    def events(self) -> int:
        """How many events ADK had when it last asked."""
        return self._request.events if self._request else 0

    def view(self, request: Request) -> list[types.Content]:
        """What to send in place of the contents."""
        with self._following() as followed:
            self._equip(followed.session, request)
            self._take(followed, request)
            return self._written(followed.view())

    def tell(
        self, run: str, contents: Sequence[types.Content], measured: Sequence[Measured]
    ) -> None:
        """Take what came after the latest request, if that was of this run.

        The next request tells it again, if there is one, and if ADK has not forgotten it by then.
        """
        with self._lock:
            request = self._request
            if request is None or request.run != run:
                return
            told = replace(
                request,
                contents=(*request.contents, *contents),
                measured=(*request.measured, *measured),
            )
            with self._following() as followed:
                self._take(followed, told)

    def shrunk(self, error: Exception) -> list[types.Content] | None:
        """What to send after a refusal for length; None where it is another error."""
        with self._lock:
            if self._request is None or not is_context_overflow(error):
                return None
            with self._following() as followed:
                if not followed.can_shrink(error):
                    return None
                self._equip(followed.session, self._request)
                self._take(followed, self._request)  # it may have been learnt anew
                return self._written(followed.shrunk(error))

    def close(self, *, waits: bool = True) -> bool:
        """Close the session; False where it is in use and nobody shall wait."""
        if not self._lock.acquire(blocking=waits):
            return False
        try:
            if self._shared is not None:
                self._shared.session.close()
            self._shared, self._followed, self._turns = None, None, Turns()
            return True
        finally:
            self._lock.release()

    @contextmanager
    def _following(self) -> Generator[HistoryMirror[Turn]]:
        """The session as the store has it; nobody else writes meanwhile, and others may then."""
        with self._lock:
            if self._shared is None:
                self._shared = Shared(self._opened(self.name), self._forget)
            with self._shared.alone():
                session = self._shared.session
                self._followed = self._followed or HistoryMirror(session, AdkDialect())
                yield self._followed

    def _forget(self) -> None:
        """What was followed is read from the session when it is next needed."""
        self._followed = None

    def _take(self, followed: HistoryMirror[Turn], request: Request) -> None:
        history = self._turns.of(request.contents, request.measured)
        followed.take(history, whole=not request.goes_on)

    def _equip(self, session: Session, request: Request) -> None:
        """Count what the request holds beside the history."""
        is_same = (session.system, session.tools) == (request.system, request.tools)
        before, self._request = self._request, request
        if is_same and session.fixed and before and before.passing == request.passing:
            return
        count = counter(session.policy.estimate)
        session.equip(system=request.system, tools=request.tools)
        words = "\n".join(one.content.model_dump_json(exclude_none=True) for one in request.passing)
        session.fixed = declared_tokens(request.system, request.tools, count) + count(words)

    def _written(self, view: Sequence[Turn]) -> list[types.Content]:
        contents = with_joined_results([turn.content for turn in view])
        return with_passing(contents, self._request.passing if self._request else ())
