"""Compactions that end early: by abort, signal, cancellation or kill; and concurrent ones.

What remains is a cancelled marker and nothing else; after a kill, it is a claimed marker that the
next process takes over.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar

import pytest

import foldmark
from foldmark.errors import Aborted, BadInput, FoldmarkError, SessionOvertaken
from foldmark.model import events
from foldmark.model.messages import Message
from foldmark.testing import ScriptedModel
from tests.support.compacted_sessions import NO_PRUNE, end_leases, pivots, view_text, when_asked
from tests.support.failing_models import FaultyModel, GatedModel, notes, prompt_texts, request_text
from tests.support.processes import LIMIT, members, together
from tests.support.stored_sessions import bytes_of, opened, work
from tests.support.view_rules import MARKER, assert_valid

T = TypeVar("T")


def cancelled_only(session: foldmark.Session, view: bytes, messages: tuple[Message, ...]) -> None:
    """Check that only a cancelled marker remains, and that compacting still works."""
    assert session.pending() is None
    assert [operation.state for operation in pivots(session)] == ["failed"]
    assert bytes_of(session.view()) == view
    assert session.events()[-1].kind == events.FAILED
    remaining = session.export().messages
    assert tuple(remaining[: len(messages)]) == messages
    assert len(remaining) == len(messages) + 1  # the marker
    assert MARKER not in view_text(session)
    session.user("Are you there?")
    assert "Are you there?" in view_text(session)  # no prompt is swallowed
    assert session.compact("In short.") is not None


def before_of(session: foldmark.Session) -> tuple[bytes, tuple[Message, ...]]:
    work(session)
    return bytes_of(session.view()), tuple(session.export().messages)


async def start(coroutine: Coroutine[Any, Any, T], event: threading.Event) -> asyncio.Task[T]:
    """Start a task, and wait until an event is set in it."""
    task = asyncio.create_task(coroutine)
    while not event.is_set():
        await asyncio.sleep(0.01)
    return task


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


# --- aborted or cancelled -------------------------------------------------------------------------


def abort(session: foldmark.Session, model: GatedModel) -> None:
    """Abort from another thread."""
    when_asked(model, session.abort)
    session.compact()


def abort_awaited(session: foldmark.Session, model: GatedModel) -> None:
    async def run() -> None:
        task = await start(session.acompact(), model.was_asked)
        await session.aabort()
        await task

    asyncio.run(run())


def press_ctrl_c(session: foldmark.Session, model: GatedModel) -> None:
    main = threading.main_thread().ident or 0

    def send_signal() -> None:
        time.sleep(0.05)  # usually the main thread waits by then; any moment is fine
        signal.pthread_kill(main, signal.SIGINT)

    when_asked(model, send_signal)
    session.compact()


def cancel_task(session: foldmark.Session, model: GatedModel) -> None:
    async def run() -> None:
        task = await start(session.amessages(), model.was_asked)
        task.cancel()
        await task

    asyncio.run(run())


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (abort, Aborted),
        (abort_awaited, Aborted),
        (press_ctrl_c, KeyboardInterrupt),
        (cancel_task, asyncio.CancelledError),
    ],
)
def test_a_compaction_that_ends_early_leaves_a_cancelled_marker(
    where: str,
    end: Callable[[foldmark.Session, GatedModel], None],
    error: type[BaseException],
) -> None:
    model = GatedModel()
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        before = before_of(session)
        with pytest.raises(error):
            end(session, model)
        cancelled_only(session, *before)


def test_an_abort_without_a_compaction_has_no_effect(where: str) -> None:
    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        work(session)
        session.abort()
        assert session.compact() is not None


@pytest.mark.parametrize("kind", [events.QUEUED, events.STARTED])
def test_ctrl_c_in_a_subscriber_leaves_a_cancelled_marker(where: str, kind: str) -> None:
    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        before = before_of(session)
        end = session.subscribe(interrupt, [kind])
        with pytest.raises(KeyboardInterrupt):
            session.compact()
        end()
        cancelled_only(session, *before)


def test_ctrl_c_after_the_pivot_is_written_keeps_the_pivot(where: str) -> None:
    with opened(where, "s", summarizer=FaultyModel("good")) as session:
        work(session)
        end = session.subscribe(interrupt, [events.COMPACTED])
        with pytest.raises(KeyboardInterrupt):
            session.compact()
        end()
        assert [operation.state for operation in pivots(session)] == ["done"]
        assert session.pending() is None


class Slow:
    """A hook that waits for a gate."""

    def __init__(self) -> None:
        self.was_called = threading.Event()
        self.gate = threading.Event()

    def before_compact(self, _: object) -> None:
        self.was_called.set()
        self.gate.wait(LIMIT)


def test_a_task_cancelled_before_the_models_call_leaves_nothing_queued(
    where: str,
) -> None:
    hook, model = Slow(), FaultyModel("good")

    async def run(session: foldmark.Session) -> None:
        task = await start(session.acompact(), hook.was_called)
        task.cancel()
        await asyncio.sleep(0.02)
        task.cancel()  # a second time
        hook.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with opened(where, "s", summarizer=model, hooks=[hook]) as session:
        before = before_of(session)
        asyncio.run(run(session))
        assert model.requests == []
        cancelled_only(session, *before)


def test_a_compaction_cancelled_meanwhile_writes_no_pivot(where: str) -> None:
    model = GatedModel()

    with opened(where, "s", summarizer=model) as session:
        before = before_of(session)

        def cancel() -> None:
            session.cancel("no longer wanted")
            model.gate.set()

        when_asked(model, cancel)
        with pytest.raises(BadInput, match="no longer queued"):
            session.compact()
        assert pivots(session)[0].failed == "no longer wanted"
        cancelled_only(session, *before)


class Raises:
    """A hook that raises at every point."""

    def before_compact(self, _: object) -> None:
        raise RuntimeError("broken")

    def before_continue(self, _: object) -> bool:
        raise SystemExit(3)


def test_hooks_and_subscribers_that_raise_do_not_stop_a_compaction(where: str) -> None:
    def fails(_: object) -> None:
        raise ValueError("broken")

    with opened(where, "s", summarizer=FaultyModel("good"), hooks=[Raises()]) as session:
        work(session)
        session.user("Go on")
        session.subscribe(fails)
        operation = session.compact(auto=True)
        assert operation is not None
        assert operation.in_force
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
        assert [operation.state for operation in pivots(session)] == ["failed", "done"]
        assert pivots(session)[0] == failed
        assert "And now?" in view_text(session)
        assert view_text(session).count(MARKER) == 1


# --- messages during the model's call -------------------------------------------------------------


def test_messages_added_during_the_models_call_stay_verbatim(where: str) -> None:
    model = GatedModel()
    replies = ["And mind the cache!", "It is shared.", "Never clear it."]

    with opened(where, "s", summarizer=model) as session:
        work(session)

        def say() -> None:
            session.user(replies[0])
            session.record("I mind it.")
            session.user(replies[1])
            session.user(replies[2])
            model.gate.set()

        thread = when_asked(model, say)
        operation = session.compact()
        thread.join(LIMIT)
        assert operation is not None
        texts = prompt_texts(session.view().messages)
        assert texts[-4:] == [replies[0], "I mind it.", replies[1], replies[2]]
        assert all(text not in request_text(ask) for text in replies for ask in model.requests)
        assert_valid(session.messages())
        with opened(where, "s") as other:
            assert bytes_of(other.view()) == bytes_of(session.view())
        session.undo()
        assert prompt_texts(session.view().messages)[-4:] == texts[-4:]


def test_the_event_loop_runs_during_the_models_call(where: str) -> None:
    model = GatedModel()

    async def run(session: foldmark.Session) -> None:
        task = await start(session.acompact(), model.was_asked)
        await session.auser("And mind the cache!")
        model.gate.set()
        assert await task is not None
        assert prompt_texts(session.view().messages)[-1] == "And mind the cache!"

    with opened(where, "s", summarizer=model) as session:
        work(session)
        asyncio.run(run(session))


# --- concurrent compactions -----------------------------------------------------------------------


@pytest.mark.parametrize("by_hand", [True, False])
def test_concurrent_threads_make_one_pivot(where: str, *, by_hand: bool) -> None:
    model = GatedModel()
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        work(session)
        start = threading.Barrier(4)

        def compact() -> object:
            start.wait(LIMIT)
            if not by_hand:
                return session.messages()
            operation = session.compact()
            return operation and operation.number

        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(compact) for _ in range(4)]
            assert model.was_asked.wait(LIMIT)
            time.sleep(0.1)  # usually the others wait by then; any moment is fine
            model.gate.set()
            results = [job.result(LIMIT) for job in jobs]
        assert all(result == results[0] for result in results)
        assert [operation.state for operation in pivots(session)] == ["done"]


def test_concurrent_tasks_make_one_pivot(where: str) -> None:
    model = ScriptedModel(notes(), delay=0.2)

    async def run(session: foldmark.Session) -> None:
        view_messages = await asyncio.gather(*(session.amessages() for _ in range(4)))
        assert all(messages == view_messages[0] for messages in view_messages)

    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        work(session)
        asyncio.run(run(session))
        assert [operation.state for operation in pivots(session)] == ["done"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_subscriber_that_compacts_is_refused_and_does_not_deadlock(
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
        operation = asyncio.run(session.acompact()) if is_async else session.compact()
        assert operation is not None
        assert operation.in_force
        assert "already compacting" in str(errors[0])


def test_a_blocking_call_during_an_awaited_compaction_is_refused(
    where: str,
) -> None:
    model = GatedModel()

    async def run(session: foldmark.Session) -> None:
        task = await start(session.acompact(), model.was_asked)
        with pytest.raises(BadInput, match="async form"):
            session.messages()
        model.gate.set()
        operation = await task
        assert operation is not None
        assert operation.in_force
        assert session.messages()

    with opened(where, "s", summarizer=model) as session:
        work(session)
        asyncio.run(run(session))


def compact_together(line: Connection, start: Barrier, number: int, where: str) -> list[str]:
    """The view of a process that compacts at the same time as others."""
    model = ScriptedModel(notes(f"by process {number}"), delay=0.5)
    with opened(where, "s", summarizer=model, policy=NO_PRUNE, wait_seconds=60) as session:
        start.wait(LIMIT)
        if number % 2:
            session.compact()
        else:
            session.messages()
        session.release()
        return prompt_texts(session.view().messages)


def test_concurrent_processes_make_one_pivot(where: str) -> None:
    with opened(where, "s") as session:
        work(session)
    views = together(compact_together, where)
    assert all(view == views[0] for view in views)
    with opened(where, "s") as session:
        assert [operation.state for operation in pivots(session)] == ["done"]
        assert view_text(session).count("by process") >= 1


# --- kills ----------------------------------------------------------------------------------------


def hang(line: Connection, where: str, way: str) -> None:
    """Start a compaction, report when the model is called, and never finish."""
    model = GatedModel(on_ask=lambda: line.send((True, "asked")))
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        if way == "queued":
            session.queue(instructions="the cache")
        session.compact(operation=1) if way == "queued" else session.messages()


@pytest.mark.parametrize("way", ["queued", "by itself"])
def test_after_a_kill_during_the_models_call_the_next_process_completes_the_marker(
    where: str, way: str
) -> None:
    with opened(where, "s") as session:
        work(session)
        view = bytes_of(session.view())
    with members([(hang, where, way)]) as (doomed,):
        assert doomed.receive() == "asked"
    model = FaultyModel("good")
    with opened(where, "s", summarizer=model, policy=NO_PRUNE) as session:
        waits = session.pending()
        assert waits is not None
        assert (waits.state, bytes_of(session.view())) == ("claimed", view)
        session.user("Still there?")
        session.messages()
        assert [(one.number, one.state) for one in pivots(session)] == [(waits.number, "done")]
        assert prompt_texts(session.view().messages)[-1] == "Still there?"
        assert ("the cache" in request_text(model.requests[-1])) == (way == "queued")


def test_a_store_that_cannot_be_written_raises_and_leaves_a_queued_marker(
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
        assert [operation.state for operation in pivots(again)] == ["done"]


# --- overtaken during the model's call ------------------------------------------------------------


@pytest.mark.parametrize("error", [SessionOvertaken, Aborted])
def test_a_compaction_overtaken_meanwhile_writes_nothing(
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
        assert [operation.state for operation in pivots(session)] == ["claimed"]
        assert "Another's." in str(session.export().messages[-1])
        if is_aborted:  # the caller does not know yet that it was overtaken
            with pytest.raises(SessionOvertaken):
                session.user("Mine.")
        session.user("Mine.")
        assert "Another's." in view_text(session)
        assert session.compact("In short.") is not None
