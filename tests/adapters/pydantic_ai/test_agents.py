"""Foldmark as a capability of pydantic-ai agents."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    repair_messages,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import UsageLimits

import foldmark
from foldmark.adapters.pydantic_ai import Foldmark
from foldmark.model.messages import AssistantInfo
from foldmark.session.session import Session
from tests.support.scripted_pydantic_ai import (
    TOO_LONG,
    WINDOW,
    Script,
    check_pairs,
    equipped,
    own_loop,
    texts_of,
)

SOON = 15.0  # seconds: no more than a bound
ENDLESS = UsageLimits(request_limit=None)
SYSTEM, INSTRUCTIONS = "You are careful.", "Answer briefly."


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    with own_loop():
        yield


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Foldmark]:
    with opened(tmp_path) as foldmark_memory:
        yield foldmark_memory


def opened(folder: Path, window: int = WINDOW, **more: Any) -> Foldmark:
    return Foldmark(folder / "agent.db", window=window, output=400, durable=False, **more)


def agent_of(script: Script, *memory: Any) -> Agent[Any, str]:
    return equipped(
        Agent(
            script.model(), system_prompt=SYSTEM, instructions=INSTRUCTIONS, capabilities=[*memory]
        )
    )


def session(folder: Path, name: str) -> Session:
    return foldmark.open(folder / "agent.db", session=name, window=WINDOW)


def answers(stored: Session) -> int:
    """The number of model responses in a session, visible or summarized."""
    infos = [message.info for message in stored.export().messages]
    return sum(isinstance(info, AssistantInfo) and not info.summary for info in infos)


def pivots(stored: Session) -> int:
    return sum(act.kind == "pivot" for act in stored.operations())


def again(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The same messages, loaded from JSON."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def check_standing(requests: list[list[ModelMessage]]) -> None:
    """Check that every request starts with the system prompt, and has it once."""
    for request in requests:
        prompts = [
            part
            for message in request
            for part in message.parts
            if isinstance(part, SystemPromptPart)
        ]
        assert [part.content for part in prompts] == [SYSTEM]
        assert request[0].parts[0] is prompts[0]


# --- long runs -------------------------------------------------------------------------------


def test_200_steps_never_overflow_and_the_history_stays_whole(
    memory: Foldmark, tmp_path: Path
) -> None:
    script = Script(steps=100)
    agent = agent_of(script, memory)
    first = agent.run_sync("Look at everything.", conversation_id="long", usage_limits=ENDLESS)
    result = agent.run_sync(
        "And once more.", message_history=first.all_messages(), usage_limits=ENDLESS
    )
    assert len(script.requests) == 200
    check_standing(script.requests)
    messages = result.all_messages()
    assert len(messages) == 400
    check_pairs(messages[:-1])
    other = agent_of(Script(steps=100, window=10**9))  # without us
    expected = other.run_sync("Look at everything.", usage_limits=ENDLESS)
    assert texts_of(first.all_messages()) == texts_of(expected.all_messages())
    assert "Look at everything." in texts_of(script.requests[-1])
    memory.close()
    with session(tmp_path, "long") as stored:
        assert pivots(stored) >= 2
        assert answers(stored) == 200
        assert stored.search("src/2_0")


def test_a_restart_with_the_frameworks_own_history_adds_nothing_twice(tmp_path: Path) -> None:
    script, history = Script(steps=12), list[ModelMessage]()
    for run in range(5):
        with opened(tmp_path) as memory:
            agent = agent_of(script, memory)
            result = agent.run_sync(
                f"Request {run}.", message_history=again(history), conversation_id="ticket"
            )
            history = result.all_messages()
    assert len(history) == 5 * 24
    check_standing(script.requests)
    with session(tmp_path, "ticket") as stored:
        assert answers(stored) == 60
        assert all(act.kind in ("prune", "pivot") for act in stored.operations())


def test_a_history_taken_back_takes_the_session_back(memory: Foldmark, tmp_path: Path) -> None:
    script = Script(steps=2)
    agent = agent_of(script, memory)
    first = agent.run_sync("Begin.", conversation_id="back")
    agent.run_sync("A wrong turn.", message_history=first.all_messages())
    agent.run_sync("The right turn.", message_history=first.all_messages())
    text = texts_of(script.requests[-1])
    assert "Begin." in text
    assert "wrong" not in text
    memory.close()
    with session(tmp_path, "back") as stored:
        assert stored.search("wrong turn")  # nothing was lost


def test_an_unanswered_call_before_a_users_message_harms_nobody(memory: Foldmark) -> None:
    script = Script(steps=2)
    history: list[ModelMessage] = [
        ModelRequest.user_text_prompt("Go."),
        ModelResponse(parts=[ToolCallPart("read", {"path": "a"}, "one")]),
    ]
    agent_of(script, memory).run_sync("Stop, do this.", message_history=repair_messages(history))
    assert "Stop, do this." in texts_of(script.requests[0])


# --- refusals --------------------------------------------------------------------------------


def refusal() -> Exception:
    return ModelHTTPError(400, "gpt", {"error": TOO_LONG})


def test_with_auto_off_a_refusal_is_the_callers(tmp_path: Path) -> None:
    with opened(tmp_path, auto=False) as memory:
        script = Script(steps=3)
        script.refusals = [refusal()]
        with pytest.raises(ModelHTTPError):
            agent_of(script, memory).run_sync("Go.")


# --- ways to run -----------------------------------------------------------------------------


def test_events_and_nodes_of_a_run_come_as_ever(memory: Foldmark, tmp_path: Path) -> None:
    async def work() -> None:
        script = Script(steps=12)
        agent = agent_of(script, memory)
        async with agent.run_stream_events("Go.", conversation_id="events") as events:
            kinds = [event.event_kind async for event in events]
        assert kinds.count("function_tool_result") == script.calls
        assert kinds[-1] == "agent_run_result"
        async with agent.iter("On.", conversation_id="events") as run:
            async for _ in run:
                if len(script.requests) == 18:
                    break  # it is left early
        await agent.run("Again.", conversation_id="events")

    asyncio.run(work())
    memory.close()
    with session(tmp_path, "events") as stored:
        assert answers(stored) == 12 + 6 + 6
        assert stored.operations()


def test_runs_of_one_conversation_at_once_do_not_mix(memory: Foldmark) -> None:
    async def work() -> None:
        one, two = Script(steps=8, seed=1), Script(steps=8, seed=2)
        await asyncio.gather(
            agent_of(one, memory).run("First.", conversation_id="same"),
            agent_of(two, memory).run("Second.", conversation_id="same"),
        )
        assert "Second." not in texts_of(one.requests[-1])
        assert "First." not in texts_of(two.requests[-1])

    asyncio.run(work())


def test_a_sub_agent_has_a_session_of_its_own(memory: Foldmark) -> None:
    inner = Script(steps=4)
    helper = agent_of(inner, memory)
    outer = Agent(
        FunctionModel(
            lambda messages, _: ModelResponse(
                parts=[ToolCallPart("ask", {})] if len(messages) == 1 else [TextPart("Well.")]
            )
        ),
        capabilities=[memory],
    )

    @outer.tool_plain
    async def ask() -> str:  # pyright: ignore[reportUnusedFunction]
        return (await helper.run("The inner task.")).output

    assert outer.run_sync("The outer task.").output == "Well."
    assert "outer" not in texts_of(inner.requests[-1])


def test_a_session_is_named_by_who_asks(tmp_path: Path) -> None:
    def name_session(ctx: RunContext[str]) -> str:
        return f"user-{ctx.deps}"

    with opened(tmp_path, session=name_session) as memory:
        agent = Agent(Script(steps=1).model(), deps_type=str, capabilities=[memory])
        agent.run_sync("I am Ann.", deps="ann")
        agent.run_sync("I am Bob.", deps="bob")
    with session(tmp_path, "user-ann") as stored:
        assert stored.search("Ann")
        assert not stored.search("Bob")


def test_the_models_own_window_is_used(tmp_path: Path) -> None:
    script = Script(steps=40)
    model = FunctionModel(script.answer, profile={"context_window": WINDOW})
    with Foldmark(tmp_path / "agent.db") as memory:
        equipped(Agent(model, capabilities=[memory])).run_sync("Go.", conversation_id="own")
    with session(tmp_path, "own") as stored:
        assert pivots(stored) >= 1


# --- what stands in every request -------------------------------------------------------------


def today(day: int) -> Callable[[], str]:
    return lambda: f"Today is day {day}."


def test_a_system_prompt_that_changes_is_the_latest_and_moves_nothing(tmp_path: Path) -> None:
    script, history = Script(steps=6), list[ModelMessage]()
    for run in range(5):
        with opened(tmp_path) as memory:
            agent = equipped(Agent(script.model(), capabilities=[memory]))

            agent.system_prompt(dynamic=True)(today(run))
            result = agent.run_sync(f"Request {run}.", message_history=history or None)
            history = again(result.all_messages())
    for number, request in enumerate(script.requests):
        assert texts_of(request).count("Today is") == 1
        assert f"Today is day {number // 6}." in texts_of(request[:1])
    name = history[0].conversation_id
    assert name
    with session(tmp_path, name) as stored:
        assert answers(stored) == 30


def test_a_tool_that_was_found_stays_after_a_fold(memory: Foldmark, tmp_path: Path) -> None:
    offered: list[bool] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        names = [tool.name for tool in info.function_tools]
        offered.append("weigh" in names)
        if len(offered) == 1:
            return ModelResponse(parts=[ToolCallPart("search_tools", {"queries": ["weigh"]}, "s")])
        if len(offered) < 40:
            calls = [ToolCallPart("read", {"path": f"{len(offered)}_{n}"}) for n in range(3)]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("Done.")])

    model = FunctionModel(answer, profile={"supported_native_tools": frozenset()})
    agent = equipped(Agent(model, capabilities=[memory]))

    @agent.tool_plain(defer_loading=True)
    def weigh(thing: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Weigh a thing."""
        return thing

    agent.run_sync("Go.", conversation_id="found", usage_limits=ENDLESS)
    assert all(offered[1:])
    memory.close()
    with session(tmp_path, "found") as stored:
        assert pivots(stored) >= 1


def test_a_rejected_output_is_asked_for_again(memory: Foldmark) -> None:
    script = Script(steps=1)
    agent = agent_of(script, memory)

    @agent.output_validator
    def check(output: str) -> str:  # pyright: ignore[reportUnusedFunction]
        if len(script.requests) < 2:
            raise ModelRetry("Not yet.")
        return output

    agent.run_sync("Go.")
    assert "Not yet." in texts_of(script.requests[1])


# --- around it ---------------------------------------------------------------------------------
