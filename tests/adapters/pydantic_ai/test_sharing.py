"""Agents of pydantic-ai with changing histories, and several agents on one conversation."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr, model_serializer
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import foldmark
from foldmark.adapters.pydantic_ai import Foldmark
from foldmark.model.prompt_messages import Text
from tests.support.scripted_pydantic_ai import own_loop, said


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    with own_loop():
        yield


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Foldmark]:
    with opened(tmp_path) as foldmark_memory:
        yield foldmark_memory


def opened(folder: Path, **more: Any) -> Foldmark:
    options: dict[str, Any] = {"window": 6_000, "durable": False, "wait_seconds": 2, **more}
    return Foldmark(folder / "agent.db", **options)


class Echo:
    """A model that numbers its answers and records the texts of each request."""

    def __init__(self, before: Callable[[], Any] | None = None) -> None:
        self.requests: list[list[str]] = []
        self._before = before  # awaited while it thinks

    async def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.requests.append(words(messages))
        if self._before is not None:
            await self._before()
        return ModelResponse(parts=[TextPart(f"a{len(self.requests)}")])

    def agent(self, *capabilities: Any, **more: Any) -> Agent[None, str]:
        return Agent(FunctionModel(self.answer), capabilities=[*capabilities], **more)


def words(messages: list[ModelMessage]) -> list[str]:
    return [text for message in messages for part in message.parts for text in said(part)]


def stored(folder: Path, name: str) -> list[str]:
    """The texts of a session's view."""
    with foldmark.open(folder / "agent.db", session=name) as session:
        blocks = [block for message in session.messages() for block in message.content]
        return [block.text for block in blocks if isinstance(block, Text)]


def talk(*texts: str) -> list[ModelMessage]:
    """A history of alternating questions and answers."""
    history: list[ModelMessage] = []
    for index, text in enumerate(texts):
        answer = ModelResponse(parts=[TextPart(text)])
        history.append(answer if index % 2 else ModelRequest(parts=[UserPromptPart(text)]))
    return history


# --- a history that is given is the truth -----------------------------------------------------


def test_a_first_message_that_was_edited_takes_the_place_of_the_old_one(memory: Foldmark) -> None:
    echo = Echo()
    agent = echo.agent(memory)
    agent.run_sync("secret", conversation_id="c")
    agent.run_sync("on", conversation_id="c", message_history=talk("edited", "a1"))
    agent.run_sync("and on", conversation_id="c", message_history=talk("edited", "a1", "on", "a2"))
    assert echo.requests[1:] == [["edited", "a1", "on"], ["edited", "a1", "on", "a2", "and on"]]


def test_a_history_made_anew_of_texts_is_stored_once(memory: Foldmark, tmp_path: Path) -> None:
    echo, texts = Echo(), list[str]()
    agent = echo.agent(memory)
    for turn in range(5):
        result = agent.run_sync(f"q{turn}", conversation_id="c", message_history=talk(*texts))
        texts += [f"q{turn}", result.output]
        assert echo.requests[-1] == texts[:-1]
    memory.close()
    assert stored(tmp_path, "c")[:9] == texts[:9]


def test_a_changed_system_prompt_replaces_the_old_one(tmp_path: Path) -> None:
    echo = Echo()
    for prompt, again in (("OLD", False), ("NEW", False), ("NEWER", True)):
        with opened(tmp_path) as memory:
            agent = echo.agent(memory, system_prompt=prompt)
            agent.run_sync(f"{prompt} q", conversation_id="c")
            if again:
                agent.run_sync("again", conversation_id="c")
    with opened(tmp_path) as memory:
        agents = [echo.agent(memory, system_prompt=prompt) for prompt in ("LAST", "OLD")]
        for agent in agents:  # with one object, too
            agent.run_sync("end", conversation_id="c")
    prompts = ["OLD", "NEW", "NEWER", "NEWER", "LAST", "OLD"]
    all_prompts = {*prompts}
    assert [[text for text in request if text in all_prompts] for request in echo.requests] == [
        [prompt] for prompt in prompts
    ]
    assert [request[0] for request in echo.requests] == prompts
    assert [echo.requests[1][1], echo.requests[1][-1]] == ["OLD q", "NEW q"]


def test_a_system_prompt_inside_a_history_that_was_given_stays(memory: Foldmark) -> None:
    echo, other = Echo(), Echo()
    history = [
        ModelRequest(parts=[SystemPromptPart("In prose."), UserPromptPart("some words " * 2_000)]),
        *talk("", "other words " * 2_000)[1:],
        ModelRequest(parts=[SystemPromptPart("Now in verse."), UserPromptPart("go")]),
        *talk("", "verse")[1:],
    ]
    for agent in (echo.agent(memory), other.agent()):
        agent.run_sync("on", conversation_id="c", message_history=history)
    assert sum(map(len, echo.requests[0])) < 20_000  # it was folded
    assert echo.requests[0][0] == "In prose."
    assert echo.requests[0][-4:] == other.requests[0][-4:]


# --- several at once --------------------------------------------------------------------------


def test_two_objects_in_turn_on_one_conversation_double_nothing(tmp_path: Path) -> None:
    echo, texts = Echo(), list[str]()
    with opened(tmp_path) as one, opened(tmp_path) as two:
        agents, history = [echo.agent(one), echo.agent(two)], list[ModelMessage]()
        for turn in range(6):
            result = agents[turn % 2].run_sync(
                f"q{turn}", conversation_id="c", message_history=history
            )
            history = result.all_messages()
            texts += [f"q{turn}", result.output]
            assert echo.requests[-1] == texts[:-1]
        for turn in range(6, 10):  # and without a history
            texts += [f"q{turn}", agents[turn % 2].run_sync(f"q{turn}", conversation_id="c").output]
            assert echo.requests[-1] == texts[:-1]
    assert stored(tmp_path, "c") == texts


def test_another_run_may_write_while_a_model_thinks(tmp_path: Path) -> None:
    """Two objects are like two processes: each has its own leases."""
    with opened(tmp_path) as one, opened(tmp_path) as two:
        quick = Echo()
        other = quick.agent(two)

        async def meanwhile() -> None:
            if len(slow.requests) == 1:
                await other.run("theirs", conversation_id="c")

        slow = Echo(meanwhile)
        agent = slow.agent(one, system_prompt="Be slow.")

        @agent.output_validator
        async def check(output: str) -> str:  # pyright: ignore[reportUnusedFunction]
            if output == "a1":
                raise ModelRetry("Not yet.")
            return output

        result = agent.run_sync("mine", conversation_id="c")
        assert result.output == "a2"
        assert "theirs" not in slow.requests[1]
        other.run_sync("on", conversation_id="c")
    assert "a2" not in quick.requests[-1]
    assert quick.requests[-1][-3:] == ["theirs", "a1", "on"]
    beside = stored(tmp_path, f"c.{result.run_id}")
    assert [beside[0], beside[1], beside[-1]] == ["mine", "a1", "a2"]


class Slow(BaseModel):
    """A value in a history that lets another writer write while it is read."""

    _write: Callable[[], object] = PrivateAttr()
    _thread: threading.Thread | None = PrivateAttr(default=None)

    def __init__(self, write: Callable[[], object]) -> None:
        super().__init__()
        self._write = write

    @model_serializer
    def words(self) -> str:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write)
            self._thread.start()
            self._thread.join(0.5)  # where it must wait for us, it ends later
        return "weighed"

    def end(self) -> None:
        assert self._thread is not None
        self._thread.join()


def test_nobody_writes_between_a_look_and_the_write_that_follows_it(tmp_path: Path) -> None:
    mine, theirs = Echo(), Echo()
    with opened(tmp_path) as one, opened(tmp_path) as two:
        agent, other = mine.agent(one), theirs.agent(two)
        before = agent.run_sync("zero", conversation_id="c").all_messages()

        def write() -> None:
            with own_loop():
                other.run_sync("two", conversation_id="c", message_history=list(before))

        slow = Slow(write)
        weighed: list[ModelMessage] = [
            ModelRequest(parts=[UserPromptPart("weigh")]),
            ModelResponse(parts=[ToolCallPart("weigh", {}, "w")]),
            ModelRequest(parts=[ToolReturnPart("weigh", slow, "w")]),
        ]
        history = [*before, *weighed, *talk("", "It is.")[1:]]
        agent.run_sync("one", conversation_id="c", message_history=history)
        slow.end()
    assert mine.requests[-1] == words([*history, *talk("one")])
    assert theirs.requests[-1] == ["zero", "a1", "two"]
    with foldmark.open(tmp_path / "agent.db", session="c") as session:
        assert session.search("two")


@pytest.mark.parametrize("is_given", [False, True])
def test_a_run_that_another_has_taken_back_goes_on_beside_it(
    tmp_path: Path, *, is_given: bool
) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        other = Echo().agent(two)

        async def meanwhile() -> None:
            if len(slow.requests) == 2:
                history = talk("edited", "b1")
                await other.run("theirs", conversation_id="c", message_history=history)

        slow = Echo(meanwhile)
        agent = slow.agent(one)

        @agent.output_validator
        async def check(output: str) -> str:  # pyright: ignore[reportUnusedFunction]
            if output == "a2":
                raise ModelRetry("Not yet.")
            return output

        first = agent.run_sync("first", conversation_id="c").all_messages()
        history = first if is_given else []  # without one, the store had what was said before
        result = agent.run_sync("mine", conversation_id="c", message_history=history)
    assert result.output == "a3"
    texts = [*words(history), "mine", "a2"]
    assert [text for text in slow.requests[2] if len(text) < 10] == texts
    assert stored(tmp_path, "c") == ["edited", "b1", "theirs", "a1"]
    beside = stored(tmp_path, f"c.{result.run_id}")
    assert [text for text in beside if len(text) < 10] == [*texts, "a3"]


def test_the_loop_runs_on_while_the_end_of_a_run_is_written(
    memory: Foldmark, tmp_path: Path
) -> None:
    """Only the event loop can release the lock on the store."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("I try."), ToolCallPart("break_down", {}, "one")])

    agent = Agent(FunctionModel(answer), capabilities=[memory])

    @agent.tool_plain
    async def break_down() -> str:  # pyright: ignore[reportUnusedFunction]
        lock = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.2, lock.close)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        agent.run_sync("Go.", conversation_id="c")
    memory.close()
    assert stored(tmp_path, "c")[:2] == ["Go.", "I try."]
