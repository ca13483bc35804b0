"""What an agent loop or an adapter needs beyond the public methods of a session."""

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
    """Additional methods of a session, for agent loops and adapters."""

    def __init__(self, session: Session) -> None:
        """Extend a session, which may still be used directly."""
        self._session = session
        self._state = state_of(session)

    @property
    def builder(self) -> MessageBuilder:
        """The builder of this session's messages."""
        return self._state.builder

    @property
    def asks_model(self) -> bool:
        """Whether a compaction calls a model; otherwise it costs nothing."""
        return compactor.summarizer(self._state) is not None

    @contextmanager
    def turn(self) -> Generator[None]:
        """Hold the session for one turn; raises BadInput if another turn is running."""
        if not self._state.turn_lock.acquire(blocking=False):
            name = self._session.id
            raise BadInput(f"session {name} is running a turn; wait, or send the text to that turn")
        try:
            yield
        finally:
            self._state.turn_lock.release()

    def acquire(self) -> None:
        """Keep others from writing until the session is released or closed.

        Writes do this themselves; call it to read something that must not change before a write.
        """
        self._state.acquire()

    def newest(self) -> Message | None:
        """The newest message in the view, or None."""
        state = self._state
        with state.lock:
            state.refresh()
            return state.log.last.message if state.log.last else None

    def cost_of(self, operation: Operation) -> float:
        """The cost of a pivot's summary in dollars, or 0 for other operations."""
        state, index = self._state, operation.summary
        entry = None if index is None else state.store.message_at(state.key, index)
        info = entry.message.info if entry else None
        return float(info.cost or 0) if isinstance(info, AssistantInfo) else 0.0

    def child(self, title: str = "") -> Session:
        """Create a session in the same store for a subtask of this one."""
        state = self._state
        info = self.builder.session_info(parent_id=state.id, title=title or UNSET)
        row = state.store.create(info, estimate=state.policy.estimate)
        return open_beside(self._session, row)

    # --- notes ---

    def finish_step(self, message: str, snapshot: str) -> Message:
        """Store the snapshot at the end of a message's step."""

        def with_snapshot(old: Message) -> Message:
            parts = tuple(
                replace(part, snapshot=snapshot) if isinstance(part, StepFinishPart) else part
                for part in old.parts
            )
            return replace(old, parts=parts)

        return writer.amend(self._state, message, with_snapshot)

    def set_turn_summary(self, message: str, summary: Json) -> Message:
        """Store the outcome of a user message: its title and the files that changed."""

        def with_summary(old: Message) -> Message:
            if not isinstance(old.info, UserInfo):
                raise BadInput(f"message {message!r} is not a user message")
            return replace(old, info=replace(old.info, summary=summary))

        return writer.amend(self._state, message, with_summary)

    def describe(
        self,
        *,
        title: str | None = None,
        summary: Json | None = None,
        directory: str | None = None,
    ) -> None:
        """Store the session's title, its changes as a whole, and its working directory."""
        fields: Mapping[str, object] = {"title": title, "summary": summary, "directory": directory}
        changes = {name: value for name, value in fields.items() if value is not None}
        if changes:
            self._state.write(lambda change: writer.update_info(self._state, change, **changes))
