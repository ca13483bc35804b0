"""The part that most importers share: messages in their order, results with their calls."""

from collections.abc import Iterator

from foldmark.model.messages import Message, Number, ToolPart, has_result
from foldmark.wire.codec import Answer
from foldmark.wire.lists import orphan
from foldmark.wire.pairing import Weaver

from .build import Step, Tally, user_message


class Woven:
    """Takes messages and results as they come, and counts them."""

    def __init__(self, key: str, tally: Tally) -> None:
        """Take the key under which the codec keeps its own, and where to count."""
        self._key = key
        self._tally = tally
        self._weaver = Weaver(key)
        self._orphans = 0

    @property
    def last(self) -> Message | None:
        """The newest message, while more may be added to it."""
        return self._weaver.last

    def add(self, message: Message) -> Iterator[Step]:
        """A message; its calls may be answered from now on."""
        self._count(message, 0)
        self._weaver.add(message)
        yield from self._weaver.ready()

    def extend(self, message: Message) -> None:
        """A newer state of the last message, with more parts."""
        self._count(message, len(self._weaver.last.parts) if self._weaver.last else 0)
        self._weaver.extend(message)

    def _count(self, message: Message, start: int) -> None:
        calls = [part for part in message.parts[start:] if isinstance(part, ToolPart)]
        self._tally.calls += len(calls)
        self._tally.results += sum(has_result(part) for part in calls)

    def answer(self, answer: Answer, at: Number | None) -> Iterator[Step]:
        """The result of a call; one without a call is a text of its own."""
        self._tally.results += 1
        found = self._weaver.answer(answer, at)
        if found is False:
            self._orphans += 1
            name = f"{answer.call_id or 'call'}-result-{self._orphans}"
            self._weaver.add(user_message(name, (orphan(answer, self._key),), at))
        elif found is not True:
            yield found
        yield from self._weaver.ready()

    def flush(self) -> Iterator[Step]:
        """All that is held, answered or not."""
        yield from self._weaver.rest()
