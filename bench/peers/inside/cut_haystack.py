"""Haystack: CompactionHook with ToolResultPruningCompactor, before a call of a model."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

import json
import warnings
from typing import Any

from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.compaction import CompactionHook, ToolResultPruningCompactor
from timing import Cut, report

warnings.simplefilter("ignore")
HOOK = CompactionHook(ToolResultPruningCompactor(), context_window=100_000, compact_to=0.4)
calls: dict[str, ToolCall] = {}


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> Any:
    text = message["content"]
    match message["role"]:
        case "user":
            return ChatMessage.from_user(text)
        case "tool":
            return ChatMessage.from_tool(text, origin=calls[message["tool_call_id"]])
        case _:
            made = [_call(call) for call in message.get("tool_calls", ())]
            return ChatMessage.from_assistant(text, tool_calls=made)


def _call(call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    args = json.loads(function["arguments"])
    calls[call["id"]] = ToolCall(function["name"], args, id=call["id"])
    return calls[call["id"]]


def state(messages: list[Any]) -> State:
    return State(schema={"context_tokens": {"type": int}}, data={"messages": list(messages)})


def cut(given: State) -> list[Any]:
    HOOK.run(given)
    return given.data["messages"]


def whole(messages: list[Any]) -> int:
    return sum("context_compaction" not in message.meta for message in messages)


report({"cut": Cut(history, cut, whole, state, lambda _, kept: list(kept))})
