"""The public face of a session, on both engines."""

from pathlib import Path

import pytest

import foldmark
from foldmark.compaction.situation import CompactionRequest
from foldmark.model.values import Frozen
from foldmark.session.hooks import CompactionChange
from foldmark.tokens.limits import Limit
from tests.support.stored_sessions import opened, work


def test_undo_restores_the_exact_view(where: str) -> None:
    with opened(where) as session:
        work(session)
        views = [session.view()]
        assert session.prune() is not None
        views.append(session.view())
        assert session.compact("All tests pass.") is not None
        views.append(session.view())
        session.user("And now?")
        session.record("More of the same.", tokens=None)
        session.compact("All tests still pass.")
        session.undo()
        session.undo()
        session.undo()
        assert session.view().messages[: len(views[0].messages)] == views[0].messages
        session.redo()
        session.redo()
        session.redo()
        assert session.view().pivot is not None
        with pytest.raises(foldmark.FoldmarkError, match="nothing to redo"):
            session.redo()


def test_a_reopened_session_has_the_same_view(where: str) -> None:
    with opened(where, session="repo") as session:
        work(session)
        session.prune()
        session.compact("All tests pass.")
        session.user("And now?")
        view, plan = session.view(), session.plan()
    with opened(where, session="repo") as again:
        assert again.view() == view
        assert again.plan() == plan


def test_a_queued_compaction_is_completed_once_and_by_its_number(where: str) -> None:
    with opened(where) as session:
        work(session, 3)
        queued = session.queue()
        assert queued is not None
        assert session.queue() == queued
        assert session.view().pivot is None
        with pytest.raises(foldmark.BadInput, match="no longer queued"):
            session.compact("Another.", operation=queued.number + 1)
        operation = session.compact("All tests pass.", operation=queued.number)
        assert operation is not None
        assert (operation.number, operation.state) == (queued.number, "done")
        with pytest.raises(foldmark.BadInput, match="no longer queued"):
            session.compact("Again.", operation=queued.number)
        assert [pivot.kind for pivot in session.operations()] == ["pivot"]


class Wishes:
    def before_compact(self, compaction: CompactionRequest) -> CompactionChange:
        return CompactionChange(context=(f"{compaction.tokens} tokens",), prompt="Be brief.")


def test_the_options_of_a_hook_are_stored_with_the_marker(where: str) -> None:
    with opened(where, hooks=[Wishes()]) as session:
        session.user("Hello")
        tokens = session.tokens
        session.queue()
        event = session.events()[-1]
        assert event.kind == "compaction.queued"
        expected = ([f"{tokens} tokens"], "Be brief.")
        assert (event.data["context"], event.data["prompt"]) == expected


VALUES = (str, int, tuple, Frozen, Limit, type(None))


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def public_calls() -> set[str]:
    """The public methods of a session, without async forms."""
    session = foldmark.Session
    calls = {name for name in public(session) if callable(getattr(session, name))}
    return {name for name in calls if name[0] != "a" or name[1:] not in calls}


def test_every_blocking_call_has_an_async_form() -> None:
    lacking = {name for name in public_calls() if not hasattr(foldmark.Session, f"a{name}")}
    assert lacking == {"subscribe"}  # it never blocks


def test_a_session_has_few_public_methods_each_with_a_docstring(tmp_path: Path) -> None:
    assert len(public_calls()) <= 35
    for name in public(foldmark.Session):
        assert (getattr(foldmark.Session, name).__doc__ or "").split("\n")[0].endswith(".")
    assert "__getattr__" not in dir(foldmark.Session)
    # Attributes are values, not other parts of the session.
    with opened(str(tmp_path / "s.db")) as session:
        values = [getattr(session, name) for name in public(type(session))]
        assert all(isinstance(value, VALUES) or callable(value) for value in values)


class Refused(Exception):
    status_code = 400


def test_a_session_recovers_from_a_refusal_and_learns_the_window(tmp_path: Path) -> None:
    with foldmark.open(tmp_path / "s.db", window=60_000, summarizer="digest") as session:
        session.user("Go.")
        for number in range(40):
            session.record(f"I run test {number}. " + "word " * 400)
            session.user(f"And test {number + 1}?")
        before = session.view().tokens
        text = "prompt is too long: 12032 tokens > 8000 maximum"
        assert not session.recover(ValueError("something else"))
        assert session.view().tokens == before
        assert session.recover(Refused(text))
        assert session.view().tokens < 8_000
        assert session.limit is not None
        assert session.limit.context == 8_000
        assert session.recover(Refused(text))  # the provider counts more tokens than we do
        assert session.limit.context == 7_200
