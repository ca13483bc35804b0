"""The loop: turns of a scripted model with real sessions and real tools."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.step import RetryPolicy
from foldmark.errors import BadInput, BadPolicy, ModelFailed
from foldmark.model import events
from foldmark.model.messages import (
    AssistantInfo,
    Failed,
    Message,
    ReasoningPart,
    RetryPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.prompt_messages import ToolMessage, UserMessage
from foldmark.session.session import Session
from foldmark.summary.protocol import STEP, ModelFailure, ModelRequest, StepReply
from foldmark.testing import ScriptedModel, call, thought

WINDOW = 64_000
AT_ONCE = RetryPolicy(retries=2, pause=0.0)


def opened(folder: Path, **more: Any) -> Session:
    options: dict[str, Any] = {"window": WINDOW, **more}
    return foldmark.open(folder / "agent.db", **options)


def steps_of(model: ScriptedModel) -> list[ModelRequest]:
    return [ask for ask in model.requests if ask.purpose == STEP]


def tools_of(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other


def test_a_turn_calls_tools_until_the_model_has_the_last_word(tmp_path: Path):
    model = ScriptedModel(call("add", one=2, other=3), "It is 5.", measured=True)
    with opened(tmp_path) as session:
        result = Agent(model, tools=[add]).run("What is 2 + 3?", session)
        assert (result.text, result.ending, result.steps) == ("It is 5.", "stop", 2)
        assert result.tokens.input
        messages = session.export().messages
    assert [message.is_user for message in messages] == [True, False, False]
    (part,) = tools_of(messages[1])
    assert getattr(part.state, "output", None) == "5"
    assert isinstance(steps_of(model)[1].messages[-1], ToolMessage)


def test_calls_with_the_same_id_are_told_apart(tmp_path: Path):
    same = tuple(
        replace(call("add", one=number, other=1), call_id="c", id=UNSET) for number in (1, 2)
    )
    with opened(tmp_path) as session:
        Agent(ScriptedModel(same, "Two and three."), tools=[add]).run("Add.", session)
        parts = tools_of(session.export().messages[1])
    assert [getattr(part.state, "output", None) for part in parts] == ["2", "3"]
    assert len({part.call_id for part in parts}) == 2


def test_each_step_has_its_beginning_its_end_and_what_it_cost(tmp_path: Path):
    parts = (thought("Hm."), "I add.", call("add", one=1, other=1))
    model = ScriptedModel(parts, "Two.", measured=True)
    with opened(tmp_path) as session:
        Agent(model, tools=[add], name="adder").run("1 + 1?", session)
        answer = session.export().messages[1]
    kinds = [type(part) for part in answer.parts]
    assert kinds == [StepStartPart, ReasoningPart, TextPart, ToolPart, StepFinishPart]
    finish = answer.parts[-1]
    assert isinstance(finish, StepFinishPart)
    assert finish.reason == "tool-calls"
    assert finish.tokens
    assert isinstance(answer.info, AssistantInfo)
    assert (answer.info.agent, answer.info.finish) == ("adder", "tool-calls")


def test_calls_of_one_answer_run_at_the_same_time(tmp_path: Path):
    together = threading.Barrier(3, timeout=30)

    def meet(name: str) -> str:
        """Meet the others."""
        together.wait()
        return name

    model = ScriptedModel([call("meet", name=name) for name in "abc"], "All met.")
    with opened(tmp_path) as session:
        assert Agent(model, tools=[meet]).run("Meet.", session).text == "All met."
        parts = tools_of(session.export().messages[1])
    assert [getattr(part.state, "output", None) for part in parts] == ["a", "b", "c"]


def test_a_throttled_request_is_sent_again_and_that_is_told(tmp_path: Path):
    busy = ModelFailure(cause="throttled", message="slow down", retry_after=0.0)
    model = ScriptedModel(busy, busy, "There.")
    kinds: list[str] = []
    with opened(tmp_path) as session:
        session.subscribe(
            lambda event: kinds.append(str(event.data["cause"])), [events.STEP_RETRIED]
        )
        Agent(model, retry=AT_ONCE).run("Hello", session)
        parts = session.export().messages[1].parts
    assert kinds == ["throttled", "throttled"]
    assert sum(isinstance(part, RetryPart) for part in parts) == 2


def test_a_model_that_never_answers_is_a_typed_error_and_the_session_goes_on(tmp_path: Path):
    model = ScriptedModel(ModelFailure(cause="failed", message="no route"))
    with opened(tmp_path) as session:
        with pytest.raises(ModelFailed, match="no route"):
            Agent(model, retry=AT_ONCE).run("Hello", session)
        assert len(steps_of(model)) == 3
        result = Agent(ScriptedModel("Hello again.")).run(session=session)
    assert result.text == "Hello again."


def test_an_answer_of_nothing_is_asked_for_again(tmp_path: Path):
    model = ScriptedModel(
        StepReply(parts=()), StepReply(parts=(TextPart(text=" \n"),)), "Something."
    )
    with opened(tmp_path) as session:
        assert Agent(model, retry=AT_ONCE).run("Say something", session).text == "Something."


def test_what_a_provider_finds_too_long_is_folded_and_sent_once_more(tmp_path: Path):
    long = "grain " * 2_000

    def read_log() -> str:
        """Read a log."""
        return long

    replies = [call("read_log") for _ in range(4)]
    model = ScriptedModel(*replies, "Ground.", measured=True, window=6_000)
    with opened(tmp_path, window=200_000) as session:
        result = Agent(model, tools=[read_log]).run("Read it all", session)
        pivots = [act for act in session.operations() if act.kind == "pivot" and act.in_force]
        assert pivots
        assert result.text == "Ground."


def test_a_provider_that_finds_everything_too_long_is_asked_twice_and_no_more(tmp_path: Path):
    model = ScriptedModel(ModelFailure(cause="overflow", message="too long"))
    with opened(tmp_path) as session, pytest.raises(foldmark.FoldmarkError):
        Agent(model, titles=False).run("word " * 3_000, session)
    assert len(steps_of(model)) <= 2


def test_without_auto_nothing_is_folded_though_it_is_too_long(tmp_path: Path):
    model = ScriptedModel(ModelFailure(cause="overflow", message="too long"))
    with opened(tmp_path, auto=False) as session:
        with pytest.raises(ModelFailed, match="too long"):
            Agent(model).run("Hello", session)
        assert session.operations() == []


def test_the_window_is_kept_while_a_turn_goes_on(tmp_path: Path):
    def read_log(number: int) -> str:
        """Read a log."""
        return f"file {number}: " + "error " * 1_500

    replies = [
        (f"I take file {number}. " * 150, call("read_log", number=number)) for number in range(30)
    ]
    model = ScriptedModel(*replies, "All ground.", measured=True, window=16_000)
    with opened(tmp_path, window=16_000) as session:
        result = Agent(model, tools=[read_log]).run("Read thirty files", session)
        kinds = {act.kind for act in session.operations()}
        assert "pivot" in kinds
        assert session.recall(session.search("file 3")[0].handle)
    assert (result.text, result.steps) == ("All ground.", 31)


def test_a_queued_compaction_comes_before_the_next_step(tmp_path: Path):
    model = ScriptedModel("One.", "Two.")
    with opened(tmp_path) as session:
        agent = Agent(model, titles=False)
        agent.run("word " * 4_000, session)
        session.queue(instructions="the words")
        agent.run("And now?", session)
        assert session.pending() is None
        assert [act.kind for act in session.operations()] == ["pivot"]
        purposes = [ask.purpose for ask in model.requests]
    assert purposes == ["step", "summary", "step"]


def test_what_is_said_meanwhile_is_answered_before_the_turn_ends(tmp_path: Path):
    model = ScriptedModel("One.", "Two.")
    with opened(tmp_path) as session:
        agent = Agent(model, titles=False)
        turn = agent.turn("First", session)
        spoken = threading.Event()

        def more(_: foldmark.Event) -> None:
            if not spoken.is_set():
                spoken.set()
                turn.say("Second")

        session.subscribe(more, [events.STEP_STARTED])
        result = turn.run()
        users = [m.parts[0] for m in session.export().messages if m.is_user]
    assert result.text == "Two."
    assert [part.text for part in users if isinstance(part, TextPart)] == ["First", "Second"]
    last = steps_of(model)[1].messages[-1]
    assert isinstance(last, UserMessage)


def test_steps_and_dollars_are_bounded(tmp_path: Path):
    dear = StepReply(parts=(call("add", one=1, other=1),), finish="tool-calls", cost=0.5)
    with opened(tmp_path) as session:
        result = Agent(ScriptedModel(dear), tools=[add], max_steps=3).run("Add", session)
        assert (result.ending, result.steps, result.cost) == ("steps", 3, 1.5)
        result = Agent(ScriptedModel(dear), tools=[add], max_cost=1.0).run("Add", session)
        assert (result.ending, result.steps) == ("cost", 2)
    with pytest.raises(BadPolicy):
        Agent(ScriptedModel(""), max_steps=0)


def _aborted_when(kind: str, model: ScriptedModel, tmp_path: Path, *tools: Callable[..., object]):
    with opened(tmp_path) as session:
        turn = Agent(model, tools=tools, titles=False).turn("Work", session)
        session.subscribe(lambda _: turn.abort(), [kind])
        result = turn.run()
        return result, session.export().messages


def test_an_abort_while_the_model_speaks_keeps_what_it_said(tmp_path: Path):
    model = ScriptedModel("I begin with the first of many words. " * 40, delay=20)
    result, messages = _aborted_when(events.STEP_DELTA, model, tmp_path)
    assert result.ending == "aborted"
    assert "I begin" in result.text
    assert isinstance(messages[1].info, AssistantInfo)
    assert messages[1].info.error["name"] == "MessageAbortedError"


def test_an_abort_while_a_tool_runs_closes_its_call(tmp_path: Path):
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(600)
        return "slept"

    result, messages = _aborted_when(
        events.TOOL_STARTED, ScriptedModel(call("sleep"), "Done."), tmp_path, sleep
    )
    assert result.ending == "aborted"
    (part,) = tools_of(messages[1])
    assert isinstance(part.state, Failed)
    assert "Cut off" in part.state.error


def test_a_cancelled_turn_closes_its_calls_too(tmp_path: Path):
    async def sleep() -> str:
        """Sleep."""
        await asyncio.sleep(600)
        return "slept"

    async def cancelled(session: Session) -> None:
        started = asyncio.Event()
        loop = asyncio.get_running_loop()
        session.subscribe(
            lambda _: loop.call_soon_threadsafe(started.set) and None, [events.TOOL_STARTED]
        )
        agent = Agent(ScriptedModel(call("sleep")), tools=[sleep], titles=False)
        turn = asyncio.create_task(agent.arun("Sleep", session))
        await started.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn

    with opened(tmp_path) as session:
        asyncio.run(cancelled(session))
        assert session.open_calls() == []


def test_a_session_goes_on_after_its_process_died_in_the_middle(tmp_path: Path):
    with opened(tmp_path) as session:
        session.user("Work")
        session.record((call("add", one=1, other=2),))  # and no more was heard of it
        model = ScriptedModel("It was cut off.")
        result = Agent(model, tools=[add]).run(session=session)
        assert session.open_calls() == []
        (part,) = tools_of(session.export().messages[1])
    assert result.text == "It was cut off."
    assert isinstance(part.state, Failed)
    assert len([m for m in steps_of(model)[0].messages if isinstance(m, ToolMessage)]) == 1


def test_an_empty_session_needs_words(tmp_path: Path):
    with opened(tmp_path) as session, pytest.raises(BadInput, match="empty"):
        Agent(ScriptedModel("Hm?")).run(session=session)


def test_a_session_has_one_turn_at_a_time(tmp_path: Path):
    with opened(tmp_path) as session:

        async def again() -> str:
            """Try to work in the same session."""
            with pytest.raises(BadInput, match="is running a turn"):
                await agent.arun("Again", session)
            return "refused"

        agent = Agent(ScriptedModel(call("again"), "Done."), tools=[again], titles=False)
        agent.run("Once", session)
        (part,) = tools_of(session.export().messages[1])
        assert getattr(part.state, "output", None) == "refused"


def test_titles_are_the_models_or_the_first_words(tmp_path: Path):
    with opened(tmp_path) as session:
        Agent(ScriptedModel("Done.", summaries="Fix the build")).run("Please mend it", session)
        info = session.export().messages[0].info
        assert session.info.info.title == "Fix the build"
        assert isinstance(info, UserInfo)
        assert info.summary["title"] == "Fix the build"
    with opened(tmp_path) as session:
        failing = ScriptedModel("Done.", summaries=ModelFailure(cause="failed", message="no"))
        Agent(failing).run("Please  mend\nit", session)
        assert session.info.info.title == "Please mend it"


def test_the_async_form_does_the_same(tmp_path: Path):
    async def worked() -> str:
        with opened(tmp_path) as session:
            model = ScriptedModel(call("add", one=2, other=3), "It is 5.")
            return (await Agent(model, tools=[add]).arun("2 + 3?", session)).text

    assert asyncio.run(worked()) == "It is 5."
