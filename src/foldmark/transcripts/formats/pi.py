"""pi: `~/.pi/agent/sessions/<folder>/<time>_<session>.jsonl`, one entry a line.

Facts of this format: the first line tells the session; results are messages of their own. Since
version 2 entries form a tree, and the branch of the last one is in force: an entry that hangs on
an earlier one takes back what came between, and one that hangs on what was taken back goes on with
that. A compaction names the first entry that was kept, which need not be a message.
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
from foldmark.transcripts.build import (
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
from foldmark.transcripts.source import Head
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

_NAME = "pi"
_MOST_ENTRIES = 20_000
_FINISH = {"stop": "stop", "toolUse": "tool-calls", "length": "length"}
_ERRORS = {"aborted": "MessageAbortedError", "error": "APIError"}
# What a step took, by the names of Anthropic's API.
_USAGE = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_input_tokens": "cacheRead",
    "cache_creation_input_tokens": "cacheWrite",
}
_COMPACTION = ("tokensBefore", "fromHook", "details")  # what is kept of one beside its summary


class Pi(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "pi, ~/.pi/agent/sessions"
    key = _NAME

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        first: Json = head.lines[0] if head.lines else {}
        is_header = first.get("type") == "session" and isinstance(first.get("id"), str)
        return is_header and isinstance(first.get("cwd"), str)

    def __init__(self, name: str) -> None:
        """Take the file's name, for a file that names no session."""
        super().__init__(name)
        self._is_open = False
        self._entries: dict[str, _Entry] = {}
        self._leaf: str | None = None  # the entry with which the branch in force ends
        self._model = ("", "")  # that the user chose
        self._level = ""  # how much it shall think

    def read(self, record: Json) -> None:
        """Tell what an entry says."""
        kind = text_at(record, "type")
        if not self._is_open:
            self._open(record, is_header=kind == "session")
        if kind != "message":
            self._choose(record)
        if kind != "session":
            self._entry(record, kind)
        self._is_open = True  # not before: of a line that cannot be read nothing is told

    def _open(self, record: Json, *, is_header: bool) -> None:
        cwd = record.get("cwd")
        self.conversation.open(
            id=(optional_text(record, "id") if is_header else "") or self.stem,
            directory=cwd if isinstance(cwd, str) else UNSET,
            time=session_time(milliseconds(record.get("timestamp"))),
        )

    def _choose(self, record: Json) -> None:
        provider, model, level = map(record.get, ("provider", "modelId", "thinkingLevel"))
        if isinstance(provider, str) and isinstance(model, str):
            self._model = (provider, model)
        if isinstance(level, str):
            self._level = level

    def _entry(self, record: Json, kind: str) -> None:
        own = optional_text(record, "id")
        name, at = own or f"{self.conversation.info.id}-{self.line}", _time(record)
        said = self._said(record, kind, name, at)  # first of all: it may be unreadable
        summary = text_at(record, "summary") if kind == "compaction" else ""
        self.tally.messages += kind == "message"
        if "parentId" in record:
            self._go_to(optional_text(record, "parentId") or None)
        if isinstance(said, Message):
            self.conversation.add(said)
        elif isinstance(said, ReadResult):
            self.conversation.add_result(said, at)
        elif kind == "compaction":
            self._fold(record, summary, name, at)
        elif kind == "session_info" and isinstance(record.get("name"), str):
            self.conversation.open(title=record["name"] or UNSET)
        # In version 1 entries have no names, and are told by where they stand in the file.
        self._add(own or str(self.line - 1), is_message=said is not None)

    def _said(
        self, record: Json, kind: str, name: str, at: int | None
    ) -> Message | ReadResult | None:
        """The message or result of an entry; None where the model sees none."""
        said = object_at(record, "message") if kind == "message" else record
        match kind, text_at(said, "role") if kind == "message" else "":
            case "message", "user":
                found = user_message(name, _parts(said, said), at)
            case "message", "assistant":
                found = self._answer(said, name, at)
            case "message", "toolResult":
                found = _result(said)
            case "message", "bashExecution":
                found = user_message(name, (_ran(said),), at)
            case ("message", "custom" | "hookMessage") | ("custom_message", _):
                found = user_message(name, marked_synthetic(_parts(said, {})), at)
            case "branch_summary", _:
                left = text_at(record, "summary")
                words = synthetic_text(f"What was done on a branch that was left:\n\n{left}")
                found = user_message(name, (words,), at)
            case _:  # of an extension, for the screen: the model never sees it
                found = None
        return found

    def _answer(self, said: Json, name: str, at: int | None) -> Message:
        stop, usage = optional_text(said, "stopReason"), subobject(said, "usage")
        provider, model = optional_text(said, "provider"), optional_text(said, "model")
        about: Json = {"finish": _FINISH.get(stop, "other") if stop else ""}
        if stop in _ERRORS:
            data = {"message": optional_text(said, "errorMessage")}
            about = {"finish": UNSET, "error": {"name": _ERRORS[stop], "data": data}}
        return assistant_message(
            name,
            _parts(said, said),
            at,
            model=(provider or self._model[0], model or self._model[1]),
            tokens=_tokens(usage),
            cost=number_or_unset(subobject(usage, "cost").get("total")),
            variant=self._level or UNSET,
            **about,
        )

    # --- what changes the past ---

    def _fold(self, record: Json, summary: str, name: str, at: int | None) -> None:
        first = record.get("firstKeptEntryId", record.get("firstKeptEntryIndex", UNSET))
        told = {field: record[field] for field in _COMPACTION if field in record}
        self.conversation.add_compaction(
            name,
            (TextPart(text=summary),),
            at,
            auto=False,  # it is not told
            tail=self._message_from(str(first)),
            wire={_NAME: told} if told else None,
        )

    # --- the tree ---

    def _add(self, name: str, *, is_message: bool) -> None:
        """Put an entry at the end of the branch."""
        if name in self._entries:
            return  # a name is given once, or a branch could end in itself
        self._entries[name] = _Entry(self._leaf, self.conversation.last_id, is_message)
        self._leaf = name
        if len(self._entries) > _MOST_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def _go_to(self, parent: str | None) -> None:
        """Let the branch end with an entry; one whose line was skipped changes nothing."""
        if parent is None or parent in self._entries:
            target = None if parent is None else self._entries[parent].message
            self._leaf = parent
            if target != self.conversation.last_id:
                self.conversation.revert(target)

    def _message_from(self, first: str) -> str | None:
        """The first message on the branch at an entry or after it."""
        message, name = None, self._leaf
        while name in self._entries:
            entry = self._entries[name]
            message = entry.message if entry.is_message else message
            if name == first:
                return message
            name = entry.parent
        return None


class _Entry(NamedTuple):
    """An entry in the tree."""

    parent: str | None
    message: str | None  # the newest message once the entry is told
    is_message: bool


# --- what an entry says --------------------------------------------------------------------


def _time(record: Json) -> int | None:
    """When an entry was made."""
    return milliseconds(subobject(record, "message").get("timestamp")) or milliseconds(
        record.get("timestamp")
    )


def _result(said: Json) -> ReadResult:
    """The result of a call; what is told to the screen beside it is passed over."""
    call, tool = text_at(said, "toolCallId"), optional_text(said, "toolName")
    parts = _parts(said, said)
    return ReadResult(
        call_id=call,
        tool=tool,
        output="\n".join(part.text for part in parts if isinstance(part, TextPart)),
        files=tuple(part for part in parts if isinstance(part, FilePart)),
        is_error=said.get("isError") is True,
        raw={"toolCallId": call, "toolName": tool},
    )


def _ran(said: Json) -> TextPart:
    """What the user ran, and what came of it."""
    text = f"Ran `{optional_text(said, 'command')}`\n"
    output = optional_text(said, "output")
    text += f"```\n{output}\n```" if output else "(no output)"
    if said.get("cancelled"):
        text += "\n(cancelled)"
    elif said.get("exitCode"):
        text += f"\n(exit code {said['exitCode']})"
    if path := optional_text(said, "fullOutputPath"):
        text += f"\n(cut short; all of it is in {path})"
    return replace(synthetic_text(text), ignored=True if said.get("excludeFromContext") else UNSET)


def _tokens(usage: Json) -> Tokens | None:
    tokens = usage_tokens({name: usage.get(own) for name, own in _USAGE.items()})
    return tokens if tokens and tokens.total else None  # it was broken off before all was measured


# --- content -------------------------------------------------------------------------------


def _parts(record: Json, said: Json) -> tuple[AnyPart, ...]:
    """The content of a record; `said` is the message, where it is one that a model may sign."""
    content = record.get("content")
    if isinstance(content, str):
        return (TextPart(text=content),)
    return tuple(_block(block, said) for block in objects(content, "'content'"))


def _block(block: Json, said: Json) -> AnyPart:
    match block.get("type"):
        case "text":
            metadata = _signature(said, block, "textSignature")
            return TextPart(text=text_at(block, "text"), metadata=metadata)
        case "thinking":
            field = "redactedData" if block.get("redacted") is True else "signature"
            metadata = _signature(said, block, "thinkingSignature", field)
            return ReasoningPart(text=text_at(block, "thinking"), metadata=metadata)
        case "image":
            mime = text_at(block, "mimeType")
            return FilePart(mime=mime, url=data_url(mime, text_at(block, "data")))
        case "toolCall" if said.get("role") == "assistant":
            partial = text_or_empty(block.get("partialJson"))
            return ToolPart(
                tool=text_at(block, "name"),
                call_id=text_at(block, "id"),
                state=Pending(input=object_at(block, "arguments"), raw=partial or UNSET),
                metadata=_signature(said, block, "thoughtSignature"),
            )
        case str():
            return opaque_part(_NAME, block)
        case _:
            raise BadInput("a block of content has no type")


def _signature(said: Json, block: Json, name: str, field: str = "signature") -> Json | UnsetType:
    """What goes back to its provider only, named as that provider's codec names it."""
    signature = text_or_empty(block.get(name))
    if not signature:
        return UNSET
    api, provider = optional_text(said, "api"), optional_text(said, "provider")
    if api == "anthropic-messages" or provider == "anthropic":
        return {"anthropic": {field: signature}}
    if api.startswith("google"):
        return {"google": {"thoughtSignature": signature}}
    return {provider or _NAME: {"signature": signature}}
