"""Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`, one event a line.

Facts of this format: an answer is spread over several lines that share `message.id`; its results
are lines of the user, with a larger copy for the screen beside them that the model never sees;
after a `compact_boundary` comes the summary as a line of the user; a prompt whose parent lies
before an earlier prompt takes that one back. Lines of subagents are sessions of their own.
"""

from collections import OrderedDict
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, SessionInfo, TextPart
from foldmark.model.values import Json, decoder, encode
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    UniqueIds,
    as_list,
    as_object,
    marked_synthetic,
    milliseconds,
    session_time,
    synthetic_text,
    text_or_empty,
)
from foldmark.transcripts.source import Head, Record
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
OptionalText = str | UnsetType | None


class ClaudeMessage(Struct, gc=False):
    """A message as the API has it."""

    content: Any = UNSET
    id: OptionalText = UNSET
    model: OptionalText = UNSET
    usage: Any = UNSET
    stop_reason: Any = UNSET


class ClaudeLine(Struct, gc=False, rename="camel"):
    """What matters of a line; its copies for the screen do not."""

    type: str
    subtype: OptionalText = UNSET
    uuid: OptionalText = UNSET
    parent_uuid: OptionalText = UNSET
    timestamp: Any = UNSET
    session_id: OptionalText = UNSET
    cwd: OptionalText = UNSET
    version: OptionalText = UNSET
    agent_id: OptionalText = UNSET
    is_sidechain: Any = UNSET
    is_meta: Any = UNSET
    is_compact_summary: Any = UNSET
    message: ClaudeMessage | UnsetType = UNSET
    compact_metadata: Any = UNSET
    microcompact_metadata: Any = UNSET
    attachment: Any = UNSET
    summary: Any = UNSET
    ai_title: Any = UNSET
    custom_title: Any = UNSET


_decode_line = decoder(ClaudeLine)


class ClaudeCode(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "Claude Code, ~/.claude/projects"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        return any(_is_line(line) for line in head.lines)

    def __init__(self, name: str) -> None:
        """Take the file's name, for lines that name no session."""
        super().__init__(name)
        self._threads: dict[str, _ClaudeConversation] = {}
        self._title = ""
        self._rank = 0  # how much it counts

    def decode(self, record: Record) -> ClaudeLine:
        """A line; one of a kind that says nothing here may look as it likes."""
        try:
            return _decode_line(record.data)
        except BadInput:
            other = as_object(record.value())
            kind, uuid = (text_or_empty(other.get(name)) for name in ("type", "uuid"))
            if not kind or kind in _TAKEN:
                raise
            return ClaudeLine(type=kind, uuid=uuid)

    def read(self, record: ClaudeLine) -> None:
        """Tell what a line says."""
        name = (record.agent_id or "subagent") if record.is_sidechain else ""
        if record.type in _TITLES:
            self._entitle(record)
        elif record.type in _TAKEN:
            self.tally.messages += record.type in ("user", "assistant")
            if name not in self._threads:
                info = self._info(record, name)
                self._threads[name] = self.conversations[info.id] = _ClaudeConversation(self, info)
            self._threads[name].read(record)
        elif record.uuid and name in self._threads:
            self._threads[name].remember(record)

    def _entitle(self, record: ClaudeLine) -> None:
        """The newest title of those that count most; of summaries the first: many are of others."""
        rank = _TITLES.index(record.type) + 1
        title = (record.summary, record.ai_title, record.custom_title)[rank - 1]
        if not isinstance(title, str) or not title:
            return
        if rank > self._rank or rank == self._rank > 1:
            self._title, self._rank = title, rank
            if main := self._threads.get(""):
                main.open(title=title)

    def _info(self, record: ClaudeLine, name: str) -> SessionInfo:
        # A session that was resumed repeats lines of the one before, with that one's id.
        is_named = _is_uuid(self.stem) and not name
        session = self.stem if is_named else record.session_id or self.stem
        return SessionInfo(
            id=f"{session}-{name}" if name else session,
            parent_id=session if name else UNSET,
            directory=record.cwd or UNSET,
            version=record.version or UNSET,
            title=(f"subagent {name}" if name else self._title) or UNSET,
            time=session_time(milliseconds(record.timestamp)),
        )


class _ClaudeConversation(ConversationBuilder):
    """The lines of one conversation."""

    def __init__(self, reader: FormatReader, info: SessionInfo) -> None:
        super().__init__(reader, info)
        self._boundary: ClaudeLine | None = None
        self._lines: OrderedDict[str, tuple[int, str | None]] = OrderedDict()
        self._count = 0
        self._prompt = 0  # the number of the newest prompt's line
        self._answering: OptionalText = None  # the newest answer's id, as the API has it
        self._names = UniqueIds()

    def read(self, line: ClaudeLine) -> None:
        """Tell what a line says."""
        self._count += 1
        at = milliseconds(line.timestamp)
        self.open()
        if line.type == "system":
            self._system(line, at)
        elif line.type == "attachment":
            if parts := _attached(line.attachment):
                self.add_user(self._id(line), parts, at)
        elif line.message is UNSET:
            raise BadInput("the field 'message' is missing")
        elif line.type == "assistant":
            self._reply(line, line.message, at)
        else:
            self._said(line, line.message, at)
        self.remember(line)

    # --- the user's lines ---

    def _said(self, line: ClaudeLine, given: ClaudeMessage, at: int | None) -> None:
        read = _wire.read({"role": "user", "content": given.content})
        if line.is_compact_summary:
            self._fold(line, read.parts, at)
            return
        if not read.results and not line.is_meta:
            self._take_back(line)
        for answer in read.results:
            self.add_result(answer, at)
        if read.parts:
            parts = marked_synthetic(read.parts, lambda part: line.is_meta or _is_notice(part))
            self.add_user(self._id(line), parts, at)

    def _take_back(self, line: ClaudeLine) -> None:
        """A prompt that was put in the place of an earlier one."""
        parent = self._lines.get(line.parent_uuid or "")
        if parent is not None and parent[0] < self._prompt:
            self.revert(parent[1])
        self._prompt = self._count

    # --- the model's lines ---

    def _reply(self, line: ClaudeLine, given: ClaudeMessage, at: int | None) -> None:
        read = _wire.read({"role": "assistant", "content": given.content})
        last, tokens = self.last, usage_tokens(given.usage)
        goes_on = given.id and given.id == self._answering
        if goes_on and last is not None and last.id == self.last_id and not last.is_user:
            finish = finish_of_stop(given.stop_reason, last.parts + read.parts)
            told = {"finish": finish, "tokens": tokens} if tokens else {"finish": finish}
            self.extend(read.parts, **told)
            return
        model = given.model or ""
        about: Json = {"finish": finish_of_stop(given.stop_reason, read.parts)}
        if model == _SYNTHETIC:
            # It was told to the user, never to the model.
            about["error"] = {"name": "SyntheticMessage"}
        else:
            about |= {"tokens": tokens, "model": ("anthropic", model) if model else ("", "")}
        self.add_assistant(self._id(line, given.id), read.parts, at, **about)
        self._answering = given.id

    # --- compactions ---

    def _system(self, line: ClaudeLine, at: int | None) -> None:
        if line.subtype == "compact_boundary":
            self._boundary = line
        elif line.subtype == "microcompact_boundary":
            calls = as_object(line.microcompact_metadata).get("compactedToolIds")
            self.prune(map(str, as_list(calls)), at)

    def _fold(self, line: ClaudeLine, parts: tuple[AnyPart, ...], at: int | None) -> None:
        """The summary of a compaction; an older version writes it without its boundary."""
        told = as_object((self._boundary or line).compact_metadata)
        self._boundary = None
        self.add_compaction(
            self._id(line),
            parts,
            at,
            auto=told.get("trigger") == "auto",
            tail=self._tail(told),
            wire={_NAME: told} if told else None,
        )

    def _tail(self, told: Json) -> str | None:
        """The message from which on all were kept, in newer versions."""
        for name, field in (("preservedSegment", "headUuid"), ("preservedMessages", "uuids")):
            first: object = as_object(told.get(name)).get(field)
            first = next(iter(as_list(first)), first)
            if isinstance(first, str) and first in self._lines:
                return self._lines[first][1]
        return None

    # --- names ---

    def _id(self, line: ClaudeLine, own: OptionalText = UNSET) -> str:
        """An id once only: an answer may go on after something came between."""
        return self._names.claim(own or line.uuid or f"line-{self._count}")

    def remember(self, line: ClaudeLine) -> None:
        """Note a line that later ones may name as their parent."""
        if line.uuid:
            self._lines[line.uuid] = (self._count, self.last_id)
            if len(self._lines) > _MOST_LINES:
                self._lines.popitem(last=False)


def _is_notice(part: TextPart) -> bool:
    """Whether a text tells of a command to the program, or of an interruption: no request."""
    return part.text.lstrip().startswith(_NOTICES)


def _attached(attachment: object) -> tuple[AnyPart, ...]:
    """What the program put into the context; a command that waited is the user's own."""
    given = as_object(attachment)
    if not given:
        raise BadInput("the field 'attachment' is missing, or no object")
    if given.get("type") == "queued_command" and "prompt" in given:
        parts = _wire.read({"role": "user", "content": given["prompt"]}).parts
        return parts if given.get("commandMode") in (None, "prompt") else marked_synthetic(parts)
    content = given.get("content")
    text = content if isinstance(content, str) else encode(given).decode()
    return (synthetic_text(text),) if text else ()


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _is_line(line: Json) -> bool:
    if "uuid" not in line or "sessionId" not in line:
        return False
    is_said = line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)
    return is_said or ("parentUuid" in line and "isSidechain" in line)
