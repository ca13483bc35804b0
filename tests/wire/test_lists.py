"""Lists of any format: irregular stretches keep their original until a message changes."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    Completed,
    Message,
    Origin,
    Pending,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
    decode_message,
    has_result,
    with_part,
)
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode as encoded
from foldmark.wire.codec import WIRES, ReadResult, codec_named, subobject
from foldmark.wire.detect import candidates, recognize, reply_candidates
from foldmark.wire.exactness import difference_note
from foldmark.wire.formats import decode, decode_reply, encode, request
from foldmark.wire.lists import COVERS, read_addition, read_list, write_list
from foldmark.wire.openai_chat import OpenAIChat
from foldmark.wire.pairing import CallPairing, LateResult
from foldmark.wire.plain import plain, plain_object
from tests.support import anthropic_messages as blocks
from tests.support import chat_messages as chat_lists
from tests.support import responses_items as responses
from tests.support.api_lists import any_json, canonical, verbatim, view_messages
from tests.support.format_cases import CASES
from tests.support.malformed_records import damaged_lines
from tests.support.sdk_conversations import TALKS

Json = dict[str, Any]
each_wire = pytest.mark.parametrize("wire", WIRES)

USER = {wire: cases.user for wire, cases in CASES.items()}
CALLS = {wire: cases.call for wire, cases in CASES.items()}
RESULTS = {wire: cases.result for wire, cases in CASES.items()}


def late(wire: str, name: str = "a") -> list[Json]:
    """A result after another message: no API has that order, so its original is kept."""
    return [CALLS[wire](name), USER[wire], RESULTS[wire](name)]


def usual(wire: str, count: int) -> list[Json]:
    """Regular turns."""
    turns = [(USER[wire], CALLS[wire](f"u{n}"), RESULTS[wire](f"u{n}")) for n in range(count)]
    return [message for turn in turns for message in turn]


def kept(messages: Sequence[Message], wire: str) -> list[tuple[int, int]]:
    """The sizes of stretches with their original, in our messages and in received ones."""
    notes = [subobject(message.info.wire, codec_named(wire).key) for message in messages]
    return [(item[COVERS], len(item["raw"][1][1])) for item in notes if COVERS in item]


# --- irregular stretches -------------------------------------------------------------------


@each_wire
def test_only_an_odd_stretch_keeps_its_original(wire: str) -> None:
    received = [*usual(wire, 20), *late(wire, "x"), *usual(wire, 20), *late(wire, "y")]
    decoded = decode(received, wire)
    assert encode(decoded.messages, wire) == received
    assert kept(decoded.messages, wire) == [(2, 3), (2, 3)]


@each_wire
def test_a_call_without_a_result_makes_no_long_stretch(wire: str) -> None:
    received = [CALLS[wire]("gone"), *usual(wire, 20), *late(wire, "x"), *usual(wire, 20)]
    decoded = decode(received, wire)
    assert encode(decoded.messages, wire) == received
    assert kept(decoded.messages, wire) == [(2, 3)]


@each_wire
def test_overlapping_stretches_are_one(wire: str) -> None:
    a, b = late(wire, "a"), late(wire, "b")
    received = [*usual(wire, 2), a[0], a[1], b[0], a[2], b[1], b[2], *usual(wire, 2)]
    decoded = decode(received, wire)
    assert encode(decoded.messages, wire) == received
    assert [count for _, count in kept(decoded.messages, wire)] == [6]


def changed(messages: Sequence[Message], index: int, **fields: Any) -> list[Message]:
    """The messages with the first part of one changed."""
    part = replace(messages[index].parts[0], **fields)
    return [
        with_part(message, 0, part) if number == index else message
        for number, message in enumerate(messages)
    ]


@each_wire
def test_a_changed_message_is_written_as_it_is_now(wire: str) -> None:
    call, message = decode(late(wire), wire).messages
    part = cast("ToolPart", call.parts[0])
    state = cast("Completed", part.state)
    edited = encode(changed([call, message], 0, state=replace(state, output="other")), wire)
    assert "other" in json.dumps(edited)
    assert "done" not in json.dumps(edited)
    assert "Go on" in json.dumps(encode(changed([call, message], 1, text="Go on"), wire))
    renamed = json.dumps(encode(changed([call, message], 0, tool="look"), wire))
    assert "look" in renamed
    for fewer in ([call], [message], [message, call]):
        assert encode(fewer, wire) != late(wire)
    assert encode([call, message, message], wire) == [*late(wire), USER[wire]]


@each_wire
def test_a_later_result_is_written(wire: str) -> None:
    # The stretch is irregular, and one call has no result yet.
    received = [CALLS[wire]("a"), *late(wire, "b")]
    messages = list(decode(received, wire).messages)
    waiting = [
        (index, offset)
        for index, message in enumerate(messages)
        for offset, part in enumerate(message.parts)
        if isinstance(part, ToolPart) and not has_result(part)
    ]
    ((index, offset),) = waiting
    part = cast("ToolPart", messages[index].parts[offset])
    state = Completed(input=part.state.input, output="at last")
    messages[index] = with_part(messages[index], offset, replace(part, state=state))
    assert "at last" in json.dumps(encode(messages, wire))


@each_wire
def test_ids_and_times_of_a_store_do_not_change_the_list(wire: str) -> None:
    def stored(message: Message) -> Message:
        parts = [
            replace(part, id=f"p{index}", session_id="s", message_id="m")
            for index, part in enumerate(message.parts)
            if isinstance(part, TextPart | ToolPart)
        ]
        timed = [
            replace(part, state=replace(part.state, time=Time(end=5, compacted=6)))
            if isinstance(part, ToolPart)
            else part
            for part in parts
        ]
        info = replace(message.info, id="m", session_id="s", time=Time(created=5))
        return decode_message(encoded(Message(info=info, parts=tuple(timed))))

    received = [*late(wire), *usual(wire, 1)]
    assert encode([stored(item) for item in decode(received, wire).messages], wire) == received


@each_wire
def test_a_prompt_inside_an_odd_stretch_is_kept_with_it(wire: str) -> None:
    if not wire.startswith("openai"):
        return  # the others have no prompts among the messages
    prompt: Json = {"role": "system", "content": "Be brief."}
    received = [prompt, *usual(wire, 1), prompt, *late(wire), prompt, RESULTS[wire]("gone")]
    decoded = decode(received, wire)
    assert encode(decoded.messages, wire, decoded.origin) == received
    assert decoded.origin.system == "Be brief."


@each_wire
def test_notes_within_notes_are_not_followed(wire: str) -> None:
    key = codec_named(wire).key
    nested: Json = USER[wire]
    for _ in range(40):
        nested = {**USER[wire], key: {"raw": [nested], COVERS: 1}}
    decoded = decode([nested], wire)
    assert encode(decoded.messages, wire) == [nested]
    message = decoded.messages[0]
    mark = difference_note([nested], [])["raw"][0]
    differences: list[Any] = [[], 5, ["piece", 9, 0, 1], ["piece", "x", 0, 1], ["parsed", 9]]
    differences += [["spaced", 0], ["fields", 5], ["fields", {"a": 5}], ["list", 5], ["new", 1]]
    raws: list[Any] = [[nested] * 3, [], [5], "x", {}, [[]], *([mark, x] for x in differences)]
    for raw in raws:
        for covers in (1, 0, -1, 10**9, True, "1"):
            own: Json = {key: {"raw": raw, COVERS: covers}}
            odd = replace(message, info=replace(message.info, wire=own))
            assert len(encode([odd, odd], wire)) == 2


class Merging(OpenAIChat):
    """A codec that drops repeated messages, which no single stretch reveals."""

    def write(self, messages: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        output = super().write(messages, as_is=as_is)
        return [item for last, item in pairwise([{}, *output]) if item != last]


def test_the_whole_list_is_kept_if_its_stretches_do_not_add_up() -> None:
    received = [chat_lists.user("a"), chat_lists.said("b"), chat_lists.said("b")]
    decoded = read_list(Merging(), received)
    assert write_list(Merging(), decoded.messages) == received
    assert kept(decoded.messages, "openai-chat") == [(3, 3)]


def test_a_reply_of_many_items_is_encoded_unchanged() -> None:
    items = [
        item for n in range(3_000) for item in (responses.call(f"c{n}"), responses.result(f"c{n}"))
    ]
    many = [*items[::2], *reversed(items[1::2])]
    for received in (items, many):
        decoded = decode(received, "openai-responses")
        assert encode(decoded.messages, "openai-responses") == received
        assert verbatim(decoded.messages, "openai-responses") == (received is many)


# --- arbitrary messages --------------------------------------------------------------------


def all_messages(wire: str) -> list[Json]:
    extra = [*responses.MODEL_SIDE] if wire == "openai-responses" else []
    messages = [message for found in CASES[wire].lists.values() for message in found]
    return [message for message in [*messages, *extra] if len(str(message)) < 2_000]


@each_wire
@given(data=st.data())
def test_messages_of_any_shape_are_encoded_unchanged_or_refused(
    wire: str, data: st.DataObject
) -> None:
    operations = data.draw(damaged_lines(all_messages(wire)))
    try:
        decoded = decode(operations, wire)
    except BadInput:
        return
    output = encode(decoded.messages, wire, decoded.origin)
    assert canonical(output) == canonical(operations)
    again = [decode_message(encoded(message)) for message in decoded.messages]
    assert encode(again, wire, decoded.origin) == operations
    for to in WIRES:
        request(view_messages(decoded.messages), to)


anything = any_json(("role", "content", "parts", "type", "text", "messages"), ("user", "text", ""))


@given(st.lists(anything, max_size=3))
def test_recognition_takes_anything(values: list[Any]) -> None:
    messages = [cast("Json", value) for value in values if isinstance(value, dict)]
    decoded = [wire.name for wire in candidates(messages)]
    if len(decoded) == 1:
        assert recognize(messages).name == decoded[0]
    else:
        with pytest.raises(BadInput, match="api="):
            recognize(messages)
    for message in messages:
        assert len(reply_candidates(message)) <= len(WIRES)


# --- recognition ---------------------------------------------------------------------------


ALL = "openai-chat, openai-responses, anthropic, gemini"
UNCLEAR: list[tuple[list[Json], str]] = [
    ([], "openai-chat or anthropic or gemini"),
    ([chat_lists.user()], "openai-chat or anthropic"),
    ([blocks.user(blocks.text())], "openai-chat or anthropic"),
    ([{}], ALL),
    ([{"role": "narrator", "content": "hi"}], ALL),
    ([{"text": "hi"}], ALL),
]


@pytest.mark.parametrize(("messages", "names"), UNCLEAR)
def test_an_ambiguous_list_is_refused(messages: list[Json], names: str) -> None:
    with pytest.raises(BadInput, match=rf"{names}.*api=…"):
        decode(messages)


@each_wire
def test_a_list_is_recognized_by_its_calls(wire: str) -> None:
    assert decode(usual(wire, 1)).wire == wire
    assert [decoded.name for decoded in candidates(late(wire))] == [wire]


@each_wire
def test_a_response_is_recognized_and_its_message_alone_is_not(wire: str) -> None:
    reply = plain_object(TALKS[wire].calling)
    assert [decoded.name for decoded in reply_candidates(reply)] == [wire]
    assert decode_reply(TALKS[wire].ending) == decode_reply(TALKS[wire].ending, wire)
    message = plain(TALKS[wire].message)
    for part in cast("list[Json]", message) if isinstance(message, list) else [message]:
        assert reply_candidates(part) == []
    assert reply_candidates(responses.assistant(id="msg_1", status="completed")) == []


def test_an_ambiguous_response_is_refused() -> None:
    both = {"choices": [{"message": chat_lists.said()}], "candidates": []}
    with pytest.raises(BadInput, match="openai-chat or gemini; pass api=… to choose"):
        decode_reply(both)
    with pytest.raises(BadInput, match=r"this response .*anthropic.*api=…"):
        decode_reply({"a": 1})


def test_formats_have_names_and_aliases() -> None:
    for name, wire in {
        "OpenAI": "openai-chat",
        " openai_chat": "openai-chat",
        "responses": "openai-responses",
        "google": "gemini",
        "Anthropic-Messages": "anthropic",
    }.items():
        assert codec_named(name).name == wire
    for name in ("", "openai chat", "claude", cast("str", None), cast("str", 5)):
        with pytest.raises(BadInput, match="API format"):
            codec_named(name)


# --- additions to a session ----------------------------------------------------------------


@each_wire
def test_results_of_calls_outside_the_list_are_set_aside(wire: str) -> None:
    received = [RESULTS[wire]("there"), *usual(wire, 1)]
    addition = read_addition(codec_named(wire), received, prompts=True)
    assert [answer.call_id for answer in addition.results] == ["there"]
    assert addition.origin == Origin()
    assert [message.is_user for message in addition.messages] == [True, False]
    assert verbatim(addition.messages, wire) == 0


def test_a_prompt_is_separated_if_requested() -> None:
    prompt = {"role": "system", "content": "Be brief."}
    chat = codec_named("openai-chat")
    addition = read_addition(chat, [prompt, chat_lists.user()], prompts=True)
    assert addition.origin == Origin(system="Be brief.", wire={"openai-chat": [prompt]})
    assert len(addition.messages) == 1
    assert len(read_addition(chat, [prompt, chat_lists.user()], prompts=False).messages) == 2


# --- pairing -------------------------------------------------------------------------------


def calling(number: int, *names: str) -> Message:
    parts = [ToolPart(tool="ls", call_id=name, state=Pending(input={})) for name in names]
    return Message(info=UserInfo(id=f"m{number}"), parts=(TextPart(text=str(number)), *parts))


def outputs(messages: Iterator[Message] | list[Message]) -> list[tuple[str, ...]]:
    return [
        tuple(
            part.state.output if isinstance(part.state, Completed) else "?"
            for part in message.parts
            if isinstance(part, ToolPart)
        )
        for message in messages
    ]


def test_messages_wait_for_their_results_and_come_in_their_order() -> None:
    pairing = CallPairing("key")
    pairing.add(calling(1, "a", "b"))
    pairing.add(calling(2))
    assert list(pairing.pop_ready()) == []
    assert pairing.settle(ReadResult(call_id="b", output="2")) is True
    assert pairing.settle(ReadResult(call_id="a", output="1", rest={"x": 1})) is True
    assert not pairing.has_open_calls
    (first,) = pairing.pop_ready()
    assert outputs([first]) == [("1", "2")]
    assert cast("ToolPart", first.parts[1]).metadata == {"key": {"result": {"x": 1}}}
    assert pairing.settle(ReadResult(call_id="a", output="again")) is False
    assert [message.id for message in pairing.flush()] == ["m2"]
    assert pairing.last is None


def test_a_result_after_its_message_was_released_is_late() -> None:
    pairing = CallPairing("key", max_pending=2)
    for number in range(4):
        pairing.add(calling(number, f"c{number}"))
        handed = list(pairing.pop_ready())
        assert len(handed) == (1 if number >= 2 else 0)
    assert isinstance(pairing.settle(ReadResult(call_id="c0", output="x")), LateResult)
    assert pairing.settle(ReadResult(call_id="c0", output="x")) is False
    assert pairing.settle(ReadResult(call_id="c3", output="y")) is True
    assert outputs(pairing.flush()) == [("?",), ("y",)]
    assert isinstance(pairing.settle(ReadResult(call_id="c2", output="x")), LateResult)


def test_the_last_message_can_be_joined_or_extended() -> None:
    pairing = CallPairing("key")
    pairing.add(calling(1, "a"))
    pairing.join(calling(1, "b").parts)
    pairing.settle(ReadResult(call_id="a", output="1"))
    last = pairing.last
    assert last is not None
    assert outputs([last]) == [("1", "?")]
    pairing.extend(replace(last, parts=(*last.parts, *calling(1, "c").parts)))
    pairing.join(calling(1, "d").parts)
    for name in "dbc":
        assert pairing.settle(ReadResult(call_id=name, output=name)) is True
    whole = calling(1, "a", "b", "c", "d", "e")
    pairing.extend(whole)  # whatever parts it had before
    assert outputs(pairing.flush()) == [("?", "?", "?", "?", "?")]
    assert pairing.settled_calls == [(0, 1), (0, 7), (0, 3), (0, 5)]


steps = st.tuples(
    st.sampled_from(("add", "join", "answer", "ready", "last")), st.sampled_from("abc")
)


@given(st.lists(steps, max_size=30), st.integers(1, 4))
def test_pairing_loses_and_repeats_no_message(
    operations: list[tuple[str, str]], max_pending: int
) -> None:
    pairing = CallPairing("key", max_pending=max_pending)
    decoded: list[Message] = []
    count = answers = lates = 0
    for number, (step, name) in enumerate(operations):
        match step:
            case "add":
                pairing.add(calling(number, name))
                count += 1
            case "join" if pairing.last is not None:
                pairing.join(calling(number, name).parts)
            case "answer":
                outcome = pairing.settle(ReadResult(call_id=name, output=name))
                answers += outcome is True
                lates += isinstance(outcome, LateResult)
            case "ready":
                decoded += pairing.pop_ready()
            case _:
                assert pairing.last is None or pairing.last.id.startswith("m")
    decoded += pairing.flush()
    assert len(decoded) == len({message.id for message in decoded}) == count
    assert [int(message.id[1:]) for message in decoded] == sorted(int(m.id[1:]) for m in decoded)
    results = [output for item in outputs(decoded) for output in item if output != "?"]
    assert len(results) == answers
    calls = [part for message in decoded for part in message.parts if isinstance(part, ToolPart)]
    assert answers + lates <= len(calls)
    assert all(
        part.call_id == part.state.output for part in calls if isinstance(part.state, Completed)
    )
