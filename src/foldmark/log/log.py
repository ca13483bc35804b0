"""The log: every message of a session, oldest first, and the marks of pruned outputs.

Pruning and compacting never change or remove a message: a prune sets marks beside parts, a pivot
appends two messages. Derived data (sizes, pivots, requests, the files that tools accessed) is
updated with each message, so that the cost of a step depends only on what is new.

A part is identified by its ordinal, its position among all parts of the log; a handle is the
ordinal in hexadecimal. Ids cannot be used for this, because real transcripts repeat them.

A log may start in the middle of a session and skip indexes: a store loads only the messages in
the view, and a `LogCheckpoint` describes the others.
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

_MAX_HANDLE = 16  # longer handles name no part, and exceed the integers of databases


class Entry(Frozen, gc=False):
    """A message with its index in the log and the sizes of its parts."""

    message: Message
    index: int
    ordinal: int  # of its first part
    sizes: tuple[Size, ...]


class CompletedCall(Frozen, gc=False):
    """A completed tool call, with its position in the log."""

    ordinal: int
    index: int
    part: ToolPart
    state: Completed
    tokens: int  # of the output's text, up to the limit of its tool
    attached: int  # tokens of the files attached to the output
    target: Target
    failed: bool


class Pivot(Frozen):
    """A marker whose summary is complete, by their indexes in the log."""

    marker: int
    summary: int
    tail_id: str | None


class LogCheckpoint(Frozen):
    """What a partial log knows about the messages before its start, and all marks."""

    index: int = 0
    ordinal: int = 0
    memory: RequestMemory = RequestMemory()
    pivots: tuple[Pivot, ...] = ()  # in force, and in the view
    undone: frozenset[int] = frozenset()  # markers of undone pivots
    retired_indexes: frozenset[int] = (
        frozenset()
    )  # their summaries: a marker may lie before the log
    marks: Mapping[int, Number] = {}


def handle(ordinal: int) -> str:
    """The short id of a part, by which hidden content is recalled."""
    return f"h{ordinal:x}"


def ordinal_of(name: str) -> int | None:
    """The ordinal of a handle, or None if this is not a handle."""
    digits = name.strip().lower()
    is_handle = digits.startswith("h") and digits.isascii() and digits[1:].isalnum()
    if not is_handle or len(digits) > _MAX_HANDLE:
        return None
    try:
        return int(digits[1:], 16)
    except ValueError:
        return None


class Log:
    """The messages and marks of a session, with the data derived from them."""

    def __init__(
        self,
        count: Counter,
        messages: Iterable[Message] = (),
        checkpoint: LogCheckpoint | None = None,
    ) -> None:
        """Start from a token counter, the messages so far, and a checkpoint if they are partial."""
        checkpoint = checkpoint or LogCheckpoint()
        self.count = count
        self.entries: dict[int, Entry] = {}  # by index, in order
        self.marks: dict[int, Number] = {}  # pruned parts: ordinal → time
        self.calls: dict[int, CompletedCall] = {}  # by ordinal, oldest first
        self.users: list[int] = []  # indexes of user messages
        self.summaries: list[int] = []  # indexes of summaries, complete or not
        self.pivots: list[Pivot] = list(checkpoint.pivots)
        self.undone: set[int] = set(checkpoint.undone)  # markers of undone pivots
        # These markers and their summaries, which are never shown.
        self.retired_indexes: set[int] = set(checkpoint.retired_indexes)
        self.requests = Requests(checkpoint.memory)
        self.changes: list[int] = []  # indexes of new and changed messages, in order of the changes
        self.finished: int | None = None  # index of the newest finished reply
        self.measured: int | None = None  # the same, while its usage applies to the current view
        self._indexes: dict[str, int] = {}
        self._markers: dict[str, int] = {}
        self._initial_marks = checkpoint.marks  # of parts that are appended later
        self._end = checkpoint.index
        self._parts = checkpoint.ordinal
        for message in messages:
            self.append(message)

    def __repr__(self) -> str:
        """How many messages, pruned parts and pivots there are."""
        return f"<Log: {len(self)} messages, {len(self.marks)} pruned, {len(self.pivots)} pivots>"

    def __len__(self) -> int:
        """The index of the next message, counting those before the start of a partial log."""
        return self._end

    @property
    def parts(self) -> int:
        """The ordinal of the next part."""
        return self._parts

    @property
    def last(self) -> Entry | None:
        """The newest entry."""
        return self.entries[next(reversed(self.entries))] if self.entries else None

    @property
    def pivot(self) -> Pivot | None:
        """The latest pivot."""
        return self.pivots[-1] if self.pivots else None

    def append(self, message: Message, sizes: tuple[Size, ...] | None = None) -> Entry:
        """Add a message at the end, with its sizes if they are already known."""
        entry = Entry(
            message=message,
            index=self._end,
            ordinal=self._parts,
            sizes=message_sizes(message, self.count) if sizes is None else sizes,
        )
        self.entries[entry.index] = entry
        self._end += 1
        self._parts += len(message.parts)
        self._indexes[message.info.id] = entry.index
        self.changes.append(entry.index)
        if isinstance(message.info, UserInfo):
            self._add_user(entry)
        else:
            self._add_assistant(entry, message.info)
        self.requests.add_message(entry.index, entry.ordinal, message)
        return entry

    def skip(self, index: int, ordinal: int) -> None:
        """Skip messages that are not loaded: the next one has this index."""
        if index < self._end or ordinal < self._parts:
            raise ValueError(f"index {index} is before the end of the log, {self._end}")
        self._end, self._parts = index, ordinal

    def record_result(self, ordinal: int, message: Message) -> Entry:
        """Replace a message by a newer version in which this tool call has its result."""
        position = self.part_at(ordinal)
        part = None if position is None else message.parts[position[1]]
        if position is None or not isinstance(part, ToolPart):
            raise ValueError(f"{handle(ordinal)} is not a tool call")
        if ordinal in self.calls:
            raise ValueError(f"{handle(ordinal)} already has its result")
        entry, offset = position
        size = part_size(part, self.count)
        if isinstance(part.state, Completed):
            is_newest = ordinal > next(reversed(self.calls), -1)
            self._add_call(entry.index, ordinal, part, size)
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
        """Replace a message by a version that differs only in fields that the view ignores."""
        index = self._indexes[message.info.id]
        old = self.entries[index]
        if len(old.sizes) != len(message.parts):
            raise ValueError(f"message {message.info.id!r} has a different number of parts")
        newer = Entry(message=message, index=index, ordinal=old.ordinal, sizes=old.sizes)
        self.entries[index] = newer
        return newer

    def mark(self, ordinals: Iterable[int], at: Number) -> None:
        """Hide the outputs of these tool calls; other ordinals and hidden ones are ignored."""
        if at <= 0:
            raise ValueError(f"a mark is a time in milliseconds above 0, not {at}")
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
        """Discard usage measured before this index, as the view has changed since."""
        if self.measured is not None and self.measured < before:
            self.measured = None

    def index_of(self, message_id: str, below: int | None = None) -> int | None:
        """The index of the message with this id or handle; of several, the newest below `below`."""
        index = self._indexes.get(message_id)
        if index is None:
            ordinal = ordinal_of(message_id)
            position = None if ordinal is None else self.part_at(ordinal)
            index = None if position is None else position[0].index
            return None if index is None or (below is not None and index >= below) else index
        if below is None or index < below:
            return index
        for entry in reversed(self.entries.values()):
            if entry.index < below and entry.message.info.id == message_id:
                return entry.index
        return None

    def reference(self, index: int) -> str | None:
        """The id of a message, or a handle if ids repeat, for use with `index_of`."""
        entry = self.entries[index]
        if self.index_of(entry.message.info.id) == index:
            return entry.message.info.id
        return handle(entry.ordinal) if entry.sizes else None

    def part_at(self, ordinal: int) -> tuple[Entry, int] | None:
        """The entry that contains a part, and the part's offset in it."""
        if not 0 <= ordinal < self._parts or not self.entries:
            return None
        # Messages without parts share an ordinal with the next one, which contains the part.
        indexes = range(next(iter(self.entries)), self._end)
        index = indexes[max(bisect_right(indexes, ordinal, key=self.ordinal_at) - 1, 0)]
        entry = self.entries.get(index)
        if entry is None or not entry.ordinal <= ordinal < entry.ordinal + len(entry.sizes):
            return None
        return entry, ordinal - entry.ordinal

    def ordinal_at(self, index: int) -> int:
        """The ordinal of the first part at an index or after it."""
        if index >= self._end:
            return self._parts
        entry = self.entries.get(index)
        if entry is not None:
            return entry.ordinal
        later = (entry.ordinal for other, entry in self.entries.items() if other >= index)
        return next(later, self._parts)

    def _add_user(self, entry: Entry) -> None:
        self.users.append(entry.index)
        part = marker_part(entry.message)
        if part is not None:
            self._markers[entry.message.info.id] = entry.index
            if part.undone:
                self.undone.add(entry.index)
            if entry.index in self.undone:
                self.retired_indexes.add(entry.index)

    def _add_assistant(self, entry: Entry, info: AssistantInfo) -> None:
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, ToolPart) and isinstance(part.state, Completed):
                self._add_call(entry.index, entry.ordinal + offset, part, entry.sizes[offset])
        if info.summary:
            self.summaries.append(entry.index)
            if self._markers.get(info.parent_id or "") in self.undone:
                self.retired_indexes.add(entry.index)
            else:
                self._add_summary(entry, info)
        elif info.finish and info.tokens:
            self.measured = entry.index
        if info.finish:
            self.finished = entry.index

    def _add_call(self, index: int, ordinal: int, part: ToolPart, size: Size) -> None:
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
        at = self._initial_marks.get(ordinal) or (state.time.compacted if state.time else None)
        if at:
            self.marks[ordinal] = at

    def _add_summary(self, entry: Entry, info: AssistantInfo) -> None:
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
    """Whether a completed call reports a failure in its metadata."""
    metadata = state.metadata
    if not metadata:
        return False
    status = metadata.get("exit", metadata.get("exit_code"))
    return bool(status or metadata.get("isError") or metadata.get("is_error"))


def part_text(part: AnyPart) -> str:
    """The readable content of a part."""
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
    """The part that makes a user message a marker, or None."""
    return next((part for part in message.parts if isinstance(part, CompactionPart)), None)


def is_complete(info: AssistantInfo) -> bool:
    """Whether a summary is finished and without an error."""
    return bool(info.summary and info.finish and not info.error)
