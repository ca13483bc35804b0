"""The history of a session: how it grew, what pivots took out, what a policy would have done.

One pass over the log each. Recorded pivots and prunes take effect when they did: when an output
was pruned is read from the time of its mark; if that is not known, after all messages.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Literal, cast

from msgspec import UnsetType
from msgspec.structs import replace

from foldmark.compaction.fit import fit
from foldmark.compaction.pivot import Made, marker_message, summary_message
from foldmark.compaction.prune import Prune
from foldmark.compaction.situation import CompactionRequest, Situation
from foldmark.errors import CompactionStopped, WindowTooSmall
from foldmark.log.log import CompletedCall, Entry, Log, Pivot
from foldmark.log.marks import unmarked
from foldmark.log.render import Cell, is_marker, is_summary
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Message, Tokens, is_opaque
from foldmark.model.prompt_messages import message_texts
from foldmark.model.values import Frozen, Json
from foldmark.policy import Policy, WindowRules
from foldmark.tokens.budget import is_overflow, usable, used
from foldmark.tokens.limits import Limit

from .token_usage import entry_tokens

LARGEST = 5


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


def hidden_places(viewer: Viewer, pivot: Pivot, before: Mapping[int, Cell]) -> list[int]:
    """The messages that were shown before a pivot, and are not after it."""
    cells = viewer.cells
    own = {pivot.marker, pivot.summary}
    return [place for place in before if place not in cells and place not in own]


def hidden(log: Log, places: Iterable[int], before: Mapping[int, Cell]) -> Hidden:
    """What these messages were."""
    shown = [place for place in places if before[place].shown]
    return Hidden(
        messages=len(shown),
        outputs=sum(tool.ordinal not in log.marks for tool in _tools(log, shown)),
        tokens=sum(before[place].tokens for place in shown),
    )


def lost(viewer: Viewer, pivot: Pivot, places: Iterable[int], folder: str = "") -> Lost:
    """What the view after a pivot does not name of the messages at these places."""
    log, gone = viewer.log, set(places)
    text = _slashed("\n".join(_texts(viewer.cells, without=pivot.marker)))
    files: Counter[str] = Counter()
    for tool in _tools(log, gone):
        for file in () if tool.failed else tool.target.files:
            files[file] += tool.tokens + tool.attached
    unnamed = [file for file, _ in files.most_common() if not is_named(file, text, folder)]
    asked = [request for request in log.requests.all if request.index in gone]
    return Lost(
        files=len(unnamed),
        largest=tuple(unnamed[:LARGEST]),
        requests=sum(_slashed(request.text.strip()) not in text for request in asked),
    )


def is_named(file: str, text: str, folder: str = "") -> bool:
    """Whether a text names a file: from where the session worked, or with its own folder."""
    path, home = _slashed(file), _slashed(folder).rstrip("/") + "/"
    if home != "/":
        path = path.removeprefix(home)
    # `store/rows.py` finds it, `rows.py` may be any.
    return "/".join(path.rsplit("/", 2)[-2:]) in text


def _tools(log: Log, places: Iterable[int]) -> Iterator[CompletedCall]:
    """The completed calls of these messages."""
    for place in places:
        entry = log.entries[place]
        for ordinal in range(entry.ordinal, entry.ordinal + len(entry.sizes)):
            tool = log.calls.get(ordinal)
            if tool is not None:
                yield tool


def _texts(cells: Mapping[int, Cell], *, without: int) -> Iterator[str]:
    for place, cell in cells.items():
        for message in cell.shown if place != without else ():
            yield from message_texts(message)


def _slashed(text: str) -> str:
    """With the paths of Windows as those of all others."""
    return text.replace("\\", "/")


# --- growth ------------------------------------------------------------------------------------

MOST_POINTS = 200
_INPUT = WindowRules(counted=("input", "cache.read", "cache.write"), prefer_total=False)
_OUTPUT = WindowRules(counted=("output",), prefer_total=False)
_MOST_TOLD, _LONGEST_TOLD = 12, 80


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
    grown = _Growing(log, policy, session, folder)
    for entry in log.entries.values():
        grown.take(entry)
    return grown.end()


def measured_input(message: Message) -> int | None:
    """What a provider measured as the input for an answer, cached or not."""
    info = message.info
    if not isinstance(info, AssistantInfo) or info.summary:
        return None
    return _counted(info.tokens, _INPUT)


def _counted(tokens: Tokens | UnsetType, rules: WindowRules) -> int | None:
    """What a provider measured, if it did, within reason."""
    return used(tokens, rules) or None if tokens else None


class _Growing:
    """The log once more, from its first message on."""

    def __init__(self, log: Log, policy: Policy, session: int, folder: str) -> None:
        self._now = Log(log.count)
        self._viewer = Viewer(self._now, policy)
        self._end = len(log)
        self._marks = _moments(log)
        self._session = session
        self._folder = folder
        self._total = 0
        self._measured: int | None = None
        self._unseen: int | None = None
        self._points: list[Point] = []
        self._compactions: list[RecordedCompaction] = []
        self._prunes: list[RecordedPrune] = []
        self._gone: list[int] | None = None  # what a pivot hid, until it is told what is lost

    def take(self, entry: Entry) -> None:
        """Add the next message."""
        self._prune(entry.index)
        if not entry.message.is_user:
            # Programs say again after a summary what they do not want to lose.
            self._tell_lost()
        measured = measured_input(entry.message)
        if measured is not None:
            self._measure(measured)
        pivot, before = self._now.pivot, self._viewer.tokens
        cells = dict(self._viewer.cells) if is_summary(entry.message) else {}
        self._now.append(unmarked(entry.message, undone=False), entry.sizes)
        self._total += entry_tokens(entry)
        if self._now.pivot is not None and self._now.pivot != pivot:
            self._compactions.append(self._compaction(self._now.pivot, cells, before))
        self._points.append(self._point(measured))

    def end(self) -> Growth:
        """All of it, once every message was taken."""
        self._prune(self._end)
        self._tell_lost()
        if self._points:
            self._points[-1] = self._point(self._points[-1].measured)
        return Growth(
            points=sampled(self._points),
            compactions=tuple(self._compactions),
            prunes=tuple(self._prunes),
            unseen=self._unseen or 0,
        )

    def _point(self, measured: int | None) -> Point:
        return Point(
            message=len(self._now), log=self._total, view=self._viewer.tokens, measured=measured
        )

    def _measure(self, measured: int) -> None:
        self._measured = measured
        if self._unseen is None:
            self._unseen = max(0, measured - self._viewer.tokens)
        if self._compactions and self._compactions[-1].measured_after is None:
            self._compactions[-1] = replace(self._compactions[-1], measured_after=measured)

    def _prune(self, place: int) -> None:
        """Hide what was hidden before the message at this place came."""
        ordinals = self._marks.pop(place, None)
        if not ordinals:
            return
        tools = [self._now.calls[ordinal] for ordinal in ordinals]
        before = self._viewer.tokens
        self._now.mark(ordinals, at=1)
        self._prunes.append(
            RecordedPrune(
                session=self._session,
                message=place + 1 if place < self._end else None,
                outputs=len(tools),
                tokens=sum(tool.tokens + tool.attached for tool in tools),
                before=before,
                after=self._viewer.tokens,
            )
        )

    def _compaction(
        self, pivot: Pivot, cells: Mapping[int, Cell], before: int
    ) -> RecordedCompaction:
        log, viewer = self._now, self._viewer
        gone = self._gone = hidden_places(viewer, pivot, cells)
        tail = None if pivot.tail_id is None else log.place(pivot.tail_id, below=pivot.marker)
        summary = log.entries[pivot.summary]
        info = cast("AssistantInfo", summary.message.info)
        return RecordedCompaction(
            session=self._session,
            message=pivot.marker + 1,
            tail=None if tail is None else tail + 1,
            before=before,
            after=viewer.tokens,
            measured_before=self._measured,
            measured_after=None,
            summary=sum(size.fixed for size in summary.sizes),
            hidden=hidden(log, gone, cells),
            lost=None,
            input=_counted(info.tokens, _INPUT),
            output=_counted(info.tokens, _OUTPUT),
            cost=info.cost or None,
            told=_told(log.entries[pivot.marker].message),
        )

    def _tell_lost(self) -> None:
        """What the newest pivot hid, and is named nowhere in the view of now."""
        gone, pivot = self._gone, self._now.pivot
        self._gone = None
        if pivot is None or gone is None:
            return
        if not any(is_opaque(part) for part in self._now.entries[pivot.summary].message.parts):
            told = lost(self._viewer, pivot, gone, self._folder)
            self._compactions[-1] = replace(self._compactions[-1], lost=told)


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
    wire = marker.info.wire or {}
    found: dict[str, str | float | bool] = {}
    for held in wire.values():
        if isinstance(held, dict):
            _gather(cast("Json", held), "", found)
    return found


def _gather(held: Json, prefix: str, found: dict[str, str | float | bool]) -> None:
    for name, value in held.items():
        key = f"{prefix}{name}"[:_LONGEST_TOLD]
        if len(found) < _MOST_TOLD and isinstance(value, bool | int | float | str):
            found[key] = value[:_LONGEST_TOLD] if isinstance(value, str) else value
        elif isinstance(value, dict) and not prefix:
            _gather(cast("Json", value), f"{name}.", found)


# --- replay: the log once more, without its recorded pivots and prunes, under a policy ----------
# No model is asked: a summary is taken to have a usual length. All is estimated.

SUMMARY = 1_500  # tokens of a summary
MOST_DEEDS = 100  # that are told one by one
_SENTENCE = "The work went on as it was asked for, and what came of it is told in these words.\n"


class SimulatedStep(Frozen):
    """What would have been done before the message of this number came; tokens of the view."""

    kind: Literal["prune", "compact"]
    message: int
    before: int
    after: int
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
    log: Log, policy: Policy, limit: Limit, *, model: str = "", fixed: int = 0
) -> Rehearsal:
    """What a policy would have done with a session in a window."""
    stage = PolicySimulator(log, policy, limit, model, fixed)
    stage.play(log)
    prunes = [deed for deed in stage.deeds if deed.kind == "prune"]
    compactions = [deed for deed in stage.deeds if deed.kind == "compact"]
    return Rehearsal(
        policy=policy.name,
        model=model or None,
        window=limit.context,
        usable=stage.room,
        fixed=fixed,
        summary=SUMMARY,
        prunes=len(prunes),
        compactions=len(compactions),
        peak=stage.peak,
        peak_message=stage.peak_message,
        stuck=stage.stuck,
        first_prune=prunes[0] if prunes else None,
        first_compaction=compactions[0] if compactions else None,
        deeds=tuple(stage.deeds[:MOST_DEEDS]),
    )


class PolicySimulator:
    """A log that grows as the recorded one did, with a policy in force."""

    def __init__(self, recorded: Log, policy: Policy, limit: Limit, model: str, fixed: int) -> None:
        self.room = usable(policy, limit, model)
        self.deeds: list[SimulatedStep] = []
        self.peak = self.peak_message = 0
        self.stuck: int | None = None
        self._policy = policy
        self._limit = limit
        self._model = model
        self._fixed = fixed
        self._log = Log(recorded.count)
        self._viewer = Viewer(self._log, policy, model=model, usable=self.room)

    def play(self, recorded: Log) -> None:
        """Take message by message."""
        for entry in recorded.entries.values():
            if is_marker(entry.message) or is_summary(entry.message):
                continue
            if not entry.message.is_user:
                self._make_room(entry.index + 1)
                self._look(entry.index + 1)
            self._log.append(unmarked(entry.message), entry.sizes)

    def _look(self, message: int) -> None:
        tokens = self._viewer.tokens + self._fixed
        if tokens > self.peak:
            self.peak, self.peak_message = tokens, message

    def _is_full(self) -> bool:
        tokens = self._viewer.tokens + self._fixed
        return is_overflow(self._policy, tokens, self._limit, self._model)

    def _make_room(self, message: int) -> None:
        if self.stuck is not None:
            return
        request = CompactionRequest(
            viewer=self._viewer, limit=self._limit, model=self._model, fixed=self._fixed
        )
        try:
            for step in fit(request, is_full=self._is_full, may_prune=_always, passes=1):
                self.deeds.append(self._do(step, message))
        except (WindowTooSmall, CompactionStopped):
            self.stuck = message

    def _do(self, step: Prune | Situation, message: int) -> SimulatedStep:
        before = self._viewer.tokens
        done = SimulatedStep(kind="prune", message=message, before=before, after=before)
        if isinstance(step, Prune):
            self._log.mark(step.ordinals, at=1)
            return replace(done, after=self._viewer.tokens, outputs=len(step.prune))
        self._fold(f"rehearsed-{message}", step)
        folded = len(step.fold.head)
        return replace(done, kind="compact", after=self._viewer.tokens, messages=folded)

    def _fold(self, name: str, situation: Situation) -> None:
        marker, summary = (
            Made(session="", message=f"{name}-{what}", part=f"{name}-{what}-text", at=1)
            for what in ("marker", "summary")
        )
        text = _filler(self._log, min(SUMMARY, situation.max_summary_tokens))
        self._log.append(marker_message(marker, auto=True, tail_start=situation.fold.tail_start))
        self._log.append(summary_message(summary, text, marker=marker.message))


def _always(_: Prune) -> bool:
    return True


def _filler(log: Log, tokens: int) -> str:
    """A text of about so many tokens."""
    ten = log.count(_SENTENCE * 10)
    return _SENTENCE * max(1, tokens * 10 // max(1, ten))
