"""Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`, one event per line.

Facts of this format: a reply has several lines that share `message.id`. Results are lines of the
user, with a larger copy for the screen that the model never sees. After a `compact_boundary`, the
summary is a line of the user. A prompt whose parent comes before an earlier prompt takes that one
back. Lines of subagents are sessions of their own.
"""

from collections import OrderedDict
from typing import Any
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, SessionInfo, TextPart
from foldmark.model.values import Json, decoder, encode
from foldmark.wire.anthropic import Anthropic, finish_of_stop, usage_tokens

from ..build import (
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
from ..source import Head, Record

_NAME = "claude-code"
_NOTICES = (
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-stdout>",
    "[Request interrupted by user",
)
_SYNTHETIC = "<synthetic>"  # model of replies by the program itself: an error, an interruption
_MAX_LINES = 20_000  # remembered as possible parents of later lines
_READ_TYPES = frozenset({"user", "assistant", "attachment", "system"})
_TITLES = ("summary", "ai-title", "custom-title")  # a later one overrides those before it
_wire = Anthropic()
OptionalText = str | UnsetType | None


class ClaudeMessage(Struct, gc=False):
    """The fields of an API message that are read."""

    content: Any = UNSET
    id: OptionalText = UNSET
    model: OptionalText = UNSET
    usage: Any = UNSET
    stop_reason: Any = UNSET


class ClaudeLine(Struct, gc=False, rename="camel"):
    """The fields of a line that are read, without its copies for the screen."""

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
    """Reads a file of Claude Code."""

    name = _NAME
    about = "Claude Code, ~/.claude/projects"
    key = _wire.key

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        return any(_is_line(line) for line in head.lines)

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of a session without one."""
        super().__init__(name)
        self._threads: dict[str, _ClaudeConversation] = {}  # by subagent; "" is the main one
        self._title = ""
        self._rank = 0  # of the title, from 1 for the lowest

    def decode(self, record: Record) -> ClaudeLine:
        """Return a line; only lines of types that are read must have the known fields."""
        try:
            return _decode_line(record.data)
        except BadInput:
            other = as_object(record.value())
            kind, uuid = (text_or_empty(other.get(name)) for name in ("type", "uuid"))
            if not kind or kind in _READ_TYPES:
                raise
            return ClaudeLine(type=kind, uuid=uuid)

    def read(self, record: ClaudeLine) -> None:
        """Add a line to its conversation, or set the title."""
        agent = (record.agent_id or "subagent") if record.is_sidechain else ""
        if record.type in _TITLES:
            self._set_title(record)
        elif record.type in _READ_TYPES:
            self.tally.messages += record.type in ("user", "assistant")
            if agent not in self._threads:
                info = self._info(record, agent)
                self._threads[agent] = self.conversations[info.id] = _ClaudeConversation(self, info)
            self._threads[agent].read(record)
        elif record.uuid and agent in self._threads:
            self._threads[agent].remember(record)

    def _set_title(self, record: ClaudeLine) -> None:
        """Use the newest title of the highest rank, or the first summary: others may be foreign."""
        rank = _TITLES.index(record.type) + 1
        title = (record.summary, record.ai_title, record.custom_title)[rank - 1]
        if not isinstance(title, str) or not title:
            return
        if rank > self._rank or rank == self._rank > 1:
            self._title, self._rank = title, rank
            if main := self._threads.get(""):
                main.open(title=title)

    def _info(self, record: ClaudeLine, agent: str) -> SessionInfo:
        # A resumed session repeats lines of the previous one, with the id of that one.
        uses_stem = _is_uuid(self.stem) and not agent
        session = self.stem if uses_stem else record.session_id or self.stem
        return SessionInfo(
            id=f"{session}-{agent}" if agent else session,
            parent_id=session if agent else UNSET,
            directory=record.cwd or UNSET,
            version=record.version or UNSET,
            title=(f"subagent {agent}" if agent else self._title) or UNSET,
            time=session_time(milliseconds(record.timestamp)),
        )


class _ClaudeConversation(ConversationBuilder):
    """Builds one conversation from its lines."""

    def __init__(self, reader: FormatReader, info: SessionInfo) -> None:
        super().__init__(reader, info)
        self._boundary: ClaudeLine | None = None
        # By uuid: the number of the line, and the newest message's id after it.
        self._lines: OrderedDict[str, tuple[int, str | None]] = OrderedDict()
        self._count = 0
        self._prompt = 0  # number of the newest prompt's line
        self._reply_id: OptionalText = None  # the API's id of the newest reply
        self._ids = UniqueIds()

    def read(self, line: ClaudeLine) -> None:
        """Add a line."""
        self._count += 1
        at = milliseconds(line.timestamp)
        self.open()
        if line.type == "system":
            self._system(line, at)
        elif line.type == "attachment":
            if parts := _attachment_parts(line.attachment):
                self.add_user(self._id(line), parts, at)
        elif line.message is UNSET:
            raise BadInput("the field 'message' is missing")
        elif line.type == "assistant":
            self._reply(line, line.message, at)
        else:
            self._add_prompt(line, line.message, at)
        self.remember(line)

    # --- the user's lines ---

    def _add_prompt(self, line: ClaudeLine, message: ClaudeMessage, at: int | None) -> None:
        content = _wire.read({"role": "user", "content": message.content})
        if line.is_compact_summary:
            self._add_summary(line, content.parts, at)
            return
        if not content.results and not line.is_meta:
            self._revert_if_replaced(line)
        for result in content.results:
            self.add_result(result, at)
        if content.parts:
            parts = marked_synthetic(content.parts, lambda part: line.is_meta or _is_notice(part))
            self.add_user(self._id(line), parts, at)

    def _revert_if_replaced(self, line: ClaudeLine) -> None:
        """Take back an earlier prompt, and what followed, if this prompt replaces it."""
        parent = self._lines.get(line.parent_uuid or "")
        if parent is not None and parent[0] < self._prompt:
            self.revert(parent[1])
        self._prompt = self._count

    # --- the model's lines ---

    def _reply(self, line: ClaudeLine, message: ClaudeMessage, at: int | None) -> None:
        parts = _wire.read({"role": "assistant", "content": message.content}).parts
        last, tokens = self.last, usage_tokens(message.usage)
        continues = message.id and message.id == self._reply_id
        if continues and last is not None and last.id == self.last_id and not last.is_user:
            finish = finish_of_stop(message.stop_reason, last.parts + parts)
            fields = {"finish": finish, "tokens": tokens} if tokens else {"finish": finish}
            self.extend(parts, **fields)
            return
        model = message.model or ""
        about: Json = {"finish": finish_of_stop(message.stop_reason, parts)}
        if model == _SYNTHETIC:
            # The user saw this, but it was never sent to the model.
            about["error"] = {"name": "SyntheticMessage"}
        else:
            about |= {"tokens": tokens, "model": ("anthropic", model) if model else ("", "")}
        self.add_assistant(self._id(line, message.id), parts, at, **about)
        self._reply_id = message.id

    # --- compactions ---

    def _system(self, line: ClaudeLine, at: int | None) -> None:
        if line.subtype == "compact_boundary":
            self._boundary = line
        elif line.subtype == "microcompact_boundary":
            calls = as_object(line.microcompact_metadata).get("compactedToolIds")
            self.prune(map(str, as_list(calls)), at)

    def _add_summary(self, line: ClaudeLine, parts: tuple[AnyPart, ...], at: int | None) -> None:
        """Add the summary of a compaction; older versions write no boundary before it."""
        metadata = as_object((self._boundary or line).compact_metadata)
        self._boundary = None
        self.add_compaction(
            self._id(line),
            parts,
            at,
            auto=metadata.get("trigger") == "auto",
            tail=self._tail(metadata),
            wire={_NAME: metadata} if metadata else None,
        )

    def _tail(self, metadata: Json) -> str | None:
        """The first message of the tail, which newer versions name."""
        for name, field in (("preservedSegment", "headUuid"), ("preservedMessages", "uuids")):
            first: object = as_object(metadata.get(name)).get(field)
            first = next(iter(as_list(first)), first)
            if isinstance(first, str) and first in self._lines:
                return self._lines[first][1]
        return None

    # --- ids ---

    def _id(self, line: ClaudeLine, reply_id: OptionalText = UNSET) -> str:
        """An unused id; one reply becomes two messages if something comes between its lines."""
        return self._ids.claim(reply_id or line.uuid or f"line-{self._count}")

    def remember(self, line: ClaudeLine) -> None:
        """Remember a line that later ones may name as their parent."""
        if line.uuid:
            self._lines[line.uuid] = (self._count, self.last_id)
            if len(self._lines) > _MAX_LINES:
                self._lines.popitem(last=False)


def _is_notice(part: TextPart) -> bool:
    """Whether a text reports a command to the program or an interruption, so is no request."""
    return part.text.lstrip().startswith(_NOTICES)


def _attachment_parts(attachment: object) -> tuple[AnyPart, ...]:
    """The parts of an attachment: synthetic, except for a prompt of the user that was queued."""
    fields = as_object(attachment)
    if not fields:
        raise BadInput("the field 'attachment' is missing, or not an object")
    if fields.get("type") == "queued_command" and "prompt" in fields:
        parts = _wire.read({"role": "user", "content": fields["prompt"]}).parts
        return parts if fields.get("commandMode") in (None, "prompt") else marked_synthetic(parts)
    content = fields.get("content")
    text = content if isinstance(content, str) else encode(fields).decode()
    return (synthetic_text(text),) if text else ()


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _is_line(line: Json) -> bool:
    if "uuid" not in line or "sessionId" not in line:
        return False
    is_message = line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)
    return is_message or ("parentUuid" in line and "isSidechain" in line)
