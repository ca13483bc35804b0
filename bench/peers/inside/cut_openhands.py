"""OpenHands SDK: a View from the events of a session; later steps go on with that view."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

from typing import Any

from openhands.sdk.agent.utils import prepare_llm_messages
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, MessageEvent, ObservationEvent
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.tool.schema import Observation
from timing import Cut, report

KEPT = 170  # events: about 40 000 tokens
views: list[View] = []  # what its loop keeps beside the events
actions: dict[str, str] = {}


class Result(Observation):
    """A result of our tool."""


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [_event(message) for message in messages]


def _event(message: dict[str, Any]) -> Any:
    text = TextContent(text=message["content"])
    match message["role"], message.get("tool_calls"):
        case "tool", _:
            call = message["tool_call_id"]
            return ObservationEvent(
                observation=Result(content=[text]),
                action_id=actions[call],
                tool_name="read",
                tool_call_id=call,
            )
        case _, [call]:
            return _action(text, call)
        case role, _:
            source = "user" if role == "user" else "agent"
            return MessageEvent(source=source, llm_message=Message(role=role, content=[text]))


def _action(thought: TextContent, call: dict[str, Any]) -> ActionEvent:
    name, function = call["id"], call["function"]
    made = MessageToolCall(
        id=name, name=function["name"], arguments=function["arguments"], origin="completion"
    )
    event = ActionEvent(
        thought=[thought],
        tool_name="read",
        tool_call_id=name,
        tool_call=made,
        llm_response_id=f"response-{name}",
    )
    actions[name] = event.id
    return event


def state(events: list[Any]) -> list[Any]:
    """The events with the mark that folded the old ones, or what is new to the view there is."""
    if views:
        return events[-2:]
    forgotten = {event.id for event in events[:-KEPT]}
    mark = Condensation(
        forgotten_event_ids=forgotten,
        summary="All went well.",
        summary_offset=0,
        llm_response_id="summary",
    )
    return [*events, mark]


def cut(events: list[Any]) -> View:
    if not views:
        return View.from_events(events)
    for event in events:
        views[0].append_event(event)
    prepare_llm_messages(views[0])
    return views[0]


def carried(events: list[Any], view: View) -> list[Any]:
    views[:] = [view]
    return events


report({"cut": Cut(history, cut, len, state, carried)})
