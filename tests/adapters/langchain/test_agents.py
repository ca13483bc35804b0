"""FoldmarkMiddleware in real agents of LangChain: long runs, restarts, refusals, streams."""

import asyncio
import re
import subprocess
import sys
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
from foldmark.policy import FOLDMARK
from foldmark.summary.protocol import ModelRequest
from foldmark.testing import plausible_reply
from tests.support.failing_models import GatedModel
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
    check_whole,
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
    with opened(tmp_path) as made:
        yield made


# --- long runs -----------------------------------------------------------------------------


def test_two_hundred_steps_with_cut_off_runs_stay_within_the_window(
    middleware: FoldmarkMiddleware,
) -> None:
    model = Scripted(reply=steps(200, crashes=True))
    agent = agent_of(model, middleware, checkpointer=InMemorySaver())
    runs = 0
    while len(model.seen) < 200:
        runs += 1
        try:
            agent.invoke(asked(f"Go on, {runs}."), config("one"))
        except RuntimeError as error:
            assert "cut off" in str(error)  # noqa: PT017 - some runs end so, and some do not
    assert runs > 5
    check_requests(model.seen, middleware, "one")
    check_whole(agent.get_state(config("one")).values["messages"], model)
    assert pivots(middleware, "one") >= 2
    assert f"Go on, {runs}." in str(model.seen[-1])


def test_an_async_agent_stays_within_the_window(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=steps(40))
    agent = agent_of(model, middleware)
    result = asyncio.run(agent.ainvoke(asked("Go."), config("one")))
    check_requests(model.seen, middleware, "one")
    check_whole(result["messages"], model)
    assert pivots(middleware, "one") >= 2


def test_what_is_shown_unaltered_is_the_very_message_of_the_state(
    middleware: FoldmarkMiddleware,
) -> None:
    model = Scripted(reply=steps(3))
    result = agent_of(model, middleware).invoke(asked("Go."), config("one"))
    shown = {id(message) for message in model.seen[-1][1:]}
    assert shown == {id(message) for message in result["messages"][:-1]}


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
            with middleware._pool.shared(f"t{number}") as held:  # pyright: ignore[reportPrivateUsage]
                fixed.append(held.session.fixed_tokens)
    assert fixed[0] > 60  # the three tools
    assert fixed[1] > fixed[0] + 300
    assert fixed[2] > fixed[0] + 250


def test_a_system_message_in_the_state_stays_in_front(middleware: FoldmarkMiddleware) -> None:
    model = Scripted(reply=steps(40))
    given = [SystemMessage("Speak like a miller."), HumanMessage("Go.")]
    agent_of(model, middleware, system_prompt=None).invoke({"messages": given}, config("one"))
    assert all(messages[0].content == "Speak like a miller." for messages in model.seen)
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
        agent, given = agent_of(model, middleware), {"messages": long_talk()}
        if is_async:
            result = asyncio.run(agent.ainvoke(given, config("t")))
        else:
            result = agent.invoke(given, config("t"))
        assert len(model.seen) == 2
        check_pairs(model.seen[-1])
        assert result["messages"][-1].content == "Well."
        assert len(result["messages"]) == len(given["messages"]) + 1
        agent.invoke({"messages": [*result["messages"], HumanMessage("Go on.")]}, config("t"))
        assert len(model.seen) == 3  # the smaller window is remembered


def test_a_second_refusal_is_the_callers(tmp_path: Path) -> None:
    with opened(tmp_path, window=60_000) as middleware:
        model = Scripted(reply=lambda _number, _talk: Refusal(TOO_LONG))
        with pytest.raises(Refusal):
            agent_of(model, middleware).invoke({"messages": long_talk()}, config("t"))
        assert len(model.seen) == 2


def test_other_errors_go_through_untouched(middleware: FoldmarkMiddleware) -> None:
    error = ValueError("the model is ill")
    model = Scripted(reply=lambda _number, _talk: error)
    with pytest.raises(ValueError, match="ill") as raised:
        agent_of(model, middleware).invoke(asked("Go."), config("t"))
    assert raised.value is error
    assert len(model.seen) == 1
    assert not pivots(middleware, "t")


# --- streams, cancelled runs ---------------------------------------------------------------


def test_streams_go_on_and_show_no_word_of_a_summary(tmp_path: Path) -> None:
    def reply(number: int, talk: Talk) -> Said:
        if talk[0].content != "Be brief.":  # it is not the agent who asks
            return AIMessage(plausible_reply(ModelRequest(messages=())))
        names = ["read", "fail", "fail"]
        return called(number, *names) if number < 50 else AIMessage("All is ground.")

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
    assert "".join(pieces) == "All is ground."
    assert nodes == {"model", "tools", "FoldmarkMiddleware.after_agent"}


def test_async_streams_go_on(middleware: FoldmarkMiddleware) -> None:
    async def pieces() -> list[str]:
        model = Scripted(reply=lambda n, _: called(n, "read") if n < 20 else AIMessage("Ground."))
        stream = agent_of(model, middleware).astream(
            asked("Go."), config("t"), stream_mode="messages"
        )
        return [str(m.text) async for m, _ in stream if isinstance(m, AIMessage) and m.text]

    assert "".join(asyncio.run(pieces())) == "Ground."


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
        (held,) = middleware._pool._open.values()  # pyright: ignore[reportPrivateUsage]
        assert (held.name, held.is_lent, held.users) == ("t", False, 0)


def test_a_run_that_is_cancelled_while_a_summary_is_waited_for_gives_that_up(
    tmp_path: Path,
) -> None:
    async def work(middleware: FoldmarkMiddleware, model: GatedModel) -> None:
        agent = agent_of(Scripted(reply=steps(40)), middleware)
        running = asyncio.create_task(agent.ainvoke(asked("Go."), config("t")))
        assert await asyncio.to_thread(model.was_asked.wait, SOON)
        running.cancel()
        async with asyncio.timeout(SOON):  # its model never answers
            await asyncio.gather(running, return_exceptions=True)

    model = GatedModel()
    with opened(tmp_path, summarizer=model) as middleware:
        asyncio.run(work(middleware, model))
        with middleware.session("t") as session:
            assert session.pending() is None
            assert [act.state for act in session.operations() if act.kind == "pivot"] == ["failed"]
            assert session.compact("In short.") is not None


# --- options -------------------------------------------------------------------------------


def test_the_window_of_the_models_profile_is_used(tmp_path: Path) -> None:
    with FoldmarkMiddleware(tmp_path / "agent.db", output=OUTPUT, durable=False) as middleware:
        model = Scripted(reply=steps(40), profile={"max_input_tokens": WINDOW})
        agent_of(model, middleware).invoke(asked("Go."), config("t"))
        assert all(tokens_of(messages) < WINDOW for messages in model.seen)
        assert pivots(middleware, "t") >= 1


def test_the_agent_can_recall_and_search_what_it_is_no_longer_shown(tmp_path: Path) -> None:
    def use(name: str, call_id: str, **given: str) -> Any:
        return {"name": name, "args": given, "id": call_id}

    def reply(number: int, talk: Talk) -> Said:
        if number == 0:
            return called(0, "read", text="The quern stands still.")
        if number < 12:
            return called(number, "read", "read")
        if number > 12:
            return AIMessage("Done.")
        hidden = next(message for message in talk if isinstance(message, ToolMessage))
        handle = re.findall(r"\bh[0-9a-f]+\b", str(hidden.content))[-1]
        calls = [
            use("search", "s", query="quern"),
            use("recall", "r", handle=handle),
            use("recall", "n", handle="nonsense"),
        ]
        return AIMessage("", tool_calls=calls)

    with opened(tmp_path, memory=True) as middleware:
        agent = agent_of(Scripted(reply=reply), middleware)
        result = agent.invoke(asked("Go."), config("t"))["messages"]
    found = {held.tool_call_id: held for held in result if isinstance(held, ToolMessage)}
    assert "The quern stands still." in str(found["s"].content)
    assert str(found["r"].content) == str(found["c0.0"].content)
    assert found["n"].status == "error"


def test_sessions_of_two_agents_are_told_apart_by_a_prefix(tmp_path: Path) -> None:
    for prefix in ("mill.", "bakery."):
        with opened(tmp_path, prefix=prefix) as middleware:
            model = Scripted(reply=done)
            agent_of(model, middleware).invoke(asked("Go."), config("t"))
            assert len(model.seen[0]) == 2
            with middleware.session("t") as session:
                assert session.id == f"{prefix}t"


def test_a_session_is_not_named_by_hand(tmp_path: Path) -> None:
    with pytest.raises(foldmark.BadInput, match="prefix"):
        opened(tmp_path, session="one")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"window": -5}, "window is -5"),
        ({"window": "much"}, "window: expected"),
        ({"policy": "nonsense"}, "policy: .*nonsense"),
        ({"threshold": 7.5}, "threshold"),
        ({"windw": 5_000}, "did you mean 'window'"),
        ({"model": "nobody:knows-it"}, "no limits are known"),
        ({"summarizer": "gpt"}, "provider:model"),
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(
    tmp_path: Path, wrong: Any, told: str
) -> None:
    with pytest.raises(foldmark.FoldmarkError, match=told) as raised:
        FoldmarkMiddleware(tmp_path / "agent.db", **wrong)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_settings_of_all_kinds_are_taken(tmp_path: Path) -> None:
    more: Any = {"hooks": [], "fixed_tokens": 5, "tools": [], "system": "x", "summarizer": "agent"}
    opened(tmp_path, policy=FOLDMARK, **more)
    assert not list(tmp_path.iterdir())


def test_without_langchain_one_line_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "for name in ('langchain', 'langchain_core', 'langgraph'): sys.modules[name] = None\n"
        "from foldmark.adapters import langchain\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: this adapter needs LangChain")
    assert "pip install 'foldmark[langchain]'" in last
