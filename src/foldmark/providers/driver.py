"""Drive a dialogue: send its requests to a summarizer and return the outcomes to it.

One driver blocks and one awaits, over the same generator. A driver waits before a request, enforces
its timeout and turns errors into failures. It knows neither providers nor the content of requests.
"""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

from foldmark.errors import Aborted
from foldmark.summary.protocol import (
    MAX_PARALLEL_REQUESTS,
    ModelDialogue,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    Summarizer,
    T,
    TextHandler,
)
from foldmark.summary.redaction import mask_secrets

from .background import end_tasks, run_sync

_JITTER = 0.25  # share of a wait: requests refused together should not return together
_POLL = 0.05  # seconds between checks for an abort
_GRACE = 1.0  # seconds for a cancelled request to end
_OUTCOMES = (ModelReply, ModelFailure)
_MAX_LENGTH = 300  # characters of an error that are reported


def drive(
    dialogue: ModelDialogue[T],
    summarizer: Summarizer | None,
    *,
    on_text: TextHandler,
    aborted: threading.Event | None = None,
) -> T:
    """The result of the dialogue. Raises Aborted if the event is set while a model answers."""
    try:
        requests = next(dialogue)
        while True:
            sent = send_requests(requests, summarizer, on_text=on_text, aborted=aborted)
            requests = dialogue.send(run_sync(sent))
    except StopIteration as end:
        return end.value
    finally:
        dialogue.close()


async def adrive(
    dialogue: ModelDialogue[T],
    summarizer: Summarizer | None,
    *,
    on_text: TextHandler,
    aborted: threading.Event | None = None,
) -> T:
    """Like `drive`, in the caller's event loop, which stays free while the dialogue computes."""
    try:
        step = await asyncio.to_thread(_advance, dialogue, None)
        while not isinstance(step, StopIteration):
            outcomes = await send_requests(step, summarizer, on_text=on_text, aborted=aborted)
            step = await asyncio.to_thread(_advance, dialogue, outcomes)
        return step.value
    finally:
        _close(dialogue)


def _advance(
    dialogue: ModelDialogue[T], outcomes: tuple[Outcome, ...] | None
) -> tuple[ModelRequest, ...] | StopIteration:
    """The dialogue's next requests or its end, as StopIteration cannot cross threads."""
    try:
        return next(dialogue) if outcomes is None else dialogue.send(outcomes)
    except StopIteration as end:
        return end


def _close(dialogue: ModelDialogue[T]) -> None:
    """Close a dialogue, unless an abandoned thread still runs a step of it."""
    with suppress(ValueError):
        dialogue.close()


async def send_requests(
    requests: tuple[ModelRequest, ...],
    summarizer: Summarizer | None,
    *,
    on_text: TextHandler,
    aborted: threading.Event | None = None,
) -> tuple[Outcome, ...]:
    """Send requests at the same time and return their outcomes in order."""
    if aborted is not None and aborted.is_set():
        raise Aborted
    if summarizer is None:
        return tuple(ModelFailure(cause="unavailable", message="no model is set") for _ in requests)
    slots = asyncio.Semaphore(MAX_PARALLEL_REQUESTS)
    handler = _guarded_handler(on_text)
    tasks = [asyncio.create_task(_send(each, summarizer, handler, slots)) for each in requests]
    waiting = set(tasks)
    try:
        while waiting:  # a threading event must be polled
            _, waiting = await asyncio.wait(waiting, timeout=_POLL if aborted else None)
            if waiting and aborted is not None and aborted.is_set():
                raise Aborted
    finally:
        await end_tasks(tasks, _GRACE)
    return tuple(task.result() for task in tasks)


async def _send(
    request: ModelRequest, summarizer: Summarizer, on_text: TextHandler, slots: asyncio.Semaphore
) -> Outcome:
    if request.delay > 0:
        await asyncio.sleep(with_jitter(request.delay))
    async with slots:
        call = call_model(lambda: summarizer.ask(request, on_text), summarizer.name, _OUTCOMES)
        task = asyncio.create_task(call)
        try:
            await asyncio.wait((task,), timeout=request.seconds)
            if not task.done():
                message = f"{summarizer.name} did not answer within {request.seconds:g} s"
                return ModelFailure(cause="timeout", message=message)
        finally:
            await end_tasks((task,), _GRACE)
        return task.result()


async def call_model(
    call: Callable[[], Awaitable[object]], name: str, kinds: tuple[type[T], ...]
) -> T | ModelFailure:
    """The outcome of a model's call; errors and results of the wrong type become failures."""
    try:
        outcome = await call()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return ModelFailure(cause="failed", message="the request was cancelled")  # by the model
    except Exception as error:  # noqa: BLE001 - custom model code
        return ModelFailure(cause="failed", message=error_line(error))
    if isinstance(outcome, kinds):
        return outcome
    kind = type(outcome).__name__
    return ModelFailure(cause="failed", message=f"{name} returned {kind} instead of an outcome")


def _guarded_handler(on_text: TextHandler) -> TextHandler:
    """The handler, which is not called again once it raises: the reply matters more."""
    failed = threading.Event()

    def guarded(piece: str) -> None:
        if failed.is_set():
            return
        try:
            on_text(piece)
        except Exception:  # noqa: BLE001 - custom handler code
            failed.set()

    return guarded


def with_jitter(seconds: float) -> float:
    """A wait of about this length, varied at random."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - not a secret


def error_line(error: BaseException) -> str:
    """An error as one line: its type and message."""
    text = mask_secrets(" ".join(str(error).split()))
    kind = type(error).__name__
    return f"{kind}: {text}"[:_MAX_LENGTH] if text else kind
