"""Conversations of pydantic-ai, each followed by a session; and all that are open at a time.

A run has a conversation for itself: another run of the same conversation at the same time gets a
session of its own. Between two requests a session is free for other processes, as
`adapters.sharing` has it. Which hooks call this, and when, is told in `pydantic_ai`.
"""

import logging
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart
from pydantic_ai.models import AbstractModel

from foldmark.adapters.sharing import Shared
from foldmark.errors import FoldmarkError, UnknownModel
from foldmark.model.prompt_messages import Declared
from foldmark.providers.background import uncut
from foldmark.session.history_mirror import HistoryMirror
from foldmark.session.opening import open as open_session
from foldmark.session.session import Session
from foldmark.tokens.limits import Limit, model_limits

from .standing import Standing
from .writing import PydanticDialect

_log = logging.getLogger("foldmark")
_MOST_IDLE = 16  # sessions that are kept open between runs


class Beside(NamedTuple):
    """What a request holds beside the history."""

    model: AbstractModel | None
    instructions: list[str]
    tools: tuple[Declared, ...]
    found: Sequence[ModelRequestPart]  # what must be said again where it was folded


class Talk:
    """A conversation, and the session that follows it."""

    def __init__(self, name: str, session: Session) -> None:
        """Take the session's name and itself."""
        self.name = name
        self.run = ""  # that has it now
        self.whole = False  # whether that run was given a history: it is all that was said
        self.live: Sequence[ModelMessage] = ()  # the run's own list, which it adds to
        self.ends = False  # whether it is closed when its run ends
        version = session.info.version
        self._following = HistoryMirror(session, PydanticDialect())
        self._shared = Shared(session, self._learn, version)
        self._standing = Standing()
        self._sets_window = session.limit is None
        self._window: Limit | None = None
        self._beside: tuple[str, tuple[Declared, ...]] | None = None
        self._refused = -1  # the step of the run whose request was refused
        self._newest: str | None = None  # the newest message that this run has left

    @property
    def session(self) -> Session:
        """The session that follows."""
        return self._shared.session

    # --- one request ---

    async def fitted(self, history: Sequence[ModelMessage], beside: Beside) -> list[ModelMessage]:
        """What to send of a history."""
        async with self._aturn():
            self._standing.look(history)
            await uncut(self._take, history, beside)
            view = await self._following.aview()
        view = self._standing.led(view, history, beside.found, anew=not self.whole)
        if not view or not isinstance(view[-1], ModelRequest):
            view = [*view, history[-1]]  # it asks without words
        return view

    def _take(self, history: Sequence[ModelMessage], beside: Beside) -> None:
        self._following.take(history, whole=self.whole)
        told = [*beside.instructions, *self._standing.texts()]
        now = ("\n\n".join(told), beside.tools)
        if now != self._beside:
            self.session.equip(system=now[0], tools=now[1])
            self._beside = now
        limit = _limit(beside.model) if self._sets_window else None
        if limit is not None and limit != self._window:
            self.session.switch(window=limit.context, output=limit.output or None)
            self._window = limit

    async def shrink(self, step: int, error: Exception) -> bool:
        """Make what is shown shorter after a refusal for length; False where it is none.

        Raises the refusal where nothing more can be folded. A step is refused once.
        """
        is_refusal = self._following.can_shrink(error) or (
            self.session.policy.auto and isinstance(error, ModelContextWindowExceededError)
        )
        if not is_refusal or step == self._refused:
            return False
        self._refused = step
        try:
            async with self._aturn():
                await self._following.ashrunk(error)
        except FoldmarkError as stopped:
            raise error from stopped
        return True

    # --- others who write ---

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Time in which nobody else writes; what others wrote before it is known then."""
        with self._shared.alone():
            try:
                yield
            finally:
                self._leave_off()

    @asynccontextmanager
    async def _aturn(self) -> AsyncGenerator[None]:
        """`_turn`, async."""
        async with self._shared.aalone():
            try:
                yield
            finally:
                await uncut(self._leave_off)

    def _leave_off(self) -> None:
        with suppress(FoldmarkError):  # what was done in the turn is told, or what it raised
            self._newest = self._last()

    def _learn(self) -> None:
        """Follow what others have written meanwhile.

        Where that was another run, in the middle of this one, this one goes on in a session of its
        own: the two would take each other back.
        """
        if self._newest is not None and self._last() != self._newest:
            self._fork(self._newest)
        self._following = HistoryMirror(self.session, PydanticDialect())

    def _fork(self, newest: str) -> None:
        others, name = self.session, f"{self.name}.{self.run}"
        # What this run has left may have been taken back; ids ascend, and the first one stays.
        kept = [held.id for held in others.export(reverted=False).messages if held.id <= newest]
        self._shared.session = others.fork(kept[-1], session=name)  # which nobody else writes
        self.name = name
        others.close()
        self.ends = True  # no other run will ask for it

    def _last(self) -> str | None:
        newest = self.session.newest()
        return newest.id if newest else None

    def begin(self, run: str) -> None:
        """Be the conversation of a run."""
        self.run = run
        self._newest = None  # what others have written before it is part of the conversation

    def rest(self) -> None:
        """Take what the run has said last."""
        try:
            if self.live:
                with self._turn():
                    self._following.take(list(self.live), whole=self.whole)
        except FoldmarkError as error:  # what the run gave or raised is told all the same
            _log.warning("the end of a run is not in session %s: %s", self.session.id, error)
        self.live, self.whole, self._refused = (), False, -1


@lru_cache(maxsize=256)
def _known_limit(name: str) -> Limit | None:
    try:
        return model_limits(name)
    except UnknownModel:
        return None


def _limit(model: AbstractModel | None) -> Limit | None:
    """The window of a model, as we or pydantic-ai know it."""
    if model is None:
        return None
    system, name = getattr(model, "system", ""), getattr(model, "model_name", "")
    known = _known_limit(f"{system}:{name}") if name else None
    window = getattr(model, "context_window", None)
    return known or (Limit(context=window) if isinstance(window, int) and window > 0 else None)


class Talks:
    """The conversations that are open."""

    def __init__(self, where: Any, settings: dict[str, Any]) -> None:
        """Take the store, and how sessions are opened."""
        self._where = where
        self._settings = settings
        self._lock = threading.Lock()  # held for no work of a store: others would wait for it
        self._busy: dict[str, str] = {}  # names of sessions that runs have, by run
        self._runs: dict[str, Talk] = {}
        self._idle: dict[str, Talk] = {}  # the one that was used last is the last

    def held(self, run: str) -> Talk | None:
        """The conversation of a run, if it has one."""
        return self._runs.get(run)

    def joined(self, run: str, name: str) -> Talk:
        """The conversation of this name, for this run alone."""
        with self._lock:
            if (talk := self._runs.get(run)) is not None:
                return talk
            if name in self._busy.values():
                name = f"{name}.{run}"
            self._busy[run] = name
            talk = self._idle.pop(name, None)
        try:
            talk = talk or Talk(name, open_session(self._where, session=name, **self._settings))
        except BaseException:
            with self._lock:
                del self._busy[run]
            raise
        talk.begin(run)
        with self._lock:
            self._runs[run] = talk
        return talk

    def leave(self, run: str) -> None:
        """A run has ended."""
        talk = self._runs.get(run)
        if talk is None:
            return
        talk.rest()
        with self._lock:
            del self._runs[run], self._busy[run]
            if talk.ends:
                old = [talk]
            else:
                self._idle[talk.name] = talk
                old = [self._idle.pop(name) for name in list(self._idle)[:-_MOST_IDLE]]
        for held in old:
            held.session.close()

    def close(self) -> None:
        """Close all sessions; that of a run which is not over, when it ends."""
        with self._lock:
            idle = list(self._idle.values())
            self._idle.clear()
            for talk in self._runs.values():
                talk.ends = True
        for talk in idle:
            talk.session.close()
