"""Which session is whose: no id that a user can choose leads to another's words."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

import foldmark
from foldmark.adapters.langchain import FoldmarkHistory
from foldmark.adapters.langchain.names import beside, conversation_name, quoted, since_cleared

from .langchain_agents import Said, Scripted, Talk, agent_of, asked, config, counting, opened, texts


def test_a_second_run_comes_upon_no_thread_of_another_user(tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=20)

    async def work(agent: Any) -> None:
        await asyncio.gather(*(agent.ainvoke(asked(f"Mill {n}."), config("t")) for n in range(2)))

    def reply(number: int, talk: Talk) -> Said:
        together.wait()
        return counting(number, talk)

    with opened(tmp_path) as middleware:
        for name in ("t~2", "t~beside-2", "t%7Ebeside-2"):
            agent_of(Scripted(reply=counting), middleware).invoke(asked("SECRET"), config(name))
        model = Scripted(reply=reply)
        asyncio.run(work(agent_of(model, middleware)))
    assert sorted(map(texts, model.seen)) == [["Mill 0."], ["Mill 1."]]


def test_a_chat_that_is_cleared_comes_upon_no_other(tmp_path: Path) -> None:
    mine, other = (FoldmarkHistory(tmp_path / "chat.db", name) for name in ("x", "x~2"))
    mine.add_user_message("Mine.")
    other.add_user_message("I am somebody else.")
    assert texts(mine.messages) == ["Mine."]
    mine.clear()
    assert mine.messages == []
    assert texts(other.messages) == ["I am somebody else."]


@pytest.mark.parametrize("name", ["latest", " ", "a\x00b"])
def test_a_chat_may_have_any_id(tmp_path: Path, name: str) -> None:
    with foldmark.open(tmp_path / "chat.db", session="another") as session:
        session.user("I am somebody else.")
    history = FoldmarkHistory(tmp_path / "chat.db", name)
    assert history.messages == []
    history.add_user_message("Mine.")
    assert texts(history.messages) == ["Mine."]


def test_a_chat_reads_the_thread_of_an_agent_whose_other_runs_stand_beside_it(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as middleware:
        agent_of(Scripted(reply=counting), middleware).invoke(asked("Go."), config("a~b"))
    with foldmark.open(tmp_path / "agent.db", session=beside(quoted("a~b"), 2)) as session:
        session.user("Beside.")
    history = FoldmarkHistory(tmp_path / "agent.db", "a~b")
    assert texts(history.messages) == ["Go.", "Answer 0."]


def test_no_two_names_are_alike() -> None:
    given = ["a", "a~", "a~2", "a~~2", "a%7E2", "a%", "latest", " ", "~named-1", "a~b~run-1", "a.b"]
    first = HumanMessage("Go.", id="1")
    places = ["model:1", "b:1|model:2", "b:1|c:3|model:2"]
    plain = [conversation_name(name, place, first) for name in given for place in places]
    plain += [conversation_name(None, place, first) for place in places]
    made = [*plain, *(beside(name, 2) for name in plain), *(since_cleared(n, 2) for n in plain)]
    assert len(set(made)) == len(made)
    ours = {name for name in made if "~" in name}
    assert not ours & {quoted(name) for name in made}
    assert quoted("ada") == conversation_name("ada", "model:1", first) == "ada"
