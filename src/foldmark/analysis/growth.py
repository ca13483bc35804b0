"""How a session grew: its whole log and what the model saw of it, message by message.

One pass over the log, in which recorded pivots and prunes take effect when they did. When an
output was pruned is told by the time of its mark; where that is not known, after all messages.
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import cast

from msgspec import UnsetType
from msgspec.structs import replace

from foldmark.log.log import Entry, Log, Pivot
from foldmark.log.marks import unmarked
from foldmark.log.render import Cell, is_summary
from foldmark.log.view import Viewer
from foldmark.model.messages import AssistantInfo, Message, Tokens, is_opaque
from foldmark.model.values import Frozen, Json
from foldmark.policy import Policy, WindowRules
from foldmark.tokens.budget import used

from .losses import Hidden, Lost, hidden, hidden_places, lost
from .token_usage import entry_tokens

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
