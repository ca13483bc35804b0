"""Recording streams: chunks pass unchanged, and the reply is recorded however the stream ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import foldmark
from foldmark.model.messages import AssistantInfo, Message, ReasoningPart, TextPart, ToolPart
from foldmark.wire.codec import WIRES
from tests.support.api_server import Call, Cut, Thought, WireServer, wire_server
from tests.support.client_loops import (
    LOOPS,
    STREAMED,
    TOOLS,
    async_client_of,
    client_of,
    close_async,
)
from tests.support.provider_types import assert_accepted
from tests.support.stream_cases import CALLS, ERRORS, SDK, THINKS, WHOLE, WORDS, answer

each_wire = pytest.mark.parametrize("wire", WIRES)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[foldmark.Session]:
    with foldmark.open(tmp_path / "store.db", session="s", durable=False) as opened:
        opened.user("Look at both files.")
        yield opened


def chunks(wire: str) -> list[Any]:
    """The chunks of a reply as the client of an API yields them."""
    events = [event for event in answer(wire).streamed if event.get("type") != "ping"]
    return [SDK[wire].validate_python(event) for event in events]


def text_of(message: Message) -> str:
    parts = message.parts
    return "".join(part.text for part in parts if isinstance(part, TextPart | ReasoningPart))


def last(session: foldmark.Session) -> Message:
    return session.export().messages[-1]


def info(session: foldmark.Session) -> AssistantInfo:
    return cast("AssistantInfo", last(session).info)


def calls(session: foldmark.Session) -> list[Any]:
    return [part.state.input for part in last(session).parts if isinstance(part, ToolPart)]


def is_cut_off(session: foldmark.Session) -> bool:
    return isinstance(info(session).error, dict) and not info(session).finish


async def async_stream(items: list[Any], error: BaseException | None = None) -> AsyncIterator[Any]:
    for item in items:
        yield item
    if error is not None:
        raise error


# --- complete streams ------------------------------------------------------------------------


@each_wire
def test_chunks_pass_unchanged_and_the_reply_is_recorded(
    session: foldmark.Session, wire: str
) -> None:
    stream = chunks(wire)
    passed = list(session.record_stream(stream))
    assert all(one is other for one, other in zip(passed, stream, strict=True))
    whole = last(session)
    again = session.record(answer(wire).whole)
    assert [bare(part) for part in whole.parts] == [bare(part) for part in again.parts]
    first, second = (cast("AssistantInfo", message.info) for message in (whole, again))
    for field in ("tokens", "finish", "model_id"):
        assert getattr(first, field) == getattr(second, field)
    assert first.finish == "tool-calls"
    assert calls(session) == [call.arguments for call in CALLS]


def bare(part: Any) -> Any:
    return [getattr(part, name, None) for name in ("text", "tool", "call_id", "state", "metadata")]


@each_wire
def test_the_async_form_does_the_same(session: foldmark.Session, wire: str) -> None:
    stream = chunks(wire)

    async def listen() -> list[Any]:
        return [chunk async for chunk in session.arecord_stream(async_stream(stream), wire)]

    passed = asyncio.run(listen())
    assert all(one is other for one, other in zip(passed, stream, strict=True))
    assert text_of(last(session)) == THINKS + WORDS
    assert not is_cut_off(session)
    assert len(session.export().messages) == 2


# --- interrupted streams ---------------------------------------------------------------------


@each_wire
def test_a_partial_reply_is_recorded_if_the_loop_ends_early(
    session: foldmark.Session, wire: str
) -> None:
    stream, count = chunks(wire), 0
    for chunk in session.record_stream(stream):
        count += 1
        if WORDS[:4] in str(chunk):
            break
    assert 0 < count < len(stream)
    assert is_cut_off(session)
    assert text_of(last(session)).startswith(THINKS + WORDS[:4])
    assert calls(session) == []
    session.user("And?")
    messages = session.messages(wire)
    assert_accepted(wire, messages)
    assert WORDS[:4] in str(messages)


@each_wire
def test_an_async_loop_that_ends_early_records_before_the_next_request(
    session: foldmark.Session, wire: str
) -> None:
    async def leave() -> list[Any]:
        async for chunk in session.arecord_stream(async_stream(chunks(wire))):
            if WORDS[:4] in str(chunk):
                break
        await session.auser("And?")
        return await session.amessages(wire)

    messages = asyncio.run(leave())
    assert_accepted(wire, messages)
    assert WORDS[:4] in str(messages)
    assert [message.is_user for message in session.export().messages] == [True, False, True]


@pytest.mark.parametrize("wire", [None, *WIRES])
def test_a_single_error_chunk_is_passed_on_and_not_recorded(
    session: foldmark.Session, wire: str | None
) -> None:
    before = session.export()
    for error in ERRORS:
        assert list(session.record_stream([error], wire)) == [error]

        def breaking(error: Any = error) -> Iterator[Any]:
            yield error
            raise ConnectionError("gone")

        with pytest.raises(ConnectionError) as raised:
            list(session.record_stream(breaking(), wire))
        assert not hasattr(raised.value, "__notes__")
    assert session.export() == before


@each_wire
def test_an_error_propagates_after_the_partial_reply_is_recorded(
    session: foldmark.Session, wire: str
) -> None:
    def broken() -> Iterator[Any]:
        yield from chunks(wire)[:-3]
        raise ConnectionError("reset")

    with pytest.raises(ConnectionError, match="reset"):
        list(session.record_stream(broken()))
    assert is_cut_off(session)
    assert text_of(last(session)).startswith(THINKS)

    async def listen() -> None:
        async for _ in session.arecord_stream(
            async_stream(chunks(wire)[:-3], ConnectionError("reset"))
        ):
            pass

    before = last(session)
    with pytest.raises(ConnectionError, match="reset"):
        asyncio.run(listen())
    assert text_of(last(session)) == text_of(before)
    assert last(session).id != before.id


def test_an_error_of_the_program_keeps_the_partial_reply(session: foldmark.Session) -> None:
    def work() -> None:
        for chunk in session.record_stream(chunks("anthropic")):
            if WORDS[:4] in str(chunk):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert text_of(last(session)).startswith(THINKS)
    assert is_cut_off(session)


def test_a_cancelled_task_keeps_the_partial_reply(session: foldmark.Session) -> None:
    async def stalled() -> AsyncIterator[Any]:
        for chunk in chunks("anthropic")[:-4]:
            yield chunk
        await asyncio.sleep(600)

    async def work() -> None:
        started = asyncio.Event()

        async def listen() -> None:
            async for chunk in session.arecord_stream(stalled()):
                if WORDS[:4] in str(chunk):
                    started.set()

        task = asyncio.create_task(listen())
        await started.wait()  # the task continues until it waits for the chunk that never comes
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert text_of(last(session)) == THINKS + WORDS
    assert is_cut_off(session)
    assert calls(session) == [CALLS[0].arguments]


def test_closing_a_stream_records_the_partial_reply(session: foldmark.Session) -> None:
    stream = session.record_stream(chunks("gemini"))
    next(stream)
    stream.close()
    assert THINKS.startswith(text_of(last(session)))

    async def work() -> None:
        async with session.arecord_stream(async_stream(chunks("gemini"))) as recording:
            async for _ in recording:
                break
            assert len(session.export().messages) == 2
        assert len(session.export().messages) == 3
        await recording.aclose()
        assert [chunk async for chunk in recording] == []

    asyncio.run(work())
    assert len(session.export().messages) == 3


def test_a_stream_left_after_its_last_chunk_is_complete(session: foldmark.Session) -> None:
    for chunk in session.record_stream(answer("openai-chat").streamed):
        if chunk["choices"][0]["finish_reason"]:
            break
    assert not is_cut_off(session)
    assert info(session).finish == "tool-calls"


@each_wire
def test_an_empty_stream_records_nothing(session: foldmark.Session, wire: str) -> None:
    nothing: list[Any] = []
    assert list(session.record_stream(nothing)) == list(session.record_stream(nothing, wire)) == []
    if wire != "gemini":  # its first chunk has content
        list(session.record_stream(answer(wire).streamed[:1]))
    assert len(session.export().messages) == 1


def test_wrong_streams_are_refused_at_once(session: foldmark.Session) -> None:
    wrong: Any = session
    for call, problem in (
        (lambda: wrong.record_stream([], "pigeon"), "unknown API format"),
        (lambda: wrong.record_stream(5), "expected a stream, not int"),
        (lambda: wrong.record_stream(async_stream([])), "use arecord_stream"),
        (lambda: wrong.arecord_stream([]), "use record_stream"),
        (lambda: list(wrong.record_stream([{"a": 1}])), "no known API format"),
    ):
        with pytest.raises(foldmark.BadInput, match=problem):
            call()
    assert len(session.export().messages) == 1


# --- with the clients ------------------------------------------------------------------------

CUT = (Thought(THINKS), WORDS, Call("read", {"path": "a"}), Call("read", {"path": "b"}), Cut())


@pytest.mark.parametrize("name", [name for name in LOOPS if ", " in name])
def test_a_broken_connection_keeps_the_partial_reply_and_the_loop_continues(
    session: foldmark.Session, name: str
) -> None:
    wire, step = LOOPS[name]
    # Gemini sends calls whole: its second one arrives before the end.
    whole = [{"path": "a"}, {"path": "b"}][: 2 if wire == "gemini" else 1]
    with wire_server(script=[CUT, ("All is well.",)]) as server, client_of(wire, server) as client:
        with pytest.raises(Exception, match=r"(?i)peer closed|incomplete|connection"):
            step(client, session)
        assert text_of(last(session)) == THINKS + WORDS
        assert calls(session) == whole
        assert is_cut_off(session)
        step(client, session)
        assert server.flaws == []
        assert text_of(last(session)) == "All is well."
        assert "was interrupted" in str(server.requests[-1].messages)


def test_helper_events_of_the_client_are_passed_on_and_not_recorded_twice(
    session: foldmark.Session,
) -> None:
    request: dict[str, Any] = {"model": "m", "max_tokens": 9, "tools": TOOLS["anthropic"]}
    with wire_server(script=[WHOLE]) as server, client_of("anthropic", server) as client:
        request["messages"] = session.messages("anthropic")
        with client.messages.stream(**request) as stream:
            kinds = {event.type for event in session.record_stream(stream)}
            assert {"text", "thinking", "input_json", "message_stop"} <= kinds
            assert stream.get_final_message().content[0].thinking == THINKS
    assert text_of(last(session)) == THINKS + WORDS
    assert calls(session) == [call.arguments for call in CALLS]
    assert info(session).finish == "tool-calls"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_streams_of_openais_helpers_are_recorded(session: foldmark.Session, api: str) -> None:
    wire = {"chat": "openai-chat", "responses": "openai-responses"}[api]
    request: dict[str, Any] = {"model": "m", "tools": TOOLS[wire]}
    with wire_server(script=[(WORDS, *CALLS)]) as server, client_of(wire, server) as client:
        request["messages" if api == "chat" else "input"] = session.messages(wire)
        makes = client.chat.completions if api == "chat" else client.responses
        with makes.stream(**request) as stream:
            for _ in session.record_stream(stream):
                pass
    assert text_of(last(session)) == WORDS
    assert calls(session) == [call.arguments for call in CALLS]


def test_usage_is_recorded_from_the_last_chunk(session: foldmark.Session) -> None:
    async def ask(server: WireServer) -> None:
        client = async_client_of("openai-chat", server)
        request: Any = {"model": "m", "messages": await session.amessages("openai-chat")}
        async for _ in session.arecord_stream(
            await client.chat.completions.create(**request, **STREAMED)
        ):
            pass
        await close_async(client)

    with wire_server(script=[(WORDS,)]) as server:
        asyncio.run(ask(server))
        tokens = info(session).tokens
        assert tokens
        assert tokens.input == server.requests[0].tokens
