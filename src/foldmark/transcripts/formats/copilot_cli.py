"""GitHub Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`, one event per line.

Facts of this format: a prompt has the text that the user typed and the text that was sent to the
model. A result has a larger copy for the screen, and hooks repeat it. A session may continue while
it is compacted; messages since the start of the compaction are kept. Events of subagents name the
agent, or in older versions the call that started it, and are sessions of their own.
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

from ..build import (
    ConversationBuilder,
    FormatReader,
    UniqueIds,
    milliseconds,
    optional_text,
    session_time,
    synthetic_text,
)
from ..source import Head

_NAME = "copilot-cli"
_PROVIDER = "github-copilot"
_MESSAGES = ("user.message", "assistant.message")
_OPAQUE = ("reasoningOpaque", "encryptedContent")


class CopilotCli(FormatReader):
    """Reads a file of GitHub Copilot CLI."""

    name = _NAME
    about = "GitHub Copilot CLI, ~/.copilot/session-state"
    key = _NAME

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        return any(_is_event(line) for line in head.lines)

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of events before a session's start."""
        super().__init__(name)
        self._session = self.conversation.info
        self._model = ""

    def read(self, record: Json) -> None:
        """Add an event."""
        kind, at = text_at(record, "type"), milliseconds(record.get("timestamp"))
        data = {} if record.get("data") is None else object_at(record, "data")
        if kind == "session.start":
            self._start(data, at)
        elif kind == "session.model_change":
            self._model = optional_text(data, "newModel")
        else:
            agent = optional_text(record, "agentId") or optional_text(data, "parentToolCallId")
            conversation = self._conversation_of(agent)
            conversation.read(kind, data, optional_text(record, "id"), at, self._model)
            self.tally.messages += kind in _MESSAGES

    def _start(self, data: Json, at: int | None) -> None:
        self._session = SessionInfo(
            id=optional_text(data, "sessionId") or self._session.id,
            directory=optional_text(subobject(data, "context"), "cwd") or UNSET,
            version=optional_text(data, "copilotVersion") or UNSET,
            time=session_time(milliseconds(data.get("startTime")) or at),
        )
        self._model = optional_text(data, "selectedModel")
        self._conversation_of("").open()

    def _conversation_of(self, agent: str) -> "_CopilotConversation":
        info = self._session
        if agent:
            id = f"{info.id}-{agent}"
            info = replace(info, id=id, parent_id=info.id, title=f"subagent {agent}")
        conversation = self.conversations.get(info.id)
        if not isinstance(conversation, _CopilotConversation):
            conversation = self.conversations[info.id] = _CopilotConversation(self, info)
        return conversation


class _CopilotConversation(ConversationBuilder):
    """Builds one conversation from its events."""

    def __init__(self, reader: FormatReader, info: SessionInfo) -> None:
        super().__init__(reader, info)
        self._ids = UniqueIds()
        self._executions: dict[str, Json] = {}  # calls whose execution has started
        self._is_compacting = False
        self._tail: str | None = None  # the first message since a compaction started

    def read(self, kind: str, data: Json, id: str, at: int | None, model: str) -> None:
        """Add an event; kinds that are not listed here are for the screen, or repeat others."""
        self.open()
        match kind:
            case "system.message":  # repeated with every prompt of the user
                self.open(origin=Origin(system=optional_text(data, "content")))
            case "user.message" | "system.notification":
                self._add_prompt(data, id, at, is_notice=kind == "system.notification")
            case "assistant.message":
                self._add_reply(data, id, at, model)
            case "tool.execution_start":
                call = {name: data.get(name) for name in ("toolName", "arguments")}
                self._executions[text_at(data, "toolCallId")] = call
            case "tool.execution_complete":
                self.add_result(self._result(text_at(data, "toolCallId"), data), at)
            case "session.compaction_start":
                self._is_compacting, self._tail = True, None
            case "session.compaction_complete":
                self._finish_compaction(data, id, at)
            case _:
                pass

    # --- messages ---

    def _add_prompt(self, data: Json, id: str, at: int | None, *, is_notice: bool) -> None:
        typed = optional_text(data, "content")
        full = optional_text(data, "transformedContent") or typed
        # A source marks the text of a skill or a notice, but also the task of a subagent.
        is_typed = not is_notice and optional_text(data, "source") in ("", "user")
        if not is_typed and not self.info.parent_id:
            typed = ""
        parts = (*_prompt_texts(typed, full), *_files(data.get("attachments")))
        if parts:
            self.add_user(self._ids.claim(id or self.info.id), parts, at)
            self._start_tail()

    def _add_reply(self, data: Json, id: str, at: int | None, model: str) -> None:
        model = optional_text(data, "model") or model
        output = positive_int(data.get("outputTokens"))
        self.add_assistant(
            self._ids.claim(optional_text(data, "messageId") or id or self.info.id),
            _reply_parts(data),
            at,
            model=(_PROVIDER, model) if model else ("", ""),
            tokens=Tokens(output=output) if output else None,
        )
        self._start_tail()

    def _start_tail(self) -> None:
        if self._is_compacting and self._tail is None:
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
            raw={"toolCallId": call, **self._executions.pop(call, {}), "output": output},
        )

    # --- compactions ---

    def _finish_compaction(self, data: Json, id: str, at: int | None) -> None:
        summary = optional_text(data, "summaryContent")
        tail, self._is_compacting, self._tail = self._tail, False, None
        if data.get("success") is not False and summary:
            self.add_compaction(
                self._ids.claim(id or self.info.id),
                (TextPart(text=summary),),
                at,
                auto=data.get("trigger") != "manual",
                tail=tail,
                wire={_NAME: without(data, "summaryContent")},
            )


# --- parts ---------------------------------------------------------------------------------


def _prompt_texts(typed: str, full: str) -> Iterator[TextPart]:
    """The text that was sent to the model, with the part that the user typed on its own."""
    before, match, after = full.partition(typed) if typed else (full, "", "")
    if before:
        yield synthetic_text(before)
    if typed:
        # If the text was rewritten before it was sent, the user's own is kept for people.
        yield TextPart(text=typed) if match else TextPart(text=typed, ignored=True)
    if after:
        yield synthetic_text(after)


def _files(attachments: object) -> Iterator[FilePart]:
    """The inline attachments; others are only named in the text that was sent."""
    for item in objects(attachments or [], "the attachments"):
        mime, data = item.get("mimeType"), item.get("data")
        if isinstance(mime, str) and isinstance(data, str):
            yield FilePart(mime=mime, url=data_url(mime, data))


def _reply_parts(data: Json) -> Iterator[AnyPart]:
    """The reasoning, text and calls of a reply."""
    reasoning, text = optional_text(data, "reasoningText"), optional_text(data, "content")
    opaque = {name: data[name] for name in _OPAQUE if data.get(name)}
    if reasoning or opaque:
        yield ReasoningPart(text=reasoning, metadata=codec_metadata(_NAME, opaque))
    if text:
        yield TextPart(text=text)
    for request in objects(data.get("toolRequests") or [], "'toolRequests'"):
        arguments = subobject(request, "arguments")
        if not arguments and request.get("arguments"):
            arguments = {"input": request["arguments"]}  # tools with a grammar take a text
        state = Pending(input=arguments, title=optional_text(request, "intentionSummary") or UNSET)
        name, call = text_at(request, "name"), text_at(request, "toolCallId")
        yield ToolPart(tool=name, call_id=call, state=state)


def _is_event(line: Json) -> bool:
    is_linked = "parentId" in line and "timestamp" in line and isinstance(line.get("data"), dict)
    return is_linked and line.get("type") in ("session.start", "system.message", *_MESSAGES)
