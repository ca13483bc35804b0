"""Records a turn in its session: answers, whole or partial, and the files that they changed."""

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
from foldmark.model.values import Json, sum_fields
from foldmark.session.loop_support import LoopSupport
from foldmark.session.message_builder import Content
from foldmark.session.session import Session
from foldmark.snapshots.snapshots import NoGit, Snapshots
from foldmark.summary.protocol import StepReply

from .step import AnswerStream
from .titles import first_words
from .tool_calls import DIED, Toolbox, as_running, close_open_calls

_log = logging.getLogger("foldmark")
START = "start"  # key in a session's summary: the tree before its first turn
MAX_LISTED_FILES = 500  # files recorded by name; of the rest, only the number


class FolderSnapshots:
    """The snapshots of an agent's folder, if it has one; created on first use."""

    def __init__(self, folder: Folder | None) -> None:
        """Create the snapshots of a folder, or none."""
        self.folder = folder
        self._snapshots: Snapshots | None = None
        self._is_ready = False

    def of(self, session: Session) -> Snapshots | None:
        """The snapshots, leaving out a session's store; None if none can be taken."""
        if self.folder is not None and not self._is_ready:
            self._is_ready = True
            try:
                self._snapshots = Snapshots(self.folder, exclude=session.files)
            except NoGit as error:
                _log.warning("no snapshots: file changes cannot be reverted: %s", error.cause)
        elif self._snapshots is not None:
            self._snapshots.exclude(session.files)
        return self._snapshots


class TurnRecorder:
    """The record of one turn with its figures so far. Its methods block."""

    def __init__(
        self, session: Session, name: str, tools: Toolbox, snapshots: FolderSnapshots
    ) -> None:
        """Create a recorder for an agent's name, tools and folder."""
        self._session = session
        self._support = LoopSupport(session)
        self._name = name
        self._tools = tools
        self._snapshots = snapshots
        self.steps = 0
        self.cost = 0.0
        self.tokens = Tokens(input=0, output=0, reasoning=0, cache=Cache(read=0, write=0))
        self.text = ""  # the model's latest text
        self.request_id: str | None = None  # id of the user's message
        self.request_text = ""  # text of the user's message
        self._tree: str | None = None  # the newest snapshot of the folder
        self._first: str | None = None  # the snapshot before the turn

    def begin(self) -> Message | None:
        """Close calls of an ended process and take a snapshot; return the newest message."""
        close_open_calls(self._session, DIED)
        self._tree = self._first = self._take_snapshot()
        last = self._support.newest()
        if last is not None and self._tree is not None and _is_unfinished(last):
            self._support.finish_step(last.id, self._tree)
        return last

    def say(self, content: Content) -> Message:
        """Record a message of the user."""
        message = self._session.user(content, agent=self._name)
        if self.request_id is None:
            self.request_id, self.request_text = message.id, joined_text(message.parts)
        return message

    def answer(self, answer: AnswerStream, reply: StepReply) -> Message:
        """Record a complete answer with its calls as running."""
        if self._include(self._tools.named_paths(reply.calls)):
            # This tree includes what the step will overwrite.
            self._tree = self._take_snapshot() or self._tree
        now = self._support.builder.now()
        parts = [as_running(p, now) if isinstance(p, ToolPart) else p for p in reply.parts]
        finish = StepFinishPart(
            reason=reply.finish,
            tokens=reply.tokens or UNSET,
            cost=reply.cost or 0,
            # If files may change, the tree is added after the calls.
            snapshot=UNSET if self._tools.may_change(reply.calls) else self._tree or UNSET,
        )
        self.text = joined_text(reply.parts) or self.text
        self.cost += reply.cost or 0.0
        self.tokens = sum_fields([self.tokens, reply.tokens or Tokens()])
        message = self._session.record(
            (*answer.retries, self._start(), *parts, finish),
            tokens=reply.tokens,
            finish=reply.finish,
            cost=reply.cost or 0,
            **self._info_fields(),
        )
        self._publish_step(message, reply)
        return message

    def add_partial_answer(self, answer: AnswerStream) -> None:
        """Record an answer that was cut off, marked as aborted."""
        parts: tuple[AnyPart, ...] = answer.parts
        if not parts:
            return
        error = {"name": "MessageAbortedError", "data": {"message": "stopped by the user"}}
        info: dict[str, Any] = {**self._info_fields(), "error": error, "finish": UNSET}
        self.text = joined_text(parts)
        self._session.record((self._start(), *parts), **info)

    def finish(self, message: Message, files: Sequence[str]) -> None:
        """Record the folder's snapshot after the calls of an answer."""
        self._include(files)
        if tree := self._take_snapshot():
            self._tree = tree
            self._support.finish_step(message.id, tree)

    def record_changes(self, name: str) -> tuple[str, ...]:
        """Record title and file changes of the turn and the session; return the changed files."""
        title = name or first_words(self.request_text)
        diffs = self._diffs_since(self._first) or ()
        if self.request_id is not None:
            self._support.set_turn_summary(self.request_id, {"title": title, **_diff_list(diffs)})
        info = self._session.info.info
        summary = self._session_summary(info.summary or {})
        self._support.describe(title=title if title and not info.title else None, summary=summary)
        return tuple(diff.file for diff in diffs)

    def _session_summary(self, previous: Json) -> Json | None:
        """The session's file changes and its first tree; None if nothing changed."""
        start = previous.get(START)
        if not isinstance(start, str):
            start = self._first
        elif self._first == self._tree:
            return None
        diffs = self._diffs_since(start)
        if diffs is None:
            return None
        return {
            **previous,
            START: start,
            "additions": sum(diff.additions for diff in diffs),
            "deletions": sum(diff.deletions for diff in diffs),
            "files": len(diffs),
        }

    def _diffs_since(self, old: str | None) -> tuple[FileDiff, ...] | None:
        """The changes since a tree; None if they cannot be computed."""
        snapshots = self._snapshots.of(self._session)
        if snapshots is None or not old or not self._tree:
            return None
        try:
            return snapshots.diff(old, self._tree, texts=False) if old != self._tree else ()
        except FoldmarkError as error:  # the tree is on another machine, or the turn was stopped
            _log.warning("file changes are not recorded: %s", error)
            return None

    def _take_snapshot(self) -> str | None:
        """A new snapshot of the folder; None if there is no folder or it failed."""
        snapshots = self._snapshots.of(self._session)
        try:
            return snapshots.take() if snapshots is not None else None
        except StoreError as error:  # continue: the next snapshot includes these changes
            _log.warning("no snapshot was taken: %s", error)
            return None

    def _include(self, paths: Sequence[str]) -> bool:
        """Include files that a tool names, even if they are ignored; whether any was new."""
        snapshots = self._snapshots.of(self._session)
        return bool(snapshots is not None and paths and snapshots.include(paths))

    def _start(self) -> StepStartPart:
        return StepStartPart(snapshot=self._tree or UNSET)

    def _info_fields(self) -> dict[str, Any]:
        folder = self._snapshots.folder
        fields: dict[str, Any] = {"agent": self._name, "mode": self._name}
        if self.request_id:
            fields["parent_id"] = self.request_id
        if folder is not None:
            fields["path"] = Path(cwd=str(folder), root=str(folder))
        return fields

    def _publish_step(self, message: Message, reply: StepReply) -> None:
        tokens = reply.tokens or Tokens()
        cache = tokens.cache or Cache()
        self._session.publish(
            events.STEP_FINISHED,
            step=self.steps,
            message=message.id,
            finish=reply.finish,
            calls=len(reply.calls),
            cost=self.cost,
            tokens={
                "input": tokens.input or 0,
                "output": tokens.output or 0,
                "cache_read": cache.read or 0,
                "cache_write": cache.write or 0,
            },
            used=self._session.tokens,
            usable=self._session.usable,
        )


def _is_unfinished(message: Message) -> bool:
    """Whether a step may have changed files but has no snapshot after it."""
    finish = [part for part in message.parts if isinstance(part, StepFinishPart)]
    return isinstance(message.info, AssistantInfo) and any(not part.snapshot for part in finish)


def joined_text(parts: Sequence[AnyPart]) -> str:
    """The texts of some parts, joined."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart) and part.text)


def _diff_list(diffs: tuple[FileDiff, ...]) -> Json:
    """The first changed files, and the number of the rest."""
    listing: Json = {
        "diffs": [
            {
                "file": diff.file,
                "additions": diff.additions,
                "deletions": diff.deletions,
                "status": diff.change,
            }
            for diff in diffs[:MAX_LISTED_FILES]
        ]
    }
    more = len(diffs) - MAX_LISTED_FILES
    return {**listing, "more": more} if more > 0 else listing
