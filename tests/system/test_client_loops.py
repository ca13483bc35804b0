"""Loops of a program's own with the official clients; the server judges each request."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

import foldmark
from tests.support.api_answers import Json
from tests.support.api_server import WireServer, wire_server, working
from tests.support.client_loops import (
    ASYNC_LOOPS,
    LOOPS,
    REFUSED,
    SYSTEM,
    TOOLS,
    AsyncStep,
    Step,
    async_client_of,
    client_of,
    close_async,
)
from tests.support.provider_types import assert_accepted

WINDOW, ANSWERS = 5_000, 40
each_loop = pytest.mark.parametrize(("wire", "step"), LOOPS.values(), ids=LOOPS)
each_async_loop = pytest.mark.parametrize(("wire", "step"), ASYNC_LOOPS.values(), ids=ASYNC_LOOPS)


def opened(folder: Path, wire: str, window: int = WINDOW) -> foldmark.Session:
    return foldmark.open(
        folder / "store.db",
        session="s",
        window=window,
        output=500,
        system=SYSTEM,
        tools=TOOLS[wire],
        durable=False,
    )


def without_prompt(messages: list[Json]) -> list[Json]:
    return [message for message in messages if message.get("content") != SYSTEM]


def assert_worked(server: WireServer, session: foldmark.Session, wire: str) -> None:
    """Check that nothing was refused or lost, and that the session was compacted."""
    assert server.flaws == []
    for request in server.requests[::7]:  # validating the types of some SDKs is slow
        assert_accepted(wire, without_prompt(request.messages))
    assert max(request.tokens for request in server.requests) <= WINDOW
    kinds = Counter(operation.kind for operation in session.operations())
    assert kinds["pivot"]
    replies = [message for message in session.export().messages if not message.is_user]
    count = sum(not getattr(message.info, "summary", None) for message in replies)
    assert count == server.answers >= ANSWERS


@each_loop
def test_a_loop_is_never_refused_and_continues_after_a_restart(
    tmp_path: Path, wire: str, step: Step
) -> None:
    with (
        wire_server(window=WINDOW, script=working(15)) as server,
        client_of(wire, server) as client,
    ):
        going = False
        for part in (ANSWERS // 2, ANSWERS):
            with opened(tmp_path, wire) as session:
                while server.answers < part:
                    if not going:
                        session.user(f"Look at the books, {server.answers}.")
                    going = step(client, session)
        with opened(tmp_path, wire) as session:
            assert_worked(server, session, wire)


@each_async_loop
def test_an_async_loop_is_never_refused_and_continues_after_a_restart(
    tmp_path: Path, wire: str, step: AsyncStep
) -> None:
    async def work(server: WireServer) -> None:
        client, going = async_client_of(wire, server), False
        for part in (ANSWERS // 2, ANSWERS):
            async with opened(tmp_path, wire) as session:
                while server.answers < part:
                    if not going:
                        await session.auser(f"Look at the books, {server.answers}.")
                    going = await step(client, session)
        await close_async(client)

    with wire_server(window=WINDOW, script=working(15)) as server:
        asyncio.run(work(server))
        with opened(tmp_path, wire) as session:
            assert_worked(server, session, wire)


@each_loop
def test_a_refusal_for_length_is_recovered_by_a_compaction(
    tmp_path: Path, wire: str, step: Step
) -> None:
    with wire_server(window=4_000, script=working(15)) as server, client_of(wire, server) as client:
        with opened(tmp_path, wire, window=12_000) as session:
            going, folded = False, 0
            while server.answers < 20:
                if not going:
                    session.user(f"Look at the books, {server.answers}.")
                try:
                    going = step(client, session)
                except REFUSED as error:
                    if folded > 30 or not foldmark.is_context_overflow(error):
                        raise
                    assert session.compact(overflow=True)
                    folded, going = folded + 1, True
        assert folded == server.overflows == len(server.flaws)
        assert folded


@each_loop
def test_calls_that_a_crash_left_open_are_shown_as_interrupted(
    tmp_path: Path, wire: str, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    with wire_server(script=working(3)) as server, client_of(wire, server) as client:
        with opened(tmp_path, wire) as session:
            session.user("Look at the books.")
            with monkeypatch.context() as patched:
                patched.setattr("tests.support.client_loops.output", crash)
                with pytest.raises(Crash):
                    step(client, session)
            assert len(session.open_calls()) == 2
        with opened(tmp_path, wire) as session:
            session.user("Go on.")
            step(client, session)
        assert server.flaws == []
        assert json.dumps(server.requests[-1].messages).count("was interrupted") == 2
        assert_accepted(wire, without_prompt(server.requests[-1].messages))
