"""What only Anthropic's API has; the contract of all formats is tested in tests/contracts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from anthropic.types import Message as SdkMessage
from anthropic.types.beta import BetaMessage
from msgspec.structs import replace

from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Failed,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.wire.anthropic import Anthropic
from foldmark.wire.formats import decode, decode_reply, encode_reply, request
from tests.support.anthropic_messages import (
    CITED,
    DATA,
    FOLDED,
    FOUND,
    HELD,
    HIDDEN,
    LINKED,
    MARK,
    NOTE,
    PAPER,
    PDF,
    REMOTE,
    REMOTE_RESULT,
    RESPONSE,
    SEARCH,
    SHOT,
    THOUGHT,
    UPLOAD,
    assistant,
    recorded_exchanges,
    result,
    text,
    use,
    user,
)
from tests.support.api_lists import request_for, round_trip, view_messages
from tests.support.effort import examples
from tests.support.provider_types import assert_accepted, blocks_of, marks
from tests.support.session_strategies import PNG

Json = dict[str, Any]
WIRE = "anthropic"


# --- lists ---------------------------------------------------------------------------------


def test_recorded_responses_are_encoded_unchanged(corpus: Path) -> None:
    for _, response in recorded_exchanges(corpus):
        if response is not None:
            assert Anthropic().recognizes_reply(response)
            assert encode_reply(decode_reply(response, WIRE), WIRE) == response


def transcripts(corpus: Path) -> Iterator[tuple[str, list[Json]]]:
    paths = sorted((corpus / "claude-code").glob("*.jsonl"), key=lambda path: path.stat().st_size)
    for path in paths[: examples(len(paths) // 2, len(paths))]:
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        spoken = [line for line in lines if line.get("type") in ("user", "assistant")]
        yield path.name, [line["message"] for line in spoken if "message" in line]


def test_messages_of_claude_code_are_encoded_unchanged_singly_and_as_a_list(corpus: Path) -> None:
    for name, messages in transcripts(corpus):
        for message in messages:
            assert round_trip([message], WIRE) == 0
        # It writes a response block by block, each with its result: no API has that order.
        assert round_trip(messages, WIRE) <= len(messages) / 10, name
        assert_accepted(WIRE, request_for(messages, WIRE))
        assert request_for(messages, WIRE, "gemini")


# --- decoding ------------------------------------------------------------------------------


def only_part(message: Json) -> Any:
    (part,) = decode([message], WIRE).messages[0].parts
    return part


def test_blocks_are_decoded_to_parts_of_their_type() -> None:
    assert only_part(user(SHOT)).url == PNG
    assert only_part(user(LINKED)).url == "https://a.b/c.png"
    assert only_part(user(PDF)).mime == only_part(user(PAPER)).mime == "application/pdf"
    assert only_part(user(NOTE)).text == "words"
    assert only_part(assistant(FOLDED)).text == "What was done so far."
    assert isinstance(only_part(assistant(THOUGHT)), ReasoningPart)
    assert isinstance(only_part(assistant(HIDDEN)), ReasoningPart)
    for block in (SEARCH, FOUND, REMOTE, REMOTE_RESULT, UPLOAD, HELD):
        assert only_part(assistant(block)) == TextPart(text="", metadata={WIRE: {"block": block}})


def test_a_result_is_joined_with_its_call() -> None:
    sent = decode(
        [
            assistant(use("a"), use("b")),
            user(result("b", "no", is_error=True), result("a", [text("1"), SHOT, text("2")])),
        ],
        WIRE,
    )
    (message,) = sent.messages
    first, second = [cast("ToolPart", part).state for part in message.parts]
    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert first.output == "1\n2"
    assert [file.url for file in first.attachments or ()] == [PNG]
    assert second.output == "no"
    assert second.metadata == {"is_error": True}


# --- requests ------------------------------------------------------------------------------


def test_blocks_of_server_tools_are_sent_back_unchanged() -> None:
    messages = [
        user(text(), NOTE, HELD, UPLOAD),
        assistant(THOUGHT, HIDDEN, SEARCH, FOUND, CITED, REMOTE, REMOTE_RESULT, FOLDED, use()),
        user(result("a", [text("x"), SHOT])),
    ]
    assert request_for(messages, WIRE) == messages
    assert_accepted(WIRE, messages, beta=True)


def test_a_call_or_result_without_its_counterpart_is_sent_as_text() -> None:
    messages = [user(result("gone", "lost"), text("And?"))]
    assert request_for(messages, WIRE) == [user(text("lost"), text("And?"))]
    messages = [user(use("a")), user(result("a", "kept"))]
    assert request_for(messages, WIRE) == [{"role": "user", "content": "kept"}]
    messages = [user(text()), assistant(use("a")), user(text("And?"))]
    sent = request_for(messages, WIRE)
    assert_accepted(WIRE, sent)
    assert sent[2]["content"][0]["is_error"] is True


def test_a_replaced_output_is_sent_as_one_text() -> None:
    (message,) = decode(
        [assistant(use()), user(result("a", [text("12"), text("45")]))], WIRE
    ).messages
    part = cast("ToolPart", message.parts[0])
    for output in ("[pruned]", "12345", "12\n456"):
        state = replace(cast("Completed", part.state), output=output)
        changed = Message(info=message.info, parts=(replace(part, state=state),))
        assert request(view_messages([changed]), WIRE)[2] == user(result("a", output))


def test_fields_of_a_result_are_not_mistaken_for_notes() -> None:
    odd = result("a", "x", outline=[{"chars": 1}], form="absent", order=5)
    sent = request_for([user(text()), assistant(use()), user(odd)], WIRE)
    assert sent[2] == user(odd)


@pytest.mark.parametrize(
    "raw",
    [5, [5], {}, {"type": 5}, {"content": 5}, {"content": [5]}, result("a", "y"), result("b", "x")],
)
def test_a_stored_original_that_does_not_match_is_ignored(raw: Any) -> None:
    part = ToolPart(
        tool="ls",
        call_id="a",
        state=Completed(input={}, output="x"),
        metadata={WIRE: {"result": {"raw": raw}}},
    )
    sent = request(view_messages([Message(info=AssistantInfo(id="a"), parts=(part,))]), WIRE)
    assert sent[2] == user(result("a", "x"))


def test_an_empty_error_gets_a_text() -> None:
    part = ToolPart(tool="ls", call_id="a", state=Failed(input={}, error=""))
    sent = request(view_messages([Message(info=AssistantInfo(id="a"), parts=(part,))]), WIRE)
    assert sent[2]["content"][0]["content"] == "[The tool failed without a word.]"


def test_a_session_from_gemini_is_accepted() -> None:
    shot = {"inlineData": {"mimeType": "image/png", "data": DATA.replace("+", "-")}}
    calls: list[Json] = [
        {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "c2ln"}
    ] * 2
    results = [{"functionResponse": {"name": "ls", "response": {"output": "a"}}}] * 2
    contents: list[Json] = [
        {"role": "user", "parts": [{"text": "Go"}]},
        {"role": "model", "parts": [{"text": "Hm", "thought": True}, *calls]},
        {"role": "user", "parts": [*results, shot, {"text": "And?"}]},
    ] * 2
    sent = request(view_messages(decode(contents, "gemini").messages), WIRE)
    assert_accepted(WIRE, sent)
    assert sent[2]["content"][1]["content"] == [text("a"), SHOT]


# --- breakpoints ---------------------------------------------------------------------------


def test_breakpoints_stay_on_the_newest_and_on_the_last() -> None:
    messages = [user(text(str(index), **MARK)) for index in range(9)]
    turns = [item for message in messages for item in (message, assistant(text("ok")))]
    sent = request_for([*turns, user(text("last"))], WIRE)
    marked = [blocks_of(message)[0]["text"] for message in sent if marks(message)]
    assert marked == ["8", "last"]


def test_a_list_without_breakpoints_gets_none() -> None:
    assert marks(request_for([user(text()), assistant(use()), user(result())], WIRE)) == 0


def test_breakpoints_are_never_on_thinking_or_inside_a_result() -> None:
    messages = [
        user(text(**MARK)),
        assistant({**THOUGHT, **MARK}, use()),
        user(result("a", [text("x", **MARK), SHOT])),
        assistant(text("ok"), THOUGHT),
    ]
    sent = request_for(messages, WIRE)
    assert_accepted(WIRE, sent)
    assert sent[2]["content"] == [result("a", [text("x"), SHOT], **MARK)]
    assert sent[3]["content"][0] == text("ok", **MARK)
    thought = [user(text(**MARK)), assistant({**THOUGHT, **MARK}, text("ok")), user(text("last"))]
    sent = request_for(thought, WIRE)
    assert [marks(message) for message in sent] == [1, 0, 1]
    assert sent[1]["content"][0] == THOUGHT
    # The list itself is unchanged.
    assert marks(messages) == 3


# --- responses -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SdkMessage, BetaMessage])
def test_a_response_with_unknown_blocks_is_encoded_unchanged(kind: Any) -> None:
    message = decode_reply(kind.model_validate(RESPONSE), WIRE)
    assert encode_reply(message, WIRE) == RESPONSE
    newer = {**RESPONSE, "content": [{"type": "hologram", "depth": 3}], "stop_reason": "odd"}
    unknown = decode_reply(kind.construct(**newer), WIRE)
    assert isinstance(unknown.info, AssistantInfo)
    assert unknown.info.finish == "other"
    assert encode_reply(unknown, WIRE) == newer


def test_a_block_without_a_type_is_never_mistaken_for_a_text() -> None:
    odd: list[Json] = [user(), user({"type": None, "text": [None]})]
    round_trip(odd, WIRE)
    assert {"type": None, "text": [None]} in request_for(odd, WIRE)[-1]["content"]
