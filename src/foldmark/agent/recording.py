"""What a turn writes into its session: answers, whole or cut off, and what they did to files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from foldmark.model import events
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Cache,
    Message,
    Number,
    Path,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.session.maker import Content
from foldmark.session.session import Session
from foldmark.summary.ladder import added
from foldmark.summary.steps import Stepped

from .calls import begun
from .stepping import Answer
from .summing import summed_up
from .titles import first_words

if TYPE_CHECKING:
    from .agent import Agent


class Record:
    """The record of one turn, and its figures so far. Its calls block."""

    def __init__(self, agent: "Agent", session: Session) -> None:
        """Take who works, and where that is written."""
        self._agent = agent
        self._session = session
        self.steps = 0
        self.cost = 0.0
        self.tokens = Tokens(input=0, output=0, reasoning=0, cache=Cache(read=0, write=0))
        self.text = ""  # the model's last words
        self.asked: str | None = None  # the id of the user's message
        self.words = ""  # and what it says
        self._tree: str | None = None  # of the working folder, as it was seen last
        self._first: str | None = None  # the tree with which the turn began

    def begin(self, tree: str | None) -> None:
        """Take the tree of the folder as the turn finds it."""
        self._tree = self._first = tree

    def say(self, said: Content) -> Message:
        """Write what the user says."""
        message = self._session.user(said, agent=self._agent.name)
        if self.asked is None:
            self.asked, self.words = message.id, said_words(message.parts)
        return message

    def answer(self, answer: Answer, stepped: Stepped) -> Message:
        """Write a whole answer, its calls as running."""
        self._foresee(stepped.calls)
        now = self._session.maker.now()
        parts = [begun(p, now) if isinstance(p, ToolPart) else p for p in stepped.parts]
        finish = StepFinishPart(
            reason=stepped.finish,
            tokens=stepped.tokens or UNSET,
            cost=stepped.cost or 0,
            # Where files may change, the tree after that is noted when it is known.
            snapshot=UNSET if self._may_change(stepped.calls) else self._tree or UNSET,
        )
        self.text = said_words(stepped.parts) or self.text
        self.cost += stepped.cost or 0.0
        self.tokens = added(self.tokens, stepped.tokens) or self.tokens
        message = self._session.record(
            (*answer.retried, self._start(), *parts, finish),
            tokens=stepped.tokens,
            finish=stepped.finish,
            cost=stepped.cost or 0,
            **self._told(),
        )
        self._tell(message, stepped)
        return message

    def cut_off(self, answer: Answer) -> None:
        """Write what was said of an answer until it was cut off, marked as that."""
        parts: tuple[AnyPart, ...] = answer.so_far
        if not parts:
            return
        error = {"name": "MessageAbortedError", "data": {"message": "stopped by the user"}}
        info = {**self._told(), "error": error, "finish": UNSET}
        maker = self._session.maker
        message = maker.assistant((self._start(), *parts), info, self._session.model)
        self.text = said_words(parts)
        self._session.record(message)

    def finish(self, message: Message, files: Sequence[str]) -> None:
        """Note how the folder is after the calls of an answer."""
        self._include(files)
        tree = self._agent.snapshot(self._session)
        if tree is not None:
            self._tree = tree
            self._session.finish_step(message.id, tree)

    def sum_up(self, name: str) -> tuple[str, ...]:
        """Note what the turn came to; the files that it changed."""
        return summed_up(
            self._session,
            self._agent.snapshots(self._session),
            (self._first, self._tree),
            asked=self.asked,
            title=name or first_words(self.words),
        )

    def _may_change(self, parts: Sequence[ToolPart]) -> bool:
        return self._agent.hands.may_change(parts)

    def _foresee(self, parts: Sequence[ToolPart]) -> None:
        """Have in the tree, before a step begins to write, what is there of what it will write."""
        paths = self._agent.hands.named(parts)
        if self._include(paths):
            self._tree = self._agent.snapshot(self._session) or self._tree

    def _include(self, paths: Sequence[str]) -> bool:
        """What a tool writes is remembered, even where other files like it are not."""
        held = self._agent.snapshots(self._session)
        return bool(held is not None and paths and held.include(paths))

    def _start(self) -> StepStartPart:
        return StepStartPart(snapshot=self._tree or UNSET)

    def _told(self) -> dict[str, Any]:
        folder = self._agent.folder
        told: dict[str, Any] = {"agent": self._agent.name, "mode": self._agent.name}
        if self.asked:
            told["parent_id"] = self.asked
        if folder is not None:
            told["path"] = Path(cwd=str(folder), root=str(folder))
        return told

    def _tell(self, message: Message, stepped: Stepped) -> None:
        self._session.tell(
            events.STEP_FINISHED,
            step=self.steps,
            message=message.id,
            finish=stepped.finish,
            calls=len(stepped.calls),
            cost=self.cost,
            tokens=_figures(stepped.tokens),
            used=self._session.tokens,
            usable=self._session.room,
        )


def is_unfinished(message: Message) -> bool:
    """Whether a step may have changed files, and nobody noted how they were after it."""
    finish = [part for part in message.parts if isinstance(part, StepFinishPart)]
    return isinstance(message.info, AssistantInfo) and any(not part.snapshot for part in finish)


def said_words(parts: Sequence[AnyPart]) -> str:
    """The words among some parts."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)


def _figures(tokens: Tokens | None) -> dict[str, Number]:
    """What was measured, as plain figures."""
    cache = (tokens.cache if tokens else None) or Cache()
    return {
        "input": (tokens.input if tokens else None) or 0,
        "output": (tokens.output if tokens else None) or 0,
        "cache_read": cache.read or 0,
        "cache_write": cache.write or 0,
    }
