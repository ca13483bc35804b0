"""Sessions and API formats: replies recorded, messages extended, requests sent."""

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

import foldmark
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    Completed,
    Message,
    TextPart,
    Tokens,
    ToolPart,
    is_error_output,
)
from foldmark.model.prompt_messages import UserMessage
from tests.support.provider_types import WIRES, assert_accepted, blocks
from tests.support.sdk_conversations import SIGNED, TALKS, Json, Talk
from tests.support.session_strategies import PNG

each_wire = pytest.mark.parametrize("wire", WIRES)
PROVIDERS = {
    "openai-chat": ("openai", "gpt-x"),
    "openai-responses": ("openai", "gpt-x"),
    "anthropic": ("anthropic", "claude-x"),
    "gemini": ("google", "gemini-x"),
}


@pytest.fixture
def session(tmp_path: Path) -> Any:
    with foldmark.open(tmp_path / "store.db", session="s", durable=False) as opened:
        yield opened


def request_of(session: foldmark.Session, wire: str) -> list[Json]:
    """The messages of the next request, checked against the provider's rules."""
    messages = session.messages(wire)
    assert_accepted(wire, messages)
    return messages


def dumped(value: Any) -> Any:
    """An SDK's object, or several, as their JSON."""
    if isinstance(value, list):
        return [dumped(entry) for entry in cast("list[Any]", value)]
    if isinstance(value, dict):
        return cast("Json", value)
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True)


def info(message: Message) -> AssistantInfo:
    assert isinstance(message.info, AssistantInfo)
    return message.info


def calls(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


# --- loops ---------------------------------------------------------------------------------


@each_wire
def test_a_loop_records_responses_and_sends_valid_requests(
    session: foldmark.Session, wire: str
) -> None:
    talk, before = TALKS[wire], list[str]()
    for question in ("Look at both files", "And again"):
        session.user(question)
        for reply in (talk.calling, talk.ending):
            request = list(blocks(wire, request_of(session, wire)))
            assert request[: len(before)] == before
            before = request
            message = session.record(reply)
            for part in calls(message):
                session.result(part.call_id or "", f"of {(part.state.input or {})['path']}")
    text = json.dumps(request_of(session, wire))
    assert text.count("of a.py") == 2
    assert text.count(SIGNED[wire]) == (1 if wire == "openai-responses" else 2)  # its id is known
    assert [message.is_user for message in session.export().messages] == [True, False, False] * 2


@each_wire
def test_usage_is_recorded_with_the_reply(session: foldmark.Session, wire: str) -> None:
    talk = TALKS[wire]
    first, last = session.record(talk.calling), session.record(talk.ending)
    for message, finish in ((first, "tool-calls"), (last, "stop")):
        data = info(message)
        assert data.tokens
        assert (data.tokens.input, data.tokens.output, data.tokens.total) == (40, 7, 107)
        assert data.tokens.cache == Cache(read=60, write=0)
        assert (data.provider_id, data.model_id, data.finish) == (*PROVIDERS[wire], finish)
    assert [part.call_id for part in calls(first)] == list(talk.ids)
    assert last.parts[0] == session.export().messages[-1].parts[0]
    assert cast("TextPart", last.parts[0]).text == "Both are fine."


@each_wire
def test_a_response_is_recorded_as_an_object_or_as_its_json(
    session: foldmark.Session, wire: str
) -> None:
    talk = TALKS[wire]
    forms = product((talk.calling, dumped(talk.calling)), (None, wire))
    replies = [session.record(reply, api=api) for reply, api in forms]
    assert len({tuple(bare(message)) for message in replies}) == 1
    assert len({str(info(message).tokens) for message in replies}) == 1


def bare(message: Message) -> list[str]:
    return [f"{getattr(part, 'text', '')}{getattr(part, 'call_id', '')}" for part in message.parts]


@each_wire
def test_a_message_can_be_recorded_without_its_response(
    session: foldmark.Session, wire: str
) -> None:
    talk = TALKS[wire]
    session.user("Look at both files")
    whole = session.record(talk.calling)
    session.extend(talk.results, wire)
    request = request_of(session, wire)
    for value in (talk.message, dumped(talk.message)):
        session.revert(session.export(reverted=False).messages[0].id)
        message = session.record(value)
        assert bare(message) == bare(whole)
        assert not info(message).tokens
        assert info(message).finish == "tool-calls"
        session.extend(talk.results, wire)
        assert request_of(session, wire) == request


def test_arguments_override_the_usage_of_a_response(
    session: foldmark.Session,
) -> None:
    message = session.record(TALKS["anthropic"].ending, tokens=Tokens(input=1), finish="length")
    assert info(message).tokens == Tokens(input=1)
    assert info(message).finish == "length"


def test_replies_name_the_model_of_the_session(tmp_path: Path) -> None:
    with foldmark.open(tmp_path / "s.db", model="anthropic:claude-sonnet-4-5") as session:
        message = session.record(TALKS["anthropic"].calling)
        assert (info(message).provider_id, info(message).model_id) == (
            "anthropic",
            "claude-sonnet-4-5",
        )
        session.extend(TALKS["anthropic"].results)
        assert SIGNED["anthropic"] in json.dumps(request_of(session, "anthropic"))


# --- several providers ---------------------------------------------------------------------


@each_wire
@pytest.mark.parametrize("other", WIRES)
def test_switching_providers_drops_opaque_data_and_stays_valid(
    session: foldmark.Session, wire: str, other: str
) -> None:
    for name in (wire, other, wire):
        session.user("Look at both files")
        request_of(session, name)
        session.record(TALKS[name].calling)
        session.extend(TALKS[name].results, name)
        request_of(session, name)
        session.record(TALKS[name].ending)
    for to in WIRES:
        output = json.dumps(request_of(session, to))
        assert all(
            (text in output) == (own == to) for own, text in SIGNED.items() if own in (wire, other)
        )
        assert output.count("Both are fine.") == output.count("Look at both files") == 3
        assert output.count("of a.py") == 3


# --- lists of messages ---------------------------------------------------------------------


def whole(wire: str) -> list[Any]:
    """A whole conversation as a list of messages."""
    talk = TALKS[wire]
    question: Json = {"role": "user", "content": "Look"}
    if wire == "openai-responses":
        question |= {"type": "message", "content": [{"type": "input_text", "text": "Look"}]}
    elif wire == "gemini":
        question = {"role": "user", "parts": [{"text": "Look"}]}
    reply = cast("list[Any]", talk.message if isinstance(talk.message, list) else [talk.message])
    return [question, *reply, *talk.results]


@each_wire
def test_extended_messages_are_sent_back_unchanged(session: foldmark.Session, wire: str) -> None:
    messages = session.extend(whole(wire))  # the API format is detected
    assert [message.is_user for message in messages] == [True, False]
    assert all(isinstance(part.state, Completed) for part in calls(messages[1]))
    assert request_of(session, wire) == dumped(whole(wire))
    assert messages == list(session.export().messages)


@each_wire
def test_extending_piece_by_piece_gives_the_same(session: foldmark.Session, wire: str) -> None:
    question, *rest = whole(wire)
    talk = TALKS[wire]
    session.extend(iter([question]), wire)
    session.extend(rest[: len(rest) - len(talk.results)], wire)
    assert session.extend(talk.results) == []  # no message of its own
    assert request_of(session, wire) == dumped(whole(wire))
    assert session.extend([]) == []


@each_wire
def test_one_message_may_have_results_and_text(session: foldmark.Session, wire: str) -> None:
    session.extend(whole(wire)[:1], wire)
    session.record(TALKS[wire].calling)
    more = deepcopy(TALKS[wire].results)
    if wire == "anthropic":
        more[0]["content"].append({"type": "text", "text": "Well?"})
    elif wire == "gemini":
        more[0]["parts"].append({"text": "Well?"})
    else:
        more.append({"role": "user", "content": "Well?"})
    (message,) = session.extend(more, wire)
    assert message.is_user
    text = json.dumps(request_of(session, wire))
    assert text.index("of a.py") < text.index("of b.py") < text.index("Well?")


def test_a_result_is_sent_back_unchanged(session: foldmark.Session) -> None:
    session.extend(whole("anthropic")[:1], "anthropic")
    session.record(TALKS["anthropic"].calling)
    source = {"type": "base64", "media_type": "image/png", "data": PNG.partition(",")[2]}
    results: list[Json] = [
        {
            "type": "tool_result",
            "tool_use_id": "toolu_0",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": source},
                {"type": "text", "text": "and so on"},
            ],
        },
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True},
    ]
    session.extend([{"role": "user", "content": results}])
    assert request_of(session, "anthropic")[-1]["content"] == results
    first, second = calls(session.export().messages[-1])
    assert isinstance(first.state, Completed)
    assert [file.url for file in first.state.attachments or ()] == [PNG]
    assert isinstance(second.state, Completed)
    assert is_error_output(second.state)
    assert second.state.time


def test_a_leading_system_prompt_becomes_the_sessions_own(tmp_path: Path) -> None:
    prompt = {"role": "system", "content": "Be brief."}
    with foldmark.open(tmp_path / "s.db", session="s") as session:
        (message,) = session.extend([prompt, {"role": "user", "content": "Look"}], "openai-chat")
        assert cast("TextPart", message.parts[0]).text == "Look"
        assert session.messages("openai-chat")[0] == prompt
        assert len(session.messages()) == len(session.messages("anthropic")) == 1
    with foldmark.open(tmp_path / "s.db", session="s") as session:
        assert session.messages("chat")[0] == prompt
        # A later one keeps its position.
        session.record("Yes?")
        session.extend([{"role": "system", "content": "Be kind."}], "openai-chat")
        roles = [message["role"] for message in request_of(session, "openai-chat")]
        assert roles == ["system", "user", "assistant", "system"]
        origin = session.export().info.origin
        assert origin
        assert origin.system == "Be brief."


def test_a_prompt_that_would_not_be_sent_again_stays_among_the_messages(
    session: foldmark.Session,
) -> None:
    text = {"type": "input_text", "text": "Be brief."}
    prompt: Json = {"type": "message", "role": "developer", "content": [text]}
    session.extend([prompt, *whole("openai-responses")], "openai-responses")
    assert request_of(session, "openai-responses")[0] == prompt


# --- wrong input ---------------------------------------------------------------------------

ASKED: Json = {"role": "user", "content": "Look"}
LOST: Json = {"role": "tool", "tool_call_id": "nobody", "content": "done"}
ODD = cast("Any", 5)
Wrong = Callable[[foldmark.Session], object]


def wrong(method: str, *args: Any, **kwargs: Any) -> Wrong:
    return lambda session: getattr(session, method)(*args, **kwargs)


WRONG: dict[str, tuple[Wrong, str]] = {
    "a wire": (wrong("messages", "carrier-pigeon"), "unknown API format"),
    "a wire of no name": (wrong("messages", ODD), "name of an API format is a string"),
    "a wire to take": (wrong("extend", [ASKED], "pigeon"), "unknown API format"),
    "a wire to record": (wrong("record", ASKED, api="x"), "unknown API format"),
    "which wire": (wrong("extend", [ASKED]), "pass api="),
    "no wire": (wrong("extend", [{"a": 1}]), "no known API format"),
    "no list": (wrong("extend", ODD), "a list of messages is expected, not int"),
    "a text": (wrong("extend", "Look"), "a list of messages is expected, not str"),
    "one message": (wrong("extend", ASKED), "a list of messages is expected"),
    "one object": (wrong("extend", TALKS["gemini"].message), "a list of messages"),
    "no messages": (wrong("extend", [5]), "an object is expected"),
    "no answer": (wrong("record", ODD), "an object is expected"),
    "nothing": (wrong("record", None), "an object is expected"),
    "no response": (wrong("record", {"a": 1}), "in no known API format"),
    "the user's": (wrong("record", ASKED, api="anthropic"), "expected a model's reply"),
    "a result": (wrong("record", LOST, api="openai-chat"), "expected a model's reply"),
    "several": (wrong("record", whole("openai-responses")), "expected one reply of a model, not 2"),
    "which answer": (wrong("record", {"role": "assistant", "content": "Hi"}), "pass api="),
    "another wire": (
        wrong("record", TALKS["gemini"].calling, api="anthropic"),
        "'role' is missing",
    ),
    "a call": (wrong("extend", [ASKED, LOST], "openai-chat"), "no call 'nobody'"),
    "the second": (
        wrong("extend", [ASKED, {"role": "user", "content": 5}], "openai-chat"),
        "message 2: ",
    ),
    "a second result": (
        wrong("extend", [*TALKS["anthropic"].results * 2]),
        "no call 'toolu_0' waits",
    ),
    "half a result": (
        wrong("extend", [*TALKS["anthropic"].results, {"role": "user"}], "anthropic"),
        "message 2: ",
    ),
    "no JSON": (
        wrong("extend", [{"role": "user", "content": {1, 2}}], "anthropic"),
        "neither JSON nor an SDK object",
    ),
}


@pytest.mark.parametrize(("wrong", "problem"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused_and_nothing_is_written(
    session: foldmark.Session, wrong: Wrong, problem: str
) -> None:
    session.user("Look at both files")
    session.record(TALKS["anthropic"].calling)
    before, exported, view = session.info, session.export(), session.view()
    with pytest.raises(foldmark.BadInput, match=problem):
        wrong(session)
    assert session.export() == exported
    assert session.view() == view
    assert (session.info.places, session.info.events) == (before.places, before.events)
    session.extend(TALKS["anthropic"].results)
    assert len(request_of(session, "anthropic")) == 3


def test_an_unknown_format_is_refused_before_anything_is_pruned(tmp_path: Path) -> None:
    with foldmark.open(tmp_path / "s.db", window=8_000, output=1_000) as session:
        session.user("Look")
        for number in range(20):
            part = ToolPart(
                tool="read",
                call_id=f"c{number}",
                state=Completed(input={"filePath": f"{number}.py"}, output="line\n" * 600),
            )
            session.record([part])
        session.user("And?")
        with pytest.raises(foldmark.BadInput):
            session.messages("pigeon")
        assert session.operations() == []
        request_of(session, "gemini")
        assert [operation.kind for operation in session.operations()] == ["prune"]


# --- without a format, and async -----------------------------------------------------------


def test_messages_without_a_format_are_those_of_the_view(session: foldmark.Session) -> None:
    session.user("Look")
    assert session.messages() == session.view().messages
    assert isinstance(session.messages()[0], UserMessage)
    session.record(TALKS["gemini"].calling)
    session.record("a text")
    session.record([TextPart(text="parts")])
    assert session.messages() == session.view().messages


@each_wire
def test_the_async_forms_do_the_same(tmp_path: Path, wire: str) -> None:
    async def talk(conversation: Talk) -> list[Json]:
        async with await foldmark.aopen(tmp_path / "s.db") as session:
            await session.aextend(whole(wire)[:1], wire)
            await session.arecord(conversation.calling, api=wire)
            await session.aextend(conversation.results)
            assert await session.amessages() == session.messages()
            with pytest.raises(foldmark.BadInput):
                await session.amessages("pigeon")
            return await session.amessages(wire)

    result = asyncio.run(talk(TALKS[wire]))
    assert_accepted(wire, result)
    assert result == dumped(whole(wire))
