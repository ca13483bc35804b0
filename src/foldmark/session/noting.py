"""What a loop around a session needs of it: calls left open, notes beside what was said, news.

Notes are what no model is shown: titles, what a turn changed, the snapshot with which a step
ended. So they may come later than the message that they stand in, whatever was said since.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.events import Event
from foldmark.model.messages import AssistantInfo, Message, StepFinishPart, ToolPart, UserInfo
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Frozen, Json
from foldmark.store.transaction import Change
from foldmark.summary.ladder import declared_tokens
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.sizes import message_sizes

from .saying import Saying, call_name


class OpenCall(Frozen):
    """A call of a tool that waits for its result."""

    call_id: str
    tool: str
    input: Json
    message: str  # the id of its message


class Noting(Saying):
    """What is told and noted beside the messages of a session."""

    def tell(self, kind: str, **data: object) -> None:
        """Tell subscribers of something that is not kept."""
        event = Event(number=0, session=self.id, kind=kind, at=self.maker.now(), data=data)
        self._bus.publish([event])

    def equip(
        self, *, system: str, tools: Iterable[Declared], summarizer: Summarizer | None = None
    ) -> None:
        """Take what requests hold beside the view, and who summarises if nobody else is set."""
        with self._lock:
            self.system, self.tools = system, tuple(tools)
            self.fixed = declared_tokens(self.system, self.tools, self._count)
            self._usual_summarizer = summarizer

    def open_calls(self) -> list[OpenCall]:
        """The calls that wait for their results, shown or folded, the oldest first."""
        with self._lock:
            self._fresh()
            waiting = self._store.waiting(self._key, self._log.parts)
            found = [
                _open_call(held.message, offset, held.ordinal)
                for held, offset in waiting
                if not self._store.hidden(self._key, held.place)
            ]
        return list(reversed(found))

    def newest(self) -> Message | None:
        """The newest message that is shown."""
        with self._lock:
            self._fresh()
            return self._log.last.message if self._log.last else None

    def cost_of(self, act: Operation) -> float:
        """The dollars that the summary of a pivot cost; nothing for other acts."""
        held = None if act.summary is None else self._store.message_at(self._key, act.summary)
        info = held.message.info if held else None
        return float(info.cost or 0) if isinstance(info, AssistantInfo) else 0.0

    def finish_step(self, message: str, snapshot: str) -> Message:
        """Note the snapshot with which the step of a message ended."""

        def finished(held: Message) -> Message:
            parts = tuple(
                replace(part, snapshot=snapshot) if isinstance(part, StepFinishPart) else part
                for part in held.parts
            )
            return replace(held, parts=parts)

        return self._write(lambda change: self._amend(change, message, finished))

    def summarise_turn(self, message: str, summary: Json) -> Message:
        """Note what came of a message of the user: its title, and the files that changed."""

        def noted(held: Message) -> Message:
            if not isinstance(held.info, UserInfo):
                raise BadInput(f"message {message!r} is not of the user")
            return replace(held, info=replace(held.info, summary=summary))

        return self._write(lambda change: self._amend(change, message, noted))

    def describe(
        self,
        *,
        title: str | None = None,
        summary: Json | None = None,
        directory: str | None = None,
    ) -> None:
        """Note the session's title, what it changed as a whole, and the folder it is about."""
        given: Mapping[str, object] = {"title": title, "summary": summary, "directory": directory}
        known = {name: value for name, value in given.items() if value is not None}
        if known:
            self._write(lambda change: self._entitle(change, **known))

    def _amend(self, change: Change, message: str, noted: Callable[[Message], Message]) -> Message:
        known = self._log.place(message)  # the store would look through the whole session
        place = self._place(message) if known is None else known
        entry = self._log.entries.get(place)
        if entry is None:  # folded
            held = self._store.message_at(self._key, place)
            if held is None:
                raise BadInput(f"there is no message {message!r} in session {self.id}")
            newer = noted(held.message)
            sizes = self._kept_sizes(newer, message_sizes(newer, self._count))
            change.put(place, held.ordinal, held.message, newer, sizes)
            return newer
        newer = noted(entry.message)
        self._log.amend(newer)
        change.put(place, entry.ordinal, entry.message, newer, self._kept_sizes(newer, entry.sizes))
        return newer


def _open_call(message: Message, offset: int, ordinal: int) -> OpenCall:
    part = message.parts[offset]
    assert isinstance(part, ToolPart)  # noqa: S101 - only calls are open
    return OpenCall(
        call_id=call_name(part, ordinal + offset),
        tool=part.tool,
        input=part.state.input or {},
        message=message.id,
    )
