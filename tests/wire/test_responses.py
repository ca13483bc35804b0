"""OpenAI's Responses: whatever is read is written back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
)
from foldmark.model.values import encode as to_json
from foldmark.wire.codec import subobject
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from foldmark.wire.openai_responses import OpenAIResponses
from tests.support.api_lists import kept_twice, lengthened
from tests.support.responses_items import (
    MODEL_SIDE,
    PAIRS,
    USER_SIDE,
    WIRE,
    Json,
    again,
    asked,
    back,
    call,
    item,
    result,
    rollouts,
    said,
    thought,
    view,
)

# --- nothing is lost --------------------------------------------------------------------------


@pytest.mark.parametrize("items", [[held] for held in MODEL_SIDE + USER_SIDE] + [*PAIRS], ids=str)
def test_an_item_of_any_kind_comes_back_as_it_was(items: Sequence[Json]) -> None:
    assert back([asked("Go"), *items]) == 0
    assert back([*items]) == 0


def test_a_list_of_all_kinds_comes_back_without_being_kept_as_it_came() -> None:
    pairs = [[{**held, "call_id": f"c{n}"} for held in pair] for n, pair in enumerate(PAIRS)]
    calls, results = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    items = [*USER_SIDE, *MODEL_SIDE, *calls, *results, *USER_SIDE, *MODEL_SIDE]
    assert back(items) == 0
    assert back([*calls, *reversed(results), *MODEL_SIDE]) == 1
    assert not kept_twice(lengthened([*USER_SIDE, *calls, *results]), WIRE)
    assert not kept_twice(lengthened([*calls, *reversed(results)]), WIRE)


def test_items_of_one_answer_are_one_message() -> None:
    items = [asked("Go"), thought(id="rs"), said(), call(), result(), said("Done")]
    messages = decode(items, wire=WIRE).messages
    assert [message.is_user for message in messages] == [True, False, False]
    kinds = [type(part) for part in messages[1].parts]
    assert kinds == [ReasoningPart, TextPart, ToolPart]
    approval = item("mcp_approval_response", approval_request_id="a", approve=True)
    approved = decode([item("mcp_approval_request", id="a"), approval], wire=WIRE).messages
    assert [message.is_user for message in approved] == [False, True]
    ran = messages[1].parts[2]
    assert isinstance(ran, ToolPart)
    assert isinstance(ran.state, Completed)
    assert (ran.tool, ran.state.input, ran.state.output) == ("read", {"path": "a.py"}, "done")


def test_what_a_result_carries_can_be_read() -> None:
    for pair, text in ((PAIRS[7], "a.py"), (PAIRS[10], "web_search"), (PAIRS[5], '"JSON"')):
        part = decode(pair, wire=WIRE).messages[0].parts[0]
        assert isinstance(part, ToolPart)
        assert isinstance(part.state, Completed)
        assert text in part.state.output


def test_system_messages_lead_the_list_or_keep_their_role() -> None:
    leading, later = asked("A", role="developer"), asked("B", role="developer")
    items = [leading, asked("Hi"), later, asked("C"), said()]
    decoded = decode(items, wire=WIRE)
    assert decoded.origin.system == "A"
    assert subobject(decoded.messages[1].info.wire, "openai")["role"] == "developer"
    assert back(items) == 0
    # A view puts what is said without an answer into one message; the roles are kept.
    assert [held["role"] for held in again(items)] == ["user", "developer", "user", "assistant"]


def test_what_is_odd_comes_back_too() -> None:
    late = [call("c1"), asked("Wait"), result("c1"), said()]
    assert back(late) == 1
    assert back([result("c9"), said(), result("c9")]) == 0  # results of no call
    assert back([call("c1"), call("c1"), result("c1"), result("c1")]) <= 1
    assert back([item("reasoning", id="rs"), said()]) == 1  # without a summary
    assert back([PAIRS[6][0], result("c1")]) == 1  # the result of another kind


names = st.sampled_from(("c1", "c2", "c3", ""))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
fields = st.dictionaries(st.sampled_from(("id", "status", "output", "tools", "x")), json_values)
kinds = st.sampled_from(
    (
        "x",
        "x_call",
        "x_call_output",
        "tool_search_output",
        "shell_call",
        "compaction",
        "reasoning_x",
    )
)


def odd_item(kind: str, name: str | None, more: Json) -> Json:
    return {**more, "type": kind, "call_id": name}


def half(pair: tuple[Json, Json], name: str, side: int) -> Json:
    """A call or its result, with an id that others may have too."""
    return {**pair[side], "call_id": name}


odd_items = st.builds(odd_item, kinds, names | st.none(), fields)
usual_items = st.one_of(
    st.sampled_from(MODEL_SIDE + USER_SIDE),
    st.builds(call, names, st.sampled_from(("{}", '{"a":1}', "{ }", "[", ""))),
    st.builds(result, names, json_values),
    st.builds(half, st.sampled_from(PAIRS), names, st.integers(0, 1)),
)


@given(st.lists(usual_items | odd_items, max_size=14))
def test_any_list_comes_back_and_something_of_it_can_be_sent(items: list[Json]) -> None:
    back(items)
    again(items)


def test_every_recorded_session_comes_back_as_it_was(corpus: Path) -> None:
    found = list(rollouts(corpus))
    assert len(found) >= 8
    kept = {name: back(items) for name, items in found}
    assert sum(kept.values()) == 0, kept


# --- responses --------------------------------------------------------------------------------

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def response(*output: Json, **more: Any) -> Json:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1.0,
        "model": "gpt-5",
        "status": "completed",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **more,
    }


@pytest.mark.parametrize(
    "output",
    [
        MODEL_SIDE,
        [call(), *MODEL_SIDE, call("c2")],
        [PAIRS[7][0], PAIRS[7][1], said()],  # run by the provider
        [asked("Hi"), item("compaction", encrypted_content="gAAA")],
        [result("c9")],
        [],
    ],
    ids=("made", "called", "hosted", "compacted", "orphan", "empty"),
)
def test_a_response_comes_back_as_it_was(output: list[Json]) -> None:
    given_ = response(*output)
    message = decode_reply(given_, wire=WIRE)
    assert encode_reply(message, WIRE) == given_
    assert "whole" not in subobject(message.info.wire, "openai")


def test_the_objects_of_the_sdk_are_read_as_well() -> None:
    text: Json = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
    made = item("message", role="assistant", id="msg_1", status="completed", content=[text])
    given_ = response(thought("Hm.", id="rs_1"), made, call(id="fc_1", status="completed"))
    message = decode_reply(Response.model_validate(given_), wire=WIRE)
    assert encode_reply(message, WIRE) == given_
    info = message.info
    assert isinstance(info, AssistantInfo)
    assert (info.finish, info.model_id) == ("tool-calls", "gpt-5")
    tokens = json.loads(to_json(Transcript(info=SessionInfo(id="s"), messages=(message,))))
    assert tokens["messages"][0]["info"]["tokens"] == {
        "input": 30,
        "output": 20,
        "reasoning": 5,
        "total": 120,
        "cache": {"read": 60, "write": 10},
    }


def test_how_a_response_ended_is_told() -> None:
    def finish(*output: Json, **more: Any) -> str:
        info = decode_reply(response(*output, **more), wire=WIRE).info
        assert isinstance(info, AssistantInfo)
        return str(info.finish)

    def cut(reason: str) -> Json:
        return {"status": "incomplete", "incomplete_details": {"reason": reason}}

    assert finish(said()) == "stop"
    assert finish(said(), PAIRS[6][0]) == "tool-calls"
    assert finish(said(), **cut("max_output_tokens")) == "length"
    assert finish(said(), **cut("content_filter")) == "content-filter"
    assert finish(said(), status="failed", usage=None) == "other"


# --- recognising, and what is no list at all --------------------------------------------------


def test_a_list_is_recognised_by_the_types_of_its_items() -> None:
    codec = OpenAIResponses()
    assert codec.recognizes([asked("Hi"), said(), call(), result(), thought()])
    assert codec.recognizes([{"role": "user", "content": "Hi"}, call()])
    assert not codec.recognizes([{"role": "user", "content": "Hi"}])
    assert not codec.recognizes([])
    others: list[Json] = [
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"type": "user", "message": {}},
    ]
    assert not any(codec.recognizes([asked("Hi"), other]) for other in others)
    assert codec.recognizes_reply(response(said()))
    assert not codec.recognizes_reply({"type": "message", "role": "assistant", "content": []})


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"type": 5},
        {"type": "message"},
        {"role": "user", "content": None},
        {"role": "user", "content": ["Hi"]},
        {"role": "user", "content": [{"type": "input_text"}]},
        {"type": "reasoning", "summary": "Hm."},
        {"type": "function_call", "call_id": "c1", "name": "read"},
        {"type": "function_call", "name": "read", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "read", "input": {}},
    ],
    ids=str,
)
def test_what_is_no_item_is_refused_with_its_place(broken: Json) -> None:
    with pytest.raises(BadInput, match="message 2"):
        decode([asked("Hi"), broken], wire=WIRE)


WORDS = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary", "text")
SAID = ("message", "reasoning", "function_call", "x_call", "user", "input_text", "input_image")
wild = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.sampled_from(SAID)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=2), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(st.lists(wild, max_size=4), st.dictionaries(st.sampled_from(("output", "usage")), wild))
def test_anything_else_is_refused_and_never_breaks(items: list[Any], reply: Json) -> None:
    OpenAIResponses().recognizes([cast("Json", held) for held in items if isinstance(held, dict)])
    try:
        decoded = decode(items, wire=WIRE)
        request(view(decoded.messages), WIRE)
    except BadInput:
        pass
    else:
        assert encode(decoded.messages, WIRE, origin=decoded.origin) == items
    try:
        message = decode_reply({"object": "response", **reply}, wire=WIRE)
    except BadInput:
        return
    assert encode_reply(message, WIRE) == {"object": "response", **reply}


def test_arguments_nested_beyond_measure_are_kept_as_the_text_they_are() -> None:
    for arguments in ("[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, '{"a":1e999}', "\ud800"):
        items = [call(arguments=arguments), result()]
        decoded = decode(items, wire=WIRE)
        assert encode(decoded.messages, WIRE) == items
        json.loads(request(view(decoded.messages), WIRE)[1]["arguments"])
