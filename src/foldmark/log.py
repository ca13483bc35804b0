"""The log: every message of a session, oldest first, and the marks on it.

Nothing in it is ever changed or removed by pruning or compacting: a prune is a mark beside a
part, a pivot is two messages more. What is derived from the messages (sizes, pivots, requests,
the files that tools touched) is kept as they come, so that a step costs what is new and not
what there is.

A part is known by its ordinal, its place among all parts of the log; the ordinal in hexadecimal
is its handle. Ids cannot serve for that: real transcripts repeat them.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import cast

from msgspec import UNSET

from .messages import (
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
)
from .requests import Requests
from .sizes import Size, message_sizes
from .targets import Target, target
from .tokens import Counter
from .values import Frozen, encode


class Entry(Frozen, gc=False):
    """A message in its place, with the sizes of its parts."""

    message: Message
    index: int
    ordinal: int  # of its first part
    sizes: tuple[Size, ...]


class Tool(Frozen, gc=False):
    """A completed tool call in its place."""

    ordinal: int
    index: int
    part: ToolPart
    state: Completed
    tokens: int  # of the output's text
    attached: int  # and of the files that came with it
    target: Target
    failed: bool


class Pivot(Frozen):
    """A marker whose summary is complete, by their places in the log."""

    marker: int
    summary: int
    tail_id: str | None


def handle(ordinal: int) -> str:
    """The short name by which hidden content is recalled."""
    return f"h{ordinal:x}"


def ordinal_of(name: str) -> int | None:
    """The ordinal behind a handle; None where it is no handle."""
    digits = name.strip().lower()
    if not digits.startswith("h") or not digits[1:].isalnum():
        return None
    try:
        return int(digits[1:], 16)
    except ValueError:
        return None


class Log:
    """Messages and marks, with what is derived from them."""

    def __init__(self, count: Counter, messages: Iterable[Message] = ()) -> None:
        """Take the function that counts tokens, and the messages so far."""
        self.count = count
        self.entries: list[Entry] = []
        self.marks: dict[int, Number] = {}  # pruned parts: ordinal → time
        self.tools: dict[int, Tool] = {}  # completed calls not pruned, oldest first
        self.hidden: dict[int, Tool] = {}  # the pruned ones
        self.calls: list[Tool] = []  # both of these
        self.users: list[int] = []
        self.summaries: list[int] = []  # every message that calls itself a summary
        self.pivots: list[Pivot] = []
        self.requests = Requests()
        self.touched: dict[str, list[tuple[int, Target]]] = {}  # by file: who read or wrote it
        self.restored: int = 0  # how often pruned outputs were shown again
        self.changes: list[int] = []  # places, in the order in which they came or changed
        self.finished: int | None = None  # the newest finished answer
        self.measured: int | None = None  # the same, where its tokens still tell of this view
        self._places: dict[str, int] = {}
        self._markers: dict[str, int] = {}
        self._parts = 0
        for message in messages:
            self.append(message)

    def __repr__(self) -> str:
        """How much there is."""
        return f"<Log: {len(self)} messages, {len(self.marks)} pruned, {len(self.pivots)} pivots>"

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.entries)

    @property
    def pivot(self) -> Pivot | None:
        """The latest pivot."""
        return self.pivots[-1] if self.pivots else None

    def append(self, message: Message) -> Entry:
        """Add a message at the end."""
        entry = Entry(
            message=message,
            index=len(self.entries),
            ordinal=self._parts,
            sizes=message_sizes(message, self.count),
        )
        self.entries.append(entry)
        self._parts += len(message.parts)
        self._places[message.id] = entry.index
        self.changes.append(entry.index)
        if isinstance(message.info, UserInfo):
            self._take_user(entry)
        else:
            self._take_assistant(entry, message.info)
        self.requests.take(entry.index, entry.ordinal, message)
        return entry

    def replace(self, message: Message) -> Entry:
        """Put a newer state of the last message in its place, as a stream goes on."""
        last = self.entries[-1] if self.entries else None
        if last is None or last.message.id != message.id:
            raise ValueError(f"only the last message can still change, not {message.id!r}")
        self._forget_last(last)
        return self.append(message)

    def mark(self, ordinals: Iterable[int], at: Number) -> None:
        """Hide the outputs of these tool calls; what is none, or hidden already, is passed over."""
        if at <= 0:
            raise ValueError(f"a mark is a time in milliseconds, not {at}: 0 means unmarked")
        for ordinal in ordinals:
            tool = self.tools.pop(ordinal, None)
            if tool is not None:
                self.hidden[ordinal] = tool
                self.marks[ordinal] = at
                self.changes.append(tool.index)
                self.measured = None

    def unmark(self, ordinals: Iterable[int]) -> None:
        """Show the outputs of these tool calls again."""
        for ordinal in ordinals:
            if (tool := self.hidden.pop(ordinal, None)) is not None:
                del self.marks[ordinal]
                self.tools[ordinal] = tool
                self.changes.append(tool.index)
                self.measured = None
        self.tools = dict(sorted(self.tools.items()))
        self.restored += 1

    def unfold(self) -> Pivot | None:
        """Take the latest pivot back: the view is what it was before, and what came since."""
        if not self.pivots:
            return None
        pivot = self.pivots.pop()
        self._pivot_changed(pivot)
        return pivot

    def refold(self, pivot: Pivot) -> None:
        """Put a pivot that was taken back in force again, if none was made since."""
        if self.pivot is not None and self.pivot.marker >= pivot.marker:
            raise ValueError("a newer pivot is in force; take that back first")
        self.pivots.append(pivot)
        self._pivot_changed(pivot)

    def _pivot_changed(self, pivot: Pivot) -> None:
        self.changes.append(pivot.marker)
        self.measured = None

    def place(self, message_id: str, below: int | None = None) -> int | None:
        """Where the message of this id or handle stands; the newest of several, below a place."""
        found = self._places.get(message_id)
        if found is None:
            ordinal = ordinal_of(message_id)
            held = None if ordinal is None else self.part_at(ordinal)
            found = None if held is None else held[0].index
            return None if found is None or (below is not None and found >= below) else found
        if below is None or found < below:
            return found
        for index in range(below - 1, -1, -1):
            if self.entries[index].message.id == message_id:
                return index
        return None

    def reference(self, place: int) -> str | None:
        """A name by which `place` finds this message: its id, or a handle where ids repeat."""
        entry = self.entries[place]
        if self.place(entry.message.id) == place:
            return entry.message.id
        return handle(entry.ordinal) if entry.sizes else None

    def recall(self, name: str) -> str | None:
        """The content behind a handle, hidden or not; None where there is none."""
        ordinal = ordinal_of(name)
        found = None if ordinal is None else self.part_at(ordinal)
        return None if found is None else part_text(found[0].message.parts[found[1]])

    def part_at(self, ordinal: int) -> tuple[Entry, int] | None:
        """The entry that holds a part, and the part's place in it."""
        if not 0 <= ordinal < self._parts:
            return None
        # Messages without parts share an ordinal with the next; the last of them holds it.
        entry = self.entries[bisect_right(self.entries, ordinal, key=_first_ordinal) - 1]
        return entry, ordinal - entry.ordinal

    def _take_user(self, entry: Entry) -> None:
        self.users.append(entry.index)
        if marker_part(entry.message) is not None:
            self._markers[entry.message.id] = entry.index

    def _take_assistant(self, entry: Entry, info: AssistantInfo) -> None:
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, ToolPart) and isinstance(part.state, Completed):
                self._take_tool(entry, offset, part, part.state)
        if info.summary:
            self.summaries.append(entry.index)
            self._take_summary(entry, info)
        elif info.finish and info.tokens:
            self.measured = entry.index
        if info.finish:
            self.finished = entry.index

    def _take_tool(self, entry: Entry, offset: int, part: ToolPart, state: Completed) -> None:
        ordinal = entry.ordinal + offset
        about = target(part.tool, state.input or {})
        tool = Tool(
            ordinal=ordinal,
            index=entry.index,
            part=part,
            state=state,
            tokens=entry.sizes[offset].body,
            attached=entry.sizes[offset].attached,
            target=about,
            failed=_has_failed(state),
        )
        self.calls.append(tool)
        if state.time and state.time.compacted:
            self.hidden[ordinal] = tool
            self.marks[ordinal] = state.time.compacted
        else:
            self.tools[ordinal] = tool
        for file in () if tool.failed else about.files:
            self.touched.setdefault(file, []).append((ordinal, about))

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

    def _forget_last(self, last: Entry) -> None:
        """Take the last message's own traces back, so that its newer state can be appended."""
        self.entries.pop()
        self._parts = last.ordinal
        while self.calls and self.calls[-1].index == last.index:
            tool = self.calls.pop()
            for held in (self.tools, self.hidden, self.marks):
                held.pop(tool.ordinal, None)
            for file in () if tool.failed else tool.target.files:
                self.touched[file].pop()
        for places in (self.users, self.summaries):
            if places and places[-1] == last.index:
                places.pop()
        if self.pivot is not None and self.pivot.summary == last.index:
            self.pivots.pop()
        self._markers.pop(last.message.id, None)
        # What was measured before the last message is not looked up again: it is not far.
        self.measured = None if self.measured == last.index else self.measured
        if self.finished == last.index:
            answers = (entry for entry in reversed(self.entries) if is_finished(entry.message))
            self.finished = next((entry.index for entry in answers), None)
        self.requests.forget(last.index)


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
    for part in message.parts:
        if isinstance(part, CompactionPart):
            return part
    return None


def is_finished(message: Message) -> bool:
    """Whether a message is an answer that came to its end."""
    return isinstance(message.info, AssistantInfo) and bool(message.info.finish)


def is_complete(info: AssistantInfo) -> bool:
    """Whether a summary was written to its end."""
    return bool(info.summary and info.finish and not info.error)


def _first_ordinal(entry: Entry) -> int:
    return entry.ordinal
