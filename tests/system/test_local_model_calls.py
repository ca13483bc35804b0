"""A small real model behind a real server: answers, usage, streams, overflow, cache, cancelling."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from foldmark.errors import Aborted
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Declared,
    Output,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.driver import adrive, drive
from foldmark.providers.models import model_named as summarizer
from foldmark.refusals import stated_window
from foldmark.summary.protocol import (
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
)
from tests.support.local_model import WINDOW, model_server

LONG = "Count the sheep on the hill one by one, and say each number aloud. " * 12
TOOL = Declared(name="bash", description="Runs a command", schema={"type": "object"})


@pytest.fixture
def model(local_model: str) -> Summarizer:
    return summarizer("openai:smollm2", base_url=local_model, api_key="none")


def said(text: str, **fields: float) -> ModelRequest:
    most, seconds = int(fields.get("most", 6)), fields.get("seconds", 120.0)
    return ModelRequest(
        messages=(UserMessage(content=(Text(text=text),)),), most=most, seconds=seconds
    )


def once(*asks: ModelRequest) -> ModelDialogue[tuple[Outcome, ...]]:
    return (yield asks)


def answers(
    model: Summarizer, *asks: ModelRequest, delta: Callable[[str], None] = lambda _: None
) -> list[ModelReply]:
    outcomes = drive(once(*asks), model, delta=delta)
    found = [outcome for outcome in outcomes if isinstance(outcome, ModelReply)]
    assert len(found) == len(asks), outcomes
    return found


def test_an_answer_has_the_tokens_that_the_server_measured(model: Summarizer) -> None:
    (answer,) = answers(model, said("What colour has the sky?"))
    assert answer.text
    assert (answer.finish, answer.calls, answer.cost) == ("length", 0, None)
    assert answer.tokens is not None
    assert answer.tokens.input
    assert answer.tokens.output == 6


def test_an_answer_comes_in_pieces(model: Summarizer) -> None:
    pieces: list[str] = []
    (answer,) = answers(model, said("Tell me of the sea.", most=12), delta=pieces.append)
    assert len(pieces) > 2
    assert "".join(pieces) == answer.text


def test_what_was_read_before_is_read_from_the_cache(model: Summarizer) -> None:
    (first,) = answers(model, said(LONG))
    (second,) = answers(model, said(LONG + "Then sleep."))
    assert first.tokens is not None
    assert second.tokens is not None
    assert second.tokens.cache
    assert first.tokens.input
    assert second.tokens.cache.read
    assert second.tokens.cache.read > 100
    assert second.tokens.input
    assert second.tokens.input < 50


def test_a_session_with_calls_results_and_tools_is_taken(model: Summarizer) -> None:
    talk = (
        UserMessage(content=(Text(text="List the files"),)),
        AssistantMessage(content=(Call(tool_call_id="t1", tool_name="bash", input={"c": "ls"}),)),
        ToolMessage(
            content=(
                Result(
                    tool_call_id="t1", tool_name="bash", output=Output(type="text", value="a.txt")
                ),
            )
        ),
        UserMessage(content=(Text(text="Sum up"),)),
    )
    (answer,) = answers(
        model, ModelRequest(messages=talk, system="You sum up.", tools=(TOOL,), most=6)
    )
    assert answer.text


def test_what_is_too_long_for_the_window_is_an_overflow_that_states_the_window(
    model: Summarizer,
) -> None:
    (outcome,) = drive(once(said("sheep " * 2 * WINDOW)), model, delta=lambda _: None)
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "overflow"
    assert stated_window(outcome.message) == WINDOW


def test_an_answer_that_takes_too_long_is_cancelled_and_the_server_goes_on(
    model: Summarizer,
) -> None:
    pieces: list[str] = []
    slow = said("Write a long tale of a shepherd.", most=1500, seconds=1.0)
    (outcome,) = drive(once(slow), model, delta=pieces.append)
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "timeout"
    told = len(pieces)
    assert answers(model, said("And now?"))[0].text
    assert len(pieces) == told


def test_two_asks_at_the_same_time_are_both_answered(model: Summarizer) -> None:
    first, second = answers(model, said("Name a tree."), said("Name a river."))
    assert first.text
    assert second.text


def test_stopping_in_the_middle_ends_the_answer(model: Summarizer) -> None:
    aborted, pieces = threading.Event(), list[str]()

    def heard(piece: str) -> None:
        pieces.append(piece)
        aborted.set()

    tale = said("Write a long tale of a fisher.", most=1500)
    with pytest.raises(Aborted):
        drive(once(tale), model, delta=heard, aborted=aborted)
    assert 0 < len(pieces) < 500
    assert answers(model, said("Still there?"))[0].text


def test_one_model_is_asked_from_several_event_loops(model: Summarizer) -> None:
    for text in ("One.", "Two."):
        (outcome,) = asyncio.run(adrive(once(said(text)), model, delta=lambda _: None))
        assert isinstance(outcome, ModelReply)
    assert answers(model, said("Three."))


def test_a_server_that_has_ended_is_a_failure() -> None:
    with model_server(window=512) as address:
        model = summarizer("openai:smollm2", base_url=address, api_key="none")
        assert answers(model, said("Hello"))
    (outcome,) = drive(once(said("Hello?")), model, delta=lambda _: None)
    assert isinstance(outcome, ModelFailure)
    assert outcome.cause == "failed"
