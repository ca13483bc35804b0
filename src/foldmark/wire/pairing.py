"""Joins calls with their results, as messages come.

A wire tells a call and its result in two messages; here they are one part. Messages are handed
on in their order, each once its calls are answered; one that waits too long is handed on as it
is, and its result follows as `Late`.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import AnyPart, Completed, Message, Number, Time, ToolPart, has_result
from foldmark.model.values import Frozen, Json

from .codec import RESULT, Answer

_MOST_HELD = 8


class Late(Frozen):
    """A result whose call was handed on already."""

    answer: Answer
    key: str
    at: Number | None


class Weaver:
    """Holds messages back until their calls are answered."""

    def __init__(self, key: str, most: int = _MOST_HELD) -> None:
        """Take the codec's key, and how many to hold at most."""
        self._key = key
        self._most = most
        self._held: deque[Message] = deque()
        self._newer: dict[int, list[AnyPart]] = {}  # the parts of those that have changed
        self._first = 0  # the number of the first that is held
        self._open: dict[str, tuple[int, int]] = {}  # calls by their ids: message, part
        self._waiting: dict[int, int] = {}  # how many calls of a message are open
        self._handed_on: set[str] = set()  # calls that were not answered in time
        self.answered: list[tuple[int, int]] = []  # in the order in which results came

    @property
    def is_open(self) -> bool:
        """Whether any call waits for its result."""
        return bool(self._waiting)

    @property
    def last(self) -> Message | None:
        """The newest message, while it is held."""
        if not self._held:
            return None
        newer = self._newer.pop(self._last, None)
        if newer is not None:
            self._held[-1] = replace(self._held[-1], parts=tuple(newer))
        return self._held[-1]

    @property
    def _last(self) -> int:
        return self._first + len(self._held) - 1

    def add(self, message: Message) -> None:
        """A message; its calls may be answered from now on."""
        self._held.append(message)
        self._await(message.parts, 0)

    def extend(self, message: Message) -> None:
        """A newer state of the last message, with more parts."""
        parts = self._newer.pop(self._last, self._held[-1].parts)
        self._held[-1] = message
        self._await(message.parts, len(parts))

    def join(self, parts: Sequence[AnyPart]) -> None:
        """More parts of the last message."""
        held = self._parts(self._last)
        start = len(held)
        held += parts
        self._await(held, start)

    def _parts(self, number: int) -> list[AnyPart]:
        """The parts of a message, to be changed: many changes of a long one cost one copy."""
        found = self._newer.get(number)
        if found is None:
            found = self._newer[number] = list(self._held[number - self._first].parts)
        return found

    def _await(self, parts: Sequence[AnyPart], start: int) -> None:
        for offset in range(start, len(parts)):
            part = parts[offset]
            if isinstance(part, ToolPart) and part.call_id and not has_result(part):
                self._forget(part.call_id)
                number = self._last
                self._open[part.call_id] = (number, offset)
                self._waiting[number] = self._waiting.get(number, 0) + 1

    def _forget(self, call_id: str) -> None:
        """An id that is used again belongs to the newer call."""
        if call_id in self._open:
            self._close(self._open.pop(call_id)[0])

    def _close(self, number: int) -> None:
        self._waiting[number] -= 1
        if not self._waiting[number]:
            del self._waiting[number]

    def answer(self, answer: Answer, at: Number | None = None) -> bool | Late:
        """Give a call its result; False where there is no such call that waits."""
        place = self._open.pop(answer.call_id, None)
        if place is None:
            if answer.call_id not in self._handed_on:
                return False
            self._handed_on.discard(answer.call_id)
            return Late(answer=answer, key=self._key, at=at)
        number, offset = place
        parts = self._parts(number)
        part = parts[offset]
        assert isinstance(part, ToolPart)  # noqa: S101 - only calls are open
        parts[offset] = settled(part, answer, self._key, at)
        self._close(number)
        self.answered.append(place)
        return True

    def ready(self) -> Iterator[Message]:
        """Messages that need not wait any longer; the last one may still be extended."""
        while len(self._held) > 1:
            if self._first in self._waiting and len(self._held) <= self._most:
                return
            yield self._hand_on()

    def rest(self) -> list[Message]:
        """All that is held."""
        return [self._hand_on() for _ in range(len(self._held))]

    def _hand_on(self) -> Message:
        number = self._first
        message = self._held.popleft()
        if number in self._newer:
            message = replace(message, parts=tuple(self._newer.pop(number)))
        if self._waiting.pop(number, 0):
            calls = {part.call_id or "" for part in message.parts if isinstance(part, ToolPart)}
            late = {call for call in calls if self._open.get(call, (-1,))[0] == number}
            for call in late:
                del self._open[call]
            self._handed_on |= late
        self._first += 1
        return message


def settled(part: ToolPart, answer: Answer, key: str, at: Number | None) -> ToolPart:
    """A call with its result."""
    old = part.state
    time = old.time
    if at is not None:
        time = replace(old.time or Time(), end=at)
    metadata = old.metadata
    if answer.is_error:
        metadata = {**(old.metadata or {}), "is_error": True}
    state = Completed(
        input=old.input,
        title=old.title,
        time=time,
        metadata=metadata,
        output=answer.output,
        attachments=answer.files or UNSET,
    )
    return replace(part, state=state, metadata=_with_result(part.metadata or {}, key, answer.rest))


def _with_result(metadata: Json, key: str, rest: Json) -> Json:
    if not rest:
        return metadata or UNSET  # pyright: ignore[reportReturnType] - absent, as it was
    return {**metadata, key: {**(metadata.get(key) or {}), RESULT: rest}}
