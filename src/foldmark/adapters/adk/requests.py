"""What a request of ADK holds: the history, what stands beside it, and what is there only once.

ADK puts some contents into one request and into no event: instructions that change, memories. They
are told from the history here, as they are no words of the user's and stand elsewhere next time.
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

from foldmark.adapters.conversations import split_passing
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Frozen
from foldmark.wire.plain import plain_object
from foldmark.wire.tools import declared

from .contents import MeasuredContent

_OTHER_AGENT = "For context:"  # so begins what ADK tells an agent of another one


class AgentRequest(Frozen):
    """What a request holds, and what ADK tells of it."""

    contents: Sequence[types.Content]
    passing: Sequence[tuple[types.Content, int]]
    measured: Sequence[MeasuredContent]
    system: str
    tools: tuple[Declared, ...]
    run: str
    events: int  # how many ADK had when it was made
    goes_on: bool  # with what the store has; else ADK's history is all that there is


def request_of(context: CallbackContext, request: LlmRequest, begun: "Begun") -> AgentRequest:
    """What this request holds."""
    events = tuple(context.session.events)
    config = request.config
    system = config.system_instruction  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - an image, too, of a package that is not here
    contents, passing = _split(request.contents, events, is_task=bool(context.isolation_scope))
    return AgentRequest(
        contents=contents,
        passing=passing,
        measured=measured(events),
        system=_words(cast("object", system)),
        tools=tuple(held for tool in config.tools or () for held in _declared(tool)),
        run=context.invocation_id,
        events=len(events),
        goes_on=_is_all(context, contents, events) and begun.goes_on(context),
    )


def measured(events: Sequence[Event]) -> list[MeasuredContent]:
    """What was measured for the answers of the model."""
    return [
        MeasuredContent(event.content, event.usage_metadata)
        for event in events
        if event.usage_metadata and event.content and not event.partial
    ]


def told_since(context: InvocationContext, last: Event, start: int) -> list[Event]:
    """What an agent told since ADK had so many events, up to the last, which ADK has not yet."""
    held = [*context.session.events[start:], last]
    return [
        event
        for event in held
        if (event.invocation_id, event.author) == (last.invocation_id, last.author)
        and (event.branch, event.isolation_scope) == (last.branch, last.isolation_scope)
        and event.content is not None
        and event.content.parts
    ]


def as_sent(event: Event) -> types.Content:
    """The content of an event as ADK sends it with the next request."""
    content = (event.content or types.Content()).model_copy(deep=True)
    remove_client_function_call_id(content)
    return content


def _is_all(
    context: CallbackContext, contents: Sequence[types.Content], events: Sequence[Event]
) -> bool:
    """Whether an agent is shown all that ADK has, from its first event on."""
    agent = context.get_invocation_context().agent
    if isinstance(agent, LlmAgent) and agent.include_contents != "default":
        return False
    first = next((event.content for event in events if event.content), None)
    is_first = first is not None and contents[0].parts == first.parts
    return is_first and context.isolation_scope is None


class Begun:
    """The conversations that began in this process, with a session that ADK has in memory alone.

    Only these go on with what the store has from before. Everywhere else an empty session is a new
    one: ADK would have its history, had nobody deleted it.
    """

    def __init__(self) -> None:
        """Know of none."""
        self._lock = threading.Lock()
        self._first: dict[tuple[str, str, str], tuple[weakref.ref[object], str]] = {}

    def goes_on(self, context: CallbackContext) -> bool:
        """Whether this one does: it still begins with what it began with when it was first seen."""
        service = context.get_invocation_context().session_service
        session = context.session
        if not isinstance(service, InMemorySessionService):
            return False
        name = (session.app_name, session.user_id, session.id)
        with self._lock:
            known = self._first.get(name)
            if known is None or known[0]() is not service:
                is_new = all(held.invocation_id == context.invocation_id for held in session.events)
                known = (weakref.ref(service), session.events[0].id if is_new else "")
                self._first[name] = known
        return known[1] == session.events[0].id


def _split(
    contents: Sequence[types.Content], events: Sequence[Event], *, is_task: bool
) -> tuple[list[types.Content], list[tuple[types.Content, int]]]:
    """The history, and what ADK put among the latest words of the user for this request alone."""
    start = len(contents)
    while start > int(is_task) and not _is_bound(contents[start - 1]):
        start -= 1
    bound = {id(content) for content in contents[:start]}
    history, passing = split_passing(
        contents, lambda content: id(content) in bound or _is_told(content, events)
    )
    return (history, passing) if history else (list(contents), [])


def _is_bound(content: types.Content) -> bool:
    """Whether it is the model's, or answers a call of the model's."""
    return content.role != "user" or any(part.function_response for part in content.parts or ())


def _is_told(content: types.Content, events: Sequence[Event]) -> bool:
    """Whether an event told it."""
    first = content.parts[0].text if content.parts else None
    if first is not None and first.startswith(_OTHER_AGENT):
        return True
    held = (event.content for event in reversed(events))
    return any(one is not None and one.parts == content.parts for one in held)


def _words(instruction: object) -> str:
    """The system prompt as text, in whichever of its forms it came."""
    if instruction is None or isinstance(instruction, str):
        return instruction or ""
    if isinstance(instruction, types.Content):
        return "\n\n".join(part.text or "" for part in instruction.parts or ())
    if isinstance(instruction, list):
        return "\n\n".join(map(_words, cast("list[object]", instruction)))
    return getattr(instruction, "text", None) or ""


def _declared(tool: object) -> tuple[Declared, ...]:
    """A tool as it is counted; what runs at the provider has a name and settings only."""
    if not isinstance(tool, types.Tool):
        return (Declared(name=getattr(tool, "__name__", "tool"), description="", schema={}),)
    held = plain_object(tool)
    functions = held.pop("functionDeclarations", None) or ()
    others = [Declared(name=name, description="", schema={name: held[name]}) for name in held]
    return (*declared(functions), *others)
