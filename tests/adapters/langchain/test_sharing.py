"""Two middlewares on one store and thread: like two processes, each has its own leases."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest
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
    """A value in a message that lets another writer write while the message is read."""

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
    """Check that the store finds these words, even if no view shows them."""
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
        message = HumanMessage("One.", additional_kwargs={"slow": slow})
        state = {"messages": [*before, message]}
        if is_async:
            asyncio.run(agent.ainvoke(state, config("t")))
        else:
            agent.invoke(state, config("t"))
        slow.end()
    assert texts(one.seen[-1]) == ["Zero.", "Answer 0.", "One."]
    assert texts(two.seen[-1]) == ["Zero.", "Answer 0.", "Two."]
    check_found(tmp_path, "Zero", "One", "Two", "Answer 0", "Answer 1", "Theirs")


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
        for name, requests in ((name, run.result()) for name, run in runs.items()):
            assert len(requests) == 6
            for number, talk in enumerate(requests):
                check_pairs(talk)
                own = [text for text in texts(talk) if text[:1] == name and text[1:].isdigit()]
                assert own == [f"{name}{step}" for step in range(number)]
                assert "\n".join(texts(talk)).count(f"Run {name}.") == 1
