"""Agent steps of a small real model behind a real server: streams, usage, overflow, tools."""

import asyncio
from collections.abc import Iterator

import pytest

from foldmark.model.messages import TextPart
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Output,
    PromptMessage,
    Result,
    Text,
    ToolDeclaration,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.local import local_model
from foldmark.providers.models import keep_open
from foldmark.summary.protocol import (
    STEP,
    Model,
    ModelFailure,
    ModelReply,
    ModelRequest,
    StepReply,
    StreamDelta,
    TextDelta,
)
from tests.support.local_model import weights

WINDOW = 1024
LS = ToolDeclaration(
    name="ls",
    description="Lists the files of a folder",
    schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    pytest.importorskip("xllamacpp")
    with local_model(f"local:{weights()}", window=WINDOW) as running:
        yield running


def user(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def ask(
    *messages: PromptMessage, tools: tuple[ToolDeclaration, ...] = (), max_tokens: int = 24
) -> ModelRequest:
    return ModelRequest(
        messages=messages, system="You code.", tools=tools, max_tokens=max_tokens, purpose=STEP
    )


def run_step(
    model: Model, request: ModelRequest, deltas: list[StreamDelta] | None = None
) -> StepReply | ModelFailure:
    return asyncio.run(model.step(request, ([] if deltas is None else deltas).append))


def test_a_step_streams_and_its_tokens_are_measured(model: Model) -> None:
    deltas: list[StreamDelta] = []
    step = run_step(model, ask(user("Write three sentences about a test."), max_tokens=16), deltas)
    assert isinstance(step, StepReply)
    assert len(deltas) > 3
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert step.parts == (TextPart(text=text),)
    assert step.tokens is not None
    assert step.tokens.output == 16
    assert int(step.tokens.total or 0) > 16
    assert step.finish == "length"
    assert model.name.startswith("local:")


def test_a_request_with_tools_and_results_is_accepted(model: Model) -> None:
    call = Call(tool_call_id="c1", tool_name="ls", input={"path": "."})
    output = Output(type="text", value="a.py\nb.py")
    talk = (
        user("List the files."),
        AssistantMessage(content=(Text(text="I look."), call)),
        ToolMessage(content=(Result(tool_call_id="c1", tool_name="ls", output=output),)),
    )
    for messages in (talk[:1], talk):
        step = run_step(model, ask(*messages, tools=(LS,)))
        assert isinstance(step, StepReply)
        assert step.parts


def test_a_request_beyond_the_window_is_an_overflow(model: Model) -> None:
    outcome = run_step(model, ask(user("tests " * 2 * WINDOW), tools=(LS,)))
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "overflow"
    assert isinstance(run_step(model, ask(user("Still there?"))), StepReply)


def test_one_model_steps_and_summarizes_and_uses_its_cache(model: Model) -> None:
    async def run() -> tuple[StepReply | ModelFailure, object]:
        async with keep_open(model):
            first = ask(user("The test of the parser is slow. " * 8))
            await model.step(first, lambda _: None)
            again = await model.step(first, lambda _: None)
            return again, await model.ask(
                ModelRequest(messages=(user("Sum up"),), max_tokens=8), lambda _: None
            )

    again, summary = asyncio.run(run())
    assert isinstance(again, StepReply)
    assert again.tokens is not None
    assert again.tokens.cache
    assert int(again.tokens.cache.read or 0) > 50
    assert isinstance(summary, ModelReply)


def test_a_cancelled_step_frees_the_server(model: Model) -> None:
    async def run() -> StepReply | ModelFailure:
        started = asyncio.Event()
        request = ask(user("Write a long bug report."), max_tokens=700)
        step = asyncio.create_task(model.step(request, lambda _: started.set()))
        await asyncio.wait_for(started.wait(), 60)
        step.cancel()
        await asyncio.wait({step})
        assert step.cancelled()
        return await model.step(ask(user("Short."), max_tokens=4), lambda _: None)

    assert isinstance(asyncio.run(run()), StepReply)
