"""Twelve defects that were seen in a program of this kind: here, none of them.

Each test would fail on the behaviour that its heading names.
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
    said_for_the_user,
    shown_text,
    when_asked,
)
from tests.support.compaction_dialogue import Trial, user, work_session
from tests.support.failing_models import FaultyModel, GatedModel, window_tokens, prompt_texts
from tests.support.stored_sessions import opened, step, work
from tests.support.view_rules import MARKER, assert_valid


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def failed_once(store: str) -> foldmark.Session:
    """A session whose compaction has just been ended from outside."""
    model = GatedModel()
    session = opened(store, "s", summarizer=model, policy=NO_PRUNE)
    work(session)
    when_asked(model, session.abort)
    with pytest.raises(Aborted):
        session.messages()
    model.gate.set()
    return session


# --- 1. a failed compaction swallows the next prompt ----------------------------------------------


def test_the_prompt_after_a_failed_compaction_is_shown_and_answered(store: str) -> None:
    with failed_once(store) as session:
        session.user("What is the wheel made of?")
        assert prompt_texts(session.messages())[-1] == "What is the wheel made of?"
        answered = session.record("Of oak.")
        assert isinstance(answered.info, AssistantInfo)
        assert not answered.info.summary
        assert prompt_texts(session.messages())[-2:] == ["What is the wheel made of?", "Of oak."]


def test_a_summary_belongs_to_its_marker_whatever_was_said_since(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good")) as session:
        work(session)
        session.queue()
        session.user("What is the wheel made of?")
        session.messages()
        messages = session.export().messages
        marker = next(message for message in messages if marker_part(message))
        summary = next(m for m in messages if isinstance(m.info, AssistantInfo) and m.info.summary)
        assert isinstance(summary.info, AssistantInfo)
        assert summary.info.parent_id == marker.id
        assert prompt_texts(session.messages())[-1] == "What is the wheel made of?"


# --- 2. no breaker --------------------------------------------------------------------------------


def test_usage_that_is_always_over_the_limit_ends_the_loop_soon(store: str) -> None:
    huge = Tokens(input=10**6, output=5, reasoning=0, cache=Cache(read=0, write=0))
    model = FaultyModel("good")
    with opened(store, "s", summarizer=model) as session:
        session.user("Mend the mill")
        for number in range(40):
            try:
                session.messages()
            except CompactionStopped as error:
                stopped = error
                break
            session.record(f"I look. {'word ' * 200}{number}", tokens=huge, finish="tool-calls")
        else:
            pytest.fail("it compacted on and on")
        assert len(pivots(session)) <= 3
        assert stopped.reason
        assert session.pending() is None


# --- 3. an empty or a cut summary is accepted -----------------------------------------------------


@pytest.mark.parametrize("name", ["empty", "blank", "cut", "headings"])
def test_an_answer_without_content_is_never_what_is_left_of_the_work(store: str, name: str) -> None:
    with opened(store, "s", summarizer=FaultyModel(name), policy=NO_PRUNE) as session:
        work(session)
        session.messages()
        assert session.events()[-1].data["how"] == "digest"
        text = shown_text(session)
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
        assert [act.state for act in pivots(session)] == ["failed"]


# --- 5. a dangling tail brings the whole history back ---------------------------------------------


def test_a_tail_that_is_not_there_brings_nothing_back() -> None:
    made = MessageIds(session="s", message="marker", part="p", at=1)
    pivot = [
        marker_message(made, auto=True, tail_start="msg_that_never_was"),
        summary_message(replace(made, message="summary"), "All was mended.", marker="marker"),
    ]
    log = Log(by_classes, [*work_session(10), *pivot, user("And now?", 9)])
    view = Viewer(log, FOLDMARK, usable=50_000).view()
    assert len(view.indexes) == 3
    assert view.tokens < 300
    assert_valid(view.messages)


# --- 6. a turn that nobody asked for --------------------------------------------------------------


@pytest.mark.parametrize("policy", ["foldmark", "opencode", "opencode-2025"])
def test_after_a_finished_answer_nobody_goes_on_by_themselves(store: str, policy: str) -> None:
    with opened(store, "s", policy=policy, summarizer=FaultyModel("good")) as session:
        work(session)
        many = len(session.export().messages)
        session.compact(auto=True)
        assert len(session.export().messages) == many + 2  # the marker and the summary
        assert said_for_the_user(session) == []


# --- 7. nothing stays where everything fits -------------------------------------------------------


def test_the_newest_words_stay_even_where_everything_would(store: str) -> None:
    with opened(store, "s", window=200_000, summarizer=FaultyModel("good")) as session:
        for number in range(12):
            session.user(f"Question {number}? {'word ' * 60}")
            session.record(f"Answer {number}. {'word ' * 60}")
        assert session.tokens < 3_000  # far below what a tail may have
        newest = session.view().messages[-2:]
        act = session.compact()
        assert act is not None
        assert act.tail is not None
        assert session.view().messages[-2:] == newest


# --- 8. a provider that under-reports -------------------------------------------------------------


def test_a_provider_that_reports_too_little_is_not_believed(store: str) -> None:
    little = Tokens(input=10, output=1, reasoning=0, cache=Cache(read=0, write=0))
    with opened(store, "s", summarizer=FaultyModel("good")) as session:
        session.user("Mend the mill")
        for number in range(40):
            assert session.messages()
            assert session.view().tokens <= session.usable
            session.record(f"I look at {number}. {'word ' * 400}", tokens=little)
            session.user("On.")
        assert pivots(session)


# --- 9. a request for a summary without bounds ----------------------------------------------------


@pytest.mark.parametrize("name", ["good", "overflow", "empty"])
def test_a_history_of_any_length_is_folded_in_requests_that_fit(name: str) -> None:
    limit = Limit(context=8_000, output=1_000)
    trial = Trial(work_session(300, 60), limit)
    assert trial.viewer.tokens > 8 * limit.context
    made = trial.run(name)
    assert made.text.strip()
    assert trial.requests
    assert len(trial.requests) <= FOLDMARK.compact.calls
    assert all(window_tokens(ask, by_classes) <= limit.context for ask in trial.requests)


# --- 10. an output limit as large as the context --------------------------------------------------


def test_an_output_limit_as_large_as_the_context_leaves_a_window_to_work_in(store: str) -> None:
    limit = Limit(context=32_768, output=32_768)
    assert usable(FOLDMARK, limit) >= 24_000
    with opened(store, "s", window=32_768, output=32_768, summarizer="digest") as session:
        session.user("Mend the mill")
        for number in range(40):
            session.messages()
            step(session, f"c{number}", "wheel\n" * 200, f"w{number}.py")
        assert len(session.operations()) <= 4


# --- 11. a split turn -----------------------------------------------------------------------------


def test_after_a_split_turn_roles_alternate_and_the_request_stands_by_itself(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        session.user("Mend the mill, and mind the pond")
        for number in range(40):
            step(session, f"c{number}", "wheel\n" * 200, f"w{number}.py")
        shown = session.messages()
        act = pivots(session)[-1]
        assert act.tail is not None
        assert act.tail > 0  # the turn was split
        assert_valid(shown)
        by_user = [
            text for message in shown if message.role == "user" for text in prompt_texts([message])
        ]
        assert any("Mend the mill, and mind the pond" in text for text in by_user)


# --- 12. media by the length of their base64 ------------------------------------------------------


def test_a_picture_costs_what_a_picture_costs_and_is_not_sent_again_at_any_size(store: str) -> None:
    picture = FilePart(
        mime="image/png", url="data:image/png;base64," + "A" * 3_000_000, filename="big.png"
    )
    with opened(store, "s", window=30_000, summarizer=FaultyModel("good")) as session:
        session.user([TextPart(text="What is this?"), picture])
        assert session.tokens < 20_000
        session.messages()
        assert session.operations() == []
        session.record("A wheel.")
        work(session, 40)
        session.compact()
        media = [b for m in session.view().messages for b in m.content if isinstance(b, Media)]
        assert media == []
        assert len(encode(session.messages())) < 200_000
