"""Steps of a small real model behind a real server: streams, usage, overflow, tools."""

import asyncio
from collections.abc import Iterator

import pytest

from foldmark.model.messages import TextPart
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Declared,
    Output,
    PromptMessage,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.local import local_model
from foldmark.providers.models import kept_open
from foldmark.summary.protocol import (
    STEP,
    Model,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Piece,
    Stepped,
    Words,
)
from tests.support.local_model import weights

WINDOW = 1024
LS = Declared(
    name="ls",
    description="Lists the files of a folder",
    schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    pytest.importorskip("xllamacpp")
    with local_model(f"local:{weights()}", window=WINDOW) as running:
        yield running


def said(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def asked(
    *messages: PromptMessage, tools: tuple[Declared, ...] = (), most: int = 24
) -> ModelRequest:
    return ModelRequest(messages=messages, system="You code.", tools=tools, most=most, purpose=STEP)


def stepped(
    model: Model, ask: ModelRequest, told: list[Piece] | None = None
) -> Stepped | ModelFailure:
    pieces = told if told is not None else []
    return asyncio.run(model.step(ask, pieces.append))


def test_a_step_streams_and_its_tokens_are_measured(model: Model) -> None:
    told: list[Piece] = []
    step = stepped(model, asked(said("Write three sentences about a mill."), most=16), told)
    assert isinstance(step, Stepped)
    assert len(told) > 3
    words = "".join(piece.text for piece in told if isinstance(piece, Words))
    assert step.parts == (TextPart(text=words),)
    assert step.tokens is not None
    assert step.tokens.output == 16
    assert int(step.tokens.total or 0) > 16
    assert step.finish == "length"
    assert model.name.startswith("local:")


def test_a_request_with_tools_and_their_results_does_not_fail(model: Model) -> None:
    made = Call(tool_call_id="c1", tool_name="ls", input={"path": "."})
    listed = Output(type="text", value="mill.py\nwheel.py")
    talk = (
        said("List the files."),
        AssistantMessage(content=(Text(text="I look."), made)),
        ToolMessage(content=(Result(tool_call_id="c1", tool_name="ls", output=listed),)),
    )
    for ask in (asked(said("List the files."), tools=(LS,)), asked(*talk, tools=(LS,))):
        step = stepped(model, ask)
        assert isinstance(step, Stepped)
        assert step.parts


def test_a_window_that_is_exceeded_is_told_as_an_overflow(model: Model) -> None:
    outcome = stepped(model, asked(said("wheel " * 2 * WINDOW), tools=(LS,)))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "overflow"
    assert isinstance(stepped(model, asked(said("Still there?"))), Stepped)


def test_the_same_model_steps_and_summarises_and_reads_its_cache(model: Model) -> None:
    async def run() -> tuple[Stepped | ModelFailure, object]:
        async with kept_open(model):
            first = asked(said("The wheel of the mill is worn. " * 8))
            await model.step(first, lambda _: None)
            again = await model.step(first, lambda _: None)
            return again, await model.ask(
                ModelRequest(messages=(said("Sum up"),), most=8), lambda _: None
            )

    again, summary = asyncio.run(run())
    assert isinstance(again, Stepped)
    assert again.tokens is not None
    assert again.tokens.cache
    assert int(again.tokens.cache.read or 0) > 50
    assert isinstance(summary, ModelReply)


def test_a_step_that_is_cancelled_frees_the_server(model: Model) -> None:
    async def run() -> Stepped | ModelFailure:
        heard = asyncio.Event()
        tale = asked(said("Tell a long tale."), most=700)
        telling = asyncio.create_task(model.step(tale, lambda _: heard.set()))
        await asyncio.wait_for(heard.wait(), 60)
        telling.cancel()
        await asyncio.wait({telling})
        assert telling.cancelled()
        return await model.step(asked(said("Short."), most=4), lambda _: None)

    assert isinstance(asyncio.run(run()), Stepped)
