"""Session names: no thread id leads to the session of another thread."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

import foldmark
from foldmark.adapters.langchain.threads import conversation_name, escape_name, numbered_name
from tests.support.langchain_agents import (
    Said,
    Scripted,
    Talk,
    agent_of,
    asked,
    config,
    counting,
    opened,
    texts,
)


def test_a_second_run_comes_upon_no_thread_of_another_user(tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=20)

    async def work(agent: Any) -> None:
        await asyncio.gather(*(agent.ainvoke(asked(f"Ticket {n}."), config("t")) for n in range(2)))

    def reply(number: int, talk: Talk) -> Said:
        together.wait()
        return counting(number, talk)

    with opened(tmp_path) as middleware:
        for name in ("t~2", "t~beside-2", "t%7Ebeside-2"):
            agent_of(Scripted(reply=counting), middleware).invoke(asked("SECRET"), config(name))
        model = Scripted(reply=reply)
        asyncio.run(work(agent_of(model, middleware)))
    assert sorted(map(texts, model.seen)) == [["Ticket 0."], ["Ticket 1."]]


def test_a_thread_is_not_shown_what_stands_beside_it(tmp_path: Path) -> None:
    model = Scripted(reply=counting)
    with opened(tmp_path) as middleware:
        agent_of(model, middleware).invoke(asked("Go."), config("a~b"))
        with foldmark.open(
            tmp_path / "agent.db", session=numbered_name(escape_name("a~b"), 2)
        ) as session:
            session.user("Beside.")
        agent_of(model, middleware).invoke(asked("On."), config("a~b"))
    assert texts(model.seen[-1]) == ["Go.", "Answer 0.", "On."]


def test_no_two_names_are_alike() -> None:
    ids = ["a", "a~", "a~2", "a~~2", "a%7E2", "a%", "latest", " ", "~named-1", "a~b~run-1", "a.b"]
    first = HumanMessage("Go.", id="1")
    places = ["model:1", "b:1|model:2", "b:1|c:3|model:2"]
    plain = [conversation_name(name, path, first) for name in ids for path in places]
    plain += [conversation_name(None, path, first) for path in places]
    names = [*plain, *(numbered_name(name, 2) for name in plain)]
    assert len(set(names)) == len(names)
    ours = {name for name in names if "~" in name}
    assert not ours & {escape_name(name) for name in names}
    assert escape_name("ada") == conversation_name("ada", "model:1", first) == "ada"
