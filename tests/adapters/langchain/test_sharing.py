"""Two middlewares on one store and thread, as two processes are: each has leases of its own."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage

import foldmark
from tests.support.langchain_agents import (
    Said,
    Scripted,
    Talk,
    agent_of,
    asked,
    called,
    check_pairs,
    config,
    counting,
    opened,
    texts,
)


class Slow:
    """Stands in a message; whoever reads that gives another writer the time to write."""

    def __init__(self, write: Callable[[], object]) -> None:
        self._write = write
        self._thread: threading.Thread | None = None

    def model_dump(self) -> dict[str, Any]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write)
            self._thread.start()
            self._thread.join(0.5)  # where it must wait for us, it ends later
        return {}

    def end(self) -> None:
        assert self._thread is not None
        self._thread.join()


def check_found(folder: Path, *words: str) -> None:
    """Nothing is lost, though a view may not show it."""
    with foldmark.open(folder / "agent.db", session="t") as session:
        assert [word for word in words if not session.search(word)] == []


@pytest.mark.parametrize("is_async", [False, True])
def test_nobody_writes_between_a_look_and_the_write_that_follows_it(
    tmp_path: Path, *, is_async: bool
) -> None:
    one, two = Scripted(reply=counting), Scripted(reply=lambda _n, _t: AIMessage("Theirs."))
    with opened(tmp_path) as mine, opened(tmp_path) as theirs:
        agent, other = agent_of(one, mine), agent_of(two, theirs)
        before = agent.invoke(asked("Zero."), config("t"))["messages"]
        slow = Slow(
            lambda: other.invoke({"messages": [*before, HumanMessage("Two.")]}, config("t"))
        )
        said = HumanMessage("One.", additional_kwargs={"slow": slow})
        given = {"messages": [*before, said]}
        if is_async:
            asyncio.run(agent.ainvoke(given, config("t")))
        else:
            agent.invoke(given, config("t"))
        slow.end()
    assert texts(one.seen[-1]) == ["Zero.", "Answer 0.", "One."]
    assert texts(two.seen[-1]) == ["Zero.", "Answer 0.", "Two."]
    check_found(tmp_path, "Zero", "One", "Two", "Answer 0", "Answer 1", "Theirs")


def test_two_that_work_at_the_same_time_lose_nothing_and_show_nothing_twice(
    tmp_path: Path,
) -> None:
    def work(name: str) -> list[Talk]:
        model = Scripted(reply=lambda n, _: AIMessage(f"Reply {name}{n}."))
        with opened(tmp_path) as middleware:
            agent = agent_of(model, middleware)
            for number in range(8):
                agent.invoke(asked(f"Question {name}{number}?"), config("t"))
        return model.seen

    with ThreadPoolExecutor(2) as pool:
        seen = [talk for held in pool.map(work, ("a", "b")) for talk in held]
    for talk in seen:
        assert len(texts(talk)) == len(set(texts(talk)))
    numbers = [f"{name}{number}" for name in "ab" for number in range(8)]
    check_found(tmp_path, *(f"{word} {n}" for n in numbers for word in ("Question", "Reply")))


def test_two_that_take_turns_step_by_step_each_see_their_own_run_whole(tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=200)  # a disk may be busy for long

    def work(name: str) -> list[Talk]:
        def reply(number: int, _: Talk) -> Said:
            together.wait()  # both think at the same time, and write at the same time
            step = number + 10 * "ab".index(name)
            return called(step, "read", "fail", text=f"{name}{number}")

        def last(number: int, talk: Talk) -> Said:
            return reply(number, talk) if number < 5 else AIMessage("Done.")

        model = Scripted(reply=last)
        with opened(tmp_path, window=60_000, wait_seconds=90) as middleware:  # nothing is folded
            agent_of(model, middleware).invoke(asked(f"Run {name}."), config("t"))
        return model.seen

    with ThreadPoolExecutor(2) as pool:
        runs = {name: pool.submit(work, name) for name in "ab"}
        for run in as_completed(runs.values()):
            run.result()  # the error that comes first, and not the one that it causes
        for name, seen in ((name, run.result()) for name, run in runs.items()):
            assert len(seen) == 6
            for number, talk in enumerate(seen):
                check_pairs(talk)
                own = [text for text in texts(talk) if text[:1] == name and text[1:].isdigit()]
                assert own == [f"{name}{step}" for step in range(number)]
                assert "\n".join(texts(talk)).count(f"Run {name}.") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_session_that_another_holds_costs_no_answer_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    other = foldmark.open(tmp_path / "agent.db", session="t")
    refusal = ContextOverflowError("maximum context length is 4000 tokens")

    def reply(number: int, _: Talk) -> Said:
        other.user("Mine.")
        return AIMessage("Well.") if number == 0 else refusal

    with opened(tmp_path, wait_seconds=0.1) as middleware:
        agent = agent_of(Scripted(reply=reply), middleware)

        def asks(text: str) -> Any:
            if is_async:
                return asyncio.run(agent.ainvoke(asked(text), config("t")))
            return agent.invoke(asked(text), config("t"))

        assert asks("One.")["messages"][-1].content == "Well."
        assert "session t lacks the newest messages" in caplog.text
        other.release()
        with pytest.raises(ContextOverflowError) as raised:
            asks("Two.")
        assert raised.value is refusal
    other.close()
