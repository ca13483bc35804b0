"""The scripted model that programs use in their own tests."""

import asyncio
import doctest

import pytest

import foldmark.testing
from foldmark.summary.protocol import ModelFailure, ModelReply, ModelRequest, Outcome
from foldmark.testing import ScriptedModel


def asked(model: ScriptedModel, purpose: str = "summary") -> Outcome:
    return asyncio.run(model.ask(ModelRequest(messages=(), purpose=purpose), lambda _: None))


def test_the_example_in_its_documentation_runs() -> None:
    found = doctest.testmod(foldmark.testing)
    assert found.attempted > 0
    assert found.failed == 0


def test_replies_come_in_their_order_and_the_last_one_again() -> None:
    model = ScriptedModel("one", ModelReply(text="two", finish="length"))
    assert asked(model) == ModelReply(text="one")
    assert asked(model) == asked(model) == ModelReply(text="two", finish="length")
    assert len(model.requests) == 3


def test_without_repeating_whoever_asks_once_more_is_refused() -> None:
    model = ScriptedModel("one", repeat=False)
    assert asked(model) == ModelReply(text="one")
    assert isinstance(asked(model), ModelFailure)
    assert isinstance(asked(ScriptedModel()), ModelFailure)


def test_a_reply_may_be_a_refusal_an_exception_or_a_function_of_the_ask() -> None:
    refusal = ModelFailure(cause="throttled", message="slow down", retry_after=2.0)
    model = ScriptedModel(refusal, OSError("gone"), lambda ask: f"for {ask.purpose}")
    assert asked(model) == refusal
    with pytest.raises(OSError, match="gone"):
        asked(model)
    assert asked(model, "title") == ModelReply(text="for title")


def test_its_answer_is_told_in_pieces_and_it_keeps_what_it_was_asked() -> None:
    pieces: list[str] = []
    model = ScriptedModel("a text that is longer than a piece", name="test:one", delay=0.01)
    ask = ModelRequest(messages=(), system="Be short.")
    asyncio.run(model.ask(ask, pieces.append))
    assert len(pieces) == 3
    assert "".join(pieces) == "a text that is longer than a piece"
    assert model.requests == [ask]
    assert model.name == "test:one"
