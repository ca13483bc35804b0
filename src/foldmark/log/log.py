"""The log: every message of a session, oldest first, and the marks on it.

Nothing in it is ever changed or removed by pruning or compacting: a prune is a mark beside a
part, a pivot is two messages more. What is derived from the messages (sizes, pivots, requests,
the files that tools touched) is kept as they come, so that a step costs what is new and not
what there is.

A part is known by its ordinal, its place among all parts of the log; the ordinal in hexadecimal
is its handle. Ids cannot serve for that: real transcripts repeat them.

A log may begin in the middle, and leave places out: a store loads what the view shows, and says
of the rest what is told in `LogCheckpoint`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import cast

from msgspec import UNSET

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    Message,
    Number,
    ReasoningPart,
    TextPart,
    ToolPart,
    UserInfo,
    output_tokens,
)
from foldmark.model.values import Frozen, encode
from foldmark.tokens.counters import Counter
from foldmark.tokens.sizes import Size, message_sizes, part_size

from .tool_targets import Target, target
from .user_requests import RequestMemory, Requests

_LONGEST_HANDLE = 16  # what is longer names no part, and is beyond what databases count to


class Entry(Frozen, gc=False):
    """A message in its place, with the sizes of its parts."""

    message: Message
    index: int
    ordinal: int  # of its first part
    sizes: tuple[Size, ...]


class CompletedCall(Frozen, gc=False):
    """A completed tool call in its place."""

    ordinal: int
    index: int
    part: ToolPart
    state: Completed
    tokens: int  # of the output's text, as far as its tool lets it be shown
    attached: int  # and of the files that came with it
    target: Target
    failed: bool


class Pivot(Frozen):
    """A marker whose summary is complete, by their places in the log."""

    marker: int
    summary: int
    tail_id: str | None


class LogCheckpoint(Frozen):
    """What a log that begins in the middle knows of what came before it, and of the marks."""

    index: int = 0
    ordinal: int = 0
    memory: RequestMemory = RequestMemory()
    pivots: tuple[Pivot, ...] = ()  # in force, as far as they are shown
    undone: frozenset[int] = frozenset()  # markers of pivots that were taken back
    retired_indexes: frozenset[int] = (
        frozenset()
    )  # their summaries: a marker may lie before the log
    marks: Mapping[int, Number] = {}


def handle(ordinal: int) -> str:
    """The short name by which hidden content is recalled."""
    return f"h{ordinal:x}"


def ordinal_of(name: str) -> int | None:
    """The ordinal behind a handle; None where it is no handle."""
    digits = name.strip().lower()
    is_one = digits.startswith("h") and digits.isascii() and digits[1:].isalnum()
    if not is_one or len(digits) > _LONGEST_HANDLE:
        return None
    try:
        return int(digits[1:], 16)
    except ValueError:
        return None


class Log:
    """Messages and marks, with what is derived from them."""

    def __init__(
        self,
        count: Counter,
        messages: Iterable[Message] = (),
        checkpoint: LogCheckpoint | None = None,
    ) -> None:
        """Take the function that counts tokens, and the messages so far."""
        checkpoint = checkpoint or LogCheckpoint()
        self.count = count
        self.entries: dict[int, Entry] = {}  # by their places, in order
        self.marks: dict[int, Number] = {}  # pruned parts: ordinal → time
        self.calls: dict[int, CompletedCall] = {}  # by their ordinals, oldest first
        self.users: list[int] = []
        self.summaries: list[int] = []  # every message that calls itself a summary
        self.pivots: list[Pivot] = list(checkpoint.pivots)
        self.undone: set[int] = set(checkpoint.undone)  # markers of pivots that were taken back
        # These markers and their summaries: never shown.
        self.retired_indexes: set[int] = set(checkpoint.retired_indexes)
        self.requests = Requests(checkpoint.memory)
        self.changes: list[int] = []  # places, in the order in which they came or changed
        self.finished: int | None = None  # the newest finished answer
        self.measured: int | None = None  # the same, where its tokens still tell of this view
        self._places: dict[str, int] = {}
        self._markers: dict[str, int] = {}
        self._marked = checkpoint.marks  # of parts that are still to come
        self._end = checkpoint.index
        self._parts = checkpoint.ordinal
        for message in messages:
            self.append(message)

    def __repr__(self) -> str:
        """How much there is."""
        return f"<Log: {len(self)} messages, {len(self.marks)} pruned, {len(self.pivots)} pivots>"

    def __len__(self) -> int:
        """How many messages there are, with those before it: the place of the next one."""
        return self._end

    @property
    def parts(self) -> int:
        """How many parts there are: the ordinal of the next one."""
        return self._parts

    @property
    def last(self) -> Entry | None:
        """The newest message."""
        return self.entries[next(reversed(self.entries))] if self.entries else None

    @property
    def pivot(self) -> Pivot | None:
        """The latest pivot."""
        return self.pivots[-1] if self.pivots else None

    def append(self, message: Message, sizes: tuple[Size, ...] | None = None) -> Entry:
        """Add a message at the end; its sizes may be known already."""
        entry = Entry(
            message=message,
            index=self._end,
            ordinal=self._parts,
            sizes=message_sizes(message, self.count) if sizes is None else sizes,
        )
        self.entries[entry.index] = entry
        self._end += 1
        self._parts += len(message.parts)
        self._places[message.info.id] = entry.index
        self.changes.append(entry.index)
        if isinstance(message.info, UserInfo):
            self._take_user(entry)
        else:
            self._take_assistant(entry, message.info)
        self.requests.take(entry.index, entry.ordinal, message)
        return entry

    def skip(self, place: int, ordinal: int) -> None:
        """Leave places out: the next message stands at this one."""
        if place < self._end or ordinal < self._parts:
            raise ValueError(f"place {place} lies behind the end, {self._end}")
        self._end, self._parts = place, ordinal

    def record_result(self, ordinal: int, message: Message) -> Entry:
        """Put a message in its place in which this tool call has a newer state: its result."""
        found = self.part_at(ordinal)
        part = None if found is None else message.parts[found[1]]
        if found is None or not isinstance(part, ToolPart):
            raise ValueError(f"{handle(ordinal)} is no tool call")
        if ordinal in self.calls:
            raise ValueError(f"{handle(ordinal)} has its result already")
        entry, offset = found
        size = part_size(part, self.count)
        if isinstance(part.state, Completed):
            is_newest = ordinal > next(reversed(self.calls), -1)
            self._take_tool(entry.index, ordinal, part, size)
            self.calls = self.calls if is_newest else dict(sorted(self.calls.items()))
        newer = Entry(
            message=message,
            index=entry.index,
            ordinal=entry.ordinal,
            sizes=(*entry.sizes[:offset], size, *entry.sizes[offset + 1 :]),
        )
        self.entries[entry.index] = newer
        self.changes.append(entry.index)
        return newer

    def amend(self, message: Message) -> Entry:
        """Put a message in its place whose unshown parts or fields say more now."""
        index = self._places[message.info.id]
        old = self.entries[index]
        if len(old.sizes) != len(message.parts):
            raise ValueError(f"message {message.info.id!r} has other parts than before")
        newer = Entry(message=message, index=index, ordinal=old.ordinal, sizes=old.sizes)
        self.entries[index] = newer
        return newer

    def mark(self, ordinals: Iterable[int], at: Number) -> None:
        """Hide the outputs of these tool calls; what is none, or hidden already, is passed over."""
        if at <= 0:
            raise ValueError(f"a mark is a time in milliseconds, not {at}: 0 means unmarked")
        for ordinal in ordinals:
            if ordinal in self.calls and ordinal not in self.marks:
                self.marks[ordinal] = at
                self._mark_changed(ordinal)

    def unmark(self, ordinals: Iterable[int]) -> None:
        """Show the outputs of these tool calls again."""
        for ordinal in ordinals:
            if self.marks.pop(ordinal, None) is not None:
                self._mark_changed(ordinal)

    def _mark_changed(self, ordinal: int) -> None:
        self.changes.append(self.calls[ordinal].index)
        self.measured = None

    def forget_measured(self, before: int) -> None:
        """What was measured before this place tells nothing of what is shown now."""
        if self.measured is not None and self.measured < before:
            self.measured = None

    def index_of(self, message_id: str, below: int | None = None) -> int | None:
        """Where the message of this id or handle stands; the newest of several, below a place."""
        found = self._places.get(message_id)
        if found is None:
            ordinal = ordinal_of(message_id)
            held = None if ordinal is None else self.part_at(ordinal)
            found = None if held is None else held[0].index
            return None if found is None or (below is not None and found >= below) else found
        if below is None or found < below:
            return found
        for entry in reversed(self.entries.values()):
            if entry.index < below and entry.message.info.id == message_id:
                return entry.index
        return None

    def reference(self, place: int) -> str | None:
        """A name by which `place` finds this message: its id, or a handle where ids repeat."""
        entry = self.entries[place]
        if self.index_of(entry.message.info.id) == place:
            return entry.message.info.id
        return handle(entry.ordinal) if entry.sizes else None

    def part_at(self, ordinal: int) -> tuple[Entry, int] | None:
        """The entry that holds a part, and the part's place in it."""
        if not 0 <= ordinal < self._parts or not self.entries:
            return None
        # Messages without parts share an ordinal with the next; the last of them holds it.
        places = range(next(iter(self.entries)), self._end)
        found = places[max(bisect_right(places, ordinal, key=self.ordinal_at) - 1, 0)]
        entry = self.entries.get(found)
        held = entry is not None and entry.ordinal <= ordinal < entry.ordinal + len(entry.sizes)
        return (entry, ordinal - entry.ordinal) if entry is not None and held else None

    def ordinal_at(self, place: int) -> int:
        """The ordinal of the first part at a place or after it."""
        if place >= self._end:
            return self._parts
        entry = self.entries.get(place)
        if entry is not None:
            return entry.ordinal
        later = (entry.ordinal for index, entry in self.entries.items() if index >= place)
        return next(later, self._parts)

    def _take_user(self, entry: Entry) -> None:
        self.users.append(entry.index)
        part = marker_part(entry.message)
        if part is not None:
            self._markers[entry.message.info.id] = entry.index
            if part.undone:
                self.undone.add(entry.index)
            if entry.index in self.undone:
                self.retired_indexes.add(entry.index)

    def _take_assistant(self, entry: Entry, info: AssistantInfo) -> None:
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, ToolPart) and isinstance(part.state, Completed):
                self._take_tool(entry.index, entry.ordinal + offset, part, entry.sizes[offset])
        if info.summary:
            self.summaries.append(entry.index)
            if self._markers.get(info.parent_id or "") in self.undone:
                self.retired_indexes.add(entry.index)
            else:
                self._take_summary(entry, info)
        elif info.finish and info.tokens:
            self.measured = entry.index
        if info.finish:
            self.finished = entry.index

    def _take_tool(self, index: int, ordinal: int, part: ToolPart, size: Size) -> None:
        state = cast("Completed", part.state)
        failed, about = _has_failed(state), target(part.tool, state.input or {})
        self.calls[ordinal] = CompletedCall(
            ordinal=ordinal,
            index=index,
            part=part,
            state=state,
            tokens=output_tokens(state, size.body),
            attached=size.attached,
            target=about,
            failed=failed,
        )
        at = self._marked.get(ordinal) or (state.time.compacted if state.time else None)
        if at:
            self.marks[ordinal] = at

    def _take_summary(self, entry: Entry, info: AssistantInfo) -> None:
        if not is_complete(info) or info.parent_id is UNSET:
            return
        marker = self._markers.get(info.parent_id)
        if marker is None or (self.pivot is not None and marker <= self.pivot.marker):
            return
        part = cast("CompactionPart", marker_part(self.entries[marker].message))
        tail = part.tail_start_id or None
        self.pivots.append(Pivot(marker=marker, summary=entry.index, tail_id=tail))
        self.measured = None


def _has_failed(state: Completed) -> bool:
    """Whether a call that came to its end says that it failed."""
    told = state.metadata
    if not told:
        return False
    status = told.get("exit", told.get("exit_code"))
    return bool(status or told.get("isError") or told.get("is_error"))


def part_text(part: AnyPart) -> str:
    """The content of a part, as it can be read."""
    match part:
        case TextPart() | ReasoningPart():
            return part.text
        case ToolPart(state=Completed(output=output)):
            return output
        case ToolPart(state=Failed(error=error)):
            return error
        case FilePart():
            return part.url
        case _:
            return encode(part).decode()


def marker_part(message: Message) -> CompactionPart | None:
    """The part that makes a user message a marker."""
    return next((part for part in message.parts if isinstance(part, CompactionPart)), None)


def is_complete(info: AssistantInfo) -> bool:
    """Whether a summary was written to its end."""
    return bool(info.summary and info.finish and not info.error)
