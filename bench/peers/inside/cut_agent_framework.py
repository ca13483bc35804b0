"""Microsoft's agent-framework: apply_compaction with SelectiveToolCallCompactionStrategy."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

import asyncio
from copy import deepcopy
from typing import Any

from agent_framework import (
    Content,
    Message,
    SelectiveToolCallCompactionStrategy,
    apply_compaction,
)
from timing import Cut, report

STRATEGY = SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=75)
LOOP = asyncio.new_event_loop()


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> Any:
    text, role = message["content"], message["role"]
    if role == "tool":
        found = Content.from_function_result(message["tool_call_id"], result=text)
        return Message(role="tool", contents=[found])
    calls = [_call(call) for call in message.get("tool_calls", ())]
    return Message(role=role, contents=[Content.from_text(text), *calls])


def _call(call: dict[str, Any]) -> Any:
    function = call["function"]
    return Content.from_function_call(call["id"], function["name"], arguments=function["arguments"])


def state(messages: list[Any]) -> list[Any]:
    """It notes in the messages what it left out: a first cut gets new ones, a later its own."""
    noted = "_group" in messages[0].additional_properties
    return list(messages) if noted else deepcopy(messages)


def cut(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    return messages, LOOP.run_until_complete(apply_compaction(messages, strategy=STRATEGY))


report(
    {
        "cut": Cut(
            history,
            cut,
            lambda outcome: len(outcome[1]),
            state,
            lambda _, outcome: outcome[0],
        )
    }
)
LOOP.close()
