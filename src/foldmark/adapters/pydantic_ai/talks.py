"""Conversations of pydantic-ai, each followed by a session.

A run has a conversation for itself: another run of the same conversation at the same time gets a
session of its own. Between two requests a session is free for other processes, as
`adapters.conversations` has it. Which hooks call this, and when, is told in `pydantic_ai`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart
from pydantic_ai.models import AbstractModel

from foldmark.adapters.conversations import Conversation
from foldmark.errors import FoldmarkError
from foldmark.model.prompt_messages import Declared
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.tokens.limits import Limit, known_limits

from .dialect import PydanticDialect
from .standing import Standing


class BesideHistory(NamedTuple):
    """What a request holds beside the history."""

    model: AbstractModel | None
    instructions: list[str]
    tools: tuple[Declared, ...]
    found: Sequence[ModelRequestPart]  # what must be said again where it was folded


class RunConversation(Conversation[ModelMessage]):
    """A conversation that a run has for itself."""

    def __init__(self, name: str, session: Session) -> None:
        """Take the session, under the name by which it is asked for."""
        super().__init__(name, session, PydanticDialect())
        self.run = ""  # that has it now
        self.whole = False  # whether that run was given a history: it is all that was said
        self.live: Sequence[ModelMessage] = ()  # the run's own list, which it adds to
        self._sets_window = session.limit is None
        self._refused = -1  # the step of the run whose request was refused
        self._newest: str | None = None  # the newest message that this run has left

    def fitted(self, history: Sequence[ModelMessage], beside: BesideHistory) -> list[ModelMessage]:
        """What to send of a history."""
        with self.turn():
            standing = Standing(history)
            self.take(history, whole=self.whole)
            system = "\n\n".join([*beside.instructions, *standing.texts()])
            self.count_beside(system, beside.tools)
            limit = _limit(beside.model) if self._sets_window else None
            if limit is not None:
                self.set_window(limit.context, limit.output or None)
            view = self.mirror.view()
        view = standing.led(view, history, beside.found, anew=not self.whole)
        if not view or not isinstance(view[-1], ModelRequest):
            view = [*view, history[-1]]  # it asks without words
        return view

    def shrink(self, step: int, error: Exception) -> bool:
        """Make what is shown shorter after a refusal for length; False where it is none.

        Raises the refusal where nothing more can be folded. A step is refused once.
        """
        is_refusal = self.mirror.can_shrink(error) or (
            self.session.policy.auto and isinstance(error, ModelContextWindowExceededError)
        )
        if not is_refusal or step == self._refused:
            return False
        self._refused = step
        try:
            with self.turn():
                self.mirror.shrunk(error)
        except FoldmarkError as stopped:
            raise error from stopped
        return True

    # --- others who write ---

    @contextmanager
    def turn(self) -> Generator[None]:
        """Time in which nobody else writes; what others wrote before it is known then."""
        with super().turn():
            try:
                yield
            finally:
                with suppress(FoldmarkError):  # what was done is told, or what it raised
                    self._newest = self._last()

    def _mirror_anew(self) -> None:
        """Follow what others have written meanwhile.

        Where that was another run, in the middle of this one, this one goes on in a session of its
        own: the two would take each other back.
        """
        if self._newest is not None and self._last() != self._newest:
            self._fork(self._newest)
        super()._mirror_anew()

    def _fork(self, newest: str) -> None:
        others = self.session
        # What this run has left may have been taken back; ids ascend, and the first one stays.
        kept = [held.id for held in others.export(reverted=False).messages if held.id <= newest]
        # A session that nobody else writes, and no other run will ask for.
        self.session = others.fork(kept[-1], session=f"{self.name}.{self.run}")
        self.ends = True
        others.close()

    def _last(self) -> str | None:
        newest = LoopSupport(self.session).newest()
        return newest.id if newest else None

    def begin(self, run: str) -> None:
        """Be the conversation of a run."""
        self.run = run
        self._newest = None  # what others have written before it is part of the conversation

    def end(self) -> None:
        """Take what the run has said last."""
        if self.live:
            self.record(list(self.live), whole=self.whole)
        self.live, self.whole, self._refused = (), False, -1


def _limit(model: AbstractModel | None) -> Limit | None:
    """The window of a model, as we or pydantic-ai know it."""
    if model is None:
        return None
    system, name = getattr(model, "system", ""), getattr(model, "model_name", "")
    known = known_limits(f"{system}:{name}") if name else None
    window = getattr(model, "context_window", None)
    return known or (Limit(context=window) if isinstance(window, int) and window > 0 else None)
