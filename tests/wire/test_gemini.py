"""Gemini's contents: whatever is read is written back, and what a view shows is taken."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    Completed,
    Failed,
    FilePart,
    Message,
    TextPart,
    Tokens,
    ToolPart,
    UserInfo,
    is_error_output,
)
from foldmark.policy import OPENCODE
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import NOTHING_TO_READ, subobject
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from foldmark.wire.gemini import Gemini
from tests.support.api_lists import (
    NOTES,
    any_json,
    assert_read_or_refused,
    assert_reply_read_or_refused,
    by_model,
    kept_twice,
    lengthened,
    noted_messages,
    requested,
    round_trip,
    shown,
    verbatim,
)
from tests.support.gemini_contents import (
    CONTENTS,
    DATA,
    ODD_CONTENTS,
    SHOT,
    call,
    content_lists,
    model,
    odd_content_lists,
    result,
    text,
    user,
)
from tests.support.session_strategies import PNG, sessions

Json = dict[str, Any]
GEMINI = "gemini"


def assert_taken(contents: list[Json]) -> None:
    """The SDK reads each; roles take turns; results answer the calls before them, one each."""
    calls: list[str] = []
    for place, content in enumerate(contents):
        read = types.Content.model_validate(content)
        assert read.role == ("user", "model")[place % 2]
        assert read.parts
        answers = [part.function_response for part in read.parts if part.function_response]
        assert [answer.name for answer in answers] == calls
        calls = [part.function_call.name or "" for part in read.parts if part.function_call]
        assert all(part.model_dump(exclude_none=True) for part in read.parts)
        blank = [part for part in read.parts if part.text is not None and not part.text.strip()]
        assert all(part.thought_signature for part in blank)


# Contents that have no role, or another than they need, or more fields, are kept as they came; and
# results in another order than their calls.
FRAMED = {
    "no role": 2,
    "no parts": 2,
    "role function": 1,
    "role function with words": 1,
    "fields of a content": 2,
    "another order": 1,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_list_is_written_back_as_it_was_and_nothing_of_it_twice(name: str) -> None:
    assert round_trip(CONTENTS[name], GEMINI) == FRAMED.get(name, 0)
    assert not kept_twice(lengthened(CONTENTS[name]), GEMINI)


@pytest.mark.parametrize("contents", ODD_CONTENTS)
def test_what_is_odder_than_that_is_written_back_too(contents: list[Json]) -> None:
    round_trip(contents, GEMINI)
    assert_taken(requested([user(text()), *contents], GEMINI))


@given(content_lists())
def test_any_valid_list_is_written_back_and_nothing_of_it_twice(contents: list[Json]) -> None:
    round_trip(contents, GEMINI)
    assert not kept_twice(lengthened(contents), GEMINI)
    assert_taken(requested(contents, GEMINI))


@given(odd_content_lists())
def test_any_odd_list_is_written_back_and_its_request_taken(contents: list[Json]) -> None:
    round_trip(contents, GEMINI)
    assert_taken(requested(contents, GEMINI))


def test_a_real_list_is_written_back_as_it_was_and_nothing_of_it_twice(corpus: Path) -> None:
    path = corpus / "gemini-cli" / "gemini-cli_trajectory_content-array.json"
    contents = json.loads(path.read_bytes())
    assert Gemini().recognizes(contents)
    assert round_trip(contents, GEMINI) == 0
    assert_taken(requested(contents, GEMINI))
    assert requested(contents, GEMINI, "anthropic")


PART_NAMES = (
    "text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData",
    "fileData", "function_call", "executableCode", "name", "id", "args", "response", "parts",
    "mimeType", "data", "fileUri", "output", "error", "role",
)  # fmt: skip
fuzz = any_json(PART_NAMES, ("user", "model", "function", "ls", "", "a", "STOP"))
objects = st.dictionaries(st.sampled_from((*PART_NAMES, *NOTES)), fuzz, max_size=4)
roles = st.sampled_from(("user", "model", "function", None))


fuzzed: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"role": roles, "parts": st.lists(objects, max_size=3)}
)


@given(st.lists(fuzzed | objects, max_size=4))
def test_what_is_no_list_of_gemini_is_refused_in_words(contents: list[Any]) -> None:
    assert_read_or_refused(contents, GEMINI)
    Gemini().recognizes(contents)


@given(objects, st.lists(objects, max_size=3), fuzz)
def test_what_is_no_response_is_refused_in_words(
    response: Json, parts: list[Any], other: Any
) -> None:
    whole = {"content": {"role": "model", "parts": parts}, "finishReason": other}
    for candidate in (whole, {"content": other}, other):
        told = {**response, "candidates": [candidate], "usageMetadata": other}
        assert_reply_read_or_refused(told, GEMINI)
    assert_reply_read_or_refused(response, GEMINI)


@given(noted_messages(fuzz, "google"))
def test_notes_of_any_kind_break_no_request(messages: list[Message]) -> None:
    request(shown(messages), GEMINI)
    encode(messages, GEMINI)


# --- what is read --------------------------------------------------------------------------


def test_calls_without_ids_get_their_results_by_name_and_place() -> None:
    contents = [
        model(call(), call("ls"), call()),
        user(result(response={"output": "one"}), result(response={"output": "two"}), result("ls")),
    ] * 2
    found = decode(contents, GEMINI).messages
    tools = [part for message in found for part in message.parts if isinstance(part, ToolPart)]
    told = [(part.tool, part.state.output) for part in tools if isinstance(part.state, Completed)]
    assert told == [("read", "one"), ("ls", "done"), ("read", "two")] * 2
    assert [part.call_id for part in tools[:3]] == ["call_read_1", "call_ls_1", "call_read_2"]


def test_calls_without_ids_go_to_gemini_without_and_to_others_with_different_ones() -> None:
    contents = [user(text()), *[model(call(), call()), user(result(), result())] * 3]
    back = requested(contents, GEMINI)
    assert_taken(back)
    assert back == contents
    others = requested(contents, GEMINI, "anthropic")
    ids = [block["id"] for message in others[1::2] for block in message["content"] if "id" in block]
    assert len(ids) == len(set(ids)) == 6
    answered = [block["tool_use_id"] for message in others[2::2] for block in message["content"]]
    assert answered == ids


def test_a_response_is_read_as_its_text_or_as_json() -> None:
    responses = [
        {"output": "a"},
        {"result": "a"},
        {"content": "a"},
        {"error": "a"},
        {"a": [1, "ä"]},
    ]
    contents = [
        held for response in responses for held in (model(call()), user(result(response=response)))
    ]
    told = [
        (part.state.output, is_error_output(part.state))
        for message in decode(contents, GEMINI).messages
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, Completed)
    ]
    assert told == [*[("a", False)] * 3, ("a", True), ('{"a":[1,"ä"]}', False)]


def test_an_output_that_was_replaced_goes_out_as_a_text() -> None:
    contents = [user(text()), model(call()), user(result(response={"lines": ["a"] * 9}))]
    first, answer = decode(contents, GEMINI).messages
    part = answer.parts[0]
    assert isinstance(part, ToolPart)
    assert isinstance(part.state, Completed)
    changed = replace(part, state=replace(part.state, output="[pruned]"))
    found = request(shown([first, Message(info=answer.info, parts=(changed,))]), GEMINI)
    assert found[2] == user(result(response={"output": "[pruned]"}))


def test_base64_of_the_sdk_reaches_others_in_the_usual_digits() -> None:
    contents = [user({"inlineData": {"mimeType": "image/png", "data": "_-8="}})]
    part = decode(contents, GEMINI).messages[0].parts[0]
    assert isinstance(part, FilePart)
    assert part.url == "data:image/png;base64,/+8="
    assert requested(contents, GEMINI) == contents


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"role": 5, "parts": []}, "message 1: 'role' of a Gemini content is a number"),
        ({"role": "user", "parts": "Hello"}, "'parts' is a string, not a list"),
        ({"role": "user", "parts": ["Hello"]}, "'parts' contains a string"),
        (user({"text": 5}), "'text' is a number"),
        (user({"inlineData": 5}), "'inlineData' is a number"),
        (model({"functionCall": []}), "'functionCall' is a list"),
        (model({"functionCall": {"name": 5}}), "'name' is a number"),
        (model({"functionCall": {"name": "a", "args": "b"}}), "'args' is a string"),
        (model({"functionCall": {"name": "a", "id": 5}}), "'id' is a number"),
        (user({"functionResponse": {"name": "a", "response": "b"}}), "'response' is a string"),
        (user(result(response={"output": 10**5000})), "cannot be written as JSON"),
    ],
)
def test_what_is_no_content_is_refused_in_words(content: Json, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        decode([content], GEMINI)


# --- requests ------------------------------------------------------------------------------


@given(sessions())
def test_what_a_view_shows_is_taken(messages: list[Message]) -> None:
    assert_taken(request(shown(messages), GEMINI))


@given(sessions())
def test_what_a_plain_view_shows_is_read_by_the_sdk(messages: list[Message]) -> None:
    view = Viewer(Log(by_classes, messages), OPENCODE).view()
    for content in request(view.messages, GEMINI, system="Be brief."):
        types.Content.model_validate(content)


def test_files_go_where_the_api_takes_them() -> None:
    files = (
        FilePart(mime="image/png", url=PNG),
        FilePart(mime="image/*", url="https://a.b/c"),
        FilePart(mime="text/markdown", url="data:text/markdown,a%20b"),
        FilePart(mime="image/png", url="file:///tmp/a.png"),
    )
    state = Completed(input={}, output="see", attachments=files)
    messages = [
        Message(info=UserInfo(id="u"), parts=files),
        Message(info=AssistantInfo(id="a"), parts=(ToolPart(tool="ls", state=state),) * 2),
        Message(info=UserInfo(id="v"), parts=(TextPart(text="And?"),)),
    ]
    found = request(shown(messages), GEMINI)
    assert_taken(found)
    taken = [SHOT, {"fileData": {"fileUri": "https://a.b/c"}}, text("a b"), text(NOTHING_TO_READ)]
    assert found[0]["parts"] == taken
    first, *rest = found[2]["parts"]
    assert first["functionResponse"]["response"] == {"output": "see"}
    assert rest[:4] == rest[5:9] == taken
    assert rest[9:] == [text("And?")]


def test_names_of_others_are_made_to_fit_and_its_own_are_left() -> None:
    state = Failed(input={}, error="no")
    names = ("mcp.server:tool", "a b", "x" * 99)
    parts = tuple(ToolPart(tool=name, call_id=name, state=state) for name in names)
    found = request(shown([Message(info=AssistantInfo(id="a"), parts=parts)]), GEMINI)
    assert_taken(found)
    written = [part["functionCall"]["name"] for part in found[1]["parts"]]
    assert written[0] == names[0]
    assert written[1].startswith("a_b_")
    assert all(len(name) <= 64 for name in written)
    assert found[2]["parts"][0]["functionResponse"]["response"] == {"error": "no"}


def test_a_thought_goes_back_only_with_what_gemini_signed() -> None:
    contents = [
        user(text()),
        model(text("Hm", thought=True), text("Ha", thought=True, thoughtSignature="c2ln"), text()),
    ]
    assert requested(contents, GEMINI)[1]["parts"] == contents[1]["parts"][1:]
    signed = [user(text()), model(text("", thoughtSignature="c2ln"))]
    assert requested(signed, GEMINI) == signed


def test_another_model_gets_words_and_no_signatures() -> None:
    contents = [
        user(text()),
        model(text("Hm", thought=True, thoughtSignature="c2ln"), call(thoughtSignature="c2ln")),
        user(result(), SHOT, text("And?")),
        model({"executableCode": {"language": "PYTHON", "code": "print(1)"}}, text("Done")),
    ]
    messages = by_model(decode(contents, GEMINI).messages, "google", "pro")
    for to in ("anthropic", GEMINI):
        written = json.dumps(request(shown(messages, "other:model"), to))
        assert "c2ln" not in written
        assert "print(1)" in written
        assert "executable" not in written
        assert DATA in written


def test_what_comes_from_anthropic_is_taken() -> None:
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
    found = request(shown(decode(messages, "anthropic").messages), GEMINI)
    assert_taken(found)
    assert [next(iter(part)) for part in found[1]["parts"]] == ["functionCall"] * 2
    first, shot, second = found[2]["parts"]
    assert first == result("a", "toolu_a", {"output": "x"})
    assert second == result("b", "toolu_b", {"error": "no"})
    assert shot == SHOT
    assert found[3] == model(text(NOTHING_TO_READ))


# --- the SDK, and responses ----------------------------------------------------------------

SIGNED = b"\xff\xfe\xfb"  # in base64, digits that differ
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


def test_contents_of_the_sdk_come_back_as_the_sdk_writes_them() -> None:
    dumped = [
        held.model_dump(mode="json", by_alias=True, exclude_unset=True) for held in SDK_CONTENTS
    ]
    found = decode(SDK_CONTENTS, GEMINI)
    assert encode(found.messages, GEMINI) == dumped
    assert verbatim(found.messages, GEMINI) == 1  # the last has no role
    assert [types.Content.model_validate(held) for held in dumped] == SDK_CONTENTS
    assert_taken(request(shown(found.messages), GEMINI))


@pytest.mark.parametrize("options", [{}, {"exclude_none": True}, {"by_alias": True}])
def test_dicts_of_the_sdk_come_back_as_they_were_but_for_bytes(options: Any) -> None:
    found = decode([held.model_dump(**options) for held in SDK_CONTENTS], GEMINI)
    written = encode(found.messages, GEMINI)
    assert [types.Content.model_validate(held) for held in written] == SDK_CONTENTS
    assert verbatim(found.messages, GEMINI) == 1


USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 5,
    "toolUsePromptTokenCount": 2,
    "totalTokenCount": 127,
}


def reply(*parts: Json, reason: str = "STOP", **more: Any) -> Json:
    candidate = {"content": model(*parts), "finishReason": reason, "index": 0}
    return {
        "candidates": [candidate],
        "usageMetadata": USAGE,
        "modelVersion": "gemini-3-pro",
        **more,
    }


def test_a_response_is_read_with_what_was_measured_and_written_back() -> None:
    response = reply(text("Hm", thought=True), text(thoughtSignature="_-8="), call())
    message = decode_reply(response, GEMINI)
    assert isinstance(message.info, AssistantInfo)
    assert message.info.tokens == Tokens(
        input=40, output=25, reasoning=5, total=127, cache=Cache(read=60, write=0)
    )
    assert message.info.finish == "tool-calls"
    assert (message.info.provider_id, message.info.model_id) == ("google", "gemini-3-pro")
    assert encode_reply(message, GEMINI) == response
    assert "whole" not in subobject(message.info.wire, "google")
    # What was said of the response is no part of the content.
    assert encode([message], GEMINI) == [response["candidates"][0]["content"]]


@pytest.mark.parametrize(
    ("response", "finish"),
    [
        (reply(text()), "stop"),
        (reply(text(), reason="MAX_TOKENS"), "length"),
        (reply(reason="SAFETY"), "content-filter"),
        (reply(reason="IMAGE_SAFETY"), "content-filter"),
        (reply(reason="MALFORMED_FUNCTION_CALL"), "other"),
        ({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model"}}]}, "length"),
        ({"candidates": [{"finishReason": "RECITATION"}]}, "content-filter"),
        ({"candidates": [{"content": {"parts": [text()]}}]}, "other"),
        ({"candidates": []}, "other"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "content-filter"),
        ({"candidates": None, "prompt_feedback": {"block_reason": "OTHER"}}, "content-filter"),
        ({"candidates": [{"content": model(text())}, {"content": model(text("2"))}]}, "other"),
    ],
)
def test_why_a_response_ended_is_told_in_our_words(response: Json, finish: str) -> None:
    message = decode_reply(response, GEMINI)
    assert isinstance(message.info, AssistantInfo)
    assert message.info.finish == finish
    assert encode_reply(message, GEMINI) == response


@pytest.mark.parametrize(
    "response", [{}, {"candidates": 5}, {"candidates": [5]}, {"candidates": [{"content": 5}]}]
)
def test_what_is_no_response_is_refused(response: Json) -> None:
    with pytest.raises(BadInput):
        decode_reply(response, GEMINI)


def test_a_response_of_the_sdk_comes_back_as_the_sdk_writes_it() -> None:
    response = types.GenerateContentResponse.model_validate(
        reply(text("Hi", thoughtSignature="_-8="), SHOT, createTime="2026-01-01T00:00:00Z")
    )
    message = decode_reply(response, GEMINI)
    dumped = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert encode_reply(message, GEMINI) == dumped
    assert types.GenerateContentResponse.model_validate(dumped) == response
    snake = decode_reply(response.model_dump(exclude={"create_time"}), GEMINI)
    written = encode_reply(snake, GEMINI)
    assert type(written["candidates"][0]["finish_reason"]) is str
    assert isinstance(snake.info, AssistantInfo)
    assert isinstance(message.info, AssistantInfo)
    assert snake.info.tokens == message.info.tokens
    assert snake.info.finish == message.info.finish == "stop"
