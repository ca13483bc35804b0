"""Conversations of pydantic-ai, each mirrored in a session.

A run has exclusive use of its conversation: a second run of it at the same time gets a session of
its own. Between two requests other processes may use the session. The hooks that call this are in
`pydantic_ai`.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart
from pydantic_ai.models import AbstractModel

from foldmark.adapters.conversations import Conversation
from foldmark.errors import FoldmarkError
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.tokens.limits import Limit, known_limits

from .dialect import PydanticDialect
from .persistent import PersistentParts


class RequestInputs(NamedTuple):
    """The parts of a request besides its history."""

    model: AbstractModel | None
    instructions: list[str]
    tools: tuple[ToolDeclaration, ...]
    discovered: Sequence[ModelRequestPart]  # to repeat if they were summarized away


class RunConversation(Conversation[ModelMessage]):
    """A conversation in exclusive use by one run."""

    def __init__(self, name: str, session: Session) -> None:
        """Mirror into this session; `name` is its key in the pool."""
        super().__init__(name, session, PydanticDialect())
        self.run = ""  # id of the current run
        self.is_whole = False  # whether the run started with a history, which is then complete
        self.messages: Sequence[ModelMessage] = ()  # the run's own list, which grows
        self._sets_window = session.limit is None
        self._refused_step = -1  # the run step whose request was refused, or -1
        self._newest: str | None = None  # id of the newest message after this run's last turn

    def view(self, history: Sequence[ModelMessage], inputs: RequestInputs) -> list[ModelMessage]:
        """The messages to send for a history."""
        with self.turn():
            persistent = PersistentParts(history)
            self.take(history, whole=self.is_whole)
            system = "\n\n".join([*inputs.instructions, *persistent.texts()])
            self.count_fixed(system, inputs.tools)
            limit = _limit(inputs.model) if self._sets_window else None
            if limit is not None:
                self.set_window(limit.context, limit.output or None)
            view = self.mirror.view()
        view = persistent.prepend_to(view, history, inputs.discovered, is_new=not self.is_whole)
        if not view or not isinstance(view[-1], ModelRequest):
            view = [*view, history[-1]]  # a request without text
        return view

    def shrink(self, step: int, error: Exception) -> bool:
        """Shorten the view after the provider refused a request as too long.

        Returns False for other errors and for a second refusal. Raises the error if nothing more
        can be summarized.
        """
        is_refusal = self.mirror.can_shrink(error) or (
            self.session.policy.auto and isinstance(error, ModelContextWindowExceededError)
        )
        if not is_refusal or step == self._refused_step:
            return False
        self._refused_step = step
        try:
            with self.turn():
                self.mirror.shorter_view(error)
        except FoldmarkError as failure:
            raise error from failure
        return True

    # --- other writers ---

    @contextmanager
    def turn(self) -> Generator[None]:
        """Hold the lease, and note the newest message at the end."""
        with super().turn():
            try:
                yield
            finally:
                with suppress(FoldmarkError):  # must not hide the result or error of the turn
                    self._newest = self._last()

    def _reload_mirror(self) -> None:
        """Load what others have written meanwhile.

        If another run wrote during this one, this one continues in a fork of the session, or the
        two would revert each other.
        """
        if self._newest is not None and self._last() != self._newest:
            self._fork(self._newest)
        super()._reload_mirror()

    def _fork(self, newest: str) -> None:
        shared = self.session
        # Messages of this run may have been reverted; ids ascend, and the first one remains.
        ids = [one.id for one in shared.export(reverted=False).messages if one.id <= newest]
        # No other run uses this session id.
        self.session = shared.fork(ids[-1], session=f"{self.name}.{self.run}")
        self.closes_when_idle = True
        shared.close()

    def _last(self) -> str | None:
        newest = LoopSupport(self.session).newest()
        return newest.id if newest else None

    def begin(self, run: str) -> None:
        """Assign this conversation to a run."""
        self.run = run
        self._newest = None  # messages from before the run belong to the conversation

    def end(self) -> None:
        """Store the run's last messages."""
        if self.messages:
            self.record(list(self.messages), whole=self.is_whole)
        self.messages, self.is_whole, self._refused_step = (), False, -1


def _limit(model: AbstractModel | None) -> Limit | None:
    """The limits of a model from our table, else from pydantic-ai."""
    if model is None:
        return None
    system, name = getattr(model, "system", ""), getattr(model, "model_name", "")
    limits = known_limits(f"{system}:{name}") if name else None
    window = getattr(model, "context_window", None)
    return limits or (Limit(context=window) if isinstance(window, int) and window > 0 else None)
