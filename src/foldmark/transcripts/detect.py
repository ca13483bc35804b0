"""Recognizes files that hold plain lists of an API's messages; what does not tell is not guessed.

Bare texts of a user and an assistant are alike for OpenAI's chat and for Anthropic: then a list
can be of both, unless the request around it points to one.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from foldmark.model.values import Frozen, Json
from foldmark.wire.codec import options, wire_named
from foldmark.wire.detect import reply_candidates

from .build import as_list, as_object
from .source import Head

MESSAGES, ITEMS = "messages", "input"
_FEW, _MANY = 5, 200  # messages of each list that are looked at
_CHAT, _ANTHROPIC, _RESPONSES = "openai-chat", "anthropic", "openai-responses"
# Objects that hold messages and are of another format: these fields tell.
_ELSEWHERE = frozenset({"info", "trajectory_format", "trajectory", "simulations", "sessionId"})
# What a request says only on its own API.
_FIELDS = {
    _CHAT: frozenset(
        {
            *("functions", "parallel_tool_calls", "response_format", "max_completion_tokens", "n"),
            *("frequency_penalty", "presence_penalty", "logprobs", "seed", "stream_options"),
        }
    ),
    _ANTHROPIC: frozenset({"system", "anthropic_version", "stop_sequences", "thinking"}),
}
_MODELS = {_CHAT: "gpt-", _ANTHROPIC: "claude"}
_TOOLS = {_CHAT: "function", _ANTHROPIC: "input_schema"}
_SEEN = ("model", "tools", "response")
# Blocks of the Responses API.
_ITEM_BLOCKS = ("input_text", "output_text", "input_image", "input_file")


class _Sample(Frozen):
    """Messages at the beginning of a file, and the requests that they stand in."""

    messages: tuple[Json, ...]
    requests: tuple[Json, ...] = ()


def can_be(head: Head, wire: str) -> bool:
    """Whether a file can hold lists of this API."""
    if wire == _RESPONSES:
        return _can_be_items(_sample(head, ITEMS, _FEW))
    for most in (_FEW, _MANY):
        sample = _sample(head, MESSAGES, most)
        if sample is None or any(map(_is_item, sample.messages)):
            return False
        possible = [name for name in _FIELDS if wire_named(name).recognises(sample.messages)]
        if len(possible) < 2:
            return wire in possible
    pointed = {name for request in sample.requests for name in _pointed(request)}
    return wire in pointed or len(pointed) != 1


def _can_be_items(sample: _Sample | None) -> bool:
    if sample is None:
        return False
    codec = wire_named(_RESPONSES)
    if codec.recognises(sample.messages):
        return True
    # Within a request the field itself tells, where messages alone would not.
    typed = [{**message, "type": "message"} for message in sample.messages if "role" in message]
    return bool(sample.requests) and len(typed) == len(sample.messages) and codec.recognises(typed)


def _is_item(message: Json) -> bool:
    """Whether it is known to be of the Responses API, which others might take for theirs."""
    content = message.get("content")
    if message.get("type") == "message" and isinstance(content, str):
        return True
    return any(as_object(block).get("type") in _ITEM_BLOCKS for block in as_list(content))


def _pointed(request: Json) -> Iterator[str]:
    """The APIs to which a request points by what it says beside its messages."""
    model, response = request.get("model"), options(request, "response")
    replies = [codec.name for codec in reply_candidates(response)] if response else []
    tools = [as_object(tool) for tool in as_list(request.get("tools"))]
    for name, fields in _FIELDS.items():
        is_named = isinstance(model, str) and model.startswith(_MODELS[name])
        has_tools = any(_TOOLS[name] in tool for tool in tools)
        if fields & set(request) or is_named or name in replies or has_tools:
            yield name


# --- the beginning of a file ---


def _sample(head: Head, field: str, most: int) -> _Sample | None:
    if head.lines:
        return _of_lines(head.lines, field, most)
    if field in head.fields:
        request = {name: head.field(name) if name in _SEEN else None for name in head.fields}
        return _checked(head.beginning(field, most), [request])
    return _checked(head.beginning("", most), [])


def _of_lines(lines: Sequence[Json], field: str, most: int) -> _Sample | None:
    lists = [line.get(field) for line in lines]
    if not any(isinstance(found, list) for found in lists):
        return _checked(lines[:most], [])
    if not all(isinstance(found, list) for found in lists):
        return None
    return _checked([item for found in lists for item in as_list(found)[:most]], lines)


def _checked(messages: Sequence[object], requests: Sequence[Json]) -> _Sample | None:
    if not messages or not all(isinstance(message, dict) for message in messages):
        return None
    if any(_ELSEWHERE & set(request) for request in requests):
        return None
    return _Sample(messages=tuple(cast("Sequence[Json]", messages)), requests=tuple(requests))
