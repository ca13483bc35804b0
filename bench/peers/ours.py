"""Our own rows: `fit` on a list, and a later step of a session, in memory and stored.

A step is an answer with one call, the result of that, and what to send next. The whole history
was taken in before, and folded as it came; that is not timed.
"""

import gc
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from time import process_time
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

import foldmark
from bench.measure import seconds
from foldmark.compaction.fold import tokens_used
from foldmark.compaction.situation import CompactionRequest
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Message, Pending, TextPart, ToolPart, with_part
from foldmark.policy import FOLDMARK
from foldmark.session.in_memory import fit_view
from foldmark.tokens.budget import is_overflow
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit
from foldmark.wire.formats import decode

from .synthetic import session, step

WINDOW = 53_333  # of which 40 000 tokens are usable
LIMIT = Limit(context=WINDOW, output=0)
STEPS = 200
PIECE = 10_000  # messages that are taken in at once
NEW = 10_000_000  # the number of the first new step: far from those of the history

Json = dict[str, Any]
Step = Callable[[int], None]


class Timed(NamedTuple):
    """Seconds of the first call, or of a usual step; and what a step costs with the folds in it."""

    seconds: float
    kept: int
    later: float
    mean: float


def fitted(count: int) -> Timed | None:
    """`foldmark.fit` on a list that it has not seen, and on the same as it grows."""
    fit = cast("Callable[..., list[Json]] | None", getattr(foldmark, "fit", None))
    if fit is None:
        return None
    data = json.dumps(session(count))
    times, kept, messages = [0.0] * 3, 0, list[Json]()
    for turn in range(3):
        messages = cast("list[Json]", json.loads(data))  # no object is seen twice
        times[turn] = seconds(lambda given=messages: fit(given, window=WINDOW))
        kept = len(fit(messages, window=WINDOW))

    def grow(number: int) -> None:
        messages.extend(step(NEW + number))
        fit(messages, window=WINDOW)

    later = _times(grow, 20)
    return Timed(min(times), kept, median(later), fmean(later))


def in_memory(count: int) -> Timed:
    """A step of a log and its viewer."""
    log = Log(counter(FOLDMARK.estimate))
    viewer = Viewer(log, FOLDMARK, usable=40_000)
    job = CompactionRequest(viewer=viewer, limit=LIMIT)
    for number, message in enumerate(_read(count)):
        log.append(message)
        if number % PIECE == PIECE - 1:
            fit_view(job)
    fit_view(job)
    made = [_made(number) for number in range(STEPS)]

    def go(number: int) -> None:
        asked, done = made[number]
        entry = log.append(asked)
        log.record_result(entry.ordinal + 1, with_part(asked, 1, done))
        if is_overflow(FOLDMARK, tokens_used(viewer), LIMIT):  # as a session asks
            fit_view(job)
        viewer.view()

    times = _times(go, STEPS)
    return Timed(median(times), len(viewer.view().messages), median(times), fmean(times))


def stored(count: int) -> Timed:
    """A step of a session in a SQLite file, with what is sent to the model."""
    with (
        tempfile.TemporaryDirectory() as folder,
        foldmark.open(Path(folder) / "bench.db", window=WINDOW) as kept,
    ):
        for piece in _pieces(session(count)):
            kept.extend(piece, "openai-chat")
            kept.fit()

        made = [_said(number) for number in range(STEPS)]

        def go(number: int) -> None:
            said, call, output = made[number]
            kept.record([said, call])
            kept.result(str(call.call_id), output)
            kept.messages("openai-chat")

        times = _times(go, STEPS)
        shown = len(kept.messages("openai-chat"))
    return Timed(median(times), shown, median(times), fmean(times))


def _times(go: Step, steps: int) -> list[float]:
    gc.collect()
    times: list[float] = []
    for number in range(steps):
        start = process_time()
        go(number)
        times.append(process_time() - start)
    return times


def _pieces(messages: list[Json]) -> Iterator[list[Json]]:
    for start in range(0, len(messages), PIECE):
        yield messages[start : start + PIECE]


def _read(count: int) -> Iterator[Message]:
    for number, message in enumerate(decode(session(count), "openai-chat").messages):
        yield _named(message, f"msg_{number:08d}")


def _made(number: int) -> tuple[Message, ToolPart]:
    """An answer whose call is open, and that call with its result."""
    (message,) = decode(step(NEW + number), "openai-chat").messages
    said, done = message.parts
    assert isinstance(done, ToolPart)
    asked = replace(done, state=Pending(input={"path": f"src/part_{NEW + number}.py"}))
    return _named(replace(message, parts=(said, asked)), f"msg_{NEW + number:08d}"), done


def _said(number: int) -> tuple[TextPart, ToolPart, str]:
    """What a model says and calls, and what the call gives back."""
    asked, done = step(NEW + number)
    call = asked["tool_calls"][0]
    state = Pending(input=json.loads(call["function"]["arguments"]))
    part = ToolPart(tool="read", call_id=call["id"], state=state)
    return TextPart(text=asked["content"]), part, done["content"]


def _named(message: Message, name: str) -> Message:
    return replace(message, info=replace(message.info, id=name))
