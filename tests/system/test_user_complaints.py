"""What users of such programs complain of (docs/design.md tells the promises): each as a test."""

import asyncio
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
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.wire.codec import WIRES
from tests.support.compacted_sessions import NO_PRUNE, pivots, said_for_the_user, shown_text
from tests.support.failing_models import FaultyModel, asked_texts
from tests.support.session_strategies import PNG
from tests.support.stored_sessions import bytes_of, call, opened, step, work
from tests.support.view_rules import assert_valid

SHOT = FilePart(mime="image/png", url=PNG, filename="shot.png")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "s.db")


def media(session: foldmark.Session) -> list[Media]:
    shown = session.view().messages
    return [block for message in shown for block in message.content if isinstance(block, Media)]


def filled(session: foldmark.Session, steps: int = 30) -> None:
    for number in range(steps):
        step(session, f"f{number}", f"wheel {number}\n" * 150, f"f{number}.py")


# --- 1. loops and thrash --------------------------------------------------------------------------


def test_compactions_are_few_and_each_frees_a_good_deal(store: str) -> None:
    model = FaultyModel("good")
    with opened(store, "s", summarizer=model, policy=NO_PRUNE) as session:
        session.user("Mend the mill")
        for number in range(60):
            session.messages()
            step(session, f"c{number}", f"wheel {number}\n" * 100, f"w{number}.py")
        made = pivots(session)
        assert 1 <= len(made) <= 20
        for act in made:
            assert act.before is not None
            assert act.after is not None
            assert act.after < 0.9 * act.before


# --- 2. the summary request fails, and the session is dead ----------------------------------------


@pytest.mark.parametrize("name", ["overflow", "failed", "unavailable", "raises", "timeout"])
def test_a_session_lives_on_when_no_summary_can_be_had(store: str, name: str) -> None:
    policy = NO_PRUNE.adjusted()
    with opened(store, "s", summarizer=FaultyModel(name, "unavailable"), policy=policy) as session:
        work(session)
        session.messages()
        assert session.view().tokens <= session.room
        session.user("Are you there?")
        assert asked_texts(session.messages())[-1] == "Are you there?"


# --- 3. forgotten: instructions, plans, failures, names -------------------------------------------


def tool(name: str, given: dict[str, Any], output: str, exit_code: int = 0) -> ToolPart:
    state = Completed(
        input=given, output=output, time=Time(start=1, end=2), metadata={"exit": exit_code}
    )
    return ToolPart(tool=name, call_id=f"{name}-{len(output)}", state=state)


def test_constraints_plans_failures_and_names_outlive_any_model(store: str) -> None:
    todos = [
        {"content": "replace the axle", "status": "in_progress"},
        {"content": "grease the bearing", "status": "pending"},
    ]
    with opened(store, "s", summarizer=FaultyModel("empty"), window=16_000) as session:
        session.user("Mend the mill in src/mill.py.\nNever drain the pond.")
        session.record([tool("todowrite", {"todos": todos}, "ok")])
        failing = "Traceback: AxleError: bearing_gap is 7\n"
        session.record([tool("bash", {"command": "make turn-wheel"}, failing, exit_code=2)])
        session.record([tool("edit", {"filePath": "src/axle_spec.py"}, "changed")])
        filled(session, 40)
        session.compact()
        act = pivots(session)[0]
        assert act.tail is not None
        assert act.tail > 3  # all of it was folded
        text = shown_text(session)
        for kept in (
            "Mend the mill in src/mill.py.",
            "Never drain the pond.",
            "replace the axle",
            "grease the bearing",
            "make turn-wheel",
            "src/axle_spec.py",
        ):
            assert kept in text, kept


# --- 4. finished tasks come back ------------------------------------------------------------------


def test_what_was_answered_is_marked_as_answered(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("unavailable")) as session:
        session.user("Paint the door green")
        session.record("It is green.")
        session.user("Now mend the roof")
        filled(session)
        session.compact()
        text = shown_text(session)
        assert "First request (answered):\nPaint the door green" in text
        assert "answered (h0): Paint the door green" in text
        open_lines = [line for line in text.splitlines() if line.startswith("- open")]
        assert len(open_lines) == 1
        assert "Now mend the roof" in open_lines[0]


# --- 5. calls without results, results without calls ----------------------------------------------


@pytest.mark.parametrize("wire", sorted(WIRES))
@pytest.mark.parametrize("tail", [0, 300, 1_500])
def test_calls_and_results_stay_together_on_every_wire(store: str, wire: str, tail: int) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), tail_tokens=tail) as session:
        session.user("Mend the mill")
        for number in range(20):
            names = [f"c{number}.{part}" for part in range(3)]
            session.record([TextPart(text="I look"), *(call(name, f"{name}.py") for name in names)])
            for name in reversed(names[: 3 - number % 2]):  # some never come back
                session.result(name, f"{name}\n" * 60)
        session.compact()
        assert_valid(session.view().messages)
        assert session.messages(wire)
        session.undo()
        assert_valid(session.view().messages)


# --- 6. pictures for ever, or lost from the very prompt -------------------------------------------


def test_an_old_picture_goes_and_the_one_that_is_asked_about_stays(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        session.user([TextPart(text="What is this?"), SHOT])
        session.record("A wheel.")
        session.user([TextPart(text="And what turns in this one?"), SHOT])
        filled(session)
        assert len(media(session)) == 2
        session.messages()
        assert pivots(session)
        assert len(media(session)) == 1
        assert "And what turns in this one?" in shown_text(session)


# --- 7. a smaller model ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["good", "overflow", "empty"])
def test_a_model_with_a_smaller_window_gets_a_view_that_fits(store: str, name: str) -> None:
    with opened(store, "s", window=200_000, summarizer=FaultyModel(name)) as session:
        work(session, 60)
        assert session.tokens > 30_000
        session.switch(window=8_000, output=1_000)
        assert session.room == 7_000
        assert session.view().tokens <= 7_000
        assert_valid(session.messages())
        assert "Fix the failing test" in shown_text(session)


def test_a_session_that_was_large_is_opened_with_a_smaller_window(store: str) -> None:
    with opened(store, "s", window=200_000) as session:
        work(session, 60)
    with opened(store, "s", summarizer="digest") as session:
        session.messages()
        assert session.view().tokens <= session.room


# --- 8. a threshold of one's own ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "room"),
    [
        ({"threshold": 0.5}, 50_000),
        ({"threshold": 30_000}, 30_000),
        ({"thresholds": {"test:*": 0.2}, "threshold": 0.5}, 20_000),
        ({"thresholds": {"test:small": 10_000}}, 10_000),
        ({"thresholds": {"other:*": 0.1}}, 99_000),
    ],
)
def test_a_share_or_a_figure_for_each_model(
    store: str, settings: dict[str, Any], room: int
) -> None:
    with opened(
        store, "s", window=100_000, model="test:small", summarizer="digest", **settings
    ) as session:
        assert session.room == room
        session.user("Mend the mill")
        while session.tokens < room:
            assert not session.plan().overflow
            session.record("word " * 1_500)
            session.user("On.")
        session.messages()
        assert pivots(session)
        assert session.view().tokens <= room


# --- 9. auto=false --------------------------------------------------------------------------------


def test_who_switched_it_off_is_never_folded_even_when_a_provider_refuses(store: str) -> None:
    model = FaultyModel("good")
    for switched in ({"auto": False}, {"policy": FOLDMARK.adjusted(auto=False)}):
        with opened(store, f"s{len(switched)}", summarizer=model, **switched) as session:
            work(session, 60)
            view = bytes_of(session.view())
            assert session.compact(auto=True, overflow=True) is None
            assert asyncio.run(session.acompact(auto=True, overflow=True)) is None
            assert encode(session.messages()) == view
            assert (session.acts(), session.pending(), model.asks) == ([], None, [])


# --- 13. fake words of the user -------------------------------------------------------------------


def test_nothing_is_put_into_the_users_mouth(store: str) -> None:
    with opened(store, "s", summarizer=FaultyModel("good"), policy=NO_PRUNE) as session:
        said = ["Mend the mill", "And the pond?"]
        for request in said:
            session.user(request)
            filled(session)
            session.messages()
            session.record("It is done.")
        session.messages()
        assert len(pivots(session)) >= 2
        assert said_for_the_user(session) == []
        texts = [
            part.text
            for message in session.export().messages
            if not isinstance(message.info, AssistantInfo)
            for part in message.parts
            if isinstance(part, TextPart)
        ]
        assert texts == said


def test_a_call_that_waits_for_its_result_is_not_taken_for_an_answer(store: str) -> None:
    with opened(store, "s", summarizer="digest", policy=NO_PRUNE) as session:
        session.user("Mend the mill")
        filled(session)
        waiting = ToolPart(tool="bash", call_id="w", state=Pending(input={"command": "turn"}))
        session.record([waiting])
        session.compact(auto=True)
        assert "Mend the mill" in shown_text(session)
        session.result("w", "it turns")
        assert_valid(session.messages())
        assert said_for_the_user(session) == []
