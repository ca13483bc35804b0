"""Sessions written from elsewhere, message by message: new ones, and more of those that are there.

Marks and pivots are told by the messages; they become acts, so that they can be undone. A session
that is there already is compared as it is told again, and only what is new is written. Nothing is
held but what a view needs across a pivot: a session may be larger than the memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from foldmark import events
from foldmark.errors import BadInput
from foldmark.log import Log, is_complete, marker_part, ordinal_of
from foldmark.marks import marked_messages, unmarked
from foldmark.messages import (
    AssistantInfo,
    CompactionPart,
    Completed,
    Message,
    Number,
    ToolPart,
    has_result,
    with_part,
)
from foldmark.requests import Requests
from foldmark.sizes import message_sizes
from foldmark.tokens import Counter

from .change import Change
from .engine import Engine
from .marking import unpacked_marks
from .rows import SessionRow, Stored, read_acts, read_messages
from .schema import key_at
from .words import clean

_LATEST = 2**53  # milliseconds that a column, and JSON, hold exactly
_CHUNK = 64
_MOST_CALLS = 50_000


class Filling:
    """One session being written, inside the caller's transaction."""

    def __init__(self, engine: Engine, row: SessionRow, count: Counter) -> None:
        """Take the session as it is, and what counts tokens."""
        self._engine = engine
        self._count = count
        self._change = Change(engine, row)
        self._key = row.key
        self._known = row.places
        self._stored = _stored(engine, row)
        self._place = 0
        self._ordinal = 0
        self._requests = Requests()
        self._calls: OrderedDict[str, tuple[int, int]] = OrderedDict()  # place and ordinal
        self._markers: dict[str, int] = {}
        self._last_pivot = -1
        self._marks: dict[int, Number] = {}  # told inside messages
        self._marked = _marked(engine, row) if row.acts else set[int]()
        self.changed = 0  # messages that are new, or newer than they were
        self.pruned = 0
        self.pivots = 0

    def take(self, message: Message) -> None:
        """The next message, with its marks."""
        place, ordinal = self._place, self._ordinal
        self._remember(message)
        self._write(unmarked(message, undone=False))
        self._place += 1
        self._ordinal = ordinal + len(message.parts)
        self._requests.take(place, ordinal, message)
        if marker_part(message) is not None and message.is_user:
            self._markers[message.id] = place
        elif isinstance(message.info, AssistantInfo) and message.info.summary:
            self._take_summary(place, message.info)

    def settle(self, call: str, change: Callable[[ToolPart], ToolPart]) -> None:
        """A result that came after its message."""
        found = self._calls.get(call)
        if found is None:
            return
        place, ordinal = found
        held = read_messages(self._engine, self._key, place, place + 1, sized=False)[0]
        part = held.message.parts[ordinal - held.ordinal]
        if isinstance(part, ToolPart) and not has_result(part):
            newer = with_part(held.message, ordinal - held.ordinal, change(part))
            self._put(held, newer)

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        """The outputs of these calls are hidden from now on."""
        found = {self._calls[call][1] for call in calls if call in self._calls}
        self._prune(dict.fromkeys(found, at or 1))

    def revert(self, message: str | None) -> None:
        """All after a message is taken back."""
        place = -1 if message is None else self._find(message)
        if place is None or self._place < self._change.places:
            return
        span = (place + 1, self._place)
        acts = read_acts(self._engine, self._key, "revert")
        if span[0] < span[1] and not any((act.tail, act.marker) == span for act in acts):
            self._change.revert(place)
            self.changed += 1

    def finish(self) -> SessionRow:
        """Write what is left; the session as it is now."""
        self._prune(self._marks)
        if self.changed or self.pruned:
            if not self._known:
                self._change.settled = 0
            self._change.event(
                events.IMPORTED,
                messages=self._change.places - self._known,
                marks=self.pruned,
                pivots=self.pivots,
            )
            self._change.finish(index=False)  # by who searches first
        return self._change.row_after()

    # --- messages ---

    def _remember(self, message: Message) -> None:
        for offset, part in enumerate(message.parts):
            if not isinstance(part, ToolPart):
                continue
            if part.call_id:
                self._calls[part.call_id] = (self._place, self._ordinal + offset)
                if len(self._calls) > _MOST_CALLS:
                    self._calls.popitem(last=False)
            state = part.state
            if isinstance(state, Completed) and state.time and state.time.compacted:
                self._marks[self._ordinal + offset] = state.time.compacted

    def _write(self, message: Message) -> None:
        if self._place >= self._known:
            self._change.append(message, message_sizes(message, self._count))
            self.changed += 1
            return
        held = next(self._stored)
        if held.message == message:
            return
        if not _goes_on(held.message, message, is_last=self._place == self._known - 1):
            raise BadInput(
                f"session {self._change.row.id} is in the store already, and is not the same "
                f"from message {self._place + 1} on; give it another id: --as ID"
            )
        self._put(held, message)

    def _put(self, held: Stored, message: Message) -> None:
        sizes = message_sizes(message, self._count)
        self._change.put(held.place, held.ordinal, held.message, message, sizes)
        self.changed += 1

    def _find(self, name: str, below: int | None = None) -> int | None:
        """Where the newest message of this id or handle stands, below a place."""
        end = key_at(self._key + 1, 0) if below is None else key_at(self._key, below)
        rows = self._engine.read(
            "SELECT place FROM messages WHERE key >= ? AND key < ? AND id = ? "
            "ORDER BY key DESC LIMIT 1",
            (key_at(self._key, 0), end, clean(name)),
        )
        ordinal = ordinal_of(name)
        if not rows and ordinal is not None:
            rows = self._engine.read(
                "SELECT place FROM parts WHERE session = ? AND ordinal = ?", (self._key, ordinal)
            )
        return rows[0][0] if rows and (below is None or rows[0][0] < below) else None

    # --- acts ---

    def _prune(self, marks: dict[int, Number]) -> None:
        new = sorted(ordinal for ordinal in marks if ordinal not in self._marked)
        if new:
            self._change.prune(new, [marks[ordinal] for ordinal in new])
            self._marked.update(new)
            self.pruned += len(new)

    def _take_summary(self, place: int, info: AssistantInfo) -> None:
        marker = self._markers.get(info.parent_id or "")
        if marker is None or marker <= self._last_pivot or place < self._known:
            self._last_pivot = max(self._last_pivot, marker or -1)
            return
        held = read_messages(self._engine, self._key, marker, marker + 1, sized=False)[0]
        part = cast("CompactionPart", marker_part(held.message))
        undone = part.undone or None
        if undone is not None and not (isinstance(undone, int) and 0 < undone < _LATEST):
            return  # no time as we keep it: then its mark stays in the message
        if undone is None and not is_complete(info):
            return
        if undone is not None:
            self._put(held, unmarked(held.message))
        else:
            self._last_pivot = marker
            self.pivots += 1
        self._add_pivot(marker, place, part.tail_start_id or None, undone)

    def _add_pivot(
        self, marker: int, summary: int, tail_id: str | None, undone: int | None
    ) -> None:
        self._prune(self._marks)  # what was hidden by now, as far as messages tell it
        tail = self._find(tail_id, marker) if tail_id else None
        self._change.act(
            "pivot",
            self._requests.memory(marker if tail is None else tail),
            place=marker,
            marker=marker,
            summary=summary,
            tail=tail,
            tail_id=tail_id,
            undone=undone,
        )


def fill(engine: Engine, row: SessionRow, log: Log) -> None:
    """Write a log into a session that has nothing yet; the caller holds a transaction."""
    filling = Filling(engine, row, log.count)
    for message in marked_messages(log):
        filling.take(message)
    filling.finish()


def _stored(engine: Engine, row: SessionRow) -> Iterator[Stored]:
    for first in range(0, row.places, _CHUNK):
        end = min(first + _CHUNK, row.places)
        yield from read_messages(engine, row.key, first, end, sized=False)


def _marked(engine: Engine, row: SessionRow) -> set[int]:
    """Every part that was ever marked here: what was undone is not marked again."""
    rows = engine.read("SELECT marks FROM acts WHERE session = ? AND marks IS NOT NULL", (row.key,))
    return {ordinal for (marks,) in rows for ordinal in unpacked_marks(marks)}


def _goes_on(old: Message, new: Message, *, is_last: bool) -> bool:
    """Whether a message is a newer state of one: calls have results by now, the last more parts."""
    if old.id != new.id or type(old.info) is not type(new.info):
        return False
    if len(new.parts) < len(old.parts) or (len(new.parts) > len(old.parts) and not is_last):
        return False
    for before, after in zip(old.parts, new.parts, strict=False):
        if before == after:
            continue
        if not isinstance(before, ToolPart) or not isinstance(after, ToolPart):
            return False
        if has_result(before) or after.call_id != before.call_id:
            return False
    return True
