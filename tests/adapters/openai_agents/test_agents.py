"""Foldmark as a session of OpenAI's Agents SDK, in the SDK itself."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    MaxTurnsExceeded,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from agents.memory import Session as SdkSession
from agents.run_config import CallModelData, ModelInputData

import foldmark
from foldmark.adapters.openai_agents import FoldmarkSession
from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo
from foldmark.tokens.counters import counter
from tests.support.scripted_openai_agents import (
    WINDOW,
    Scripted,
    agent,
    asked,
    bare,
    called,
    gave,
    kinds,
    look,
    opened,
    ran,
    said,
    works,
)

set_tracing_disabled(disabled=True)
ROOT = Path(__file__).parents[3]
Json = dict[str, Any]


def text_of(item: Json) -> str:
    fields = [item.get("arguments"), item.get("output"), item.get("content")]
    return "".join(part if isinstance(part, str) else json.dumps(part) for part in fields if part)


def within(session: FoldmarkSession) -> Callable[[list[Json]], None]:
    """A check that a request fits, by the session's count and by ours."""
    count = counter(session.session.policy.estimate)

    def check(items: list[Json]) -> None:
        assert session.session.tokens <= session.session.usable
        assert sum(count(text_of(item)) for item in items) <= WINDOW

    return check


# --- long work --------------------------------------------------------------------------------


def test_a_run_that_has_too_many_turns_is_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        worker = agent(session.model(Scripted(works(24))))
        with pytest.raises(MaxTurnsExceeded):
            asyncio.run(ran(worker, session, max_turns=3))
        assert len(asyncio.run(session.get_items())) >= 6


# --- restarts ---------------------------------------------------------------------------------


def test_a_history_that_the_program_keeps_is_followed_without_a_session(tmp_path: Path) -> None:
    model = Scripted(works(9))
    history: list[Any] = []
    stored: list[Any] = []
    for run in range(8):
        with opened(tmp_path) as session:
            model.look = within(session)
            worker = agent(session.model(model))
            items: list[Any] = [*history, asked(f"Request {run}")]
            result = asyncio.run(Runner.run(worker, items, run_config=session.run_config()))
            history = json.loads(json.dumps(result.to_input_list()))
            stored = asyncio.run(session.get_items())
            assert not session._others  # pyright: ignore[reportPrivateUsage]
    # The last answer is told with what comes next.
    assert stored == history[: len(stored)]
    assert len(history) - len(stored) == 1


def test_it_goes_along_with_blocking_runs(
    tmp_path: Path, default_loop: asyncio.AbstractEventLoop
) -> None:
    model = Scripted(works(2))
    with opened(tmp_path) as session:
        for _ in range(2):
            result = Runner.run_sync(
                agent(session.model(model)), "Go", session=session, run_config=session.run_config()
            )
            assert result.final_output
        items = default_loop.run_until_complete(session.get_items())
        assert sum(item == asked("Go") for item in items) == 2


@pytest.fixture
def default_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop that `run_sync` uses and leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


# --- what the SDK does with a session -------------------------------------------------------------


def test_it_is_a_session_of_the_sdk(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        assert isinstance(session, SdkSession)


def test_no_item_is_doubled_streaming_or_not(tmp_path: Path) -> None:
    asyncio.run(not_doubled(tmp_path))


async def not_doubled(folder: Path) -> None:
    model = Scripted(works(3))
    with opened(folder, window=100_000) as session:
        worker = agent(session.model(model))
        for streamed in (True, False, True, False):
            await ran(worker, session, streamed=streamed)
        items = await session.get_items()
        assert sum(item == asked("Go") for item in items) == 4
        calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
        assert len(calls) == len(set(calls))
        assert model.seen[-1] == [bare(item) for item in items[:-1]]
        assert not kinds(session)


def test_an_item_that_is_taken_back_is_hidden_and_not_lost(tmp_path: Path) -> None:
    asyncio.run(taken_back(tmp_path))


async def taken_back(folder: Path) -> None:
    items = [asked("Go"), called("a"), called("b"), gave("a", "one"), gave("b", "two, mislaid")]
    with opened(folder) as session:
        await session.add_items(list(items))
        assert await session.get_items(limit=2) == items[3:]
        assert await session.get_items(limit=99) == items
        for count in range(4, -1, -1):
            assert await session.pop_item() == items[count]
            assert await session.get_items() == items[:count]
        assert await session.pop_item() is None
        assert session.session.search("mislaid")
        await session.add_items(items[:3])
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items([asked("Again")])
    with opened(folder) as session:
        assert await session.get_items() == [asked("Again")]
        model = Scripted(lambda _: [said("Yes.")])
        await ran(agent(session.model(model)), session)
        assert model.seen == [[asked("Again"), asked("Go")]]


def test_another_agent_takes_over_in_the_same_session(tmp_path: Path) -> None:
    other = Scripted(works(9))
    first = Scripted(lambda _: [called("over", tool="transfer_to_second")])
    with opened(tmp_path) as session:
        second = Agent(name="second", model=session.model(other), tools=[look])
        worker = agent(session.model(first), handoffs=[second])
        asyncio.run(ran(worker, session))
        assert not session._others  # pyright: ignore[reportPrivateUsage]
        assert session.session.system == ""
        assert any(item.get("call_id") == "over" for item in other.seen[0])


@pytest.mark.parametrize("words", ["Look there", "Go"])
def test_an_agent_inside_an_agent_has_a_session_of_its_own(tmp_path: Path, words: str) -> None:
    inner = Scripted(works(15))
    outer = Scripted(
        lambda number: (
            [called("ask", json.dumps({"input": words}), tool="helper")]
            if number == 1
            else [said("Well.")]
        )
    )
    with opened(tmp_path) as session:
        model = session.model(inner)
        helper = agent(model).as_tool(tool_name="helper", tool_description="Help.", max_turns=40)
        worker = Agent(name="outer", model=session.model(outer), tools=[helper])
        assert asyncio.run(ran(worker, session)) == "Well."
        assert inner.seen[0] == [asked(words)]
        assert len(inner.seen) == 16
        assert max(len(str(seen)) for seen in inner.seen) < WINDOW * 6
        stored = asyncio.run(session.get_items())
        assert [item.get("type") for item in stored] == [
            None,
            "function_call",
            "function_call_output",
            "message",
        ]
        assert not kinds(session)
        others = session._others  # pyright: ignore[reportPrivateUsage]
        assert [other.session.info.info.parent_id for other in others] == ["one"]


def test_what_the_program_leaves_out_stays_out(tmp_path: Path) -> None:
    def without_first(data: CallModelData[Any]) -> ModelInputData:
        model_data = data.model_data
        return ModelInputData(input=model_data.input[1:], instructions=model_data.instructions)

    model = Scripted(lambda _: [said("Yes.")])
    with opened(tmp_path) as session:
        asyncio.run(session.add_items([asked("Secret"), said("No.")]))
        worker = agent(session.model(model))
        filtered = RunConfig(call_model_input_filter=without_first)
        asyncio.run(ran(worker, session, config=filtered))
        assert model.seen[-1][-2:] == [said("No."), asked("Go")]
        assert "Secret" not in str(model.seen[-1])
        limited = RunConfig(session_settings=SessionSettings(limit=1))
        asyncio.run(ran(worker, session, "And?", config=limited))
        assert model.seen[-1][-2:] == [said("Yes."), asked("And?")]
        assert "No." not in str(model.seen[-1])
        assert len(asyncio.run(session.get_items())) == 6


def test_what_was_measured_is_noted(tmp_path: Path) -> None:
    model = Scripted(lambda _: [said("Yes.")])
    model.usage = Usage(requests=1, input_tokens=900, output_tokens=30, total_tokens=930)
    with opened(tmp_path) as session:
        asyncio.run(ran(agent(session.model(model)), session))
        answer = session.session.export().messages[-1].info
        assert isinstance(answer, AssistantInfo)
        assert answer.tokens
        assert answer.tokens.total == 930
        assert session.session.system == "Be brief."
        assert [tool.name for tool in session.session.tools] == ["look"]
        assert session.session.fixed_tokens > 10


def test_a_history_that_the_provider_keeps_is_another_way(tmp_path: Path) -> None:
    model = Scripted(lambda _: [said("Yes.")])
    with opened(tmp_path) as session:
        worker = agent(session.model(model))
        with pytest.raises(BadInput, match="remove previous_response_id"):
            asyncio.run(
                Runner.run(
                    worker, "Go", run_config=session.run_config(), previous_response_id="resp_9"
                )
            )
    assert not model.seen


def test_a_run_that_waits_for_approval_goes_on_in_another_process(tmp_path: Path) -> None:
    asyncio.run(approved(tmp_path))


async def approved(folder: Path) -> None:
    @function_tool(needs_approval=True)
    def remove(name: str) -> str:
        """Remove something."""
        return f"{name} is gone"

    calls = [called("a", '{"n": 1}'), called("b", '{"name": "x"}', tool="remove")]
    model = Scripted(lambda number: calls if number == 1 else [said("Well.")])
    with opened(folder) as session:
        worker = Agent(name="worker", model=session.model(model), tools=[look, remove])
        first = await Runner.run(worker, "Go", session=session, run_config=session.run_config())
        assert len(first.interruptions) == 1
        state = first.to_state().to_json()
    with opened(folder) as session:
        worker = Agent(name="worker", model=session.model(model), tools=[look, remove])
        resumed = await RunState.from_json(worker, state)
        resumed.approve(resumed.get_interruptions()[0])
        last = await Runner.run(worker, resumed, session=session, run_config=session.run_config())
        assert last.final_output == "Well."
        names = [item.get("call_id") for item in await session.get_items()]
        assert sorted(name for name in names if name) == ["a", "a", "b", "b"]
        assert "x is gone" in str(model.seen[-1])


# --- around it --------------------------------------------------------------------------------


def test_the_store_can_be_opened_without_the_sdk(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        asyncio.run(session.add_items([asked("Remember 17."), said("Yes.")]))
    with foldmark.open(tmp_path / "agent.db", session="one", window=WINDOW) as plain:
        items = plain.messages("openai-responses")
        assert [item["role"] for item in items] == ["user", "assistant"]
