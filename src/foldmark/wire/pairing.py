"""Join tool calls with their results as messages arrive.

An API list has a call and its result in two messages; our log has them in one part. Messages are
released in order, each once its calls have results. A message that waits too long is released
without them, and its result follows as a `LateResult`.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, Completed, Message, Number, Time, ToolPart, has_result
from foldmark.model.values import Frozen, Json

from .codec import RESULT, ReadResult

_MAX_PENDING = 8


class LateResult(Frozen):
    """A result whose call has been released already."""

    result: ReadResult
    key: str
    at: Number | None


class CallPairing:
    """Holds messages back until their calls have results."""

    def __init__(self, key: str, max_pending: int = _MAX_PENDING) -> None:
        """Take the codec's key, and how many messages to hold back at most."""
        self._key = key
        self._max_pending = max_pending
        self._pending: deque[Message] = deque()
        self._changed_parts: dict[int, list[AnyPart]] = {}  # changed parts by message number
        self._first = 0  # the number of the first pending message
        self._open: dict[str, tuple[int, int]] = {}  # message and part of each open call id
        self._open_counts: dict[int, int] = {}  # open calls by message number
        self._late_calls: set[str] = set()  # calls released without a result
        self.settled_calls: list[tuple[int, int]] = []  # in the order of the results

    @property
    def has_open_calls(self) -> bool:
        """Whether any call waits for its result."""
        return bool(self._open_counts)

    @property
    def last(self) -> Message | None:
        """The newest message, unless it has been released."""
        if not self._pending:
            return None
        newer = self._changed_parts.pop(self._last, None)
        if newer is not None:
            self._pending[-1] = replace(self._pending[-1], parts=tuple(newer))
        return self._pending[-1]

    @property
    def _last(self) -> int:
        return self._first + len(self._pending) - 1

    def add(self, message: Message) -> None:
        """Add a message, whose calls may get results from now on."""
        self._pending.append(message)
        self._await(message.parts, 0)

    def extend(self, message: Message) -> None:
        """Replace the last message by a newer state of it with more parts."""
        parts = self._changed_parts.pop(self._last, self._pending[-1].parts)
        self._pending[-1] = message
        self._await(message.parts, len(parts))

    def join(self, parts: Sequence[AnyPart]) -> None:
        """Add parts to the last message."""
        parts_so_far = self._parts(self._last)
        start = len(parts_so_far)
        parts_so_far += parts
        self._await(parts_so_far, start)

    def _parts(self, number: int) -> list[AnyPart]:
        """The parts of a message as a list to change, copied only once."""
        parts = self._changed_parts.get(number)
        if parts is None:
            parts = self._changed_parts[number] = list(self._pending[number - self._first].parts)
        return parts

    def _await(self, parts: Sequence[AnyPart], start: int) -> None:
        for offset in range(start, len(parts)):
            part = parts[offset]
            if isinstance(part, ToolPart) and part.call_id and not has_result(part):
                self._forget(part.call_id)
                number = self._last
                self._open[part.call_id] = (number, offset)
                self._open_counts[number] = self._open_counts.get(number, 0) + 1

    def _forget(self, call_id: str) -> None:
        """Close an open call whose id is used again: the id belongs to the newer call."""
        if call_id in self._open:
            self._close(self._open.pop(call_id)[0])

    def _close(self, number: int) -> None:
        self._open_counts[number] -= 1
        if not self._open_counts[number]:
            del self._open_counts[number]

    def settle(self, result: ReadResult, at: Number | None = None) -> bool | LateResult:
        """Store the result of a call; False if no such call is open."""
        location = self._open.pop(result.call_id, None)
        if location is None:
            if result.call_id not in self._late_calls:
                return False
            self._late_calls.discard(result.call_id)
            return LateResult(result=result, key=self._key, at=at)
        number, offset = location
        parts = self._parts(number)
        part = parts[offset]
        assert isinstance(part, ToolPart)  # noqa: S101 - only calls are open
        parts[offset] = settle_call(part, result, self._key, at)
        self._close(number)
        self.settled_calls.append(location)
        return True

    def pop_ready(self) -> Iterator[Message]:
        """Release messages that need not wait; the last one is kept, since it may be extended."""
        while len(self._pending) > 1:
            if self._first in self._open_counts and len(self._pending) <= self._max_pending:
                return
            yield self._release()

    def flush(self) -> list[Message]:
        """Release all pending messages."""
        return [self._release() for _ in range(len(self._pending))]

    def _release(self) -> Message:
        number = self._first
        message = self._pending.popleft()
        if number in self._changed_parts:
            message = replace(message, parts=tuple(self._changed_parts.pop(number)))
        if self._open_counts.pop(number, 0):
            calls = {part.call_id or "" for part in message.parts if isinstance(part, ToolPart)}
            late_calls = {call for call in calls if self._open.get(call, (-1,))[0] == number}
            for call in late_calls:
                del self._open[call]
            self._late_calls |= late_calls
        self._first += 1
        return message


def settle_call(part: ToolPart, result: ReadResult, key: str, at: Number | None) -> ToolPart:
    """The call with its result."""
    old = part.state
    time = old.time
    if at is not None:
        time = replace(old.time or Time(), end=at)
    metadata = old.metadata
    if result.is_error:
        metadata = {**(old.metadata or {}), "is_error": True}
    state = Completed(
        input=old.input,
        title=old.title,
        time=time,
        metadata=metadata,
        output=result.output,
        attachments=result.files or UNSET,
    )
    return replace(part, state=state, metadata=_with_result(part.metadata or {}, key, result.rest))


def _with_result(metadata: Json, key: str, rest: Json) -> Json:
    if not rest:
        return metadata or UNSET  # pyright: ignore[reportReturnType] - absent, as it was
    return {**metadata, key: {**(metadata.get(key) or {}), RESULT: rest}}
