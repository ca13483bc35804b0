"""The breaker: stops compacting where that frees nothing, or is needed again at once.

Told by the acts of a session alone, so that it holds across processes and restarts.
"""

from collections.abc import Callable, Sequence

from foldmark.errors import CompactionStopped
from foldmark.log.log import Log
from foldmark.log.render import is_summary
from foldmark.log.view import Viewer
from foldmark.model.messages import Message
from foldmark.model.operations import Operation
from foldmark.policy import CompactRules

TIMES = 2  # so often running without progress
TURNS, PIVOTS = 3, 3  # so many pivots within so many answers are too many
_MANY = 5

Read = Callable[[int], Message | None]


def stop_reason(
    acts: Sequence[Operation],
    log: Log,
    rules: CompactRules,
    *,
    fixed: int = 0,
    foreseen: float = 0.0,
    read: Read = lambda _: None,
) -> str | None:
    """Why no further automatic compaction is to be made; None where one may be.

    `foreseen` is the share that the next one would free: where that is much, earlier ones that
    freed nothing do not count. `read` gives the message at a place that is not in the log any more.
    """
    pivots = [act for act in acts if act.kind == "pivot" and act.in_force]
    last = pivots[-TIMES:]
    futile = len(last) == TIMES and all(freed(act, fixed) < rules.futile for act in last)
    if futile and foreseen < 2 * rules.futile:
        return f"the last {TIMES} compactions freed less than {rules.futile:.0%} each"
    if len(pivots) >= PIVOTS - 1:
        first = pivots[1 - PIVOTS].summary or 0
        if answers_after(log, first, read) < TURNS:
            return f"this would be compaction {PIVOTS} within {TURNS} turns"
    return None


def freed(act: Operation, fixed: int = 0) -> float:
    """The share of a request that a pivot freed; without figures, all of it."""
    if act.before is None or act.after is None:
        return 1.0
    return (act.before - act.after) / max(act.before + fixed, 1)


def answers_after(log: Log, place: int, read: Read = lambda _: None) -> int:
    """The model's answers after a place; what cannot be read is taken to be one."""
    found = 0
    for index in range(place + 1, len(log)):
        entry = log.entries.get(index)
        message = read(index) if entry is None else entry.message
        is_answer = message is None or not (message.is_user or is_summary(message))
        found += is_answer
        if found >= TURNS:
            break
    return found


def stopped(reason: str, viewer: Viewer, *, usable: int, fixed: int = 0) -> CompactionStopped:
    """The error that says what fills the window."""
    return CompactionStopped(reason, usable=usable, fills=fills(viewer, fixed))


def fills(viewer: Viewer, fixed: int = 0) -> tuple[tuple[str, int], ...]:
    """What stands in the window, the largest first."""
    view = viewer.view()
    found = [("the system prompt and the tools", fixed)] if fixed else []
    if viewer.bridge_tokens:
        found.append(("the open request, repeated after the summary", viewer.bridge_tokens))
    for place, cell in viewer.cells.items():
        if view.pivot is not None and place == view.pivot.marker:
            found.append(("the user's words carried across the pivot", cell.tokens))
        elif view.pivot is not None and place == view.pivot.summary:
            found.append(("the summary", cell.tokens))
        else:
            whose = "the answer" if cell.by_assistant else "the user's message"
            name = viewer.log.entries[place].message.id or place
            found.append((f"{whose} {name}", cell.tokens))
    return tuple(sorted(found, key=lambda held: -held[1])[:_MANY])
