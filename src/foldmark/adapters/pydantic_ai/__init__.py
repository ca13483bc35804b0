"""Foldmark as a capability of a pydantic-ai agent.

    agent = Agent("openai:gpt-5", capabilities=[Foldmark("agent.db")])

Each conversation is a session in the store. Requests contain a view that fits; the run's own
messages stay complete. `dialect` reads and writes messages, `persistent` adds parts to requests.
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
from foldmark.providers.background import run_uninterrupted
from foldmark.session.closing import Closing
from foldmark.session.history_mirror import run_abortable
from foldmark.session.opening import open as open_session

from .conversation import RequestInputs, RunConversation
from .persistent import declared_tools, discovery_parts

if TYPE_CHECKING:
    from pydantic_ai.capabilities import WrapRunHandler
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult

_MAX_OPEN = 16
SessionName = str | Callable[[RunContext[Any]], str]


class Foldmark(Closing, AbstractCapability[Any]):
    """Stores an agent's conversations and sends the model a view that fits.

    `session` is the session's name, or a function that returns it for a run's context (default:
    the run's `conversation_id`). The rest are settings of `foldmark.open`: `window`, `policy`,
    `summarizer` and so on. The window defaults to the model's own, if that is known.
    """

    def __init__(
        self,
        where: str | Path | None = None,
        *,
        session: SessionName | None = None,
        **settings: Any,
    ) -> None:
        """Check the settings; sessions are opened when they are first needed."""
        check_settings(where, settings)
        self._session = session
        self._where = where
        self._settings = settings
        self._pool = Conversations(self._open_conversation, _MAX_OPEN)
        self._runs: dict[str, RunConversation] = {}
        self._has_history: dict[str, bool] = {}  # whether a run started with a message history

    # --- pydantic-ai's hooks ---

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: "WrapRunHandler"
    ) -> "AgentRunResult[Any]":
        """Store the run's last messages, however it ends."""
        run = ctx.run_id or ""
        # Before a run starts, it has only the history that the caller passed.
        self._has_history[run] = bool(ctx.messages)
        try:
            result = await handler()
            if (conversation := self._runs.get(run)) is not None:
                conversation.messages = result.all_messages()
        except asyncio.CancelledError:
            # A request that waits for a summary may be cancelled only after this.
            if (conversation := self._runs.get(run)) is not None:
                conversation.session.abort()
            raise
        else:
            return result
        finally:
            del self._has_history[run]
            await run_uninterrupted(self._leave, run)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: "ModelRequestContext"
    ) -> "ModelRequestContext":
        """Replace the history by a view that fits."""
        history = request_context.messages
        if not history or isinstance(history[-1], ModelResponse):
            return request_context  # a response that is continued must be sent unchanged
        parameters = request_context.model_request_parameters
        inputs = RequestInputs(
            model=request_context.model,
            instructions=[part.content for part in parameters.instruction_parts or ()],
            tools=declared_tools(parameters),
            discovered=discovery_parts(ctx),
        )
        run = ctx.run_id or ""
        if run not in self._runs:
            await run_uninterrupted(self._join, run, self._name(ctx))
        conversation = self._runs[run]
        conversation.messages = ctx.messages
        conversation.is_whole = self._has_history.get(run, False)
        view = await run_abortable(conversation.session, conversation.view, history, inputs)
        request_context.messages = view
        return request_context

    async def on_model_request_error(
        self,
        ctx: RunContext[Any],
        *,
        request_context: "ModelRequestContext",  # noqa: ARG002 - part of the hook's signature
        error: Exception,
    ) -> ModelResponse:
        """After a refusal for length, compact and retry once."""
        conversation = self._runs.get(ctx.run_id or "")
        if conversation is None:
            raise error
        if not await run_abortable(conversation.session, conversation.shrink, ctx.run_step, error):
            raise error
        raise RetryModelRequest from error

    # --- sessions ---

    def _open_conversation(self, name: str) -> RunConversation:
        return RunConversation(name, open_session(self._where, session=name, **self._settings))

    def _join(self, run: str, name: str) -> None:
        """Assign the conversation of this name to a run, or another if a run has it already."""
        conversation = self._pool.acquire_exclusive((name, f"{name}.{run}"))
        if conversation is not None:
            conversation.begin(run)
            self._runs[run] = conversation

    def _leave(self, run: str) -> None:
        """Release the conversation of a run, if it called a model."""
        conversation = self._runs.pop(run, None)
        if conversation is not None:
            try:
                conversation.end()
            finally:
                self._pool.release_exclusive(conversation)

    def _name(self, ctx: RunContext[Any]) -> str:
        if callable(self._session):
            return self._session(ctx)
        return self._session or ctx.conversation_id or ctx.run_id or ""

    def close(self) -> None:
        """Close all sessions, those of active runs when they end; later runs open them again."""
        self._pool.close()

    async def aclose(self) -> None:
        """Async form of `close`."""
        await run_uninterrupted(self.close)
