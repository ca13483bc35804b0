"""What the providers' APIs accept: the types of their SDKs, and rules that these do not state."""

import json
import re
from collections.abc import Iterator
from types import GenericAlias
from typing import Any, cast, get_args, get_type_hints

from anthropic.types import ContentBlockParam
from anthropic.types.beta import BetaContentBlockParam
from google.genai import types
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam
from pydantic import ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

Json = dict[str, Any]
WIRES = ("openai-chat", "openai-responses", "anthropic", "gemini")
_STRICT = ConfigDict(extra="forbid")
_CHAT = TypeAdapter(list[ChatCompletionMessageParam], config=_STRICT)
_ITEMS: TypeAdapter[Any] = TypeAdapter(ResponseInputParam)
# Fields of a chat message that OpenAI's SDK does not know and other servers expect back.
SERVER_FIELDS = {"reasoning_content", "reasoning", "reasoning_text", "reasoning_details"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def _block_types(union: Any) -> dict[str, TypeAdapter[Any]]:
    """The types of the blocks in a request; unknown fields are refused."""
    kinds = [kind for kind in get_args(union) if is_typeddict(kind)]
    lists: list[Any] = [GenericAlias(list, kind) for kind in kinds]
    names = [get_args(get_type_hints(kind)["type"])[0] for kind in kinds]
    return {
        name: TypeAdapter(kind, config=_STRICT) for name, kind in zip(names, lists, strict=True)
    }


_BLOCKS, _BETA_BLOCKS = _block_types(ContentBlockParam), _block_types(BetaContentBlockParam)


def plain(value: Any) -> Any:
    """The validated value in full: pydantic checks the items of a list only as they are read."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in cast("Json", value).items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return [plain(item) for item in value]


def assert_accepted(wire: str, messages: list[Json], *, beta: bool = False) -> None:
    """The provider accepts these messages of a request; with `beta` also beta blocks."""
    json.dumps(messages)
    assert_types(wire, messages, beta=beta)
    _RULES[wire](messages)


def assert_types(wire: str, messages: list[Json], *, beta: bool = False) -> None:
    """The provider's SDK knows every block and field of these messages."""
    match wire:
        case "anthropic":
            known = _BETA_BLOCKS if beta else _BLOCKS
            for block in [block for message in messages for block in blocks_of(message)]:
                plain(known[block["type"]].validate_python([block]))
        case "openai-chat":
            plain(_CHAT.validate_python([_without_server_fields(message) for message in messages]))
        case "openai-responses":
            items = with_ids(messages)
            assert plain(_ITEMS.validate_python(items)) == items, "the SDK knows every field"
        case _:
            for content in messages:
                types.Content.model_validate(content)


def _without_server_fields(message: Json) -> Json:
    return {
        name: value
        for name, value in message.items()
        if name not in SERVER_FIELDS and (name, message["role"]) != ("name", "tool")
    }


def blocks_of(message: Json) -> list[Json]:
    """The blocks of an Anthropic message."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def marks(value: Any) -> int:
    """The number of cache breakpoints at any depth."""
    if isinstance(value, list):
        return sum(marks(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        fields = cast("Json", value)
        return bool(fields.get("cache_control")) + sum(marks(item) for item in fields.values())
    return 0


def blocks(wire: str, messages: list[Json]) -> Iterator[str]:
    """The pieces of a request in order, as a provider's prompt cache compares them."""
    for message in messages:
        if wire == "openai-responses":
            yield json.dumps(message, sort_keys=True)
            continue
        name = "parts" if wire == "gemini" else "content"
        content = message.get(name)
        whole: list[Json] = [{"type": "text", "text": content}]
        for block in cast("list[Json]", content) if isinstance(content, list) else whole:
            # Breakpoints move on with the newest message and are not part of the cached prefix.
            yield json.dumps([message["role"], _without_marks(block)], sort_keys=True)
        if rest := {key: more for key, more in message.items() if key not in (name, "role")}:
            yield json.dumps(rest, sort_keys=True)


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("Json", value)
        return {key: _without_marks(item) for key, item in fields.items() if key != "cache_control"}
    return value


# --- rules -----------------------------------------------------------------------------------


def _anthropic(messages: list[Json]) -> None:
    calls: list[str] = []
    used_ids: set[str] = set()
    for index, message in enumerate(messages):
        assert message.keys() == {"role", "content"}
        assert message["role"] == ("user", "assistant")[index % 2], "roles alternate"
        content = blocks_of(message)
        assert content, "no message is empty"
        results = [block for block in content if block["type"] == "tool_result"]
        assert content[: len(results)] == results, "results come first"
        assert [block["tool_use_id"] for block in results] == calls, "each call has one result"
        assert all(block.get("content") for block in results if block.get("is_error"))
        pieces = [piece for block in results for piece in block.get("content", "") if piece != ""]
        for piece in [*content, *(piece for piece in pieces if not isinstance(piece, str))]:
            assert piece.get("text", "x").strip(), "no text is blank"
        for block in content:
            assert block["type"] != "image" or message["role"] == "user"
            assert block["type"] != "thinking" or (block["signature"] and not marks(block))
        uses = [block for block in content if block["type"] == "tool_use"]
        assert all(_ANTHROPIC_NAME.fullmatch(use[name]) for use in uses for name in ("id", "name"))
        calls = [use["id"] for use in uses]
        assert len(set(calls)) == len(calls), "an id is used once"
        assert not used_ids & set(calls), "an id is used once"
        used_ids |= set(calls)
    assert not calls, "no call is without a result"
    assert marks(messages) <= 2, "two breakpoints are left for the system prompt and the tools"
    if marks(messages):
        kinds = {block["type"] for block in blocks_of(messages[-1])}
        assert marks(messages[-1]) or kinds <= {"thinking", "redacted_thinking"}


def _chat(messages: list[Json]) -> None:
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
    """Items with ids for reasoning: Codex omits them, as the API allows and the SDK does not."""
    return [
        {"id": f"rs_{index}", **item} if item["type"] == "reasoning" else item
        for index, item in enumerate(items)
    ]


def _responses(items: list[Json]) -> None:
    waiting: set[str] = set()
    for index, item in enumerate(items):
        kind = item["type"]
        after = items[index + 1]["type"] if index + 1 < len(items) else ""
        if kind == "reasoning":
            assert item["encrypted_content"]
            assert after
            assert not after.endswith("_output"), "reasoning precedes the item it led to"
        elif kind.endswith("_output"):
            waiting.remove(item["call_id"])
        elif isinstance(item.get("call_id"), str):
            assert item["call_id"] not in waiting
            assert 0 < len(item["call_id"]) <= 64
            assert _NAME.fullmatch(item.get("name", "shell"))
            waiting.add(item["call_id"])
    assert not waiting, "no call is without a result"
    # The API requires an id on each computer call.
    ids = [item["id"] for item in items if "id" in item and item["type"] != "computer_call"]
    assert len(set(ids)) == len(ids)


def _gemini(contents: list[Json]) -> None:
    calls: list[str] = []
    for index, content in enumerate(contents):
        read = types.Content.model_validate(content)
        assert read.role == ("user", "model")[index % 2], "roles alternate"
        assert read.parts, "no content is empty"
        results = [part.function_response for part in read.parts if part.function_response]
        assert [result.name for result in results] == calls, "results answer the calls before them"
        calls = [part.function_call.name or "" for part in read.parts if part.function_call]
        assert all(_GEMINI_NAME.fullmatch(name) for name in calls)
        for part in read.parts:
            assert part.text is None or part.text.strip() or part.thought_signature
            assert part.model_dump(exclude_none=True)
    assert not calls, "no call is without a result"


_RULES = {
    "anthropic": _anthropic,
    "openai-chat": _chat,
    "openai-responses": _responses,
    "gemini": _gemini,
}
