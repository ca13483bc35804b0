"""One agent's conversation in ADK, followed by a session; from whichever thread it is called.

The session is opened when it is first needed, and again after it was closed. What ADK calls a
session has one of ours for each agent, branch and scope in it, as each is shown a history of its
own. How contents are read and written is told in `contents`.
"""

import threading
from collections.abc import Callable, Sequence

from google.genai import types

from foldmark.adapters.following import Following
from foldmark.ladder import declared_tokens
from foldmark.session.session import Session
from foldmark.tokens import counter

from .contents import AdkDialect, Turn, Turns, head_print, with_joined_results
from .requests import Request, with_passing


class _Followed(Following[Turn]):
    """Tells whether a history is the one that was followed, before it is taken."""

    def is_of(self, history: Sequence[Turn]) -> bool:
        return not self._items or self._common(history) > 0


class Conversation:
    """What one agent is shown of one conversation."""

    def __init__(self, name: str, opened: Callable[[str], Session]) -> None:
        """Take the name of its session, and what opens one."""
        self._name = name
        self._opened = opened
        self._lock = threading.RLock()
        self._turns = Turns()
        self._followed: _Followed | None = None
        self._request: Request | None = None

    @property
    def session(self) -> Session | None:
        """The session, while it is open."""
        return self._followed.session if self._followed else None

    def view(self, request: Request) -> list[types.Content]:
        """What to send in place of the contents."""
        with self._lock:
            history = self._turns.of(request.contents, request.measured)
            followed = self._found(history, request)
            self._equip(followed.session, request)
            followed.take(history)
            return self._written(followed.view())

    def shrunk(self, error: Exception) -> list[types.Content] | None:
        """What to send after a refusal for length; None where it is another error."""
        with self._lock:
            if self._followed is None and self._request is not None:
                self.view(self._request)  # it was closed meanwhile, to keep others open
            followed = self._followed
            if followed is None or not followed.can_shrink(error):
                return None
            return self._written(followed.shrunk(error))

    def close(self, *, waits: bool = True) -> bool:
        """Close the session; False where it is in use and nobody shall wait."""
        if not self._lock.acquire(blocking=waits):
            return False
        try:
            if self._followed is not None:
                self._followed.session.close()
            self._followed, self._turns = None, Turns()
            return True
        finally:
            self._lock.release()

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

    def _found(self, history: list[Turn], request: Request) -> _Followed:
        """The session of this history: where ADK took back all of it, another one."""
        followed = self._followed or self._open(self._name)
        if not (followed.is_of(history) or request.goes_on):
            followed.session.close()
            followed = self._open(f"{self._name}#{head_print(request.contents)}")
        self._followed = followed
        return followed

    def _open(self, name: str) -> _Followed:
        return _Followed(self._opened(name), AdkDialect())
