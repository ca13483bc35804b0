"""A compaction that is ended at any moment: by its user, by a signal, by a kill; and many at once.

What is left is a cancelled marker and nothing else; or, of a process that is no more, a marker
that waits and is taken over by the next one.
"""

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

import foldmark
from foldmark.errors import Aborted, BadInput, FoldmarkError, SessionOvertaken
from foldmark.model import events
from foldmark.model.messages import Message
from foldmark.testing import ScriptedModel
from tests.support.compacted_sessions import NO_PRUNE, end_leases, pivots, shown_text, when_asked
from tests.support.failing_models import FaultyModel, GatedModel, request_text, prompt_texts, notes
from tests.support.processes import LIMIT, members, together
from tests.support.stored_sessions import bytes_of, opened, work
from tests.support.view_rules import MARKER, assert_valid


def cancelled_only(session: foldmark.Session, view: bytes, messages: tuple[Message, ...]) -> None:
    """A cancelled marker is left, and nothing else; and it can be done all the same."""
    assert session.pending() is None
    assert [act.state for act in pivots(session)] == ["failed"]
    assert bytes_of(session.view()) == view
    assert session.events()[-1].kind == events.FAILED
    left = session.export().messages
    assert tuple(left[: len(messages)]) == messages
    assert len(left) == len(messages) + 1  # the marker
    assert MARKER not in shown_text(session)
    session.user("Are you there?")
    assert "Are you there?" in shown_text(session)  # no prompt is swallowed
    assert session.compact("In short.") is not None


def before_of(session: foldmark.Session) -> tuple[bytes, tuple[Message, ...]]:
    work(session)
    return bytes_of(session.view()), tuple(session.export().messages)


# --- ended by its user ----------------------------------------------------------------------------


def test_an_abort_from_another_thread_leaves_a_cancelled_marker(where: str) -> None:
    model = GatedModel()
    with opened(where, "s", summarizer=model) as session:
        before = before_of(session)
        when_asked(model, session.abort)
        with pytest.raises(Aborted):
            session.compact()
        cancelled_only(session, *before)


def test_an_abort_ends_an_awaited_compaction(where: str) -> None:
    model = GatedModel()

    async def run(session: foldmark.Session) -> None:
        task = asyncio.create_task(session.acompact())
        while not model.was_asked.is_set():
            await asyncio.sleep(0.01)
        await session.aabort()
        with pytest.raises(Aborted):
            await task

    with opened(where, "s", summarizer=model) as session:
        before = before_of(session)
        asyncio.run(run(session))
        cancelled_only(session, *before)


def test_an_abort_when_nothing_is_being_made_is_forgotten(where: str) -> None:
    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        work(session)
        session.abort()
        assert session.compact() is not None


def test_ctrl_c_while_a_model_is_waited_for_leaves_a_cancelled_marker(where: str) -> None:
    main = threading.main_thread().ident
    assert main is not None
    model = GatedModel()
    with opened(where, "s", summarizer=model) as session:
        before = before_of(session)

        def interrupt() -> None:
            time.sleep(0.05)  # the main thread comes to where it waits
            signal.pthread_kill(main, signal.SIGINT)

        when_asked(model, interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.compact()
        cancelled_only(session, *before)


@pytest.mark.parametrize("kind", [events.QUEUED, events.STARTED])
def test_ctrl_c_while_subscribers_are_told_leaves_a_cancelled_marker(where: str, kind: str) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        before = before_of(session)
        end = session.subscribe(interrupted, [kind])
        with pytest.raises(KeyboardInterrupt):
            session.compact()
        end()
        cancelled_only(session, *before)


def test_ctrl_c_after_the_pivot_was_written_leaves_the_pivot(where: str) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        work(session)
        end = session.subscribe(interrupted, [events.COMPACTED])
        with pytest.raises(KeyboardInterrupt):
            session.compact()
        end()
        assert [act.state for act in pivots(session)] == ["done"]
        assert session.pending() is None


def test_a_cancelled_task_leaves_a_cancelled_marker(where: str) -> None:
    model = GatedModel()

    async def run(session: foldmark.Session) -> None:
        task = asyncio.create_task(session.amessages())
        while not model.was_asked.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        before = before_of(session)
        asyncio.run(run(session))
        cancelled_only(session, *before)


class Slow:
    """A hook that is asked for a while."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.gate = threading.Event()

    def before_compact(self, _: object) -> None:
        self.asked.set()
        self.gate.wait(LIMIT)


def test_a_task_that_is_cancelled_before_the_model_is_asked_leaves_nothing_that_waits(
    where: str,
) -> None:
    hook, model = Slow(), FaultyModel("good")

    async def run(session: foldmark.Session) -> None:
        task = asyncio.create_task(session.acompact())
        while not hook.asked.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.02)
        task.cancel()  # once more: some are impatient
        hook.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with opened(where, "s", summarizer=model, hooks=[hook]) as session:
        before = before_of(session)
        asyncio.run(run(session))
        assert model.requests == []
        cancelled_only(session, *before)


def test_a_compaction_that_was_cancelled_meanwhile_makes_no_pivot(where: str) -> None:
    model = GatedModel()

    with opened(where, "s", summarizer=model) as session:
        before = before_of(session)

        def cancel() -> None:
            session.cancel("no longer wanted")
            model.gate.set()

        when_asked(model, cancel)
        with pytest.raises(BadInput, match="not waiting any more"):
            session.compact()
        assert pivots(session)[0].failed == "no longer wanted"
        cancelled_only(session, *before)


class Raises:
    """A hook that is broken at every point."""

    def before_compact(self, _: object) -> None:
        raise RuntimeError("broken")

    def before_continue(self, _: object) -> bool:
        raise SystemExit(3)


def test_a_hook_or_subscriber_that_raises_harms_no_compaction(where: str) -> None:
    def fails(_: object) -> None:
        raise ValueError("broken")

    with opened(where, "s", summarizer=FaultyModel("good"), hooks=[Raises()]) as session:
        work(session)
        session.user("Go on")
        session.subscribe(fails)
        act = session.compact(auto=True)
        assert act is not None
        assert act.in_force
        assert events.HOOK_FAILED in [event.kind for event in session.events()]


def test_a_failed_marker_is_not_tried_again_under_another_message(where: str) -> None:
    model = GatedModel()
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        work(session)
        when_asked(model, session.abort)
        with pytest.raises(Aborted):
            session.messages()
        (failed,) = pivots(session)
        model.gate.set()
        session.user("And now?")
        session.messages()
        assert [act.state for act in pivots(session)] == ["failed", "done"]
        assert pivots(session)[0] == failed
        assert "And now?" in shown_text(session)
        assert shown_text(session).count(MARKER) == 1


# --- what is said meanwhile -----------------------------------------------------------------------


def test_what_is_said_while_a_model_is_waited_for_stays_word_for_word(where: str) -> None:
    model = GatedModel()
    said = ["And mind the pond!", "It is deep.", "Never drain it."]

    with opened(where, "s", summarizer=model) as session:
        work(session)

        def say() -> None:
            session.user(said[0])
            session.record("I mind it.")
            session.user(said[1])
            session.user(said[2])
            model.gate.set()

        thread = when_asked(model, say)
        act = session.compact()
        thread.join(LIMIT)
        assert act is not None
        texts = prompt_texts(session.view().messages)
        assert texts[-4:] == [said[0], "I mind it.", said[1], said[2]]
        assert all(text not in request_text(ask) for text in said for ask in model.requests)
        assert_valid(session.messages())
        with opened(where, "s") as other:
            assert bytes_of(other.view()) == bytes_of(session.view())
        session.undo()
        assert prompt_texts(session.view().messages)[-4:] == texts[-4:]


def test_an_event_loop_goes_on_while_a_model_is_waited_for(where: str) -> None:
    model = GatedModel()

    async def run(session: foldmark.Session) -> None:
        task = asyncio.create_task(session.acompact())
        while not model.was_asked.is_set():
            await asyncio.sleep(0.01)
        await session.auser("And mind the pond!")
        model.gate.set()
        assert await task is not None
        assert prompt_texts(session.view().messages)[-1] == "And mind the pond!"

    with opened(where, "s", summarizer=model) as session:
        work(session)
        asyncio.run(run(session))


# --- many at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("by_hand", [True, False])
def test_threads_that_compact_at_once_make_one_pivot(where: str, *, by_hand: bool) -> None:
    model = GatedModel()
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        work(session)
        start = threading.Barrier(4)

        def compact() -> object:
            start.wait(LIMIT)
            if not by_hand:
                return session.messages()
            act = session.compact()
            return act and act.number

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(compact) for _ in range(4)]
            assert model.was_asked.wait(LIMIT)
            time.sleep(0.1)  # the others come to where they must wait
            model.gate.set()
            results = [job.result(LIMIT) for job in jobs]
        assert all(result == results[0] for result in results)
        assert [act.state for act in pivots(session)] == ["done"]


def test_tasks_that_compact_at_once_make_one_pivot(where: str) -> None:
    model = ScriptedModel(notes(), delay=0.2)

    async def run(session: foldmark.Session) -> None:
        shown = await asyncio.gather(*(session.amessages() for _ in range(4)))
        assert all(messages == shown[0] for messages in shown)

    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        work(session)
        asyncio.run(run(session))
        assert [act.state for act in pivots(session)] == ["done"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_subscriber_that_compacts_on_its_own_does_not_wait_for_ever(
    where: str, *, is_async: bool
) -> None:
    errors: list[BadInput] = []
    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        work(session)

        def compact(_: object) -> None:
            try:
                session.messages()
            except BadInput as error:
                errors.append(error)

        session.subscribe(compact, [events.QUEUED])
        act = asyncio.run(session.acompact()) if is_async else session.compact()
        assert act is not None
        assert act.in_force
        assert "in this very thread" in str(errors[0])


def test_a_blocking_call_beside_an_awaited_compaction_is_refused_and_blocks_nothing(
    where: str,
) -> None:
    model = GatedModel()

    async def run(session: foldmark.Session) -> None:
        task = asyncio.create_task(session.acompact())
        while not model.was_asked.is_set():
            await asyncio.sleep(0.01)
        with pytest.raises(BadInput, match="async form"):
            session.messages()
        model.gate.set()
        act = await task
        assert act is not None
        assert act.in_force
        assert session.messages()

    with opened(where, "s", summarizer=model) as session:
        work(session)
        asyncio.run(run(session))


def compact_together(line: Connection, start: Barrier, number: int, where: str) -> list[str]:
    """What a process finds after it has asked for what fits, at the same time as others."""
    model = ScriptedModel(notes(f"by process {number}"), delay=0.5)
    with opened(where, "s", summarizer=model, policy=NO_PRUNE, wait_seconds=60) as session:
        start.wait(LIMIT)
        if number % 2:
            session.compact()
        else:
            session.messages()
        session.release()
        return prompt_texts(session.view().messages)


def test_processes_that_compact_at_once_make_one_pivot(where: str) -> None:
    with opened(where, "s") as session:
        work(session)
    shown = together(compact_together, where)
    assert all(texts == shown[0] for texts in shown)
    with opened(where, "s") as session:
        assert [act.state for act in pivots(session)] == ["done"]
        assert shown_text(session).count("by process") >= 1


# --- killed ---------------------------------------------------------------------------------------


def hang(line: Connection, where: str, way: str) -> None:
    """Begin a compaction, tell when the model is asked, and never come to its end."""
    model = GatedModel(on_ask=lambda: line.send((True, "asked")))
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        if way == "queued":
            session.queue(instructions="the pond")
        session.compact(operation=1) if way == "queued" else session.messages()


@pytest.mark.parametrize("way", ["queued", "by itself"])
def test_a_kill_during_the_models_call_leaves_a_marker_that_the_next_process_completes(
    where: str, way: str
) -> None:
    with opened(where, "s") as session:
        work(session)
        view = bytes_of(session.view())
    with members([(hang, where, way)]) as (doomed,):
        assert doomed.told() == "asked"
    model = FaultyModel("good")
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        waits = session.pending()
        assert waits is not None
        assert (waits.state, bytes_of(session.view())) == ("claimed", view)
        session.user("Still there?")
        session.messages()
        assert [(act.number, act.state) for act in pivots(session)] == [(waits.number, "done")]
        assert prompt_texts(session.view().messages)[-1] == "Still there?"
        assert ("the pond" in request_text(model.requests[-1])) == (way == "queued")


def test_a_store_that_cannot_be_written_leaves_the_error_and_a_marker_that_waits(
    tmp_path: Path,
) -> None:
    where = str(tmp_path / "s.db")
    model = GatedModel()
    session = opened(where, "s", summarizer=model)
    view, _ = before_of(session)

    def close() -> None:
        session.close()
        model.gate.set()

    when_asked(model, close)
    with pytest.raises(FoldmarkError):
        session.compact()
    with opened(where, "s", summarizer="digest") as again:
        assert bytes_of(again.view()) == view
        assert again.pending() is not None
        again.messages()
        assert [act.state for act in pivots(again)] == ["done"]


# --- overtaken while a model is waited for -------------------------------------------------------


@pytest.mark.parametrize("error", [SessionOvertaken, Aborted])
def test_a_compaction_that_was_overtaken_meanwhile_writes_nothing(
    where: str, error: type[FoldmarkError]
) -> None:
    model, is_aborted = GatedModel(), error is Aborted
    with opened(where, "s", summarizer=model) as session:
        work(session)

        def overtake() -> None:
            end_leases(where)
            with opened(where, "s") as other:
                other.user("Another's.")
            if is_aborted:
                session.abort()
            model.gate.set()

        when_asked(model, overtake)
        with pytest.raises(error):
            session.compact()
        assert [act.state for act in pivots(session)] == ["claimed"]
        assert "Another's." in str(session.export().messages[-1])
        if is_aborted:  # that it was overtaken is not known to the caller yet
            with pytest.raises(SessionOvertaken):
                session.user("Mine.")
        session.user("Mine.")
        assert "Another's." in shown_text(session)
        assert session.compact("In short.") is not None
