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
from foldmark.model.messages import AnyPart, Message, SessionInfo, TextPart, Time
from foldmark.model.values import Json, encode
from foldmark.transcripts.build import (
    Opened,
    Pruned,
    Reverted,
    Step,
    Tally,
    assistant_message,
    decoder,
    folded,
    moment,
    note,
    user_message,
    with_info,
)
from foldmark.transcripts.format import Format
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.anthropic import Anthropic, finish_of_stop, usage_tokens

_NAME = "claude-code"
_NOTICES = (
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-stdout>",
    "[Request interrupted by user",
)
_SYNTHETIC = "<synthetic>"  # the model of what the program itself says: an error, an interruption
_MOST_LINES = 20_000  # that are remembered, as parents of later ones
_TAKEN = frozenset({"user", "assistant", "attachment", "system"})
_TITLES = ("summary", "ai-title", "custom-title")  # each counts for more than those before it
_wire = Anthropic()
Told = str | UnsetType | None


class ApiMessage(Struct, gc=False):
    """A message as the API has it."""

    content: Any = UNSET
    id: Told = UNSET
    model: Told = UNSET
    usage: Any = UNSET
    stop_reason: Any = UNSET


class Line(Struct, gc=False, rename="camel"):
    """What matters of a line; its copies for the screen do not."""

    type: str
    subtype: Told = UNSET
    uuid: Told = UNSET
    parent_uuid: Told = UNSET
    timestamp: Any = UNSET
    session_id: Told = UNSET
    cwd: Told = UNSET
    version: Told = UNSET
    agent_id: Told = UNSET
    is_sidechain: Any = UNSET
    is_meta: Any = UNSET
    is_compact_summary: Any = UNSET
    message: ApiMessage | UnsetType = UNSET
    compact_metadata: Any = UNSET
    microcompact_metadata: Any = UNSET
    attachment: Any = UNSET
    summary: Any = UNSET
    ai_title: Any = UNSET
    custom_title: Any = UNSET


class _Kind(Struct, gc=False):
    type: str
    uuid: Any = UNSET


_decode_line = decoder(Line)
_decode_kind = decoder(_Kind)


def _decode(data: bytes) -> Line:
    """A line; one of a kind that says nothing here may look as it likes."""
    try:
        return _decode_line(data)
    except BadInput:
        kind = _decode_kind(data)
        if kind.type in _TAKEN:
            raise
        return Line(type=kind.type, uuid=kind.uuid if isinstance(kind.uuid, str) else UNSET)


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
        self._rank: int = 0  # how much it counts

    def take(self, record: Line, line: int) -> Iterator[Step]:
        """What a line says."""
        del line
        if record.type in _TITLES:
            yield from self._entitle(record)
        elif record.type in _TAKEN:
            if record.type in ("user", "assistant"):
                self.tally.messages += 1
            thread = self._thread(record)
            steps = list(thread.take(record))  # before any is told: it may turn out to be bad
            yield from self._told(thread, steps)
        elif record.uuid and (thread := self._threads.get(_thread_name(record))):
            thread.remember(record)

    def end(self) -> Iterator[Step]:
        """What is held."""
        for thread in self._threads.values():
            if steps := list(thread.end()):
                yield from self._told(thread, steps)

    def _told(self, thread: "_Thread", steps: list[Step]) -> Iterator[Step]:
        """Steps of a conversation; which one it is, where that changes."""
        if thread is not self._now and (steps or not thread.is_told):
            self._now = thread
            thread.is_told = True
            yield Opened(info=thread.info)
        yield from steps

    def _entitle(self, record: Line) -> Iterator[Step]:
        """The newest title of those that count most; of summaries the first: many are of others."""
        given = (record.summary, record.ai_title, record.custom_title)
        rank = _TITLES.index(record.type) + 1
        title = given[rank - 1]
        if not isinstance(title, str) or not title or title == self._title:
            return
        if rank > self._rank or (rank == self._rank and rank > 1):
            self._title, self._rank = title, rank
            if main := self._threads.get(""):
                main.info = replace(main.info, title=title)
                self._now = None  # to tell it anew
                main.is_told = False
                yield from self._told(main, [])

    def _thread(self, record: Line) -> "_Thread":
        name = _thread_name(record)
        if name not in self._threads:
            self._threads[name] = _Thread(self._info(record, name), self.tally)
        return self._threads[name]

    def _info(self, record: Line, name: str) -> SessionInfo:
        stem = Path(self._name).stem
        # A session that was resumed repeats lines of the one before, with that one's id.
        session = stem if _is_uuid(stem) and not name else record.session_id or stem
        at = moment(record.timestamp)
        return SessionInfo(
            id=f"{session}-{name}" if name else session,
            parent_id=session if name else UNSET,
            directory=record.cwd or UNSET,
            version=record.version or UNSET,
            title=(f"subagent {name}" if name else self._title) or UNSET,
            time=UNSET if at is None else Time(created=at, updated=at),
        )


class _Thread:
    """The lines of one conversation."""

    def __init__(self, info: SessionInfo, tally: Tally) -> None:
        self.info = info
        self.is_told = False
        self._woven = Woven(_wire.key, tally)
        self._boundary: Line | None = None
        self._lines: OrderedDict[str, tuple[int, str | None]] = OrderedDict()
        self._count = 0
        self._prompt = 0  # the number of the newest prompt's line
        self._last: str | None = None  # the newest message's id
        self._answering: Told = None  # the same as the API has it, of an answer
        self._ids: OrderedDict[str, None] = OrderedDict()

    def take(self, record: Line) -> Iterator[Step]:
        self._count += 1
        if record.type == "system":
            yield from self._system(record)
        elif record.type == "attachment":
            if parts := _attached(record):
                yield from self._add(user_message(self._id(record), parts, _at(record)))
        elif record.message is UNSET:
            raise BadInput("the field 'message' is missing")
        elif record.type == "assistant":
            yield from self._answer(record, record.message)
        else:
            yield from self._said(record, record.message)
        self.remember(record)

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
            parts = tuple(
                _by_program(part) if record.is_meta or _is_notice(part) else part
                for part in read.parts
            )
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
        goes_on = given.id and given.id == self._answering
        if goes_on and last is not None and last.id == self._last and not last.is_user:
            parts = last.parts + read.parts
            finish = finish_of_stop(given.stop_reason, parts)
            told = {"finish": finish, "tokens": tokens} if tokens else {"finish": finish}
            self._woven.extend(with_info(replace(last, parts=parts), **told))
            return
        model = given.model or ""
        message = assistant_message(
            self._id(record, given.id),
            read.parts,
            _at(record),
            model=("anthropic", model) if model and model != _SYNTHETIC else ("", ""),
            tokens=tokens if model != _SYNTHETIC else None,
            finish=finish_of_stop(given.stop_reason, read.parts),
        )
        if model == _SYNTHETIC:
            # It was told to the user, never to the model.
            message = with_info(message, error={"name": "SyntheticMessage"})
        self._answering = given.id
        yield from self._add(message)

    def _add(self, message: Message) -> Iterator[Step]:
        self._last = message.id
        yield from self._woven.add(message)

    # --- compactions ---

    def _system(self, record: Line) -> Iterator[Step]:
        if record.subtype == "compact_boundary":
            self._boundary = record
        elif record.subtype == "microcompact_boundary":
            calls = _object(record.microcompact_metadata).get("compactedToolIds")
            yield from self._woven.flush()
            if isinstance(calls, list):
                names = tuple(str(call) for call in cast("list[object]", calls))
                yield Pruned(calls=names, at=_at(record))

    def _folded(self, record: Line, parts: tuple[AnyPart, ...]) -> Iterator[Step]:
        """The summary of a compaction; an older version writes it without its boundary."""
        boundary = self._boundary or record
        told = _object(boundary.compact_metadata)
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
            found = _object(told.get(name)).get(first)
            if isinstance(found, list):
                found = cast("list[object]", found)[0] if found else None
            if isinstance(found, str) and found in self._lines:
                return self._lines[found][1]
        return None

    # --- names ---

    def _id(self, record: Line, own: Told = UNSET) -> str:
        """An id once only: an answer may go on after something came between."""
        name = own or record.uuid or f"line-{self._count}"
        if name in self._ids:
            name = f"{name}-{self._count}"
        self._ids[name] = None
        if len(self._ids) > _MOST_LINES:
            self._ids.popitem(last=False)
        return name

    def remember(self, record: Line) -> None:
        """A line that later ones may name as their parent."""
        if record.uuid:
            self._lines[record.uuid] = (self._count, self._last)
            if len(self._lines) > _MOST_LINES:
                self._lines.popitem(last=False)


def _thread_name(record: Line) -> str:
    return (record.agent_id or "subagent") if record.is_sidechain else ""


def _at(record: Line) -> int | None:
    return moment(record.timestamp)


def _is_notice(part: AnyPart) -> bool:
    """Whether a text tells of a command to the program, or of an interruption: no request."""
    return isinstance(part, TextPart) and part.text.lstrip().startswith(_NOTICES)


def _by_program(part: AnyPart) -> AnyPart:
    return replace(part, synthetic=True) if isinstance(part, TextPart) else part


def _attached(record: Line) -> tuple[AnyPart, ...]:
    """What the program put into the context; a command that waited is the user's own."""
    held = _object(record.attachment)
    if not held:
        raise BadInput("the field 'attachment' is missing, or no object")
    if held.get("type") == "queued_command" and "prompt" in held:
        parts = _wire.read({"role": "user", "content": held["prompt"]}).parts
        is_own = held.get("commandMode") in (None, "prompt")
        return parts if is_own else tuple(_by_program(part) for part in parts)
    content = held.get("content")
    text = content if isinstance(content, str) else encode(held).decode()
    return (note(text),) if text else ()


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


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
    if "uuid" not in line or "sessionId" not in line:
        return False
    is_said = line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)
    return is_said or ("parentUuid" in line and "isSidechain" in line)


FORMAT = Format(
    name=_NAME,
    about="Claude Code, ~/.claude/projects",
    recognises=_recognises,
    importer=ClaudeCode,
)
