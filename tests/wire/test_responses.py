"""What only OpenAI's Responses API has: decoding and recognition."""

import json
from collections.abc import Sequence

import pytest

from foldmark.model.messages import (
    Completed,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.wire.codec import subobject
from foldmark.wire.formats import decode, encode, request
from foldmark.wire.openai_responses import OpenAIResponses
from tests.support.api_lists import (
    Json,
    request_for,
    round_trip,
    view_messages,
)
from tests.support.responses_items import (
    CALLS,
    MODEL_SIDE,
    PAIRS,
    RESULTS,
    USER_SIDE,
    WIRE,
    assistant,
    call,
    item,
    reasoning,
    response,
    result,
    user,
)

# --- decoding ------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [[entry] for entry in MODEL_SIDE + USER_SIDE] + [*PAIRS], ids=str)
def test_an_item_of_any_type_is_encoded_unchanged(items: Sequence[Json]) -> None:
    assert round_trip([user("Go"), *items], WIRE) == 0
    assert round_trip([*items], WIRE) == 0


def test_a_list_of_all_types_is_encoded_without_keeping_its_original() -> None:
    items = [*USER_SIDE, *MODEL_SIDE, *CALLS, *RESULTS, *USER_SIDE, *MODEL_SIDE]
    assert round_trip(items, WIRE) == 0
    assert round_trip([*CALLS, *reversed(RESULTS), *MODEL_SIDE], WIRE) == 1


def test_items_of_one_reply_are_one_message() -> None:
    items = [user("Go"), reasoning(id="rs"), assistant(), call(), result(), assistant("Done")]
    messages = decode(items, WIRE).messages
    assert [message.is_user for message in messages] == [True, False, False]
    kinds = [type(part) for part in messages[1].parts]
    assert kinds == [ReasoningPart, TextPart, ToolPart]
    approval = item("mcp_approval_response", approval_request_id="a", approve=True)
    approved = decode([item("mcp_approval_request", id="a"), approval], WIRE).messages
    assert [message.is_user for message in approved] == [False, True]
    ran = messages[1].parts[2]
    assert isinstance(ran, ToolPart)
    assert isinstance(ran.state, Completed)
    assert (ran.tool, ran.state.input, ran.state.output) == ("read", {"path": "a.py"}, "done")


def test_the_output_of_any_result_has_a_text() -> None:
    for pair, text in ((PAIRS[7], "a.py"), (PAIRS[10], "web_search"), (PAIRS[5], '"JSON"')):
        part = decode(pair, WIRE).messages[0].parts[0]
        assert isinstance(part, ToolPart)
        assert isinstance(part.state, Completed)
        assert text in part.state.output


def test_a_system_message_is_the_prompt_or_keeps_its_role() -> None:
    leading, later = user("A", role="developer"), user("B", role="developer")
    items = [leading, user("Hi"), later, user("C"), assistant()]
    decoded = decode(items, WIRE)
    assert decoded.origin.system == "A"
    assert subobject(decoded.messages[1].info.wire, "openai")["role"] == "developer"
    assert round_trip(items, WIRE) == 0
    # A view merges user messages without a reply between them, and keeps their roles.
    assert [entry["role"] for entry in request_for(items, WIRE)] == [
        "user",
        "developer",
        "user",
        "assistant",
    ]


def test_odd_lists_keep_their_original() -> None:
    late = [call("c1"), user("Wait"), result("c1"), assistant()]
    assert round_trip(late, WIRE) == 1
    assert round_trip([result("c9"), assistant(), result("c9")], WIRE) == 0  # without a call
    assert round_trip([call("c1"), call("c1"), result("c1"), result("c1")], WIRE) <= 1
    assert round_trip([item("reasoning", id="rs"), assistant()], WIRE) == 1  # without a summary
    assert round_trip([PAIRS[6][0], result("c1")], WIRE) == 1  # of another type


# --- responses -----------------------------------------------------------------------------


# --- recognition ---------------------------------------------------------------------------


def test_a_list_is_recognized_by_the_types_of_its_items() -> None:
    codec = OpenAIResponses()
    assert codec.recognizes([user("Hi"), assistant(), call(), result(), reasoning()])
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
    assert not any(codec.recognizes([user("Hi"), other]) for other in others)
    assert codec.recognizes_reply(response(assistant()))
    assert not codec.recognizes_reply({"type": "message", "role": "assistant", "content": []})


def test_arguments_that_are_nested_too_deeply_are_kept_as_text() -> None:
    for arguments in ("[" * 100_000, '{"a":' * 5_000 + "1" + "}" * 5_000, '{"a":1e999}', "\ud800"):
        items = [call(arguments=arguments), result()]
        decoded = decode(items, WIRE)
        assert encode(decoded.messages, WIRE) == items
        json.loads(request(view_messages(decoded.messages), WIRE)[1]["arguments"])
