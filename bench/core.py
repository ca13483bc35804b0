"""The core: a first pass over a long session, a later step, steps after ever longer histories."""

import gc
from collections.abc import Iterator, Sequence
from statistics import median
from time import process_time

import msgspec

from bench.lab.generate import generate
from foldmark.compaction.pivot import MessageIds, marker_message, summary_message
from foldmark.compaction.prune import view_prune
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Message, Transcript, decode_transcript
from foldmark.model.values import decoder, encode
from foldmark.policy import FOLDMARK, OPENCODE, Policy
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit
from foldmark.tokens.sizes import message_sizes

from .measure import best, millis

LIMIT = Limit(context=200_000, output=32_000)
MESSAGES, STEP = 10_000, 10
Row = tuple[str, ...]

_decode_step = decoder(tuple[Message, ...])


def first_pass(data: bytes, policy: Policy) -> tuple[Log, Viewer]:
    """Decode, count, plan and show a whole session."""
    log = Log(counter(policy.estimate), decode_transcript(data).messages)
    viewer = Viewer(log, policy, usable=168_000)
    view_prune(viewer, 168_000, explain=False)
    viewer.view()
    return log, viewer


def steps(messages: Sequence[Message]) -> Iterator[bytes]:
    for start in range(0, len(messages) - STEP + 1, STEP):
        yield encode(tuple(messages[start : start + STEP]))


def first_pass_and_step() -> Iterator[Row]:
    """A first pass against bare decoding and counting, and a later step against that pass."""
    for pivots in (False, True):
        made = generate(messages=MESSAGES + 60 * STEP, output_chars=1_400, pivots=pivots)
        first = Transcript(info=made.info, messages=made.messages[:MESSAGES])
        for policy in (FOLDMARK, OPENCODE):
            yield _pass_row(first, made.messages[MESSAGES:], policy)


def _pass_row(first: Transcript, later: Sequence[Message], policy: Policy) -> Row:
    data = encode(first)
    typed = msgspec.json.Decoder(Transcript)
    count = counter(policy.estimate)
    times = best(
        {
            "untyped": lambda: msgspec.json.decode(data),
            "typed": lambda: typed.decode(data),
            "count": lambda: [message_sizes(message, count) for message in first.messages],
            "pass": lambda: first_pass(data, policy),
        }
    )
    step, pivots = _step_after(data, list(steps(later)), policy)
    return (
        f"{policy.name}, {pivots} pivots",
        f"{len(data) / 1e6:.0f} MB",
        *(millis(times[name]) for name in ("untyped", "typed", "count", "pass")),
        f"{times['pass'] / (times['untyped'] + times['count']):.2f}",
        f"{times['pass'] / (times['typed'] + times['count']):.2f}",
        millis(step),
        f"1/{times['pass'] / step:.0f}",
    )


def _step_after(data: bytes, new: list[bytes], policy: Policy) -> tuple[float, int]:
    """The median of several steps after a first pass, each the best of several rounds."""
    rounds: list[list[float]] = []
    pivots = 0
    for _ in range(5):
        log, viewer = first_pass(data, policy)
        gc.collect()
        rounds.append([_step(log, viewer, step) for step in new])
        pivots = len(log.pivots)
    return median([min(times) for times in zip(*rounds, strict=True)]), pivots


def flat_steps() -> Iterator[Row]:
    """A step with the same forty messages after a pivot, and ever more before it."""
    made = generate(messages=100_000 + 40 + 80 * STEP, output_chars=300)
    after, new = made.messages[100_000:100_040], made.messages[100_040:]
    viewers: dict[int, Viewer] = {}
    for before in (100, 1_000, 10_000, 100_000):
        log = Log(counter(FOLDMARK.estimate), [*made.messages[:before], *pivot(), *after])
        viewers[before] = Viewer(log, FOLDMARK, usable=168_000)
        view_prune(viewers[before], 168_000, explain=False)
    times: dict[int, list[float]] = {before: [] for before in viewers}
    turns = list(viewers.items())
    for step in steps(new):  # in turns, so that a busy moment hits all alike
        for before, viewer in turns:
            times[before].append(_step(viewer.log, viewer, step))
        turns = [*turns[1:], turns[0]]
    for before, found in times.items():
        ratio = median(found) / median(times[100])
        yield f"{before:,}", millis(median(found)), f"{ratio:.2f}"


def pivot() -> tuple[Message, Message]:
    marker = MessageIds(session="s", message="msg_marker", part="prt_marker", at=1)
    summary = MessageIds(session="s", message="msg_summary", part="prt_summary", at=2)
    text = "The work so far went well. " * 60
    return marker_message(marker, auto=True), summary_message(summary, text, marker="msg_marker")


def _step(log: Log, viewer: Viewer, data: bytes) -> float:
    """The time of one step: new messages decoded, counted, planned, pruned and shown."""
    start = process_time()
    for message in _decode_step(data):
        log.append(message)
    log.mark(view_prune(viewer, 168_000, explain=False).ordinals, at=1)
    viewer.view()
    return process_time() - start
