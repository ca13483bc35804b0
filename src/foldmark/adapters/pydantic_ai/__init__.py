"""Foldmark in an agent of pydantic-ai: a capability.

    agent = Agent("openai:gpt-5", capabilities=[Foldmark("agent.db")])

Each conversation is a session in the store. Requests are made to fit; the run's own messages stay
whole. How messages are read and written, and what stands in every request, is told elsewhere.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import RetryModelRequest
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.tools import RunContext
except ImportError as missing:
    raise ImportError(
        "this adapter needs pydantic-ai 2.66 or newer: pip install 'foldmark[pydantic-ai]'"
    ) from missing

from foldmark.adapters.conversations import Conversations, check_settings
from foldmark.providers.background import uncut
from foldmark.session.closing import Closing
from foldmark.session.history_mirror import aborting
from foldmark.session.opening import open as open_session

from .standing import declared_tools, found_parts
from .talks import BesideHistory, RunConversation

if TYPE_CHECKING:
    from pydantic_ai.capabilities import WrapRunHandler
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult

_MOST_OPEN = 16
SessionName = str | Callable[[RunContext[Any]], str]


class Foldmark(Closing, AbstractCapability[Any]):
    """Keeps an agent's conversations in a store, and shows the model a view that fits.

    `session` names the session: a name, or who tells it of the run's context; by default it is the
    run's `conversation_id`. The rest are settings of `foldmark.open`: `window`, `policy`,
    `summarizer` and so on. The window is the model's own, where that is known.
    """

    def __init__(
        self,
        where: str | Path | None = None,
        *,
        session: SessionName | None = None,
        **settings: Any,
    ) -> None:
        """Say where conversations are kept, and how they are named."""
        check_settings(where, settings)
        self._session = session
        self._where = where
        self._settings = settings
        self._conversations = Conversations(self._opened, _MOST_OPEN)
        self._runs: dict[str, RunConversation] = {}
        self._given: dict[str, bool] = {}  # whether a run was given a history

    # --- pydantic-ai's hooks ---

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: "WrapRunHandler"
    ) -> "AgentRunResult[Any]":
        """Take the run's last words into the session, however it ends."""
        run = ctx.run_id or ""
        # Nothing but a history that was given is there before the run begins.
        self._given[run] = bool(ctx.messages)
        try:
            result = await handler()
            if (talk := self._runs.get(run)) is not None:
                talk.live = result.all_messages()
        except asyncio.CancelledError:
            # The request that waits for a summary may be told of it only after this.
            if (talk := self._runs.get(run)) is not None:
                talk.session.abort()
            raise
        else:
            return result
        finally:
            del self._given[run]
            await uncut(self._leave, run)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: "ModelRequestContext"
    ) -> "ModelRequestContext":
        """Send a view that fits in place of the history."""
        history = request_context.messages
        if not history or isinstance(history[-1], ModelResponse):
            return request_context  # an answer that goes on must be sent as it was
        parameters = request_context.model_request_parameters
        beside = BesideHistory(
            model=request_context.model,
            instructions=[part.content for part in parameters.instruction_parts or ()],
            tools=declared_tools(parameters),
            found=found_parts(ctx),
        )
        run = ctx.run_id or ""
        if run not in self._runs:
            await uncut(self._join, run, self._name(ctx))
        talk = self._runs[run]
        talk.live, talk.whole = ctx.messages, self._given.get(run, False)
        view = await aborting(talk.session, talk.fitted, history, beside)
        request_context.messages = view
        return request_context

    async def on_model_request_error(
        self,
        ctx: RunContext[Any],
        *,
        request_context: "ModelRequestContext",  # noqa: ARG002 - it is the hook's
        error: Exception,
    ) -> ModelResponse:
        """Fold and ask once more where the model refused for length."""
        talk = self._runs.get(ctx.run_id or "")
        if talk is None:
            raise error
        if not await aborting(talk.session, talk.shrink, ctx.run_step, error):
            raise error
        raise RetryModelRequest from error

    # --- sessions ---

    def _opened(self, name: str) -> RunConversation:
        return RunConversation(name, open_session(self._where, session=name, **self._settings))

    def _join(self, run: str, name: str) -> None:
        """Give a run the conversation of this name, or another if a run has that one."""
        talk = self._conversations.lend((name, f"{name}.{run}"))
        if talk is not None:
            talk.begin(run)
            self._runs[run] = talk

    def _leave(self, run: str) -> None:
        """End what a run has begun, if it has asked a model."""
        talk = self._runs.pop(run, None)
        if talk is not None:
            try:
                talk.end()
            finally:
                self._conversations.give_back(talk)

    def _name(self, ctx: RunContext[Any]) -> str:
        if callable(self._session):
            return self._session(ctx)
        return self._session or ctx.conversation_id or ctx.run_id or ""

    def close(self) -> None:
        """Close all sessions, that of a run when it ends; the next run opens its own again."""
        self._conversations.close()

    async def aclose(self) -> None:
        """`close`, async."""
        await uncut(self.close)
