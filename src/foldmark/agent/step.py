"""One answer of the model: asked for, streamed, and asked for again where it did not come.

It tells what comes as it comes, and keeps it, so that an answer that is cut off is not lost. It
runs no tools, and writes nothing to the session.
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
from foldmark.providers.driver import heard_out, jittered
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.summary.protocol import (
    Calling,
    Cause,
    Model,
    ModelFailure,
    ModelRequest,
    Piece,
    Stepped,
    Words,
    retry_pause,
)

_AGAIN: tuple[Cause, ...] = ("throttled", "timeout", "failed")
_LONGEST_WAIT = 120.0  # seconds between two tries, whatever a provider says
_GRACE = 1.0  # seconds that a cancelled request has to end
EMPTY = "the model answered nothing"


class RetryPolicy(NamedTuple):
    """How often a request is tried again, and how long an answer may be silent."""

    retries: int = 4
    pause: float = 1.0  # seconds before the second try; doubled before each one after
    silence: float = 300.0  # seconds without a piece, after which the request is given up


class StreamedAnswer:
    """An answer on its way: what came of it so far, and the tries that failed before it."""

    def __init__(self, session: Session) -> None:
        """Take the session whose subscribers are told."""
        self._session = session
        self._words: list[Words] = []
        self.retried: list[RetryPart] = []
        self.heard = 0.0  # when the last piece came

    def tell(self, piece: Piece) -> None:
        """Take a piece, and tell of it."""
        self.heard = monotonic()
        match piece:
            case Words():
                self._words.append(piece)
                self._session.publish(events.STEP_DELTA, text=piece.text, what=piece.kind)
            case Calling():
                self._session.publish(events.TOOL_CALLED, call=piece.call_id, tool=piece.tool)

    def forget(self) -> None:
        """Forget what was said: it is asked for once more."""
        self._words = []

    def again(self, attempt: int, refused: ModelFailure, seconds: float) -> None:
        """Note a try that failed, and forget what it said."""
        now = LoopSupport(self._session).maker.now()
        self.forget()
        error = {"name": refused.cause, "message": refused.message}
        part = RetryPart(attempt=attempt, error=error, time=Time(created=now))
        self.retried.append(part)
        self._session.publish(
            events.STEP_RETRIED,
            attempt=attempt,
            cause=refused.cause,
            message=refused.message,
            seconds=round(seconds, 1),
        )

    @property
    def so_far(self) -> tuple[TextPart | ReasoningPart, ...]:
        """What was said so far, as parts."""
        pieces = groupby(self._words, key=lambda piece: piece.kind)
        joined = ((kind, "".join(piece.text for piece in some)) for kind, some in pieces)
        return tuple(
            TextPart(text=text) if kind == "text" else ReasoningPart(text=text)
            for kind, text in joined
        )


async def answered(
    model: Model, ask: ModelRequest, answer: StreamedAnswer, policy: RetryPolicy
) -> Stepped | ModelFailure:
    """What the model answers in the end; a refusal is the last of several where that may help.

    An answer of nothing is asked for again, too. Who gives no other has nothing more to say.
    """
    for attempt in range(1, policy.retries + 2):
        outcome = await _asked(model, ask, answer, policy.silence)
        refused = _refusal(outcome)
        if refused is None or refused.cause not in _AGAIN:
            return outcome
        # Who was silent for so long once more is not waited for again.
        tries = min(policy.retries, 1) if refused.cause == "timeout" else policy.retries
        if attempt > tries:
            return outcome
        pause = retry_pause(attempt, refused.retry_after, first=jittered(policy.pause))
        seconds = min(pause, _LONGEST_WAIT)
        answer.again(attempt, refused, seconds)
        await asyncio.sleep(seconds)
    raise AssertionError("the last try returns")


def _refusal(outcome: Stepped | ModelFailure) -> ModelFailure | None:
    if isinstance(outcome, ModelFailure):
        return outcome
    says = any(isinstance(part, ToolPart) or part.text.strip() for part in outcome.parts)
    return None if says else ModelFailure(cause="failed", message=EMPTY)


async def _asked(
    model: Model, ask: ModelRequest, answer: StreamedAnswer, silence: float
) -> Stepped | ModelFailure:
    """One try; whatever the model's code raises is a refusal."""
    task = asyncio.create_task(
        heard_out(lambda: model.step(ask, answer.tell), model.name, (Stepped, ModelFailure))
    )
    answer.heard = monotonic()
    try:
        while not task.done():
            left = answer.heard + silence - monotonic()
            if left <= 0:
                told = f"{model.name} was silent for {silence:g} s"
                return ModelFailure(cause="timeout", message=told)
            await asyncio.wait((task,), timeout=left)
        return task.result()
    finally:
        await end_tasks((task,), _GRACE)


def with_own_ids(stepped: Stepped, made: Callable[[], str]) -> Stepped:
    """The same answer, each call with an id of its own: some models repeat theirs."""
    seen: set[str] = set()
    parts: list[TextPart | ReasoningPart | ToolPart] = []
    for part in stepped.parts:
        if isinstance(part, ToolPart):
            name = part.call_id or ""
            if not name or name in seen:
                part = replace(part, call_id=made(), id=UNSET)  # noqa: PLW2901 - the same call
            seen.add(part.call_id or "")
        parts.append(part)
    return replace(stepped, parts=tuple(parts))
