"""LangChain: the cut of SummarizationMiddleware, and ClearToolUsesEdit in its middleware."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

import json
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware
from langchain.agents.middleware.summarization import SummarizationMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from timing import Cut, report

MODEL = FakeListChatModel(responses=["Done."])
SUMMARY = SummarizationMiddleware(MODEL, trigger=("tokens", 40_000), keep=("tokens", 40_000))
EDITING: Any = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=40_000, keep=75)])


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> Any:
    text = message["content"]
    match message["role"]:
        case "user":
            return HumanMessage(text)
        case "tool":
            return ToolMessage(text, tool_call_id=message["tool_call_id"], name="read")
        case _:
            return AIMessage(
                text, tool_calls=[_call(call) for call in message.get("tool_calls", ())]
            )


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    args = json.loads(function["arguments"])
    return {"id": call["id"], "name": function["name"], "args": args}


def summary_cut(messages: list[Any]) -> list[Any]:
    """What before_model does, up to the model's call and after it."""
    SUMMARY._ensure_message_ids(messages)  # noqa: SLF001 - the steps have no public names
    tokens = SUMMARY.token_counter(messages)
    if not SUMMARY._should_summarize(messages, tokens):  # noqa: SLF001
        return messages
    cutoff = SUMMARY._determine_cutoff_index(messages)  # noqa: SLF001
    if cutoff <= 0:
        return messages
    _, kept = SUMMARY._partition_messages(messages, cutoff)  # noqa: SLF001
    return [*SUMMARY._build_new_messages("All went well."), *kept]  # noqa: SLF001


def cleared(messages: list[Any]) -> Any:
    request = ModelRequest(model=MODEL, messages=messages)
    return EDITING.wrap_model_call(request, lambda edited: edited.messages)


def whole(messages: list[Any]) -> int:
    return sum(getattr(message, "content", "") != "[cleared]" for message in messages)


report(
    {
        "summarization": Cut(history, summary_cut, len, carried=lambda _, kept: list(kept)),
        "clear-tool-uses": Cut(history, cleared, whole),
    }
)
