"""The breaker stops compactions that free nothing, or are needed again at once."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from foldmark import Session
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
    index = number * 10
    fields: dict[str, Any] = {"marker": index, "summary": index + 1, **more}
    fields |= {"before": before, "after": after}
    return Operation(number=number, kind="pivot", at=1, place=index, **fields)


def replies(count: int) -> Log:
    return Log(by_classes, [answer("So it is.", number) for number in range(count)])


LONG = replies(80)


def test_two_in_a_row_that_free_less_than_a_tenth_are_too_many() -> None:
    operations = [pivot(1, 1_000, 950), pivot(2, 1_000, 920)]
    reason = stop_reason(operations, LONG, RULES)
    assert reason == "the last 2 compactions freed less than 10% each"


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [pivot(1, 1_000, 950)],
        [pivot(1, 1_000, 950), pivot(2, 1_000, 500)],
        [pivot(1, 1_000, 950), pivot(2, 1_000, 500), pivot(3, 1_000, 950)],
        [pivot(1, 1_000, 950), pivot(2, 1_000, 950, undone=5)],
        [pivot(1, None, None), pivot(2, None, None)],
    ],
)
def test_compacting_continues_if_something_was_freed_or_is_unknown(
    operations: list[Operation],
) -> None:
    assert stop_reason(operations, LONG, RULES) is None


def test_the_fixed_tokens_count_as_not_freed() -> None:
    first, second = pivot(1, 1_000, 800), pivot(2, 1_000, 800)
    assert freed_share(first) == pytest.approx(0.2)
    assert freed_share(first, fixed=3_000) == pytest.approx(0.05)
    assert stop_reason([first, second], LONG, RULES) is None
    assert stop_reason([first, second], LONG, RULES, fixed=3_000) is not None


def test_a_third_pivot_within_three_replies_is_too_many() -> None:
    pivots = [pivot(1, 1_000, 100), pivot(2, 1_000, 100)]
    assert stop_reason(pivots, replies(13), RULES) == "this would be compaction 3 within 3 turns"
    assert stop_reason(pivots, replies(15), RULES) is None
    users = Log(by_classes, [user("On.", number) for number in range(80)])
    assert stop_reason(pivots, users, RULES) is not None  # only replies count
    prunes = [replace(pivot(number, 100, 99), kind="prune") for number in range(5)]
    assert stop_reason(prunes, replies(1), RULES) is None


def test_the_error_says_what_fills_the_window_largest_first() -> None:
    log = Log(by_classes, [user("word " * 900, 7), answer("Yes.", 1)])
    viewer = Viewer(log, FOLDMARK, usable=1_000)
    contents = window_contents(viewer, 200)
    assert [name for name, _ in contents] == [
        "the user's message user_7",
        "the system prompt and the tools",
        "the answer answer_1",
    ]
    error = stop_error("no more", viewer, usable=1_000, fixed=200)
    assert "the user's message user_7" in str(error)
    assert "1000 usable tokens" in str(error)
    assert error.fills == contents


# --- in a session ---------------------------------------------------------------------------


def turn(session: Session, number: int, *, is_queued: bool = False) -> CompactionStopped | None:
    """Fill the window in one turn, and return the error if it cannot be compacted."""
    session.user(f"Question {number}: {'word ' * 5_000}")
    session.record("word " * 19_000)
    if is_queued:
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
            count = len(session.operations())
        if error is not None:
            break
    else:
        pytest.fail("the compactions were not stopped")
    assert "within 3 turns" in error.reason
    assert error.fills
    assert 2 <= count <= 4


def test_a_stopped_session_stays_usable(tmp_path: Path) -> None:
    with opened(str(tmp_path / "s.db"), "s", window=20_000, summarizer="digest") as session:
        assert any(turn(session, number) for number in range(12))
        view, operations = bytes_of(session.view()), session.operations()
        assert session.pending() is None
        with pytest.raises(CompactionStopped):
            session.messages()
        assert (bytes_of(session.view()), session.operations()) == (view, operations)
        assert session.compact() is not None  # the user may
        assert session.messages()
        session.undo()
        assert bytes_of(session.view()) == view


def test_queued_automatic_compactions_are_counted_too(where: str) -> None:
    with opened(where, "s", window=20_000, summarizer="digest") as session:
        errors = [turn(session, number, is_queued=True) for number in range(3)]
        assert errors[:2] == [None, None]
        assert errors[2] is not None
        assert [one.state for one in session.operations()] == ["done", "done", "failed"]
        assert session.pending() is None


def test_nothing_is_written_if_a_summary_would_free_nothing(where: str) -> None:
    with opened(where, "s") as session:
        session.user("Hello")
        session.record("Hello!")
        before = session.operations(), session.events()
        with pytest.raises(CompactionStopped, match="too little to compact"):
            session.compact()
        assert (session.operations(), session.events()) == before


def test_repeated_compactions_by_hand_are_stopped(where: str) -> None:
    with opened(where, "s", summarizer="digest") as session:
        work(session)
        pivots: list[Operation | None] = []
        with suppress(CompactionStopped):
            for _ in range(20):
                pivots.append(session.compact())  # noqa: PERF401 - it raises at the end
        assert 1 <= len(pivots) < 10
        for one in pivots:
            assert one is not None
            assert (one.after or 0) < (one.before or 0)
        assert session.pending() is None
