"""The breaker: where compacting frees nothing, or is needed again at once, it stops."""

from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.compaction.situation import freed_share, stop_error, stop_reason, window_contents
from foldmark.errors import CompactionStopped
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.operations import Operation
from foldmark.policy import FOLDMARK, CompactRules
from foldmark.tokens.counters import by_classes
from tests.support.compaction_dialogue import answer, user
from tests.support.failing_models import FaultyModel
from tests.support.stored_sessions import bytes_of, opened, work

RULES = CompactRules(futile=0.1)


def pivot(number: int, before: int | None, after: int | None, **more: Any) -> Operation:
    place = number * 10
    return Operation(
        number=number,
        kind="pivot",
        at=1,
        place=place,
        marker=place,
        summary=place + 1,
        before=before,
        after=after,
        **more,
    )


def answers(many: int) -> Log:
    return Log(by_classes, [answer("So it is.", number) for number in range(many)])


FAR = answers(80)


def test_two_in_a_row_that_free_less_than_a_tenth_stop_it() -> None:
    acts = [pivot(1, 1_000, 950), pivot(2, 1_000, 920)]
    reason = stop_reason(acts, FAR, RULES)
    assert reason == "the last 2 compactions freed less than 10% each"


@pytest.mark.parametrize(
    "acts",
    [
        [],
        [pivot(1, 1_000, 950)],
        [pivot(1, 1_000, 950), pivot(2, 1_000, 500)],
        [pivot(1, 1_000, 950), pivot(2, 1_000, 500), pivot(3, 1_000, 950)],
        [pivot(1, 1_000, 950), pivot(2, 1_000, 950, undone=5)],
        [pivot(1, None, None), pivot(2, None, None)],
    ],
)
def test_it_goes_on_where_something_was_freed_or_nothing_is_known(acts: list[Operation]) -> None:
    assert stop_reason(acts, FAR, RULES) is None


def test_what_is_fixed_is_part_of_what_was_not_freed() -> None:
    act = pivot(1, 1_000, 800)
    assert freed_share(act) == pytest.approx(0.2)
    assert freed_share(act, fixed=3_000) == pytest.approx(0.05)
    acts = [act, pivot(2, 1_000, 800)]
    assert stop_reason(acts, FAR, RULES) is None
    assert stop_reason(acts, FAR, RULES, fixed=3_000) is not None


def test_a_third_pivot_within_three_turns_is_too_many() -> None:
    acts = [pivot(1, 1_000, 100), pivot(2, 1_000, 100)]
    assert stop_reason(acts, answers(13), RULES) == "this would be compaction 3 within 3 turns"
    assert stop_reason(acts, answers(15), RULES) is None
    said = Log(by_classes, [user("On.", number) for number in range(80)])
    assert stop_reason(acts, said, RULES) is not None  # the user's messages are no turns


def test_other_acts_do_not_count() -> None:
    prunes = [
        Operation(number=n, kind="prune", at=1, place=n, before=100, after=99) for n in range(5)
    ]
    assert stop_reason(prunes, answers(1), RULES) is None


def test_it_says_what_fills_the_window_the_largest_first() -> None:
    log = Log(by_classes, [user("word " * 900, 7), answer("Yes.", 1)])
    viewer = Viewer(log, FOLDMARK, usable=1_000)
    found = window_contents(viewer, 200)
    assert [name for name, _ in found] == [
        "the user's message user_7",
        "the system prompt and the tools",
        "the answer answer_1",
    ]
    error = stop_error("no more", viewer, usable=1_000, fixed=200)
    assert "the user's message user_7" in str(error)
    assert "1000 usable tokens" in str(error)
    assert error.fills == found


# --- in a session ---------------------------------------------------------------------------------


def turn(
    session: foldmark.Session, number: int, *, queued: bool = False
) -> CompactionStopped | None:
    """What no compaction can help against: each turn fills the window again."""
    session.user(f"Question {number}: {'word ' * 5_000}")
    session.record("word " * 19_000)
    if queued:
        session.queue(auto=True, overflow=True)
    try:
        session.messages()
    except CompactionStopped as error:
        return error
    return None


def test_a_session_that_is_filled_again_at_once_is_stopped_across_restarts(where: str) -> None:
    for number in range(12):
        with opened(where, "s", window=20_000, summarizer=FaultyModel("good")) as session:
            error = turn(session, number)
            made = len(session.operations())
        if error is not None:
            break
    else:
        pytest.fail("it went on and on")
    assert "within 3 turns" in error.reason
    assert error.fills
    assert 2 <= made <= 4


def test_what_stops_the_loop_leaves_the_session_usable(tmp_path: Path) -> None:
    with opened(str(tmp_path / "s.db"), "s", window=20_000, summarizer="digest") as session:
        assert any(turn(session, number) for number in range(12))
        view, acts = bytes_of(session.view()), session.operations()
        assert session.pending() is None
        with pytest.raises(CompactionStopped):
            session.messages()
        assert (bytes_of(session.view()), session.operations()) == (
            view,
            acts,
        )  # nothing was written
        made = session.compact()  # the user may
        assert made is not None
        assert session.messages()
        session.undo()
        assert bytes_of(session.view()) == view


def test_automatic_compactions_that_are_queued_are_held_against_it_too(where: str) -> None:
    with opened(where, "s", window=20_000, summarizer="digest") as session:
        errors = [turn(session, number, queued=True) for number in range(3)]
        assert errors[:2] == [None, None]
        assert errors[2] is not None
        assert [act.state for act in session.operations()] == ["done", "done", "failed"]
        assert session.pending() is None


def test_nothing_is_made_where_a_summary_would_free_nothing(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
        session.record("Hello!")
        acts, events = session.operations(), session.events()
        with pytest.raises(CompactionStopped, match="too little to compact"):
            session.compact()
        assert (session.operations(), session.events()) == (acts, events)


def test_a_session_that_is_compacted_again_and_again_by_hand_comes_to_an_end(where: str) -> None:
    with opened(where, "s", summarizer="digest") as session:
        work(session)
        made: list[Operation | None] = []
        for _ in range(20):
            try:
                made.append(session.compact())
            except CompactionStopped:
                break
        assert 1 <= len(made) < 10
        for act in made:
            assert act is not None
            assert (act.after or 0) < (act.before or 0)
        assert session.pending() is None
