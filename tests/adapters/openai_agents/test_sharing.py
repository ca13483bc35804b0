"""Two objects on one session of OpenAI's Agents SDK, and lists that are parts of one."""

import asyncio
import gc
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from agents import RunConfig, Runner, SessionSettings, set_tracing_disabled

from foldmark.adapters.openai_agents import FoldmarkSession
from tests.support.markdown_pages import python_blocks
from tests.support.scripted_openai_agents import (
    Scripted,
    TooLong,
    agent,
    asked,
    bare,
    called,
    gave,
    kinds,
    opened,
    ran,
    said,
    works,
)

set_tracing_disabled(disabled=True)
ROOT = Path(__file__).parents[3]


def answering() -> Scripted:
    return Scripted(lambda number: [said(f"answer {number}", f"msg_{number}")])


def talk(turns: int) -> list[Any]:
    """Requests and their answers; the last one is not answered yet."""
    pairs = [(asked(f"request {n}"), said(f"answer {n}", f"msg_{n}")) for n in range(1, turns + 1)]
    return [item for pair in pairs for item in pair][:-1]


def session_ids(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "agent.db") as store:
        return [row[0] for row in store.execute("SELECT id FROM sessions")]


def test_two_objects_take_turns_in_one_session(tmp_path: Path) -> None:
    model = answering()
    with opened(tmp_path, wait_seconds=0.2) as one, opened(tmp_path, wait_seconds=0.2) as two:
        for turn in range(1, 7):
            session = (one, two)[turn % 2]
            asyncio.run(ran(agent(session.model(model)), session, f"request {turn}"))
            assert model.seen[-1] == talk(turn)
        assert asyncio.run(one.get_items()) == asyncio.run(two.get_items())
        assert len(asyncio.run(one.get_items())) == 12
    assert session_ids(tmp_path) == ["one"]


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


@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_keeps_nobody_out(tmp_path: Path, *, streamed: bool) -> None:
    failing = Scripted(lambda number: [called("a", '{"n": 1}')] if number == 1 else OSError("gone"))
    session = opened(tmp_path, wait_seconds=0.2)
    with pytest.raises(OSError, match="gone"):
        asyncio.run(ran(agent(session.model(failing)), session, streamed=streamed))
    model = answering()
    with opened(tmp_path, wait_seconds=0.2) as other:
        asyncio.run(ran(agent(other.model(model)), other, "request", streamed=streamed))
        assert [item.get("content") for item in model.seen[-1] if "role" in item] == [
            "Go",
            "request",
        ]
    session.close()


def test_nobody_is_kept_out_while_a_model_thinks(tmp_path: Path) -> None:
    free: list[bool] = []

    def note(_: Any) -> None:
        with sqlite3.connect(tmp_path / "agent.db") as store:
            held = store.execute("SELECT holder FROM sessions WHERE id = 'one'").fetchone()
        free.append(held == (None,))

    model = Scripted(works(12))
    model.look = note
    with opened(tmp_path, window=4_000) as session:
        asyncio.run(ran(agent(session.model(model)), session))
        assert kinds(session)  # to make room is to write, too
    assert free == [True] * 13


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
        async def get_response(self, *args: Any, **named: Any) -> Any:
            given = named["input"] if "input" in named else args[1]
            name = str(given[-1]["content"])
            assert sum("request" in str(item) for item in given) == 1, "another run's words"
            await asyncio.sleep(0.05)
            if name not in refused:
                refused.add(name)
                raise TooLong
            return await super().get_response(*args, **named)

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


def test_the_page_changes_four_lines_and_three_where_the_model_is_named() -> None:
    page = ROOT / "docs" / "openai-agents.md"
    found = [block.splitlines() for block in python_blocks(page) if "async def work(" in block]
    before, after = found
    changed = [line for line in after if line not in before]
    assert len(after) == len(before) + 1
    assert [line.rsplit("# ", 1)[1] for line in changed] == ["1", "2", "3", "4"]
    assert "session.model(" in changed[2]
    assert "four lines have changed" in page.read_text()
