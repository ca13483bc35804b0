"""Write sessions from other programs message by message, and extend those already stored.

Prune marks and pivots found in messages become operations, so that they can be undone. A session
that is already stored is compared with the import, and only new content is written. Memory use
stays small: messages are written in batches, so a session may be larger than the memory.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.log.log import Entry, is_complete, marker_part, ordinal_of
from foldmark.log.marks import unmarked
from foldmark.log.user_requests import Requests
from foldmark.model import events
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    CompactionPart,
    Completed,
    Message,
    Number,
    ReasoningPart,
    TextPart,
    ToolPart,
    decode_message,
    has_result,
    with_part,
)
from foldmark.model.values import encode
from foldmark.tokens.counters import Counter
from foldmark.tokens.sizes import message_sizes

from .encoding import clean, key_at, unpack_marks
from .engine import Engine
from .loading import request_memory
from .rows import SessionRow, is_hidden, read_contents, read_messages, read_operations
from .transaction import Change, NewMessage

_MAX_TIME = 2**53  # milliseconds that a column and JSON hold exactly
_READ_AT_ONCE = 16  # messages
_MAX_BATCH, _MAX_BATCH_BYTES = 64, 2**20
_MAX_CALLS = 50_000


class SessionConflict(BadInput):
    """A stored session that differs from the one being imported."""


class SessionImport:
    """One session being written, inside the caller's transaction."""

    def __init__(self, engine: Engine, row: SessionRow, count: Counter) -> None:
        """Start at the first message of the session; `count` counts tokens."""
        self._engine = engine
        self._count = count
        self._change = Change(engine, row)
        self._key = row.key
        self._stored_count = row.places
        self._stored = _stored_contents(engine, row)
        self._index = 0
        self._ordinal = 0
        self._batch: list[NewMessage] = []  # messages not written yet
        self._batch_bytes = 0  # size of their JSON
        self._calls: OrderedDict[str, tuple[int, int]] = OrderedDict()  # index and ordinal
        self._open_calls: set[int] = set()  # ordinals of calls without a result yet
        self._markers: dict[str, tuple[int, CompactionPart]] = {}
        self._last_pivot = -1
        self._marks: dict[int, Number] = {}  # found in messages
        self._marked = _marked(engine, row.key)  # undone ones too
        self._marked_at_end = _marked(engine, row.key, f"AND place >= {row.places}")
        # All operations so far, undone or not.
        done = read_operations(engine, row.key) if row.acts else []
        self._pivots = {(each.marker, each.summary) for each in done if each.kind == "pivot"}
        self._reverts = {(each.tail, each.marker) for each in done if each.kind == "revert"}
        self.changed = 0  # new or updated messages
        self.pruned = 0
        self.pivots = 0
        self.first_request = ""  # text of the user's first request

    def add(self, message: Message) -> None:
        """Add the next message, with its prune marks."""
        index = self._index
        is_marked = self._record_calls(message)
        self._write(unmarked(message) if is_marked else message)
        self._index += 1
        self._ordinal += len(message.parts)
        if message.is_user:
            if (part := marker_part(message)) is not None:
                self._markers[message.id] = (index, part)
            elif not self.first_request:
                first = Requests()
                first.add_message(0, 0, message)
                self.first_request = first.all[0].text if first.all else ""
        elif isinstance(message.info, AssistantInfo) and message.info.summary:
            self._add_summary(index, message.info)

    def add_result(self, call: str, change: Callable[[ToolPart], ToolPart]) -> None:
        """Add a tool result that arrived after its message."""
        location = self._calls.get(call)
        if location is None:
            return
        self._flush()
        index, ordinal = location
        self._open_calls.discard(ordinal)
        entry = read_messages(self._engine, self._key, index, index + 1, sized=False)[0]
        part = entry.message.parts[ordinal - entry.ordinal]
        if isinstance(part, ToolPart) and not has_result(part):
            newer = with_part(entry.message, ordinal - entry.ordinal, change(part))
            self._put(entry, newer)

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        """Hide the outputs of these calls; calls without an output are ignored."""
        if self._index < self._stored_count:
            return  # imported before
        ordinals = {self._calls[call][1] for call in calls if call in self._calls}
        ordinals -= self._open_calls | _marked(self._engine, self._key, "AND reverted IS NULL")
        if self._index == self._stored_count:
            ordinals -= self._marked_at_end  # possibly undone right away
        self._prune(dict.fromkeys(ordinals, at or 1))

    def revert(self, message: str | None) -> None:
        """Revert to a message: hide everything after it."""
        self._flush()
        if self._index < self._change.places:
            return  # imported before
        index = -1 if message is None else self._find(message, self._index)
        if index is None:
            return
        hides = index + 1 < self._index or is_hidden(self._engine, self._key, index)
        if hides and (index + 1, self._index) not in self._reverts:
            self._change.revert(index)
            self.changed += 1

    @property
    def is_behind(self) -> bool:
        """Whether the store has more messages than the import so far."""
        return self._index < self._stored_count

    def finish(self) -> SessionRow:
        """Write the remaining messages and return the session's row."""
        self._flush()
        self._prune_marked()
        if not self.changed and not self.pruned:
            return self._change.row
        if self.is_behind:
            raise SessionConflict(
                f"session {self._change.row.id} in the store continues differently after message "
                f"{self._index}; import it under another id with --as ID"
            )
        self._change.add_event(
            events.IMPORTED,
            messages=self._change.places - self._stored_count,
            marks=self.pruned,
            pivots=self.pivots,
        )
        self._change.finish(index=False)  # the first search indexes it
        return self._change.row

    # --- messages ---

    def _record_calls(self, message: Message) -> bool:
        """Record the calls of a message; return whether any is marked as pruned."""
        is_marked = False
        for ordinal, part in enumerate(message.parts, self._ordinal):
            if not isinstance(part, ToolPart):
                continue
            if part.call_id:
                self._calls[part.call_id] = (self._index, ordinal)
                if len(self._calls) > _MAX_CALLS:
                    self._calls.popitem(last=False)
            state = part.state
            if not has_result(part):
                self._open_calls.add(ordinal)
            elif isinstance(state, Completed) and state.time and state.time.compacted:
                self._marks[ordinal] = state.time.compacted
                is_marked = True
        return is_marked and not message.is_user

    def _write(self, message: Message) -> None:
        if self._index >= self._stored_count:
            data = encode(message)
            self._batch.append((message, message_sizes(message, self._count), data))
            self._batch_bytes += len(data)
            self.changed += 1
            if len(self._batch) >= _MAX_BATCH or self._batch_bytes >= _MAX_BATCH_BYTES:
                self._flush()
            return
        index, ordinal, stored = next(self._stored)
        if stored == encode(message):
            return
        entry = Entry(index=index, ordinal=ordinal, message=decode_message(stored), sizes=())
        newer = _merge_message(entry.message, message, is_last=index == self._stored_count - 1)
        if newer is None:
            raise SessionConflict(
                f"session {self._change.row.id} in the store differs from message {index + 1} on; "
                "import it under another id with --as ID"
            )
        if newer != entry.message:
            self._put(entry, newer)

    def _flush(self) -> None:
        if self._batch:
            new, self._batch, self._batch_bytes = self._batch, [], 0
            self._change.append_many(new)

    def _put(self, entry: Entry, message: Message) -> None:
        newer = replace(entry, message=message, sizes=message_sizes(message, self._count))
        older = replace(entry, sizes=message_sizes(entry.message, self._count))
        self._change.put(older, newer, encode(message))
        self.changed += 1

    def _find(self, name: str, below: int) -> int | None:
        """The index of the newest message with this id or handle, below an index."""
        rows = self._engine.read(
            "SELECT place FROM messages WHERE key >= ? AND key < ? AND id = ? "
            "ORDER BY key DESC LIMIT 1",
            (key_at(self._key, 0), key_at(self._key, below), clean(name)),
        )
        ordinal = ordinal_of(name)
        if not rows and ordinal is not None:
            rows = self._engine.read(
                "SELECT place FROM parts WHERE session = ? AND ordinal = ?", (self._key, ordinal)
            )
        return rows[0][0] if rows and rows[0][0] < below else None

    # --- operations ---

    def _prune_marked(self) -> None:
        """Prune what messages mark. Their time is unknown, so `settled` does not change."""
        settled = self._change.settled
        self._prune({key: at for key, at in self._marks.items() if key not in self._marked})
        self._change.settled = settled

    def _prune(self, marks: dict[int, Number]) -> None:
        if marks:
            self._flush()
            ordinals = sorted(marks)
            self._change.prune(ordinals, [marks[ordinal] for ordinal in ordinals])
            self._marked.update(ordinals)
            self.pruned += len(ordinals)

    def _add_summary(self, index: int, info: AssistantInfo) -> None:
        marker, part = self._markers.get(info.parent_id or "", (-1, None))
        if part is None or marker <= self._last_pivot:
            return
        undone = part.undone or None
        if undone is not None and not (isinstance(undone, int) and 0 < undone < _MAX_TIME):
            return  # not a valid time: the mark stays in the message
        if undone is None:
            if not is_complete(info):
                return
            self._last_pivot = marker
        if (marker, index) in self._pivots:
            return  # undone or not
        self._flush()
        if undone is None:
            self.pivots += 1
        else:
            entry = read_messages(self._engine, self._key, marker, marker + 1, sized=False)[0]
            self._put(entry, unmarked(entry.message))
        self._add_pivot(marker, index, part.tail_start_id or None, undone)

    def _add_pivot(
        self, marker: int, summary: int, tail_id: str | None, undone: int | None
    ) -> None:
        self._prune_marked()  # marks found so far
        tail = self._find(tail_id, marker) if tail_id else None
        if tail is not None and is_hidden(self._engine, self._key, tail):
            tail = None
        start = marker if tail is None else tail
        self._change.add_operation(
            "pivot",
            memory=request_memory(self._engine, self._change.row, marker, start),
            place=marker,
            marker=marker,
            summary=summary,
            tail=tail,
            tail_id=tail_id,
            undone=undone,
        )


def _stored_contents(engine: Engine, row: SessionRow) -> Iterator[tuple[int, int, bytes]]:
    for first in range(0, row.places, _READ_AT_ONCE):
        yield from read_contents(engine, row.key, first, min(first + _READ_AT_ONCE, row.places))


def _marked(engine: Engine, session: int, where: str = "") -> set[int]:
    """The ordinals marked by any operation, or by those that match an SQL condition."""
    sql = f"SELECT marks FROM acts WHERE session = ? AND marks IS NOT NULL {where}"  # noqa: S608
    rows = engine.read(sql, (session,))
    return {ordinal for (marks,) in rows for ordinal in unpack_marks(marks)}


def _merge_message(old: Message, new: Message, *, is_last: bool) -> Message | None:
    """The message to store for one imported again, or None if the two differ.

    Calls may have gained results, or lack a stored result that is imported later. The last message
    may have gained parts, and its texts may have grown.
    """
    if old == new or old == unmarked(new):
        return old
    if old.id != new.id or type(old.info) is not type(new.info):
        return None
    if len(new.parts) < len(old.parts) or (len(new.parts) > len(old.parts) and not is_last):
        return None
    parts: list[AnyPart] = []
    for before, after in zip(old.parts, new.parts, strict=False):
        part = after if is_last and _continues(before, after) else _merge_part(before, after)
        if part is None:
            return None
        parts.append(part)
    return replace(new, parts=(*parts, *new.parts[len(old.parts) :]))


def _continues(old: AnyPart, new: AnyPart) -> bool:
    """Whether the new text extends one that was cut off when it was stored."""
    for kind in (TextPart, ReasoningPart):
        if isinstance(old, kind) and isinstance(new, kind):
            return new.text.startswith(old.text)
    return False


def _merge_part(old: AnyPart, new: AnyPart) -> AnyPart | None:
    if old == new:
        return old
    if not isinstance(old, ToolPart) or not isinstance(new, ToolPart):
        return None
    if old.call_id != new.call_id or old.tool != new.tool:
        return None
    if has_result(old):
        return None if has_result(new) else old
    return new
