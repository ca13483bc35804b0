"""Render one message of the log for a model: a cell of the view, with its tokens.

A cell depends on its own message and marks, and on earlier uses of its call ids, but never on
later messages. So each request starts with the bytes of the previous one.
"""

from typing import cast

from msgspec import UNSET

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    ReasoningPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    is_error_output,
    is_opaque,
    output_tokens,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    Output,
    PromptMessage,
    Reasoning,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.model.values import Frozen, Json
from foldmark.policy import ViewRules
from foldmark.tokens.counters import truncate_middle
from foldmark.tokens.sizes import EXPANDED, MESSAGE_OVERHEAD

from .log import Entry, Log, handle, marker_part

SUBTASK = "The following tool was executed by the user"


class Cell(Frozen):
    """A rendered message of the log: nothing, one message, or a message and its tool results."""

    index: int
    messages: tuple[PromptMessage, ...]
    tokens: int
    by_assistant: bool


class Renderer:
    """Renders cells, with unique call ids, as providers refuse repeated ones."""

    def __init__(self, log: Log, rules: ViewRules, model: str = "", longest: int = 0) -> None:
        """Render a log by these rules, for a model, with at most `longest` tokens per output."""
        self._longest = longest
        self._log = log
        self._rules = rules
        self._model = model
        self._owners: dict[str, int] = {}  # call id → ordinal of the part that used it first
        self._call_ids: dict[int, list[str]] = {}  # of each message

    def forget(self, index: int) -> None:
        """Release the call ids of a message before it is rendered again."""
        for name in self._call_ids.pop(index, ()):
            self._owners.pop(name, None)

    def cell(self, entry: Entry) -> Cell:
        """The cell of a message that is neither marker nor summary of the latest pivot."""
        if isinstance(entry.message.info, AssistantInfo):
            return self._assistant(entry, entry.message.info)
        return self._user(entry)

    def summary(self, entry: Entry) -> Cell:
        """The cell of a summary that the provider made and expects back unchanged."""
        texts = [part for part in entry.message.parts if isinstance(part, TextPart)]
        content = tuple(_text(part) for part in texts if self._is_visible(part))
        tokens = sum(size.total for size in entry.sizes) + MESSAGE_OVERHEAD
        messages = (AssistantMessage(content=content),)
        return Cell(index=entry.index, messages=messages, tokens=tokens, by_assistant=True)

    def _user(self, entry: Entry) -> Cell:
        content: list[Text | Media] = []
        tokens = MESSAGE_OVERHEAD
        for part, size in zip(entry.message.parts, entry.sizes, strict=True):
            match part:
                case TextPart() if self._is_visible(part):
                    content.append(_text(part))
                    tokens += size.fixed
                case FilePart() if part.mime not in EXPANDED:
                    content.append(media(part))
                    tokens += size.fixed
                case SubtaskPart():
                    content.append(Text(text=SUBTASK))
                    tokens += self._log.count(SUBTASK)
                case _:
                    pass
        if not content:
            return Cell(index=entry.index, messages=(), tokens=0, by_assistant=False)
        wire = entry.message.info.wire or None
        messages = (UserMessage(content=tuple(content), wire=wire),)
        return Cell(index=entry.index, messages=messages, tokens=tokens, by_assistant=False)

    def _assistant(self, entry: Entry, info: AssistantInfo) -> Cell:
        if info.summary and not self._rules.old_pivots:
            # The view renders a pivot's summary; failed and incomplete ones are never shown.
            return Cell(index=entry.index, messages=(), tokens=0, by_assistant=False)
        if info.error and not _is_aborted_reply(info, entry.message):
            return Cell(index=entry.index, messages=(), tokens=0, by_assistant=True)
        content: list[Text | Media | Reasoning | Call] = []
        results: list[Result] = []
        tokens = 0
        own = self._is_own(info)
        for offset, part in enumerate(entry.message.parts):
            if isinstance(part, ToolPart):
                call, result, cost = self._tool(entry, offset, part, own=own)
                content.append(call)
                results.append(result)
                tokens += cost
            elif block := self._block(part, own=own):
                content.append(block)
                tokens += entry.sizes[offset].fixed
        messages: list[PromptMessage] = []
        if content:
            wire = (info.wire or None) if own else None
            messages.append(AssistantMessage(content=tuple(content), wire=wire))
            tokens += MESSAGE_OVERHEAD
        if results:
            messages.append(ToolMessage(content=tuple(results)))
            tokens += MESSAGE_OVERHEAD
        return Cell(index=entry.index, messages=tuple(messages), tokens=tokens, by_assistant=True)

    def _is_own(self, info: AssistantInfo) -> bool:
        """Whether the model that reads the view wrote this message, or its model is unknown."""
        name = f"{info.provider_id or ''}:{info.model_id}"
        return not self._model or not info.model_id or self._model == name

    def _block(self, part: AnyPart, *, own: bool) -> Text | Media | Reasoning | None:
        """The block of a part of a reply, if any; opaque data is for its own model only."""
        match part:
            case ReasoningPart():
                return self._reasoning(part, own=own)
            case TextPart() if own and self._is_visible(part):
                return _text(part)
            case TextPart() if not part.ignored and self._has_text(part.text):
                return Text(text=part.text)
            case FilePart() if self._rules.valid:
                return media(part)
            case _:
                return None

    def _is_visible(self, part: TextPart) -> bool:
        return not part.ignored and (self._has_text(part.text) or is_opaque(part))

    def _has_text(self, text: str) -> bool:
        """Whether a text may be shown: some providers refuse white space alone."""
        return bool(text.strip()) if self._rules.valid else text != ""

    def _reasoning(self, part: ReasoningPart, *, own: bool) -> Text | Reasoning | None:
        """The reasoning of another model becomes plain text, as its signature is not valid here."""
        if not own:
            return Text(text=part.text) if self._has_text(part.text) else None
        if not part.metadata and not self._has_text(part.text):
            return None
        return Reasoning(text=part.text, provider_options=part.metadata or None)

    def _tool(
        self, entry: Entry, offset: int, part: ToolPart, *, own: bool
    ) -> tuple[Call, Result, int]:
        ordinal = entry.ordinal + offset
        size = entry.sizes[offset]
        call_id = self._call_id(part, ordinal)
        self._call_ids.setdefault(entry.index, []).append(call_id)
        attached: tuple[Media, ...] = ()
        tokens = size.fixed + size.body + size.attached
        match part.state:
            case Completed() if ordinal in self._log.marks:
                text = self._placeholder(part, part.state, ordinal)
                output = Output(type="text", value=text)
                tokens = size.fixed + self._log.count(text)
            case Completed():
                kind = "error-text" if is_error_output(part.state) else "text"
                text = part.state.output
                limit = output_tokens(part.state, size.body, self._longest)
                if limit < size.body:
                    text = truncate_middle(text, limit, self._log.count, handle(ordinal))
                    tokens += self._log.count(text) - size.body
                output = Output(type=kind, value=text)
                if part.state.attachments is not UNSET:
                    attached = tuple(map(media, part.state.attachments))
            case Failed():
                output = Output(type="error-text", value=part.state.error)
            case _:
                output = Output(type="error-text", value=self._rules.interrupted)
        options = (part.metadata or None) if own else None
        call = Call(
            tool_call_id=call_id,
            tool_name=part.tool,
            input=part.state.input or {},
            provider_options=options,
        )
        result = Result(
            tool_call_id=call_id,
            tool_name=part.tool,
            output=output,
            attachments=attached,
            provider_options=options,
        )
        return call, result, tokens

    def _call_id(self, part: ToolPart, ordinal: int) -> str:
        call_id = part.call_id or f"call_{handle(ordinal)}"
        while self._rules.valid and self._owners.setdefault(call_id, ordinal) != ordinal:
            call_id = f"{call_id}_{handle(ordinal)}"
        return call_id

    def _placeholder(self, part: ToolPart, state: Completed, ordinal: int) -> str:
        template = self._rules.placeholder
        if "{" not in template:
            return template
        fields = {
            "what": f"{part.tool} {self._log.calls[ordinal].target.label}".strip(),
            "size": size_text(state.output),
            "handle": handle(ordinal),
        }
        return template.format_map(fields)


def size_text(text: str) -> str:
    """The size of a text in bytes and lines, for people and models."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    lines = text.count("\n") + 1
    size = f"{length / 1000:.1f} kB" if length >= 1000 else f"{length} B"
    return f"{size}, {lines} lines" if lines > 1 else size


def message_text(message: Message) -> str:
    """All text parts of a message, joined."""
    return "\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))


def is_marker(message: Message) -> bool:
    """Whether a message queues a compaction."""
    return message.is_user and marker_part(message) is not None


def is_summary(message: Message) -> bool:
    """Whether a message is a summary, complete or not."""
    return isinstance(message.info, AssistantInfo) and bool(message.info.summary)


def _text(part: TextPart) -> Text:
    return Text(text=part.text, provider_options=part.metadata or None)


def media(part: FilePart) -> Media:
    """The block of a file."""
    return Media(
        data=part.url,
        media_type=part.mime,
        filename=part.filename or None,
        provider_options=part.metadata or None,
    )


def _is_aborted_reply(info: AssistantInfo, message: Message) -> bool:
    """Whether the user aborted a reply that already had content."""
    error = cast("Json", info.error) if isinstance(info.error, dict) else {}
    return error.get("name") == "MessageAbortedError" and any(
        not isinstance(part, StepStartPart | ReasoningPart) for part in message.parts
    )
