"""Requests to a small real model: replies, usage, streams, overflow, cache, cancellation."""

import asyncio
import threading

import pytest

from foldmark.errors import Aborted
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Output,
    Result,
    Text,
    ToolDeclaration,
    ToolMessage,
    UserMessage,
)
from foldmark.providers.driver import adrive, drive
from foldmark.providers.models import model_named
from foldmark.refusals import stated_window
from foldmark.summary.protocol import (
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
    TextHandler,
)
from tests.support.local_model import WINDOW, model_server

LONG = "Count the failing tests one by one, and name the file of each of them. " * 12
TOOL = ToolDeclaration(name="bash", description="Runs a command", schema={"type": "object"})


@pytest.fixture
def model(local_model: str) -> Summarizer:
    return model_named("openai:smollm2", base_url=local_model, api_key="none")


def user(text: str) -> UserMessage:
    return UserMessage(content=(Text(text=text),))


def ask(text: str, *, max_tokens: int = 6, seconds: float = 120.0) -> ModelRequest:
    return ModelRequest(messages=(user(text),), max_tokens=max_tokens, seconds=seconds)


def once(*requests: ModelRequest) -> ModelDialogue[tuple[Outcome, ...]]:
    return (yield requests)


def replies(
    model: Summarizer, *requests: ModelRequest, on_text: TextHandler = lambda _: None
) -> list[ModelReply]:
    outcomes = drive(once(*requests), model, on_text=on_text)
    successes = [outcome for outcome in outcomes if isinstance(outcome, ModelReply)]
    assert len(successes) == len(requests), outcomes
    return successes


def failure(
    model: Summarizer, request: ModelRequest, on_text: TextHandler = lambda _: None
) -> ModelFailure:
    (outcome,) = drive(once(request), model, on_text=on_text)
    assert isinstance(outcome, ModelFailure)
    return outcome


def test_a_reply_comes_in_pieces_with_its_measured_tokens(model: Summarizer) -> None:
    pieces: list[str] = []
    (reply,) = replies(model, ask("What is a test?", max_tokens=12), on_text=pieces.append)
    assert len(pieces) > 2
    assert "".join(pieces) == reply.text
    assert (reply.finish, reply.calls, reply.cost) == ("length", 0, None)
    assert reply.tokens is not None
    assert reply.tokens.input
    assert reply.tokens.output == 12


def test_a_longer_request_is_read_from_the_cache(model: Summarizer) -> None:
    (first,) = replies(model, ask(LONG))
    (second,) = replies(model, ask(LONG + "Then stop."))
    assert first.tokens is not None
    assert second.tokens is not None
    assert second.tokens.cache
    assert first.tokens.input
    assert second.tokens.cache.read
    assert second.tokens.cache.read > 100
    assert second.tokens.input
    assert second.tokens.input < 50


def test_a_request_with_calls_results_and_tools_is_accepted(model: Summarizer) -> None:
    output = Output(type="text", value="a.txt")
    talk = (
        user("List the files"),
        AssistantMessage(content=(Call(tool_call_id="t1", tool_name="bash", input={"c": "ls"}),)),
        ToolMessage(content=(Result(tool_call_id="t1", tool_name="bash", output=output),)),
        user("Sum up"),
    )
    request = ModelRequest(messages=talk, system="You sum up.", tools=(TOOL,), max_tokens=6)
    assert replies(model, request)[0].text


def test_a_request_beyond_the_window_is_an_overflow_that_states_the_window(
    model: Summarizer,
) -> None:
    outcome = failure(model, ask("tests " * 2 * WINDOW))
    assert outcome.cause == "overflow"
    assert stated_window(outcome.message) == WINDOW


def test_a_slow_reply_is_cancelled_and_the_server_goes_on(model: Summarizer) -> None:
    pieces: list[str] = []
    slow = ask("Write a long bug report.", max_tokens=1500, seconds=1.0)
    assert failure(model, slow, pieces.append).cause == "timeout"
    count = len(pieces)
    assert replies(model, ask("And now?"))[0].text
    assert len(pieces) == count


def test_two_requests_at_the_same_time_are_both_answered(model: Summarizer) -> None:
    assert all(reply.text for reply in replies(model, ask("Name a file."), ask("Name a test.")))


def test_an_abort_ends_the_reply(model: Summarizer) -> None:
    aborted, pieces = threading.Event(), list[str]()

    def on_text(piece: str) -> None:
        pieces.append(piece)
        aborted.set()

    long = ask("Write a long changelog.", max_tokens=1500)
    with pytest.raises(Aborted):
        drive(once(long), model, on_text=on_text, aborted=aborted)
    assert 0 < len(pieces) < 500
    assert replies(model, ask("Still there?"))[0].text


def test_one_model_is_used_by_several_event_loops(model: Summarizer) -> None:
    for text in ("One.", "Two."):
        (outcome,) = asyncio.run(adrive(once(ask(text)), model, on_text=lambda _: None))
        assert isinstance(outcome, ModelReply)
    assert replies(model, ask("Three."))


def test_a_stopped_server_is_a_failure() -> None:
    with model_server(window=512) as address:
        model = model_named("openai:smollm2", base_url=address, api_key="none")
        assert replies(model, ask("Hello"))
    assert failure(model, ask("Hello?")).cause == "failed"
