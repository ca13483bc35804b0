"""The history of a session: how it grew, what pivots took out, what a policy would have done.

One pass over the log each. Recorded pivots and prunes take effect when they did: when an output
was pruned is read from the time of its mark; if that is not known, after all messages.
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

MOST_POINTS = 200
_INPUT = WindowRules(counted=("input", "cache.read", "cache.write"), prefer_total=False)
_OUTPUT = WindowRules(counted=("output",), prefer_total=False)
_LARGEST, _MOST_TOLD, _LONGEST_TOLD = 5, 12, 80


class Hidden(Frozen):
    """What is no longer shown."""

    messages: int
    outputs: int  # of tools, not pruned before
    tokens: int


class Lost(Frozen):
    """What neither the summary nor the tail has of what was hidden."""

    files: int  # that were read or written, and are not named
    largest: tuple[str, ...]  # of these, by the tokens of their calls and outputs
    requests: int  # of the user, that are not there word for word


class Point(Frozen, omit_defaults=True):
    """The tokens when there were so many messages."""

    message: int
    log: int
    view: int
    measured: int | None = None  # what a provider measured as the input for this message


class RecordedCompaction(Frozen):
    """A recorded pivot: messages are told by their numbers in the log, counted from 1."""

    session: int
    message: int
    tail: int | None  # the message from which on all were kept
    before: int  # tokens of the view
    after: int
    measured_before: int | None  # the input of the answer before it, and of the one after it
    measured_after: int | None
    summary: int  # tokens of its text
    hidden: Hidden
    lost: Lost | None  # as the next answer found it; None where only a provider reads the summary
    input: int | None  # tokens that making the summary took, where the transcript tells
    output: int | None
    cost: float | None
    told: dict[str, str | float | bool]  # what else the transcript says of it


class RecordedPrune(Frozen):
    """Outputs that were pruned together, before the message of this number; None: after all."""

    session: int
    message: int | None
    outputs: int
    tokens: int  # of the outputs in full
    before: int  # of the view
    after: int


class Growth(Frozen):
    """A session's growth; `unseen` is what a provider measured beyond what the log has."""

    points: tuple[Point, ...]
    compactions: tuple[RecordedCompaction, ...]
    prunes: tuple[RecordedPrune, ...]
    unseen: int


def growth(log: Log, policy: Policy, *, session: int = 1, folder: str = "") -> Growth:
    """How a session grew under its recorded pivots and prunes."""
    return _GrowthReplay(log, policy, session, folder).growth()


def wrapping_tokens(entry: Entry) -> int:
    """What the wrapping of a message costs; results travel in a message of their own."""
    speaks = any(size.fixed for size in entry.sizes)
    has_results = any(isinstance(part, ToolPart) for part in entry.message.parts)
    return MESSAGE_OVERHEAD * (speaks + has_results)


def _counted(tokens: Tokens | UnsetType, rules: WindowRules) -> int | None:
    """What a provider measured, if it did, within reason."""
    return used(tokens, rules) or None if tokens else None


class _GrowthReplay:
    """The log once more, from its first message on."""

    def __init__(self, recorded: Log, policy: Policy, session: int, folder: str) -> None:
        self._recorded = recorded
        self._log = Log(recorded.count)
        self._viewer = Viewer(self._log, policy)
        self._moments = _moments(recorded)
        self._session = session
        self._folder = folder
        self._unseen: int | None = None
        self._points: list[Point] = []
        self._compactions: list[RecordedCompaction] = []
        self._prunes: list[RecordedPrune] = []
        self._gone: Collection[int] | None = None  # what a pivot hid, until it is told what is lost

    def growth(self) -> Growth:
        """Take message by message."""
        for entry in self._recorded.entries.values():
            self._take(entry)
        self._prune(len(self._recorded))
        self._tell_lost()
        if self._points:
            self._points[-1] = replace(self._points[-1], view=self._viewer.tokens)
        return Growth(
            points=sampled(self._points),
            compactions=tuple(self._compactions),
            prunes=tuple(self._prunes),
            unseen=self._unseen or 0,
        )

    def _take(self, entry: Entry) -> None:
        self._prune(entry.index)
        if not entry.message.is_user:
            # Programs say again after a summary what they do not want to lose.
            self._tell_lost()
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

    def _prune(self, place: int) -> None:
        """Hide what was hidden before the message at this place came."""
        ordinals = self._moments.get(place)
        if not ordinals:
            return
        calls = [self._log.calls[ordinal] for ordinal in ordinals]
        before = self._viewer.tokens
        self._log.mark(ordinals, at=1)
        self._prunes.append(
            RecordedPrune(
                session=self._session,
                message=place + 1 if place < len(self._recorded) else None,
                outputs=len(calls),
                tokens=sum(call.tokens + call.attached for call in calls),
                before=before,
                after=self._viewer.tokens,
            )
        )

    def _compaction(
        self, pivot: Pivot, cells: Mapping[int, Cell], before: int
    ) -> RecordedCompaction:
        log, stays = self._log, {*self._viewer.cells, pivot.marker, pivot.summary}
        gone = {place for place, cell in cells.items() if cell.shown and place not in stays}
        self._gone = gone
        tail = None if pivot.tail_id is None else log.place(pivot.tail_id, below=pivot.marker)
        summary = log.entries[pivot.summary]
        info = cast("AssistantInfo", summary.message.info)
        calls = [call for call in log.calls.values() if call.index in gone]
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
            hidden=Hidden(
                messages=len(gone),
                outputs=sum(call.ordinal not in log.marks for call in calls),
                tokens=sum(cells[place].tokens for place in gone),
            ),
            lost=None,
            input=_counted(info.tokens, _INPUT),
            output=_counted(info.tokens, _OUTPUT),
            cost=info.cost or None,
            told=_told(log.entries[pivot.marker].message),
        )

    def _tell_lost(self) -> None:
        """What the newest pivot hid, and is named nowhere in the view of now."""
        gone, pivot = self._gone, self._log.pivot
        self._gone = None
        if pivot is None or gone is None:
            return
        if not any(is_opaque(part) for part in self._log.entries[pivot.summary].message.parts):
            lost = _lost(self._viewer, pivot, gone, self._folder)
            self._compactions[-1] = replace(self._compactions[-1], lost=lost)


def _lost(viewer: Viewer, pivot: Pivot, gone: Collection[int], folder: str) -> Lost:
    """What the view after a pivot does not name of the messages at these places."""
    cells = (cell for place, cell in viewer.cells.items() if place != pivot.marker)
    shown = (message for cell in cells for message in cell.shown)
    text = _slashed("\n".join(text for message in shown for text in message_texts(message)))
    files: Counter[str] = Counter()
    for call in viewer.log.calls.values():
        for file in call.target.files if call.index in gone and not call.failed else ():
            files[file] += call.tokens + call.attached
    unnamed = [file for file, _ in files.most_common() if not is_named(file, text, folder)]
    asked = [request for request in viewer.log.requests.all if request.index in gone]
    return Lost(
        files=len(unnamed),
        largest=tuple(unnamed[:_LARGEST]),
        requests=sum(_slashed(request.text.strip()) not in text for request in asked),
    )


def is_named(file: str, text: str, folder: str = "") -> bool:
    """Whether a text names a file: from where the session worked, or with its own folder."""
    path, home = _slashed(file), _slashed(folder).rstrip("/") + "/"
    if home != "/":
        path = path.removeprefix(home)
    # `store/rows.py` finds it, `rows.py` may be any.
    return "/".join(path.rsplit("/", 2)[-2:]) in text


def _slashed(text: str) -> str:
    """With the paths of Windows as those of all others."""
    return text.replace("\\", "/")


def sampled(points: list[Point], most: int = MOST_POINTS) -> tuple[Point, ...]:
    """No more than so many points: of each stretch its peak and its end."""
    if len(points) <= most:
        return tuple(points)
    kept: list[Point] = []
    stretches = most // 2
    for number in range(stretches):
        first, end = (len(points) * edge // stretches for edge in (number, number + 1))
        peak = max(points[first:end], key=lambda point: point.view)
        kept += [peak] if peak is points[end - 1] else [peak, points[end - 1]]
    return tuple(kept)


def _moments(log: Log) -> dict[int, list[int]]:
    """Which outputs were pruned before the message at each place came."""
    created = (entry.message.info.time for entry in log.entries.values())
    latest = list(accumulate((time.created or 0 if time else 0 for time in created), max))
    moments: dict[int, list[int]] = {}
    for ordinal, at in log.marks.items():
        place = bisect_right(latest, at)
        if place <= log.calls[ordinal].index:
            place = len(latest)  # a mark older than its own message tells nothing
        moments.setdefault(place, []).append(ordinal)
    return moments


def _told(marker: Message) -> dict[str, str | float | bool]:
    """The figures and short words of what a transcript says of a compaction."""
    fields = (field for record in (marker.info.wire or {}).values() for field in _fields(record))
    return {
        name[:_LONGEST_TOLD]: value[:_LONGEST_TOLD] if isinstance(value, str) else value
        for name, value in islice(fields, _MOST_TOLD)
    }


def _fields(record: object, prefix: str = "") -> Iterator[tuple[str, str | float | bool]]:
    """The plain values of a record, and of those inside it by both their names."""
    for name, value in cast("Json", record).items() if isinstance(record, dict) else ():
        if isinstance(value, bool | int | float | str):
            yield f"{prefix}{name}", value
        elif not prefix:
            yield from _fields(value, f"{name}.")


# --- replay: the log once more, without its recorded pivots and prunes, under a policy ----------
# No model is asked: a summary is taken to have a usual length. All is estimated.

SUMMARY = 1_500  # tokens of a summary
MOST_DEEDS = 100  # that are told one by one
_SENTENCE = "The work went on as it was asked for, and what came of it is told in these words.\n"


class SimulatedStep(Frozen):
    """What would have been done before the message of this number came; tokens of the view."""

    kind: Literal["prune", "compact"]
    message: int
    before: int = 0
    after: int = 0
    outputs: int = 0  # that were pruned
    messages: int = 0  # that were folded


class Rehearsal(Frozen):
    """What a policy would have done."""

    policy: str
    model: str | None
    window: int
    usable: int
    fixed: int  # tokens of each request beside the view: the system prompt and the tools
    summary: int  # tokens that a summary is taken to have
    prunes: int
    compactions: int
    peak: int  # tokens of the largest request, and before which message it was
    peak_message: int
    stuck: int | None  # before this message nothing helped any more
    first_prune: SimulatedStep | None
    first_compaction: SimulatedStep | None
    deeds: tuple[SimulatedStep, ...]  # the first of them


def rehearsal(
    recorded: Log, policy: Policy, limit: Limit, *, model: str = "", fixed: int = 0
) -> Rehearsal:
    """What a policy would have done with a session in a window."""
    room = usable(policy, limit, model)
    log = Log(recorded.count)
    viewer = Viewer(log, policy, model=model, usable=room)
    request = CompactionRequest(viewer=viewer, limit=limit, model=model, fixed=fixed, auto=True)
    deeds: list[SimulatedStep] = []
    peak, stuck = (0, 0), None
    for entry in recorded.entries.values():
        if is_marker(entry.message) or is_summary(entry.message):
            continue
        if not entry.message.is_user:
            number = entry.index + 1
            if stuck is None and not _simulate(request, number, deeds):
                stuck = number
            peak = max(peak, (viewer.tokens + fixed, number), key=itemgetter(0))
        log.append(unmarked(entry.message), entry.sizes)
    prunes = [deed for deed in deeds if deed.kind == "prune"]
    compactions = [deed for deed in deeds if deed.kind == "compact"]
    return Rehearsal(
        policy=policy.name,
        model=model or None,
        window=limit.context,
        usable=room,
        fixed=fixed,
        summary=SUMMARY,
        prunes=len(prunes),
        compactions=len(compactions),
        peak=peak[0],
        peak_message=peak[1],
        stuck=stuck,
        first_prune=prunes[0] if prunes else None,
        first_compaction=compactions[0] if compactions else None,
        deeds=tuple(deeds[:MOST_DEEDS]),
    )


def _simulate(request: CompactionRequest, message: int, deeds: list[SimulatedStep]) -> bool:
    """Make room before the message of this number, and note what is done; False if none can be."""
    viewer, log = request.viewer, request.viewer.log

    def look() -> tuple[CompactionRequest, int]:
        return request, viewer.tokens + request.fixed

    try:
        for step in fit(look, prune="always", passes=1):
            before = viewer.tokens
            if isinstance(step, Prune):
                log.mark(step.ordinals, at=1)
                deed = SimulatedStep(kind="prune", message=message, outputs=len(step.prune))
            else:
                ready = prepare(step)
                tokens = 10 * min(SUMMARY, ready.max_summary_tokens)
                text = _SENTENCE * max(1, tokens // max(1, log.count(_SENTENCE * 10)))
                append_pivot(log, text, tail_start=ready.fold.tail_start)
                folded = len(ready.fold.head)
                deed = SimulatedStep(kind="compact", message=message, messages=folded)
            deeds.append(replace(deed, before=before, after=viewer.tokens))
    except (WindowTooSmall, CompactionStopped):
        return False
    return True
