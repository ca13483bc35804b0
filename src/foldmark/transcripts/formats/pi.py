"""pi: `~/.pi/agent/sessions/<folder>/<time>_<session>.jsonl`, one entry per line.

Facts of this format: the first line describes the session; results are messages of their own. Since
version 2 entries are a tree, and the branch of the last entry is current: an entry whose parent is
an earlier one takes back those between, and an entry may continue a branch that was taken back. A
compaction names the first entry that was kept, which may not be a message.
"""

from typing import NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    FilePart,
    Message,
    Pending,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Json
from foldmark.wire.anthropic import usage_tokens
from foldmark.wire.codec import (
    ReadResult,
    data_url,
    object_at,
    objects,
    opaque_part,
    subobject,
    text_at,
)

from ..build import (
    FormatReader,
    assistant_message,
    marked_synthetic,
    milliseconds,
    number_or_unset,
    optional_text,
    session_time,
    synthetic_text,
    text_or_empty,
    user_message,
)
from ..source import Head

_NAME = "pi"
_MAX_ENTRIES = 20_000
_FINISH = {"stop": "stop", "toolUse": "tool-calls", "length": "length"}
_ERRORS = {"aborted": "MessageAbortedError", "error": "APIError"}
# The fields of a step's token usage by the names of Anthropic's API.
_USAGE = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cacheRead",
    "cache_creation_input_tokens": "cacheWrite",
}
_COMPACTION = ("tokensBefore", "fromHook", "details")  # fields that are kept beside the summary


class Pi(FormatReader):
    """Reads a file of pi."""

    name = _NAME
    about = "pi, ~/.pi/agent/sessions"
    key = _NAME

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        first: Json = head.lines[0] if head.lines else {}
        is_header = first.get("type") == "session" and isinstance(first.get("id"), str)
        return is_header and isinstance(first.get("cwd"), str)

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of a session without one."""
        super().__init__(name)
        self._is_open = False
        self._entries: dict[str, _Entry] = {}
        self._leaf: str | None = None  # id of the last entry of the current branch
        self._model = ("", "")  # the user's choice
        self._level = ""  # of thinking

    def read(self, record: Json) -> None:
        """Add an entry."""
        kind = text_at(record, "type")
        if not self._is_open:
            self._open(record, is_header=kind == "session")
        if kind != "message":
            self._set_model(record)
        if kind != "session":
            self._add_entry(record, kind)
        self._is_open = True  # not before: an unreadable line emits nothing

    def _open(self, record: Json, *, is_header: bool) -> None:
        cwd = record.get("cwd")
        self.conversation.open(
            id=(optional_text(record, "id") if is_header else "") or self.stem,
            directory=cwd if isinstance(cwd, str) else UNSET,
            time=session_time(milliseconds(record.get("timestamp"))),
        )

    def _set_model(self, record: Json) -> None:
        provider, model, level = map(record.get, ("provider", "modelId", "thinkingLevel"))
        if isinstance(provider, str) and isinstance(model, str):
            self._model = (provider, model)
        if isinstance(level, str):
            self._level = level

    def _add_entry(self, record: Json, kind: str) -> None:
        entry_id = optional_text(record, "id")
        id, at = entry_id or f"{self.conversation.info.id}-{self.line}", _time(record)
        content = self._content(record, kind, id, at)  # first, as it may be unreadable
        summary = text_at(record, "summary") if kind == "compaction" else ""
        self.tally.messages += kind == "message"
        if "parentId" in record:
            self._go_to(optional_text(record, "parentId") or None)
        if isinstance(content, Message):
            self.conversation.add(content)
        elif isinstance(content, ReadResult):
            self.conversation.add_result(content, at)
        elif kind == "compaction":
            self._add_compaction(record, summary, id, at)
        elif kind == "session_info" and isinstance(record.get("name"), str):
            self.conversation.open(title=record["name"] or UNSET)
        # Entries of version 1 have no ids, and are named by their index in the file.
        self._append(entry_id or str(self.line - 1), is_message=content is not None)

    def _content(
        self, record: Json, kind: str, id: str, at: int | None
    ) -> Message | ReadResult | None:
        """The message or result of an entry, or None if the model sees none."""
        raw = object_at(record, "message") if kind == "message" else record
        match kind, text_at(raw, "role") if kind == "message" else "":
            case "message", "user":
                content = user_message(id, _parts(raw, raw), at)
            case "message", "assistant":
                content = self._reply(raw, id, at)
            case "message", "toolResult":
                content = _result(raw)
            case "message", "bashExecution":
                content = user_message(id, (_execution(raw),), at)
            case ("message", "custom" | "hookMessage") | ("custom_message", _):
                content = user_message(id, marked_synthetic(_parts(raw, {})), at)
            case "branch_summary", _:
                summary = text_at(record, "summary")
                text = f"What was done on a branch that was left:\n\n{summary}"
                content = user_message(id, (synthetic_text(text),), at)
            case _:  # of an extension, for the screen: the model never sees it
                content = None
        return content

    def _reply(self, raw: Json, id: str, at: int | None) -> Message:
        stop, usage = optional_text(raw, "stopReason"), subobject(raw, "usage")
        provider, model = optional_text(raw, "provider"), optional_text(raw, "model")
        about: Json = {"finish": _FINISH.get(stop, "other") if stop else ""}
        if stop in _ERRORS:
            data = {"message": optional_text(raw, "errorMessage")}
            about = {"finish": UNSET, "error": {"name": _ERRORS[stop], "data": data}}
        return assistant_message(
            id,
            _parts(raw, raw),
            at,
            model=(provider or self._model[0], model or self._model[1]),
            tokens=_tokens(usage),
            cost=number_or_unset(subobject(usage, "cost").get("total")),
            variant=self._level or UNSET,
            **about,
        )

    # --- the tree ---

    def _add_compaction(self, record: Json, summary: str, id: str, at: int | None) -> None:
        first = record.get("firstKeptEntryId", record.get("firstKeptEntryIndex", UNSET))
        fields = {name: record[name] for name in _COMPACTION if name in record}
        self.conversation.add_compaction(
            id,
            (TextPart(text=summary),),
            at,
            auto=False,  # not recorded
            tail=self._message_from(str(first)),
            wire={_NAME: fields} if fields else None,
        )

    def _append(self, entry_id: str, *, is_message: bool) -> None:
        """Append an entry to the current branch."""
        if entry_id in self._entries:
            return  # with a repeated id, a branch could end in itself
        self._entries[entry_id] = _Entry(self._leaf, self.conversation.last_id, is_message)
        self._leaf = entry_id
        if len(self._entries) > _MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def _go_to(self, parent: str | None) -> None:
        """Make an entry the last of the current branch; ignores one whose line was skipped."""
        if parent is None or parent in self._entries:
            target = None if parent is None else self._entries[parent].message
            self._leaf = parent
            if target != self.conversation.last_id:
                self.conversation.revert(target)

    def _message_from(self, first: str) -> str | None:
        """The first message of the current branch at an entry or after it."""
        message, entry_id = None, self._leaf
        while entry_id in self._entries:
            entry = self._entries[entry_id]
            message = entry.message if entry.is_message else message
            if entry_id == first:
                return message
            entry_id = entry.parent
        return None


class _Entry(NamedTuple):
    """An entry in the tree."""

    parent: str | None
    message: str | None  # id of the newest message after the entry
    is_message: bool


# --- entries -------------------------------------------------------------------------------


def _time(record: Json) -> int | None:
    """The time of an entry."""
    return milliseconds(subobject(record, "message").get("timestamp")) or milliseconds(
        record.get("timestamp")
    )


def _result(raw: Json) -> ReadResult:
    """The result of a call, without its copy for the screen."""
    call, tool = text_at(raw, "toolCallId"), optional_text(raw, "toolName")
    parts = _parts(raw, raw)
    return ReadResult(
        call_id=call,
        tool=tool,
        output="\n".join(part.text for part in parts if isinstance(part, TextPart)),
        files=tuple(part for part in parts if isinstance(part, FilePart)),
        is_error=raw.get("isError") is True,
        raw={"toolCallId": call, "toolName": tool},
    )


def _execution(raw: Json) -> TextPart:
    """The text of a command that the user ran, with its output."""
    text = f"Ran `{optional_text(raw, 'command')}`\n"
    output = optional_text(raw, "output")
    text += f"```\n{output}\n```" if output else "(no output)"
    if raw.get("cancelled"):
        text += "\n(cancelled)"
    elif raw.get("exitCode"):
        text += f"\n(exit code {raw['exitCode']})"
    if path := optional_text(raw, "fullOutputPath"):
        text += f"\n(cut short; all of it is in {path})"
    return replace(synthetic_text(text), ignored=True if raw.get("excludeFromContext") else UNSET)


def _tokens(usage: Json) -> Tokens | None:
    tokens = usage_tokens({name: usage.get(own) for name, own in _USAGE.items()})
    return tokens if tokens and tokens.total else None  # an aborted reply has counts of 0


# --- content -------------------------------------------------------------------------------


def _parts(record: Json, message: Json) -> tuple[AnyPart, ...]:
    """The content of a record; `message` names the provider of its signatures, or is empty."""
    content = record.get("content")
    if isinstance(content, str):
        return (TextPart(text=content),)
    return tuple(_part(block, message) for block in objects(content, "'content'"))


def _part(block: Json, message: Json) -> AnyPart:
    match block.get("type"):
        case "text":
            metadata = _signature(message, block, "textSignature")
            return TextPart(text=text_at(block, "text"), metadata=metadata)
        case "thinking":
            field = "redactedData" if block.get("redacted") is True else "signature"
            metadata = _signature(message, block, "thinkingSignature", field)
            return ReasoningPart(text=text_at(block, "thinking"), metadata=metadata)
        case "image":
            mime = text_at(block, "mimeType")
            return FilePart(mime=mime, url=data_url(mime, text_at(block, "data")))
        case "toolCall" if message.get("role") == "assistant":
            partial = text_or_empty(block.get("partialJson"))
            return ToolPart(
                tool=text_at(block, "name"),
                call_id=text_at(block, "id"),
                state=Pending(input=object_at(block, "arguments"), raw=partial or UNSET),
                metadata=_signature(message, block, "thoughtSignature"),
            )
        case str():
            return opaque_part(_NAME, block)
        case _:
            raise BadInput("a block of 'content' has no 'type'")


def _signature(message: Json, block: Json, name: str, field: str = "signature") -> Json | UnsetType:
    """The signature of a block as metadata, under the names of its provider's codec."""
    signature = text_or_empty(block.get(name))
    if not signature:
        return UNSET
    api, provider = optional_text(message, "api"), optional_text(message, "provider")
    if api == "anthropic-messages" or provider == "anthropic":
        return {"anthropic": {field: signature}}
    if api.startswith("google"):
        return {"google": {"thoughtSignature": signature}}
    return {provider or _NAME: {"signature": signature}}
