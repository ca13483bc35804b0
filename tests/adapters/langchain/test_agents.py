"""FoldmarkMiddleware in real LangChain agents: prompts, refusals, streams and options."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver

import foldmark
from foldmark.adapters.langchain import FoldmarkMiddleware
from foldmark.summary.protocol import ModelRequest
from foldmark.testing import plausible_reply
from tests.support.langchain_agents import (
    OUTPUT,
    WINDOW,
    Said,
    Scripted,
    Talk,
    agent_of,
    asked,
    called,
    check_pairs,
    check_requests,
    config,
    done,
    opened,
    pivots,
    steps,
    tokens_of,
)

SOON = 15.0  # seconds: no more than a bound
TOO_LONG = (
    "This model's maximum context length is 8192 tokens. "
    "However, your messages resulted in 15000 tokens."
)


@pytest.fixture
def middleware(tmp_path: Path) -> Iterator[FoldmarkMiddleware]:
    with opened(tmp_path) as foldmark_middleware:
        yield foldmark_middleware


# --- long runs -----------------------------------------------------------------------------


def test_what_is_shown_unaltered_is_the_very_message_of_the_state(
    middleware: FoldmarkMiddleware,
) -> None:
    model = Scripted(reply=steps(3))
    result = agent_of(model, middleware).invoke(asked("Go."), config("one"))
    view_ids = {id(message) for message in model.seen[-1][1:]}
    assert view_ids == {id(message) for message in result["messages"][:-1]}


def test_system_prompt_tools_and_the_form_of_the_answer_are_counted(tmp_path: Path) -> None:
    fixed: list[int] = []
    for number, more in enumerate(
        (
            {},
            {"system_prompt": "Be brief. " * 200},
            {
                "response_format": {
                    "title": "Form",
                    "type": "object",
                    "properties": {"a": {"type": "string", "description": "long " * 300}},
                }
            },
        )
    ):
        with opened(tmp_path) as middleware:
            model = Scripted(reply=done)
            agent_of(model, middleware, **more).invoke(asked("Go."), config(f"t{number}"))
            with middleware._pool.shared(f"t{number}") as thread:  # pyright: ignore[reportPrivateUsage]
                fixed.append(thread.session.fixed_tokens)
    assert fixed[0] > 60  # the three tools
    assert fixed[1] > fixed[0] + 300
    assert fixed[2] > fixed[0] + 250


def test_a_system_message_in_the_state_stays_in_front(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=steps(40))
    given = [SystemMessage("Answer in French."), HumanMessage("Go.")]
    agent_of(model, middleware, system_prompt=None).invoke({"messages": given}, config("one"))
    assert all(messages[0].content == "Answer in French." for messages in model.seen)
    assert pivots(middleware, "one") >= 1


# --- refusals ------------------------------------------------------------------------------


class Refusal(ContextOverflowError):
    status_code = 400


def long_talk(count: int = 60) -> Talk:
    talk: Talk = [HumanMessage("Go.")]
    for step in range(count):
        talk += [called(step, "read"), ToolMessage("line\n" * 150, tool_call_id=f"c{step}.0")]
    return [*talk, HumanMessage("And now?")]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_refusal_for_length_is_answered_by_a_shorter_request(
    tmp_path: Path, *, is_async: bool
) -> None:
    def reply(_: int, talk: Talk) -> Said:
        return Refusal(TOO_LONG) if tokens_of(talk) > 7_000 else AIMessage("Well.")

    with opened(tmp_path, window=60_000) as middleware:
        model = Scripted(reply=reply)
        agent, state = agent_of(model, middleware), {"messages": long_talk()}
        if is_async:
            result = asyncio.run(agent.ainvoke(state, config("t")))
        else:
            result = agent.invoke(state, config("t"))
        assert len(model.seen) == 2
        check_pairs(model.seen[-1])
        assert result["messages"][-1].content == "Well."
        assert len(result["messages"]) == len(state["messages"]) + 1
        agent.invoke({"messages": [*result["messages"], HumanMessage("Go on.")]}, config("t"))
        assert len(model.seen) == 3  # the smaller window is remembered


# --- streams, cancelled runs ---------------------------------------------------------------


def test_streams_go_on_and_show_no_word_of_a_summary(tmp_path: Path) -> None:
    def reply(number: int, talk: Talk) -> Said:
        if talk[0].content != "Be brief.":  # it is not the agent who asks
            return AIMessage(plausible_reply(ModelRequest(messages=())))
        names = ["read", "fail", "fail"]
        return called(number, *names) if number < 50 else AIMessage("All is done.")

    with opened(tmp_path, summarizer="agent") as middleware:
        model = Scripted(reply=reply)
        pieces: list[str] = []
        nodes: set[str] = set()
        for mode, chunk in agent_of(model, middleware).stream(
            asked("Go."), config("t"), stream_mode=["messages", "updates"]
        ):
            if mode == "messages" and isinstance(chunk[0], AIMessage):
                pieces.append(str(chunk[0].text))
            elif mode == "updates":
                nodes |= set(chunk)
        assert pivots(middleware, "t") >= 2
        with middleware.session("t") as session:
            assert "as the script has it" in str(session.export().messages)
    assert "".join(pieces) == "All is done."
    assert nodes == {"model", "tools", "FoldmarkMiddleware.after_agent"}


def test_a_cancelled_run_leaves_a_session_that_goes_on(tmp_path: Path) -> None:
    async def work(middleware: FoldmarkMiddleware, model: Scripted) -> None:
        agent = agent_of(model, middleware, checkpointer=InMemorySaver())
        for pause in (0.0, 0.002, 0.01, 0.03, 0.06, 0.1):
            running = asyncio.create_task(agent.ainvoke(asked("Go."), config("t")))
            await asyncio.sleep(pause)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        await agent.ainvoke(asked("The last."), config("t"))

    with opened(tmp_path) as middleware:
        model = Scripted(
            reply=lambda n, talk: (
                AIMessage("Done.") if "The last." in str(talk[-1]) else called(n, "read", "read")
            )
        )
        asyncio.run(work(middleware, model))
        check_requests(model.seen, middleware, "t")
        (thread,) = middleware._pool._open.values()  # pyright: ignore[reportPrivateUsage]
        assert (thread.name, thread.is_exclusive, thread.users) == ("t", False, 0)


# --- options -------------------------------------------------------------------------------


def test_the_window_of_the_models_profile_is_used(tmp_path: Path) -> None:
    with FoldmarkMiddleware(tmp_path / "agent.db", output=OUTPUT, durable=False) as middleware:
        model = Scripted(reply=steps(40), profile={"max_input_tokens": WINDOW})
        agent_of(model, middleware).invoke(asked("Go."), config("t"))
        assert all(tokens_of(messages) < WINDOW for messages in model.seen)
        assert pivots(middleware, "t") >= 1


def test_the_agent_can_recall_and_search_what_it_is_no_longer_shown(tmp_path: Path) -> None:
    def use(name: str, call_id: str, **arguments: str) -> Any:
        return {"name": name, "args": arguments, "id": call_id}

    def reply(number: int, talk: Talk) -> Said:
        if number == 0:
            return called(0, "read", text="The import job is stuck.")
        if number < 12:
            return called(number, "read", "read")
        if number > 12:
            return AIMessage("Done.")
        hidden = next(message for message in talk if isinstance(message, ToolMessage))
        handle = re.findall(r"\bh[0-9a-f]+\b", str(hidden.content))[-1]
        calls = [
            use("search", "s", query="stuck"),
            use("recall", "r", handle=handle),
            use("recall", "n", handle="nonsense"),
        ]
        return AIMessage("", tool_calls=calls)

    with opened(tmp_path, memory=True) as middleware:
        agent = agent_of(Scripted(reply=reply), middleware)
        result = agent.invoke(asked("Go."), config("t"))["messages"]
    results = {held.tool_call_id: held for held in result if isinstance(held, ToolMessage)}
    assert "The import job is stuck." in str(results["s"].content)
    assert str(results["r"].content) == str(results["c0.0"].content)
    assert results["n"].status == "error"


def test_sessions_of_two_agents_are_told_apart_by_a_prefix(tmp_path: Path) -> None:
    for prefix in ("billing.", "shop."):
        with opened(tmp_path, prefix=prefix) as middleware:
            model = Scripted(reply=done)
            agent_of(model, middleware).invoke(asked("Go."), config("t"))
            assert len(model.seen[0]) == 2
            with middleware.session("t") as session:
                assert session.id == f"{prefix}t"


def test_a_session_is_not_named_by_hand(tmp_path: Path) -> None:
    with pytest.raises(foldmark.BadInput, match="prefix"):
        opened(tmp_path, session="one")
