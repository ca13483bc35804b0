"""Reading a transcript of any format: as steps, or whole.

Says which line is wrong, and goes on after it only where that is wanted.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.files import MOST_BYTES, harmless, in_plain_words, text_problem
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
from foldmark.wire.pairing import Late, settled

from .build import Opened, Pruned, Reverted, Step
from .format import Format, format_named, recognised
from .source import Record, Source, opened_source

if TYPE_CHECKING:
    from foldmark.store.importing import SessionImport

OPENCODE = "opencode"
_UNFINISHED = "the file ends within it; it is taken once it is written to its end"


class Skipped(Frozen):
    """A record that could not be read, and was left out."""

    file: str
    line: int
    cause: str


class Reading:
    """A file being read in its format."""

    def __init__(self, source: Source, format: Format, *, lenient: bool) -> None:
        """Take an open source, its format, and whether to go on after what cannot be read."""
        self.source = source
        self.format = format
        self.skipped: list[Skipped] = []
        self._lenient = lenient
        self.importer = format(source.name)  # its tally counts

    def steps(self) -> Iterator[Step]:
        """What the file says."""
        for record in self.source.records():
            try:
                steps = self._taken(record)
            except BadInput as error:
                self._skip(record, error)
                continue
            yield from steps
        yield from self.importer.end()
        if self.source.unfinished is not None:
            self._leave_out(self.source.unfinished, _UNFINISHED)

    def _taken(self, record: Record) -> list[Step]:
        try:
            return self.importer.take(record)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if type(self.importer).__module__.startswith("foldmark."):
                raise
            # An importer of another's making must not take the program down.
            cause = f"the format {self.format.name} cannot read it: {error!r}"
            raise BadInput(cause) from error

    def _skip(self, record: Record, error: BadInput) -> None:
        told = text_problem(record.data) or in_plain_words(error)
        alone = self.source.head.document is not None
        line = told.place if alone and told.place else _line(record, told.place)
        if not self._lenient:
            hint = "" if alone else "; --lenient leaves such lines out"
            raise BadInput(f"{told.cause}{hint}", source=self.source.name, place=line)
        self._leave_out(record.line, told.cause)

    def _leave_out(self, line: int, cause: str) -> None:
        self.skipped.append(Skipped(file=self.source.name, line=line, cause=cause))


def _line(record: Record, place: str | None) -> str:
    """Where it is: the line of the file, and where in it, as far as that is known."""
    whole = place or ""
    if whole.startswith("line "):
        number, found, more = whole.removeprefix("line ").partition(", ")
        if number.isdecimal():
            return f"line {int(number) + record.line - 1}{found}{more}"
    return f"line {record.line}, {whole}" if whole else f"line {record.line}"


@contextmanager
def opened_reading(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    lenient: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Generator[Reading]:
    """A file to be read, its format recognised from its content where none is given."""
    named = format_named(format) if format else None
    with opened_source(path, most_bytes=most_bytes) as source:
        yield Reading(source, named or recognised(source.head), lenient=lenient)


# --- whole sessions ------------------------------------------------------------------------


class Sessions:
    """Puts steps together to whole sessions."""

    def __init__(self, format: str) -> None:
        """Take the format's name."""
        self._format = format
        self._all: dict[str, _Branch] = {}
        self._now = _Branch()

    def take(self, step: Step) -> None:
        """Take one step."""
        if not isinstance(step, Opened):
            tell(self._now, step)
            return
        self._now = self._all.setdefault(step.info.id, _Branch())
        self._now.info = with_origin(step.info, self._format)
        self._now.extra = step.extra or self._now.extra

    def transcripts(self) -> list[Transcript]:
        """The sessions so far."""
        return [
            Transcript(info=held.info, messages=tuple(held.shown()), extra=held.extra)
            for held in self._all.values()
        ]


def tell(session: "_Branch | SessionImport", step: Message | Late | Pruned | Reverted) -> None:
    """Tell a session what happened in it."""
    match step:
        case Message():
            session.take(step)
        case Late(answer=answer, key=key, at=at):
            session.settle(answer.call_id, lambda part: settled(part, answer, key, at))
        case Pruned(calls=calls, at=at):
            session.prune(calls, at)
        case Reverted(message=message):
            session.revert(message)


class _Branch:
    """What was told of one session: messages in a tree, and the branch of it that is shown."""

    def __init__(self) -> None:
        self.info = SessionInfo(id="")
        self.extra: Extra | UnsetType = UNSET
        self._messages: list[Message] = []
        self._calls: dict[str, tuple[int, int]] = {}  # the newest of each id: message, part
        self._last = _Node(None, None, {})
        self._nodes: dict[str | None, _Node] = {None: self._last}  # by the ids of messages

    def take(self, message: Message) -> None:
        place = len(self._messages)
        for offset, part in enumerate(message.parts):
            if isinstance(part, ToolPart) and part.call_id:
                self._calls[part.call_id] = (place, offset)
        self._messages.append(message)
        self._last = self._nodes[message.id] = _Node(self._last, place, {})

    def settle(self, call: str, change: Callable[[ToolPart], ToolPart]) -> None:
        place, offset = self._calls.get(call, (0, -1))
        part = self._messages[place].parts[offset] if offset >= 0 else None
        if isinstance(part, ToolPart) and not has_result(part):
            self._messages[place] = with_part(self._messages[place], offset, change(part))

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        for place, offset in (self._calls[call] for call in calls if call in self._calls):
            if has_result(self._messages[place].parts[offset]):
                self._last.marks.setdefault((place, offset), at or 1)

    def revert(self, message: str | None) -> None:
        if message in self._nodes:  # which may be on another branch
            self._last = _Node(self._nodes[message], None, {})

    def shown(self) -> list[Message]:
        messages, places = list(self._messages), list[int]()
        marks: dict[tuple[int, int], Number] = {}
        node: _Node | None = self._last
        while node is not None:
            marks |= node.marks  # the first mark is the one that counts
            places += [] if node.place is None else [node.place]
            node = node.before
        for (place, offset), at in marks.items():
            part = _pruned(messages[place].parts[offset], at)
            messages[place] = with_part(messages[place], offset, part)
        return [messages[place] for place in reversed(places)]


class _Node(NamedTuple):
    """A message, or a return to one; and what was pruned after it."""

    before: "_Node | None"
    place: int | None
    marks: dict[tuple[int, int], Number]


def with_origin(info: SessionInfo, format: str) -> SessionInfo:
    """What is said of a session, and which format it came from; OpenCode's is our own."""
    if format == OPENCODE:
        return info
    return replace(info, origin=replace(info.origin or Origin(), format=format))


def _pruned(part: AnyPart, at: Number) -> AnyPart:
    if not isinstance(part, ToolPart) or not isinstance(part.state, Completed):
        return part
    time = replace(part.state.time or Time(), compacted=at)
    return replace(part, state=replace(part.state, time=time))


class ReadFile(Frozen):
    """All that a file says: its sessions, and its own count of what is in them."""

    format: str
    sessions: list[Transcript]
    messages: int
    calls: int
    results: int
    skipped: tuple[Skipped, ...]


def read_file(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    lenient: bool = False,
    most_bytes: int = MOST_BYTES,
) -> ReadFile:
    """A file of any format, whole."""
    with opened_reading(path, format=format, lenient=lenient, most_bytes=most_bytes) as reading:
        sessions = Sessions(reading.format.name)
        for step in reading.steps():
            sessions.take(step)
    tally = reading.importer.tally
    return ReadFile(
        format=reading.format.name,
        sessions=sessions.transcripts(),
        messages=tally.messages,
        calls=tally.calls,
        results=tally.results,
        skipped=tuple(reading.skipped),
    )


def read_sessions(path: str | os.PathLike[str], *, format: str | None = None) -> list[Transcript]:
    """All sessions of a file."""
    return read_file(path, format=format).sessions


def read_transcript(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    pick: int | None = None,
    lenient: bool = False,
    most_bytes: int = MOST_BYTES,
) -> Transcript:
    """The session in a file of any format; `-` is standard input.

    Of several sessions in one file it is the one that `pick` tells, counted from 1, or the one
    with the most messages.
    """
    read = read_file(path, format=format, lenient=lenient, most_bytes=most_bytes)
    return read.sessions[picked(read, pick, os.fspath(path))]


def picked(read: ReadFile, pick: int | None, name: str) -> int:
    """The place of the session that is meant, counted from 0."""
    found = read.sessions
    if not found:
        raise BadInput("there is no session in it", source=harmless(name))
    if pick is None:
        return max(range(len(found)), key=lambda place: len(found[place].messages))
    if not 1 <= pick <= len(found):
        held = "1 session" if len(found) == 1 else f"{len(found)} sessions"
        raise BadInput(f"it holds {held}; there is no number {pick}", source=harmless(name))
    return pick - 1
