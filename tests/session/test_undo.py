"""Undo, redo and revert: every operation can be undone, and nothing is lost."""

import tempfile
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import foldmark
from foldmark.errors import BadInput
from foldmark.policy import Policy
from tests.support.session_driver import POLICIES, Driver, operations
from tests.support.store_engines import new_database
from tests.support.stored_sessions import bytes_of, call, opened, step, work

policies = st.sampled_from(POLICIES)


@settings(max_examples=60)
@given(operations, policies)
def test_any_sequence_of_operations_in_a_file(row: list[tuple[str, int]], policy: Policy) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Driver(str(Path(folder) / "store.db"), policy, "s").run(row)


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations, policies)
def test_any_sequence_of_operations_in_postgres(
    address: str, row: list[tuple[str, int]], policy: Policy
) -> None:
    Driver(address, policy, uuid4().hex).run(row)


def test_the_last_undone_operation_is_redone_first(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if all of them have the same time."""
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


def test_a_queued_compaction_is_ordered_by_its_summary(where: str) -> None:
    """Undo takes the operation that was completed last, not the one with the highest number."""
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


def test_a_compaction_completed_after_a_revert_is_not_reverted(where: str) -> None:
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
        assert states(session) == ["done", "done"]


def states(session: foldmark.Session) -> list[str]:
    return [operation.state for operation in session.operations()]


def test_an_operation_stays_reverted_as_long_as_any_revert_covers_it(where: str) -> None:
    with opened(where) as session:
        first = session.user("One")
        second = session.user("Two")
        session.user("Three")
        folded = session.compact("Folded.")
        inner = session.revert(second.id)
        session.user("Four")
        outer = session.revert(first.id)
        assert folded
        assert states(session) == ["reverted", "reverted", "done"]
        with pytest.raises(BadInput, match="is reverted"):
            session.undo(inner.number)
        with pytest.raises(BadInput, match="is reverted"):
            session.redo(folded.number)
        session.undo(outer.number)
        session.redo(outer.number)
        session.undo()
        assert states(session) == ["reverted", "done", "undone"]
        session.undo()
        assert states(session) == ["done", "undone", "undone"]
        assert session.view().pivot is not None


def test_reverting_to_a_hidden_message_restores_its_view(where: str) -> None:
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


def test_a_result_after_a_revert_changes_no_handle(where: str) -> None:
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
        parts = [event for event in session.events() if event.kind == "part.written"]
        assert [event.data["handle"] for event in parts[-3:]] == ["h4", "h5", "h5"]
    with opened(where, "s") as session:
        assert session.view() == view


def test_an_earlier_view_knows_what_was_undone_then(where: str) -> None:
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


def test_impossible_operations_are_refused(where: str) -> None:
    with opened(where, "s") as session:
        session.user("One")
        for refused, problem in (
            (session.undo, "nothing to undo"),
            (session.redo, "nothing to redo"),
            (lambda: session.undo(1), "has no operation 1"),
            (lambda: session.revert("nobody"), "no message 'nobody'"),
            (lambda: session.recall("h9"), "no handle"),
            (lambda: session.recall("nothing"), "no handle"),
            (lambda: session.result("c", "x"), "no call 'c' waits"),
            (lambda: session.compact(" "), "summary is empty"),
        ):
            with pytest.raises(BadInput, match=problem):
                refused()
        session.queue()
        session.cancel("reason")
        with pytest.raises(BadInput, match="is failed"):
            session.undo(1)
        assert session.prune() is None
        assert session.cancel() is None
        assert [event.kind for event in session.events()][-1] == "compaction.failed"
