"""OpenAI's chat: whatever is read is written back, and what a view shows is taken."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from pydantic import ConfigDict, TypeAdapter

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    Origin,
    Pending,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
    decode_transcript,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Media,
    Output,
    PromptMessage,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.model.prompt_messages import Call as ShownCall
from foldmark.model.values import encode as to_json
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from foldmark.wire.codec import NOTHING_TO_READ, subobject
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from foldmark.wire.openai_chat import OpenAIChat
from tests.support.api_lists import kept_twice, lengthened, verbatim
from tests.support.chat_messages import (
    LISTS,
    ODD,
    PDF,
    Json,
    call,
    calling,
    corpus_lists,
    nearly_messages,
    odd_lists,
    said,
    tool,
    user,
    valid_lists,
    wild,
)
from tests.support.session_strategies import PNG, sessions

CHAT = "openai-chat"
# Fields that the API does not know are refused, by it as well as here.
TAKEN = TypeAdapter(list[ChatCompletionMessageParam], config=ConfigDict(extra="forbid"))


def stored(messages: Sequence[Message], origin: Origin) -> tuple[Sequence[Message], Origin]:
    """The same after it was written to a store and read again."""
    info = SessionInfo(id="s", origin=origin)
    again = decode_transcript(to_json(Transcript(info=info, messages=tuple(messages))))
    assert isinstance(again.info.origin, Origin)
    return again.messages, again.info.origin


def plain(messages: object) -> str:
    """Its JSON: in Python, 1 and true are the same."""
    return json.dumps(messages, sort_keys=True)


def back(messages: Sequence[Json]) -> int:
    """Read a list and write it back; how many stretches could only be kept as they came."""
    decoded = decode(messages, wire=CHAT)
    assert plain(encode(decoded.messages, CHAT, origin=decoded.origin)) == plain(messages)
    kept, origin = stored(decoded.messages, decoded.origin)
    assert plain(encode(kept, CHAT, origin=origin)) == plain(messages)
    return verbatim(decoded.messages, CHAT)


def shown(messages: Sequence[Message]) -> tuple[PromptMessage, ...]:
    return Viewer(Log(counter("classes"), messages), FOLDMARK).view().messages


def asked(messages: Sequence[Json]) -> list[Json]:
    """What a request says of a list that was read."""
    return request(shown(decode(messages, wire=CHAT).messages), CHAT)


def exhausted(value: object) -> None:
    """Look at all of it: pydantic checks what is iterable only when it is asked for."""
    if isinstance(value, dict):
        for held in cast("Json", value).values():
            exhausted(held)
    elif isinstance(value, list | Iterator):
        for held in cast("list[object]", value):
            exhausted(held)


def assert_taken(messages: list[Json]) -> None:
    """What the API asks of a request, as far as its types and its errors tell."""
    exhausted(TAKEN.validate_python(messages))
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "results follow their calls"
        calls = message.get("tool_calls", [])
        assert message.get("content") or calls
        waiting = [held["id"] for held in calls]
        assert len(set(waiting)) == len(waiting)
        for held in calls:
            assert 0 < len(held["id"]) <= 40
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", held[held["type"]]["name"])
    assert not waiting


def bare(messages: list[Json]) -> list[Json]:
    """Without what is only for the servers that wrote it, and the name some give to results."""
    theirs = {"reasoning_content", "reasoning", "reasoning_text"}
    return [
        {
            name: held
            for name, held in message.items()
            if name not in theirs and not (name == "name" and message["role"] == "tool")
        }
        for message in messages
    ]


# --- what is read is written back -----------------------------------------------------------


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_written_back_as_it_was_and_nothing_of_it_twice(name: str) -> None:
    assert back(LISTS[name]) == (name == "results in another order")
    assert not kept_twice(lengthened(LISTS[name]), CHAT)


@pytest.mark.parametrize("messages", ODD)
def test_what_is_odder_than_that_is_kept_as_it_came(messages: list[Json]) -> None:
    assert back(messages) == 1
    assert not kept_twice(lengthened(messages), CHAT)


@given(valid_lists())
def test_any_valid_list_is_written_back_and_nothing_of_it_twice(messages: list[Json]) -> None:
    back(messages)
    assert not kept_twice(lengthened(messages), CHAT)
    assert OpenAIChat().recognizes(messages)


@given(odd_lists)
def test_any_odd_list_is_written_back(messages: list[Json]) -> None:
    back(messages)


@given(st.lists(wild | nearly_messages(), max_size=4))
def test_what_is_no_list_of_chat_is_refused_in_words(messages: list[Any]) -> None:
    try:
        back(messages)
    except BadInput:
        are_objects = all(isinstance(held, dict) for held in messages)
        assert not (are_objects and OpenAIChat().recognizes(messages))
        return
    request(shown(decode(messages, wire=CHAT).messages), CHAT)


@given(wild | st.lists(st.fixed_dictionaries({"message": nearly_messages()})))
def test_what_is_no_response_is_refused_in_words(choices: Any) -> None:
    response = {"choices": choices, "usage": choices, "model": choices}
    OpenAIChat().recognizes_reply(response)
    try:
        message = decode_reply(response, wire=CHAT)
    except BadInput:
        return
    assert encode_reply(message, CHAT) == response


def test_real_lists_are_written_back_as_they_were_and_nothing_of_them_twice(corpus: Path) -> None:
    kept: dict[str, int] = {}
    lists = 0
    for name, messages in corpus_lists(corpus):
        kept[name] = kept.get(name, 0) + back(messages)
        lists += 1
        assert OpenAIChat().recognizes(messages)
    assert lists > 80
    assert kept == dict.fromkeys(kept, 0)


def test_requests_of_real_lists_are_taken(corpus: Path) -> None:
    for _, messages in corpus_lists(corpus):
        assert_taken(bare(asked(messages)))


def test_messages_that_only_look_like_chat_are_refused(corpus: Path) -> None:
    # Tau2 has calls without a function in them, and results without the id of their call.
    for path in (corpus / "tau2-bench").glob("*.json"):
        for run in json.loads(path.read_bytes())["simulations"]:
            if any(message.get("tool_calls") for message in run["messages"]):
                with pytest.raises(BadInput, match=r"^message \d+: "):
                    decode(run["messages"], wire=CHAT)


# --- what a model is shown ------------------------------------------------------------------


@given(valid_lists() | odd_lists)
def test_requests_of_any_list_are_taken(messages: list[Json]) -> None:
    assert_taken(bare(asked(messages)))


@given(sessions())
def test_what_a_view_shows_is_taken(messages: list[Message]) -> None:
    assert_taken(request(shown(messages), CHAT, system="Be brief."))


def test_a_request_leaves_out_what_only_a_program_noted() -> None:
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
    assert asked(messages) == [
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


def test_a_prompt_amid_the_rest_keeps_its_role_and_is_no_request_of_the_user() -> None:
    prompt = {"role": "developer", "content": "Now be brief."}
    decoded = decode([user(), said(), prompt, said("Ok.")], wire=CHAT)
    assert prompt in request(shown(decoded.messages), CHAT)
    part = decoded.messages[2].parts[0]
    assert isinstance(part, TextPart)
    assert part.synthetic is True


def test_a_server_gets_back_the_thinking_that_it_wrote() -> None:
    signed = {"google": {"thought_signature": "s"}}
    messages = [
        user(),
        said(reasoning="Hm.", reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
        user(),
        calling(call("functions.read:0", extra_content=signed), reasoning_content="Well."),
        tool("functions.read:0"),
    ]
    assert asked(messages) == messages
    part = decode(messages, wire=CHAT).messages[1].parts[0]
    assert isinstance(part, ReasoningPart)
    assert part.text == "Hm."


def test_another_provider_is_told_nothing_that_is_opaque() -> None:
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
    decoded = decode(messages, wire="anthropic")
    asking = request(shown(decoded.messages), CHAT)
    assert_taken(asking)
    told = json.dumps(asking)
    for opaque in ("sig-1", "sig-2", "Secret", "thinking", "ephemeral", "search_result"):
        assert opaque not in told
    assert asking[1]["tool_calls"][0]["function"]["arguments"] == '{"path":"é"}'
    assert asking[2] == tool("toolu_1", "a")
    assert asking[3]["content"][1] == {"type": "image_url", "image_url": {"url": PNG}}


def test_files_go_where_the_api_takes_them() -> None:
    picture = Media(data=PNG, media_type="image/png")
    song = Media(data="data:audio/mpeg;base64,AA==", media_type="audio/mpeg")
    paper = Media(data=PDF, media_type="application/pdf")
    local = Media(data="file:///a.png", media_type="image/png", filename="a.png")
    film = Media(data="data:audio/ogg;base64,AA==", media_type="audio/ogg")
    calls = tuple(ShownCall(tool_call_id=name, tool_name="read", input={}) for name in "ab")
    answers = (
        Result(tool_call_id="a", tool_name="read", output=Output(type="text", value=" ")),
        Result(tool_call_id="b", tool_name="read", output=Output(type="error-text", value="no")),
    )
    attached = Result(
        tool_call_id="a",
        tool_name="read",
        output=Output(type="text", value=""),
        attachments=(picture, local),
    )
    written = request(
        [
            UserMessage(content=(picture, song, paper, local, film)),
            AssistantMessage(content=(picture, *calls)),
            ToolMessage(content=(attached, answers[1])),
            AssistantMessage(content=(Text(text=" "),)),
        ],
        CHAT,
    )
    assert_taken(written)
    kinds = [part["type"] for part in written[0]["content"]]
    assert kinds == ["image_url", "input_audio", "file", "text", "text"]
    assert written[0]["content"][2]["file"]["filename"] == "file"
    assert written[1]["content"] == "[A file that cannot be shown here: image/png]"
    assert [message["role"] for message in written[2:]] == ["tool", "tool", "user", "assistant"]
    assert written[3]["content"] == "no"
    assert [part["type"] for part in written[4]["content"]] == ["text", "image_url", "text"]
    assert written[5]["content"] == NOTHING_TO_READ


def test_ids_and_names_of_others_are_made_to_fit() -> None:
    long = "x" * 41
    state = Completed(input={}, output="1")
    parts = tuple(
        ToolPart(tool=name, call_id=call_id, state=state)
        for name, call_id in (("mcp:read", long), ("y" * 65, "a b"), ("read", "toolu_01"))
    )
    info = decode([said()], wire=CHAT).messages[0].info
    written = request(shown([Message(info=info, parts=parts)]), CHAT)
    assert_taken(written)
    assert written[1]["tool_calls"][2]["id"] == "toolu_01"


def test_arguments_that_were_changed_are_written_anew() -> None:
    decoded = decode([calling(call("a", '{ "path": 1 }'))], wire=CHAT)
    part = decoded.messages[0].parts[0]
    assert isinstance(part, ToolPart)
    assert encode(decoded.messages, CHAT) == [calling(call("a", '{ "path": 1 }'))]
    newer = ToolPart(
        tool="read", call_id="a", state=Pending(input={"path": 2}), metadata=part.metadata
    )
    message = Message(info=decoded.messages[0].info, parts=(newer,))
    assert encode([message], CHAT) == [calling(call("a", '{"path":2}'))]


def test_breakpoints_are_no_more_than_are_allowed() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    messages = [
        held
        for number in range(5)
        for held in (user([{"type": "text", "text": str(number), **mark}]), said())
    ]
    assert json.dumps(asked(messages)).count("ephemeral") == 2


# --- recognising and responses --------------------------------------------------------------


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
def test_lists_of_other_wires_are_not_taken_for_chat(message: Json) -> None:
    assert not OpenAIChat().recognizes([user(), message])
    assert OpenAIChat().recognizes([user(), said()])


ANSWER: Json = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": None,
            "message": {
                **calling(call("a", '{"path": "é"}'), content="Well."),
                "refusal": None,
                "annotations": [],
                "reasoning_content": "Hm.",
            },
        },
        {"index": 1, "finish_reason": "stop", "logprobs": None, "message": said(refusal="No.")},
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 8},
    },
}


def test_a_response_of_the_sdk_is_read_with_what_was_measured_and_written_back() -> None:
    message = decode_reply(ChatCompletion.model_validate(ANSWER), wire=CHAT)
    assert encode_reply(message, CHAT) == ANSWER
    assert "whole" not in subobject(message.info.wire, CHAT)
    info = json.loads(to_json(Transcript(info=SessionInfo(id="s"), messages=(message,))))
    found = info["messages"][0]["info"]
    assert (found["finish"], found["modelID"]) == ("tool-calls", "gpt-5")
    assert found["tokens"] == {
        "input": 36,
        "output": 20,
        "reasoning": 8,
        "total": 120,
        "cache": {"read": 64, "write": 0},
    }


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("function_call", "tool-calls"),
        ("length", "length"),
        ("content_filter", "content-filter"),
        ("paused", "other"),
        (None, "other"),
    ],
)
def test_why_a_response_ended_is_told_in_our_words(reason: Any, finish: str) -> None:
    response = {"choices": [{"message": said(), "finish_reason": reason}], "usage": None}
    assert OpenAIChat().recognizes_reply(response)
    message = decode_reply(response, wire=CHAT)
    assert isinstance(message.info, AssistantInfo)
    assert message.info.finish == finish
    assert encode_reply(message, CHAT) == response


def test_what_a_server_added_to_a_call_goes_back_with_another_id() -> None:
    signed = call("a", extra_content={"google": {"thought_signature": "s"}})
    turn = [calling(signed), tool("a", [{"type": "text", "text": "1"}])]
    found = request(shown(decode([user(), *turn, *turn], CHAT).messages), CHAT)
    first, second = found[1]["tool_calls"][0], found[3]["tool_calls"][0]
    assert first["id"] != second["id"]
    assert second == {**first, "id": second["id"]} == {**signed, "id": second["id"]}
    assert found[4] == {**turn[1], "tool_call_id": second["id"]}
