"""Drivers: requests are sent, timed out and cancelled, and never raise into a dialogue."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from foldmark.errors import Aborted
from foldmark.model.prompt_messages import Text, UserMessage
from foldmark.providers.driver import MAX_PARALLEL_REQUESTS, adrive, drive, with_jitter
from foldmark.summary.protocol import (
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
    TextHandler,
)
from foldmark.testing import ScriptedModel

Dialogue = ModelDialogue[tuple[Outcome, ...]]
Run = Callable[..., tuple[Outcome, ...]]
FOREVER = 60.0


def ask(text: str = "Sum up", *, seconds: float = FOREVER, delay: float = 0.0) -> ModelRequest:
    message = UserMessage(content=(Text(text=text),))
    return ModelRequest(messages=(message,), seconds=seconds, delay=delay)


def once(*requests: ModelRequest, closed: list[bool] | None = None) -> Dialogue:
    """A dialogue of one round, which records that it was closed."""
    try:
        return (yield requests)
    finally:
        if closed is not None:
            closed.append(True)


def ignore(piece: str) -> None:
    """Ignore a piece of text."""


def run_blocking(
    dialogue: Dialogue, model: Summarizer | None, aborted: threading.Event | None = None
) -> tuple[Outcome, ...]:
    return drive(dialogue, model, on_text=ignore, aborted=aborted)


def run_awaiting(
    dialogue: Dialogue, model: Summarizer | None, aborted: threading.Event | None = None
) -> tuple[Outcome, ...]:
    return asyncio.run(adrive(dialogue, model, on_text=ignore, aborted=aborted))


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail if it never becomes true."""
    end = time.monotonic() + FOREVER
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


by_both = pytest.mark.parametrize("run", [run_blocking, run_awaiting])


class Counting:
    """A summarizer that counts the requests in progress and those cancelled."""

    name = "counting:model"

    def __init__(self, seconds: float = FOREVER, *, stubborn: bool = False) -> None:
        self.seconds, self.stubborn = seconds, stubborn
        self.started = threading.Event()
        self.running = self.peak = self.cancelled = 0
        self.released = threading.Event()

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:  # noqa: ARG002 - a seam
        self.running += 1
        self.peak = max(self.peak, self.running)
        self.started.set()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            while self.stubborn and not self.released.is_set():
                await asyncio.sleep(0.01)
            raise
        finally:
            self.running -= 1
        return ModelReply(text="done")


@by_both
def test_a_dialogue_gets_its_outcomes_until_it_returns(run: Run) -> None:
    def dialogue() -> Dialogue:
        first = yield (ask("one"), ask("two"))
        second = yield (ask("three"),)
        return (*first, *second)

    model = ScriptedModel("a", "b", "c")
    assert run(dialogue(), model) == tuple(ModelReply(text=text) for text in "abc")
    assert model.requests == [ask("one"), ask("two"), ask("three")]


@by_both
def test_a_dialogue_without_requests_just_returns(run: Run) -> None:
    def dialogue() -> Dialogue:
        yield from ()
        return (ModelReply(text="no model"),)

    assert run(dialogue(), None) == (ModelReply(text="no model"),)


@by_both
def test_without_a_model_every_request_fails(run: Run) -> None:
    outcomes = run(once(ask(), ask()), None)
    assert outcomes == (ModelFailure(cause="unavailable", message="no model is set"),) * 2


@by_both
def test_an_exception_of_a_model_is_a_failure_in_one_line(run: Run) -> None:
    (outcome,) = run(once(ask()), ScriptedModel(ValueError("bad\nluck")))
    assert outcome == ModelFailure(cause="failed", message="ValueError: bad luck")
    (outcome,) = run(once(ask()), ScriptedModel(lambda _: 1 / 0))  # pyright: ignore[reportArgumentType]
    assert isinstance(outcome, ModelFailure)
    assert outcome.message.startswith("ZeroDivisionError")


@by_both
def test_a_model_that_cancels_itself_or_returns_another_type_fails(run: Run) -> None:
    class Odd:
        name = "odd:model"

        async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:  # noqa: ARG002 - a seam
            if request.purpose == "cancel":
                raise asyncio.CancelledError
            return "text"  # pyright: ignore[reportReturnType]

    cancel = ModelRequest(messages=(), purpose="cancel")
    outcomes = run(once(ask(), cancel), Odd())
    assert outcomes == (
        ModelFailure(cause="failed", message="odd:model returned str instead of an outcome"),
        ModelFailure(cause="failed", message="the request was cancelled"),
    )


@by_both
def test_a_slow_request_times_out_and_is_cancelled(run: Run) -> None:
    model = Counting()
    (outcome,) = run(once(ask(seconds=0.05)), model)
    assert outcome == ModelFailure(
        cause="timeout", message="counting:model did not answer within 0.05 s"
    )
    assert (model.cancelled, model.running) == (1, 0)


@by_both
def test_a_slow_request_does_not_affect_the_others(run: Run) -> None:
    slow, fast = run(once(ask(seconds=0.05), ask()), ScriptedModel("late", delay=0.3))
    assert isinstance(slow, ModelFailure)
    assert fast == ModelReply(text="late")


def test_a_model_that_ignores_its_cancellation_is_abandoned() -> None:
    model = Counting(stubborn=True)
    (outcome,) = run_blocking(once(ask(seconds=0.05)), model)
    assert isinstance(outcome, ModelFailure)
    assert (outcome.cause, model.running) == ("timeout", 1)
    model.released.set()
    wait_until(lambda: model.running == 0)


@by_both
def test_requests_run_in_parallel_up_to_a_limit(run: Run) -> None:
    model = Counting(seconds=0.05)
    outcomes = run(once(*[ask() for _ in range(3 * MAX_PARALLEL_REQUESTS)]), model)
    assert outcomes == (ModelReply(text="done"),) * (3 * MAX_PARALLEL_REQUESTS)
    assert model.peak == MAX_PARALLEL_REQUESTS


@by_both
def test_the_delay_before_a_request_is_kept(run: Run) -> None:
    start = time.monotonic()
    times: list[float] = []

    def record(_: ModelRequest) -> str:
        times.append(time.monotonic() - start)
        return ""

    run(once(ask(delay=0.2), ask()), ScriptedModel(record))
    assert max(times) >= 0.2 * 0.75


def test_waits_vary_by_a_quarter() -> None:
    waits = [with_jitter(8.0) for _ in range(500)]
    assert 6.0 <= min(waits) < 6.5
    assert 9.5 < max(waits) <= 10.0


def test_a_text_handler_that_raises_does_not_lose_the_reply() -> None:
    pieces: list[str] = []
    text = "All of the tests pass, and nothing is left to do."
    assert drive(once(ask()), ScriptedModel(text), on_text=pieces.append) == (
        ModelReply(text=text),
    )
    assert len(pieces) > 1
    assert "".join(pieces) == text

    def broken(piece: str) -> None:
        pieces.append(piece)
        raise OSError("closed")

    pieces.clear()
    assert drive(once(ask()), ScriptedModel(text), on_text=broken) == (ModelReply(text=text),)
    assert len(pieces) == 1


# --- stopping -------------------------------------------------------------------------------------


@by_both
def test_a_dialogue_is_closed_when_it_raises(run: Run) -> None:
    closed: list[bool] = []

    def dialogue() -> Dialogue:
        yield from once(ask(), closed=closed)
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        run(dialogue(), ScriptedModel("a"))
    assert closed == [True]


def run_once_started(model: Counting, action: Callable[[], object]) -> None:
    """Do something in another thread as soon as the model gets a request."""
    threading.Thread(target=lambda: model.started.wait() and action(), daemon=True).start()


@by_both
@pytest.mark.parametrize(("delay", "cancelled"), [(0.0, 2), (FOREVER, 1)])
def test_an_event_from_another_thread_stops_a_driver(
    run: Run, delay: float, cancelled: int
) -> None:
    model, closed, aborted = Counting(), list[bool](), threading.Event()
    run_once_started(model, aborted.set)
    with pytest.raises(Aborted):
        run(once(ask(), ask(delay=delay), closed=closed), model, aborted)
    assert (model.cancelled, model.running, closed) == (cancelled, 0, [True])


@by_both
def test_nothing_is_sent_after_an_abort(run: Run) -> None:
    aborted, model = threading.Event(), ScriptedModel("a")
    aborted.set()
    with pytest.raises(Aborted):
        run(once(ask()), model, aborted)
    assert model.requests == []


def test_a_cancelled_task_cancels_its_request() -> None:
    model, closed = Counting(), list[bool]()

    async def run() -> None:
        task = asyncio.create_task(adrive(once(ask(), closed=closed), model, on_text=ignore))
        while not model.started.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert (model.cancelled, model.running, closed) == (1, 0, [True])


def test_a_keyboard_interrupt_stops_a_blocking_driver() -> None:
    model, closed = Counting(), list[bool]()
    main = threading.main_thread().ident or 0
    run_once_started(model, lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_blocking(once(ask(), closed=closed), model)
    assert closed == [True]
    wait_until(lambda: (model.cancelled, model.running) == (1, 0))
    # The background thread still works.
    assert run_blocking(once(ask()), ScriptedModel("next")) == (ModelReply(text="next"),)


# --- threads and processes ------------------------------------------------------------------------


def test_many_threads_share_one_background_thread() -> None:
    names: set[str] = set()

    def record(_: ModelRequest) -> str:
        names.add(threading.current_thread().name)
        return "a"

    model = ScriptedModel(record)
    threads = [threading.Thread(target=run_blocking, args=(once(ask()), model)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.requests) == 8
    assert names == {"foldmark-models"}


def test_a_driver_may_block_inside_a_running_event_loop() -> None:
    async def run() -> tuple[Outcome, ...]:
        return run_blocking(once(ask()), ScriptedModel("a"))

    assert asyncio.run(run()) == (ModelReply(text="a"),)


def test_a_model_that_blocks_the_background_loop_fails() -> None:
    def blocks(_: ModelRequest) -> ModelReply | ModelFailure:
        return run_blocking(once(ask()), ScriptedModel("never"))[0]

    (outcome,) = run_blocking(once(ask()), ScriptedModel(blocks))
    assert isinstance(outcome, ModelFailure)
    assert "must await instead" in outcome.message


FORKING = """
import os, warnings
from foldmark.providers.driver import drive
from foldmark.summary.protocol import ModelRequest
from foldmark.testing import ScriptedModel

def once():
    return (yield (ModelRequest(messages=()),))

def run():
    return drive(once(), ScriptedModel("reply"), on_text=print)[0].text

run()
warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads, on purpose
if child := os.fork():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), run(), flush=True)
else:
    print("child", run(), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_child_has_its_own_background_thread() -> None:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORKING],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert sorted(run.stdout.splitlines()) == ["0 reply", "child reply", "reply", "reply", "reply"]
    assert run.stderr == ""
