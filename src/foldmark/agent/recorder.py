"""What a turn writes into its session: answers, whole or cut off, and what they did to files."""

import logging
from collections.abc import Sequence
from pathlib import Path as Folder
from typing import Any

from msgspec import UNSET

from foldmark.errors import FoldmarkError, StoreError
from foldmark.model import events
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Cache,
    Message,
    Path,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.operations import FileDiff
from foldmark.model.values import Json, summed
from foldmark.session.loop_support import LoopSupport
from foldmark.session.maker import Content
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import NoGit, Snapshots
from foldmark.summary.protocol import Stepped

from .step import StreamedAnswer
from .titles import first_words
from .tool_calls import DIED, Toolbox, begun, close_open

_log = logging.getLogger("foldmark")
START = "start"  # in a session's summary: the tree that its first turn found
MOST_TOLD = 500  # files that are noted by their names; of more, it is noted how many


class FolderSnapshots:
    """The snapshots of an agent's folder, if it has one; made when they are first needed."""

    def __init__(self, folder: Folder | None) -> None:
        """Take the folder."""
        self.folder = folder
        self._snapshots: Snapshots | None = None
        self._is_made = False

    def of(self, session: Session) -> Snapshots | None:
        """The snapshots, without the store of a session; None where none can be taken."""
        if self.folder is not None and not self._is_made:
            self._is_made = True
            try:
                self._snapshots = Snapshots(self.folder, leave_out=session.files)
            except NoGit as error:
                _log.warning("no snapshots are taken, files cannot be taken back: %s", error.cause)
        elif self._snapshots is not None:
            self._snapshots.leave_out(session.files)
        return self._snapshots


class TurnRecorder:
    """The record of one turn, and its figures so far. Its calls block."""

    def __init__(
        self, session: Session, name: str, tools: Toolbox, snapshots: FolderSnapshots
    ) -> None:
        """Take where it is written, the agent's name and tools, and its folder."""
        self._session = session
        self._support = LoopSupport(session)
        self._name = name
        self._tools = tools
        self._snapshots = snapshots
        self.steps = 0
        self.cost = 0.0
        self.tokens = Tokens(input=0, output=0, reasoning=0, cache=Cache(read=0, write=0))
        self.text = ""  # the model's last words
        self.asked: str | None = None  # the id of the user's message
        self.words = ""  # and what it says
        self._tree: str | None = None  # of the working folder, as it was seen last
        self._first: str | None = None  # the tree with which the turn began

    def begin(self) -> Message | None:
        """Close what an earlier process left open, and look at the folder; the newest message."""
        close_open(self._session, DIED)
        self._tree = self._first = self._take()
        last = self._support.newest()
        if last is not None and self._tree is not None and _is_unfinished(last):
            self._support.finish_step(last.id, self._tree)
        return last

    def say(self, said: Content) -> Message:
        """Write what the user says."""
        message = self._session.user(said, agent=self._name)
        if self.asked is None:
            self.asked, self.words = message.id, said_words(message.parts)
        return message

    def answer(self, answer: StreamedAnswer, stepped: Stepped) -> Message:
        """Write a whole answer, its calls as running."""
        if self._include(self._tools.named(stepped.calls)):
            self._tree = self._take() or self._tree  # it has what the step will write over
        now = self._support.maker.now()
        parts = [begun(p, now) if isinstance(p, ToolPart) else p for p in stepped.parts]
        finish = StepFinishPart(
            reason=stepped.finish,
            tokens=stepped.tokens or UNSET,
            cost=stepped.cost or 0,
            # Where files may change, the tree after that is noted when it is known.
            snapshot=UNSET if self._tools.may_change(stepped.calls) else self._tree or UNSET,
        )
        self.text = said_words(stepped.parts) or self.text
        self.cost += stepped.cost or 0.0
        self.tokens = summed([self.tokens, stepped.tokens or Tokens()])
        message = self._session.record(
            (*answer.retried, self._start(), *parts, finish),
            tokens=stepped.tokens,
            finish=stepped.finish,
            cost=stepped.cost or 0,
            **self._told(),
        )
        self._tell(message, stepped)
        return message

    def cut_off(self, answer: StreamedAnswer) -> None:
        """Write what was said of an answer until it was cut off, marked as that."""
        parts: tuple[AnyPart, ...] = answer.so_far
        if not parts:
            return
        error = {"name": "MessageAbortedError", "data": {"message": "stopped by the user"}}
        info: dict[str, Any] = {**self._told(), "error": error, "finish": UNSET}
        self.text = said_words(parts)
        self._session.record((self._start(), *parts), **info)

    def finish(self, message: Message, files: Sequence[str]) -> None:
        """Note how the folder is after the calls of an answer."""
        self._include(files)
        if tree := self._take():
            self._tree = tree
            self._support.finish_step(message.id, tree)

    def sum_up(self, name: str) -> tuple[str, ...]:
        """Note what the turn came to, under what the user said and for the session; the files."""
        title = name or first_words(self.words)
        diffs = self._changed(self._first) or ()
        if self.asked is not None:
            self._support.summarize_turn(self.asked, {"title": title, **_listed(diffs)})
        info = self._session.info.info
        summary = self._whole(info.summary or {})
        self._support.describe(title=title if title and not info.title else None, summary=summary)
        return tuple(diff.file for diff in diffs)

    def _whole(self, known: Json) -> Json | None:
        """What the session changed as a whole, and the tree that it began with; None: as it was."""
        start = known.get(START)
        if not isinstance(start, str):
            start = self._first
        elif self._first == self._tree:
            return None
        diffs = self._changed(start)
        if diffs is None:
            return None
        return {
            **known,
            START: start,
            "additions": sum(diff.additions for diff in diffs),
            "deletions": sum(diff.deletions for diff in diffs),
            "files": len(diffs),
        }

    def _changed(self, old: str | None) -> tuple[FileDiff, ...] | None:
        """What changed since a tree; None where that cannot be told: no reason to fail."""
        shots = self._snapshots.of(self._session)
        if shots is None or not old or not self._tree:
            return None
        try:
            return shots.diff(old, self._tree, texts=False) if old != self._tree else ()
        except FoldmarkError as error:  # it began on another machine, or somebody is in a hurry
            _log.warning("what was changed is not noted: %s", error)
            return None

    def _take(self) -> str | None:
        """The folder's tree as it is now; None where there is none to look at."""
        shots = self._snapshots.of(self._session)
        try:
            return shots.take() if shots is not None else None
        except StoreError as error:  # the work goes on; the next snapshot has what this one lacks
            _log.warning("no snapshot was taken: %s", error)
            return None

    def _include(self, paths: Sequence[str]) -> bool:
        """What a tool writes is remembered, even where other files like it are not."""
        shots = self._snapshots.of(self._session)
        return bool(shots is not None and paths and shots.include(paths))

    def _start(self) -> StepStartPart:
        return StepStartPart(snapshot=self._tree or UNSET)

    def _told(self) -> dict[str, Any]:
        folder = self._snapshots.folder
        told: dict[str, Any] = {"agent": self._name, "mode": self._name}
        if self.asked:
            told["parent_id"] = self.asked
        if folder is not None:
            told["path"] = Path(cwd=str(folder), root=str(folder))
        return told

    def _tell(self, message: Message, stepped: Stepped) -> None:
        tokens = stepped.tokens or Tokens()
        cache = tokens.cache or Cache()
        self._session.publish(
            events.STEP_FINISHED,
            step=self.steps,
            message=message.id,
            finish=stepped.finish,
            calls=len(stepped.calls),
            cost=self.cost,
            tokens={
                "input": tokens.input or 0,
                "output": tokens.output or 0,
                "cache_read": cache.read or 0,
                "cache_write": cache.write or 0,
            },
            used=self._session.tokens,
            usable=self._session.room,
        )


def _is_unfinished(message: Message) -> bool:
    """Whether a step may have changed files, and nobody noted how they were after it."""
    finish = [part for part in message.parts if isinstance(part, StepFinishPart)]
    return isinstance(message.info, AssistantInfo) and any(not part.snapshot for part in finish)


def said_words(parts: Sequence[AnyPart]) -> str:
    """The words among some parts."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)


def _listed(diffs: tuple[FileDiff, ...]) -> Json:
    """The files that changed: the first of them, and how many more there are."""
    told: Json = {
        "diffs": [
            {
                "file": diff.file,
                "additions": diff.additions,
                "deletions": diff.deletions,
                "status": diff.change,
            }
            for diff in diffs[:MOST_TOLD]
        ]
    }
    return {**told, "more": len(diffs) - MOST_TOLD} if len(diffs) > MOST_TOLD else told
