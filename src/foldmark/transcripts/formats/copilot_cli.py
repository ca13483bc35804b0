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

from foldmark.model.messages import Message, Origin, SessionInfo, TextPart, Tokens, ToolPart
from foldmark.model.values import Json
from foldmark.transcripts.build import (
    Opened,
    Step,
    Tally,
    assistant_message,
    folded,
    moment,
    user_message,
)
from foldmark.transcripts.format import Format, decoder
from foldmark.transcripts.source import Head
from foldmark.transcripts.woven import Woven
from foldmark.wire.codec import Answer, as_number, options, text_at, without

from .copilot_parts import NAME, answer_parts, files, session_info, text, words

_PROVIDER = "github-copilot"
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
            model = text(data, "selectedModel")
            self._session = session_info(self._session.id, data, moment(record.timestamp))
            self._model = model
            yield from self._switch(self._thread(""))
        elif record.type == "session.model_change":
            self._model = text(data, "newModel")
        else:
            thread = self._thread(record.agent_id or text(data, "parentToolCallId"))
            thread.model = self._model
            # First, so that what cannot be read changes nothing.
            steps = list(thread.take(record, data))
            self.tally.messages += record.type in _MESSAGES
            yield from self._switch(thread)
            yield from steps

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
        self._woven = Woven(NAME, tally)
        self._ids: set[str] = set()
        self._announced: set[str] = set()  # calls of messages that have no result yet
        self._begun: dict[str, Json] = {}  # calls that no message announced
        self._is_folding = False
        self._tail: str | None = None  # the first message since a compaction began

    def take(self, event: Event, data: Json) -> Iterator[Step]:
        match event.type:
            case "system.message":
                yield from self._prompted(text(data, "content"))
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
                self._is_folding, self._tail = True, None
            case "session.compaction_complete":
                yield from self._folded(event, data)
            case _:
                pass  # for the screen, or told elsewhere

    def end(self) -> Iterator[Step]:
        yield from self._woven.flush()

    # --- messages ---

    def _prompted(self, prompt: str) -> Iterator[Step]:
        """The system prompt, which is told again with every request of the user."""
        origin = Origin(system=prompt)
        if self.info.origin != origin:
            self.info = replace(self.info, origin=origin)
            yield Opened(info=self.info)

    def _said(self, event: Event, data: Json) -> Iterator[Step]:
        typed = text(data, "content")
        sent = text(data, "transformedContent") or typed
        # What has a source is a skill's words or a notice; the one of a subagent is its task.
        is_typed = event.type == "user.message" and text(data, "source") in ("", "user")
        if not is_typed and not self.info.parent_id:
            typed = ""
        parts = (*words(typed, sent), *files(data.get("attachments")))
        if parts:
            yield from self._add(user_message(self._id(event), parts, moment(event.timestamp)))

    def _answered(self, event: Event, data: Json) -> Iterator[Step]:
        parts = tuple(answer_parts(data))
        model, made = text(data, "model") or self.model, as_number(data.get("outputTokens"))
        message = assistant_message(
            self._id(event, text(data, "messageId")),
            parts,
            moment(event.timestamp),
            model=(_PROVIDER, model) if model else ("", ""),
            tokens=Tokens(output=made) if made else None,
        )
        self._announced |= {part.call_id or "" for part in parts if isinstance(part, ToolPart)}
        yield from self._add(message)

    def _add(self, message: Message) -> Iterator[Step]:
        if self._is_folding and self._tail is None:
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
        result, is_error = options(data, "result"), data.get("success") is False
        output = text(result, "content")
        if is_error and not output:
            output = text(options(data, "error"), "message")
        shown = tuple(files(result.get("contents")))
        self._announced.discard(call)
        return Answer(
            call_id=call,
            output=output,
            is_error=is_error,
            files=shown,
            raw={"toolCallId": call, **self._begun.pop(call, {}), "output": output},
        )

    # --- compactions ---

    def _folded(self, event: Event, data: Json) -> Iterator[Step]:
        summary = text(data, "summaryContent")
        tail, self._is_folding, self._tail = self._tail, False, None
        if data.get("success") is False or not summary:
            return
        yield from self.end()
        yield from folded(
            self._id(event),
            (TextPart(text=summary),),
            moment(event.timestamp),
            auto=data.get("trigger") != "manual",
            tail=tail,
            wire={NAME: without(data, "summaryContent")},
        )


def _recognises(head: Head) -> bool:
    return any(_is_event(line) for line in head.lines)


def _is_event(line: Json) -> bool:
    is_linked = "parentId" in line and "timestamp" in line and isinstance(line.get("data"), dict)
    return is_linked and line.get("type") in ("session.start", "system.message", *_MESSAGES)


FORMAT = Format(
    name=NAME,
    about="GitHub Copilot CLI, ~/.copilot/session-state",
    recognises=_recognises,
    importer=CopilotCli,
)
