"""Gemini's contents: whatever is read is written back, and what a view shows is taken."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.log import Log
from foldmark.messages import (
    AssistantInfo,
    Cache,
    Completed,
    FilePart,
    Message,
    SessionInfo,
    TextPart,
    Tokens,
    ToolPart,
    Transcript,
    UserInfo,
    decode_transcript,
    encode_transcript,
)
from foldmark.presets import FOLDMARK, OPENCODE
from foldmark.shown import AnyShown
from foldmark.tokens import by_classes
from foldmark.view import Viewer
from foldmark.wire import candidates, decode, decode_reply, encode, encode_reply, request
from foldmark.wire.lists import VERBATIM
from foldmark.wire.model import options
from foldmark.wire.names import NOTHING_TO_READ

from .strategies import PNG, sessions

Json = dict[str, Any]
DATA = PNG.partition(",")[2]
SHOT = {"inlineData": {"mimeType": "image/png", "data": DATA}}
PAPER = {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://papers/one.pdf"}}


def user(*parts: Json, **more: Any) -> Json:
    return {"role": "user", "parts": list(parts), **more}


def model(*parts: Json, **more: Any) -> Json:
    return {"role": "model", "parts": list(parts), **more}


def text(words: str = "Hello", **more: Any) -> Json:
    return {"text": words, **more}


def call(name: str = "read", call_id: str = "", **more: Any) -> Json:
    inner = {"name": name, "args": {"path": "a.py"}, **({"id": call_id} if call_id else {})}
    return {"functionCall": inner, **more}


def result(name: str = "read", call_id: str = "", response: Any = None, **inner: Any) -> Json:
    named = {"name": name, **({"id": call_id} if call_id else {})}
    return {"functionResponse": {**named, "response": response or {"output": "done"}, **inner}}


def verbatim(messages: Iterable[Message]) -> int:
    """How many stretches were kept as they came."""
    return sum(VERBATIM in options(message.info.wire, "google") for message in messages)


def round_trip(contents: Sequence[Any]) -> int:
    """Read, store, read from the store and write; tell how many stretches were kept as they came."""
    found = decode(contents, "gemini")
    written = encode_transcript(Transcript(info=SessionInfo(id="s"), messages=found.messages))
    messages = decode_transcript(written).messages
    assert encode(messages, "gemini", found.origin) == contents
    return verbatim(messages)


def shown(messages: Iterable[Message], name: str = "") -> tuple[AnyShown, ...]:
    return Viewer(Log(by_classes, messages), FOLDMARK, model=name).view().messages


def requested(contents: Sequence[Any], to: str = "gemini") -> list[Json]:
    return request(shown(decode(contents, "gemini").messages), to)


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
        assert all(part.text is None or part.text.strip() for part in read.parts)


ROUND_TRIPS: dict[str, list[Json]] = {
    "words": [user(text()), model(text("Hi")), user(text("a"), text("b"))],
    "no role": [{"parts": [text()]}, {"role": None, "parts": [text()]}],
    "no parts": [user(text()), {"role": "model"}, {"role": "user", "parts": None}, model()],
    "thoughts": [
        user(text()),
        model(text("Hm", thought=True), text("Hm", thought=True, thoughtSignature="c2ln"), text()),
    ],
    "signatures": [
        user(text()),
        model(text("Hi", thoughtSignature="c2ln"), call(thoughtSignature="c2ln"), call("ls")),
        user(result(), result("ls")),
        model(text("", thoughtSignature="c2ln")),
        model({"thoughtSignature": "c2ln"}),
    ],
    "ids": [model(call(call_id="a"), call(call_id="b")), user(result("read", "a"), result("read", "b"))],
    "another order": [model(call("ls"), call("cat")), user(result("cat"), result("ls"))],
    "results and words": [model(call()), user(result(), text("And now?")), model(text("Done"))],
    "role function": [model(call()), {"role": "function", "parts": [result()]}, user(text())],
    "role function with words": [model(call()), {"role": "function", "parts": [result(), text()]}],
    "fields of a content": [
        user(text(), id="7"), model(call(), at=1), user(result(), at=2), user(text()),
    ],
    "calls without arguments": [
        model({"functionCall": {"name": "ls"}}, {"functionCall": {"name": "cat", "args": None}}),
        user(result("ls"), result("cat")),
        model({"functionCall": {"name": "ls", "args": {}, "id": ""}}),
    ],
    "forms of a response": [
        user(result(name, response=response), result(f"{name}2", response=response))
        if place % 2
        else model(call(name), call(f"{name}2"))
        for name, response in {
            "error": {"error": "no such file"},
            "result": {"result": "done"},
            "content": {"content": "done"},
            "json": {"output": "done", "code": 0},
            "odd": {"error": {"code": 5}, "list": [1, 2.5, None, True, "ä☃"]},
            "number": {"output": 5},
        }.items()
        for place in range(2)
    ],
    "no response": [
        model(call("a"), call("b"), call("c")),
        user(
            {"functionResponse": {"name": "a"}},
            {"functionResponse": {"name": "b", "response": None}},
            {"functionResponse": {"name": "c", "response": {}}},
        ),
    ],
    "fields of a response": [
        model(call()), user({**result(willContinue=True, scheduling="SILENT"), "partMetadata": {}}),
    ],
    "files": [user(text("See"), SHOT, PAPER, {"fileData": {"fileUri": "https://youtu.be/x"}})],
    "fields of a file": [
        user({
            "inlineData": {"mimeType": "video/mp4", "data": "AAAA", "displayName": "clip"},
            "videoMetadata": {"fps": 2},
        }),
        user({"inlineData": {"mimeType": "image/png", "data": "_-8="}}),
        model(SHOT),
    ],
    "files of results": [
        model(call(), call()),
        user(result(), SHOT, result(parts=[SHOT, PAPER]), SHOT, text("And?"), SHOT),
    ],
    "code": [
        user(text()),
        model(
            {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        ),
    ],
    "unknown parts": [user({"hologram": {"depth": 3}}, {}), model({"text": None})],
    "snake_case": [
        user({"inline_data": {"mime_type": "image/png", "data": DATA}},
             {"file_data": {"mime_type": "a/b", "file_uri": "gs://b/c"}}),
        model({"function_call": {"name": "ls", "args": {}}, "thought_signature": "c2ln"}),
        user({"function_response": {"name": "ls", "response": {"result": "a"}}}),
    ],
    "a call in pieces": [
        model({"functionCall": {"name": "ls", "willContinue": True}},
              {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "b"}]}}),
    ],
    "calls repeated turn by turn": [
        held for _ in range(3) for held in (model(call(), call(), call("ls")), user(
            result(), result(response={"error": "x"}), result("ls")))
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_list_is_written_back_as_it_was_and_nothing_of_it_twice(name: str) -> None:
    assert round_trip(ROUND_TRIPS[name]) == 0


@pytest.mark.parametrize(
    "contents",
    [
        [user(result())],
        [model(call()), user(text(), result())],
        [model(call(), call()), user(result()), user(result())],
        [model(call(call_id="a")), user(result())],
        [model(call(call_id="a")), user(result("ls", "a"))],
        [model(call(call_id="a")), model(call(call_id="a")), user(result("read", "a"))],
        [user(call()), model(result())],
        [model({**call(), "text": "both"})],
        [user({"inlineData": {"mime_type": "image/png", "data": DATA}})],
        [user({"fileData": {"mimeType": "image/png", "fileUri": PNG}})],
    ],
)
def test_what_is_odder_than_that_is_written_back_too(contents: list[Json]) -> None:
    round_trip(contents)
    assert_taken([user(text()), *requested([user(text()), *contents])][1:])


# --- what is read --------------------------------------------------------------------------


def test_calls_without_ids_get_their_results_by_name_and_place() -> None:
    contents = [
        model(call(), call("ls"), call()),
        user(result(response={"output": "one"}), result(response={"output": "two"}), result("ls")),
    ] * 2
    found = decode(contents, "gemini").messages
    tools = [part for message in found for part in message.parts if isinstance(part, ToolPart)]
    told = [(part.tool, part.state.output) for part in tools if isinstance(part.state, Completed)]
    assert told == [("read", "one"), ("ls", "done"), ("read", "two")] * 2
    assert [part.call_id for part in tools[:3]] == ["call_read_1", "call_ls_1", "call_read_2"]


def test_calls_without_ids_go_to_gemini_without_and_to_others_with_different_ones() -> None:
    contents = [user(text()), *[model(call(), call()), user(result(), result())] * 3]
    back = requested(contents)
    assert_taken(back)
    assert back == contents
    others = requested(contents, "anthropic")
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
    states = [message.parts[0].state for message in decode(contents, "gemini").messages]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert [state.output for state in states] == ["a", "a", "a", "a", '{"a":[1,"ä"]}']
    assert [bool(state.metadata) for state in states] == [False, False, False, True, False]


def test_an_output_that_was_replaced_goes_out_as_a_text() -> None:
    contents = [user(text()), model(call()), user(result(response={"lines": ["a"] * 9}))]
    first, answer = decode(contents, "gemini").messages
    part = answer.parts[0]
    assert isinstance(part, ToolPart)
    changed = ToolPart(
        tool=part.tool,
        call_id=part.call_id,
        metadata=part.metadata,
        state=Completed(input={}, output="[pruned]"),
    )
    found = request(shown([first, Message(info=answer.info, parts=(changed,))]), "gemini")
    assert found[2] == user(result(response={"output": "[pruned]"}))


def test_base64_of_the_sdk_reaches_others_in_the_usual_digits() -> None:
    contents = [user({"inlineData": {"mimeType": "image/png", "data": "_-8="}})]
    part = decode(contents, "gemini").messages[0].parts[0]
    assert isinstance(part, FilePart)
    assert part.url == "data:image/png;base64,/+8="
    assert requested(contents) == contents


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"role": "assistant", "parts": []}, "message 1: 'assistant' is no role"),
        ({"role": 5, "parts": []}, "message 1: a number is no role"),
        ({"role": "user", "parts": "Hello"}, "'parts' is a text, not a list"),
        ({"role": "user", "parts": ["Hello"]}, "'parts' holds a text"),
        (user({"text": 5}), "'text' is a number"),
        (user({"inlineData": 5}), "'inlineData' is a number"),
        (model({"functionCall": []}), "'functionCall' is a list"),
        (model({"functionCall": {"name": 5}}), "'name' is a number"),
        (model({"functionCall": {"name": "a", "args": "b"}}), "'args' is a text"),
        (model({"functionCall": {"name": "a", "id": 5}}), "'id' is a number"),
        (user({"functionResponse": {"name": "a", "response": "b"}}), "'response' is a text"),
    ],
)
def test_what_is_no_content_is_refused_in_words(content: Json, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        decode([content], "gemini")


# --- requests ------------------------------------------------------------------------------


@given(sessions())
def test_what_a_view_shows_is_taken(messages: list[Message]) -> None:
    assert_taken(request(shown(messages), "gemini"))


@given(sessions())
def test_what_a_plain_view_shows_is_read_by_the_sdk(messages: list[Message]) -> None:
    view = Viewer(Log(by_classes, messages), OPENCODE).view()
    for content in request(view.messages, "gemini", system="Be brief."):
        types.Content.model_validate(content)


def test_the_files_of_a_result_follow_it_and_errors_are_told_as_such() -> None:
    state = Completed(input={}, output="see", attachments=(FilePart(mime="image/png", url=PNG),))
    parts = (
        ToolPart(tool="shot", call_id="a", state=state),
        ToolPart(tool="a b", call_id="é", state=state),
    )
    messages = [
        Message(info=UserInfo(id="u"), parts=(TextPart(text="Go"),)),
        Message(info=AssistantInfo(id="a"), parts=parts),
        Message(info=UserInfo(id="v"), parts=(FilePart(mime="image/*", url="https://a.b/c"),)),
    ]
    found = request(shown(messages), "gemini")
    assert_taken(found)
    kinds = [next(iter(part)) for part in found[2]["parts"]]
    assert kinds == ["functionResponse", "inlineData"] * 2 + ["fileData"]
    assert found[2]["parts"][4] == {"fileData": {"fileUri": "https://a.b/c"}}
    failed = [user(text()), model(call()), user(result(response={"error": "no"})), model(text())]
    assert requested(failed) == failed


def test_a_thought_goes_back_only_with_what_gemini_signed() -> None:
    contents = [
        user(text()),
        model(text("Hm", thought=True), text("Ha", thought=True, thoughtSignature="c2ln"), text()),
    ]
    assert requested(contents)[1]["parts"] == contents[1]["parts"][1:]
    signed = [user(text()), model(text("", thoughtSignature="c2ln"))]
    assert requested(signed) == signed


def test_another_model_gets_words_and_no_signatures() -> None:
    contents = [
        user(text()),
        model(text("Hm", thought=True, thoughtSignature="c2ln"), call(thoughtSignature="c2ln")),
        user(result(), SHOT, text("And?")),
        model({"executableCode": {"language": "PYTHON", "code": "print(1)"}}, text("Done")),
    ]
    for to in ("anthropic", "gemini"):
        messages = [
            Message(
                info=AssistantInfo(id=held.id, provider_id="google", model_id="pro"),
                parts=held.parts,
            )
            if isinstance(held.info, AssistantInfo)
            else held
            for held in decode(contents, "gemini").messages
        ]
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
    server = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": [signed, *uses]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [server]},
        {"role": "user", "content": "And?"},
    ]
    found = request(shown(decode(messages, "anthropic").messages), "gemini")
    assert_taken(found)
    assert [next(iter(part)) for part in found[1]["parts"]] == ["functionCall"] * 2
    first, shot, second = found[2]["parts"]
    assert first == result("a", "toolu_a", {"output": "x"})
    assert second == result("b", "toolu_b", {"error": "no"})
    assert shot == SHOT
    assert found[3] == model(text(NOTHING_TO_READ))


# --- the SDK, and responses ----------------------------------------------------------------

SDK_CONTENTS = [
    types.Content(role="user", parts=[types.Part(text="Go"), types.Part.from_bytes(data=b"\xff\xef", mime_type="image/png")]),
    types.Content(
        role="model",
        parts=[
            types.Part(text="Hm", thought=True, thought_signature=b"\xff\xfe\xfb"),
            types.Part(
                function_call=types.FunctionCall(name="ls", args={"a": 1}),
                thought_signature=b"\xff\xfe",
            ),
        ],
    ),
    types.Content(role="user", parts=[types.Part.from_function_response(name="ls", response={"output": "a"})]),
    types.Content(parts=[types.Part.from_uri(file_uri="gs://a/b", mime_type="a/b")]),
]  # fmt: skip


def test_contents_of_the_sdk_come_back_as_the_sdk_writes_them() -> None:
    dumped = [
        held.model_dump(mode="json", by_alias=True, exclude_unset=True) for held in SDK_CONTENTS
    ]
    found = decode(SDK_CONTENTS, "gemini")
    assert encode(found.messages, "gemini") == dumped
    assert verbatim(found.messages) == 0
    assert [types.Content.model_validate(held) for held in dumped] == SDK_CONTENTS
    assert_taken(request(shown(found.messages), "gemini"))


@pytest.mark.parametrize("options", [{}, {"exclude_none": True}, {"by_alias": True}])
def test_dicts_of_the_sdk_come_back_as_they_were_but_for_bytes(options: Any) -> None:
    found = decode([held.model_dump(**options) for held in SDK_CONTENTS], "gemini")
    written = encode(found.messages, "gemini")
    assert [types.Content.model_validate(held) for held in written] == SDK_CONTENTS
    assert verbatim(found.messages) == 0


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
    message = decode_reply(response, "gemini")
    assert isinstance(message.info, AssistantInfo)
    assert message.info.tokens == Tokens(
        input=40, output=25, reasoning=5, total=127, cache=Cache(read=60, write=0)
    )
    assert message.info.finish == "tool-calls"
    assert (message.info.provider_id, message.info.model_id) == ("google", "gemini-3-pro")
    assert encode_reply(message, "gemini") == response
    assert "whole" not in options(message.info.wire, "google")
    # What was said of the response is no part of the content.
    assert encode([message], "gemini") == [response["candidates"][0]["content"]]


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
    message = decode_reply(response, "gemini")
    assert isinstance(message.info, AssistantInfo)
    assert message.info.finish == finish
    assert encode_reply(message, "gemini") == response


@pytest.mark.parametrize(
    "response", [{}, {"candidates": 5}, {"candidates": [5]}, {"candidates": [{"content": 5}]}]
)
def test_what_is_no_response_is_refused(response: Json) -> None:
    with pytest.raises(BadInput):
        decode_reply(response, "gemini")


def test_a_response_of_the_sdk_comes_back_as_the_sdk_writes_it() -> None:
    response = types.GenerateContentResponse.model_validate(
        reply(text("Hi", thoughtSignature="_-8="), SHOT, createTime="2026-01-01T00:00:00Z")
    )
    message = decode_reply(response, "gemini")
    dumped = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert encode_reply(message, "gemini") == dumped
    assert types.GenerateContentResponse.model_validate(dumped) == response
    snake = decode_reply(response.model_dump(mode="json"), "gemini")
    assert isinstance(snake.info, AssistantInfo)
    assert isinstance(message.info, AssistantInfo)
    assert snake.info.tokens == message.info.tokens
    assert snake.info.finish == message.info.finish == "stop"


# --- real lists, and any list --------------------------------------------------------------


def test_a_real_list_is_written_back_as_it_was_and_nothing_of_it_twice(corpus: Path) -> None:
    path = corpus / "gemini-cli" / "gemini-cli_trajectory_content-array.json"
    contents = json.loads(path.read_bytes())
    assert [wire.name for wire in candidates(contents)] == ["gemini"]
    assert round_trip(contents) == 0
    assert_taken(requested(contents))
    assert requested(contents, "anthropic")
