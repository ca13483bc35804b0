"""A session, on both engines: said, shown, pruned, compacted, taken back, found again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.compaction.situation import CompactionRequest
from foldmark.model.messages import Pending, TextPart, ToolPart
from foldmark.model.values import Frozen
from foldmark.session.hooks import CompactionChange
from foldmark.session.session import state_of
from foldmark.tokens.limits import Limit


def worked(session: foldmark.Session, steps: int = 40) -> None:
    session.user("Fix the failing test; never touch the main branch")
    for number in range(steps):
        call = ToolPart(
            tool="read", call_id=f"c{number}", state=Pending(input={"filePath": f"a{number}.py"})
        )
        session.record([TextPart(text="I look"), call])
        session.result(f"c{number}", f"line {number} of a file\n" * 300)
    session.record("All is well.")


def opened(where: str, **more: Any) -> foldmark.Session:
    return foldmark.open(where, window=8_000, output=1_000, **more)


def test_undo_gives_the_very_view_of_before(where: str) -> None:
    with opened(where) as session:
        worked(session)
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


def test_what_is_opened_again_is_what_was_closed(where: str) -> None:
    with opened(where, session="repo") as session:
        worked(session)
        session.prune()
        session.compact("All tests pass.")
        session.user("And now?")
        view, plan = session.view(), session.plan()
    with opened(where, session="repo") as again:
        assert again.view() == view
        assert again.plan() == plan


def test_async_forms_do_the_same(where: str) -> None:
    async def talk() -> int:
        async with await foldmark.aopen(where, window=8_000, output=1_000) as session:
            await session.auser("Hello")
            await session.arecord("Hello to you")
            return len(await session.amessages())

    assert asyncio.run(talk()) == 2


def test_a_queued_compaction_is_completed_once_and_by_its_number(where: str) -> None:
    with opened(where) as session:
        worked(session, steps=3)
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


def test_an_automatic_compaction_is_none_where_the_policy_is_not(where: str) -> None:
    with opened(where, auto=False) as session:
        worked(session, steps=3)
        assert session.compact("All is well.", auto=True) is None
        assert session.compact("All is well.") is not None


class Wishes:
    def before_compact(self, compaction: CompactionRequest) -> CompactionChange:
        return CompactionChange(context=(f"{compaction.tokens} tokens",), prompt="Be brief.")


def test_what_a_hook_wishes_of_a_summary_is_found_with_its_marker(where: str) -> None:
    with opened(where, hooks=[Wishes()]) as session:
        session.user("Hello")
        tokens = session.tokens
        session.queue()
        events = session.events()[-1]
        assert events.kind == "compaction.queued"
        assert (events.data["context"], events.data["prompt"]) == (
            [f"{tokens} tokens"],
            "Be brief.",
        )


class Stops:
    def before_continue(self, session: str) -> bool:
        return not session.startswith("stop")


def test_a_hook_decides_whether_a_loop_goes_on(where: str) -> None:
    for name, expected in (("go", True), ("stop", False)):
        with opened(where, session=name, hooks=[Stops()]) as session:
            assert state_of(session).hooks.may_continue(name) is expected


VALUES = (str, int, tuple, Frozen, Limit, type(None))


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def public_calls() -> set[str]:
    """The public methods of a session; the async form of another one is none of its own."""
    session = foldmark.Session
    calls = {name for name in public(session) if callable(getattr(session, name))}
    return {name for name in calls if name[0] != "a" or name[1:] not in calls}


def test_every_blocking_call_has_an_async_form() -> None:
    lacking = {name for name in public_calls() if not hasattr(foldmark.Session, f"a{name}")}
    assert lacking == {"subscribe"}  # which waits for nothing


def test_a_session_has_few_public_methods_each_with_a_line_of_its_own(tmp_path: Path) -> None:
    assert len(public_calls()) <= 35
    for name in public(foldmark.Session):
        assert (getattr(foldmark.Session, name).__doc__ or "").split("\n")[0].endswith(".")
    assert "__getattr__" not in dir(foldmark.Session)
    # What is reached through an attribute is a value, and no other part of the session.
    with opened(str(tmp_path / "s.db")) as session:
        values = [getattr(session, name) for name in public(type(session))]
        parts = [entry for entry in values if not isinstance(entry, VALUES) and not callable(entry)]
        assert not parts


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
        assert session.recover(Refused(text))  # the provider counts more than we do
        assert session.limit.context == 7_200
