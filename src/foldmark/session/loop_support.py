"""What a loop or an adapter around a session needs beyond the session's public methods."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import AssistantInfo, Message, StepFinishPart, UserInfo
from foldmark.model.operations import Operation
from foldmark.model.values import Json

from . import compactor, writer
from .message_builder import MessageBuilder
from .session import Session, open_beside, state_of


class LoopSupport:
    """The same session, as a loop or an adapter works with it."""

    def __init__(self, session: Session) -> None:
        """Take the session, which goes on being used by itself."""
        self._session = session
        self._state = state_of(session)

    @property
    def builder(self) -> MessageBuilder:
        """What gives messages of this session their ids and times."""
        return self._state.builder

    @property
    def asks_model(self) -> bool:
        """Whether a compaction asks a model; else it costs nothing."""
        return compactor.summarizer(self._state) is not None

    @contextmanager
    def turn(self) -> Generator[None]:
        """Hold the session for one turn; BadInput where another one is under way."""
        if not self._state.turn_lock.acquire(blocking=False):
            name = self._session.id
            raise BadInput(f"session {name} has a turn under way; say more to that, or wait")
        try:
            yield
        finally:
            self._state.turn_lock.release()

    def acquire(self) -> None:
        """Keep others from writing until the session is released or closed.

        The first write does so by itself: this is for who must read before it, and be alone.
        """
        self._state.acquire()

    def newest(self) -> Message | None:
        """The newest message that is shown."""
        state = self._state
        with state.lock:
            state.refresh()
            return state.log.last.message if state.log.last else None

    def cost_of(self, operation: Operation) -> float:
        """The dollars that the summary of a pivot cost; nothing for other acts."""
        state = self._state
        entry = (
            None
            if operation.summary is None
            else state.store.message_at(state.key, operation.summary)
        )
        info = entry.message.info if entry else None
        return float(info.cost or 0) if isinstance(info, AssistantInfo) else 0.0

    def child(self, title: str = "") -> Session:
        """A new session in the same store for a part of the work of this one."""
        state = self._state
        info = self.builder.session_info(parent_id=state.id, title=title or UNSET)
        row = state.store.create(info, estimate=state.policy.estimate)
        return open_beside(self._session, row)

    # --- what is written ---

    def finish_step(self, message: str, snapshot: str) -> Message:
        """Note the snapshot with which the step of a message ended."""

        def with_snapshot(message_before: Message) -> Message:
            parts = tuple(
                replace(part, snapshot=snapshot) if isinstance(part, StepFinishPart) else part
                for part in message_before.parts
            )
            return replace(message_before, parts=parts)

        return writer.amend(self._state, message, with_snapshot)

    def summarize_turn(self, message: str, summary: Json) -> Message:
        """Note what came of a message of the user: its title, and the files that changed."""

        def with_summary(message_before: Message) -> Message:
            if not isinstance(message_before.info, UserInfo):
                raise BadInput(f"message {message!r} is not of the user")
            return replace(message_before, info=replace(message_before.info, summary=summary))

        return writer.amend(self._state, message, with_summary)

    def describe(
        self,
        *,
        title: str | None = None,
        summary: Json | None = None,
        directory: str | None = None,
    ) -> None:
        """Note the session's title, what it changed as a whole, and the folder it is about."""
        fields: Mapping[str, object] = {"title": title, "summary": summary, "directory": directory}
        changes = {name: value for name, value in fields.items() if value is not None}
        if changes:
            self._state.write(lambda change: writer.update_info(self._state, change, **changes))
