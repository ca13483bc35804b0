"""Writing to a session: what the user says, what the model answers, what tools give back."""

from collections.abc import Sequence

from foldmark import events
from foldmark.errors import BadInput
from foldmark.io.change import Change
from foldmark.log import Entry, handle
from foldmark.messages import (
    AnyPart,
    Completed,
    Failed,
    FilePart,
    Message,
    Tokens,
    ToolPart,
    kind_of,
)
from foldmark.sizes import message_sizes
from foldmark.values import Json

from .looking import Looking


class Saying(Looking):
    """What adds to a session. Each call is one transaction."""

    def user(self, content: str | Sequence[AnyPart] | Message, **info: object) -> Message:
        """Say something as the user: a text, parts, or a whole message."""
        return self._append(self.maker.user(content, info))

    def record(
        self,
        reply: str | Sequence[AnyPart] | Message,
        *,
        tokens: Tokens | None = None,
        finish: str | None = None,
        **info: object,
    ) -> Message:
        """Record a model's answer: a text, parts (calls of tools among them), or a message."""
        usage = {"tokens": tokens, "finish": finish}
        given = {name: value for name, value in usage.items() if value is not None}
        return self._append(self.maker.assistant(reply, {**info, **given}, self.model))

    def result(
        self,
        call_id: str,
        output: str,
        *,
        error: bool = False,
        files: Sequence[FilePart] = (),
        metadata: Json | None = None,
    ) -> Message:
        """Record what a call of a tool gave back."""

        def job(change: Change) -> Message:
            entry, offset = self._open_call(call_id)
            part = entry.message.parts[offset]
            assert isinstance(part, ToolPart)  # noqa: S101 - `_open_call` found it so
            done = self.maker.settled(part, output, error=error, files=files, metadata=metadata)
            newer = self._log.settle(entry.ordinal + offset, done)
            sizes = self._kept_sizes(newer.message, newer.sizes)
            change.put(entry.index, entry.ordinal, entry.message, newer.message, sizes)
            self._tell_part(change, newer, offset)
            return newer.message

        return self._write(job)

    def update(self, message: Message) -> Message:
        """Put a newer state of the last message in its place, as a stream goes on."""

        def job(change: Change) -> Message:
            old = self._log.last
            if old is None or old.message.id != message.id or old.index + 1 != change.places:
                raise BadInput(f"only the last message can still change, not {message.id!r}")
            newer = self._log.replace(message)
            sizes = self._kept_sizes(message, newer.sizes)
            change.put(newer.index, newer.ordinal, old.message, message, sizes)
            change.event(events.MESSAGE_WRITTEN, **_told(newer))
            return message

        return self._write(job)

    def _append(self, message: Message) -> Message:
        def job(change: Change) -> Message:
            sizes = message_sizes(message, self._count)
            change.append(message, self._kept_sizes(message, sizes))
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

    def _open_call(self, call_id: str) -> tuple[Entry, int]:
        """The newest call of this id that waits for its result."""
        waiting: list[str] = []
        for entry in reversed(self._log.entries.values()):
            for offset, part in enumerate(entry.message.parts):
                if not isinstance(part, ToolPart):
                    continue
                name = part.call_id or handle(entry.ordinal + offset)
                if isinstance(part.state, Completed | Failed):
                    continue
                if name == call_id:
                    return entry, offset
                waiting.append(name)
        known = f"; these do: {', '.join(waiting[:5])}" if waiting else "; none does"
        raise BadInput(f"no call {call_id!r} waits for a result{known}")


def _told(entry: Entry) -> Json:
    tokens = sum(size.total for size in entry.sizes)
    return {"message": entry.message.id, "place": entry.index, "tokens": tokens}
