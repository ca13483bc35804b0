"""Streamed answers of the four API formats, with what they contain."""

from collections.abc import Sequence
from typing import Any

from anthropic.types import RawMessageStreamEvent
from google.genai import types
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from foldmark.model.messages import Message
from foldmark.wire.formats import decode_reply
from foldmark.wire.streams import Streamed
from tests.support.api_answers import ANSWERS, Answer, Bit, Call, Json, Said, Thought

THINKS = "The left stone is worn."
WORDS = "I look at both stones — "
CALLS = (Call("read", {"path": "left.py"}), Call("read", {"path": "right.py", "line": 7}))
WHOLE = (Thought(THINKS), WORDS, *CALLS)
SDK: dict[str, TypeAdapter[Any]] = {
    "openai-chat": TypeAdapter(ChatCompletionChunk),
    "openai-responses": TypeAdapter(ResponseStreamEvent),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
    "gemini": TypeAdapter(types.GenerateContentResponse),
}
# As Anthropic, OpenAI, and servers that speak as OpenAI or Gemini do send them.
ERRORS: tuple[Json, ...] = (
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    {"type": "error", "code": "server_error", "message": "Overloaded", "param": None},
    {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}},
    {"error": "Overloaded"},
)


def answer(wire: str, bits: Sequence[Bit] = WHOLE) -> Answer:
    body = {"model": "mill-1", "stream_options": {"include_usage": True}}
    return ANSWERS[wire](Said(1, tuple(bits), 100, body))


def message(said: Streamed) -> Message:
    return decode_reply(said.response, said.wire)


def gemini(*parts: Json, **more: Any) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **more}]}
