"""FoldmarkMiddleware's sessions: one per conversation, over restarts, threads and processes."""

import asyncio
import threading
from collections.abc import Iterator
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

from foldmark.adapters.langchain import FoldmarkMiddleware
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
    with opened(tmp_path) as foldmark_middleware:
        yield foldmark_middleware


def test_a_restart_goes_on_with_the_frameworks_own_history(tmp_path: Path) -> None:
    saver, requests = InMemorySaver(), list[Talk]()
    for run in range(4):
        with opened(tmp_path) as middleware:
            model = Scripted(reply=steps(12, seed=run))
            agent_of(model, middleware, checkpointer=saver).invoke(
                asked(f"Part {run}."), config("one")
            )
            requests += model.seen
    with opened(tmp_path) as middleware:
        check_requests(requests, middleware, "one")
        assert pivots(middleware, "one") >= 2
        with middleware.session("one") as session:
            assert [text for text in words(session) if "Part" in text] == [
                f"Part {run}." for run in range(4)
            ]
    assert "Part 0." in str(requests[-1])


def test_parallel_runs_of_one_thread_do_not_mix(tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=20)  # all of them wait for their model at once

    async def work(agent: Any) -> None:
        await asyncio.gather(*(agent.ainvoke(asked(f"Ticket {n}."), config("t")) for n in range(4)))

    def reply(number: int, talk: Talk) -> Said:
        together.wait()
        return AIMessage("Done.") if len(talk) > 6 else called(number, "read")

    with opened(tmp_path) as middleware:
        model = Scripted(reply=reply)
        asyncio.run(work(agent_of(model, middleware)))
    assert len(model.seen) == 16
    for messages in model.seen:
        check_pairs(messages)
        assert str(messages).count("Ticket ") == 1


def test_runs_without_a_thread_know_nothing_of_each_other(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=done)
    agent = agent_of(model, middleware)
    first = agent.invoke(asked("Ticket."))
    agent.invoke(asked("Ticket."))
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


@pytest.mark.parametrize("prompt", [None, "Answer in French."])
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
        removed = [m for m in state if not isinstance(m, SystemMessage)][:-3]
        agent.update_state(config("t"), {"messages": [RemoveMessage(id=m.id) for m in removed]})
    with middleware.session("t") as session:
        assert sorted(words(session)) == sorted(
            [f"Question {n}?" for n in range(6)] + [f"Answer {n}." for n in range(6)]
        )
    expected = [text for n in range(6) for text in (f"Question {n}?", f"Answer {n}.")]
    for number, messages in enumerate(model.seen):
        assert texts(messages) == expected[: 2 * number + 1]
        prompts = [message.content for message in messages if isinstance(message, SystemMessage)]
        assert prompts == ([prompt] if prompt else [])
        assert isinstance(messages[0], SystemMessage) == bool(prompt)


def test_a_prompt_that_comes_and_goes_takes_nothing_along(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=counting)
    agent = agent_of(model, middleware, system_prompt=None)
    talk: Talk = [HumanMessage("Go.")]
    for prompts in ([], [SystemMessage("Be brief.")], [], [SystemMessage("a"), SystemMessage("b")]):
        state = agent.invoke({"messages": [*prompts, *talk]}, config("t"))["messages"]
        talk = [*state[len(prompts) :], HumanMessage("On.")]
        assert [message.content for message in model.seen[-1]] == [
            message.content for message in (*prompts, *talk[:-2])
        ]
    with middleware.session("t") as session:
        assert not session.operations()


def test_a_state_that_is_trimmed_in_a_run_is_followed_to_its_end(
    middleware: FoldmarkMiddleware,
) -> None:
    class Trimming(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:  # noqa: ARG002 - as it is called
            removed = state["messages"][:-2]
            return {"messages": [RemoveMessage(id=message.id) for message in removed]}

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


def test_a_thread_may_have_any_id(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=done)
    agent = agent_of(model, middleware)
    for name in ("latest", " ", "a/../b\x00", "é" * 300):
        agent.invoke(asked("Go."), config(name))
        agent.invoke(asked("On."), config(name))
        assert len(model.seen[-1]) == 4
