"""If state and store differ: a checkpointer's state wins; without one, the store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # pyright: ignore[reportMissingTypeStubs]
from pydantic import BaseModel

from foldmark.adapters.langchain import FoldmarkMiddleware
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
    words,
)


@pytest.fixture
def middleware(tmp_path: Path) -> Iterator[FoldmarkMiddleware]:
    with opened(tmp_path) as foldmark_middleware:
        yield foldmark_middleware


# --- a state that is kept ------------------------------------------------------------------


def test_a_fork_at_the_first_message_shows_nothing_of_the_other_branch(
    middleware: FoldmarkMiddleware,
) -> None:
    model = Scripted(reply=counting)
    agent = agent_of(model, middleware, checkpointer=InMemorySaver())
    agent.invoke(asked("SECRET"), config("t"))
    agent.invoke(asked("Second."), config("t"))
    head, *_, root = list(agent.get_state_history(config("t")))
    agent.invoke(asked("Otherwise."), root.config)
    assert texts(model.seen[-1]) == ["Otherwise."]
    agent.invoke(asked("And?"), config("t"))
    assert texts(model.seen[-1]) == ["Otherwise.", "Answer 2.", "And?"]
    agent.invoke(asked("Third."), head.config)  # back on the first branch
    assert texts(model.seen[-1]) == ["SECRET", "Answer 0.", "Second.", "Answer 1.", "Third."]


def test_a_first_message_that_was_edited_is_shown_in_its_new_words_only(
    middleware: FoldmarkMiddleware,
) -> None:
    model = Scripted(reply=counting)
    agent = agent_of(model, middleware, checkpointer=InMemorySaver())
    agent.invoke(asked("SECRET"), config("t"))
    before = next(s for s in agent.get_state_history(config("t")) if s.next == ("model",))
    first = before.values["messages"][0]
    changed = agent.update_state(before.config, {"messages": [HumanMessage("New.", id=first.id)]})
    agent.invoke(None, changed)
    assert texts(model.seen[-1]) == ["New."]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_thread_that_was_emptied_begins_with_nothing(
    tmp_path: Path, *, is_deleted: bool, is_restarted: bool
) -> None:
    saver, model = InMemorySaver(), Scripted(reply=counting)
    middleware = opened(tmp_path)
    agent = agent_of(model, middleware, checkpointer=saver)
    agent.invoke(asked("SECRET"), config("t"))
    if is_deleted:
        saver.delete_thread("t")
    else:
        agent.update_state(config("t"), {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]})
    if is_restarted:
        middleware.close()
    asyncio.run(agent.ainvoke(asked("New chat."), config("t")))
    assert texts(model.seen[-1]) == ["New chat."]
    middleware.close()


# --- histories that are handed in ----------------------------------------------------------


def test_a_history_that_the_client_keeps_is_stored_once(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=counting)
    agent, talk = agent_of(model, middleware), list[Any]()
    for number in range(5):
        talk.append({"role": "user", "content": f"Question {number}?"})
        state = agent.invoke({"messages": talk}, config("t"))
        talk.append({"role": "assistant", "content": state["messages"][-1].text})
    expected = [text for n in range(5) for text in (f"Question {n}?", f"Answer {n}.")]
    assert texts(model.seen[-1]) == expected[:-1]
    with middleware.session("t") as session:
        assert words(session) == expected


# --- what comes after the last model call --------------------------------------------------


@tool(return_direct=True)
def order(path: str) -> str:
    """Order something."""
    return f"Ordered: {path}."


class Tickets(BaseModel):
    """The number of open tickets."""

    open: int


def ordering(number: int, _: Talk) -> Said:
    return called(number, "order") if number == 0 else AIMessage("Well.")


def counted(number: int, _: Talk) -> Said:
    call: Any = {"name": "Tickets", "args": {"open": 12}, "id": f"s{number}"}
    return AIMessage("", tool_calls=[call])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("reply", "more", "told"),
    [
        (ordering, {"tools": [order]}, "Ordered: src/0/0.py."),
        (counted, {"response_format": ToolStrategy(Tickets)}, "open=12"),
    ],
)
def test_an_output_that_ends_a_run_is_shown_in_the_next_one(
    middleware: FoldmarkMiddleware, reply: Any, more: Any, told: str, *, is_async: bool
) -> None:
    model = Scripted(reply=reply)
    agent = agent_of(model, middleware, **more)
    for question in ("Go.", "What was it?"):
        if is_async:
            asyncio.run(agent.ainvoke(asked(question), config("t")))
        else:
            agent.invoke(asked(question), config("t"))
    check_pairs(model.seen[-1])
    (result,) = [message for message in model.seen[-1] if isinstance(message, ToolMessage)]
    assert told in str(result.content)
    assert texts(model.seen[-1])[-1] == "What was it?"


# --- two processes -------------------------------------------------------------------------


@pytest.mark.parametrize("is_kept", [False, True])
def test_another_process_may_ask_while_a_model_thinks(tmp_path: Path, *, is_kept: bool) -> None:
    saver = InMemorySaver() if is_kept else None
    with opened(tmp_path, wait_seconds=0.2) as one, opened(tmp_path, wait_seconds=0.2) as other:
        second = Scripted(reply=lambda _n, _t: AIMessage("Inner."))

        def reply(number: int, talk: Talk) -> Said:
            if number == 1:  # as another process would, over the same store
                agent_of(second, other, checkpointer=saver).invoke(asked("Two."), config("t"))
            return counting(number, talk)

        model = Scripted(reply=reply)
        agent = agent_of(model, one, checkpointer=saver)
        for text in ("Zero.", "One.", "Three."):
            agent.invoke(asked(text), config("t"))
        assert len(second.seen) == 1
        view = texts(model.seen[-1])
        assert view[-1] == "Three."
        assert len(view) == len(set(view))  # nothing twice
        assert {"Zero.", "Answer 0."} < set(view)
        if saver:
            state = agent.get_state(config("t")).values["messages"]
            assert view == texts(state)[:-1]
        else:
            assert {"One.", "Answer 1."} < set(view)
