"""Foldmark in Google's ADK: a plugin for a runner or an app.

Each request's contents become a view that fits, made of them by a session in a store; ADK's own
session keeps every event. A refusal for length is answered by a shorter view, once. The plugin
knows which conversation a request belongs to, and nothing of how contents are read.
"""

import logging
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec.structs import replace

import foldmark
from foldmark.adapters.conversations import Conversations
from foldmark.errors import FoldmarkError
from foldmark.providers.background import uncut
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
from .requests import AgentRequest, Begun, as_sent, measured, request_of, told_since

__all__ = ["FoldmarkPlugin"]

T = TypeVar("T")
_log = logging.getLogger("foldmark")
_MOST_OPEN = 32  # sessions; those that were not used for the longest time are closed


class FoldmarkPlugin(BasePlugin):
    """Keeps what the agents of a runner are shown within their windows."""

    def __init__(self, where: str | Path | None = None, **settings: Any) -> None:
        """Take the store, and the settings of `foldmark.open`.

        Where neither a window nor a model is set, the limits are those of the agent's own model.
        """
        super().__init__(name="foldmark")
        self._where = where
        self._settings = settings
        self._conversations = Conversations(partial(self._opened, None), _MOST_OPEN)
        self._latest: dict[str, AgentRequest] = {}  # by the names of conversations
        self._begun = Begun()

    @property
    def sessions(self) -> dict[str, Session]:
        """The sessions that are open, by their names."""
        return {held.name: held.session for held in self._conversations.all()}

    # --- what ADK calls ---

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Show the model a view in place of the contents."""
        # What a server remembers by itself is not ours to fold.
        if not llm_request.contents or llm_request.previous_interaction_id:
            return
        name = _name_of(callback_context)
        request = request_of(callback_context, llm_request, self._begun)
        self._latest[name] = request
        view = await uncut(self._used, name, llm_request.model, lambda held: held.view(request))
        llm_request.contents = view

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """After a refusal for length, the answer to a shorter view; other errors are ADK's."""
        invocation = callback_context.get_invocation_context()
        agent = invocation.agent
        if llm_request.previous_interaction_id or not isinstance(agent, LlmAgent):
            return None
        try:
            name = _name_of(callback_context)
            request = self._latest[name]
            view = await uncut(
                self._used, name, llm_request.model, lambda held: held.shorter(request, error)
            )
            if view is None:
                return None
            llm_request.contents = view
            invocation.increment_llm_call_count()
            asked = agent.canonical_model.generate_content_async(llm_request)
            async with aclosing(asked) as answers:
                return [answer async for answer in answers][-1]
        except Exception as second:  # noqa: BLE001 - ADK raises the refusal, which tells more
            if second is not error:
                error.add_note(f"A shorter view did not help: {second}")
            return None

    async def on_event_callback(
        self, *, invocation_context: InvocationContext, event: Event
    ) -> Event | None:
        """Take an agent's last answer: there may be no request in this process that tells it."""
        if event.partial or not event.content or not event.is_final_response():
            return
        scopes = (event.author, event.branch, event.isolation_scope)
        name = _name(invocation_context.session, *scopes)
        latest = self._latest.get(name)
        if latest is None or latest.run != event.invocation_id:
            return
        events = told_since(invocation_context, event, latest.events)
        told = replace(
            latest,
            contents=(*latest.contents, *map(as_sent, events)),
            measured=(*latest.measured, *measured(events)),
        )
        try:
            await uncut(self._used, name, None, lambda held: held.tell(told))
        except FoldmarkError as error:  # the answer is there, and told with the next request
            _log.warning("an answer in %s was not kept: %s", name, error)

    async def close(self) -> None:
        """Close all sessions; one that is used again is opened again."""
        await uncut(self._conversations.close)

    # --- which conversation it is ---

    def _used(self, name: str, model: str | None, call: Callable[[AgentConversation], T]) -> T:
        """What a call gives for a conversation, opened for an agent of this model if it must be."""
        with self._conversations.used(name, partial(self._opened, model)) as held:
            return call(held)

    def _opened(self, model: str | None, name: str) -> AgentConversation:
        settings = dict(self._settings)
        if not settings.keys() & {"window", "model"} and model and known_limits(limits_name(model)):
            settings["model"] = model
        return AgentConversation(name, foldmark.open(self._where, session=name, **settings))


def _name_of(context: CallbackContext) -> str:
    return _name(context.session, context.agent_name, context.branch, context.isolation_scope)


def _name(session: AdkSession, agent: str, branch: str | None, scope: str | None) -> str:
    """The name of a session: each part is quoted, so that no two conversations share one."""
    parts = (session.app_name, session.user_id, session.id, agent, branch or "", scope or "")
    return "/".join(quote(part, safe="") for part in parts).rstrip("/")
