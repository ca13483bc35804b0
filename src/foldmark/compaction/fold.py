"""What a pivot would fold and keep of a session, and whether any pivot could make it fit."""

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

# Less than this is no summary.
MIN_SUMMARY_TOKENS = 100


def tokens_used(viewer: Viewer, *, fixed: int = 0) -> int:
    """The tokens of the next request: measured, and estimated where the policy asks for it.

    `fixed` is what a request holds beside the view: the system prompt and the tools.
    """
    log, policy, shown = viewer.log, viewer.policy, viewer.tokens
    if not policy.window.preflight:
        return _measured(log, log.finished, policy)
    if log.measured is None:
        return shown + fixed
    measured = _measured(log, log.measured, policy)
    # The results of its calls came after the measured answer, though they stand in its message.
    after = viewer.tokens_after(log.measured)
    entry, longest = log.entries[log.measured], viewer.longest
    for ordinal in range(entry.ordinal, entry.ordinal + len(entry.sizes)):
        if (call := log.calls.get(ordinal)) is not None:
            after += min(call.tokens, longest or call.tokens) + call.attached
    factor = correction(measured, shown - after + fixed)
    return max(measured + after, int((shown + fixed) * factor))


def _measured(log: Log, place: int | None, policy: Policy) -> int:
    """What the provider measured for the answer at this place; nothing for a summary."""
    if place is None:
        return 0
    info = log.entries[place].message.info
    if not isinstance(info, AssistantInfo) or info.summary or not info.tokens:
        return 0
    return used(info.tokens, policy.window)


def session_fold(
    viewer: Viewer,
    room: int,
    *,
    fixed: int = 0,
    overflow: bool = False,
    before: int | None = None,
    tight: bool = False,
) -> Fold:
    """What a pivot would fold and keep of a session now, or of what came before a place.

    `tight`: the room is not a window's, but what the view shall have.
    """
    log, policy = viewer.log, viewer.policy
    budget = most = tail_budget(policy.tail, room)
    if policy.tail.capped:
        left = max_tail_tokens(viewer, room, fixed, tight=tight)
        budget, most = min(budget, left), min(room * 2 // 5, left)
    if tight:
        budget = most = min(budget, int(room * policy.tail.share))
    shown = [place for place in viewer.view().indexes if before is None or place < before]
    # Where the user's words are carried across a pivot, the open request is among them.
    resent = None
    if overflow and not policy.view.user_text:
        resent = replay_index([log.entries[place].message for place in shown])
    pivots = {place for pivot in log.pivots for place in (pivot.marker, pivot.summary)}
    places = [place for place in shown[:resent] if place not in pivots]
    is_folded_again = len(places) < len(shown[:resent])
    history = [log.entries[place].message for place in places]
    measure = _measure(viewer, places)
    start = tail_start(history, policy.tail, budget, measure)
    kept = 0 if start is None else measure(start, len(history))
    if kept < budget // 2 and most > budget:
        # Rather a message too long than hardly any: what came last is what the work goes on with.
        start = tail_start(history, policy.tail, most, measure) or start
    while start is not None and log.reference(places[start]) is None:
        start = start + 1 if start + 1 < len(history) else None  # it has no parts to be shown
    return Fold(
        history=history,
        start=start,
        tail_start=None if start is None else log.reference(places[start]),
        replay=None if resent is None else log.entries[shown[resent]].message,
        previous=log.entries[log.pivots[-1].summary].message if is_folded_again else None,
        indexes=places,
    )


def _measure(viewer: Viewer, places: Sequence[int]) -> Measure:
    """The tokens of stretches of messages: of their cells, or estimated by their JSON."""
    cells = [viewer.cells[place] for place in places]
    if not viewer.policy.tail.by_json:
        return suffix_measure(lambda index: _cell_tokens(cells[index]), len(cells))

    def json_length(index: int) -> int:  # with a comma after each message
        return sum(utf16_length(neutral_json(shown)) + 1 for shown in cells[index].messages)

    lengths = suffix_measure(json_length, len(cells))

    def measure(start: int, end: int) -> int:
        length = lengths(start, end)
        return round4_length(length + 1 if length else 2)

    return measure


def _cell_tokens(cell: Cell) -> int:
    """The tokens of a cell among others: an answer without calls may need a note after it."""
    bare = cell.by_assistant and not (cell.messages and isinstance(cell.messages[-1], ToolMessage))
    return cell.tokens + (NOTE_TOKENS if bare else 0)


def max_tail_tokens(viewer: Viewer, room: int, fixed: int, *, tight: bool = False) -> int:
    """What is left for a tail when all that must be shown is shown, and a summary beside it."""
    policy = viewer.policy
    # A tail that begins within an answered turn brings that turn's request along.
    repeated = user_text_budget(policy, room) // 3 + viewer.log.count(REPEATED)
    left = room - fixed - min_view_tokens(viewer, room, tight=tight)
    return left - repeated - min(policy.view.summary, room // 4, left)


def check_window(viewer: Viewer, room: int, *, fixed: int = 0, tight: bool = False) -> None:
    """Raise WindowTooSmall where no pivot could bring the view into the window."""
    shown = min_view_tokens(viewer, room, tight=tight)
    needed = fixed + shown + MIN_SUMMARY_TOKENS
    if needed > room:
        largest = "the system prompt and the tools" if fixed > shown else "the open request"
        raise WindowTooSmall(usable=room, fixed=needed, largest=largest)


def min_view_tokens(viewer: Viewer, room: int, *, tight: bool = False) -> int:
    """The tokens of the smallest view: a pivot at the end, without a tail or a summary."""
    words = user_text_budget(viewer.policy, room)
    return viewer.after_pivot(len(viewer.log), user_text=words, whole=not tight).tokens
