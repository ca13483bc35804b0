"""Streamed replies of the four API formats, with their content."""

from collections.abc import Sequence
from typing import Any

from anthropic.types import RawMessageStreamEvent
from google.genai import types
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from foldmark.model.messages import Message
from foldmark.wire.formats import decode_reply
from foldmark.wire.streams import StreamResult
from tests.support.api_answers import ANSWERS, Answer, Bit, Call, Json, Reply, Thought

THINKS = "The parser test fails."
WORDS = "I look at both files — "
CALLS = (Call("read", {"path": "left.py"}), Call("read", {"path": "right.py", "line": 7}))
WHOLE = (Thought(THINKS), WORDS, *CALLS)
SDK: dict[str, TypeAdapter[Any]] = {
    "openai-chat": TypeAdapter(ChatCompletionChunk),
    "openai-responses": TypeAdapter(ResponseStreamEvent),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
    "gemini": TypeAdapter(types.GenerateContentResponse),
}
# Errors as sent by Anthropic, OpenAI, Gemini and servers compatible with OpenAI.
ERRORS: tuple[Json, ...] = (
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    {"type": "error", "code": "server_error", "message": "Overloaded", "param": None},
    {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}},
    {"error": "Overloaded"},
)


def answer(wire: str, bits: Sequence[Bit] = WHOLE) -> Answer:
    body = {"model": "model-1", "stream_options": {"include_usage": True}}
    return ANSWERS[wire](Reply(1, tuple(bits), 100, body))


def message(result: StreamResult) -> Message:
    return decode_reply(result.response, result.wire)


def gemini(*parts: Json, **more: Any) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}
