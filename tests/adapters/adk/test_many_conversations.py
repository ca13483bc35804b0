"""Many conversations, agents and threads with one plugin in ADK."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("google.adk", reason="needs the extra `adk`")

from google.adk.agents import ParallelAgent  # pyright: ignore[reportDeprecated] - people have it
from google.adk.models.llm_request import LlmRequest
from google.genai import types

from foldmark.adapters import adk
from tests.support.adk_agents import (
    Scripted,
    agent,
    called,
    chance,
    plugin,
    ran,
    runner,
    said,
    steps,
    texts,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_many_conversations_at_once_have_sessions_of_their_own(tmp_path: Path) -> None:
    held = plugin(tmp_path)

    def script(number: int, request: LlmRequest) -> types.Content:
        calls = sum(content.role == "model" for content in request.contents)
        return called(f"f{number}.py", f"g{number}.py") if calls < 4 else said("Done.")

    run = runner(agent(Scripted(script=script)), held)
    names = [f"talk {number}/{number}" for number in range(6)]
    await asyncio.gather(*(ran(run, f"I am {name}.", session=name) for name in names))
    assert len(held.sessions) == 6
    for name, session in held.sessions.items():
        words = str(session.export().messages)
        assert sum(f"I am {other}." in words for other in names) == 1, name
    await run.close()


async def test_names_with_slashes_are_told_apart(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 1))
    run = runner(agent(model), held)
    for user, session in (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")):
        message = said(f"I am {user} in {session}.", "user")
        async for _ in run.run_async(user_id=user, session_id=session, new_message=message):
            pass
        assert texts(model.seen[-1]).count("I am ") == 1
    assert len(held.sessions) == 3
    await run.close()


async def test_few_sessions_stay_open_and_the_others_go_on_when_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adk, "_MAX_OPEN", 2)
    held = plugin(tmp_path)
    model = Scripted(script=steps(chance(6), 3))
    run = runner(agent(model), held)
    for turn in range(2):
        for name in ("a", "b", "c", "d"):
            await ran(run, f"Request {turn}.", session=name)
            assert len(held.sessions) <= 2
            assert texts(model.seen[-1]).count("Request ") == turn + 1
    await run.close()


def test_threads_share_a_plugin(tmp_path: Path) -> None:
    held = plugin(tmp_path)

    def talk(number: int) -> str:
        model = Scripted(script=steps(chance(number), 12))
        run = runner(agent(model), held)
        message = said(f"I am {number}.", "user")
        events = list(run.run(user_id="u", session_id=f"s{number}", new_message=message))
        assert f"I am {number}." in texts(model.seen[-1])
        return str(events[-1].content)

    with ThreadPoolExecutor(4) as pool:
        assert all("is done" in told for told in pool.map(talk, range(4)))
    assert len(held.sessions) == 4
    asyncio.run(held.close())


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
async def test_agents_side_by_side_have_sessions_of_their_own(tmp_path: Path) -> None:
    held = plugin(tmp_path)
    workers = [agent(Scripted(script=steps(chance(n), 12)), name=f"worker{n}") for n in range(3)]
    run = runner(ParallelAgent(name="team", sub_agents=list(workers)), held)  # pyright: ignore[reportDeprecated] - as above
    await ran(run, "Go.")
    assert len(held.sessions) == 3
    for session in held.sessions.values():
        assert session.plan().tokens <= session.usable
    await run.close()
