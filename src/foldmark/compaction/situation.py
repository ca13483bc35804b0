"""The situation of one compaction: what is folded, and how large the summary may be.

`prepare` inspects the session once, without calling a model or writing anything.
`summary.summarize` makes a summary of the situation; the session's writer makes the pivot.
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

# If no limit is known, a pivot keeps what it would keep in a window of this size.
DEFAULT_BUDGET = 200_000
FUTILE_PIVOTS = 2  # stop after this many in a row that freed too little
TURNS, PIVOTS = 3, 3  # stop at this many pivots within this many replies
_MAX_CONTENTS = 5

ReadMessage = Callable[[int], Message | None]


class CompactionRequest(Frozen):
    """The request to compact a session, with its options; hooks receive it."""

    viewer: Viewer
    session: str = ""  # its id
    limit: Limit | None = None
    model: str = ""
    fixed: int = 0  # tokens of the system prompt and the tools
    system: str = ""
    tools: tuple[ToolDeclaration, ...] = ()
    auto: bool = False  # started by the program, not by the user
    overflow: bool = False
    target: int | None = None  # the requested view size in tokens
    instructions: str = ""  # the user's own focus
    context: tuple[str, ...] = ()  # lines that hooks add to the prompt
    prompt: str | None = None  # replaces the policy's prompt
    marker: int | None = None  # the index of the queued marker, if it is in the log
    operation: int | None = None  # the queued compaction to complete; None: any
    newest_pivot: int = 0  # at the time of the request; a newer one is used instead of compacting

    @property
    def tokens(self) -> int:
        """The tokens of the session's next request."""
        return tokens_used(self.viewer, fixed=self.fixed)

    @property
    def budget(self) -> int:
        """The usable tokens of the session's window."""
        if self.limit is None or self.limit.context == 0:
            return DEFAULT_BUDGET
        return usable(self.viewer.policy, self.limit, self.model)

    @property
    def user_text(self) -> int:
        """The token budget for the user's requests repeated after the compaction."""
        policy, budgets = self.viewer.policy, (self.budget, self.target or self.budget)
        return min(user_text_budget(policy, budget) for budget in budgets)


class Situation(Frozen):
    """The facts for one compaction: what it folds, and how large its summary may be."""

    request: CompactionRequest
    fold: Fold
    indexes: Sequence[int]  # of the folded messages that are visible
    previous: str  # the summary that the new one replaces
    beside: Sequence[str]  # the texts in the view beside the summary
    view: View
    view_tokens: int  # estimated, or measured by the provider if that is more
    max_summary_tokens: int
    min_freed_share: float  # of a request, with a summary of the largest size
    user_text: int | None  # tokens for the user's own text, if there is a target

    @property
    def log(self) -> Log:
        """The log of the session."""
        return self.request.viewer.log


def prepare(request: CompactionRequest) -> Situation:
    """Inspect the session; raises WindowTooSmall or CompactionStopped if compacting cannot help."""
    viewer, policy = request.viewer, request.viewer.policy
    budget, fixed, tight = request.budget, request.fixed, request.target is not None
    if budget <= fixed:
        largest = "the system prompt and the tools" if fixed else "the reserve for answers"
        raise WindowTooSmall(usable=max(budget, 0), fixed=fixed, largest=largest)
    if request.target:
        budget, fixed = min(request.target, budget - fixed), 0
    if policy.tail.capped and (request.limit is not None or request.target):
        check_window(viewer, budget, fixed=fixed, tight=tight)
    fold = session_fold(
        viewer,
        budget,
        fixed=fixed,
        overflow=request.overflow,
        before=request.marker,
        tight=tight,
    )
    marker = len(viewer.log) if request.marker is None else request.marker
    after = viewer.after_pivot(
        marker, fold.tail_indexes, user_text=request.user_text, whole=not tight
    )
    tokens = after.tokens
    if fold.replay is not None:
        tokens += viewer.log.count(message_text(fold.replay)) + 16 * len(fold.replay.parts)
    limit = _summary_tokens(request, budget - fixed, tokens)
    cells, view = viewer.cells, viewer.view()
    indexes = [index for index in fold.head_indexes if index in cells and cells[index].messages]
    previous = message_text(fold.previous) if fold.previous else ""
    if limit < MIN_SUMMARY_TOKENS or not (indexes or previous):
        raise _no_gain_error(request, budget - fixed - tokens)
    return Situation(
        request=request,
        fold=fold,
        indexes=indexes,
        previous=previous,
        beside=[text for message in after.messages() for text in message_texts(message)],
        view=view,
        view_tokens=max(view.tokens, request.tokens - request.fixed),
        max_summary_tokens=limit,
        min_freed_share=(view.tokens - tokens - limit) / max(view.tokens + request.fixed, 1),
        user_text=request.user_text if request.target else None,
    )


def _no_gain_error(request: CompactionRequest, available: int) -> CompactionStopped:
    """The error for a compaction without space for a summary, or with too little to free."""
    viewer = request.viewer
    reason = "there is too little to compact: a summary would free nothing"
    if available < MIN_SUMMARY_TOKENS:
        reason = "the messages that must stay leave no space for a summary"
    elif request.limit is None or not exceeds(
        viewer.policy, viewer.tokens + request.fixed, request.limit, request.model
    ):
        return CompactionStopped(reason, usable=0, fills=())
    budget = min(request.target or request.budget, request.budget)
    return stop_error(reason, viewer, usable=budget, fixed=request.fixed)


def _summary_tokens(request: CompactionRequest, budget: int, others: int) -> int:
    """The most tokens for a summary that fits and makes the view smaller."""
    policy, before = request.viewer.policy, request.viewer.tokens
    preferred = budget if request.target else min(policy.view.summary, budget // 4)
    gain = before - others - max(1, int(before * policy.compact.futile))
    return min(preferred, budget - others, gain)


# --- when to stop: compactions that free nothing, or are needed again at once ------------------
# Depends only on the operations of a session, so that it works across processes and restarts.


def stop_reason(
    operations: Sequence[Operation],
    log: Log,
    rules: CompactRules,
    *,
    fixed: int = 0,
    expected: float = 0.0,
    read_message: ReadMessage = lambda _: None,
) -> str | None:
    """Why there must be no further automatic compaction, or None if there may be one.

    `expected` is the share that the next one would free: if it is large, earlier futile ones are
    ignored. `read_message` returns a message that the log does not contain any more.
    """
    pivots = [one for one in operations if one.kind == "pivot" and one.in_force]
    last = pivots[-FUTILE_PIVOTS:]
    is_futile = all(freed_share(pivot, fixed) < rules.futile for pivot in last)
    if len(last) == FUTILE_PIVOTS and is_futile and expected < 2 * rules.futile:
        return f"the last {FUTILE_PIVOTS} compactions freed less than {rules.futile:.0%} each"
    if len(pivots) >= PIVOTS - 1:
        first = pivots[1 - PIVOTS].summary or 0
        if replies_after(log, first, read_message) < TURNS:
            return f"this would be compaction {PIVOTS} within {TURNS} turns"
    return None


def freed_share(pivot: Operation, fixed: int = 0) -> float:
    """The share of a request that a pivot freed, or 1 if its tokens are unknown."""
    if pivot.before is None or pivot.after is None:
        return 1.0
    return (pivot.before - pivot.after) / max(pivot.before + fixed, 1)


def replies_after(log: Log, index: int, read_message: ReadMessage = lambda _: None) -> int:
    """The number of replies after an index, up to TURNS; unreadable messages count as replies."""
    count = 0
    for later in range(index + 1, len(log)):
        entry = log.entries.get(later)
        message = read_message(later) if entry is None else entry.message
        count += message is None or not (message.is_user or is_summary(message))
        if count >= TURNS:
            break
    return count


def stop_error(reason: str, viewer: Viewer, *, usable: int, fixed: int = 0) -> CompactionStopped:
    """The error with this reason and the contents of the window."""
    return CompactionStopped(reason, usable=usable, fills=window_contents(viewer, fixed))


def window_contents(viewer: Viewer, fixed: int = 0) -> tuple[tuple[str, int], ...]:
    """Descriptions of the largest contents of the window, with their tokens, largest first."""
    view = viewer.view()
    contents = [("the system prompt and the tools", fixed)] if fixed else []
    if viewer.repeated_tokens:
        contents.append(("the open request, repeated after the summary", viewer.repeated_tokens))
    for index, cell in viewer.cells.items():
        if view.pivot is not None and index == view.pivot.marker:
            contents.append(("the user's text from before the summary", cell.tokens))
        elif view.pivot is not None and index == view.pivot.summary:
            contents.append(("the summary", cell.tokens))
        else:
            kind = "the answer" if cell.by_assistant else "the user's message"
            name = viewer.log.entries[index].message.id or index
            contents.append((f"{kind} {name}", cell.tokens))
    return tuple(sorted(contents, key=lambda content: -content[1])[:_MAX_CONTENTS])
