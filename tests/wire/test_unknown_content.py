"""Content that no codec knows passes through: new roles, blocks and fields of an API."""

from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import by_classes
from foldmark.wire.formats import decode, encode
from tests.support.api_lists import request_for, round_trip

Json = dict[str, Any]
WORDS = "Answer in one line. " * 40
NEW: Json = {"type": "hologram", "depth": {"levels": [1, 2]}, "words": WORDS}
UNTYPED: Json = {"hologram": {"depth": 3}}

# A user message, one with an unknown role and unknown blocks, and the reply.
LISTS: dict[str, list[Json]] = {
    "openai-chat": [
        {"role": "user", "content": [{"type": "text", "text": "Go"}, NEW, UNTYPED]},
        {"role": "narrator", "content": WORDS, "mood": {"dark": True}},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "quantum", "quantum": {"name": "q", "bits": 3}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
    "openai-responses": [
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Go"}, NEW, UNTYPED],
        },
        {"type": "message", "role": "narrator", "content": WORDS, "mood": {"dark": True}},
        {"type": "hologram_made", "id": "h1", "depth": {"levels": [1]}},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
    ],
    "anthropic": [
        {"role": "user", "content": [{"type": "text", "text": "Go", "mood": 1}, NEW, UNTYPED]},
        {"role": "system", "content": WORDS},
        {
            "role": "assistant",
            "content": [NEW, {"type": "tool_use", "id": "c1", "name": "ls", "input": {}, "by": 1}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [NEW], "mood": {"a": 1}}
            ],
        },
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Go", "mood": 1}, NEW, UNTYPED]},
        {"role": "narrator", "parts": [{"text": WORDS}], "mood": {"dark": True}},
        {
            "role": "model",
            "parts": [NEW, {"functionCall": {"name": "ls", "args": {}, "by": 1}, "mood": 1}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "ls", "response": {"output": "done"}}}],
        },
    ],
}
each_wire = pytest.mark.parametrize("wire", LISTS)


@each_wire
def test_a_list_is_encoded_unchanged(wire: str) -> None:
    round_trip(LISTS[wire], wire)


@each_wire
def test_a_request_has_unknown_content_in_place(wire: str) -> None:
    assert request_for(LISTS[wire], wire) == LISTS[wire]


@each_wire
def test_other_providers_get_its_text(wire: str) -> None:
    for to in LISTS:
        if to != wire:
            assert WORDS in str(request_for(LISTS[wire], wire, to))


@each_wire
def test_unknown_content_is_counted(wire: str) -> None:
    tokens = Viewer(Log(by_classes, decode(LISTS[wire], wire).messages), FOLDMARK).view().tokens
    assert tokens > 2 * by_classes(WORDS)


@each_wire
def test_a_session_stores_and_sends_unknown_content(tmp_path: Path, wire: str) -> None:
    with foldmark.open(tmp_path / "a.db", window=100_000) as session:
        session.extend(LISTS[wire])  # the format is recognized, too
        assert session.messages(wire) == LISTS[wire]
        assert encode(session.export().messages, wire) == LISTS[wire]


@each_wire
def test_fit_keeps_the_newest_messages_as_the_same_objects(wire: str) -> None:
    old = LISTS[wire][:1] * 40
    newest = LISTS[wire]
    fitted = foldmark.fit([*old, *newest], 3_000, api=wire)
    assert len(fitted) < 40
    assert all(one is other for one, other in zip(fitted[-3:], newest[-3:], strict=True))


KNOWN_TO_NOBODY: list[list[Any]] = [
    [{"role": "narrator", "content": "hi"}],
    [{"a": 1}, {"role": 5}],
    [{"role": "user", "content": 5}],
    [{"role": "user", "parts": [{"text": 5}]}],
    [{"role": "assistant", "content": [{"type": "tool_use"}]}],
    [{"type": "function_call"}],
    [5, "text", None],
    [object()],
    [{"role": "user", "content": {1, 2}}],
]


@pytest.mark.parametrize("messages", KNOWN_TO_NOBODY)
@pytest.mark.parametrize("wire", [None, *LISTS])
def test_fit_returns_any_list_that_fits(messages: list[Any], wire: str | None) -> None:
    assert foldmark.fit(messages, 1_000, api=wire) is messages


def test_fit_refuses_an_unknown_list_that_does_not_fit() -> None:
    with pytest.raises(foldmark.BadInput, match="no known API format"):
        foldmark.fit([{"a": WORDS}] * 40, 1_000)
