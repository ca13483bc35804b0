"""The history of a session: its growth, what its pivots lost, what a policy would have done.

Each analysis is one pass over the log. Recorded pivots and prunes take effect at their original
position; an output is pruned at the time of its mark, or after all messages if it has no time.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate, islice
from operator import itemgetter
from typing import Literal, cast

from msgspec import UnsetType
from msgspec.structs import replace

from foldmark.compaction.fit import fit
from foldmark.compaction.pivot import append_pivot
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest, prepare
from foldmark.errors import CompactionStopped, WindowTooSmall
from foldmark.log.log import Entry, Log, Pivot
from foldmark.log.marks import unmarked
from foldmark.log.render import Cell, is_marker, is_summary
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Message, Tokens, ToolPart, is_opaque
from foldmark.model.prompt_messages import message_texts
from foldmark.model.values import Frozen, Json
from foldmark.policy import Policy, WindowRules
from foldmark.tokens.budget import usable, used
from foldmark.tokens.limits import Limit
from foldmark.tokens.sizes import MESSAGE_OVERHEAD

MAX_POINTS = 200
_INPUT = WindowRules(counted=("input", "cache.read", "cache.write"), prefer_total=False)
_OUTPUT = WindowRules(counted=("output",), prefer_total=False)
_LARGEST, _MAX_FIELDS, _MAX_FIELD_LENGTH = 5, 12, 80


class HiddenContent(Frozen):
    """Content that a pivot hid from the view."""

    messages: int
    outputs: int  # of tools, unless already pruned
    tokens: int


class SummaryLoss(Frozen):
    """Hidden content that neither the summary nor the tail mentions."""

    files: int  # read or written, but no longer named
    largest: tuple[str, ...]  # of these files, by the tokens of their calls and outputs
    requests: int  # of the user, no longer quoted verbatim


class Point(Frozen, omit_defaults=True):
    """The tokens of the log and the view after a number of messages."""

    message: int
    log: int
    view: int
    measured: int | None = None  # the provider's input tokens for this message


class RecordedCompaction(Frozen):
    """A recorded pivot; messages are numbers in the log, counted from 1."""

    session: int
    message: int
    tail: int | None  # the first message of the tail
    before: int  # tokens of the view
    after: int
    measured_before: int | None  # input tokens of the reply before and after it
    measured_after: int | None
    summary: int  # tokens of its text
    hidden: HiddenContent
    lost: SummaryLoss | None  # None if the summary is opaque
    input: int | None  # tokens used for the summary, if recorded
    output: int | None
    cost: float | None
    told: dict[str, str | float | bool]  # further fields of its record


class RecordedPrune(Frozen):
    """Outputs that were pruned together, before this message or (None) after all messages."""

    session: int
    message: int | None
    outputs: int
    tokens: int  # of the full outputs
    before: int  # tokens of the view
    after: int


class Growth(Frozen):
    """A session's growth; `unseen` are tokens that the provider measured beyond the log."""

    points: tuple[Point, ...]
    compactions: tuple[RecordedCompaction, ...]
    prunes: tuple[RecordedPrune, ...]
    unseen: int


def growth(log: Log, policy: Policy, *, session: int = 1, folder: str = "") -> Growth:
    """The growth of a session with its recorded pivots and prunes."""
    return _GrowthReplay(log, policy, session, folder).growth()


def wrapping_tokens(entry: Entry) -> int:
    """The tokens of a message's wrapping; tool results are sent in their own message."""
    speaks = any(size.fixed for size in entry.sizes)
    has_results = any(isinstance(part, ToolPart) for part in entry.message.parts)
    return MESSAGE_OVERHEAD * (speaks + has_results)


def _counted(tokens: Tokens | UnsetType, rules: WindowRules) -> int | None:
    """The tokens that a provider measured, or None."""
    return used(tokens, rules) or None if tokens else None


class _GrowthReplay:
    """Appends the messages of a recorded log one by one and measures the view."""

    def __init__(self, recorded: Log, policy: Policy, session: int, folder: str) -> None:
        self._recorded = recorded
        self._log = Log(recorded.count)
        self._viewer = Viewer(self._log, policy)
        self._prune_times = _prune_times(recorded)
        self._session = session
        self._folder = folder
        self._unseen: int | None = None
        self._points: list[Point] = []
        self._compactions: list[RecordedCompaction] = []
        self._prunes: list[RecordedPrune] = []
        self._hidden: Collection[int] | None = None  # by the newest pivot, until it is measured

    def growth(self) -> Growth:
        """Replay the log and return its growth."""
        for entry in self._recorded.entries.values():
            self._append(entry)
        self._prune(len(self._recorded))
        self._measure_loss()
        if self._points:
            self._points[-1] = replace(self._points[-1], view=self._viewer.tokens)
        return Growth(
            points=sample_points(self._points),
            compactions=tuple(self._compactions),
            prunes=tuple(self._prunes),
            unseen=self._unseen or 0,
        )

    def _append(self, entry: Entry) -> None:
        self._prune(entry.index)
        if not entry.message.is_user:
            # Programs may repeat important content after a summary, before the next reply.
            self._measure_loss()
        log, before = self._log, self._viewer.tokens
        info, pivot, measured = entry.message.info, log.pivot, None
        if isinstance(info, AssistantInfo) and not info.summary:
            measured = _counted(info.tokens, _INPUT)
        if measured is not None and self._unseen is None:
            self._unseen = max(0, measured - before)
        cells = dict(self._viewer.cells) if is_summary(entry.message) else {}
        log.append(unmarked(entry.message, undone=False), entry.sizes)
        if log.pivot is not None and log.pivot != pivot:
            self._compactions.append(self._compaction(log.pivot, cells, before))
        elif self._compactions and self._compactions[-1].measured_after is None:
            self._compactions[-1] = replace(self._compactions[-1], measured_after=measured)
        total = self._points[-1].log if self._points else 0
        total += wrapping_tokens(entry) + sum([size.total for size in entry.sizes])
        view = self._viewer.tokens
        self._points.append(Point(message=len(log), log=total, view=view, measured=measured))

    def _prune(self, index: int) -> None:
        """Prune the outputs that were pruned before the message at this index."""
        ordinals = self._prune_times.get(index)
        if not ordinals:
            return
        calls = [self._log.calls[ordinal] for ordinal in ordinals]
        before = self._viewer.tokens
        self._log.mark(ordinals, at=1)
        self._prunes.append(
            RecordedPrune(
                session=self._session,
                message=index + 1 if index < len(self._recorded) else None,
                outputs=len(calls),
                tokens=sum(call.tokens + call.attached for call in calls),
                before=before,
                after=self._viewer.tokens,
            )
        )

    def _compaction(
        self, pivot: Pivot, cells: Mapping[int, Cell], before: int
    ) -> RecordedCompaction:
        log, rest = self._log, {*self._viewer.cells, pivot.marker, pivot.summary}
        hidden = {index for index, cell in cells.items() if cell.messages and index not in rest}
        self._hidden = hidden
        tail = None if pivot.tail_id is None else log.index_of(pivot.tail_id, below=pivot.marker)
        summary = log.entries[pivot.summary]
        info = cast("AssistantInfo", summary.message.info)
        calls = [call for call in log.calls.values() if call.index in hidden]
        measured = (point.measured for point in reversed(self._points))
        return RecordedCompaction(
            session=self._session,
            message=pivot.marker + 1,
            tail=None if tail is None else tail + 1,
            before=before,
            after=self._viewer.tokens,
            measured_before=next(filter(None, measured), None),
            measured_after=None,
            summary=sum(size.fixed for size in summary.sizes),
            hidden=HiddenContent(
                messages=len(hidden),
                outputs=sum(call.ordinal not in log.marks for call in calls),
                tokens=sum(cells[index].tokens for index in hidden),
            ),
            lost=None,
            input=_counted(info.tokens, _INPUT),
            output=_counted(info.tokens, _OUTPUT),
            cost=info.cost or None,
            told=_marker_fields(log.entries[pivot.marker].message),
        )

    def _measure_loss(self) -> None:
        """Measure which content of the newest pivot is missing from the current view."""
        hidden, pivot = self._hidden, self._log.pivot
        self._hidden = None
        if pivot is None or hidden is None:
            return
        if not any(is_opaque(part) for part in self._log.entries[pivot.summary].message.parts):
            loss = _loss(self._viewer, pivot, hidden, self._folder)
            self._compactions[-1] = replace(self._compactions[-1], lost=loss)


def _loss(viewer: Viewer, pivot: Pivot, hidden: Collection[int], folder: str) -> SummaryLoss:
    """The files and requests of hidden messages that the view no longer mentions."""
    cells = (cell for index, cell in viewer.cells.items() if index != pivot.marker)
    messages = (message for cell in cells for message in cell.messages)
    text = _slashed("\n".join(text for message in messages for text in message_texts(message)))
    files: Counter[str] = Counter()
    for call in viewer.log.calls.values():
        for file in call.target.files if call.index in hidden and not call.failed else ():
            files[file] += call.tokens + call.attached
    missing = [file for file, _ in files.most_common() if not is_named(file, text, folder)]
    requests = [request for request in viewer.log.requests.all if request.index in hidden]
    return SummaryLoss(
        files=len(missing),
        largest=tuple(missing[:_LARGEST]),
        requests=sum(_slashed(request.text.strip()) not in text for request in requests),
    )


def is_named(file: str, text: str, folder: str = "") -> bool:
    """Whether a text names a file by its path in `folder` or with its parent folder."""
    path, home = _slashed(file), _slashed(folder).rstrip("/") + "/"
    if home != "/":
        path = path.removeprefix(home)
    # `rows.py` alone could be any file; `store/rows.py` is specific enough.
    return "/".join(path.rsplit("/", 2)[-2:]) in text


def _slashed(text: str) -> str:
    """The text with forward slashes, as Windows paths have backslashes."""
    return text.replace("\\", "/")


def sample_points(points: list[Point], limit: int = MAX_POINTS) -> tuple[Point, ...]:
    """At most `limit` points: the peak and the end of each stretch."""
    if len(points) <= limit:
        return tuple(points)
    sample: list[Point] = []
    stretches = limit // 2
    for number in range(stretches):
        first, end = (len(points) * edge // stretches for edge in (number, number + 1))
        peak = max(points[first:end], key=lambda point: point.view)
        sample += [peak] if peak is points[end - 1] else [peak, points[end - 1]]
    return tuple(sample)


def _prune_times(log: Log) -> dict[int, list[int]]:
    """The ordinals of pruned outputs, by the index of the message before which they were pruned."""
    created = (entry.message.info.time for entry in log.entries.values())
    latest = list(accumulate((time.created or 0 if time else 0 for time in created), max))
    prunes: dict[int, list[int]] = {}
    for ordinal, at in log.marks.items():
        index = bisect_right(latest, at)
        if index <= log.calls[ordinal].index:
            index = len(latest)  # the time of a mark older than its message is wrong
        prunes.setdefault(index, []).append(ordinal)
    return prunes


def _marker_fields(marker: Message) -> dict[str, str | float | bool]:
    """The plain fields of a recorded compaction, shortened."""
    fields = (field for record in (marker.info.wire or {}).values() for field in _fields(record))
    return {
        name[:_MAX_FIELD_LENGTH]: value[:_MAX_FIELD_LENGTH] if isinstance(value, str) else value
        for name, value in islice(fields, _MAX_FIELDS)
    }


def _fields(record: object, prefix: str = "") -> Iterator[tuple[str, str | float | bool]]:
    """The plain values of a record and of its nested records, as `outer.inner`."""
    for name, value in cast("Json", record).items() if isinstance(record, dict) else ():
        if isinstance(value, bool | int | float | str):
            yield f"{prefix}{name}", value
        elif not prefix:
            yield from _fields(value, f"{name}.")


# --- replay: the log under a policy, without its recorded pivots and prunes ---------------------
# No model is asked: summaries have a typical length, and all tokens are estimates.

SUMMARY_TOKENS = 1_500
MAX_STEPS = 100  # listed individually
_SENTENCE = "The work went on as it was asked for, and what came of it is told in these words.\n"


class SimulatedStep(Frozen):
    """A prune or compaction before this message; `before` and `after` are tokens of the view."""

    kind: Literal["prune", "compact"]
    message: int
    before: int = 0
    after: int = 0
    outputs: int = 0  # pruned
    messages: int = 0  # folded


class PolicyReplay(Frozen):
    """The result of replaying a session under a policy."""

    policy: str
    model: str | None
    window: int
    usable: int
    fixed: int  # tokens of the system prompt and the tools
    summary: int  # assumed tokens of a summary
    prunes: int
    compactions: int
    peak: int  # tokens of the largest request, and the message before which it was made
    peak_message: int
    stuck: int | None  # the message before which the view could no longer be made to fit
    first_prune: SimulatedStep | None
    first_compaction: SimulatedStep | None
    deeds: tuple[SimulatedStep, ...]  # the first ones, in order


def policy_replay(
    recorded: Log, policy: Policy, limit: Limit, *, model: str = "", fixed: int = 0
) -> PolicyReplay:
    """Replay a session under a policy and limit, and return what would have been done."""
    budget = usable(policy, limit, model)
    log = Log(recorded.count)
    viewer = Viewer(log, policy, model=model, usable=budget)
    request = CompactionRequest(viewer=viewer, limit=limit, model=model, fixed=fixed, auto=True)
    steps: list[SimulatedStep] = []
    peak, stuck = (0, 0), None
    for entry in recorded.entries.values():
        if is_marker(entry.message) or is_summary(entry.message):
            continue
        if not entry.message.is_user:
            number = entry.index + 1
            if stuck is None and not _simulate(request, number, steps):
                stuck = number
            peak = max(peak, (viewer.tokens + fixed, number), key=itemgetter(0))
        log.append(unmarked(entry.message), entry.sizes)
    prunes = [step for step in steps if step.kind == "prune"]
    compactions = [step for step in steps if step.kind == "compact"]
    return PolicyReplay(
        policy=policy.name,
        model=model or None,
        window=limit.context,
        usable=budget,
        fixed=fixed,
        summary=SUMMARY_TOKENS,
        prunes=len(prunes),
        compactions=len(compactions),
        peak=peak[0],
        peak_message=peak[1],
        stuck=stuck,
        first_prune=prunes[0] if prunes else None,
        first_compaction=compactions[0] if compactions else None,
        deeds=tuple(steps[:MAX_STEPS]),
    )


def _simulate(request: CompactionRequest, message: int, steps: list[SimulatedStep]) -> bool:
    """Fit the view before this message and record the steps; return False if it cannot fit."""
    viewer, log = request.viewer, request.viewer.log

    def look_at_view() -> tuple[CompactionRequest, int]:
        return request, viewer.tokens + request.fixed

    try:
        for action in fit(look_at_view, prune="always", passes=1):
            before = viewer.tokens
            if isinstance(action, Prune):
                log.mark(action.ordinals, at=1)
                step = SimulatedStep(kind="prune", message=message, outputs=len(action.prune))
            else:
                situation = prepare(action)
                tokens = 10 * min(SUMMARY_TOKENS, situation.max_summary_tokens)
                text = _SENTENCE * max(1, tokens // max(1, log.count(_SENTENCE * 10)))
                append_pivot(log, text, tail_start=situation.fold.tail_start)
                messages = len(situation.fold.head)
                step = SimulatedStep(kind="compact", message=message, messages=messages)
            steps.append(replace(step, before=before, after=viewer.tokens))
    except (WindowTooSmall, CompactionStopped):
        return False
    return True
