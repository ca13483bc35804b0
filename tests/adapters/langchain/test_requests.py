"""Requests that other middlewares have changed, and answers that break off."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk

from foldmark.adapters.langchain import FoldmarkMiddleware
from foldmark.adapters.langchain.requests import split_request
from tests.support.langchain_agents import (
    OUTPUT,
    WINDOW,
    Scripted,
    Talk,
    agent_of,
    asked,
    called,
    check_pairs,
    config,
    done,
    opened,
    steps,
    texts,
    tokens_of,
    words,
)

FILES = "Files at hand: a, b. " * 20
MESSAGE = HumanMessage(FILES)


@pytest.fixture
def middleware(tmp_path: Path) -> Iterator[FoldmarkMiddleware]:
    with opened(tmp_path) as made:
        yield made


class Injecting(AgentMiddleware[Any, Any, Any]):
    """Puts a message into each request."""

    def __init__(self, changed: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        self._changed = changed

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=self._changed(request.messages)))


def both(model: Scripted, changed: Callable[[list[Any]], list[Any]], ours: Any) -> Any:
    return agent_of(model, ours, before=[Injecting(changed)])


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        {"role": "user", "content": FILES},
        ("user", FILES),
        MESSAGE,
        MESSAGE.model_copy(update={"id": "another"}),
    ],
)
def test_a_message_of_each_request_is_shown_at_its_place_and_followed_nowhere(
    middleware: FoldmarkMiddleware, made: Any, *, is_first: bool
) -> None:
    def changed(held: list[Any]) -> list[Any]:
        return [made, *held] if is_first else [*held, made]

    model = Scripted(reply=steps(25))
    state = both(model, changed, middleware).invoke(asked("Go."), config("t"))
    assert FILES not in str(state)
    for messages in model.seen:
        check_pairs(messages)
        assert texts(messages).count(FILES) == 1
        assert texts(messages)[0 if is_first else -1] == FILES
        assert tokens_of(messages) <= WINDOW - OUTPUT
    with middleware.session("t") as session:
        kinds = [act.kind for act in session.operations()]
        assert "pivot" in kinds
        assert "revert" not in kinds
        assert FILES not in words(session)


def test_what_passes_is_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as middleware:
        big = HumanMessage("grain " * 2_000)
        model = Scripted(reply=steps(40))
        both(model, lambda held: [*held, big], middleware).invoke(asked("Go."), config("t"))
    assert all(tokens_of(messages) <= WINDOW - OUTPUT for messages in model.seen)


def test_what_passes_stands_where_it_stood_and_never_between_a_call_and_its_result() -> None:
    state: Talk = [
        HumanMessage("One.", id="1"),
        called(0, "read"),
        ToolMessage("Out.", tool_call_id="c0.0", id="3"),
        HumanMessage("Two.", id="4"),
    ]
    state[1].id = "2"
    extra = [AIMessage("", tool_calls=[{"name": "x", "args": {}, "id": "x"}]), MESSAGE]
    found = ToolMessage("Found.", tool_call_id="x")
    said = split_request([*state[:3], extra[0], found, MESSAGE, state[3]], state)
    assert said.history == state
    assert said.with_view(state) == [*state[:3], extra[0], found, MESSAGE, state[3]]
    assert said.with_view(state[3:]) == [extra[0], found, MESSAGE, state[3]]
    folded: Talk = [HumanMessage("What was."), *state[1:3]]  # the view ends otherwise
    assert said.with_view(folded) == [*folded, extra[0], found, MESSAGE]
    said = split_request([*state[:2], MESSAGE, *state[2:]], state)
    assert said.with_view(state) == [*state[:3], MESSAGE, state[3]]


def test_a_result_that_a_request_adds_for_a_call_of_the_state_is_followed(
    middleware: FoldmarkMiddleware,
) -> None:
    given: Talk = [HumanMessage("Go."), called(0, "read"), HumanMessage("And?")]

    def patched(held: list[Any]) -> list[Any]:
        return [*held[:2], ToolMessage("Patched.", tool_call_id="c0.0"), *held[2:]]

    model = Scripted(reply=done)
    both(model, patched, middleware).invoke({"messages": given}, config("t"))
    check_pairs(model.seen[0])
    assert texts(model.seen[0]) == ["Go.", "", "Patched.", "And?"]


# --- answers that break off ----------------------------------------------------------------


class Breaking(Scripted):
    """Refuses for length the first time, after it has said so much."""

    begun: str

    def _stream(self, messages: Talk, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        self.seen.append(messages)
        if len(self.seen) > 1:
            yield ChatGenerationChunk(
                message=AIMessageChunk(content="Whole.", chunk_position="last")
            )
            return
        yield ChatGenerationChunk(message=AIMessageChunk(content=self.begun))
        raise ContextOverflowError("maximum context length is 4000 tokens")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("begun", ["", "Half "])
def test_after_words_were_streamed_the_model_is_not_asked_again(
    middleware: FoldmarkMiddleware, begun: str, *, is_async: bool
) -> None:
    model = Breaking(reply=done, begun=begun)
    agent, heard = agent_of(model, middleware), list[str]()
    long = asked(*(f"{n} " + "grain " * 200 for n in range(12)))

    async def listen() -> None:
        async for piece, _ in agent.astream(long, config("t"), stream_mode="messages"):
            heard.append(str(piece.text))

    def work() -> None:
        if is_async:
            asyncio.run(listen())
            return
        for piece, _ in agent.stream(long, config("t"), stream_mode="messages"):
            heard.append(str(piece.text))

    if begun:
        with pytest.raises(ContextOverflowError):
            work()
    else:
        work()
    assert "".join(heard) == (begun or "Whole.")
    assert len(model.seen) == (1 if begun else 2)
