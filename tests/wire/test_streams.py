"""Streamed replies give the same response as without streaming, complete or cut short."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from foldmark.errors import BadInput
from foldmark.model.messages import ReasoningPart, TextPart, ToolPart
from foldmark.wire.codec import WIRES
from foldmark.wire.streams import Stream, StreamResult, chunk_wire
from tests.support.api_answers import Bit, Json
from tests.support.effort import examples
from tests.support.stream_cases import (
    CALLS,
    ERRORS,
    SDK,
    THINKS,
    WHOLE,
    WORDS,
    answer,
    gemini,
    message,
)

each_wire = pytest.mark.parametrize("wire", WIRES)


def joined(chunks: Sequence[object], wire: str | None = None) -> StreamResult | None:
    stream = Stream(wire)
    for chunk in chunks:
        stream.add(chunk)
    return stream.result()


def put_together(chunks: Sequence[object], wire: str | None = None) -> StreamResult:
    joined_result = joined(chunks, wire)
    assert joined_result
    return joined_result


def words(result: StreamResult) -> str:
    parts = message(result).parts
    return "".join(p.text for p in parts if isinstance(p, TextPart | ReasoningPart))


def calls(result: StreamResult) -> list[ToolPart]:
    return [part for part in message(result).parts if isinstance(part, ToolPart)]


# --- complete streams ----------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("bits", [WHOLE, (WORDS,), CALLS], ids=["all", "words", "calls"])
def test_chunks_give_the_response_without_streaming(wire: str, bits: Sequence[Bit]) -> None:
    whole, streamed = answer(wire, bits).whole, answer(wire, bits).streamed
    result = put_together(streamed)
    assert result.wire == wire
    assert result.is_complete
    joined_result = result.response
    if wire == "openai-chat":  # null fields are not streamed
        whole["choices"][0]["message"].pop("refusal")
    assert joined_result == whole


@each_wire
def test_sdk_objects_give_the_same_result_as_their_json(wire: str) -> None:
    streamed = [event for event in answer(wire).streamed if event.get("type") != "ping"]
    objects = [SDK[wire].validate_python(event) for event in streamed]
    first, second = put_together(objects), put_together(streamed)
    assert message(first).parts == message(second).parts
    assert (first.wire, first.is_complete) == (wire, True)


@each_wire
def test_a_format_is_recognized_by_its_first_distinctive_chunk(wire: str) -> None:
    assert chunk_wire(answer(wire).streamed[0]) == wire
    added = {"type": "text", "text": "Hi", "snapshot": "Hi"}
    assert put_together([added, {"type": "ping"}, *answer(wire).streamed]).wire == wire
    assert chunk_wire({"type": "ping"}) is None


def test_an_unknown_chunk_is_refused() -> None:
    with pytest.raises(BadInput, match="pass api="):
        joined([{"a": 1}])
    with pytest.raises(BadInput, match="not str"):
        joined(["words"])
    with pytest.raises(BadInput, match="unknown API format"):
        joined([], "pigeon")
    assert joined([]) is None
    assert joined([], "gemini") is None


BROKEN: list[tuple[str, Json]] = [
    ("openai-chat", {"choices": 5}),
    ("openai-chat", {"choices": [5]}),
    ("openai-chat", {"choices": [{"delta": {"tool_calls": "x"}}]}),
    ("anthropic", {"type": "content_block_start", "index": "x"}),
    ("anthropic", {"type": "message_delta", "delta": 5}),
    ("gemini", {"candidates": 5}),
    ("gemini", {"candidates": [{"content": {"parts": [5]}}]}),
    ("gemini", {"candidates": [{"content": {"parts": [{"text": 5}]}}]}),
]


@pytest.mark.parametrize(("wire", "chunk"), BROKEN)
def test_a_malformed_chunk_is_refused(wire: str, chunk: Json) -> None:
    with pytest.raises(BadInput):
        joined([*answer(wire).streamed[:2], chunk], wire)


# --- streams that break off ----------------------------------------------------------------


@each_wire
def test_a_stream_that_breaks_off_keeps_texts_and_complete_calls(wire: str) -> None:
    streamed, before, seen = answer(wire).streamed, "", set[int]()
    inputs = [call.arguments for call in CALLS]
    for length in range(1, len(streamed) + 1):
        result = put_together(streamed[:length])
        text = words(result)
        assert (THINKS + WORDS).startswith(text)
        assert text.startswith(before)
        joined_result = [call.state.input for call in calls(result)]
        assert joined_result == inputs[: len(joined_result)]
        seen.add(len(joined_result))
        before = text
    assert before == THINKS + WORDS
    assert seen == {0, 1, 2}
    assert not put_together(streamed[: len(streamed) // 2]).is_complete


def test_usage_before_the_reply_is_not_that_of_the_reply() -> None:
    result = put_together(answer("anthropic").streamed[:-2])
    assert "usage" not in result.response


def test_an_unfinished_item_has_no_id() -> None:
    events = answer("openai-responses", (WORDS,)).streamed
    result = put_together(events[:4])
    (item,) = result.response["output"]
    assert item["status"] == "incomplete"
    assert "id" not in item
    assert WORDS.startswith(item["content"][0]["text"])


def test_the_error_of_a_provider_is_kept() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    result = put_together([*answer("anthropic").streamed[:8], error])
    assert (result.is_complete, result.failure) == (False, "Overloaded")
    events = answer("openai-responses").streamed
    failed = {"status": "failed", "error": {"code": "server_error", "message": "Oh no"}}
    last = {"type": "response.failed", "response": {**events[0]["response"], **failed}}
    result = put_together([*events[:-1], last])
    assert (result.is_complete, result.failure) == (False, "Oh no")
    assert words(result) == THINKS + WORDS
    assert put_together([*events[:3], {"type": "error", "message": "Later"}]).failure == "Later"


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_alone_fits_any_format_and_gives_no_response(error: Json) -> None:
    assert joined([error]) is None
    assert joined([{"type": "ping"}, error]) is None
    for wire in WIRES:
        result = put_together([error, *answer(wire).streamed[:-2]])
        assert (result.wire, result.failure) == (wire, "Overloaded")
    with pytest.raises(BadInput, match=r"no known API format.*the provider reports: Overloaded"):
        joined([error, {"neither": "nor"}])


# --- peculiarities of servers --------------------------------------------------------------


def delta(**fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def called(**fields: Any) -> Json:
    return delta(tool_calls=[fields])


ENDED: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
ODD: dict[str, list[Json]] = {
    "without an index": [
        called(id="a", function={"name": "ls", "arguments": '{"p"'}),
        called(function={"arguments": ":1}"}),
        called(id="b", function={"name": "ls", "arguments": '{"p":2}'}),
    ],
    "one index for all": [
        called(index=0, id="a", function={"name": "ls", "arguments": '{"p":1}'}),
        called(index=0, id="b", function={"name": "ls", "arguments": '{"p":2}'}),
    ],
    "names again and again": [
        called(index=0, id="a", type="function", function={"name": "ls", "arguments": '{"p"'}),
        called(index=0, id="a", type="function", function={"name": "ls", "arguments": ":1}"}),
        called(index=1, id="b", type="function", function={"name": "ls", "arguments": '{"p":2}'}),
        called(index=1, id="", type="function", function={"name": "", "arguments": ""}),
    ],
    "mixed": [
        called(index=0, id="a", function={"name": "ls", "arguments": '{"p"'}),
        called(index=1, id="b", function={"name": "ls", "arguments": '{"p":'}),
        called(index=0, id=None, function={"name": None, "arguments": ":1}"}),
        called(index=1, function={"arguments": "2}"}),
    ],
}


@pytest.mark.parametrize("chunks", ODD.values(), ids=ODD)
def test_calls_are_distinguished_however_a_server_numbers_them(chunks: list[Json]) -> None:
    result = put_together([delta(role="assistant", content=""), *chunks, ENDED])
    joined_result = [(call.call_id, call.tool, call.state.input) for call in calls(result)]
    assert joined_result == [("a", "ls", {"p": 1}), ("b", "ls", {"p": 2})]


def test_repeated_roles_are_one_and_a_refusal_is_joined() -> None:
    chunks = [delta(role="assistant", refusal="I can"), delta(role="assistant", refusal="not.")]
    end: Json = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    result = put_together([*chunks, end])
    (choice,) = result.response["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": "I cannot."}


def test_reasoning_details_are_joined_by_their_index() -> None:
    def thought(text: str, index: int, **more: Any) -> Json:
        detail = {"type": "reasoning.text", "text": text, "index": index, **more}
        return delta(reasoning_details=[detail])

    chunks = [thought("a", 0), thought("b", 0, signature="s"), thought("c", 1), delta(content="Hi")]
    (choice,) = put_together(chunks).response["choices"]
    assert choice["message"]["reasoning_details"] == [
        {"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s"},
        {"type": "reasoning.text", "text": "c", "index": 1},
    ]


def test_finished_items_are_the_reply_if_the_last_event_has_none() -> None:
    events = answer("openai-responses").streamed
    bare: Json = {**events[-1], "response": {**events[-1]["response"], "output": []}}
    assert put_together([*events[:-1], bare]).response == events[-1]["response"]


def joined_parts(*chunks: Json) -> list[Json]:
    return put_together(chunks, "gemini").response["candidates"][0]["content"]["parts"]


def test_a_signed_part_stays_unchanged() -> None:
    signed = {"text": "", "thoughtSignature": "c2ln"}
    also = {"text": "d", "thoughtSignature": "c2ln"}
    chunks = [gemini({"text": text}) for text in "ab"]
    joined_result = joined_parts(
        *chunks, gemini(signed), gemini({"text": "c"}, also), gemini({"text": "e"})
    )
    assert joined_result == [{"text": "ab"}, signed, {"text": "c"}, also, {"text": "e"}]


def test_thoughts_and_texts_are_joined_separately() -> None:
    thoughts = [gemini({"text": text, "thought": True}) for text in ("Hm", ", hm.")]
    result = [gemini({"text": text}) for text in ("Well", ".", "")]
    joined_result = joined_parts(*thoughts, *result)
    assert joined_result == [{"text": "Hm, hm.", "thought": True}, {"text": "Well."}]


def test_arguments_in_pieces_are_set_at_their_paths() -> None:
    first = gemini({"functionCall": {"name": "ls", "id": "a", "willContinue": True}})
    pieces = [
        ("$.path", {"stringValue": "lef"}),
        ("$.path", {"stringValue": "t.py"}),
        ("$.at[1].line", {"numberValue": 7}),
        ("$['deep']['er']", {"boolValue": True}),
        ("$[0]", {"numberValue": 1}),
    ]
    chunks = [
        gemini(
            {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}
        )
        for path, value in pieces
    ]
    assert joined_parts(first, *chunks) == []  # incomplete
    (part,) = joined_parts(first, *chunks, gemini({"functionCall": {}}))
    inputs = {"path": "left.py", "at": [None, {"line": 7}], "deep": {"er": True}}
    assert part == {"functionCall": {"name": "ls", "id": "a", "args": inputs}}


def test_a_blocked_prompt_completes_the_stream() -> None:
    result = put_together([{"promptFeedback": {"blockReason": "SAFETY"}}])
    assert result.is_complete
    assert cast("Any", message(result).info).finish == "content-filter"


def test_many_pieces_are_joined() -> None:
    count = examples(5_000, 50_000)
    chunks = [delta(content="x") for _ in range(count)]
    result = put_together(chunks)
    assert len(words(result)) == count
    assert json.dumps(result.response)
