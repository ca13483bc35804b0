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
from .maker import Maker
from .session import Session, open_beside, state_of


class LoopSupport:
    """The same session, as a loop or an adapter works with it."""

    def __init__(self, session: Session) -> None:
        """Take the session, which goes on being used by itself."""
        self._session = session
        self._state = state_of(session)

    @property
    def maker(self) -> Maker:
        """What gives messages of this session their ids and times."""
        return self._state.maker

    @property
    def asks_model(self) -> bool:
        """Whether a compaction asks a model; else it costs nothing."""
        return compactor.summarizer(self._state) is not None

    @contextmanager
    def turn(self) -> Generator[None]:
        """Hold the session for one turn; BadInput where another one is under way."""
        if not self._state.at_work.acquire(blocking=False):
            name = self._session.id
            raise BadInput(f"session {name} has a turn under way; say more to that, or wait")
        try:
            yield
        finally:
            self._state.at_work.release()

    def acquire(self) -> None:
        """Keep others from writing until the session is released or closed.

        The first write does so by itself: this is for who must read before it, and be alone.
        """
        self._state.acquire()

    def newest(self) -> Message | None:
        """The newest message that is shown."""
        state = self._state
        with state.lock:
            state.fresh()
            return state.log.last.message if state.log.last else None

    def cost_of(self, act: Operation) -> float:
        """The dollars that the summary of a pivot cost; nothing for other acts."""
        state = self._state
        held = None if act.summary is None else state.store.message_at(state.key, act.summary)
        info = held.message.info if held else None
        return float(info.cost or 0) if isinstance(info, AssistantInfo) else 0.0

    def child(self, title: str = "") -> Session:
        """A new session in the same store for a part of the work of this one."""
        state = self._state
        info = self.maker.session_info(parent_id=state.id, title=title or UNSET)
        row = state.store.create(info, estimate=state.policy.estimate)
        return open_beside(self._session, row)

    # --- what is written ---

    def finish_step(self, message: str, snapshot: str) -> Message:
        """Note the snapshot with which the step of a message ended."""

        def finished(held: Message) -> Message:
            parts = tuple(
                replace(part, snapshot=snapshot) if isinstance(part, StepFinishPart) else part
                for part in held.parts
            )
            return replace(held, parts=parts)

        return writer.amend(self._state, message, finished)

    def summarize_turn(self, message: str, summary: Json) -> Message:
        """Note what came of a message of the user: its title, and the files that changed."""

        def noted(held: Message) -> Message:
            if not isinstance(held.info, UserInfo):
                raise BadInput(f"message {message!r} is not of the user")
            return replace(held, info=replace(held.info, summary=summary))

        return writer.amend(self._state, message, noted)

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
            self._state.write(lambda change: writer.entitle(self._state, change, **known))
