"""Twelve known defects of compaction in other programs, which do not occur here.

Each test would fail with the behavior that its heading names.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

import foldmark
from foldmark.compaction.pivot import MessageIds, marker_message, summary_message
from foldmark.errors import Aborted, CompactionStopped
from foldmark.log.log import Log, marker_part
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Cache, FilePart, TextPart, Tokens
from foldmark.model.prompt_messages import Media
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.session.session import state_of
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import by_classes
from foldmark.tokens.limits import Limit
from foldmark.wire.codec import WIRES
from tests.support.compacted_sessions import (
    NO_PRUNE,
    pivots,
    synthetic_texts,
    view_text,
    when_asked,
)
from tests.support.compaction_dialogue import Trial, user, work_session
from tests.support.failing_models import FaultyModel, GatedModel, prompt_texts, window_tokens
from tests.support.stored_sessions import opened, step, work
from tests.support.view_rules import MARKER, assert_valid


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def failed_once(store: str) -> foldmark.Session:
    """A session whose compaction was just aborted."""
    model = GatedModel()
    session = opened(store, "s", summarizer=model, policy=NO_PRUNE)
    work(session)
    when_asked(model, session.abort)
    with pytest.raises(Aborted):
        session.messages()
    model.gate.set()
    return session


# --- 1. a failed compaction swallows the next prompt ----------------------------------------------


def test_the_prompt_after_a_failed_compaction_is_visible_and_answered(store: str) -> None:
    with failed_once(store) as session:
        session.user("What does the parser do?")
        assert prompt_texts(session.messages())[-1] == "What does the parser do?"
        reply = session.record("It reads.")
        assert isinstance(reply.info, AssistantInfo)
        assert not reply.info.summary
        assert prompt_texts(session.messages())[-2:] == ["What does the parser do?", "It reads."]


def test_a_summary_belongs_to_its_marker_despite_later_messages(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good")) as session:
        work(session)
        session.queue()
        session.user("What does the parser do?")
        session.messages()
        messages = session.export().messages
        marker = next(message for message in messages if marker_part(message))
        summary = next(m for m in messages if isinstance(m.info, AssistantInfo) and m.info.summary)
        assert isinstance(summary.info, AssistantInfo)
        assert summary.info.parent_id == marker.id
        assert prompt_texts(session.messages())[-1] == "What does the parser do?"


# --- 2. no breaker --------------------------------------------------------------------------------


def test_usage_that_always_exceeds_the_limit_stops_the_loop_soon(store: str) -> None:
    huge = Tokens(input=10**6, output=5, reasoning=0, cache=Cache(read=0, write=0))
    model = FaultyModel("good")
    with opened(store, "s", summarizer=model) as session:
        session.user("Fix the login")
        for number in range(40):
            try:
                session.messages()
            except CompactionStopped as error:
                stopped = error
                break
            session.record(f"I look. {'word ' * 200}{number}", tokens=huge, finish="tool-calls")
        else:
            pytest.fail("it never stopped compacting")
        assert len(pivots(session)) <= 3
        assert stopped.reason
        assert session.pending() is None


# --- 3. an empty or truncated summary is accepted -------------------------------------------------


@pytest.mark.parametrize("name", ["empty", "blank", "cut", "headings"])
def test_an_empty_reply_never_becomes_the_summary(store: str, name: str) -> None:
    with opened(store, "s", summarizer=FaultyModel(name), policy=NO_PRUNE) as session:
        work(session)
        session.messages()
        assert session.events()[-1].data["how"] == "digest"
        text = view_text(session)
        assert "a20.py" in text
        assert "never touch the main branch" in text


# --- 4. a failed marker leaks into later requests -------------------------------------------------


@pytest.mark.parametrize("wire", sorted(WIRES))
def test_a_failed_marker_is_in_no_request(store: str, wire: str) -> None:
    with failed_once(store) as session:
        state_of(session).limit = Limit(context=10**6)  # all is shown, nothing folded
        for _ in range(3):
            session.user("And now?")
            session.record("Well.")
            assert MARKER not in str(session.messages(wire))
        assert [operation.state for operation in pivots(session)] == ["failed"]


# --- 5. a missing tail restores the whole history -------------------------------------------------


def test_a_missing_tail_restores_nothing() -> None:
    ids = MessageIds(session="s", message="marker", part="p", at=1)
    pivot = [
        marker_message(ids, auto=True, tail_start="msg_that_never_was"),
        summary_message(replace(ids, message="summary"), "All was fixed.", marker="marker"),
    ]
    log = Log(by_classes, [*work_session(10), *pivot, user("And now?", 9)])
    view = Viewer(log, FOLDMARK, usable=50_000).view()
    assert len(view.indexes) == 3
    assert view.tokens < 300
    assert_valid(view.messages)


# --- 6. a turn without a request ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["foldmark", "opencode", "opencode-2025"])
def test_nothing_resumes_after_a_finished_reply(store: str, policy: str) -> None:
    with opened(store, "s", policy=policy, summarizer=FaultyModel("good")) as session:
        work(session)
        many = len(session.export().messages)
        session.compact(auto=True)
        assert len(session.export().messages) == many + 2  # the marker and the summary
        assert synthetic_texts(session) == []


# --- 7. nothing stays if everything fits ----------------------------------------------------------


def test_the_newest_messages_stay_even_if_everything_would_fit(store: str) -> None:
    with opened(store, "s", window=200_000, summarizer=FaultyModel("good")) as session:
        for number in range(12):
            session.user(f"Question {number}? {'word ' * 60}")
            session.record(f"Answer {number}. {'word ' * 60}")
        assert session.tokens < 3_000  # far below the limit of the tail
        newest = session.view().messages[-2:]
        operation = session.compact()
        assert operation is not None
        assert operation.tail is not None
        assert session.view().messages[-2:] == newest


# --- 8. a provider that under-reports -------------------------------------------------------------


def test_usage_that_is_reported_too_low_is_not_trusted(store: str) -> None:
    little = Tokens(input=10, output=1, reasoning=0, cache=Cache(read=0, write=0))
    with opened(store, "s", summarizer=FaultyModel("good")) as session:
        session.user("Fix the login")
        for number in range(40):
            assert session.messages()
            assert session.view().tokens <= session.usable
            session.record(f"I look at {number}. {'word ' * 400}", tokens=little)
            session.user("On.")
        assert pivots(session)


# --- 9. a summary request without a limit ---------------------------------------------------------


@pytest.mark.parametrize("name", ["good", "overflow", "empty"])
def test_a_history_of_any_length_is_summarized_in_requests_that_fit(name: str) -> None:
    limit = Limit(context=8_000, output=1_000)
    trial = Trial(work_session(300, 60), limit)
    assert trial.viewer.tokens > 8 * limit.context
    result = trial.run(name)
    assert result.text.strip()
    assert trial.requests
    assert len(trial.requests) <= FOLDMARK.compact.calls
    assert all(window_tokens(ask, by_classes) <= limit.context for ask in trial.requests)


# --- 10. an output limit as large as the context --------------------------------------------------


def test_an_output_limit_as_large_as_the_context_leaves_a_usable_window(store: str) -> None:
    limit = Limit(context=32_768, output=32_768)
    assert usable(FOLDMARK, limit) >= 24_000
    with opened(store, "s", window=32_768, output=32_768, summarizer="digest") as session:
        session.user("Fix the login")
        for number in range(40):
            session.messages()
            step(session, f"c{number}", "check\n" * 200, f"w{number}.py")
        assert len(session.operations()) <= 4


# --- 11. a split turn -----------------------------------------------------------------------------


def test_after_a_split_turn_roles_alternate_and_the_request_is_visible(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        session.user("Fix the login, and mind the cache")
        for number in range(40):
            step(session, f"c{number}", "check\n" * 200, f"w{number}.py")
        messages = session.messages()
        operation = pivots(session)[-1]
        assert operation.tail is not None
        assert operation.tail > 0  # the turn was split
        assert_valid(messages)
        by_user = [
            text
            for message in messages
            if message.role == "user"
            for text in prompt_texts([message])
        ]
        assert any("Fix the login, and mind the cache" in text for text in by_user)


# --- 12. media counted by the length of their base64 ----------------------------------------------


def test_a_picture_is_counted_as_a_picture_and_dropped_after_a_compaction(store: str) -> None:
    picture = FilePart(
        mime="image/png", url="data:image/png;base64," + "A" * 3_000_000, filename="big.png"
    )
    with opened(store, "s", window=30_000, summarizer=FaultyModel("good")) as session:
        session.user([TextPart(text="What is this?"), picture])
        assert session.tokens < 20_000
        session.messages()
        assert session.operations() == []
        session.record("A parser.")
        work(session, 40)
        session.compact()
        media = [b for m in session.view().messages for b in m.content if isinstance(b, Media)]
        assert media == []
        assert len(encode(session.messages())) < 200_000
