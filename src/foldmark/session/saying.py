"""Writing to a session: what the user says, what the model answers, what tools give back."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar, cast

from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.log.log import Entry, handle
from foldmark.model import events
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    FilePart,
    Message,
    Tokens,
    ToolPart,
    has_result,
    kind_of,
    with_part,
)
from foldmark.model.values import Json
from foldmark.store.transaction import Change
from foldmark.tokens.sizes import message_sizes
from foldmark.wire.codec import Answer, Reader, Wire, wire_named
from foldmark.wire.detect import recognised
from foldmark.wire.lists import take_list
from foldmark.wire.pairing import settled
from foldmark.wire.plain import plain_objects

from .reader import Looking
from .replies import answer_of, is_from_wire

M = TypeVar("M")


class Saying(Looking):
    """What adds to a session. Each call is one transaction."""

    def user(self, content: str | Sequence[AnyPart] | Message, **info: object) -> Message:
        """Say something as the user: a text, parts, or a whole message."""
        return self._append(self.maker.user(content, info))

    def record(
        self,
        reply: object,
        *,
        tokens: Tokens | None = None,
        finish: str | None = None,
        wire: str | None = None,
        **info: object,
    ) -> Message:
        """Record a model's answer: a provider's response, a text, parts, or a message.

        A response is an SDK's object or its JSON; what was measured is taken from it. Its wire is
        recognised, if it is not given.
        """
        usage = {"tokens": tokens, "finish": finish}
        given = {name: value for name, value in usage.items() if value is not None}
        if is_from_wire(reply):
            reply, told = answer_of(reply, wire, named=not self.model)
            given = told | given
        content = cast("str | Sequence[AnyPart] | Message", reply)
        return self._append(self.maker.assistant(content, {**info, **given}, self.model))

    def take(self, messages: Iterable[object], wire: str | None = None) -> list[Message]:
        """Take messages of a wire as they are sent and received: what is said, and results.

        All of them or none. A system prompt that leads a new session becomes the session's own.
        """
        given = plain_objects(messages)
        if not given:
            return []
        codec = wire_named(wire) if wire else recognised(given)
        return self._take(codec, given, lambda change: self._takes_prompt(change, codec))

    def take_read(self, messages: Sequence[M], reader: Reader[M]) -> list[Message]:
        """Take messages of a framework as they are, by who reads them; `take` otherwise.

        Its system prompts are messages like any other here: who has them shows them by themselves.
        """
        return self._take(reader, messages, lambda _: False) if messages else []

    def _take(
        self, codec: Reader[M], given: Sequence[M], prompts: Callable[[Change], bool]
    ) -> list[Message]:
        def job(change: Change) -> list[Message]:
            taken = take_list(codec, given, prompts=prompts(change))
            made = [self._made(message) for message in taken.messages]
            for answer in taken.answers:
                self._settle(change, answer.call_id, partial(_settled, answer, codec.key, change))
            for message in made:
                self._add(change, message, self.maker.checked(message))
            if taken.origin is not None:
                self._entitle(change, origin=taken.origin)
            return made

        return self._write(job)

    def _entitle(self, change: Change, **told: object) -> None:
        """Say something else of the session."""
        info = replace(change.row.info, **told)
        self._store.entitle(change.row, info)
        change.row = replace(change.row, info=info)

    def _takes_prompt(self, change: Change, codec: Wire) -> bool:
        """Whether a system prompt is the session's: it is new, and is sent the prompt again."""
        origin = change.row.info.origin
        return change.places == 0 and not origin and bool(codec.system("Be brief."))

    def _made(self, message: Message) -> Message:
        told: Json = {"wire": message.info.wire}
        if not isinstance(message.info, AssistantInfo):
            return self.maker.user(message.parts, told)
        told["tokens"] = message.info.tokens
        return self.maker.assistant(message.parts, told, self.model)

    def result(
        self,
        call_id: str,
        output: str,
        *,
        error: bool = False,
        files: Sequence[FilePart] = (),
        metadata: Json | None = None,
    ) -> Message:
        """Record what a call of a tool gave back, however late."""
        if not isinstance(output, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(f"an output is a text, not {type(output).__name__}")

        def done(part: AnyPart) -> ToolPart:
            assert isinstance(part, ToolPart)  # noqa: S101 - it was found as one
            return self.maker.settled(part, output, error=error, files=files, metadata=metadata)

        return self._write(lambda change: self._settle(change, call_id, done))

    def _settle(self, change: Change, call_id: str, done: Callable[[AnyPart], ToolPart]) -> Message:
        found = self._open_call(call_id)
        if found is None:
            return self._settle_folded(change, call_id, done)
        entry, offset = found
        part = done(entry.message.parts[offset])
        self.maker.checked(with_part(entry.message, offset, part))
        newer = self._log.settle(entry.ordinal + offset, part)
        sizes = self._kept_sizes(newer.message, newer.sizes)
        change.put(entry.index, entry.ordinal, entry.message, newer.message, sizes)
        self._tell_part(change, newer, offset)
        return newer.message

    def _settle_folded(
        self, change: Change, call_id: str, done: Callable[[AnyPart], ToolPart]
    ) -> Message:
        """A result whose call was folded meanwhile is put where it belongs: it can be recalled."""
        waiting: list[str] = []
        for held, offset in self._store.waiting(self._key, change.parts):
            part = held.message.parts[offset]
            name = call_name(part, held.ordinal + offset)
            if name != call_id or self._store.hidden(self._key, held.place):
                waiting.append(name)
                continue
            newer = with_part(held.message, offset, done(part))
            self.maker.checked(newer)
            sizes = message_sizes(newer, self._count)
            kept = self._kept_sizes(newer, sizes)
            change.put(held.place, held.ordinal, held.message, newer, kept)
            entry = Entry(message=newer, index=held.place, ordinal=held.ordinal, sizes=sizes)
            self._tell_part(change, entry, offset)
            return newer
        known = f"; these do: {', '.join(waiting[:5])}" if waiting else "; none does"
        raise BadInput(f"no call {call_id!r} waits for a result{known}")

    def update(self, message: Message) -> Message:
        """Put a newer state of the last message in its place, as a stream goes on."""

        def job(change: Change) -> Message:
            old = self._log.last
            if old is None or old.message.id != message.id or old.index + 1 != change.places:
                raise BadInput(f"only the last message can still change, not {message.id!r}")
            self.maker.checked(message)
            newer = self._log.replace(message)
            sizes = self._kept_sizes(message, newer.sizes)
            change.put(newer.index, newer.ordinal, old.message, message, sizes)
            change.event(events.MESSAGE_WRITTEN, **_told(newer))
            return message

        return self._write(job)

    def _append(self, message: Message) -> Message:
        data = self.maker.checked(message)
        return self._write(lambda change: self._add(change, message, data))

    def _add(self, change: Change, message: Message, data: bytes) -> Message:
        sizes = message_sizes(message, self._count)
        change.append(message, self._kept_sizes(message, sizes), data)
        entry = self._log.append(message, sizes)
        change.event(events.MESSAGE_WRITTEN, **_told(entry))
        for offset in range(len(sizes)):
            self._tell_part(change, entry, offset)
        return message

    def _tell_part(self, change: Change, entry: Entry, offset: int) -> None:
        part = entry.message.parts[offset]
        called = {"call": part.call_id} if isinstance(part, ToolPart) and part.call_id else {}
        change.event(
            events.PART_WRITTEN,
            handle=handle(entry.ordinal + offset),
            place=entry.index,
            kind=kind_of(part),
            tokens=entry.sizes[offset].total,
            **called,
        )

    def _open_call(self, call_id: str) -> tuple[Entry, int] | None:
        """The newest call of this id that is shown and waits for its result."""
        for entry in reversed(self._log.entries.values()):
            for offset, part in enumerate(entry.message.parts):
                if has_result(part) or not isinstance(part, ToolPart):
                    continue
                if call_name(part, entry.ordinal + offset) == call_id:
                    return entry, offset
        return None


def call_name(part: AnyPart, ordinal: int) -> str:
    """The id of a call; its handle where it has none."""
    return (part.call_id if isinstance(part, ToolPart) else "") or handle(ordinal)


def _settled(answer: Answer, key: str, change: Change, part: AnyPart) -> ToolPart:
    assert isinstance(part, ToolPart)  # noqa: S101 - it was found as one
    return settled(part, answer, key, change.at)


def _told(entry: Entry) -> Json:
    tokens = sum(size.total for size in entry.sizes)
    return {"message": entry.message.id, "place": entry.index, "tokens": tokens}
