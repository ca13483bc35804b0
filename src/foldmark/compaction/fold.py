"""What a pivot would fold and keep of a session, and whether any pivot can make it fit."""

from collections.abc import Sequence

from foldmark.errors import WindowTooSmall
from foldmark.log.carryover import REPEATED, user_text_budget
from foldmark.log.log import Log
from foldmark.log.render import Cell
from foldmark.log.view import NOTE_TOKENS, Viewer
from foldmark.model.messages import AssistantInfo
from foldmark.model.prompt_messages import ToolMessage, neutral_json
from foldmark.policy import Policy
from foldmark.tokens.budget import used
from foldmark.tokens.counters import correction, round4_length, utf16_length

from .tail import Fold, Measure, replay_index, suffix_measure, tail_budget, tail_start

# A shorter summary is not useful.
MIN_SUMMARY_TOKENS = 100


def tokens_used(viewer: Viewer, *, fixed: int = 0) -> int:
    """The tokens of the next request: measured, and estimated if the policy has `preflight`.

    `fixed` counts the part of a request beside the view: the system prompt and the tools.
    """
    log, policy, tokens = viewer.log, viewer.policy, viewer.tokens
    if not policy.window.preflight:
        return _measured(log, log.finished, policy)
    if log.measured is None:
        return tokens + fixed
    measured = _measured(log, log.measured, policy)
    # The results of its calls were not part of the measured reply, though its message has them.
    after = viewer.tokens_after(log.measured)
    entry, longest = log.entries[log.measured], viewer.longest
    for ordinal in range(entry.ordinal, entry.ordinal + len(entry.sizes)):
        if (call := log.calls.get(ordinal)) is not None:
            after += min(call.tokens, longest or call.tokens) + call.attached
    factor = correction(measured, tokens - after + fixed)
    return max(measured + after, int((tokens + fixed) * factor))


def _measured(log: Log, index: int | None, policy: Policy) -> int:
    """The tokens that the provider measured for the reply at this index; 0 for a summary."""
    if index is None:
        return 0
    info = log.entries[index].message.info
    if not isinstance(info, AssistantInfo) or info.summary or not info.tokens:
        return 0
    return used(info.tokens, policy.window)


def session_fold(
    viewer: Viewer,
    budget: int,
    *,
    fixed: int = 0,
    overflow: bool = False,
    before: int | None = None,
    tight: bool = False,
) -> Fold:
    """What a pivot would fold and keep of the session, or of its messages before an index.

    With `tight`, the budget is a requested view size instead of a window.
    """
    log, policy = viewer.log, viewer.policy
    preferred = limit = tail_budget(policy.tail, budget)
    if policy.tail.capped:
        available = max_tail_tokens(viewer, budget, fixed, tight=tight)
        preferred, limit = min(preferred, available), min(budget * 2 // 5, available)
    if tight:
        preferred = limit = min(preferred, int(budget * policy.tail.share))
    visible = [index for index in viewer.view().indexes if before is None or index < before]
    # If the user's text is carried across pivots, it includes the open request.
    replay = None
    if overflow and not policy.view.user_text:
        replay = replay_index([log.entries[index].message for index in visible])
    pivots = {index for pivot in log.pivots for index in (pivot.marker, pivot.summary)}
    indexes = [index for index in visible[:replay] if index not in pivots]
    has_pivot = len(indexes) < len(visible[:replay])
    history = [log.entries[index].message for index in indexes]
    measure = _measure(viewer, indexes)
    start = tail_start(history, policy.tail, preferred, measure)
    tokens = 0 if start is None else measure(start, len(history))
    if tokens < preferred // 2 and limit > preferred:
        # Rather keep one long message than almost none: the work continues from the last ones.
        start = tail_start(history, policy.tail, limit, measure) or start
    while start is not None and log.reference(indexes[start]) is None:
        start = start + 1 if start + 1 < len(history) else None  # it has no visible parts
    return Fold(
        history=history,
        start=start,
        tail_start=None if start is None else log.reference(indexes[start]),
        replay=None if replay is None else log.entries[visible[replay]].message,
        previous=log.entries[log.pivots[-1].summary].message if has_pivot else None,
        indexes=indexes,
    )


def _measure(viewer: Viewer, indexes: Sequence[int]) -> Measure:
    """A measure of these messages by the tokens of their cells, or by their JSON."""
    cells = [viewer.cells[index] for index in indexes]
    if not viewer.policy.tail.by_json:
        return suffix_measure(lambda index: _cell_tokens(cells[index]), len(cells))

    def json_length(index: int) -> int:  # with a comma after each message
        return sum(utf16_length(neutral_json(message)) + 1 for message in cells[index].messages)

    lengths = suffix_measure(json_length, len(cells))

    def measure(start: int, end: int) -> int:
        length = lengths(start, end)
        return round4_length(length + 1 if length else 2)

    return measure


def _cell_tokens(cell: Cell) -> int:
    """The tokens of a cell between others: a reply without calls may need a note after it."""
    bare = cell.by_assistant and not (cell.messages and isinstance(cell.messages[-1], ToolMessage))
    return cell.tokens + (NOTE_TOKENS if bare else 0)


def max_tail_tokens(viewer: Viewer, budget: int, fixed: int, *, tight: bool = False) -> int:
    """The tokens that remain for a tail beside a summary and all that must be shown."""
    policy = viewer.policy
    # A tail that starts within an answered turn also repeats that turn's request.
    repeated = user_text_budget(policy, budget) // 3 + viewer.log.count(REPEATED)
    available = budget - fixed - min_view_tokens(viewer, budget, tight=tight)
    return available - repeated - min(policy.view.summary, budget // 4, available)


def check_window(viewer: Viewer, budget: int, *, fixed: int = 0, tight: bool = False) -> None:
    """Raise WindowTooSmall if no pivot can make the view fit the budget."""
    smallest = min_view_tokens(viewer, budget, tight=tight)
    needed = fixed + smallest + MIN_SUMMARY_TOKENS
    if needed > budget:
        largest = "the system prompt and the tools" if fixed > smallest else "the open request"
        raise WindowTooSmall(usable=budget, fixed=needed, largest=largest)


def min_view_tokens(viewer: Viewer, budget: int, *, tight: bool = False) -> int:
    """The tokens of the smallest view: a pivot at the end, without a tail or a summary."""
    user_text = user_text_budget(viewer.policy, budget)
    return viewer.after_pivot(len(viewer.log), user_text=user_text, whole=not tight).tokens
