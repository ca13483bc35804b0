"""GitHub Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`, one event a line.

Facts of this format: what the user typed is told beside what the model was sent in its place; a
result has a larger copy for the screen; hooks repeat results; a compaction may run while the
session goes on, and keeps what came since it began. Events of subagents name their agent, or in
older versions the call that started it: they are sessions of their own.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from foldmark.messages import (
    AnyPart,
    FilePart,
    Message,
    Origin,
    Pending,
    ReasoningPart,
    SessionInfo,
    TextPart,
    Time,
    Tokens,
    ToolPart,
)
from foldmark.values import Json
from foldmark.wire.files import data_url
from foldmark.wire.model import Answer, as_number, kept, objects, options, text_at, without

from .format import Format, Opened, Step, Tally, decoder
from .making import assistant_message, folded, moment, note, user_message
from .source import Head
from .woven import Woven

_NAME = "copilot-cli"
_PROVIDER = "github-copilot"
_OPAQUE = ("reasoningOpaque", "encryptedContent")
_MESSAGES = ("user.message", "assistant.message")


class Event(Struct, gc=False, rename="camel"):
    """A line."""

    type: str
    data: Json | UnsetType | None = UNSET
    id: str | UnsetType | None = UNSET
    timestamp: str | UnsetType | None = UNSET
    agent_id: str | UnsetType | None = UNSET


_decode = decoder(Event)


class CopilotCli:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, for events before which no session was started."""
        self.decode = _decode
        self.tally = Tally()
        self._session = SessionInfo(id=Path(name).stem)
        self._threads: dict[str, _Thread] = {}
        self._now: _Thread | None = None
        self._model = ""

    def take(self, record: Event, line: int) -> Iterator[Step]:
        """What an event says."""
        del line
        data = record.data or {}
        if record.type == "session.start":
            self._session = _session(self._session.id, data, moment(record.timestamp))
            self._model = _text(data, "selectedModel")
            yield from self._switch(self._thread(""))
        elif record.type == "session.model_change":
            self._model = _text(data, "newModel")
        else:
            self.tally.messages += record.type in _MESSAGES
            thread = self._thread(record.agent_id or _text(data, "parentToolCallId"))
            thread.model = self._model
            yield from self._switch(thread)
            yield from thread.take(record, data)

    def end(self) -> Iterator[Step]:
        """What is held."""
        if self._now is not None:
            yield from self._now.end()

    def _thread(self, agent: str) -> "_Thread":
        name = f"{self._session.id}-{agent}" if agent else self._session.id
        if name not in self._threads:
            info = self._session
            if agent:
                info = replace(info, id=name, parent_id=info.id, title=f"subagent {agent}")
            self._threads[name] = _Thread(info, self.tally)
        return self._threads[name]

    def _switch(self, thread: "_Thread") -> Iterator[Step]:
        if thread is not self._now:
            yield from self.end()
            self._now = thread
            yield Opened(info=thread.info)


class _Thread:
    """The events of one conversation."""

    def __init__(self, info: SessionInfo, tally: Tally) -> None:
        self.info = info
        self.model = ""
        self._woven = Woven(_NAME, tally)
        self._ids: set[str] = set()
        self._announced: set[str] = set()  # calls of messages that have no result yet
        self._begun: dict[str, Json] = {}  # calls that no message announced
        self._folding = False
        self._tail: str | None = None  # the first message since a compaction began

    def take(self, event: Event, data: Json) -> Iterator[Step]:
        match event.type:
            case "system.message":
                yield from self._prompted(_text(data, "content"))
            case "user.message" | "system.notification":
                yield from self._said(event, data)
            case "assistant.message":
                yield from self._answered(event, data)
            case "tool.execution_start":
                self._begin(text_at(data, "toolCallId"), data)
            case "tool.execution_complete":
                answer = self._result(text_at(data, "toolCallId"), data)
                yield from self._woven.answer(answer, moment(event.timestamp))
            case "session.compaction_start":
                self._folding, self._tail = True, None
            case "session.compaction_complete":
                yield from self._folded(event, data)
            case _:
                pass  # for the screen, or told otherwise

    def end(self) -> Iterator[Step]:
        yield from self._woven.flush()

    # --- messages ---

    def _prompted(self, text: str) -> Iterator[Step]:
        """The system prompt, which is told again with every request of the user."""
        origin = Origin(system=text)
        if self.info.origin != origin:
            self.info = replace(self.info, origin=origin)
            yield Opened(info=self.info)

    def _said(self, event: Event, data: Json) -> Iterator[Step]:
        typed = _text(data, "content")
        sent = _text(data, "transformedContent") or typed
        # A skill's words, a reminder, a notice: what has a source was not typed by the user. Of a
        # subagent it is the task.
        by_program = event.type == "system.notification" or _text(data, "source") not in (
            "",
            "user",
        )
        if by_program and not self.info.parent_id:
            typed = ""
        parts = [*_words(typed, sent), *_files(data.get("attachments"))]
        if parts:
            yield from self._add(user_message(self._id(event), parts, moment(event.timestamp)))

    def _answered(self, event: Event, data: Json) -> Iterator[Step]:
        parts: list[AnyPart] = []
        thought, text = _text(data, "reasoningText"), _text(data, "content")
        opaque = {name: data[name] for name in _OPAQUE if data.get(name)}
        if thought or opaque:
            parts.append(ReasoningPart(text=thought, metadata=kept(_NAME, opaque)))
        if text:
            parts.append(TextPart(text=text))
        calls = [_call(held) for held in objects(data.get("toolRequests") or [], "'toolRequests'")]
        self._announced.update(call.call_id or "" for call in calls)
        model, made = _text(data, "model") or self.model, as_number(data.get("outputTokens"))
        message = assistant_message(
            self._id(event, _text(data, "messageId")),
            (*parts, *calls),
            moment(event.timestamp),
            model=(_PROVIDER, model) if model else ("", ""),
            tokens=Tokens(output=made) if made else None,
        )
        yield from self._add(message)

    def _add(self, message: Message) -> Iterator[Step]:
        if self._folding and self._tail is None:
            self._tail = message.id
        yield from self._woven.add(message)

    def _id(self, event: Event, given: str = "") -> str:
        """An id once only."""
        name = given or event.id or self.info.id
        if name in self._ids or name == self.info.id:
            name = f"{name}-{len(self._ids) + 1}"
        self._ids.add(name)
        return name

    # --- calls ---

    def _begin(self, call: str, data: Json) -> None:
        """A call is told again as it begins; one that no message announced is told only here."""
        if call not in self._announced:
            self._begun[call] = {name: data.get(name) for name in ("toolName", "arguments")}

    def _result(self, call: str, data: Json) -> Answer:
        self._announced.discard(call)
        result, is_error = options(data, "result"), data.get("success") is False
        told = _text(result, "content")
        output = told or (_text(options(data, "error"), "message") if is_error else "")
        return Answer(
            call_id=call,
            output=output,
            is_error=is_error,
            files=tuple(_files(result.get("contents"))),
            raw={"toolCallId": call, **self._begun.pop(call, {}), "output": output},
        )

    # --- compactions ---

    def _folded(self, event: Event, data: Json) -> Iterator[Step]:
        tail, self._folding, self._tail = self._tail, False, None
        summary = _text(data, "summaryContent")
        if data.get("success") is False or not summary:
            return
        yield from self.end()
        yield from folded(
            self._id(event),
            (TextPart(text=summary),),
            moment(event.timestamp),
            auto=data.get("trigger") != "manual",
            tail=tail,
            wire={_NAME: without(data, "summaryContent")},
        )


def _session(name: str, data: Json, at: int | None) -> SessionInfo:
    at = moment(data.get("startTime")) or at
    return SessionInfo(
        id=_text(data, "sessionId") or name,
        directory=_text(options(data, "context"), "cwd") or UNSET,
        version=_text(data, "copilotVersion") or UNSET,
        time=UNSET if at is None else Time(created=at, updated=at),
    )


def _words(typed: str, sent: str) -> Iterator[TextPart]:
    """What the model was sent; what the user typed of it stands apart from the rest."""
    before, found, after = sent.partition(typed) if typed else (sent, "", "")
    if before:
        yield note(before)
    if typed:
        # Where it was sent in other words, the user's own are kept beside them.
        yield TextPart(text=typed) if found else TextPart(text=typed, ignored=True)
    if after:
        yield note(after)


def _files(held: object) -> Iterator[FilePart]:
    """What is attached inline; the rest is named in what the model was sent."""
    for item in objects(held or [], "what is attached"):
        mime, data = item.get("mimeType"), item.get("data")
        if isinstance(mime, str) and isinstance(data, str):
            yield FilePart(mime=mime, url=data_url(mime, data))


def _call(request: Json) -> ToolPart:
    given = request.get("arguments") or {}
    state = Pending(
        # A tool with a grammar of its own takes a text.
        input=options(request, "arguments") or ({"input": given} if given else {}),
        title=_text(request, "intentionSummary") or UNSET,
    )
    return ToolPart(
        tool=text_at(request, "name"), call_id=text_at(request, "toolCallId"), state=state
    )


def _text(data: Json, name: str) -> str:
    """The text of a field that may be absent."""
    return "" if data.get(name) is None else text_at(data, name)


def _recognises(head: Head) -> bool:
    return any(_is_event(line) for line in head.lines)


def _is_event(line: Json) -> bool:
    is_linked = "parentId" in line and "timestamp" in line and isinstance(line.get("data"), dict)
    return is_linked and line.get("type") in ("session.start", "system.message", *_MESSAGES)


FORMAT = Format(
    name=_NAME,
    about="GitHub Copilot CLI, ~/.copilot/session-state",
    recognises=_recognises,
    importer=CopilotCli,
)
