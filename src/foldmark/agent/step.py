"""One answer of the model: requested, streamed, and requested again after a failure.

Deltas are published as they arrive and kept, so that a partial answer is not lost. Nothing here
runs tools or writes to the session.
"""

import asyncio
from collections.abc import Callable
from itertools import groupby
from time import monotonic
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model import events
from foldmark.model.messages import ReasoningPart, RetryPart, TextPart, Time, ToolPart
from foldmark.providers.background import end_tasks
from foldmark.providers.driver import call_model, with_jitter
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.summary.protocol import (
    CallDelta,
    Cause,
    Model,
    ModelFailure,
    ModelRequest,
    StepReply,
    StreamDelta,
    TextDelta,
    retry_pause,
)

_RETRIED: tuple[Cause, ...] = ("throttled", "timeout", "failed")
_MAX_PAUSE = 120.0  # seconds between two attempts, whatever a provider asks for
_GRACE = 1.0  # seconds for a cancelled request to end
EMPTY = "the model's answer is empty"


class RetryPolicy(NamedTuple):
    """How often a request is retried, and how long a stream may be silent."""

    retries: int = 4
    pause: float = 1.0  # seconds before the first retry; doubled for each later one
    silence: float = 300.0  # seconds without a delta before the request is given up


class AnswerStream:
    """An answer that is being streamed, and the failed attempts before it."""

    def __init__(self, session: Session) -> None:
        """Create a stream that publishes its deltas to a session's subscribers."""
        self._session = session
        self._deltas: list[TextDelta] = []
        self.retries: list[RetryPart] = []
        self.last_delta_at = 0.0  # time.monotonic() of the last delta

    def add(self, piece: StreamDelta) -> None:
        """Keep a delta and publish it."""
        self.last_delta_at = monotonic()
        match piece:
            case TextDelta():
                self._deltas.append(piece)
                self._session.publish(events.STEP_DELTA, text=piece.text, what=piece.kind)
            case CallDelta():
                self._session.publish(events.TOOL_CALLED, call=piece.call_id, tool=piece.tool)

    def clear(self) -> None:
        """Drop the deltas: the answer is requested again."""
        self._deltas = []

    def note_retry(self, attempt: int, failure: ModelFailure, seconds: float) -> None:
        """Record a failed attempt and drop its deltas."""
        now = LoopSupport(self._session).builder.now()
        self.clear()
        error = {"name": failure.cause, "message": failure.message}
        part = RetryPart(attempt=attempt, error=error, time=Time(created=now))
        self.retries.append(part)
        self._session.publish(
            events.STEP_RETRIED,
            attempt=attempt,
            cause=failure.cause,
            message=failure.message,
            seconds=round(seconds, 1),
        )

    @property
    def parts(self) -> tuple[TextPart | ReasoningPart, ...]:
        """The text and reasoning so far, as parts."""
        pieces = groupby(self._deltas, key=lambda piece: piece.kind)
        joined = ((kind, "".join(piece.text for piece in some)) for kind, some in pieces)
        return tuple(
            TextPart(text=text) if kind == "text" else ReasoningPart(text=text)
            for kind, text in joined
        )


async def request_answer(
    model: Model, request: ModelRequest, answer: AnswerStream, policy: RetryPolicy
) -> StepReply | ModelFailure:
    """The model's answer, or its last failure after the retries.

    An empty answer is retried too; if every attempt is empty, the empty answer is returned.
    """
    for attempt in range(1, policy.retries + 2):
        outcome = await _ask_once(model, request, answer, policy.silence)
        failure = _refusal(outcome)
        if failure is None or failure.cause not in _RETRIED:
            return outcome
        # A model that was silent twice is not waited for again.
        tries = min(policy.retries, 1) if failure.cause == "timeout" else policy.retries
        if attempt > tries:
            return outcome
        pause = retry_pause(attempt, failure.retry_after, first=with_jitter(policy.pause))
        seconds = min(pause, _MAX_PAUSE)
        answer.note_retry(attempt, failure, seconds)
        await asyncio.sleep(seconds)
    raise AssertionError("the last attempt returns")


def _refusal(outcome: StepReply | ModelFailure) -> ModelFailure | None:
    if isinstance(outcome, ModelFailure):
        return outcome
    has_content = any(isinstance(part, ToolPart) or part.text.strip() for part in outcome.parts)
    return None if has_content else ModelFailure(cause="failed", message=EMPTY)


async def _ask_once(
    model: Model, request: ModelRequest, answer: AnswerStream, silence: float
) -> StepReply | ModelFailure:
    """One attempt; whatever the model's code raises becomes a ModelFailure."""
    task = asyncio.create_task(
        call_model(lambda: model.step(request, answer.add), model.name, (StepReply, ModelFailure))
    )
    answer.last_delta_at = monotonic()
    try:
        while not task.done():
            remaining = answer.last_delta_at + silence - monotonic()
            if remaining <= 0:
                message = f"{model.name} was silent for {silence:g} s"
                return ModelFailure(cause="timeout", message=message)
            await asyncio.wait((task,), timeout=remaining)
        return task.result()
    finally:
        await end_tasks((task,), _GRACE)


def with_unique_call_ids(reply: StepReply, make_id: Callable[[], str]) -> StepReply:
    """The reply with a unique id for each call: some models repeat ids."""
    ids: set[str] = set()
    parts: list[TextPart | ReasoningPart | ToolPart] = []
    for part in reply.parts:
        if isinstance(part, ToolPart):
            call_id = part.call_id or ""
            if not call_id or call_id in ids:
                part = replace(part, call_id=make_id(), id=UNSET)  # noqa: PLW2901 - the same call
            ids.add(part.call_id or "")
        parts.append(part)
    return replace(reply, parts=tuple(parts))
