"""langmem: what summarize_messages does before it asks a model."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

import json
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langmem.short_term import RunningSummary
from langmem.short_term.summarization import _preprocess_messages
from timing import Cut, report

State = tuple[list[Any], RunningSummary | None]
running: list[RunningSummary | None] = [None]  # what its loop keeps beside the messages


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> Any:
    text, name = message["content"], str(uuid4())
    match message["role"]:
        case "user":
            return HumanMessage(text, id=name)
        case "tool":
            return ToolMessage(text, tool_call_id=message["tool_call_id"], name="read", id=name)
        case _:
            calls = [_call(call) for call in message.get("tool_calls", ())]
            return AIMessage(text, tool_calls=calls, id=name)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    args = json.loads(function["arguments"])
    return {"id": call["id"], "name": function["name"], "args": args}


def cut(state: State) -> tuple[State, Any]:
    messages, summary = state
    found = _preprocess_messages(
        messages=messages,
        running_summary=summary,
        max_tokens=40_000,
        max_tokens_before_summary=None,
        max_summary_tokens=256,
        token_counter=count_tokens_approximately,
    )
    return state, found


def kept(outcome: tuple[State, Any]) -> int:
    (messages, _), found = outcome
    return len(messages) - found.total_summarized_messages - len(found.messages_to_summarize)


def carried(messages: list[Any], outcome: tuple[State, Any]) -> list[Any]:
    """The messages stay; what was summarised is told beside them."""
    folded = outcome[1].messages_to_summarize
    if folded:
        before = running[0].summarized_message_ids if running[0] else set()
        ids = before | {message.id for message in folded}
        running[0] = RunningSummary("All went well.", ids, folded[-1].id)
    return messages


report({"cut": Cut(history, cut, kept, lambda messages: (list(messages), running[0]), carried)})
