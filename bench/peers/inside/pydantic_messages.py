"""Chat messages as pydantic-ai's; for the peers that are built on it."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# Run by the Python of its own environment, where these packages are; not by ours.

from typing import Any

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)


def history(messages: list[dict[str, Any]]) -> list[Any]:
    return [_message(message) for message in messages]


def _message(message: dict[str, Any]) -> Any:
    text = message["content"]
    match message["role"]:
        case "user":
            return ModelRequest([UserPromptPart(text)])
        case "tool":
            return ModelRequest([ToolReturnPart("read", text, message["tool_call_id"])])
        case _:
            return ModelResponse([TextPart(text), *map(_call, message.get("tool_calls", ()))])


def _call(call: dict[str, Any]) -> Any:
    function = call["function"]
    return ToolCallPart(function["name"], function["arguments"], call["id"])
