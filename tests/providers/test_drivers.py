"""Drivers: asks that are sent, held to their time, cancelled, and never raise into a flow."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator

import pytest

from foldmark.errors import Aborted
from foldmark.model.prompt_messages import Text, UserMessage
from foldmark.providers.driver import MAX_PARALLEL_REQUESTS, adrive, drive, with_jitter
from foldmark.summary.protocol import (
    TextHandler,
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
)
from foldmark.testing import ScriptedModel

Driven = Callable[[ModelDialogue[tuple[Outcome, ...]], Summarizer | None], tuple[Outcome, ...]]
FOREVER = 60.0


def ask(text: str = "Sum up", **fields: float) -> ModelRequest:
    seconds, after = fields.get("seconds", FOREVER), fields.get("after", 0.0)
    return ModelRequest(
        messages=(UserMessage(content=(Text(text=text),)),), seconds=seconds, delay=after
    )


def once(
    *asks: ModelRequest, closed: list[bool] | None = None
) -> ModelDialogue[tuple[Outcome, ...]]:
    try:
        return (yield asks)
    finally:
        if closed is not None:
            closed.append(True)


def silent(piece: str) -> None:
    """Hears and says nothing."""


def blocking(
    flow: ModelDialogue[tuple[Outcome, ...]], model: Summarizer | None
) -> tuple[Outcome, ...]:
    return drive(flow, model, on_text=silent)


def awaiting(
    flow: ModelDialogue[tuple[Outcome, ...]], model: Summarizer | None
) -> tuple[Outcome, ...]:
    return asyncio.run(adrive(flow, model, on_text=silent))


def settled(holds: Callable[[], bool]) -> None:
    """Wait until something holds; where it never does the test fails."""
    end = time.monotonic() + FOREVER
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


both = pytest.mark.parametrize("driven", [blocking, awaiting])


class Counting:
    """A summarizer that counts how many asks are under way, and whether they were cancelled."""

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


@both
def test_a_flow_is_sent_its_outcomes_until_it_returns(driven: Driven) -> None:
    def flow() -> ModelDialogue[tuple[Outcome, ...]]:
        first = yield (ask("one"), ask("two"))
        second = yield (ask("three"),)
        return (*first, *second)

    model = ScriptedModel("a", "b", "c")
    assert driven(flow(), model) == tuple(ModelReply(text=text) for text in "abc")
    assert model.requests == [ask("one"), ask("two"), ask("three")]


@both
def test_a_flow_that_asks_nothing_just_returns(driven: Driven) -> None:
    def flow() -> ModelDialogue[tuple[Outcome, ...]]:
        yield from ()
        return (ModelReply(text="from nobody"),)

    assert driven(flow(), None) == (ModelReply(text="from nobody"),)


@both
def test_without_a_model_every_ask_is_refused(driven: Driven) -> None:
    outcomes = driven(once(ask(), ask()), None)
    assert outcomes == (ModelFailure(cause="unavailable", message="no model is set"),) * 2


@both
def test_whatever_a_model_raises_is_a_refusal_in_one_line(driven: Driven) -> None:
    (outcome,) = driven(once(ask()), ScriptedModel(ValueError("bad\nluck")))
    assert outcome == ModelFailure(cause="failed", message="ValueError: bad luck")
    (outcome,) = driven(once(ask()), ScriptedModel(lambda _: 1 / 0))  # pyright: ignore[reportArgumentType]
    assert isinstance(outcome, ModelFailure)
    assert outcome.message.startswith("ZeroDivisionError")


@both
def test_a_model_that_cancels_itself_or_answers_nonsense_is_a_failure(driven: Driven) -> None:
    class Odd:
        name = "odd:model"

        async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:  # noqa: ARG002 - a seam
            if request.purpose == "cancel":
                raise asyncio.CancelledError
            return "text"  # pyright: ignore[reportReturnType]

    cancel = ModelRequest(messages=(), purpose="cancel")
    outcomes = driven(once(ask(), cancel), Odd())
    assert outcomes == (
        ModelFailure(cause="failed", message="odd:model returned str instead of an outcome"),
        ModelFailure(cause="failed", message="the request was cancelled"),
    )


@both
def test_an_ask_is_held_to_its_time_and_cancelled(driven: Driven) -> None:
    model = Counting()
    (outcome,) = driven(once(ask(seconds=0.05)), model)
    assert outcome == ModelFailure(
        cause="timeout", message="counting:model did not answer within 0.05 s"
    )
    assert (model.cancelled, model.running) == (1, 0)


@both
def test_one_that_is_too_slow_does_not_take_the_others_with_it(driven: Driven) -> None:
    slow, fast = driven(once(ask(seconds=0.05), ask()), ScriptedModel("late", delay=0.3))
    assert isinstance(slow, ModelFailure)
    assert fast == ModelReply(text="late")


def test_a_model_that_will_not_be_cancelled_is_left_behind() -> None:
    model = Counting(stubborn=True)
    (outcome,) = blocking(once(ask(seconds=0.05)), model)
    assert isinstance(outcome, ModelFailure)
    assert (outcome.cause, model.running) == ("timeout", 1)
    model.released.set()
    settled(lambda: model.running == 0)


@both
def test_asks_run_at_the_same_time_but_not_too_many(driven: Driven) -> None:
    model = Counting(seconds=0.05)
    outcomes = driven(once(*[ask() for _ in range(3 * MAX_PARALLEL_REQUESTS)]), model)
    assert outcomes == (ModelReply(text="done"),) * (3 * MAX_PARALLEL_REQUESTS)
    assert model.peak == MAX_PARALLEL_REQUESTS


@both
def test_a_wait_before_an_ask_is_kept(driven: Driven) -> None:
    began = time.monotonic()
    times: list[float] = []

    def noted(_: ModelRequest) -> str:
        times.append(time.monotonic() - began)
        return ""

    driven(once(ask(after=0.2), ask()), ScriptedModel(noted))
    assert max(times) >= 0.2 * 0.75


def test_waits_are_not_all_the_same() -> None:
    waits = [with_jitter(8.0) for _ in range(500)]
    assert 6.0 <= min(waits) < 6.5
    assert 9.5 < max(waits) <= 10.0


def test_pieces_are_told_and_a_listener_that_raises_loses_no_answer() -> None:
    pieces: list[str] = []
    text = "All of the tests pass, and nothing is left to do."
    assert drive(once(ask()), ScriptedModel(text), on_text=pieces.append) == (
        ModelReply(text=text),
    )
    assert len(pieces) > 1
    assert "".join(pieces) == text

    def broken(piece: str) -> None:
        pieces.append(piece)
        raise OSError("nobody reads")

    pieces.clear()
    assert drive(once(ask()), ScriptedModel(text), on_text=broken) == (ModelReply(text=text),)
    assert len(pieces) == 1


# --- stopping -------------------------------------------------------------------------------------


@both
def test_a_flow_is_closed_when_it_raises(driven: Driven) -> None:
    closed: list[bool] = []

    def flow() -> Generator[tuple[ModelRequest, ...], tuple[Outcome, ...], tuple[Outcome, ...]]:
        yield from once(ask(), closed=closed)
        raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        driven(flow(), ScriptedModel("a"))
    assert closed == [True]


def stopping(model: Counting) -> threading.Event:
    """An event that another thread sets once the model has been asked."""
    aborted = threading.Event()

    def run() -> None:
        model.started.wait()
        aborted.set()

    threading.Thread(target=run, daemon=True).start()
    return aborted


def test_an_event_from_another_thread_stops_a_blocking_driver() -> None:
    model, closed = Counting(), list[bool]()
    with pytest.raises(Aborted):
        drive(once(ask(), ask(), closed=closed), model, on_text=silent, aborted=stopping(model))
    assert (model.cancelled, model.running, closed) == (2, 0, [True])


def test_an_event_from_another_thread_stops_an_awaiting_driver() -> None:
    model, closed = Counting(), list[bool]()
    flow = once(ask(after=0.0), ask(after=FOREVER), closed=closed)
    with pytest.raises(Aborted):
        asyncio.run(adrive(flow, model, on_text=silent, aborted=stopping(model)))
    assert (model.cancelled, model.running, closed) == (1, 0, [True])


def test_an_event_that_is_set_lets_nothing_be_asked() -> None:
    aborted, model = threading.Event(), ScriptedModel("a")
    aborted.set()
    with pytest.raises(Aborted):
        drive(once(ask()), model, on_text=silent, aborted=aborted)
    assert model.requests == []


def test_a_task_that_is_cancelled_cancels_what_it_asked() -> None:
    model, closed = Counting(), list[bool]()

    async def run() -> None:
        task = asyncio.create_task(adrive(once(ask(), closed=closed), model, on_text=silent))
        while not model.started.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert (model.cancelled, model.running, closed) == (1, 0, [True])


def test_an_interrupt_from_the_keyboard_stops_a_blocking_driver() -> None:
    model, closed = Counting(), list[bool]()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        model.started.wait()
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        drive(once(ask(), closed=closed), model, on_text=silent)
    assert closed == [True]
    settled(lambda: (model.cancelled, model.running) == (1, 0))
    # Whoever drives next finds the thread at work.
    assert blocking(once(ask()), ScriptedModel("next")) == (ModelReply(text="next"),)


# --- threads and processes ------------------------------------------------------------------------


def test_many_threads_share_one_thread_for_models() -> None:
    seen: set[str] = set()

    def noted(_: ModelRequest) -> str:
        seen.add(threading.current_thread().name)
        return "a"

    model = ScriptedModel(noted)
    threads = [threading.Thread(target=blocking, args=(once(ask()), model)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.requests) == 8
    assert seen == {"foldmark-models"}


def test_a_driver_may_block_inside_an_event_loop_that_is_running() -> None:
    async def run() -> tuple[Outcome, ...]:
        return blocking(once(ask()), ScriptedModel("a"))

    assert asyncio.run(run()) == (ModelReply(text="a"),)


def test_a_model_that_blocks_on_its_own_thread_is_refused_and_not_waited_for() -> None:
    def blocks(_: ModelRequest) -> ModelReply | ModelFailure:
        return blocking(once(ask()), ScriptedModel("never"))[0]

    (outcome,) = blocking(once(ask()), ScriptedModel(blocks))
    assert isinstance(outcome, ModelFailure)
    assert "must await instead" in outcome.message


FORKING = """
import os, warnings
from foldmark.providers.driver import drive
from foldmark.summary.protocol import ModelRequest
from foldmark.testing import ScriptedModel

def once():
    return (yield (ModelRequest(messages=()),))

def driven():
    return drive(once(), ScriptedModel("told"), on_text=print)[0].text

driven()
warnings.simplefilter("ignore", DeprecationWarning)  # that threads are there is the point
if child := os.fork():
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), driven(), flush=True)
else:
    print("child", driven(), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_child_drives_on_a_thread_of_its_own() -> None:
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORKING],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert sorted(run.stdout.splitlines()) == ["0 told", "child told", "told", "told", "told"]
    assert run.stderr == ""
