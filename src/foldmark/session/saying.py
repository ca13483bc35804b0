"""Writing to a session: what the user says, what the model answers, what tools give back."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from msgspec import UNSET

from foldmark import events
from foldmark.errors import BadInput
from foldmark.io.change import Change
from foldmark.log import Entry, handle
from foldmark.messages import (
    AnyPart,
    FilePart,
    Message,
    Tokens,
    ToolPart,
    has_result,
    kind_of,
    with_part,
)
from foldmark.sizes import message_sizes
from foldmark.values import Json
from foldmark.wire import recognised, wire_named
from foldmark.wire.plain import plain_object

from .looking import Looking
from .replies import answer_of, is_from_wire


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
        """Take messages of a wire as they are sent and received: what is said, and results."""
        given = [plain_object(message) for message in messages]
        codec = wire_named(wire) if wire else recognised(given)
        taken: list[Message] = []
        for read in (codec.read(message) for message in given):
            for answer in read.answers:
                output = answer.output
                files = answer.files
                self.result(answer.call_id, output, error=answer.is_error, files=files)
            kept = {codec.key: read.rest} if read.rest else UNSET
            if read.role == "assistant":
                parts = self.maker.assistant(read.parts, {"wire": kept}, self.model)
                taken.append(self._append(parts))
            elif read.parts:
                taken.append(self._append(self.maker.user(read.parts, {"wire": kept})))
        return taken

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

        def job(change: Change) -> Message:
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

        return self._write(job)

    def _settle_folded(
        self, change: Change, call_id: str, done: Callable[[AnyPart], ToolPart]
    ) -> Message:
        """A result whose call was folded meanwhile is put where it belongs: it can be recalled."""
        waiting: list[str] = []
        for held, offset in self._store.waiting(self._key, change.parts):
            part = held.message.parts[offset]
            name = _call_name(part, held.ordinal + offset)
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

        def job(change: Change) -> Message:
            sizes = message_sizes(message, self._count)
            change.append(message, self._kept_sizes(message, sizes), data)
            entry = self._log.append(message, sizes)
            change.event(events.MESSAGE_WRITTEN, **_told(entry))
            for offset in range(len(sizes)):
                self._tell_part(change, entry, offset)
            return message

        return self._write(job)

    def _tell_part(self, change: Change, entry: Entry, offset: int) -> None:
        part = entry.message.parts[offset]
        change.event(
            events.PART_WRITTEN,
            handle=handle(entry.ordinal + offset),
            place=entry.index,
            kind=kind_of(part),
            tokens=entry.sizes[offset].total,
        )

    def _open_call(self, call_id: str) -> tuple[Entry, int] | None:
        """The newest call of this id that is shown and waits for its result."""
        for entry in reversed(self._log.entries.values()):
            for offset, part in enumerate(entry.message.parts):
                if has_result(part) or not isinstance(part, ToolPart):
                    continue
                if _call_name(part, entry.ordinal + offset) == call_id:
                    return entry, offset
        return None


def _call_name(part: AnyPart, ordinal: int) -> str:
    """The id of a call; its handle where it has none."""
    return (part.call_id if isinstance(part, ToolPart) else "") or handle(ordinal)


def _told(entry: Entry) -> Json:
    tokens = sum(size.total for size in entry.sizes)
    return {"message": entry.message.id, "place": entry.index, "tokens": tokens}
