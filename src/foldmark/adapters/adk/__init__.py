"""Foldmark in Google's ADK: a plugin for a runner or an app.

Each request's contents become a view that fits, made of them by a session in a store; ADK's own
session keeps every event. A refusal for length is answered by a shorter view, once. The plugin
knows which conversation a request belongs to, and nothing of how contents are read.
"""

import logging
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import foldmark
from foldmark.errors import FoldmarkError, UnknownModel
from foldmark.providers.background import uncut
from foldmark.providers.models import limits_name
from foldmark.session.session import Session
from foldmark.tokens.limits import model_limits

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

from .conversation import Conversation
from .requests import Begun, as_sent, measured, request_of, told_since

__all__ = ["FoldmarkPlugin"]

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
        self._lock = threading.Lock()
        self._conversations: dict[str, Conversation] = {}  # the latest used is the last
        self._begun = Begun()

    @property
    def sessions(self) -> dict[str, Session]:
        """The sessions that are open, by their names."""
        with self._lock:
            held = dict(self._conversations)
        return {name: one.session for name, one in held.items() if one.session is not None}

    # --- what ADK calls ---

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Show the model a view in place of the contents."""
        # What a server remembers by itself is not ours to fold.
        if not llm_request.contents or llm_request.previous_interaction_id:
            return
        conversation = self._conversation(callback_context, llm_request)
        request = request_of(callback_context, llm_request, self._begun)
        llm_request.contents = await uncut(conversation.view, request)
        await uncut(self._close_idle)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """After a refusal for length, the answer to a shorter view; other errors are ADK's."""
        invocation = callback_context.get_invocation_context()
        agent = invocation.agent
        if llm_request.previous_interaction_id or not isinstance(agent, LlmAgent):
            return None
        try:
            conversation = self._conversation(callback_context, llm_request)
            view = await uncut(conversation.shrunk, error)
            if view is None:
                return None
            llm_request.contents = view
            invocation.increment_llm_call_count()
            return await _answer(agent, llm_request)
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
        with self._lock:
            found = self._conversations.get(_name(invocation_context.session, *scopes))
        if found is None:
            return
        events = told_since(invocation_context, event, found.events)
        try:
            await uncut(found.tell, event.invocation_id, [*map(as_sent, events)], measured(events))
        except FoldmarkError as error:  # the answer is there, and told with the next request
            _log.warning("an answer in %s was not kept: %s", found.name, error)

    async def close(self) -> None:
        """Close all sessions; one that is used again is opened again."""
        with self._lock:
            held = list(self._conversations.values())
        for conversation in held:
            await uncut(conversation.close)

    # --- which conversation it is ---

    def _conversation(self, context: CallbackContext, request: LlmRequest) -> Conversation:
        scopes = (context.agent_name, context.branch, context.isolation_scope)
        name = _name(context.session, *scopes)
        with self._lock:
            found = self._conversations.pop(name, None)
            if found is None:
                found = Conversation(name, lambda named: self._open(named, request.model))
            self._conversations[name] = found
        return found

    def _open(self, name: str, model: str | None) -> Session:
        settings = dict(self._settings)
        if not settings.keys() & {"window", "model"} and model and _is_known(model):
            settings["model"] = model
        return foldmark.open(self._where, session=name, **settings)

    def _close_idle(self) -> None:
        with self._lock:
            held = [one for one in self._conversations.values() if one.session is not None]
        for conversation in held[:-_MOST_OPEN]:
            conversation.close(waits=False)


def _name(session: AdkSession, agent: str, branch: str | None, scope: str | None) -> str:
    """The name of a session: each part is quoted, so that no two conversations share one."""
    parts = (session.app_name, session.user_id, session.id, agent, branch or "", scope or "")
    return "/".join(quote(part, safe="") for part in parts).rstrip("/")


def _is_known(model: str) -> bool:
    try:
        model_limits(limits_name(model))
    except UnknownModel:
        return False
    return True


async def _answer(agent: LlmAgent, request: LlmRequest) -> LlmResponse:
    """The model's whole answer."""
    async with aclosing(agent.canonical_model.generate_content_async(request)) as answers:
        return [answer async for answer in answers][-1]
