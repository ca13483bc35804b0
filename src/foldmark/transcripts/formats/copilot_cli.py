"""GitHub Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`, one event a line.

Facts of this format: what the user typed is told beside what the model was sent in its place; a
result has a larger copy for the screen; hooks repeat results; a compaction may run while the
session goes on, and keeps what came since it began. Events of subagents name their agent, or in
older versions the call that started it: they are sessions of their own.
"""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    FilePart,
    Origin,
    Pending,
    ReasoningPart,
    SessionInfo,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    UniqueIds,
    milliseconds,
    optional_text,
    session_time,
    synthetic_text,
)
from foldmark.transcripts.source import Head
from foldmark.wire.codec import (
    ReadResult,
    codec_metadata,
    data_url,
    object_at,
    objects,
    positive_int,
    subobject,
    text_at,
    without,
)

_NAME = "copilot-cli"
_PROVIDER = "github-copilot"
_MESSAGES = ("user.message", "assistant.message")
_OPAQUE = ("reasoningOpaque", "encryptedContent")


class CopilotCli(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "GitHub Copilot CLI, ~/.copilot/session-state"
    key = _NAME

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        return any(_is_event(line) for line in head.lines)

    def __init__(self, name: str) -> None:
        """Take the file's name, for events before which no session was started."""
        super().__init__(name)
        self._session = self.conversation.info
        self._model = ""

    def read(self, record: Json) -> None:
        """Tell what an event says."""
        kind, at = text_at(record, "type"), milliseconds(record.get("timestamp"))
        data = {} if record.get("data") is None else object_at(record, "data")
        if kind == "session.start":
            self._start(data, at)
        elif kind == "session.model_change":
            self._model = optional_text(data, "newModel")
        else:
            agent = optional_text(record, "agentId") or optional_text(data, "parentToolCallId")
            self._thread(agent).read(kind, data, optional_text(record, "id"), at, self._model)
            self.tally.messages += kind in _MESSAGES

    def _start(self, data: Json, at: int | None) -> None:
        model = optional_text(data, "selectedModel")
        self._session = SessionInfo(
            id=optional_text(data, "sessionId") or self._session.id,
            directory=optional_text(subobject(data, "context"), "cwd") or UNSET,
            version=optional_text(data, "copilotVersion") or UNSET,
            time=session_time(milliseconds(data.get("startTime")) or at),
        )
        self._model = model
        self._thread("").open()

    def _thread(self, agent: str) -> "_CopilotConversation":
        info = self._session
        if agent:
            name = f"{info.id}-{agent}"
            info = replace(info, id=name, parent_id=info.id, title=f"subagent {agent}")
        conversation = self.conversations.get(info.id)
        if not isinstance(conversation, _CopilotConversation):
            conversation = self.conversations[info.id] = _CopilotConversation(self, info)
        return conversation


class _CopilotConversation(ConversationBuilder):
    """The events of one conversation."""

    def __init__(self, reader: FormatReader, info: SessionInfo) -> None:
        super().__init__(reader, info)
        self._names = UniqueIds()
        self._begun: dict[str, Json] = {}  # calls as they are told again, and perhaps only then
        self._is_folding = False
        self._tail: str | None = None  # the first message since a compaction began

    def read(self, kind: str, data: Json, name: str, at: int | None, model: str) -> None:
        """Tell what an event says; those not named here are for the screen, or told elsewhere."""
        self.open()
        match kind:
            case "system.message":  # which is told again with every request of the user
                self.open(origin=Origin(system=optional_text(data, "content")))
            case "user.message" | "system.notification":
                self._prompt(data, name, at, is_notice=kind == "system.notification")
            case "assistant.message":
                self._reply(data, name, at, model)
            case "tool.execution_start":
                told = {name: data.get(name) for name in ("toolName", "arguments")}
                self._begun[text_at(data, "toolCallId")] = told
            case "tool.execution_complete":
                self.add_result(self._result(text_at(data, "toolCallId"), data), at)
            case "session.compaction_start":
                self._is_folding, self._tail = True, None
            case "session.compaction_complete":
                self._fold(data, name, at)
            case _:
                pass

    # --- messages ---

    def _prompt(self, data: Json, name: str, at: int | None, *, is_notice: bool) -> None:
        typed = optional_text(data, "content")
        sent = optional_text(data, "transformedContent") or typed
        # What has a source is a skill's words or a notice; the one of a subagent is its task.
        is_typed = not is_notice and optional_text(data, "source") in ("", "user")
        if not is_typed and not self.info.parent_id:
            typed = ""
        parts = (*_words(typed, sent), *_files(data.get("attachments")))
        if parts:
            self.add_user(self._names.claim(name or self.info.id), parts, at)
            self._note_tail()

    def _reply(self, data: Json, name: str, at: int | None, model: str) -> None:
        model, made = optional_text(data, "model") or model, positive_int(data.get("outputTokens"))
        self.add_assistant(
            self._names.claim(optional_text(data, "messageId") or name or self.info.id),
            _reply_parts(data),
            at,
            model=(_PROVIDER, model) if model else ("", ""),
            tokens=Tokens(output=made) if made else None,
        )
        self._note_tail()

    def _note_tail(self) -> None:
        if self._is_folding and self._tail is None:
            self._tail = self.last_id

    # --- calls ---

    def _result(self, call: str, data: Json) -> ReadResult:
        result, is_error = subobject(data, "result"), data.get("success") is False
        output = optional_text(result, "content")
        if is_error and not output:
            output = optional_text(subobject(data, "error"), "message")
        files = tuple(_files(result.get("contents")))
        return ReadResult(
            call_id=call,
            output=output,
            is_error=is_error,
            files=files,
            raw={"toolCallId": call, **self._begun.pop(call, {}), "output": output},
        )

    # --- compactions ---

    def _fold(self, data: Json, name: str, at: int | None) -> None:
        summary = optional_text(data, "summaryContent")
        tail, self._is_folding, self._tail = self._tail, False, None
        if data.get("success") is not False and summary:
            self.add_compaction(
                self._names.claim(name or self.info.id),
                (TextPart(text=summary),),
                at,
                auto=data.get("trigger") != "manual",
                tail=tail,
                wire={_NAME: without(data, "summaryContent")},
            )


# --- parts ---------------------------------------------------------------------------------


def _words(typed: str, sent: str) -> Iterator[TextPart]:
    """What the model was sent; what the user typed of it stands apart from the rest."""
    before, found, after = sent.partition(typed) if typed else (sent, "", "")
    if before:
        yield synthetic_text(before)
    if typed:
        # Where it was sent in other words, the user's own are kept beside them.
        yield TextPart(text=typed) if found else TextPart(text=typed, ignored=True)
    if after:
        yield synthetic_text(after)


def _files(attached: object) -> Iterator[FilePart]:
    """What is attached inline; the rest is named in what the model was sent."""
    for item in objects(attached or [], "what is attached"):
        mime, data = item.get("mimeType"), item.get("data")
        if isinstance(mime, str) and isinstance(data, str):
            yield FilePart(mime=mime, url=data_url(mime, data))


def _reply_parts(data: Json) -> Iterator[AnyPart]:
    """What the model thought, said and called."""
    thought, said = optional_text(data, "reasoningText"), optional_text(data, "content")
    opaque = {name: data[name] for name in _OPAQUE if data.get(name)}
    if thought or opaque:
        yield ReasoningPart(text=thought, metadata=codec_metadata(_NAME, opaque))
    if said:
        yield TextPart(text=said)
    for request in objects(data.get("toolRequests") or [], "'toolRequests'"):
        given = subobject(request, "arguments")
        if not given and request.get("arguments"):
            given = {"input": request["arguments"]}  # a tool with its own grammar takes a text
        state = Pending(input=given, title=optional_text(request, "intentionSummary") or UNSET)
        name, call = text_at(request, "name"), text_at(request, "toolCallId")
        yield ToolPart(tool=name, call_id=call, state=state)


def _is_event(line: Json) -> bool:
    is_linked = "parentId" in line and "timestamp" in line and isinstance(line.get("data"), dict)
    return is_linked and line.get("type") in ("session.start", "system.message", *_MESSAGES)
