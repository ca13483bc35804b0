"""Several objects on one session of OpenAI's Agents SDK, and partial lists."""

import asyncio
import gc
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agents import RunConfig, Runner, SessionSettings, set_tracing_disabled

from foldmark.adapters.openai_agents import FoldmarkSession
from tests.support.scripted_openai_agents import (
    Scripted,
    TooLong,
    agent,
    asked,
    bare,
    called,
    gave,
    opened,
    ran,
    said,
)

set_tracing_disabled(disabled=True)
ROOT = Path(__file__).parents[3]


def answering() -> Scripted:
    return Scripted(lambda number: [said(f"answer {number}", f"msg_{number}")])


def talk(turns: int) -> list[Any]:
    """Requests with answers, except the last one."""
    pairs = [(asked(f"request {n}"), said(f"answer {n}", f"msg_{n}")) for n in range(1, turns + 1)]
    return [item for pair in pairs for item in pair][:-1]


def session_ids(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "agent.db") as store:
        return [row[0] for row in store.execute("SELECT id FROM sessions")]


def test_one_object_for_each_request_needs_no_close(tmp_path: Path) -> None:
    model = answering()

    async def handle(request: str) -> None:
        session = FoldmarkSession("u", tmp_path / "agent.db", window=6_000, wait_seconds=0.2)
        config = session.run_config()
        await Runner.run(agent(session.model(model)), request, session=session, run_config=config)

    for turn in range(1, 4):
        asyncio.run(handle(f"request {turn}"))
    assert model.seen[-1] == talk(3)
    gc.collect()


def test_what_another_object_takes_back_is_taken_back_here(tmp_path: Path) -> None:
    items = [asked("Go"), called("a"), gave("a", "one"), said("Well.")]
    with opened(tmp_path) as one, opened(tmp_path) as two:
        asyncio.run(one.add_items(list(items)))
        assert asyncio.run(two.pop_item()) == items[-1]
        assert asyncio.run(one.get_items()) == items[:-1]
        asyncio.run(one.add_items([said("Otherwise.")]))
        asyncio.run(two.add_items([asked("And?")]))
        assert asyncio.run(one.get_items()) == [*items[:-1], said("Otherwise."), asked("And?")]
        asyncio.run(two.clear_session())
        model = answering()
        asyncio.run(ran(agent(one.model(model)), one))
        assert model.seen == [[asked("Go")]]


def test_who_adds_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    def add(name: str) -> None:
        with opened(tmp_path) as session:
            for number in range(12):
                asyncio.run(session.add_items([asked(f"{name} {number}")]))

    with opened(tmp_path) as session, ThreadPoolExecutor(2) as pool:
        list(pool.map(add, "ab"))
        words = [item["content"] for item in asyncio.run(session.get_items())]
    for name in "ab":
        own = [word for word in words if word.startswith(name)]
        assert own == [f"{name} {number}" for number in range(12)]
    assert len(words) == 24


# --- parts of a list --------------------------------------------------------------------------


def test_a_limit_makes_one_session_more_and_not_one_for_each_run(tmp_path: Path) -> None:
    model = answering()
    limited = RunConfig(session_settings=SessionSettings(limit=4))
    for turn in range(1, 10):
        session = opened(tmp_path)  # a new object each time
        config = session.run_config(limited)
        worker = agent(session.model(model))
        asyncio.run(_run(worker, f"request {turn}", session, config))
        assert model.seen[-1] == talk(turn)[-5:]
        session.close()
    assert len(session_ids(tmp_path)) == 2
    with opened(tmp_path) as session:
        assert [bare(item) for item in asyncio.run(session.get_items())][:-1] == talk(9)


async def _run(worker: Any, request: str, session: FoldmarkSession, config: RunConfig) -> None:
    await Runner.run(worker, request, session=session, run_config=config)


def test_limited_runs_at_the_same_time_are_each_shown_their_own(tmp_path: Path) -> None:
    refused: set[str] = set()

    class Refusing(Scripted):
        async def get_response(self, *args: Any, **keywords: Any) -> Any:
            items = keywords["input"] if "input" in keywords else args[1]
            name = str(items[-1]["content"])
            assert sum("request" in str(item) for item in items) == 1, "another run's words"
            await asyncio.sleep(0.05)
            if name not in refused:
                refused.add(name)
                raise TooLong
            return await super().get_response(*args, **keywords)

    model = Refusing(lambda number: [said("Well.", f"msg_{number}")])
    with opened(tmp_path) as session:
        before = [asked("Go"), *(said("word " * 300, f"msg_0{n}") for n in range(9))]
        asyncio.run(session.add_items(before))
        config = session.run_config(RunConfig(session_settings=SessionSettings(limit=6)))
        worker = agent(session.model(model))

        async def both() -> None:
            runs = (_run(worker, f"request {n}", session, config) for n in range(2))
            await asyncio.gather(*runs)

        asyncio.run(both())
        assert refused == {"request 0", "request 1"}


# --- around it --------------------------------------------------------------------------------
