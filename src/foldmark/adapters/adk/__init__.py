"""Foldmark in Google's ADK: a plugin for a runner or an app.

A session in a store replaces the contents of each request by a view that fits; ADK's own session
keeps every event. After a refusal for length, a shorter view is tried once. The plugin knows which
conversation a request belongs to, but not how contents are read.
"""

import logging
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import foldmark
from foldmark.adapters.conversations import Conversations
from foldmark.errors import FoldmarkError
from foldmark.providers.background import run_uninterrupted
from foldmark.providers.models import limits_name
from foldmark.session.session import Session
from foldmark.tokens.limits import known_limits

try:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.agents.llm_agent import LlmAgent
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.sessions.session import Session as AdkSession
except ImportError as error:
    raise ImportError("this adapter needs Google's ADK: pip install 'foldmark[adk]'") from error

from .conversation import AgentConversation
from .requests import AgentRequest, InMemoryConversations, read_request, with_reply

__all__ = ["FoldmarkPlugin"]

T = TypeVar("T")
_log = logging.getLogger("foldmark")
_MAX_OPEN = 32  # sessions; the least recently used ones are closed


class FoldmarkPlugin(BasePlugin):
    """Keeps the requests of a runner's agents within their context windows."""

    def __init__(self, where: str | Path | None = None, **settings: Any) -> None:
        """Take the store and the settings of `foldmark.open`.

        Without a window or model in the settings, the limits are those of the agent's model.
        """
        super().__init__(name="foldmark")
        self._where = where
        self._settings = settings
        self._pool = Conversations(partial(self._open_conversation, None), _MAX_OPEN)
        self._latest: dict[str, AgentRequest] = {}  # by name of the conversation
        self._in_memory = InMemoryConversations()

    @property
    def sessions(self) -> dict[str, Session]:
        """The open sessions by name."""
        return {one.name: one.session for one in self._pool.all()}

    # --- ADK's callbacks ---

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Replace the contents of a request by a view."""
        # We cannot shorten a history that the provider stores.
        if not llm_request.contents or llm_request.previous_interaction_id:
            return
        name = _name_of(callback_context)
        request = read_request(callback_context, llm_request, self._in_memory)
        self._latest[name] = request
        model = llm_request.model
        llm_request.contents = await self._run(name, model, lambda agent: agent.view(request))

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """After a refusal for length, return the response to a shorter view."""
        invocation = callback_context.get_invocation_context()
        agent = invocation.agent
        if llm_request.previous_interaction_id or not isinstance(agent, LlmAgent):
            return None
        try:
            name = _name_of(callback_context)
            request = self._latest[name]
            model = llm_request.model
            view = await self._run(name, model, lambda agent: agent.shorter(request, error))
            if view is None:
                return None
            llm_request.contents = view
            invocation.increment_llm_call_count()
            stream = agent.canonical_model.generate_content_async(llm_request)
            async with aclosing(stream) as answers:
                return [answer async for answer in answers][-1]
        except Exception as failure:  # noqa: BLE001 - ADK raises the original refusal
            if failure is not error:
                error.add_note(f"The retry with a shorter view failed: {failure}")
            return None

    async def on_event_callback(
        self, *, invocation_context: InvocationContext, event: Event
    ) -> Event | None:
        """Store an agent's final response: no later request may contain it."""
        if event.partial or not event.content or not event.is_final_response():
            return
        scopes = (event.author, event.branch, event.isolation_scope)
        name = _name(invocation_context.session, *scopes)
        latest = self._latest.get(name)
        if latest is None or latest.run != event.invocation_id:
            return
        request = with_reply(latest, invocation_context, event)
        try:
            await self._run(name, None, lambda agent: agent.store_request(request))
        except FoldmarkError as error:  # the next request stores it
            _log.warning("a response in %s was not stored: %s", name, error)

    async def close(self) -> None:
        """Close all sessions; they are opened again when needed."""
        await run_uninterrupted(self._pool.close)

    # --- conversations ---

    async def _run(self, name: str, model: str | None, call: Callable[[AgentConversation], T]) -> T:
        """Call a function with a conversation, opened for an agent of this model if necessary."""

        def run() -> T:
            with self._pool.shared(name, partial(self._open_conversation, model)) as conversation:
                return call(conversation)

        return await run_uninterrupted(run)

    def _open_conversation(self, model: str | None, name: str) -> AgentConversation:
        settings = dict(self._settings)
        if not settings.keys() & {"window", "model"} and model and known_limits(limits_name(model)):
            settings["model"] = model
        return AgentConversation(name, foldmark.open(self._where, session=name, **settings))


def _name_of(context: CallbackContext) -> str:
    return _name(context.session, context.agent_name, context.branch, context.isolation_scope)


def _name(session: AdkSession, agent: str, branch: str | None, scope: str | None) -> str:
    """The name of a session; each part is quoted, so that names are unique."""
    parts = (session.app_name, session.user_id, session.id, agent, branch or "", scope or "")
    return "/".join(quote(part, safe="") for part in parts).rstrip("/")
