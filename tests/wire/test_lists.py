"""Lists of any wire: what is odd is kept as it came, as long as it still is what was said."""

import json
from collections.abc import Callable, Iterator, Sequence
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
from tests.support import gemini_contents as contents
from tests.support import responses_items as responses
from tests.support.api_lists import any_json, verbatim, view_messages
from tests.support.malformed_records import bent_lines
from tests.support.sdk_conversations import TALKS

Json = dict[str, Any]
each_wire = pytest.mark.parametrize("wire", WIRES)

# A call, its result, and something that the user says, on each wire.
CALLS: dict[str, Callable[[str], Json]] = {
    "openai-chat": lambda name: chat_lists.calling(chat_lists.call(name)),
    "openai-responses": responses.call,
    "anthropic": lambda name: blocks.assistant(blocks.use(name)),
    "gemini": lambda name: contents.model(contents.call(call_id=name)),
}
RESULTS: dict[str, Callable[[str], Json]] = {
    "openai-chat": chat_lists.tool,
    "openai-responses": responses.result,
    "anthropic": lambda name: blocks.user(blocks.result(name, "done")),
    "gemini": lambda name: contents.user(contents.result(call_id=name)),
}
SAID: dict[str, Json] = {
    "openai-chat": chat_lists.user("Wait"),
    "openai-responses": responses.user("Wait"),
    "anthropic": blocks.user(blocks.text("Wait")),
    "gemini": contents.user(contents.text("Wait")),
}


def late(wire: str, name: str = "a") -> list[Json]:
    """A result that comes after other words: no API's order, and kept as it came."""
    return [CALLS[wire](name), SAID[wire], RESULTS[wire](name)]


def usual(wire: str, count: int) -> list[Json]:
    """Turns as they should be."""
    turns = [(SAID[wire], CALLS[wire](f"u{n}"), RESULTS[wire](f"u{n}")) for n in range(count)]
    return [message for turn in turns for message in turn]


def kept(messages: Sequence[Message], wire: str) -> list[tuple[int, int]]:
    """The stretches that were kept: of how many messages, ours and as given."""
    notes = [subobject(message.info.wire, codec_named(wire).key) for message in messages]
    return [(held[COVERS], len(held["raw"][1][1])) for held in notes if COVERS in held]


# --- what is odd ---------------------------------------------------------------------------


@each_wire
def test_an_odd_stretch_is_kept_alone(wire: str) -> None:
    given_ = [*usual(wire, 20), *late(wire, "x"), *usual(wire, 20), *late(wire, "y")]
    found = decode(given_, wire)
    assert encode(found.messages, wire) == given_
    assert kept(found.messages, wire) == [(2, 3), (2, 3)]


@each_wire
def test_a_call_that_is_never_answered_makes_no_long_stretch(wire: str) -> None:
    given_ = [CALLS[wire]("gone"), *usual(wire, 20), *late(wire, "x"), *usual(wire, 20)]
    found = decode(given_, wire)
    assert encode(found.messages, wire) == given_
    assert kept(found.messages, wire) == [(2, 3)]


@each_wire
def test_stretches_that_reach_into_each_other_are_one(wire: str) -> None:
    a, b = late(wire, "a"), late(wire, "b")
    given_ = [*usual(wire, 2), a[0], a[1], b[0], a[2], b[1], b[2], *usual(wire, 2)]
    found = decode(given_, wire)
    assert encode(found.messages, wire) == given_
    assert [count for _, count in kept(found.messages, wire)] == [6]


def changed(messages: Sequence[Message], place: int, **fields: Any) -> list[Message]:
    """The same with the first part of one message changed."""
    part = replace(messages[place].parts[0], **fields)
    return [
        with_part(message, 0, part) if number == place else message
        for number, message in enumerate(messages)
    ]


@each_wire
def test_what_was_changed_since_is_written_as_it_is_now(wire: str) -> None:
    call, said = decode(late(wire), wire).messages
    part = cast("ToolPart", call.parts[0])
    state = cast("Completed", part.state)
    edited = encode(changed([call, said], 0, state=replace(state, output="other")), wire)
    assert "other" in json.dumps(edited)
    assert "done" not in json.dumps(edited)
    assert "Go on" in json.dumps(encode(changed([call, said], 1, text="Go on"), wire))
    renamed = json.dumps(encode(changed([call, said], 0, tool="look"), wire))
    assert "look" in renamed
    for fewer in ([call], [said], [said, call]):
        assert encode(fewer, wire) != late(wire)
    assert encode([call, said, said], wire) == [*late(wire), SAID[wire]]


@each_wire
def test_a_result_that_came_since_is_written(wire: str) -> None:
    # The ids are used twice, so that the stretch is odd; of one call the result is not there yet.
    given_ = [CALLS[wire]("a"), *late(wire, "b")]
    messages = list(decode(given_, wire).messages)
    waiting = [
        (place, offset)
        for place, message in enumerate(messages)
        for offset, part in enumerate(message.parts)
        if isinstance(part, ToolPart) and not has_result(part)
    ]
    ((place, offset),) = waiting
    part = cast("ToolPart", messages[place].parts[offset])
    state = Completed(input=part.state.input, output="at last")
    messages[place] = with_part(messages[place], offset, replace(part, state=state))
    assert "at last" in json.dumps(encode(messages, wire))


@each_wire
def test_ids_times_and_marks_of_a_store_change_nothing(wire: str) -> None:
    def stored(message: Message) -> Message:
        parts = [
            replace(part, id=f"p{place}", session_id="s", message_id="m")
            for place, part in enumerate(message.parts)
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

    given_ = [*late(wire), *usual(wire, 1)]
    assert encode([stored(held) for held in decode(given_, wire).messages], wire) == given_


@each_wire
def test_a_prompt_amid_an_odd_stretch_is_kept_with_it(wire: str) -> None:
    if not wire.startswith("openai"):
        return  # the others know none
    prompt: Json = {"role": "system", "content": "Be brief."}
    given_ = [prompt, *usual(wire, 1), prompt, *late(wire), prompt, RESULTS[wire]("gone")]
    found = decode(given_, wire)
    assert encode(found.messages, wire, found.origin) == given_
    assert found.origin.system == "Be brief."


@each_wire
def test_notes_within_notes_are_not_followed(wire: str) -> None:
    key = codec_named(wire).key
    nested: Json = SAID[wire]
    for _ in range(40):
        nested = {**SAID[wire], key: {"raw": [nested], COVERS: 1}}
    found = decode([nested], wire)
    assert encode(found.messages, wire) == [nested]
    message = found.messages[0]
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
    """A codec that writes what is said twice in a row once: no stretch alone shows that."""

    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        written = super().write(shown, as_is=as_is)
        return [held for last, held in pairwise([{}, *written]) if held != last]


def test_where_stretches_do_not_add_up_to_the_list_it_is_kept_whole() -> None:
    given_ = [chat_lists.user("a"), chat_lists.said("b"), chat_lists.said("b")]
    found = read_list(Merging(), given_)
    assert write_list(Merging(), found.messages) == given_
    assert kept(found.messages, "openai-chat") == [(3, 3)]


def test_an_answer_of_many_items_is_read_and_written_back() -> None:
    items = [
        held for n in range(3_000) for held in (responses.call(f"c{n}"), responses.result(f"c{n}"))
    ]
    many = [*items[::2], *reversed(items[1::2])]
    for given_ in (items, many):
        found = decode(given_, "openai-responses")
        assert encode(found.messages, "openai-responses") == given_
        assert verbatim(found.messages, "openai-responses") == (given_ is many)


# --- anything ------------------------------------------------------------------------------

STRICT = {"sort_keys": True}


def lists(wire: str) -> list[Json]:
    known: dict[str, list[Json]] = {
        "openai-chat": [held for found in chat_lists.LISTS.values() for held in found],
        "openai-responses": [
            *responses.MODEL_SIDE,
            *responses.USER_SIDE,
            *[half for pair in responses.PAIRS for half in pair],
        ],
        "anthropic": [held for found in blocks.LISTS.values() for held in found],
        "gemini": [held for found in contents.LISTS.values() for held in found],
    }
    return [held for held in known[wire] if len(str(held)) < 2_000]


@each_wire
@given(data=st.data())
def test_messages_of_any_shape_come_back_or_are_refused(wire: str, data: st.DataObject) -> None:
    drawn = data.draw(bent_lines(lists(wire)))
    try:
        found = decode(drawn, wire)
    except BadInput:
        return
    written = encode(found.messages, wire, found.origin)
    assert json.dumps(written, **STRICT) == json.dumps(drawn, **STRICT)  # pyright: ignore[reportArgumentType]
    again = [decode_message(encoded(message)) for message in found.messages]
    assert encode(again, wire, found.origin) == drawn
    for to in WIRES:
        request(view_messages(found.messages), to)


anything = any_json(("role", "content", "parts", "type", "text", "messages"), ("user", "text", ""))


@given(st.lists(anything, max_size=3))
def test_recognition_takes_anything(values: list[Any]) -> None:
    messages = [cast("Json", value) for value in values if isinstance(value, dict)]
    found = [wire.name for wire in candidates(messages)]
    if len(found) == 1:
        assert recognize(messages).name == found[0]
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
def test_what_is_not_clear_is_not_guessed(messages: list[Json], names: str) -> None:
    with pytest.raises(BadInput, match=rf"{names}.*api=…"):
        decode(messages)


@each_wire
def test_a_list_is_recognised_by_its_calls(wire: str) -> None:
    assert decode(usual(wire, 1)).wire == wire
    assert [found.name for found in candidates(late(wire))] == [wire]


@each_wire
def test_a_response_is_recognised_and_its_message_alone_is_none(wire: str) -> None:
    reply = plain_object(TALKS[wire].calling)
    assert [found.name for found in reply_candidates(reply)] == [wire]
    assert decode_reply(TALKS[wire].ending) == decode_reply(TALKS[wire].ending, wire)
    message = plain(TALKS[wire].message)
    for part in cast("list[Json]", message) if isinstance(message, list) else [message]:
        assert reply_candidates(part) == []
    assert reply_candidates(responses.assistant(id="msg_1", status="completed")) == []


def test_what_can_be_a_response_of_two_is_not_guessed() -> None:
    both = {"choices": [{"message": chat_lists.said()}], "candidates": []}
    with pytest.raises(BadInput, match="openai-chat or gemini; pass api=… to choose"):
        decode_reply(both)
    with pytest.raises(BadInput, match=r"this response .*anthropic.*api=…"):
        decode_reply({"a": 1})


def test_wires_have_names_and_a_few_others() -> None:
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


# --- what a session takes ------------------------------------------------------------------


@each_wire
def test_results_of_calls_made_elsewhere_are_told_apart(wire: str) -> None:
    given_ = [RESULTS[wire]("there"), *usual(wire, 1)]
    taken = read_addition(codec_named(wire), given_, prompts=True)
    assert [answer.call_id for answer in taken.results] == ["there"]
    assert taken.origin == Origin()
    assert [message.is_user for message in taken.messages] == [True, False]
    assert verbatim(taken.messages, wire) == 0


def test_a_prompt_is_told_apart_where_that_is_wanted() -> None:
    prompt = {"role": "system", "content": "Be brief."}
    chat = codec_named("openai-chat")
    taken = read_addition(chat, [prompt, chat_lists.user()], prompts=True)
    assert taken.origin == Origin(system="Be brief.", wire={"openai-chat": [prompt]})
    assert len(taken.messages) == 1
    assert len(read_addition(chat, [prompt, chat_lists.user()], prompts=False).messages) == 2


# --- weaving -------------------------------------------------------------------------------


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
    weaver = CallPairing("key")
    weaver.add(calling(1, "a", "b"))
    weaver.add(calling(2))
    assert list(weaver.pop_ready()) == []
    assert weaver.settle(ReadResult(call_id="b", output="2")) is True
    assert weaver.settle(ReadResult(call_id="a", output="1", rest={"x": 1})) is True
    assert not weaver.has_open_calls
    (first,) = weaver.pop_ready()
    assert outputs([first]) == [("1", "2")]
    assert cast("ToolPart", first.parts[1]).metadata == {"key": {"result": {"x": 1}}}
    assert weaver.settle(ReadResult(call_id="a", output="again")) is False
    assert [message.id for message in weaver.flush()] == ["m2"]
    assert weaver.last is None


def test_a_result_that_comes_too_late_is_told_as_such() -> None:
    weaver = CallPairing("key", max_pending=2)
    for number in range(4):
        weaver.add(calling(number, f"c{number}"))
        handed = list(weaver.pop_ready())
        assert len(handed) == (1 if number >= 2 else 0)
    assert isinstance(weaver.settle(ReadResult(call_id="c0", output="x")), LateResult)
    assert weaver.settle(ReadResult(call_id="c0", output="x")) is False
    assert weaver.settle(ReadResult(call_id="c3", output="y")) is True
    assert outputs(weaver.flush()) == [("?",), ("y",)]
    assert isinstance(weaver.settle(ReadResult(call_id="c2", output="x")), LateResult)


def test_the_last_message_may_grow_in_two_ways() -> None:
    weaver = CallPairing("key")
    weaver.add(calling(1, "a"))
    weaver.join(calling(1, "b").parts)
    weaver.settle(ReadResult(call_id="a", output="1"))
    last = weaver.last
    assert last is not None
    assert outputs([last]) == [("1", "?")]
    weaver.extend(replace(last, parts=(*last.parts, *calling(1, "c").parts)))
    weaver.join(calling(1, "d").parts)
    for name in "dbc":
        assert weaver.settle(ReadResult(call_id=name, output=name)) is True
    whole = calling(1, "a", "b", "c", "d", "e")
    weaver.extend(whole)  # whatever it was before
    assert outputs(weaver.flush()) == [("?", "?", "?", "?", "?")]
    assert weaver.settled_calls == [(0, 1), (0, 7), (0, 3), (0, 5)]


steps = st.tuples(
    st.sampled_from(("add", "join", "answer", "ready", "last")), st.sampled_from("abc")
)


@given(st.lists(steps, max_size=30), st.integers(1, 4))
def test_nothing_that_is_woven_is_lost_or_doubled(drawn: list[tuple[str, str]], most: int) -> None:
    weaver = CallPairing("key", max_pending=most)
    found: list[Message] = []
    count = answers = lates = 0
    for number, (step, name) in enumerate(drawn):
        match step:
            case "add":
                weaver.add(calling(number, name))
                count += 1
            case "join" if weaver.last is not None:
                weaver.join(calling(number, name).parts)
            case "answer":
                told = weaver.settle(ReadResult(call_id=name, output=name))
                answers += told is True
                lates += isinstance(told, LateResult)
            case "ready":
                found += weaver.pop_ready()
            case _:
                assert weaver.last is None or weaver.last.id.startswith("m")
    found += weaver.flush()
    assert len(found) == len({message.id for message in found}) == count
    assert [int(message.id[1:]) for message in found] == sorted(int(m.id[1:]) for m in found)
    results = [output for held in outputs(found) for output in held if output != "?"]
    assert len(results) == answers
    calls = [part for message in found for part in message.parts if isinstance(part, ToolPart)]
    assert answers + lates <= len(calls)
    assert all(
        part.call_id == part.state.output for part in calls if isinstance(part.state, Completed)
    )
