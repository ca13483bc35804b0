"""What the providers' APIs take: the types of their SDKs, and rules of which these tell nothing."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from google.genai import types
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam
from pydantic import ConfigDict, TypeAdapter

from tests.support.anthropic_messages import TAKEN as ANTHROPIC_BLOCKS
from tests.support.anthropic_messages import blocks_of, marks

Json = dict[str, Any]
WIRES = ("openai-chat", "openai-responses", "anthropic", "gemini")
_STRICT = ConfigDict(extra="forbid")
_CHAT = TypeAdapter(list[ChatCompletionMessageParam], config=_STRICT)
_ITEMS: TypeAdapter[Any] = TypeAdapter(ResponseInputParam)
# Fields of a chat message that OpenAI's SDK does not know, and other servers want back.
_OF_SERVERS = {"reasoning_content", "reasoning", "reasoning_text", "reasoning_details"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def plain(value: Any) -> Any:
    """What pydantic validated, to the last block: it looks into lists only as they are read."""
    if isinstance(value, dict):
        return {name: plain(held) for name, held in cast("Json", value).items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [plain(held) for held in value]


def assert_taken(wire: str, messages: list[Json]) -> None:
    """A provider takes these messages of a request."""
    json.dumps(messages)
    _CHECKS[wire](messages)


def blocks(wire: str, messages: list[Json]) -> Iterator[str]:
    """The pieces of a request in their order, by which a provider remembers its beginning."""
    for message in messages:
        if wire == "openai-responses":
            yield json.dumps(message, sort_keys=True)
            continue
        name = "parts" if wire == "gemini" else "content"
        held = message.get(name)
        whole: list[Json] = [{"type": "text", "text": held}]
        for block in cast("list[Json]", held) if isinstance(held, list) else whole:
            # Breakpoints move on with the newest message, and are no part of what is remembered.
            yield json.dumps([message["role"], _without_marks(block)], sort_keys=True)
        if rest := {key: more for key, more in message.items() if key not in (name, "role")}:
            yield json.dumps(rest, sort_keys=True)


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(held) for held in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("Json", value)
        return {key: _without_marks(held) for key, held in fields.items() if key != "cache_control"}
    return value


def _anthropic(messages: list[Json]) -> None:
    calls: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        assert message["role"] == ("user", "assistant")[place % 2], "roles take turns"
        found = blocks_of(message)
        assert found, "no message is empty"
        results = [block for block in found if block["type"] == "tool_result"]
        assert found[: len(results)] == results, "results come first"
        assert [block["tool_use_id"] for block in results] == calls, "each call has one result"
        for block in found:
            plain(ANTHROPIC_BLOCKS[block["type"]].validate_python([block]))
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "thinking" or block["signature"]
        uses = [block for block in found if block["type"] == "tool_use"]
        assert all(_ANTHROPIC_NAME.fullmatch(use[name]) for use in uses for name in ("id", "name"))
        calls = [use["id"] for use in uses]
        assert not seen & set(calls), "an id is used once"
        seen |= set(calls)
    assert not calls, "no call is without a result"
    assert marks(messages) <= 4


def _chat(messages: list[Json]) -> None:
    known = [
        {
            name: held
            for name, held in message.items()
            if name not in _OF_SERVERS and (name, message["role"]) != ("name", "tool")
        }
        for message in messages
    ]
    plain(_CHAT.validate_python(known))
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "results follow their calls directly"
        calls = message.get("tool_calls", [])
        assert calls or message["content"], "no message is empty"
        waiting = [call["id"] for call in calls]
        assert len(set(waiting)) == len(waiting)
        assert all(_NAME.fullmatch(call[call["type"]]["name"]) for call in calls)
        assert all(0 < len(call_id) <= 40 for call_id in waiting)
    assert not waiting, "no call is without a result"


def with_ids(items: list[Json]) -> list[Json]:
    """Codex leaves the id of a thought out, as the API allows and the SDK does not know."""
    return [
        {"id": f"rs_{place}", **item} if item["type"] == "reasoning" else item
        for place, item in enumerate(items)
    ]


def _responses(items: list[Json]) -> None:
    named = with_ids(items)
    assert plain(_ITEMS.validate_python(named)) == named, "the SDK knows every field"
    waiting: set[str] = set()
    for place, item in enumerate(items):
        kind = item["type"]
        after = items[place + 1]["type"] if place + 1 < len(items) else ""
        if kind == "reasoning":
            assert item["encrypted_content"]
            assert after
            assert not after.endswith("_output"), "thinking comes before what it led to"
        elif kind.endswith("_output"):
            waiting.remove(item["call_id"])
        elif isinstance(item.get("call_id"), str):
            assert item["call_id"] not in waiting
            assert 0 < len(item["call_id"]) <= 64
            assert _NAME.fullmatch(item.get("name", "shell"))
            waiting.add(item["call_id"])
    assert not waiting, "no call is without a result"
    ids = [item["id"] for item in items if "id" in item]
    assert len(set(ids)) == len(ids)


def _gemini(contents: list[Json]) -> None:
    calls: list[str] = []
    for place, content in enumerate(contents):
        read = types.Content.model_validate(content)
        assert read.role == ("user", "model")[place % 2], "roles take turns"
        assert read.parts, "no content is empty"
        answers = [part.function_response for part in read.parts if part.function_response]
        assert [answer.name for answer in answers] == calls, "results answer the calls before them"
        calls = [part.function_call.name or "" for part in read.parts if part.function_call]
        assert all(_GEMINI_NAME.fullmatch(name) for name in calls)
        for part in read.parts:
            assert part.text is None or part.text.strip() or part.thought_signature
            assert part.model_dump(exclude_none=True)
    assert not calls, "no call is without a result"


_CHECKS = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
