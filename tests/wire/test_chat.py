"""What only OpenAI's chat has; the contract of all formats is tested in tests/contracts."""

import json
from pathlib import Path

import pytest

from foldmark.errors import BadInput
from foldmark.model.messages import (
    Message,
    Pending,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.wire.formats import decode, encode, request
from foldmark.wire.openai_chat import OpenAIChat
from tests.support.api_lists import Json, request_for, view_messages
from tests.support.chat_messages import call, calling, said, tool, user
from tests.support.provider_types import assert_accepted
from tests.support.session_strategies import PNG

WIRE = "openai-chat"


# --- decoding ------------------------------------------------------------------------------


def test_messages_that_only_resemble_chat_are_refused(corpus: Path) -> None:
    # Tau2 has calls without a function and results without a call id.
    for path in (corpus / "tau2-bench").glob("*.json"):
        for run in json.loads(path.read_bytes())["simulations"]:
            if any(message.get("tool_calls") for message in run["messages"]):
                with pytest.raises(BadInput, match=r"^message \d+: "):
                    decode(run["messages"], WIRE)


# --- requests ------------------------------------------------------------------------------


def test_a_request_omits_fields_that_servers_do_not_know() -> None:
    messages = [
        user(name="ann", extra={"cost": 1}),
        calling(call("a", index=0), call("b", ""), call("c", "{"), thought="Hm.", name=None),
        tool("a", [{"type": "text", "text": "1", "x": 1}, {"type": "text", "text": " "}]),
        tool("b", None),
        tool("c", [{"type": "video_url"}]),
        said([{"type": "text", "text": "x", "id": 1}], refusal=None, annotations=[]),
        user([{"type": "text", "text": "Go on.", "x": 1}]),
        {"role": "system", "content": "Be brief.", "name": "s", "at": 1},
        {"role": "assistant", "tool_calls": [call("d")]},
        tool("d"),
    ]
    assert request_for(messages, WIRE) == [
        user(name="ann"),
        calling(call("a"), call("b", "{}"), call("c", '{"arguments":"{"}')),
        tool("a", [{"type": "text", "text": "1"}]),
        tool("b", ""),
        tool("c", ""),
        said("x"),
        user([{"type": "text", "text": "Go on."}, {"type": "text", "text": "Be brief."}]),
        {"role": "assistant", "tool_calls": [call("d")]},
        tool("d"),
    ]


def test_a_later_prompt_keeps_its_role_and_is_not_the_users() -> None:
    prompt = {"role": "developer", "content": "Now be brief."}
    decoded = decode([user(), said(), prompt, said("Ok.")], WIRE)
    assert prompt in request(view_messages(decoded.messages), WIRE)
    part = decoded.messages[2].parts[0]
    assert isinstance(part, TextPart)
    assert part.synthetic is True


def test_a_server_gets_its_reasoning_back() -> None:
    signed = {"google": {"thought_signature": "s"}}
    messages = [
        user(),
        said(reasoning="Hm.", reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
        user(),
        calling(call("functions.read:0", extra_content=signed), reasoning_content="Well."),
        tool("functions.read:0"),
    ]
    assert request_for(messages, WIRE) == messages
    part = decode(messages, WIRE).messages[1].parts[0]
    assert isinstance(part, ReasoningPart)
    assert part.text == "Hm."


def test_another_provider_gets_nothing_opaque() -> None:
    thinking = {"type": "thinking", "thinking": "Secret.", "signature": "sig-1"}
    hidden = {"type": "redacted_thinking", "data": "sig-2"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "é"}}
    shot = {"type": "base64", "media_type": "image/png", "data": PNG.partition(",")[2]}
    result = [{"type": "text", "text": "a"}, {"type": "image", "source": shot}]
    messages: list[Json] = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [thinking, hidden, use]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": result},
                {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "assistant", "content": [hidden]},
        {"role": "user", "content": [{"type": "search_result", "content": []}]},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "So."}]},
    ]
    decoded = decode(messages, "anthropic")
    asking = request(view_messages(decoded.messages), WIRE)
    assert_accepted(WIRE, asking)
    text = json.dumps(asking)
    for opaque in ("sig-1", "sig-2", "Secret", "thinking", "ephemeral", "search_result"):
        assert opaque not in text
    assert asking[1]["tool_calls"][0]["function"]["arguments"] == '{"path":"é"}'
    assert asking[2] == tool("toolu_1", "a")
    assert asking[3]["content"][1] == {"type": "image_url", "image_url": {"url": PNG}}


def test_changed_arguments_are_written_anew() -> None:
    decoded = decode([calling(call("a", '{ "path": 1 }'))], WIRE)
    part = decoded.messages[0].parts[0]
    assert isinstance(part, ToolPart)
    assert encode(decoded.messages, WIRE) == [calling(call("a", '{ "path": 1 }'))]
    newer = ToolPart(
        tool="read", call_id="a", state=Pending(input={"path": 2}), metadata=part.metadata
    )
    message = Message(info=decoded.messages[0].info, parts=(newer,))
    assert encode([message], WIRE) == [calling(call("a", '{"path":2}'))]


def test_no_more_breakpoints_are_sent_than_allowed() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = [
        item
        for number in range(5)
        for item in (user([{"type": "text", "text": str(number), **mark}]), said())
    ]
    assert json.dumps(request_for(messages, WIRE)).count("ephemeral") == 2


# --- recognition ---------------------------------------------------------------------------


FOREIGN: list[Json] = [
    {"role": "model", "parts": [{"text": "a"}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {}}]},
    {"role": "tool", "content": "a"},
    {"content": "a"},
    {},
]


@pytest.mark.parametrize("message", FOREIGN)
def test_lists_of_other_formats_are_not_recognized_as_chat(message: Json) -> None:
    assert not OpenAIChat().recognizes([user(), message])
    assert OpenAIChat().recognizes([user(), said()])


def test_fields_that_a_server_added_to_a_call_are_sent_back_with_another_id() -> None:
    signed = call("a", extra_content={"google": {"thought_signature": "s"}})
    turn = [calling(signed), tool("a", [{"type": "text", "text": "1"}])]
    sent = request(view_messages(decode([user(), *turn, *turn], WIRE).messages), WIRE)
    first, second = sent[1]["tool_calls"][0], sent[3]["tool_calls"][0]
    assert first["id"] != second["id"]
    assert second == {**first, "id": second["id"]} == {**signed, "id": second["id"]}
    assert sent[4] == {**turn[1], "tool_call_id": second["id"]}
