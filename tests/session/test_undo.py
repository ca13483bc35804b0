"""Whatever is done to a session, it can be taken back, and nothing is lost."""

import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldmark.errors import BadInput
from foldmark.policy import Policy
from tests.support.session_driver import POLICIES, Driver, operations
from tests.support.store_engines import new_database
from tests.support.stored_sessions import bytes_of, call, opened, step, work

policies = st.sampled_from(POLICIES)


@settings(max_examples=60)
@given(operations, policies)
def test_any_row_of_operations_in_a_file(row: list[tuple[str, int]], policy: Policy) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Driver(str(Path(folder) / "store.db"), policy, "s").run(row)


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations, policies)
def test_any_row_of_operations_in_postgres(
    address: str, row: list[tuple[str, int]], policy: Policy
) -> None:
    Driver(address, policy, uuid4().hex).run(row)


def test_what_was_undone_last_is_redone_first(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However quick it all was."""
    monkeypatch.setattr("foldmark.store.transaction.milliseconds", lambda: 1_700_000_000_000)
    with opened(where) as session:
        work(session)
        assert session.prune()
        session.compact("Folded.")
        session.user("And now?")
        session.compact("Folded again.")
        views = [bytes_of(session.view())]
        for _ in range(3):
            session.undo()
            views.append(bytes_of(session.view()))
        assert len(set(views)) == 4
        for view in reversed(views[:-1]):
            session.redo()
            assert bytes_of(session.view()) == view
        with pytest.raises(BadInput, match="nothing to redo"):
            session.redo()


def test_a_queued_compaction_counts_from_its_summary(where: str) -> None:
    """A prune came between: undo takes back what came last, not what has the higher number."""
    with opened(where) as session:
        work(session)
        queued = session.queue()
        pruned = session.prune()
        before = bytes_of(session.view())
        session.compact("Folded.")
        assert queued
        assert pruned
        assert session.undo().number == queued.number
        assert bytes_of(session.view()) == before
        assert session.undo().number == pruned.number


def test_what_was_queued_before_a_revert_and_completed_after_it_is_not_reverted(where: str) -> None:
    with opened(where) as session:
        session.user("One")
        queued = session.queue()
        second = session.user("Two")
        session.user("Three")
        session.revert(second.id)
        session.compact("Folded.")
        view = bytes_of(session.view())
        assert queued
        session.undo(queued.number)
        session.redo(queued.number)
        assert bytes_of(session.view()) == view
        assert [operation.state for operation in session.operations()] == ["done", "done"]


def test_an_act_is_taken_back_as_long_as_any_revert_reaches_it(where: str) -> None:
    with opened(where) as session:
        first = session.user("One")
        second = session.user("Two")
        session.user("Three")
        folded = session.compact("Folded.")
        inner = session.revert(second.id)
        session.user("Four")
        outer = session.revert(first.id)
        assert folded
        assert [operation.state for operation in session.operations()] == [
            "reverted",
            "reverted",
            "done",
        ]
        with pytest.raises(BadInput, match="is reverted"):
            session.undo(inner.number)
        with pytest.raises(BadInput, match="is reverted"):
            session.redo(folded.number)
        session.undo(outer.number)
        session.redo(outer.number)
        session.undo()
        assert [operation.state for operation in session.operations()] == [
            "reverted",
            "done",
            "undone",
        ]
        session.undo()
        assert [operation.state for operation in session.operations()] == [
            "done",
            "undone",
            "undone",
        ]
        assert session.view().pivot is not None


def test_going_back_to_a_hidden_message_shows_what_was_shown_there(where: str) -> None:
    with opened(where) as session:
        first = session.user("One")
        session.user("Two")
        view = bytes_of(session.view())
        session.user("Three")
        session.revert(first.id)
        session.revert("h1")
        assert bytes_of(session.view()) == view
        session.undo()
        session.undo()
        assert list(session.view().indexes) == [0, 1, 2]


def test_a_result_that_comes_after_a_revert_moves_no_handle(where: str) -> None:
    with opened(where, "s") as session:
        session.user("One")
        called = session.record([call("c")])
        session.user("Hidden")
        session.revert(called.id)
        session.result("c", "done\n" * 10)
        session.user("Two")
        step(session, "d", "more\n" * 10)
        view = session.view()
        assert session.recall("h3") == "Two"
        assert [event.data["handle"] for event in session.events() if event.kind == "part.written"][
            -3:
        ] == ["h4", "h5", "h5"]
    with opened(where, "s") as session:
        assert session.view() == view


def test_the_view_of_then_knows_what_was_undone_then(where: str) -> None:
    with opened(where) as session:
        work(session)
        plain = bytes_of(session.view())
        pruned = session.prune()
        assert pruned
        less = bytes_of(session.view())
        folded = session.compact("Folded.")
        assert folded
        session.undo()
        session.undo()
        assert bytes_of(session.view(before=folded.number)) == less
        assert bytes_of(session.view(before=pruned.number)) == plain
        third = session.compact("Folded otherwise.")
        assert third
        session.redo()
        session.redo()
        assert bytes_of(session.view(before=third.number)) == plain
        assert session.diff(third.number).before == session.view(before=third.number).tokens
        with pytest.raises(BadInput, match="has no operation 9"):
            session.view(before=9)


def test_what_cannot_be_taken_back_is_told(where: str) -> None:
    with opened(where, "s") as session:
        session.user("One")
        for request, words in (
            (session.undo, "nothing to undo"),
            (session.redo, "nothing to redo"),
            (lambda: session.undo(1), "has no operation 1"),
            (lambda: session.revert("nobody"), "no message 'nobody'"),
            (lambda: session.recall("h9"), "no handle"),
            (lambda: session.recall("nothing"), "no handle"),
            (lambda: session.result("c", "x"), "no call 'c' waits"),
            (lambda: session.compact(" "), "summary is empty"),
        ):
            with pytest.raises(BadInput, match=words):
                request()
        session.queue()
        session.cancel("reason")
        for number in (1,):
            with pytest.raises(BadInput, match="is failed"):
                session.undo(number)
        assert session.prune() is None
        assert session.cancel() is None
        assert [event.kind for event in session.events()][-1] == "compaction.failed"
