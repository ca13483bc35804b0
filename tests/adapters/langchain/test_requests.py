"""Requests that other middleware has changed, and responses that break off."""

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
    with opened(tmp_path) as foldmark_middleware:
        yield foldmark_middleware


class Injecting(AgentMiddleware[Any, Any, Any]):
    """Inserts a message into each request."""

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
        big = HumanMessage("entry " * 2_000)
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
    result = ToolMessage("Found.", tool_call_id="x")
    request = split_request([*state[:3], extra[0], result, MESSAGE, state[3]], state)
    assert request.history == state
    assert request.with_view(state) == [*state[:3], extra[0], result, MESSAGE, state[3]]
    assert request.with_view(state[3:]) == [extra[0], result, MESSAGE, state[3]]
    folded: Talk = [HumanMessage("What was."), *state[1:3]]  # the view ends otherwise
    assert request.with_view(folded) == [*folded, extra[0], result, MESSAGE]
    request = split_request([*state[:2], MESSAGE, *state[2:]], state)
    assert request.with_view(state) == [*state[:3], MESSAGE, state[3]]


def test_a_result_that_a_request_adds_for_a_call_of_the_state_is_followed(
    middleware: FoldmarkMiddleware,
) -> None:
    talk: Talk = [HumanMessage("Go."), called(0, "read"), HumanMessage("And?")]

    def patched(messages: list[Any]) -> list[Any]:
        return [*messages[:2], ToolMessage("Patched.", tool_call_id="c0.0"), *messages[2:]]

    model = Scripted(reply=done)
    both(model, patched, middleware).invoke({"messages": talk}, config("t"))
    check_pairs(model.seen[0])
    assert texts(model.seen[0]) == ["Go.", "", "Patched.", "And?"]


# --- answers that break off ----------------------------------------------------------------


class Breaking(Scripted):
    """Refuses the first request for length after it has streamed some output."""

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
    long = asked(*(f"{n} " + "entry " * 200 for n in range(12)))

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
