"""FoldmarkMiddleware's sessions: one per conversation, over restarts, threads and processes."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

import foldmark
from foldmark.adapters.langchain import FoldmarkMiddleware
from foldmark.model.messages import AssistantInfo
from tests.support.langchain_agents import (
    Said,
    Scripted,
    Talk,
    agent_of,
    asked,
    called,
    check_pairs,
    check_requests,
    config,
    counting,
    done,
    opened,
    pivots,
    steps,
    texts,
    words,
)


@pytest.fixture
def middleware(tmp_path: Path) -> Iterator[FoldmarkMiddleware]:
    with opened(tmp_path) as made:
        yield made


def test_a_restart_goes_on_with_the_frameworks_own_history(tmp_path: Path) -> None:
    saver, seen = InMemorySaver(), list[Talk]()
    for run in range(4):
        with opened(tmp_path) as middleware:
            model = Scripted(reply=steps(12, seed=run))
            agent_of(model, middleware, checkpointer=saver).invoke(
                asked(f"Part {run}."), config("one")
            )
            seen += model.seen
    with opened(tmp_path) as middleware:
        check_requests(seen, middleware, "one")
        assert pivots(middleware, "one") >= 2
        with middleware.session("one") as session:
            assert [text for text in words(session) if "Part" in text] == [
                f"Part {run}." for run in range(4)
            ]
    assert "Part 0." in str(seen[-1])


def test_a_restart_goes_on_from_the_store_alone(tmp_path: Path) -> None:
    for run in range(4):
        with opened(tmp_path) as middleware:
            model = Scripted(reply=steps(12, seed=run))
            result = agent_of(model, middleware).invoke(asked(f"Part {run}."), config("one"))
            assert "Part 0." not in str(result) or run == 0
            assert "Part 0." in str(model.seen[0])
            check_requests(model.seen, middleware, "one")
    with foldmark.open(tmp_path / "agent.db", session="one") as session:
        whole = [m for m in session.export().messages if not getattr(m.info, "summary", None)]
        assert not session.open_calls()
    assert sum(isinstance(message.info, AssistantInfo) for message in whole) == 4 * 12


def test_another_process_may_go_on_between_two_calls(tmp_path: Path) -> None:
    saver = InMemorySaver()
    with opened(tmp_path, wait_seconds=0.5) as one, opened(tmp_path, wait_seconds=0.5) as other:
        for run in range(6):
            model = Scripted(reply=steps(6, seed=run))
            middleware = (one, other)[run % 2]
            agent_of(model, middleware, checkpointer=saver).invoke(
                asked(f"Part {run}."), config("t")
            )
            check_requests(model.seen, middleware, "t")
        with one.session("t") as session:
            assert [text for text in words(session) if "Part" in text] == [
                f"Part {run}." for run in range(6)
            ]


def test_threads_have_sessions_of_their_own_at_the_same_time(tmp_path: Path) -> None:
    with opened(tmp_path) as middleware:
        model = Scripted(
            reply=lambda n, talk: AIMessage("Done.") if len(talk) > 12 else called(n, "read")
        )
        agent = agent_of(model, middleware)
        with ThreadPoolExecutor(4) as pool:
            jobs = [
                pool.submit(agent.invoke, asked(f"Mill {n}."), config(f"t{n}")) for n in range(8)
            ]
            for job in jobs:
                job.result()
        for messages in model.seen:
            check_pairs(messages)
            assert str(messages).count("Mill ") == 1


def test_parallel_runs_of_one_thread_do_not_mix(tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=20)  # all of them wait for their model at once

    async def work(agent: Any) -> None:
        await asyncio.gather(*(agent.ainvoke(asked(f"Mill {n}."), config("t")) for n in range(4)))

    def reply(number: int, talk: Talk) -> Said:
        together.wait()
        return AIMessage("Done.") if len(talk) > 6 else called(number, "read")

    with opened(tmp_path) as middleware:
        model = Scripted(reply=reply)
        asyncio.run(work(agent_of(model, middleware)))
    assert len(model.seen) == 16
    for messages in model.seen:
        check_pairs(messages)
        assert str(messages).count("Mill ") == 1


def test_runs_without_a_thread_know_nothing_of_each_other(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=done)
    agent = agent_of(model, middleware)
    first = agent.invoke(asked("Mill."))
    agent.invoke(asked("Mill."))
    assert [len(messages) for messages in model.seen] == [2, 2]
    agent.invoke({"messages": [*first["messages"], HumanMessage("And?")]})
    assert len(model.seen[-1]) == 4


def test_an_agent_inside_another_has_a_session_of_its_own(middleware: FoldmarkMiddleware) -> None:
    inner = Scripted(reply=done)
    worker = agent_of(inner, middleware)

    @tool
    def delegate(task: str) -> str:
        """Hand a task on."""
        for part in range(2):
            worker.invoke(asked(f"{task}, part {part}"))
        return "Well done."

    def reply(number: int, _: Talk) -> Said:
        calls: Any = [
            {"name": "delegate", "args": {"task": f"Task {n}"}, "id": f"d{n}"} for n in range(3)
        ]
        return AIMessage("", tool_calls=calls) if number == 0 else AIMessage("Done.")

    outer = Scripted(reply=reply)
    agent_of(outer, middleware, tools=[delegate]).invoke(asked("Go."), config("t"))
    assert len(inner.seen) == 6
    assert all(len(messages) == 2 for messages in inner.seen)
    assert "Task" not in str(outer.seen[0])
    with middleware.session("t") as session:
        assert "part 1" not in str(session.export().messages)


def test_a_history_that_is_changed_takes_the_session_back(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=lambda n, _: AIMessage(f"Answer {n}."))
    agent = agent_of(model, middleware, checkpointer=InMemorySaver())
    agent.invoke(asked("One."), config("t"))
    agent.invoke(asked("Two."), config("t"))
    states = list(agent.get_state_history(config("t")))
    before = next(s for s in states if len(s.values.get("messages", ())) == 2 and not s.next)
    agent.invoke(asked("Another two."), before.config)
    assert [str(message.content) for message in model.seen[-1][1:]] == [
        "One.",
        "Answer 0.",
        "Another two.",
    ]


@pytest.mark.parametrize("prompt", [None, "Speak like a miller."])
def test_a_state_that_is_trimmed_in_front_is_not_taken_twice(
    middleware: FoldmarkMiddleware, prompt: str | None
) -> None:
    model = Scripted(reply=lambda n, _: AIMessage(f"Answer {n}."))
    agent = agent_of(model, middleware, checkpointer=InMemorySaver(), system_prompt=None)
    if prompt:
        agent.update_state(config("t"), {"messages": [SystemMessage(prompt)]})
    for number in range(6):
        agent.invoke(asked(f"Question {number}?"), config("t"))
        state = agent.get_state(config("t")).values["messages"]
        gone = [m for m in state if not isinstance(m, SystemMessage)][:-3]
        agent.update_state(config("t"), {"messages": [RemoveMessage(id=m.id) for m in gone]})
    with middleware.session("t") as session:
        assert sorted(words(session)) == sorted(
            [f"Question {n}?" for n in range(6)] + [f"Answer {n}." for n in range(6)]
        )
    told = [text for n in range(6) for text in (f"Question {n}?", f"Answer {n}.")]
    for number, messages in enumerate(model.seen):
        assert texts(messages) == told[: 2 * number + 1]
        prompts = [held.content for held in messages if isinstance(held, SystemMessage)]
        assert prompts == ([prompt] if prompt else [])
        assert isinstance(messages[0], SystemMessage) == bool(prompt)


def test_a_prompt_that_comes_and_goes_takes_nothing_along(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=counting)
    agent = agent_of(model, middleware, system_prompt=None)
    talk: Talk = [HumanMessage("Go.")]
    for prompts in ([], [SystemMessage("Be brief.")], [], [SystemMessage("a"), SystemMessage("b")]):
        state = agent.invoke({"messages": [*prompts, *talk]}, config("t"))["messages"]
        talk = [*state[len(prompts) :], HumanMessage("On.")]
        assert [held.content for held in model.seen[-1]] == [
            held.content for held in (*prompts, *talk[:-2])
        ]
    with middleware.session("t") as session:
        assert not session.operations()


def test_a_state_that_is_trimmed_in_a_run_is_followed_to_its_end(
    middleware: FoldmarkMiddleware,
) -> None:
    class Trimming(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:  # noqa: ARG002 - as it is called
            gone = state["messages"][:-2]
            return {"messages": [RemoveMessage(id=message.id) for message in gone]}

    model = Scripted(reply=lambda n, _: called(n, "order") if n == 2 else counting(n, []))

    @tool(return_direct=True)
    def order(path: str) -> str:
        """Order something."""
        return f"Ordered: {path}."

    saver = InMemorySaver()
    agent = agent_of(model, middleware, before=[Trimming()], checkpointer=saver, tools=[order])
    for number in range(3):
        agent.invoke(asked(f"Question {number}?"), config("t"))
    with middleware.session("t") as session:
        assert session.search("Ordered")
        assert [text for text in words(session) if "Question" in text] == [
            f"Question {n}?" for n in range(3)
        ]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_that_comes_after_close_is_kept(tmp_path: Path, *, is_async: bool) -> None:
    middleware = opened(tmp_path)

    def reply(number: int, _talk: Talk) -> Said:
        middleware.close()  # the session of this call closes when that ends
        return AIMessage(f"Answer {number}.")

    with middleware:
        agent = agent_of(Scripted(reply=reply), middleware, checkpointer=InMemorySaver())
        for number in range(2):
            given = asked(f"Question {number}?"), config("t")
            made = asyncio.run(agent.ainvoke(*given)) if is_async else agent.invoke(*given)
            assert made["messages"][-1].content == f"Answer {number}."
        with middleware.session("t") as session:
            assert words(session) == ["Question 0?", "Answer 0.", "Question 1?", "Answer 1."]


def test_many_threads_leave_few_sessions_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as middleware:
        held = middleware._pool  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(held, "_limit", 3)
        agent = agent_of(Scripted(reply=done), middleware)
        for number in range(8):
            agent.invoke(asked("Go."), config(f"t{number}"))
        assert len(held._open) == 3  # pyright: ignore[reportPrivateUsage]
        agent.invoke(asked("Again."), config("t0"))
        with middleware.session("t0") as session:
            assert words(session) == ["Go.", "Done.", "Again.", "Done."]


def test_a_thread_may_have_any_id(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=done)
    agent = agent_of(model, middleware)
    for name in ("latest", " ", "a/../b\x00", "é" * 300):
        agent.invoke(asked("Go."), config(name))
        agent.invoke(asked("On."), config(name))
        assert len(model.seen[-1]) == 4
