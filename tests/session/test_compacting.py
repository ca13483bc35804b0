"""Compacting a stored session: the summarizer, what is written, events, and order of steps."""

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest
from foldmark.errors import BadInput, BadPolicy, CompactionStopped, WindowTooSmall
from foldmark.log.log import marker_part
from foldmark.model import events
from foldmark.model.messages import AssistantInfo, Message
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import AssistantMessage
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.session.hooks import CompactionChange
from foldmark.summary.protocol import ModelFailure, ModelReply
from foldmark.testing import ScriptedModel
from tests.support.compacted_sessions import NO_PRUNE, pivots, view_text
from tests.support.failing_models import FaultyModel, notes, prompt_texts, request_text
from tests.support.stored_sessions import bytes_of, call, opened, step, work
from tests.support.view_rules import MARKER, assert_valid


def kinds(session: foldmark.Session, after: int = 0) -> list[str]:
    return [event.kind for event in session.events(after)]


def summary_of(session: foldmark.Session, operation: Operation | None) -> Message:
    assert operation is not None
    return next(m for m in session.export().messages if is_summary(m) and operation.in_force)


def is_summary(message: Message) -> bool:
    return isinstance(message.info, AssistantInfo) and bool(message.info.summary)


# --- one compaction -------------------------------------------------------------------------------


def test_a_models_notes_and_the_digest_replace_folded_messages(where: str) -> None:
    model = FaultyModel("good", name="test:other")
    with opened(where, "s", summarizer=model) as session:
        work(session)
        mark = session.info.events
        operation = session.compact()
        assert operation is not None
        assert operation.in_force
        text = view_text(session)
        assert notes() in text
        assert "[Digest of" in text
        assert kinds(session, mark) == [events.QUEUED, events.STARTED, events.COMPACTED]
        data = session.events(mark)[-1].data
        assert data["how"] == "chunks"
        assert data["calls"] == len(model.requests)
        assert (data["before"], data["after"]) == (operation.before, operation.after)
        info = summary_of(session, operation).info
        assert isinstance(info, AssistantInfo)
        assert (info.provider_id, info.model_id) == ("test", "other")
        assert info.cost == pytest.approx(0.01 * len(model.requests))
        assert info.tokens
        assert info.tokens.input == 900 * len(model.requests)


def test_the_async_form_makes_the_same_summary_of_the_same_session(where: str) -> None:
    def filled(name: str) -> foldmark.Session:
        session = opened(where, name, summarizer=FaultyModel("throttled", "json", "good"))
        work(session)
        return session

    async def compacted() -> str:
        session = filled("a")
        async with session:
            operation = await session.acompact(instructions="tests")
            assert operation is not None
            assert await session.amessages()
            return view_text(session)

    with filled("b") as session:
        session.compact(instructions="tests")
        assert view_text(session) == asyncio.run(compacted())


def test_without_a_model_the_digest_stands_alone(where: str) -> None:
    with opened(where, "s", summarizer="digest") as session:
        work(session)
        operation = session.compact()
        assert summary_of(session, operation).parts
        assert session.events()[-1].data["how"] == "digest"
        assert "calls" not in session.events()[-1].data
        assert "a20.py" in view_text(session)


def test_the_event_says_why_a_model_was_not_used(where: str) -> None:
    with opened(where, "s", summarizer=FaultyModel("unavailable")) as session:
        work(session)
        session.compact()
        data = session.events()[-1].data
        assert data["how"] == "digest"
        assert data["flaws"] == ["unavailable: HTTP 401: no key"]


def test_streamed_summary_text_is_published_and_not_stored(where: str) -> None:
    received: list[events.Event] = []
    with opened(where, "s", summarizer=ScriptedModel(notes())) as session:
        work(session, 6)
        session.subscribe(received.append, ["compaction."])
        session.compact()
        deltas = [event for event in received if event.kind == events.DELTA]
        assert "".join(event.data["text"] for event in deltas) == notes()
        assert events.DELTA not in kinds(session)
        assert [event.kind for event in received][:2] == [events.QUEUED, events.STARTED]


def test_a_target_is_kept(where: str) -> None:
    with opened(where, "s", window=40_000, summarizer=FaultyModel("good")) as session:
        work(session, 20)
        for target in (6_000, 3_000, 1_500):
            operation = session.compact(target=target)
            assert operation is not None
            assert session.view().tokens <= target
            session.undo()


def test_a_callers_own_summary_calls_no_model(where: str) -> None:
    model = FaultyModel("good")
    with opened(where, "s", summarizer=model) as session:
        work(session)
        with pytest.raises(BadInput, match="summary is empty"):
            session.compact(" \n")
        assert pivots(session) == []
        session.compact("All tests pass.")
        assert "All tests pass." in view_text(session)
        assert model.requests == []


def test_a_second_compaction_continues_the_first(where: str) -> None:
    model = ScriptedModel(notes("the ticket is LOGIN-42"), notes("it is fixed"))
    with opened(where, "s", summarizer=model, window=30_000) as session:
        work(session, 10)
        session.compact()
        work(session, 10)
        session.compact()
        assert "LOGIN-42" in request_text(model.requests[1])
        assert len(pivots(session)) == 2
        assert view_text(session).count(MARKER) == 1


def test_the_sessions_own_model_gets_the_same_prefix(where: str) -> None:
    model = FaultyModel("good", name="test:mine")
    tools = [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}]
    with opened(
        where, "s", window=60_000, model="test:mine", summarizer=model, system="Be.", tools=tools
    ) as session:
        work(session, 10)
        messages = session.messages()
        session.compact()
        (ask,) = model.requests
        assert b"".join(map(encode, ask.messages)).startswith(b"".join(map(encode, messages)))
        assert ask.system == "Be."
        assert [tool.name for tool in ask.tools] == ["read"]
        session.compact("Again", overflow=True)
        work(session, 10)
        session.compact(overflow=True)
        assert model.requests[1].system != "Be."  # the refused prefix is not sent again


# --- options and limits ---------------------------------------------------------------------------


class Wishes:
    """A hook that changes a compaction."""

    def __init__(self, **change: Any) -> None:
        self.change = CompactionChange(**change)
        self.requests: list[CompactionRequest] = []

    def before_compact(self, compaction: CompactionRequest) -> CompactionChange:
        self.requests.append(compaction)
        return self.change


def test_hooks_and_instructions_change_the_summary_prompt(where: str) -> None:
    hook = Wishes(context=("The cache is shared.",))
    model = FaultyModel("good")
    with opened(where, "s", hooks=[hook], summarizer=model, window=60_000) as session:
        work(session, 8)
        session.compact(instructions="the login tests")
        text = request_text(model.requests[0])
        assert "The cache is shared." in text
        assert text.endswith("the login tests")
        assert [request.instructions for request in hook.requests] == ["the login tests"]


def test_a_digest_follows_the_instructions(where: str) -> None:
    text: dict[str, str] = {}
    for focus in ("", "the tokenizer"):
        with opened(where, focus or "plain", window=20_000, summarizer="digest") as session:
            session.user("Look after the service")
            session.record("The tokenizer has a bug in its escape handling.")
            for kind in product("abcdef", repeat=3):
                name = "".join(kind)
                session.record(f"See app/parser_{name}.py, where {name}_speed is set in callers.")
            session.user("Go on")
            session.compact(instructions=focus, target=900)
            text[focus] = str(session.view().messages)
    assert "bug in its escape handling" not in text[""]
    assert "bug in its escape handling" in text["the tokenizer"]


def test_options_of_a_queued_compaction_are_stored_for_its_summarizer(where: str) -> None:
    hook = Wishes(context=("The cache is shared.",), prompt="List the failing tests.")
    model = FaultyModel("shapeless")
    with opened(where, "s", hooks=[hook], window=60_000) as session:
        work(session, 8)
        queued = session.queue(instructions="the login tests")
    with opened(where, "s", summarizer=model, window=60_000) as session:
        operation = session.compact()
        assert queued is not None
        assert operation is not None
        assert (operation.number, operation.in_force) == (queued.number, True)
        text = request_text(model.requests[0])
        for wish in ("The cache is shared.", "List the failing tests.", "the login tests"):
            assert wish in text
        assert len(hook.requests) == 1


def test_a_veto_stops_a_compaction_before_any_model_call(where: str) -> None:
    model = FaultyModel("good")
    hook = Wishes(veto="not now")
    with opened(where, "s", hooks=[hook], summarizer=model) as session:
        work(session)
        view = bytes_of(session.view())
        assert session.compact() is None
        assert (bytes_of(session.view()), model.requests, pivots(session)) == (view, [], [])
        assert session.events()[-1].data["reason"] == "vetoed: not now"


def test_secrets_are_masked_and_that_can_be_switched_off(where: str) -> None:
    secret = "sk-ant-" + "a1b2c3d4" * 4
    for mask in (True, False):
        model = ScriptedModel(notes(f"the key is {secret}"))
        name = f"s{mask}"
        with opened(where, name, summarizer=model, mask_secrets=mask, window=60_000) as session:
            session.user("Look around")
            step(session, "c", f"ANTHROPIC_API_KEY={secret}\n")
            work(session, 8)
            session.compact()
            assert (secret in view_text(session)) == (not mask)
            assert secret in "".join(
                str(part) for m in session.export().messages for part in m.parts
            )


def test_a_limit_of_calls_is_kept_and_zero_means_the_digest(where: str) -> None:
    for calls in (0, 1, 3):
        model = FaultyModel("json")
        with opened(where, f"s{calls}", summarizer=model, compaction_calls=calls) as session:
            work(session)
            session.compact()
            assert len(model.requests) <= calls
            assert session.events()[-1].data["how"] == "digest"


def test_an_unknown_summarizer_is_refused_at_opening(tmp_path: Path) -> None:
    with pytest.raises((BadPolicy, BadInput)):
        opened(str(tmp_path / "s.db"), "s", summarizer="no such model at all")


def test_a_fork_is_compacted_by_the_same_model(where: str) -> None:
    model = FaultyModel("good")
    with opened(where, "s", summarizer=model) as session:
        work(session)
        with session.fork() as fork:
            fork.compact()
            assert model.requests
            assert notes() in view_text(fork)
        assert pivots(session) == []


# --- order of steps -------------------------------------------------------------------------------


def test_pruning_comes_first_and_may_be_enough(where: str) -> None:
    model = FaultyModel("good")
    with opened(where, "s", window=20_000, summarizer=model) as session:
        work(session, 29)
        assert session.tokens > session.usable
        session.messages()
        assert [operation.kind for operation in session.operations()] == ["prune"]
        assert session.view().tokens <= session.usable
        assert model.requests == []
        assert session.fit() is None  # twice is once


def test_a_session_is_compacted_if_pruning_is_not_enough(where: str) -> None:
    with opened(where, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        work(session)
        operation = session.fit()
        assert operation is not None
        assert operation.kind == "pivot"
        assert session.view().tokens <= session.usable
        assert session.fit() is None
        assert_valid(session.messages())


class Keeps:
    """A hook that allows only one output to be pruned."""

    def before_prune(self, prune: Prune) -> list[int]:
        return [pruned.ordinal for pruned in prune.prune[1:]]


def test_a_session_is_compacted_if_hooks_prevent_pruning(where: str) -> None:
    with opened(where, "s", window=20_000, hooks=[Keeps()], summarizer="digest") as session:
        work(session, 29)
        session.messages()
        assert [operation.kind for operation in session.operations()] == ["prune", "pivot"]
        assert session.view().tokens <= session.usable


@pytest.mark.parametrize("is_async", [True, False])
def test_a_queued_compaction_goes_first_even_if_the_view_fits(
    where: str, *, is_async: bool
) -> None:
    model = FaultyModel("good")
    with opened(where, "s", window=100_000, summarizer=model) as session:
        work(session)
        queued = session.queue()
        messages = asyncio.run(session.amessages()) if is_async else session.messages()
        assert queued
        assert [pivot.number for pivot in pivots(session) if pivot.in_force] == [queued.number]
        assert notes() in "\n".join(prompt_texts(messages))
        assert session.pending() is None


@pytest.mark.parametrize("is_async", [True, False])
def test_a_queued_compaction_that_frees_nothing_is_cancelled(where: str, *, is_async: bool) -> None:
    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        session.user("Hello")
        view = bytes_of(session.view())
        session.queue()
        messages = asyncio.run(session.amessages()) if is_async else session.messages()
        assert encode(messages) == view
        assert session.pending() is None
        assert [operation.state for operation in pivots(session)] == ["failed"]
        assert "too little to compact" in session.events()[-1].data["reason"]


@pytest.mark.parametrize("switch", [{"auto": False}, {"policy": FOLDMARK.adjusted(auto=False)}])
def test_auto_off_stops_every_automatic_compaction_but_no_manual_one(
    where: str, switch: dict[str, Any]
) -> None:
    model = FaultyModel("good")
    with opened(where, "s", summarizer=model, **switch) as session:
        work(session, 60)
        view = bytes_of(session.view())
        assert session.fit() is None
        assert asyncio.run(session.afit()) is None
        assert encode(session.messages()) == view
        for overflow in (False, True):
            assert session.compact(auto=True, overflow=overflow) is None
            assert asyncio.run(session.acompact(auto=True, overflow=overflow)) is None
            assert session.queue(auto=True, overflow=overflow) is None
            assert session.compact("Mine", auto=True, overflow=overflow) is None
        assert (session.operations(), model.requests) == ([], [])
        assert session.compact() is not None
        assert model.requests


def test_a_window_that_is_too_small_raises_with_its_figures(where: str) -> None:
    with opened(where, "s", window=2_000, output=200, summarizer=FaultyModel("good")) as session:
        session.user("word " * 3_000)
        with pytest.raises(WindowTooSmall) as raised:
            session.messages()
        assert raised.value.fixed > raised.value.usable == session.usable
        assert session.operations() == []
    with opened(where, "t", window=2_000, output=200, fixed_tokens=1_900) as session:
        work(session)
        with pytest.raises(WindowTooSmall, match="the system prompt and the tools"):
            session.messages()


# --- another model --------------------------------------------------------------------------------


def test_switching_to_a_smaller_model_compacts_first(where: str) -> None:
    model = FaultyModel("good")
    with opened(where, "s", window=60_000, summarizer=model) as session:
        work(session, 40)
        made = session.switch_model(window=8_000, output=1_000)
        assert [operation.kind for operation in made] == ["pivot"]
        assert session.usable == 7_000
        assert session.tokens <= session.usable
        assert model.requests
        assert_valid(session.messages())
        assert session.switch_model(window=60_000) == []
        assert session.usable > 7_000


def test_switching_to_a_model_that_is_too_small_changes_nothing(where: str) -> None:
    with opened(where, "s", window=60_000, summarizer="digest") as session:
        session.user("word " * 9_000)
        usable, view = session.usable, bytes_of(session.view())
        with pytest.raises((WindowTooSmall, CompactionStopped)):
            session.switch_model(window=4_000, output=500)
        assert session.usable == usable
        assert bytes_of(session.view()) == view
        assert session.pending() is None


# --- stored messages ------------------------------------------------------------------------------


def test_a_marker_names_its_tail_and_is_the_parent_of_its_summary(where: str) -> None:
    with opened(where, "s", policy=NO_PRUNE, summarizer=FaultyModel("good")) as session:
        work(session)
        operation = session.compact(auto=True)
        assert operation is not None
        messages = session.export().messages
        marker = next(m for m in messages if marker_part(m) is not None)
        part = marker_part(marker)
        assert part is not None
        assert part.tail_start_id in {message.id for message in messages}
        info = summary_of(session, operation).info
        assert isinstance(info, AssistantInfo)
        assert info.parent_id == marker.id


def test_a_late_result_may_belong_to_a_folded_call(where: str) -> None:
    with opened(where, "s", summarizer=ScriptedModel(ModelReply(text=notes()))) as session:
        session.user("Fix the login")
        session.record([call("late")])
        work(session)
        session.compact()
        session.result("late", "It came at last.")
        assert_valid(session.messages())
        assert isinstance(session.view().messages[1], AssistantMessage)


def test_a_throttled_model_is_called_again(tmp_path: Path) -> None:
    model = ScriptedModel(ModelFailure(cause="throttled", message="slow down"), notes())
    with opened(str(tmp_path / "s.db"), "s", summarizer=model, window=60_000) as session:
        work(session, 8)
        session.compact()
        assert [ask.delay for ask in model.requests] == [0.0, 1.0]
        assert session.events()[-1].data["how"] == "serial"
