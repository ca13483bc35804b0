"""Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`, one event a line.

Facts of this format: an answer is spread over several lines that share `message.id`; its results
are lines of the user, with a larger copy for the screen beside them that the model never sees;
after a `compact_boundary` comes the summary as a line of the user; a prompt whose parent lies
before an earlier prompt takes that one back. Lines of subagents are sessions of their own.
"""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.messages import (
    AnyPart,
    Message,
    SessionInfo,
    TextPart,
    Time,
)
from foldmark.values import Json, encode
from foldmark.wire.anthropic import Anthropic, finish_of_stop, usage_tokens

from .format import Format, Opened, Pruned, Reverted, Step, Tally, decoder
from .making import assistant_message, folded, moment, note, user_message, with_info
from .source import Head
from .woven import Woven

_NAME = "claude-code"
_SYNTHETIC = "<synthetic>"  # the model of what the program itself says: an error, an interruption
_MOST_PARENTS = 20_000
_wire = Anthropic()


class ApiMessage(Struct, gc=False):
    """A message as the API has it."""

    role: str | UnsetType = UNSET
    content: Any = UNSET
    id: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    usage: Any = UNSET
    stop_reason: str | UnsetType | None = UNSET


class Line(Struct, gc=False, rename="camel"):
    """What matters of a line; its copies for the screen do not."""

    type: str
    subtype: str | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    parent_uuid: str | UnsetType | None = UNSET
    timestamp: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    is_sidechain: bool | UnsetType = UNSET
    is_meta: bool | UnsetType = UNSET
    is_compact_summary: bool | UnsetType = UNSET
    message: ApiMessage | UnsetType = UNSET
    compact_metadata: Json | UnsetType = UNSET
    microcompact_metadata: Json | UnsetType = UNSET
    attachment: Json | UnsetType = UNSET
    summary: Any = UNSET
    custom_title: str | UnsetType = UNSET


_decode = decoder(Line)


class ClaudeCode:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for lines that name no session."""
        self.decode = _decode
        self.tally = Tally()
        self._name = name
        self._threads: dict[str, _Thread] = {}
        self._now: _Thread | None = None
        self._title = ""

    def take(self, record: Line, line: int) -> Iterator[Step]:
        """What a line says."""
        del line
        if record.type in ("summary", "custom-title"):
            yield from self._entitle(record)
        elif record.type in ("user", "assistant", "attachment", "system"):
            if record.type in ("user", "assistant"):
                self.tally.messages += 1
            thread = self._thread(record)
            steps = list(thread.take(record))  # before any is told: it may turn out to be bad
            yield from self._switch(thread)
            yield from steps

    def end(self) -> Iterator[Step]:
        """What is held."""
        if self._now is not None:
            yield from self._now.end()

    def _entitle(self, record: Line) -> Iterator[Step]:
        """The newest title given by hand, else the first that the program gave."""
        given = record.custom_title or (record.summary if not self._title else "")
        if isinstance(given, str) and given:
            self._title = given
            if self._threads and (main := self._threads.get("")):
                main.info = replace(main.info, title=given)
                if self._now is main:
                    yield Opened(info=main.info)

    def _thread(self, record: Line) -> "_Thread":
        name = (record.agent_id or "subagent") if record.is_sidechain else ""
        if name not in self._threads:
            self._threads[name] = _Thread(self._info(record, name), self.tally)
        return self._threads[name]

    def _switch(self, thread: "_Thread") -> Iterator[Step]:
        if thread is not self._now:
            if self._now is not None:
                yield from self._now.end()
            self._now = thread
            yield Opened(info=thread.info)

    def _info(self, record: Line, name: str) -> SessionInfo:
        stem = Path(self._name).stem
        # A session that was resumed repeats lines of the one before, with that one's id.
        session = stem if _is_uuid(stem) and not name else record.session_id or stem
        at = moment(record.timestamp)
        return SessionInfo(
            id=f"{session}-{name}" if name else session,
            parent_id=session if name else UNSET,
            directory=record.cwd,
            version=record.version,
            title=(f"subagent {name}" if name else self._title) or UNSET,
            time=UNSET if at is None else Time(created=at, updated=at),
        )


class _Thread:
    """The lines of one conversation."""

    def __init__(self, info: SessionInfo, tally: Tally) -> None:
        self.info = info
        self._woven = Woven(_wire.key, tally)
        self._boundary: Line | None = None
        self._lines: OrderedDict[str, tuple[int, str | None]] = OrderedDict()
        self._count = 0
        self._prompt = 0  # the number of the newest prompt's line
        self._last: str | None = None  # the newest message's id
        self._model = ""

    def take(self, record: Line) -> Iterator[Step]:
        self._count += 1
        if record.type == "system":
            yield from self._system(record)
        elif record.type == "attachment":
            yield from self._add(user_message(self._id(record), _attached(record), _at(record)))
        elif record.message is UNSET:
            raise BadInput("the field 'message' is missing")
        elif record.type == "assistant":
            yield from self._answer(record, record.message)
        else:
            yield from self._said(record, record.message)
        self._remember(record)

    def end(self) -> Iterator[Step]:
        yield from self._woven.flush()

    # --- the user's lines ---

    def _said(self, record: Line, given: ApiMessage) -> Iterator[Step]:
        read = _wire.read({"role": "user", "content": given.content})
        at = _at(record)
        if record.is_compact_summary:
            yield from self._folded(record, read.parts)
            return
        if not read.answers and not record.is_meta:
            yield from self._taken_back(record)
        for answer in read.answers:
            yield from self._woven.answer(answer, at)
        if read.parts:
            parts = read.parts
            if record.is_meta:
                parts = tuple(_by_program(part) for part in parts)
            yield from self._add(user_message(self._id(record), parts, at))

    def _taken_back(self, record: Line) -> Iterator[Step]:
        """A prompt that was put in the place of an earlier one."""
        parent = self._lines.get(record.parent_uuid or "")
        if parent is not None and parent[0] < self._prompt:
            yield from self._woven.flush()
            yield Reverted(message=parent[1])
            self._last = parent[1]
        self._prompt = self._count

    # --- the model's lines ---

    def _answer(self, record: Line, given: ApiMessage) -> Iterator[Step]:
        read = _wire.read({"role": "assistant", "content": given.content})
        last = self._woven.last
        tokens = usage_tokens(given.usage)
        if last is not None and given.id and last.id == given.id and not last.is_user:
            parts = last.parts + read.parts
            finish = finish_of_stop(given.stop_reason, parts)
            told = {"finish": finish, "tokens": tokens} if tokens else {"finish": finish}
            self._woven.extend(with_info(replace(last, parts=parts), **told))
            return
        model = given.model or ""
        message = assistant_message(
            self._unique(given.id or self._id(record)),
            read.parts,
            _at(record),
            model=("anthropic", model) if model and model != _SYNTHETIC else ("", ""),
            tokens=tokens if model != _SYNTHETIC else None,
            finish=finish_of_stop(given.stop_reason, read.parts),
        )
        if model == _SYNTHETIC:
            # It was told to the user, never to the model.
            message = with_info(message, error={"name": "SyntheticMessage"})
        self._model = model
        yield from self._add(message)

    def _add(self, message: Message) -> Iterator[Step]:
        self._last = message.id
        yield from self._woven.add(message)

    # --- compactions ---

    def _system(self, record: Line) -> Iterator[Step]:
        if record.subtype == "compact_boundary":
            self._boundary = record
        elif record.subtype == "microcompact_boundary":
            told = record.microcompact_metadata or {}
            calls = told.get("compactedToolIds")
            yield from self._woven.flush()
            if isinstance(calls, list):
                names = tuple(str(call) for call in cast("list[object]", calls))
                yield Pruned(calls=names, at=_at(record))

    def _folded(self, record: Line, parts: tuple[AnyPart, ...]) -> Iterator[Step]:
        """The summary of a compaction; an older version writes it without its boundary."""
        boundary = self._boundary or record
        told = boundary.compact_metadata or {}
        self._boundary = None
        yield from self._woven.flush()
        pivot = folded(
            self._id(record),
            parts,
            _at(record),
            auto=told.get("trigger") == "auto",
            tail=self._tail(told),
            wire={_NAME: told} if told else None,
        )
        self._last = pivot[1].id
        yield from pivot

    def _tail(self, told: Json) -> str | None:
        """The message from which on all were kept, in newer versions."""
        for name, first in (("preservedSegment", "headUuid"), ("preservedMessages", "uuids")):
            held = told.get(name)
            found = cast("Json", held).get(first) if isinstance(held, dict) else None
            if isinstance(found, list):
                found = cast("list[object]", found)[0] if found else None
            if isinstance(found, str) and found in self._lines:
                return self._lines[found][1]
        return None

    # --- names ---

    def _id(self, record: Line) -> str:
        return self._unique(record.uuid or f"line-{self._count}")

    def _unique(self, name: str) -> str:
        """An id once only: an answer may go on after something came between."""
        return name if name != self._last else f"{name}-{self._count}"

    def _remember(self, record: Line) -> None:
        if record.uuid:
            self._lines[record.uuid] = (self._count, self._last)
            if len(self._lines) > _MOST_PARENTS:
                self._lines.popitem(last=False)


def _at(record: Line) -> int | None:
    return moment(record.timestamp)


def _by_program(part: AnyPart) -> AnyPart:
    return replace(part, synthetic=True) if isinstance(part, TextPart) else part


def _attached(record: Line) -> tuple[AnyPart, ...]:
    """What the program put into the context; a command that waited is the user's own."""
    held = record.attachment or {}
    prompt, content = held.get("prompt"), held.get("content")
    if isinstance(prompt, str) and held.get("type") == "queued_command":
        return (TextPart(text=prompt),)
    return (note(content if isinstance(content, str) else encode(held).decode()),)


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _recognises(head: Head) -> bool:
    return any(_is_line(line) for line in head.lines) and not any(
        "v" in line and "agent" in line for line in head.lines
    )


def _is_line(line: Json) -> bool:
    message = line.get("message")
    is_said = line.get("type") in ("user", "assistant") and isinstance(message, dict)
    return is_said and "uuid" in line and "sessionId" in line


FORMAT = Format(
    name=_NAME,
    about="Claude Code, ~/.claude/projects",
    recognises=_recognises,
    importer=ClaudeCode,
)
