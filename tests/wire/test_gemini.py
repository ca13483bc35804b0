"""What only Gemini's API has; the contract of all formats is tested in tests/contracts."""

from typing import Any

import pytest
from google.genai import types
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    ToolPart,
    is_error_output,
)
from foldmark.wire.codec import NOTHING_TO_READ
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from tests.support.api_lists import request_for, round_trip, verbatim, view_messages
from tests.support.gemini_contents import (
    DATA,
    ODD_LISTS,
    SHOT,
    call,
    model,
    reply,
    result,
    text,
    user,
)
from tests.support.provider_types import assert_accepted

Json = dict[str, Any]
WIRE = "gemini"


@pytest.mark.parametrize("contents", ODD_LISTS)
def test_the_request_for_an_odd_list_is_accepted(contents: list[Json]) -> None:
    round_trip(contents, WIRE)
    assert_accepted(WIRE, request_for([user(text()), *contents], WIRE))


# --- decoding ------------------------------------------------------------------------------


def test_calls_without_ids_get_their_results_by_name_and_order() -> None:
    contents = [
        model(call(), call("ls"), call()),
        user(result(response={"output": "one"}), result(response={"output": "two"}), result("ls")),
    ] * 2
    sent = decode(contents, WIRE).messages
    tools = [part for message in sent for part in message.parts if isinstance(part, ToolPart)]
    outputs = [
        (part.tool, part.state.output) for part in tools if isinstance(part.state, Completed)
    ]
    assert outputs == [("read", "one"), ("ls", "done"), ("read", "two")] * 2
    assert [part.call_id for part in tools[:3]] == ["call_read_1", "call_ls_1", "call_read_2"]


def test_calls_without_ids_are_sent_without_to_gemini_and_with_ids_to_others() -> None:
    contents = [user(text()), *[model(call(), call()), user(result(), result())] * 3]
    back = request_for(contents, WIRE)
    assert_accepted(WIRE, back)
    assert back == contents
    others = request_for(contents, WIRE, "anthropic")
    ids = [block["id"] for message in others[1::2] for block in message["content"] if "id" in block]
    assert len(ids) == len(set(ids)) == 6
    answered = [block["tool_use_id"] for message in others[2::2] for block in message["content"]]
    assert answered == ids


def test_an_output_is_decoded_as_its_text_or_as_json() -> None:
    responses = [
        {"output": "a"},
        {"result": "a"},
        {"content": "a"},
        {"error": "a"},
        {"a": [1, "ä"]},
    ]
    contents = [
        content
        for response in responses
        for content in (model(call()), user(result(response=response)))
    ]
    outputs = [
        (part.state.output, is_error_output(part.state))
        for message in decode(contents, WIRE).messages
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, Completed)
    ]
    assert outputs == [*[("a", False)] * 3, ("a", True), ('{"a":[1,"ä"]}', False)]


def test_a_replaced_output_is_sent_as_a_text() -> None:
    contents = [user(text()), model(call()), user(result(response={"lines": ["a"] * 9}))]
    first, answer = decode(contents, WIRE).messages
    part = answer.parts[0]
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, Completed)
    changed = replace(part, state=replace(part.state, output="[pruned]"))
    sent = request(view_messages([first, Message(info=answer.info, parts=(changed,))]), WIRE)
    assert sent[2] == user(result(response={"output": "[pruned]"}))


def test_base64_of_the_sdk_is_sent_to_others_in_the_standard_alphabet() -> None:
    contents = [user({"inlineData": {"mimeType": "image/png", "data": "_-8="}})]
    part = decode(contents, WIRE).messages[0].parts[0]
    assert isinstance(part, FilePart)
    assert part.url == "data:image/png;base64,/+8="
    assert request_for(contents, WIRE) == contents


# --- requests ------------------------------------------------------------------------------


def test_names_of_other_providers_are_made_acceptable_and_its_own_kept() -> None:
    state = Failed(input={}, error="no")
    names = ("mcp.server:tool", "a b", "x" * 99)
    parts = tuple(ToolPart(tool=name, call_id=name, state=state) for name in names)
    sent = request(view_messages([Message(info=AssistantInfo(id="a"), parts=parts)]), WIRE)
    assert_accepted(WIRE, sent)
    output = [part["functionCall"]["name"] for part in sent[1]["parts"]]
    assert output[0] == names[0]
    assert output[1].startswith("a_b_")
    assert all(len(name) <= 64 for name in output)
    assert sent[2]["parts"][0]["functionResponse"]["response"] == {"error": "no"}


def test_a_thought_is_sent_back_only_with_its_signature() -> None:
    contents = [
        user(text()),
        model(text("Hm", thought=True), text("Ha", thought=True, thoughtSignature="c2ln"), text()),
    ]
    assert request_for(contents, WIRE)[1]["parts"] == contents[1]["parts"][1:]
    signed = [user(text()), model(text("", thoughtSignature="c2ln"))]
    assert request_for(signed, WIRE) == signed


def test_a_session_from_anthropic_is_accepted() -> None:
    signed = {"type": "thinking", "thinking": "Hm", "signature": "sig"}
    uses = [
        {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": {"a": 1}}
        for name in "ab"
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
    results = [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_a",
            "content": [text("x", type="text"), image],
        },
        {"type": "tool_result", "tool_use_id": "toolu_b", "content": "no", "is_error": True},
    ]
    server: Json = {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {},
    }
    messages: list[Json] = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [signed, *uses]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [server]},
        {"role": "user", "content": "And?"},
    ]
    sent = request(view_messages(decode(messages, "anthropic").messages), WIRE)
    assert_accepted(WIRE, sent)
    assert [next(iter(part)) for part in sent[1]["parts"]] == ["functionCall"] * 2
    first, shot, second = sent[2]["parts"]
    assert first == result("a", "toolu_a", {"output": "x"})
    assert second == result("b", "toolu_b", {"error": "no"})
    assert shot == SHOT
    assert sent[3] == model(text(NOTHING_TO_READ))


# --- the SDK, and responses ----------------------------------------------------------------

SIGNED = b"\xff\xfe\xfb"  # its base64 differs between the alphabets
LS = types.FunctionCall(name="ls", args={"a": 1})
SDK_CONTENTS = [
    types.Content(
        role="user",
        parts=[types.Part(text="Go"), types.Part.from_bytes(data=SIGNED, mime_type="image/png")],
    ),
    types.Content(
        role="model",
        parts=[
            types.Part(text="Hm", thought=True, thought_signature=SIGNED),
            types.Part(function_call=LS, thought_signature=SIGNED),
        ],
    ),
    types.Content(
        role="user",
        parts=[types.Part.from_function_response(name="ls", response={"output": "a"})],
    ),
    types.Content(parts=[types.Part.from_uri(file_uri="gs://a/b", mime_type="a/b")]),
]


def test_contents_of_the_sdk_are_encoded_as_the_sdk_dumps_them() -> None:
    dumped = [
        content.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for content in SDK_CONTENTS
    ]
    sent = decode(SDK_CONTENTS, WIRE)
    assert encode(sent.messages, WIRE) == dumped
    assert verbatim(sent.messages, WIRE) == 1  # the last has no role
    assert [types.Content.model_validate(content) for content in dumped] == SDK_CONTENTS
    assert_accepted(WIRE, request(view_messages(sent.messages), WIRE))


@pytest.mark.parametrize("options", [{}, {"exclude_none": True}, {"by_alias": True}])
def test_dicts_of_the_sdk_are_encoded_unchanged_except_bytes(options: Any) -> None:
    sent = decode([content.model_dump(**options) for content in SDK_CONTENTS], WIRE)
    output = encode(sent.messages, WIRE)
    assert [types.Content.model_validate(content) for content in output] == SDK_CONTENTS
    assert verbatim(sent.messages, WIRE) == 1


@pytest.mark.parametrize(
    "response", [{}, {"candidates": 5}, {"candidates": [5]}, {"candidates": [{"content": 5}]}]
)
def test_a_malformed_response_is_refused(response: Json) -> None:
    with pytest.raises(BadInput):
        decode_reply(response, WIRE)


def test_a_response_of_the_sdk_is_encoded_as_the_sdk_dumps_it() -> None:
    response = types.GenerateContentResponse.model_validate(
        reply(text("Hi", thoughtSignature="_-8="), SHOT, createTime="2026-01-01T00:00:00Z")
    )
    message = decode_reply(response, WIRE)
    dumped = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert encode_reply(message, WIRE) == dumped
    assert types.GenerateContentResponse.model_validate(dumped) == response
    snake = decode_reply(response.model_dump(exclude={"create_time"}), WIRE)
    output = encode_reply(snake, WIRE)
    assert type(output["candidates"][0]["finish_reason"]) is str
    assert isinstance(snake.info, AssistantInfo)
    assert isinstance(message.info, AssistantInfo)
    assert snake.info.tokens == message.info.tokens
    assert snake.info.finish == message.info.finish == "stop"
