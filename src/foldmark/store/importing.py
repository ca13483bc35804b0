"""Sessions written from elsewhere, message by message: new ones, and more of those that are there.

Marks and pivots are told by the messages; they become acts, so that they can be undone. A session
that is there already is compared as it is told again, and only what is new is written. Nothing is
held but a few messages that are written at once: a session may be larger than the memory.
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

from .encoding import clean, key_at, unpacked_marks
from .engine import Engine
from .loading import remembered
from .rows import SessionRow, is_hidden, read_acts, read_contents, read_messages
from .transaction import Change, New

_LATEST = 2**53  # milliseconds that a column, and JSON, hold exactly
_READ_AT_ONCE = 16  # messages
_WRITTEN_AT_ONCE, _MOST_BYTES = 64, 2**20
_MOST_CALLS = 50_000


class Diverged(BadInput):
    """A session that is in the store already, and went on there in another way."""


class SessionImport:
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
        self._new: list[New] = []  # messages that are still to be written
        self._bytes = 0  # of their JSON
        self._calls: OrderedDict[str, tuple[int, int]] = OrderedDict()  # place and ordinal
        self._waiting: set[int] = set()  # ordinals of calls without a result
        self._markers: dict[str, tuple[int, CompactionPart]] = {}
        self._last_pivot = -1
        self._marks: dict[int, Number] = {}  # told inside messages
        self._marked = _marked(engine, row.key)  # what was undone is not marked again
        self._marked_last = _marked(engine, row.key, f"AND place >= {row.places}")
        acts = read_acts(engine, row.key) if row.acts else []
        # What was done to it already, whatever has become of that.
        self._pivots = {(act.marker, act.summary) for act in acts if act.kind == "pivot"}
        self._reverts = {(act.tail, act.marker) for act in acts if act.kind == "revert"}
        self.changed = 0  # messages that are new, or newer than they were
        self.pruned = 0
        self.pivots = 0
        self.first_request = ""  # what the user asked for first

    def take(self, message: Message) -> None:
        """The next message, with its marks."""
        place = self._place
        is_marked = self._remember(message)
        self._write(unmarked(message) if is_marked else message)
        self._place += 1
        self._ordinal += len(message.parts)
        if message.is_user:
            if (part := marker_part(message)) is not None:
                self._markers[message.id] = (place, part)
            elif not self.first_request:
                first = Requests()
                first.take(0, 0, message)
                self.first_request = first.all[0].text if first.all else ""
        elif isinstance(message.info, AssistantInfo) and message.info.summary:
            self._take_summary(place, message.info)

    def settle(self, call: str, change: Callable[[ToolPart], ToolPart]) -> None:
        """A result that came after its message."""
        found = self._calls.get(call)
        if found is None:
            return
        self._flush()
        place, ordinal = found
        self._waiting.discard(ordinal)
        held = read_messages(self._engine, self._key, place, place + 1, sized=False)[0]
        part = held.message.parts[ordinal - held.ordinal]
        if isinstance(part, ToolPart) and not has_result(part):
            newer = with_part(held.message, ordinal - held.ordinal, change(part))
            self._put(held, newer)

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        """The outputs of these calls are hidden from now on; what has none is passed over."""
        if self._place < self._known:
            return  # it is told again
        found = {self._calls[call][1] for call in calls if call in self._calls}
        found -= self._waiting | _marked(self._engine, self._key, "AND reverted IS NULL")
        if self._place == self._known:
            found -= self._marked_last  # taken back at once, perhaps
        self._prune(dict.fromkeys(found, at or 1))

    def revert(self, message: str | None) -> None:
        """All after a message is taken back."""
        self._flush()
        if self._place < self._change.places:
            return  # it is told again
        place = -1 if message is None else self._find(message, self._place)
        if place is None:
            return
        hides = place + 1 < self._place or is_hidden(self._engine, self._key, place)
        if hides and (place + 1, self._place) not in self._reverts:
            self._change.revert(place)
            self.changed += 1

    @property
    def is_behind(self) -> bool:
        """Whether the store has more messages than were told."""
        return self._place < self._known

    def finish(self) -> SessionRow:
        """Write what is left; the session as it is now."""
        self._flush()
        self._prune_told()
        if not self.changed and not self.pruned:
            return self._change.row
        if self.is_behind:
            raise Diverged(
                f"session {self._change.row.id} went on in the store after message {self._place}, "
                "and here in another way; give it another id: --as ID"
            )
        self._change.event(
            events.IMPORTED,
            messages=self._change.places - self._known,
            marks=self.pruned,
            pivots=self.pivots,
        )
        self._change.finish(index=False)  # by who searches first
        return self._change.row

    # --- messages ---

    def _remember(self, message: Message) -> bool:
        """Note the calls of a message; whether any is marked as pruned."""
        is_marked = False
        for ordinal, part in enumerate(message.parts, self._ordinal):
            if not isinstance(part, ToolPart):
                continue
            if part.call_id:
                self._calls[part.call_id] = (self._place, ordinal)
                if len(self._calls) > _MOST_CALLS:
                    self._calls.popitem(last=False)
            state = part.state
            if not has_result(part):
                self._waiting.add(ordinal)
            elif isinstance(state, Completed) and state.time and state.time.compacted:
                self._marks[ordinal] = state.time.compacted
                is_marked = True
        return is_marked and not message.is_user

    def _write(self, message: Message) -> None:
        if self._place >= self._known:
            data = encode(message)
            self._new.append((message, message_sizes(message, self._count), data))
            self._bytes += len(data)
            self.changed += 1
            if len(self._new) >= _WRITTEN_AT_ONCE or self._bytes >= _MOST_BYTES:
                self._flush()
            return
        place, ordinal, known = next(self._stored)
        if known == encode(message):
            return
        held = Entry(index=place, ordinal=ordinal, message=decode_message(known), sizes=())
        newer = _newer(held.message, message, is_last=place == self._known - 1)
        if newer is None:
            raise Diverged(
                f"session {self._change.row.id} is in the store already, and is not the same "
                f"from message {place + 1} on; give it another id: --as ID"
            )
        if newer != held.message:
            self._put(held, newer)

    def _flush(self) -> None:
        if self._new:
            new, self._new, self._bytes = self._new, [], 0
            self._change.append_many(new)

    def _put(self, held: Entry, message: Message) -> None:
        newer = replace(held, message=message, sizes=message_sizes(message, self._count))
        older = replace(held, sizes=message_sizes(held.message, self._count))
        self._change.put(older, newer, encode(message))
        self.changed += 1

    def _find(self, name: str, below: int) -> int | None:
        """Where the newest message of this id or handle stands, below a place."""
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

    # --- acts ---

    def _prune_told(self) -> None:
        """What messages tell was done at a time that they do not tell: nothing is settled by it."""
        settled = self._change.settled
        self._prune({place: at for place, at in self._marks.items() if place not in self._marked})
        self._change.settled = settled

    def _prune(self, marks: dict[int, Number]) -> None:
        if marks:
            self._flush()
            ordinals = sorted(marks)
            self._change.prune(ordinals, [marks[ordinal] for ordinal in ordinals])
            self._marked.update(ordinals)
            self.pruned += len(ordinals)

    def _take_summary(self, place: int, info: AssistantInfo) -> None:
        marker, part = self._markers.get(info.parent_id or "", (-1, None))
        if part is None or marker <= self._last_pivot:
            return
        undone = part.undone or None
        if undone is not None and not (isinstance(undone, int) and 0 < undone < _LATEST):
            return  # no time as we keep it: then its mark stays in the message
        if undone is None:
            if not is_complete(info):
                return
            self._last_pivot = marker
        if (marker, place) in self._pivots:
            return  # whatever has become of it
        self._flush()
        if undone is None:
            self.pivots += 1
        else:
            held = read_messages(self._engine, self._key, marker, marker + 1, sized=False)[0]
            self._put(held, unmarked(held.message))
        self._add_pivot(marker, place, part.tail_start_id or None, undone)

    def _add_pivot(
        self, marker: int, summary: int, tail_id: str | None, undone: int | None
    ) -> None:
        self._prune_told()  # what was hidden by now, as far as messages tell it
        tail = self._find(tail_id, marker) if tail_id else None
        if tail is not None and is_hidden(self._engine, self._key, tail):
            tail = None
        start = marker if tail is None else tail
        self._change.act(
            "pivot",
            memory=remembered(self._engine, self._change.row, marker, start),
            place=marker,
            marker=marker,
            summary=summary,
            tail=tail,
            tail_id=tail_id,
            undone=undone,
        )


def _stored(engine: Engine, row: SessionRow) -> Iterator[tuple[int, int, bytes]]:
    for first in range(0, row.places, _READ_AT_ONCE):
        yield from read_contents(engine, row.key, first, min(first + _READ_AT_ONCE, row.places))


def _marked(engine: Engine, session: int, where: str = "") -> set[int]:
    """Every part that was ever marked, by any act or some."""
    sql = f"SELECT marks FROM acts WHERE session = ? AND marks IS NOT NULL {where}"  # noqa: S608
    rows = engine.read(sql, (session,))
    return {ordinal for (marks,) in rows for ordinal in unpacked_marks(marks)}


def _newer(old: Message, new: Message, *, is_last: bool) -> Message | None:
    """A message that is told again, as it is to be kept; None where it is another one.

    Calls may have their results by now, or be told without one that is here already and is told
    later; the last message may have more parts, and more words in them.
    """
    if old == new or old == unmarked(new):
        return old
    if old.id != new.id or type(old.info) is not type(new.info):
        return None
    if len(new.parts) < len(old.parts) or (len(new.parts) > len(old.parts) and not is_last):
        return None
    parts: list[AnyPart] = []
    for before, after in zip(old.parts, new.parts, strict=False):
        kept = after if is_last and _goes_on(before, after) else _newer_part(before, after)
        if kept is None:
            return None
        parts.append(kept)
    return replace(new, parts=(*parts, *new.parts[len(old.parts) :]))


def _goes_on(old: AnyPart, new: AnyPart) -> bool:
    """Whether a text was cut off when it was told before."""
    for kind in (TextPart, ReasoningPart):
        if isinstance(old, kind) and isinstance(new, kind):
            return new.text.startswith(old.text)
    return False


def _newer_part(old: AnyPart, new: AnyPart) -> AnyPart | None:
    if old == new:
        return old
    if not isinstance(old, ToolPart) or not isinstance(new, ToolPart):
        return None
    if old.call_id != new.call_id or old.tool != new.tool:
        return None
    if has_result(old):
        return None if has_result(new) else old
    return new
