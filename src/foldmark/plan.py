"""The plan: what prune and compact would do to a session now, and why, before it is done."""

from collections.abc import Sequence

import msgspec

from .errors import WindowTooSmall
from .limits import Limit
from .log import Log
from .messages import AssistantInfo, Message
from .overflow import is_overflow, pressure, usable, used
from .policy import Policy
from .prune import Prune, prune_plan
from .render import Cell
from .sizes import MESSAGE_OVERHEAD
from .tail import Fold, Measure, fold, tail_budget
from .tokens import correction, utf16_length
from .values import Frozen
from .view import Viewer, view_start
from .words import REPEATED, words_room

# Less than this is no summary.
LEAST_SUMMARY = 100


class Plan(Frozen):
    """What would be done: figures, outputs to prune and keep, and where the tail would begin."""

    overflow: bool
    usable: int
    tokens: int
    pressure: float
    prune: Prune
    fold: Fold

    @property
    def tail_start(self) -> str | None:
        """The first message that a pivot would keep verbatim."""
        return self.fold.tail_start


def tokens_used(viewer: Viewer, *, fixed: int = 0) -> int:
    """The tokens of the next request: measured, and estimated where the policy asks for it.

    `fixed` is what a request holds beside the view: the system prompt and the tools.
    """
    log, policy, view = viewer.log, viewer.policy, viewer.view()
    measured, estimated_then, after = 0, 0, 0
    if log.measured is not None:
        info = log.entries[log.measured].message.info
        if isinstance(info, AssistantInfo) and info.tokens:
            measured = int(used(info.tokens, policy.window))
            after = viewer.tokens_after(log.measured)
            estimated_then = view.tokens - after + fixed
    if not policy.window.preflight:
        return measured
    factor = correction(measured, estimated_then)
    return max(measured + after, int((view.tokens + fixed) * factor))


def session_plan(
    viewer: Viewer, limit: Limit, *, model: str = "", fixed: int = 0, explain: bool = False
) -> Plan:
    """What prune and compact would do to a session with this model."""
    log, policy = viewer.log, viewer.policy
    room = usable(policy, limit, model)
    count = tokens_used(viewer, fixed=fixed)
    return Plan(
        overflow=is_overflow(policy, count, limit, model),
        usable=room,
        tokens=count,
        pressure=pressure(count, room) if limit.context else 0.0,
        prune=prune_plan(
            log,
            policy.prune,
            start=view_start(log, policy.view),
            usable=room if limit.context else 0,
            explain=explain,
        ),
        fold=session_fold(viewer, room, fixed=fixed),
    )


def session_fold(viewer: Viewer, room: int, *, fixed: int = 0, overflow: bool = False) -> Fold:
    """What a pivot would fold and keep of a session now."""
    log, policy = viewer.log, viewer.policy
    cells = viewer.cells()
    by_message = {id(log.entries[cell.index].message): cell for cell in cells}
    budget = tail_budget(policy.tail, room)
    if policy.tail.capped:
        budget = min(budget, room_for_tail(log, policy, room, fixed))

    def measure(messages: Sequence[Message]) -> Measure:
        chosen = [by_message[id(message)] for message in messages]
        return _json_measure(chosen) if policy.tail.by_json else _sum_measure(chosen)

    return fold(
        [log.entries[cell.index].message for cell in cells],
        policy.tail,
        overflow=overflow,
        budget=budget,
        measure=measure,
    )


def room_for_tail(log: Log, policy: Policy, room: int, fixed: int) -> int:
    """What is left for a tail when all that must be shown is shown, and a summary beside it."""
    return room - fixed - _must_show(log, policy, room) - summary_room(policy, room)


def summary_room(policy: Policy, room: int) -> int:
    """The tokens that a summary may have."""
    return min(policy.view.summary, room // 4)


def check_window(log: Log, policy: Policy, room: int, *, fixed: int = 0) -> None:
    """Raise WindowTooSmall where no pivot could bring the view into the window."""
    shown = _must_show(log, policy, room)
    needed = fixed + shown + LEAST_SUMMARY
    if needed > room:
        largest = "the system prompt and the tools" if fixed > shown else "the open request"
        raise WindowTooSmall(usable=room, fixed=needed, largest=largest)


def _must_show(log: Log, policy: Policy, room: int) -> int:
    """The user's words that every view holds, with the marker's own text."""
    tokens = log.count(policy.view.marker) + 3 * MESSAGE_OVERHEAD
    if not policy.view.words:
        return tokens
    newest = log.requests.newest(len(log))
    if newest is not None:
        tokens += log.count(newest.text) + log.count(REPEATED) + MESSAGE_OVERHEAD
    return tokens + words_room(policy, room)


def _sum_measure(cells: Sequence[Cell]) -> Measure:
    sums = [0]
    for cell in cells:
        sums.append(sums[-1] + cell.tokens)
    return lambda start, end: sums[end] - sums[start]


def _json_measure(cells: Sequence[Cell]) -> Measure:
    """The estimate of the compact JSON of a slice, from the lengths of its messages' JSON."""
    lengths = [0]
    counts = [0]
    for cell in cells:
        texts = [msgspec.json.encode(shown).decode() for shown in cell.shown]
        lengths.append(lengths[-1] + sum(map(utf16_length, texts)))
        counts.append(counts[-1] + len(texts))

    def measure(start: int, end: int) -> int:
        commas = max(0, counts[end] - counts[start] - 1)
        return (lengths[end] - lengths[start] + commas + 2 + 2) // 4

    return measure
