"""Many conversations, agents and threads with one plugin in ADK."""

from pathlib import Path

import pytest

pytest.importorskip("google.adk", reason="needs the extra `adk`")

from google.adk.agents import ParallelAgent  # pyright: ignore[reportDeprecated] - people have it

from tests.support.adk_agents import (
    Scripted,
    agent,
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


async def test_names_with_slashes_are_told_apart(tmp_path: Path) -> None:
    ours = plugin(tmp_path)
    model = Scripted(script=steps(chance(1), 1))
    run = runner(agent(model), ours)
    for user, session in (("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c")):
        message = said(f"I am {user} in {session}.", "user")
        async for _ in run.run_async(user_id=user, session_id=session, new_message=message):
            pass
        assert texts(model.seen[-1]).count("I am ") == 1
    assert len(ours.sessions) == 3
    await run.close()


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated:DeprecationWarning")
async def test_agents_side_by_side_have_sessions_of_their_own(tmp_path: Path) -> None:
    ours = plugin(tmp_path)
    workers = [agent(Scripted(script=steps(chance(n), 12)), name=f"worker{n}") for n in range(3)]
    run = runner(ParallelAgent(name="team", sub_agents=list(workers)), ours)  # pyright: ignore[reportDeprecated] - as above
    await ran(run, "Go.")
    assert len(ours.sessions) == 3
    for session in ours.sessions.values():
        assert session.plan().tokens <= session.usable
    await run.close()
