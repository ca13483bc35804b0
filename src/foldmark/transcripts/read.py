"""Reads a transcript of any format, as steps or as whole sessions.

An unreadable line is an error that names it; a lenient reading skips the line and reports it.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.files import MAX_BYTES, encoding_error, explain_json_error, printable
from foldmark.model.messages import (
    AnyPart,
    Completed,
    Message,
    Number,
    Origin,
    SessionInfo,
    Time,
    ToolPart,
    Transcript,
    has_result,
    with_part,
)
from foldmark.model.values import Extra, Frozen
from foldmark.wire.pairing import LateResult, settle_call

from .build import Change, OutputsPruned, SessionOpened, SessionReverted, Step
from .format import Format, format_named, recognize_format
from .source import Record, Source, open_source

if TYPE_CHECKING:
    from foldmark.store.importing import SessionImport

OPENCODE = "opencode"
_UNFINISHED = "the file ends within this line; import it again once the line is complete"


class SkippedLine(Frozen):
    """A line that could not be read and was left out."""

    file: str
    line: int
    cause: str


class Reading:
    """A file being read in its format."""

    def __init__(self, source: Source, format: Format, *, lenient: bool) -> None:
        """Read an open source in this format; `lenient` skips unreadable lines."""
        self.source = source
        self.format = format
        self.skipped: list[SkippedLine] = []
        self._lenient = lenient
        self.reader = format(source.name)

    def steps(self) -> Iterator[Step]:
        """The content of the file; raises BadInput at an unreadable line, unless lenient."""
        for record in self.source.records():
            try:
                steps = self._steps_of(record)
            except BadInput as error:
                self._handle_unreadable(record, error)
                continue
            yield from steps
        yield from self.reader.final_steps()
        if self.source.unfinished is not None:
            self._skip(self.source.unfinished, _UNFINISHED)

    def _steps_of(self, record: Record) -> list[Step]:
        try:
            return self.reader.steps_of(record)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if type(self.reader).__module__.startswith("foldmark."):
                raise
            # A format of another package must not crash the program.
            cause = f"the format {self.format.name} cannot read it: {error!r}"
            raise BadInput(cause) from error

    def _handle_unreadable(self, record: Record, error: BadInput) -> None:
        problem = encoding_error(record.data) or explain_json_error(error)
        is_document = self.source.head.document is not None
        location = problem.location
        if not is_document or not location:
            location = _file_location(record, location)
        if not self._lenient:
            hint = "" if is_document else "; --lenient skips such lines"
            raise BadInput(f"{problem.cause}{hint}", source=self.source.name, location=location)
        self._skip(record.line, problem.cause)

    def _skip(self, line: int, cause: str) -> None:
        self.skipped.append(SkippedLine(file=self.source.name, line=line, cause=cause))


def _file_location(record: Record, location: str | None) -> str:
    """The line in the file, and the location in it if known, of a location in a record."""
    inner = location or ""
    if inner.startswith("line "):
        number, comma, rest = inner.removeprefix("line ").partition(", ")
        if number.isdecimal():
            return f"line {int(number) + record.line - 1}{comma}{rest}"
    return f"line {record.line}, {inner}" if inner else f"line {record.line}"


@contextmanager
def open_reading(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    lenient: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Generator[Reading]:
    """Open a file for reading; its format is recognized by its content unless it is given."""
    requested = format_named(format) if format else None
    with open_source(path, max_bytes=max_bytes) as source:
        yield Reading(source, requested or recognize_format(source.head), lenient=lenient)


# --- whole sessions ------------------------------------------------------------------------


class SessionCollector:
    """Assembles whole sessions from steps."""

    def __init__(self, format: str) -> None:
        """Start without sessions, in the format of this name."""
        self._format = format
        self._sessions: dict[str, _SessionTree] = {}
        self._current = _SessionTree()

    def add(self, step: Step) -> None:
        """Apply a step to the session that was opened last."""
        if not isinstance(step, SessionOpened):
            apply_step(self._current, step)
            return
        self._current = self._sessions.setdefault(step.info.id, _SessionTree())
        self._current.info = with_origin(step.info, self._format)
        self._current.extra = step.extra or self._current.extra

    def transcripts(self) -> list[Transcript]:
        """The sessions so far."""
        return [
            Transcript(info=tree.info, messages=tuple(tree.visible_messages()), extra=tree.extra)
            for tree in self._sessions.values()
        ]


def apply_step(session: "_SessionTree | SessionImport", step: Change) -> None:
    """Apply a step to a session."""
    match step:
        case Message():
            session.add(step)
        case LateResult(result=answer, key=key, at=at):
            session.add_result(answer.call_id, lambda part: settle_call(part, answer, key, at))
        case OutputsPruned(calls=calls, at=at):
            session.prune(calls, at)
        case SessionReverted(message=message):
            session.revert(message)


class _SessionTree:
    """One session: its messages as a tree, whose current branch is visible."""

    def __init__(self) -> None:
        self.info = SessionInfo(id="")
        self.extra: Extra | UnsetType = UNSET
        self._messages: list[Message] = []
        self._calls: dict[str, tuple[int, int]] = {}  # newest call of each id: message, part
        self._last = _Node(None, None, {})
        self._nodes: dict[str | None, _Node] = {None: self._last}  # by message id

    def add(self, message: Message) -> None:
        index = len(self._messages)
        for offset, part in enumerate(message.parts):
            if isinstance(part, ToolPart) and part.call_id:
                self._calls[part.call_id] = (index, offset)
        self._messages.append(message)
        self._last = self._nodes[message.id] = _Node(self._last, index, {})

    def add_result(self, call: str, change: Callable[[ToolPart], ToolPart]) -> None:
        index, offset = self._calls.get(call, (0, -1))
        part = self._messages[index].parts[offset] if offset >= 0 else None
        if isinstance(part, ToolPart) and not has_result(part):
            self._messages[index] = with_part(self._messages[index], offset, change(part))

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        for index, offset in (self._calls[call] for call in calls if call in self._calls):
            if has_result(self._messages[index].parts[offset]):
                self._last.marks.setdefault((index, offset), at or 1)

    def revert(self, message: str | None) -> None:
        if message in self._nodes:  # it may be on another branch
            self._last = _Node(self._nodes[message], None, {})

    def visible_messages(self) -> list[Message]:
        messages, indexes = list(self._messages), list[int]()
        marks: dict[tuple[int, int], Number] = {}
        node: _Node | None = self._last
        while node is not None:
            marks |= node.marks  # an earlier mark overrides later ones
            indexes += [] if node.message is None else [node.message]
            node = node.parent
        for (index, offset), at in marks.items():
            part = _mark_pruned(messages[index].parts[offset], at)
            messages[index] = with_part(messages[index], offset, part)
        return [messages[index] for index in reversed(indexes)]


class _Node(NamedTuple):
    """A message, or a return to an earlier one, and the outputs pruned after it."""

    parent: "_Node | None"
    message: int | None  # its index
    marks: dict[tuple[int, int], Number]


def with_origin(info: SessionInfo, format: str) -> SessionInfo:
    """The info with its format as origin, unless that is OpenCode's, which is our own format."""
    if format == OPENCODE:
        return info
    return replace(info, origin=replace(info.origin or Origin(), format=format))


def _mark_pruned(part: AnyPart, at: Number) -> AnyPart:
    if not isinstance(part, ToolPart) or not isinstance(part.state, Completed):
        return part
    time = replace(part.state.time or Time(), compacted=at)
    return replace(part, state=replace(part.state, time=time))


class TranscriptFile(Frozen):
    """The content of a file: its sessions, and the numbers of its `Tally`."""

    format: str
    sessions: list[Transcript]
    messages: int
    calls: int
    results: int
    skipped: tuple[SkippedLine, ...]


def read_file(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    lenient: bool = False,
    max_bytes: int = MAX_BYTES,
) -> TranscriptFile:
    """Read all of a file of any format."""
    with open_reading(path, format=format, lenient=lenient, max_bytes=max_bytes) as reading:
        collector = SessionCollector(reading.format.name)
        for step in reading.steps():
            collector.add(step)
    tally = reading.reader.tally
    return TranscriptFile(
        format=reading.format.name,
        sessions=collector.transcripts(),
        messages=tally.messages,
        calls=tally.calls,
        results=tally.results,
        skipped=tuple(reading.skipped),
    )


def read_sessions(path: str | os.PathLike[str], *, format: str | None = None) -> list[Transcript]:
    """Read all sessions of a file."""
    return read_file(path, format=format).sessions


def read_transcript(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    pick: int | None = None,
    lenient: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Transcript:
    """Read one session from a file of any format; `-` is standard input.

    If the file has several sessions, `pick` is the number of one, from 1; by default it is the one
    with the most messages.
    """
    file = read_file(path, format=format, lenient=lenient, max_bytes=max_bytes)
    return file.sessions[pick_session(file, pick, os.fspath(path))]


def pick_session(file: TranscriptFile, pick: int | None, name: str) -> int:
    """The index of the session with the number `pick`, or of the one with the most messages."""
    sessions = file.sessions
    if not sessions:
        raise BadInput("there is no session in this file", source=printable(name))
    if pick is None:
        return max(range(len(sessions)), key=lambda index: len(sessions[index].messages))
    if not 1 <= pick <= len(sessions):
        count = "1 session" if len(sessions) == 1 else f"{len(sessions)} sessions"
        raise BadInput(f"it has {count}; there is no number {pick}", source=printable(name))
    return pick - 1
