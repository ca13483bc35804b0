"""Splits a request of ADK into its history, its fixed parts, and transient contents.

ADK adds some contents to a single request only: changing instructions, memories. They are not
events and not the user's text, and the next request has them elsewhere.
"""

import threading
import weakref
from collections.abc import Sequence
from typing import cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event import Event
from google.adk.flows.llm_flows.functions import remove_client_function_call_id
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types
from msgspec.structs import replace

from foldmark.adapters.conversations import split_transient
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.model.values import Frozen
from foldmark.wire.plain import plain_object
from foldmark.wire.tools import tool_declarations

from .contents import MeasuredContent

_OTHER_AGENT = "For context:"  # prefix of what ADK passes on from another agent


class AgentRequest(Frozen):
    """The parts of a request, and what ADK knows about it."""

    contents: Sequence[types.Content]
    transient: Sequence[tuple[types.Content, int]]
    measured: Sequence[MeasuredContent]
    system: str
    tools: tuple[ToolDeclaration, ...]
    run: str
    events: int  # number of events in ADK's session at that time
    continues: bool  # whether the stored history comes before; else ADK's is complete


def read_request(
    context: CallbackContext, request: LlmRequest, in_memory: "InMemoryConversations"
) -> AgentRequest:
    """The parts of a request."""
    events = tuple(context.session.events)
    config = request.config
    system = config.system_instruction  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - may be an image of a package that is not installed
    contents, transient = _split(request.contents, events, is_task=bool(context.isolation_scope))
    return AgentRequest(
        contents=contents,
        transient=transient,
        measured=_measured(events),
        system=_system_text(cast("object", system)),
        tools=tuple(entry for tool in config.tools or () for entry in _declared(tool)),
        run=context.invocation_id,
        events=len(events),
        continues=_has_all_events(context, contents, events) and in_memory.continues(context),
    )


def with_reply(request: AgentRequest, context: InvocationContext, last: Event) -> AgentRequest:
    """A request with its agent's later events up to `last`, which ADK has not added yet."""
    events = _events_since(context, last, request.events)
    return replace(
        request,
        contents=(*request.contents, *map(_sent_content, events)),
        measured=(*request.measured, *_measured(events)),
    )


def _measured(events: Sequence[Event]) -> list[MeasuredContent]:
    """The measured usage of the model's responses."""
    return [
        MeasuredContent(event.content, event.usage_metadata)
        for event in events
        if event.usage_metadata and event.content and not event.partial
    ]


def _events_since(context: InvocationContext, last: Event, start: int) -> list[Event]:
    events = [*context.session.events[start:], last]
    return [
        event
        for event in events
        if (event.invocation_id, event.author) == (last.invocation_id, last.author)
        and (event.branch, event.isolation_scope) == (last.branch, last.isolation_scope)
        and event.content is not None
        and event.content.parts
    ]


def _sent_content(event: Event) -> types.Content:
    """The content of an event as ADK will send it in the next request."""
    content = (event.content or types.Content()).model_copy(deep=True)
    remove_client_function_call_id(content)
    return content


def _has_all_events(
    context: CallbackContext, contents: Sequence[types.Content], events: Sequence[Event]
) -> bool:
    """Whether an agent receives all of ADK's history, from its first event on."""
    agent = context.get_invocation_context().agent
    if isinstance(agent, LlmAgent) and agent.include_contents != "default":
        return False
    first = next((event.content for event in events if event.content), None)
    is_first = first is not None and contents[0].parts == first.parts
    return is_first and context.isolation_scope is None


class InMemoryConversations:
    """Conversations that started in this process, in an ADK session that is only in memory.

    Only these continue the history in the store. For other session services, an empty session is
    new or its history was deleted.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._first: dict[tuple[str, str, str], tuple[weakref.ref[object], str]] = {}

    def continues(self, context: CallbackContext) -> bool:
        """Whether a conversation is one of these and still has the same first event."""
        service = context.get_invocation_context().session_service
        session = context.session
        if not isinstance(service, InMemorySessionService):
            return False
        name = (session.app_name, session.user_id, session.id)
        with self._lock:
            first = self._first.get(name)
            if first is None or first[0]() is not service:
                runs = {event.invocation_id for event in session.events}
                is_new = runs <= {context.invocation_id}
                first = (weakref.ref(service), session.events[0].id if is_new else "")
                self._first[name] = first
        return first[1] == session.events[0].id


def _split(
    contents: Sequence[types.Content], events: Sequence[Event], *, is_task: bool
) -> tuple[list[types.Content], list[tuple[types.Content, int]]]:
    """Split contents into the history and those that ADK added to the user's latest message."""
    start = len(contents)
    while start > int(is_task) and not _is_model_side(contents[start - 1]):
        start -= 1
    model_side = {id(content) for content in contents[:start]}
    history, transient = split_transient(
        contents, lambda content: id(content) in model_side or _is_in_events(content, events)
    )
    return (history, transient) if history else (list(contents), [])


def _is_model_side(content: types.Content) -> bool:
    """Whether a content is from the model or has a function response."""
    return content.role != "user" or any(part.function_response for part in content.parts or ())


def _is_in_events(content: types.Content, events: Sequence[Event]) -> bool:
    """Whether a content is part of an event."""
    first = content.parts[0].text if content.parts else None
    if first is not None and first.startswith(_OTHER_AGENT):
        return True
    others = (event.content for event in reversed(events))
    return any(other is not None and other.parts == content.parts for other in others)


def _system_text(instruction: object) -> str:
    """The system prompt as text, from any of its types."""
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    if isinstance(instruction, types.Content):
        return "\n\n".join(part.text or "" for part in instruction.parts or ())
    if isinstance(instruction, list):
        return "\n\n".join(map(_system_text, cast("list[object]", instruction)))
    return getattr(instruction, "text", None) or ""


def _declared(tool: object) -> tuple[ToolDeclaration, ...]:
    """Declarations of a tool; tools that the provider runs have only a name and settings."""
    if not isinstance(tool, types.Tool):
        return (ToolDeclaration(name=getattr(tool, "__name__", "tool"), description="", schema={}),)
    settings = plain_object(tool)
    functions = settings.pop("functionDeclarations", None) or ()
    others = (
        ToolDeclaration(name=key, description="", schema={key: settings[key]}) for key in settings
    )
    return (*tool_declarations(functions), *others)
