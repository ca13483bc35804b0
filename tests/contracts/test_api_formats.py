"""What every API format must do: decode and encode without loss, and write accepted requests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Failed, Message, ToolPart
from foldmark.policy import OPENCODE
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import WIRES, codec_named, subobject
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from tests.support.api_lists import (
    FormatCases,
    Json,
    assert_reply_unchanged_or_refused,
    by_model,
    is_refused,
    messages_with_files,
    messages_with_notes,
    request_for,
    round_trip,
    stored_twice,
    view_messages,
    with_long_texts,
)
from tests.support.format_cases import CASES
from tests.support.provider_types import SERVER_FIELDS, assert_accepted, assert_types
from tests.support.session_strategies import sessions

each_wire = pytest.mark.parametrize("wire", WIRES)
data = st.data()


def each_case(names: str, cases: Callable[[FormatCases], list[Any]]) -> pytest.MarkDecorator:
    """Run a test for each of these cases of each format."""
    rows = [(wire, case) for wire in WIRES for case in cases(CASES[wire])]
    return pytest.mark.parametrize(("wire", names), rows)


# --- lists ---------------------------------------------------------------------------------


@each_case("name", lambda cases: list(cases.lists))
def test_a_list_is_encoded_unchanged_and_stored_once(wire: str, name: str) -> None:
    messages = CASES[wire].lists[name]
    assert round_trip(messages, wire) == CASES[wire].stretches.get(name, 0)
    assert not stored_twice(with_long_texts(messages), wire)


@each_case("messages", lambda cases: cases.odd_lists)
def test_an_odd_list_is_encoded_unchanged(wire: str, messages: list[Json]) -> None:
    round_trip(messages, wire)
    request_for(messages, wire)


@each_wire
@given(data=data)
def test_any_valid_list_is_encoded_unchanged_and_its_request_accepted(
    wire: str, data: st.DataObject
) -> None:
    messages = data.draw(CASES[wire].valid)
    round_trip(messages, wire)
    assert_accepted(wire, request_for(messages, wire), beta=True)
    if wire != "openai-responses":  # whose summaries may be stored beside their text
        assert not stored_twice(with_long_texts(messages), wire)
        assert codec_named(wire).recognizes(messages)


@each_wire
@given(data=data)
def test_any_odd_list_is_encoded_unchanged(wire: str, data: st.DataObject) -> None:
    messages = data.draw(CASES[wire].odd)
    round_trip(messages, wire)
    found = request_for(messages, wire)
    if wire != "openai-responses":  # whose unknown items are sent as they are
        assert_accepted(wire, found, beta=True)


@each_wire
@given(data=data)
def test_malformed_lists_are_refused_or_encoded_unchanged(wire: str, data: st.DataObject) -> None:
    messages = data.draw(st.lists(CASES[wire].malformed, max_size=4))
    refused = is_refused(messages, wire)
    if all(isinstance(message, dict) for message in messages):
        recognized = codec_named(wire).recognizes(messages)
        assert not (wire == "openai-chat" and refused and recognized)  # it recognizes by reading


@each_case("case", lambda cases: cases.refused)
def test_a_malformed_message_is_refused_with_its_number_and_cause(
    wire: str, case: tuple[Json, str]
) -> None:
    message, cause = case
    with pytest.raises(BadInput, match=f"^message 2: {cause}"):
        decode([CASES[wire].user, message], wire)


@each_wire
def test_recorded_lists_are_encoded_unchanged_and_their_requests_accepted(
    corpus: Path, wire: str
) -> None:
    lists = list(CASES[wire].recorded(corpus))
    assert len(lists) >= CASES[wire].recorded_count
    for messages in lists:
        assert codec_named(wire).recognizes(messages) or wire == "openai-responses"
        assert round_trip(messages, wire) == 0
        assert_accepted(wire, request_for(messages, wire))
        assert request_for(messages, wire, "gemini" if wire == "anthropic" else "anthropic")


# --- requests ------------------------------------------------------------------------------


@each_wire
@given(messages=sessions())
def test_the_request_for_any_session_is_accepted(wire: str, messages: list[Any]) -> None:
    view = view_messages(messages)
    found = request(view, wire, system="Be brief.")
    assert_accepted(wire, found)
    assert_accepted(wire, request(view, wire), beta=True)
    if wire == "openai-chat":  # nothing was read from a server that expects its fields back
        assert not any(SERVER_FIELDS & set(message) for message in found)
    if wire == "openai-responses":
        assert len(found) >= len(view) - 1


@each_wire
@given(messages=sessions())
def test_the_sdk_knows_all_types_in_the_request_for_a_plain_view(
    wire: str, messages: list[Any]
) -> None:
    view = Viewer(Log(by_classes, messages), OPENCODE).view()
    assert_types(wire, request(view.messages, wire, system="Be brief."))


@each_wire
def test_files_are_sent_where_the_api_accepts_them(wire: str) -> None:
    sent = request(messages_with_files(), wire)
    assert_accepted(wire, sent)
    assert sent == CASES[wire].files_request


@each_wire
def test_ids_and_names_of_other_providers_are_made_acceptable(wire: str) -> None:
    calls = {"call|x": "a.b", "x" * 200: "mcp:read", "a b": "y" * 99, "toolu_01": "read"}
    state = Failed(input={}, error="")
    parts = tuple(ToolPart(tool=name, call_id=id, state=state) for id, name in calls.items())
    sent = request(view_messages([Message(info=AssistantInfo(id="a"), parts=parts)]), wire)
    assert_accepted(wire, sent)
    assert all(f'"{name}"' in json.dumps(sent) for name in ("toolu_01", "read"))


@each_wire
def test_another_provider_or_model_gets_texts_and_nothing_opaque(wire: str) -> None:
    messages, codec = CASES[wire].lists["opaque"], codec_named(wire)
    ours = by_model(decode(messages, wire).messages, codec.provider, "own")
    for to in WIRES:
        for view in [view_messages(ours, "other:model"), view_messages(ours)][: 1 + (to != wire)]:
            sent = request(view, to)
            assert_accepted(to, sent)
            output = json.dumps(sent)
            assert not [opaque for opaque in CASES[wire].opaque if opaque in output]
            assert all(text in output for text in CASES[wire].readable)


@each_wire
@given(data=data)
def test_arbitrary_notes_break_no_request(wire: str, data: st.DataObject) -> None:
    messages = data.draw(messages_with_notes(CASES[wire].notes, codec_named(wire).key))
    request(view_messages(messages), wire)
    encode(messages, wire)


# --- responses -----------------------------------------------------------------------------


@each_wire
def test_a_response_is_decoded_with_its_usage_and_encoded_unchanged(wire: str) -> None:
    cases, codec = CASES[wire], codec_named(wire)
    for response in (cases.reply, cases.sdk_reply(cases.reply)):
        message = decode_reply(response, wire)
        assert isinstance(message.info, AssistantInfo)
        assert message.info.tokens == cases.tokens
        assert message.info.finish == "tool-calls"
        assert (message.info.provider_id, message.info.model_id) == (codec.provider, cases.model)
        assert encode_reply(message, wire) == cases.reply
        assert "raw" not in subobject(message.info.wire, codec.key)
        # The fields of the response are not part of the message.
        assert encode([message], wire) == cases.reply_messages
    assert codec.recognizes_reply(cases.reply)


@each_case("case", lambda cases: cases.finishes)
def test_a_finish_reason_is_given_in_our_terms(wire: str, case: tuple[Json, str]) -> None:
    response, finish = case
    message = decode_reply(response, wire)
    assert isinstance(message.info, AssistantInfo)
    assert message.info.finish == finish
    assert encode_reply(message, wire) == response
    assert codec_named(wire).recognizes_reply(response)


@each_wire
@given(data=data)
def test_malformed_responses_are_refused_or_encoded_unchanged(
    wire: str, data: st.DataObject
) -> None:
    response = data.draw(CASES[wire].malformed_replies)
    codec_named(wire).recognizes_reply(response)
    assert_reply_unchanged_or_refused(response, wire)
