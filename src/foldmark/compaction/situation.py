"""What one compaction knows: what is folded, and how large its summary may be.

`prepare` looks at the session once, asks nobody and writes nothing. `summary.summarize` makes a
summary of the situation; whoever keeps the session makes the pivot.
"""

from collections.abc import Callable, Sequence

from foldmark.errors import CompactionStopped, WindowTooSmall
from foldmark.log.carryover import user_text_budget
from foldmark.log.log import Log
from foldmark.log.render import is_summary, message_text
from foldmark.log.view import View, Viewer
from foldmark.model.messages import Message
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import ToolDeclaration, message_texts
from foldmark.model.values import Frozen
from foldmark.policy import CompactRules
from foldmark.tokens.budget import exceeds, usable
from foldmark.tokens.limits import Limit

from .fold import MIN_SUMMARY_TOKENS, check_window, session_fold, tokens_used
from .tail import Fold

# Where no limit is known, a pivot keeps what it would keep in a window of this size.
DEFAULT_BUDGET = 200_000
TIMES = 2  # so often running without progress
TURNS, PIVOTS = 3, 3  # so many pivots within so many answers are too many
_MANY = 5

ReadMessage = Callable[[int], Message | None]


class CompactionRequest(Frozen):
    """A session that is to be compacted, and what is asked for; hooks are shown it."""

    viewer: Viewer
    session: str = ""  # its id
    limit: Limit | None = None
    model: str = ""
    fixed: int = 0
    system: str = ""
    tools: tuple[ToolDeclaration, ...] = ()
    auto: bool = False  # it comes by itself, and nobody asked for it
    overflow: bool = False
    target: int | None = None  # tokens that the view shall have after it
    instructions: str = ""  # the user's own focus
    context: tuple[str, ...] = ()  # lines that hooks add to what is asked of a model
    prompt: str | None = None  # in place of the policy's
    marker: int | None = None  # the place of the queued marker, if it is in the log
    operation: int | None = None  # the queued compaction that is meant; None: whichever waits
    newest_pivot: int = (
        0  # the newest pivot when it was asked for: a newer one is taken in its stead
    )

    @property
    def tokens(self) -> int:
        """The tokens of the next request as it is now."""
        return tokens_used(self.viewer, fixed=self.fixed)

    @property
    def budget(self) -> int:
        """The tokens that the session's window has."""
        if self.limit is None or self.limit.context == 0:
            return DEFAULT_BUDGET
        return usable(self.viewer.policy, self.limit, self.model)

    @property
    def user_text_budget(self) -> int:
        """The tokens that the user's words may have after it."""
        policy = self.viewer.policy
        return min(
            user_text_budget(policy, self.budget),
            user_text_budget(policy, self.target or self.budget),
        )


class Situation(Frozen):
    """What one compaction knows of its session: what it folds, and what its summary may cost."""

    request: CompactionRequest
    fold: Fold
    indexes: Sequence[int]  # of the folded messages that say something
    previous: str  # the summary that the new one replaces
    beside: Sequence[str]  # the texts that the view will show beside the summary
    view: View
    view_tokens: int  # measured, where a provider measured more
    max_summary_tokens: int
    min_freed_share: float  # of a request
    user_text_budget: int | None  # tokens of the user's words, where a target says so

    @property
    def log(self) -> Log:
        """The session's log."""
        return self.request.viewer.log


def prepare(request: CompactionRequest) -> Situation:
    """Look at the session: raises where no window, or no gain, can come of compacting it."""
    viewer, policy = request.viewer, request.viewer.policy
    room, fixed, tight = request.budget, request.fixed, request.target is not None
    if room <= fixed:
        largest = "the system prompt and the tools" if fixed else "the reserve for answers"
        raise WindowTooSmall(usable=max(room, 0), fixed=fixed, largest=largest)
    if request.target:
        room, fixed = min(request.target, room - fixed), 0
    if policy.tail.capped and (request.limit is not None or request.target):
        check_window(viewer, room, fixed=fixed, tight=tight)
    fold = session_fold(
        viewer,
        room,
        fixed=fixed,
        overflow=request.overflow,
        before=request.marker,
        tight=tight,
    )
    marker = len(viewer.log) if request.marker is None else request.marker
    after = viewer.after_pivot(
        marker, fold.tail_indexes, user_text=request.user_text_budget, whole=not tight
    )
    tokens = after.tokens
    if fold.replay is not None:
        tokens += viewer.log.count(message_text(fold.replay)) + 16 * len(fold.replay.parts)
    most = _summary_tokens(request, room - fixed, tokens)
    cells, view = viewer.cells, viewer.view()
    places = [place for place in fold.head_indexes if place in cells and cells[place].messages]
    previous = message_text(fold.previous) if fold.previous else ""
    if most < MIN_SUMMARY_TOKENS or not (places or previous):
        raise _pointless(request, room - fixed - tokens)
    return Situation(
        request=request,
        fold=fold,
        indexes=places,
        previous=previous,
        beside=[text for message in after.messages() for text in message_texts(message)],
        view=view,
        view_tokens=max(view.tokens, request.tokens - request.fixed),
        max_summary_tokens=most,
        min_freed_share=(view.tokens - tokens - most) / max(view.tokens + request.fixed, 1),
        user_text_budget=request.user_text_budget if request.target else None,
    )


def _pointless(request: CompactionRequest, left: int) -> CompactionStopped:
    """Why nothing can come of it: there is no room for a summary, or hardly a thing to free."""
    viewer = request.viewer
    reason = "there is too little to fold: a summary would free nothing"
    if left < MIN_SUMMARY_TOKENS:
        reason = "what stays beside a summary leaves no room for one"
    elif request.limit is None or not exceeds(
        viewer.policy, viewer.tokens + request.fixed, request.limit, request.model
    ):
        return CompactionStopped(reason, usable=0, fills=())
    room = min(request.target or request.budget, request.budget)
    return stop_error(reason, viewer, usable=room, fixed=request.fixed)


def _summary_tokens(request: CompactionRequest, room: int, others: int) -> int:
    """The tokens that a summary may have: it must fit, and the view must become smaller."""
    policy, before = request.viewer.policy, request.viewer.tokens
    own = room if request.target else min(policy.view.summary, room // 4)
    gain = before - others - max(1, int(before * policy.compact.futile))
    return min(own, room - others, gain)


# --- when to stop: a compaction that frees nothing, or is needed again at once -----------------
# Judged by the operations of a session alone, so that it holds across processes and restarts.


def stop_reason(
    acts: Sequence[Operation],
    log: Log,
    rules: CompactRules,
    *,
    fixed: int = 0,
    foreseen: float = 0.0,
    read_message: ReadMessage = lambda _: None,
) -> str | None:
    """Why no further automatic compaction is to be made; None where one may be.

    `foreseen` is the share that the next one would free: where that is much, earlier ones that
    freed nothing do not count. `read` gives the message at a place that is not in the log any more.
    """
    pivots = [act for act in acts if act.kind == "pivot" and act.in_force]
    last = pivots[-TIMES:]
    futile = len(last) == TIMES and all(freed_share(act, fixed) < rules.futile for act in last)
    if futile and foreseen < 2 * rules.futile:
        return f"the last {TIMES} compactions freed less than {rules.futile:.0%} each"
    if len(pivots) >= PIVOTS - 1:
        first = pivots[1 - PIVOTS].summary or 0
        if answers_after(log, first, read_message) < TURNS:
            return f"this would be compaction {PIVOTS} within {TURNS} turns"
    return None


def freed_share(act: Operation, fixed: int = 0) -> float:
    """The share of a request that a pivot freed; without figures, all of it."""
    if act.before is None or act.after is None:
        return 1.0
    return (act.before - act.after) / max(act.before + fixed, 1)


def answers_after(log: Log, place: int, read_message: ReadMessage = lambda _: None) -> int:
    """The model's answers after a place; what cannot be read is taken to be one."""
    found = 0
    for index in range(place + 1, len(log)):
        entry = log.entries.get(index)
        message = read_message(index) if entry is None else entry.message
        is_answer = message is None or not (message.is_user or is_summary(message))
        found += is_answer
        if found >= TURNS:
            break
    return found


def stop_error(reason: str, viewer: Viewer, *, usable: int, fixed: int = 0) -> CompactionStopped:
    """The error that says what fills the window."""
    return CompactionStopped(reason, usable=usable, fills=window_contents(viewer, fixed))


def window_contents(viewer: Viewer, fixed: int = 0) -> tuple[tuple[str, int], ...]:
    """What stands in the window, the largest first."""
    view = viewer.view()
    found = [("the system prompt and the tools", fixed)] if fixed else []
    if viewer.repeated_tokens:
        found.append(("the open request, repeated after the summary", viewer.repeated_tokens))
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
