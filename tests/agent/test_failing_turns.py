"""Turns that go wrong in the middle: nothing that was said or done is lost, nothing hangs."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.step import RetryPolicy
from foldmark.errors import BadInput, ModelFailed
from foldmark.model import events
from foldmark.model.messages import Failed, Message, SubtaskPart, TextPart, ToolPart
from foldmark.session.session import Session
from foldmark.summary.protocol import (
    DeltaHandler,
    ModelFailure,
    ModelRequest,
    Outcome,
    StepReply,
    TextHandler,
)
from foldmark.testing import ScriptedModel, call

AT_ONCE = RetryPolicy(retries=0, pause=0.0)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with foldmark.open(tmp_path / "agent.db", window=64_000) as opened_session:
        yield opened_session


def said(session: Session) -> list[str]:
    parts = (part for m in session.export().messages if m.is_user for part in m.parts)
    return [part.text for part in parts if isinstance(part, TextPart)]


def tools_of(message: Message) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


def add(one: int, other: int) -> int:
    """Add two numbers."""
    return one + other


class Exits(ScriptedModel):
    """A model whose code ends the program."""

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply | ModelFailure:
        del request, on_delta
        sys.exit(3)


def test_a_model_that_ends_the_program_does_not_hang_those_who_wait(session: Session):
    with pytest.raises(SystemExit):
        Agent(Exits("x"), titles=False).run("Work", session)
    assert Agent(ScriptedModel("Done."), titles=False).run("Again", session).text == "Done."


def test_a_subscriber_that_ends_the_program_is_told_in_the_log_alone(session: Session):
    session.subscribe(lambda _: sys.exit(3), [events.STEP_STARTED])
    assert Agent(ScriptedModel("Done."), titles=False).run("Work", session).text == "Done."


def test_what_is_said_while_the_title_is_made_is_answered(session: Session):
    class Slow(ScriptedModel):
        async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
            del request, on_text
            turn.say("And this?")
            return ModelFailure(cause="failed", message="no title")

    model = Slow("One.", "Two.")
    turn = Agent(model).turn("First", session)
    assert turn.run().text == "Two."
    assert said(session) == ["First", "And this?"]


def test_what_is_said_to_a_turn_that_ends_early_is_kept(session: Session):
    agent = Agent(
        ScriptedModel(call("add", one=1, other=1)), tools=[add], max_steps=1, titles=False
    )
    turn = agent.turn("First", session)
    session.subscribe(lambda _: turn.say("More"), [events.TOOL_STARTED])
    assert turn.run().ending == "steps"
    assert said(session) == ["First", "More"]
    with pytest.raises(BadInput, match="over"):
        turn.say("Too late")


def test_a_turn_is_used_once(session: Session):
    turn = Agent(ScriptedModel("Done."), titles=False).turn("Work", session)
    turn.run()
    with pytest.raises(BadInput, match="once"):
        turn.run()


def test_two_agents_do_not_work_in_one_session_at_the_same_time(session: Session):
    other = Agent(ScriptedModel("Other."), titles=False)

    async def meddle() -> str:
        """Let another agent work here."""
        with pytest.raises(BadInput, match="is running a turn"):
            await other.arun("Meddle", session)
        return "refused"

    agent = Agent(ScriptedModel(call("meddle"), "Done."), tools=[meddle], titles=False)
    assert agent.run("Work", session).text == "Done."
    (part,) = tools_of(session.export().messages[1])
    assert getattr(part.state, "output", "") == "refused"


def test_a_turn_that_fails_is_summed_up_and_told_of(tmp_path: Path, session: Session):
    published: list[object] = []
    session.subscribe(lambda event: published.append(event.data["ended"]), [events.TURN_FINISHED])
    model = ScriptedModel(call("add", one=1, other=1), ModelFailure(cause="failed", message="gone"))
    with pytest.raises(ModelFailed):
        Agent(model, tools=[add], retry=AT_ONCE).run("Fix the build", session)
    assert published == ["failed"]
    assert session.info.info.title == "Fix the build"


def test_what_a_sub_agent_cost_until_it_failed_counts(session: Session):
    dear = StepReply(parts=(call("add", one=1, other=1),), finish="tool-calls", cost=5.0)
    model = ScriptedModel(dear, ModelFailure(cause="failed", message="gone"))
    kid = Agent(model, tools=[add], name="kid", retry=AT_ONCE, titles=False)
    script = ScriptedModel(call("delegate", agent="kid", task="Add"))
    result = Agent(script, agents=[kid], max_cost=1.0, titles=False).run("Work", session)
    assert (result.ending, result.steps, result.cost) == ("cost", 1, 5.0)


def test_a_call_whose_input_was_cut_off_is_not_run(session: Session):
    ran: list[bool] = []

    def wipe(all: bool = True) -> str:  # noqa: A002, FBT001, FBT002 - a tool's own words
        """Wipe."""
        ran.append(all)
        return "wiped"

    truncated = StepReply(parts=(TextPart(text="I wipe."), call("wipe")), finish="length")
    Agent(ScriptedModel(truncated, "Oh."), tools=[wipe], titles=False).run("Wipe a bit", session)
    assert ran == []
    (part,) = tools_of(session.export().messages[1])
    assert isinstance(part.state, Failed)


def test_every_message_that_hands_something_on_is_looked_at(session: Session):
    model = ScriptedModel("Counted.")
    clerk = Agent(model, name="clerk", titles=False)
    turn = Agent(ScriptedModel("Done."), agents=[clerk], titles=False).turn(
        (SubtaskPart(agent="clerk", prompt="Count"),), session
    )
    turn.say("And tell me.")
    turn.run()
    assert len(model.requests) == 1


def test_many_calls_at_once_share_a_quarter_of_the_window(tmp_path: Path):
    def read_log(file: int) -> str:
        """Read a log."""
        return f"file {file} " + "error " * 5_000

    calls = [call("read_log", file=file) for file in range(60)]
    with foldmark.open(tmp_path / "small.db", window=16_000) as session:
        model = ScriptedModel(calls, "Done.", measured=True, window=16_000)
        Agent(model, tools=[read_log], titles=False).run("Read", session)
        assert session.operations() == []


def test_an_answer_of_nothing_after_results_ends_the_turn(session: Session):
    nothing = StepReply(parts=())
    model = ScriptedModel(["I add.", call("add", one=1, other=1)], nothing)
    agent = Agent(model, tools=[add], retry=RetryPolicy(retries=1, pause=0.0), titles=False)
    result = agent.run("Add", session)
    assert (result.ending, result.text) == ("stop", "I add.")
    assert Agent(ScriptedModel("Yes."), titles=False).run("Done?", session).text == "Yes."


@pytest.mark.parametrize("when", [events.STEP_FINISHED, events.TOOL_STARTED, events.TOOL_FINISHED])
@pytest.mark.parametrize("times", [1, 3])
def test_a_cancel_at_any_moment_leaves_no_call_open(when: str, times: int, session: Session):
    async def slow() -> str:
        """Take time, also to end."""
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
        return "slow"

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()
        model = ScriptedModel([call("slow"), call("add", one=1, other=1)], "Done.")
        task = asyncio.create_task(Agent(model, tools=[slow, add], titles=False).arun("W", session))

        def cancel(_: foldmark.Event) -> None:
            for number in range(times):
                loop.call_soon_threadsafe(loop.call_later, 0.05 * number, task.cancel)

        session.subscribe(cancel, [when])
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert session.open_calls() == []


def test_many_turns_that_fold_first_do_not_starve_each_other(tmp_path: Path):
    class Looks(ScriptedModel):
        """A model that needs a thread of the loop's own."""

        async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
            return await super().ask(request, on_text)

    def worked(number: int) -> None:
        with foldmark.open(tmp_path / f"{number}.db", window=64_000) as session:
            session.user("word " * 20_000)
            session.record("Yes.")
            small = Looks("Done.", name=f"scripted:{number}", summaries="## Goal\nto read_log")
            agent = Agent(small, window=16_000, titles=False)
            endings.append(agent.run("Go on", session).text)

    endings: list[str] = []
    threads = [threading.Thread(target=worked, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert endings == ["Done."] * 12
