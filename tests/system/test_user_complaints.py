"""Common complaints about compaction, each as a test; docs/design.md lists the promises."""

from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    FilePart,
    Pending,
    TextPart,
    Time,
    ToolPart,
)
from foldmark.model.prompt_messages import Media
from foldmark.wire.codec import WIRES
from tests.support.compacted_sessions import NO_PRUNE, pivots, synthetic_texts, view_text
from tests.support.failing_models import FaultyModel, prompt_texts
from tests.support.session_strategies import PNG
from tests.support.stored_sessions import call, opened, step, work
from tests.support.view_rules import assert_valid

SHOT = FilePart(mime="image/png", url=PNG, filename="shot.png")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def media(session: foldmark.Session) -> list[Media]:
    messages = session.view().messages
    return [block for message in messages for block in message.content if isinstance(block, Media)]


def filled(session: foldmark.Session, steps: int = 30) -> None:
    for number in range(steps):
        step(session, f"f{number}", f"check {number}\n" * 150, f"f{number}.py")


# --- 1. loops and thrash --------------------------------------------------------------------------


def test_compactions_are_few_and_each_frees_a_tenth(store: str) -> None:
    model = FaultyModel("good")
    with opened(store, "s", summarizer=model, policy=NO_PRUNE) as session:
        session.user("Fix the login")
        for number in range(60):
            session.messages()
            step(session, f"c{number}", f"check {number}\n" * 100, f"w{number}.py")
        assert 1 <= len(pivots(session)) <= 20
        for pivot in pivots(session):
            assert pivot.before is not None
            assert pivot.after is not None
            assert pivot.after < 0.9 * pivot.before


# --- 2. the summary request fails, and the session is dead ----------------------------------------


@pytest.mark.parametrize("name", ["overflow", "failed", "unavailable", "raises", "timeout"])
def test_a_session_continues_when_no_summary_can_be_made(store: str, name: str) -> None:
    policy = NO_PRUNE.adjusted()
    with opened(store, "s", summarizer=FaultyModel(name, "unavailable"), policy=policy) as session:
        work(session)
        session.messages()
        assert session.view().tokens <= session.usable
        session.user("Are you there?")
        assert prompt_texts(session.messages())[-1] == "Are you there?"


# --- 3. forgotten: instructions, plans, failures, names -------------------------------------------


def tool(name: str, arguments: dict[str, Any], output: str, exit_code: int = 0) -> ToolPart:
    state = Completed(
        input=arguments, output=output, time=Time(start=1, end=2), metadata={"exit": exit_code}
    )
    return ToolPart(tool=name, call_id=f"{name}-{len(output)}", state=state)


def test_constraints_plans_failures_and_names_survive_a_compaction(store: str) -> None:
    todos = [
        {"content": "replace the parser", "status": "in_progress"},
        {"content": "update the README", "status": "pending"},
    ]
    with opened(store, "s", summarizer=FaultyModel("empty"), window=16_000) as session:
        session.user("Fix the login in src/login.py.\nNever drop the table.")
        session.record([tool("todowrite", {"todos": todos}, "ok")])
        failing = "Traceback: LoginError: token_age is 7\n"
        session.record([tool("bash", {"command": "make test-login"}, failing, exit_code=2)])
        session.record([tool("edit", {"filePath": "src/token_spec.py"}, "changed")])
        filled(session, 40)
        session.compact()
        operation = pivots(session)[0]
        assert operation.tail is not None
        assert operation.tail > 3  # all of these messages were folded
        text = view_text(session)
        for fact in (
            "Fix the login in src/login.py.",
            "Never drop the table.",
            "replace the parser",
            "update the README",
            "make test-login",
            "src/token_spec.py",
        ):
            assert fact in text, fact


# --- 4. finished tasks come back ------------------------------------------------------------------


def test_answered_requests_are_marked_as_answered(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("unavailable")) as session:
        session.user("Rename the endpoint")
        session.record("It is renamed.")
        session.user("Now fix the timeout")
        filled(session)
        session.compact()
        text = view_text(session)
        assert "First request (answered):\nRename the endpoint" in text
        assert "answered (h0): Rename the endpoint" in text
        open_lines = [line for line in text.splitlines() if line.startswith("- open")]
        assert len(open_lines) == 1
        assert "Now fix the timeout" in open_lines[0]


# --- 5. calls without results, results without calls ----------------------------------------------


@pytest.mark.parametrize("wire", sorted(WIRES))
@pytest.mark.parametrize("tail", [0, 300, 1_500])
def test_calls_and_results_stay_together_in_every_api_format(
    store: str, wire: str, tail: int
) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), tail_tokens=tail) as session:
        session.user("Fix the login")
        for number in range(20):
            names = [f"c{number}.{part}" for part in range(3)]
            session.record([TextPart(text="I look"), *(call(name, f"{name}.py") for name in names)])
            for name in reversed(names[: 3 - number % 2]):  # some results never come
                session.result(name, f"{name}\n" * 60)
        session.compact()
        assert_valid(session.view().messages)
        assert session.messages(wire)
        session.undo()
        assert_valid(session.view().messages)


# --- 6. pictures that stay forever, or are lost from the current prompt ---------------------------


def test_an_old_picture_is_dropped_and_the_current_one_stays(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        session.user([TextPart(text="What is this?"), SHOT])
        session.record("A parser.")
        session.user([TextPart(text="And what fails in this one?"), SHOT])
        filled(session)
        assert len(media(session)) == 2
        session.messages()
        assert pivots(session)
        assert len(media(session)) == 1
        assert "And what fails in this one?" in view_text(session)


# --- 7. a smaller model ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["good", "overflow", "empty"])
def test_a_model_with_a_smaller_window_gets_a_view_that_fits(store: str, name: str) -> None:
    with opened(store, "s", window=200_000, summarizer=FaultyModel(name)) as session:
        work(session, 60)
        assert session.tokens > 30_000
        session.switch_model(window=8_000, output=1_000)
        assert session.usable == 7_000
        assert session.view().tokens <= 7_000
        assert_valid(session.messages())
        assert "Fix the failing test" in view_text(session)


def test_a_large_session_can_be_opened_with_a_smaller_window(store: str) -> None:
    with opened(store, "s", window=200_000) as session:
        work(session, 60)
    with opened(store, "s", summarizer="digest") as session:
        session.messages()
        assert session.view().tokens <= session.usable


# --- 8. custom thresholds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"threshold": 0.5}, 50_000),
        ({"threshold": 30_000}, 30_000),
        ({"thresholds": {"test:*": 0.2}, "threshold": 0.5}, 20_000),
        ({"thresholds": {"test:small": 10_000}}, 10_000),
        ({"thresholds": {"other:*": 0.1}}, 99_000),
    ],
)
def test_thresholds_apply_per_model(store: str, settings: dict[str, Any], limit: int) -> None:
    with opened(
        store, "s", window=100_000, model="test:small", summarizer="digest", **settings
    ) as session:
        assert session.usable == limit
        session.user("Fix the login")
        while session.tokens < limit:
            assert not session.plan().overflow
            session.record("word " * 1_500)
            session.user("On.")
        session.messages()
        assert pivots(session)
        assert session.view().tokens <= limit


# --- 13. invented user messages -------------------------------------------------------------------


def test_no_user_message_is_invented(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        requests = ["Fix the login", "And the cache?"]
        for request in requests:
            session.user(request)
            filled(session)
            session.messages()
            session.record("It is done.")
        session.messages()
        assert len(pivots(session)) >= 2
        assert synthetic_texts(session) == []
        texts = [
            part.text
            for message in session.export().messages
            if not isinstance(message.info, AssistantInfo)
            for part in message.parts
            if isinstance(part, TextPart)
        ]
        assert texts == requests


def test_an_open_call_does_not_count_as_a_reply(store: str) -> None:
    with opened(store, "s", summarizer="digest", policy=NO_PRUNE) as session:
        session.user("Fix the login")
        filled(session)
        waiting = ToolPart(tool="bash", call_id="w", state=Pending(input={"command": "turn"}))
        session.record([waiting])
        session.compact(auto=True)
        assert "Fix the login" in view_text(session)
        session.result("w", "it turns")
        assert_valid(session.messages())
        assert synthetic_texts(session) == []
