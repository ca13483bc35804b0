"""Runs a flow: sends what it asks to a summarizer, and sends it back what came of that.

One driver blocks, one awaits, over the same generator. A driver waits before an ask, holds it to
its time, and makes a refusal of whatever goes wrong; it knows no provider, and not what is asked.
"""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from foldmark.errors import Aborted
from foldmark.summary.protocol import (
    AT_ONCE,
    Delta,
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
    T,
)
from foldmark.summary.redaction import masked

from .background import end_tasks, waited

_JITTER = 0.25  # of a wait, more or less: those refused together shall not come back together
_GLANCE = 0.05  # seconds between two looks at whether to stop
_GRACE = 1.0  # seconds that a cancelled ask has to end
_OUTCOMES = (ModelReply, ModelFailure)
_LONGEST = 300  # characters of an error that are told


def drive(
    flow: ModelDialogue[T],
    summarizer: Summarizer | None,
    *,
    delta: Delta,
    aborted: threading.Event | None = None,
) -> T:
    """What the flow returns; `Aborted` where the event was set while a model was waited for."""
    try:
        asks = next(flow)
        while True:
            asks = flow.send(waited(outcomes(asks, summarizer, delta=delta, aborted=aborted)))
    except StopIteration as end:
        return end.value
    finally:
        flow.close()


async def adrive(
    flow: ModelDialogue[T],
    summarizer: Summarizer | None,
    *,
    delta: Delta,
    aborted: threading.Event | None = None,
) -> T:
    """The same in the caller's own event loop, which is free while the flow does its own work."""
    try:
        step = await asyncio.to_thread(_stepped, flow, None)
        while not isinstance(step, StopIteration):
            found = await outcomes(step, summarizer, delta=delta, aborted=aborted)
            step = await asyncio.to_thread(_stepped, flow, found)
        return step.value
    finally:
        _closed(flow)


def _stepped(
    flow: ModelDialogue[T], found: tuple[Outcome, ...] | None
) -> tuple[ModelRequest, ...] | StopIteration:
    """What the flow asks next, or its end: no thread can raise that to another."""
    try:
        return next(flow) if found is None else flow.send(found)
    except StopIteration as end:
        return end


def _closed(flow: ModelDialogue[T]) -> None:
    """Close a flow, unless a step of it still runs in a thread that nobody waits for."""
    with suppress(ValueError):
        flow.close()


async def outcomes(
    asks: tuple[ModelRequest, ...],
    summarizer: Summarizer | None,
    *,
    delta: Delta,
    aborted: threading.Event | None = None,
) -> tuple[Outcome, ...]:
    """What came of asks that are sent at the same time, in their order."""
    if aborted is not None and aborted.is_set():
        raise Aborted
    if summarizer is None:
        return tuple(ModelFailure(cause="unavailable", message="no model is set") for _ in asks)
    room = asyncio.Semaphore(AT_ONCE)
    heard = _heard(delta)
    tasks = [asyncio.create_task(_outcome(ask, summarizer, heard, room)) for ask in asks]
    waiting = set(tasks)
    try:
        while waiting:  # the event is of threads, so it is looked at and not awaited
            _, waiting = await asyncio.wait(waiting, timeout=_GLANCE if aborted else None)
            if waiting and aborted is not None and aborted.is_set():
                raise Aborted
    finally:
        await end_tasks(tasks, _GRACE)
    return tuple(task.result() for task in tasks)


async def _outcome(
    ask: ModelRequest, summarizer: Summarizer, delta: Delta, room: asyncio.Semaphore
) -> Outcome:
    if ask.after > 0:
        await asyncio.sleep(jittered(ask.after))
    async with room:
        asked = heard_out(lambda: summarizer.ask(ask, delta), summarizer.name, _OUTCOMES)
        asking = asyncio.create_task(asked)
        try:
            await asyncio.wait((asking,), timeout=ask.seconds)
            if not asking.done():
                told = f"{summarizer.name} did not answer within {ask.seconds:g} s"
                return ModelFailure(cause="timeout", message=told)
        finally:
            await end_tasks((asking,), _GRACE)
        return asking.result()


async def heard_out(
    asked: Callable[[], Awaitable[object]], name: str, kinds: tuple[type[T], ...]
) -> T | ModelFailure:
    """What a model of this name says; whatever its code raises is a refusal, as is nonsense."""
    try:
        outcome = await asked()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return ModelFailure(cause="failed", message="the request was cancelled")  # from within
    except Exception as error:  # noqa: BLE001 - a model is anybody's code
        return ModelFailure(cause="failed", message=error_line(error))
    if isinstance(outcome, kinds):
        return outcome
    kind = type(outcome).__name__
    return ModelFailure(cause="failed", message=f"{name} gave no outcome but a {kind}")


def _heard(delta: Delta) -> Delta:
    """The same listener, told no more once it raises: an answer is worth more than its pieces."""
    deaf = threading.Event()

    def told(piece: str) -> None:
        if deaf.is_set():
            return
        try:
            delta(piece)
        except Exception:  # noqa: BLE001 - a listener is anybody's code
            deaf.set()

    return told


def jittered(seconds: float) -> float:
    """About as long a wait, a little different each time."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret


def error_line(error: BaseException) -> str:
    """An error on one line: its kind, and what it says."""
    said = masked(" ".join(str(error).split()))
    kind = type(error).__name__
    return f"{kind}: {said}"[:_LONGEST] if said else kind
