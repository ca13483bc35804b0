"""Checks on request bodies, by the types of the official SDKs."""

from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from google.genai import types
from markdown_it import MarkdownIt
from markdown_it.token import Token
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from tests.support.corpus import Json
from tests.support.provider_types import assert_accepted, plain, with_ids

# Lists as programs store them: with extra fields, and in orders that no API accepts.
LISTS: dict[str, list[Json]] = {
    "openai-chat": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "at": 1},
        {"role": "user", "content": "Look", "turn": 1},
        *[{"role": "assistant", "content": None, "tool_calls": None, "reasoning": "Hm."}] * 2,
        {"role": "tool", "tool_call_id": "nobody", "content": "lost", "name": "ls"},
    ],
    "openai-responses": [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "x", "internal_notes": {}},
        {"type": "function_call_output", "call_id": "nobody", "output": "lost"},
    ],
    "anthropic": [
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}],
            "at": 1,
        },
        {"role": "user", "content": "Look"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "late"},
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            ],
        },
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Look"}]},
        {"role": "model", "parts": [{"function_call": {"name": "ls"}}], "at": 1},
        {"role": "user", "parts": [{"text": "late"}, {"functionResponse": {"name": "cat"}}]},
    ],
}  # fmt: skip
PARAMETERS: dict[str, tuple[TypeAdapter[Any], Json]] = {
    "openai-chat": (TypeAdapter(CompletionCreateParamsNonStreaming), {"model": "m"}),
    "openai-responses": (TypeAdapter(ResponseCreateParamsNonStreaming), {"model": "m"}),
    "anthropic": (TypeAdapter(MessageCreateParamsNonStreaming), {"model": "m", "max_tokens": 9}),
}
SCHEMA: Json = {"type": "object", "properties": {}}
TOOLS: dict[str, list[Json]] = {
    "openai-chat": [{"type": "function", "function": {"name": "ls", "parameters": SCHEMA}}],
    "openai-responses": [
        {"type": "function", "name": "ls", "parameters": SCHEMA, "strict": True},
        {"type": "web_search"},
    ],
    "anthropic": [
        {"name": "ls", "input_schema": SCHEMA},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "gemini": [{"functionDeclarations": [{"name": "ls", "parameters": SCHEMA}]}],
}


def assert_body(wire: str, body: Json) -> None:
    if wire == "gemini":
        types.Content.model_validate(body.get("systemInstruction") or {})
        for tool in body.get("tools", ()):
            types.Tool.model_validate(tool)
        assert_accepted(wire, body["contents"])
    else:
        adapter, more = PARAMETERS[wire]
        if wire == "openai-responses":
            more = {**more, "input": with_ids(body["input"])}
        plain(adapter.validate_python({**body, **more}))


PARSER = MarkdownIt("commonmark").enable("table")


def tokens(text: str) -> list[Token]:
    session = PARSER.parse(text)
    return [item for token in session for item in (token, *(token.children or ()))]
