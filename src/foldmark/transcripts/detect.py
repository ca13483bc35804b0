"""Of which wire a plain list of messages can be; what does not tell is not guessed.

Bare texts of a user and an assistant are alike for OpenAI's chat and for Anthropic: then a list
can be of both, unless the request around it points to one.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from foldmark.model.values import Frozen, Json
from foldmark.wire.codec import Wire, options, wire_named

from .source import Head

MESSAGES, ITEMS = "messages", "input"
_FEW, _MANY = 5, 200  # messages of each list that are looked at
_CHAT, _ANTHROPIC, _RESPONSES = "openai-chat", "anthropic", "openai-responses"
# Objects that hold messages and are of another format: these fields tell.
_ELSEWHERE = frozenset({"info", "trajectory_format", "trajectory", "simulations", "sessionId"})
# What a request says only on its own wire.
_CHAT_FIELDS = frozenset(
    {
        *("functions", "parallel_tool_calls", "response_format", "max_completion_tokens", "n"),
        *("frequency_penalty", "presence_penalty", "logprobs", "seed", "stream_options"),
    }
)
_ANTHROPIC_FIELDS = frozenset({"system", "anthropic_version", "stop_sequences", "thinking"})
_SEEN = ("model", "tools", "response")
# Blocks of the Responses API.
_ITEM_BLOCKS = ("input_text", "output_text", "input_image", "input_file")


class Sample(Frozen):
    """Messages at the beginning of a file, and the requests that they stand in."""

    messages: tuple[Json, ...]
    requests: tuple[Json, ...] = ()


def can_be(head: Head, wire: str) -> bool:
    """Whether a file can hold lists of this wire."""
    if wire == _RESPONSES:
        return _can_be_items(head)
    for most in (_FEW, _MANY):
        sample = _sample(head, MESSAGES, most)
        possible = {name for name in (_CHAT, _ANTHROPIC) if sample and _held(sample, name)}
        if sample is None or len(possible) < 2:
            return wire in possible
    pointed = {name for request in sample.requests for name in _pointed(request)}
    return wire in pointed or len(pointed) != 1


def _can_be_items(head: Head) -> bool:
    sample = _sample(head, ITEMS, _FEW)
    if sample is None:
        return False
    codec = wire_named(_RESPONSES)
    if codec.recognises(sample.messages):
        return True
    # Within a request the field itself tells, where messages alone would not.
    typed = [{**message, "type": "message"} for message in sample.messages if "role" in message]
    return bool(sample.requests) and len(typed) == len(sample.messages) and codec.recognises(typed)


def _held(sample: Sample, wire: str) -> bool:
    codec: Wire = wire_named(wire)
    return not any(map(_is_item, sample.messages)) and codec.recognises(sample.messages)


def _is_item(message: Json) -> bool:
    """Whether it is known to be of the Responses API, which others might take for theirs."""
    content = message.get("content")
    if message.get("type") == "message" and isinstance(content, str):
        return True
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return any(
        isinstance(block, dict) and "type" in block and block["type"] in _ITEM_BLOCKS
        for block in blocks
    )


# --- what a request points to ---


def _pointed(request: Json) -> Iterator[str]:
    """The wires to which a request points by what it says beside its messages."""
    model, response = request.get("model"), options(request, "response")
    if _CHAT_FIELDS & set(request) or (isinstance(model, str) and model.startswith("gpt-")):
        yield _CHAT
    if _ANTHROPIC_FIELDS & set(request) or (isinstance(model, str) and model.startswith("claude")):
        yield _ANTHROPIC
    for name in (_CHAT, _ANTHROPIC):
        if response and wire_named(name).recognises_reply(response):
            yield name
    tools = request.get("tools")
    for tool in cast("list[object]", tools) if isinstance(tools, list) else []:
        if isinstance(tool, dict):
            if "function" in tool:
                yield _CHAT
            elif "input_schema" in tool:
                yield _ANTHROPIC


# --- the beginning of a file ---


def _sample(head: Head, field: str, most: int) -> Sample | None:
    if head.lines:
        return _of_lines(head.lines, field, most)
    if field in head.fields:
        request = {name: head.field(name) if name in _SEEN else None for name in head.fields}
        return _told(_beginning(head.fields[field], most), [request])
    return _told([head.item(place) for place in range(min(len(head.items), most))], [])


def _of_lines(lines: Sequence[Json], field: str, most: int) -> Sample | None:
    held = [line.get(field) for line in lines]
    if not any(isinstance(found, list) for found in held):
        return _told(lines[:most], [])
    if not all(isinstance(found, list) for found in held):
        return None
    lists = cast("list[list[object]]", held)
    return _told([item for found in lists for item in found[:most]], lines)


def _told(messages: Sequence[object], requests: Sequence[Json]) -> Sample | None:
    if not messages or not all(isinstance(message, dict) for message in messages):
        return None
    if any(_ELSEWHERE & set(request) for request in requests):
        return None
    return Sample(messages=tuple(cast("Sequence[Json]", messages)), requests=tuple(requests))


def _beginning(held: object, most: int) -> list[object]:
    if isinstance(held, msgspec.Raw):
        try:
            items = msgspec.json.decode(held, type=list[msgspec.Raw])
        except msgspec.DecodeError:
            return []
        return [msgspec.json.decode(item) for item in items[:most]]
    return cast("list[object]", held)[:most] if isinstance(held, list) else []
