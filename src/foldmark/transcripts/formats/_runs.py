"""Reads runs of SWE-agent and mini-swe-agent: lists of chat messages with commands in their texts.

Without function calling, a model writes its command into its text. Such a text is split into text
and a call, so that the command's output is not taken for a request of the user. The characters
around the command are kept in the call's metadata.
"""

import re
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from foldmark.model.messages import (
    AnyPart,
    Origin,
    Pending,
    SessionInfo,
    TextPart,
    ToolPart,
    has_result,
)
from foldmark.model.values import Extra, Json
from foldmark.wire.codec import ReadResult
from foldmark.wire.openai_chat import OpenAIChat

from ..build import ConversationBuilder, FormatReader, provider_and_model, read_each, text_or_empty

_FACTS = ("exit_status", "model_stats")  # without the submission, which is the last output
_FENCE = "```"
_LINE_END = re.compile(r"\s*\n")
# A command is enclosed by fences or by tags.
_OPENING = re.compile(r"(?:```[^\n`]*\n|<(\w+)>)\s*")
_CLOSING = re.compile(r"\s*(?:```|</(\w+)>)")
_MAX_OPENINGS = 64
_wire = OpenAIChat()


class AgentRun(ConversationBuilder):
    """Builds the conversation of one run; a format overrides `read`."""

    def __init__(self, reader: FormatReader, task: object, messages: list[Json]) -> None:
        """Start the session of a run, named after its task, with its leading system prompts."""
        session = reader.session_ids.claim(text_or_empty(task) or reader.stem)
        prompts: list[str] = []
        for message in messages:
            if message.get("role") != "system":
                break
            parts = _wire.read({"role": "system", "content": message.get("content")}).parts
            prompts.append("\n".join(part.text for part in parts if isinstance(part, TextPart)))
        origin = Origin(system="\n\n".join(prompts)) if prompts else UNSET
        super().__init__(reader, SessionInfo(id=session, title=session or UNSET, origin=origin))
        reader.tally.messages += len(messages)
        self._messages = messages
        self._prompts = len(prompts)
        self.model: tuple[str, str] = ("", "")  # from the configuration of the run
        self.pending: list[str] = []  # ids of calls without a result
        self.has_called = True  # whether the last reply has a call

    def read_all(self, field: str, about: Json, **info: object) -> None:
        """Add all messages; BadInput names an unreadable one by its index in the field's list."""
        self.extra = run_facts(self.reader.name, about, _FACTS)
        self.open(**{name: text_or_empty(value) or UNSET for name, value in info.items()})
        read_each(self._messages, field, self._read_numbered)

    def _read_numbered(self, raw: Json, number: int) -> None:
        if number >= self._prompts:
            self.read(raw, f"{self.info.id}-{number}")

    def read(self, raw: Json, id: str) -> None:
        """Add a message of the run under this id."""
        raise NotImplementedError

    def add_output(self, call: Any, content: object, at: int | None) -> None:
        """Add the output of a call."""
        raw = {"role": "tool", "tool_call_id": call, "content": content}
        self.end_call(_wire.read(raw).results[0], at)

    def end_call(self, result: ReadResult, at: int | None) -> None:
        """Add the result of a call, which is no longer pending."""
        if result.call_id in self.pending:
            self.pending.remove(result.call_id)
        self.add_result(result, at)

    def add_reply(
        self,
        id: str,
        parts: Iterable[AnyPart],
        at: int | None,
        model: object = None,
        **about: Any,
    ) -> None:
        """Add a reply of the model, whose calls are pending from now on."""
        parts = tuple(parts)
        calls = [part for part in parts if isinstance(part, ToolPart)]
        self.has_called = bool(calls)
        self.pending = [part.call_id or "" for part in calls if not has_result(part)]
        used = self.model if any(self.model) else provider_and_model(model)
        self.add_assistant(id, parts, at, model=used, **about)


def run_facts(format: str, about: Json, names: Iterable[str]) -> Extra | UnsetType:
    """The fields of these names, such as a run's outcome and cost, under the format's name."""
    facts = {name: about[name] for name in names if about.get(name) is not None}
    return Extra({format: facts}) if facts else UNSET


# --- commands in texts ---------------------------------------------------------------------


class CommandSpan(NamedTuple):
    """The position of a command in a text, and of the fences or tags around it."""

    opens: int
    begins: int
    ends: int
    closes: int


def enclosed_commands(text: str, opening: str, closing: str) -> list[CommandSpan]:
    """All commands between an opening and the next closing."""
    spans: list[CommandSpan] = []
    opens = text.find(opening)
    while opens >= 0:
        begins = opens + len(opening)
        if opening.startswith(_FENCE):
            # The line of an opening fence has nothing else on it.
            line = _LINE_END.match(text, begins)
            if line is None:
                opens = text.find(opening, begins)
                continue
            begins = line.end()
        ends = text.find(closing, begins)
        if ends < 0:
            break
        spans.append(CommandSpan(opens, begins, ends, ends + len(closing)))
        opens = text.find(opening, ends + len(closing))
    return spans


def find_command(text: str, command: str) -> CommandSpan | None:
    """The last position of a known command, or None if the text has it in another form."""
    if text.strip() == command:
        return CommandSpan(0, 0, len(text), len(text))
    for opening in reversed(deque(_OPENING.finditer(text), maxlen=_MAX_OPENINGS)):
        begins = opening.end()
        if text.startswith(command, begins):
            ends = begins + len(command)
            closing = _CLOSING.match(text, ends)
            if closing is not None and closing.group(1) == opening.group(1):
                return CommandSpan(opening.start(), begins, ends, closing.end())
    return None


def split_at_command(
    text: str, span: CommandSpan, key: str, tool: str, call_id: str
) -> tuple[AnyPart, ...]:
    """The text before a command, the command as a call, and the text after it.

    The call's metadata has, under this key, the characters on both sides of the command.
    """
    before = text[: span.opens].rstrip()
    command = text[span.begins : span.ends].strip()
    begins = text.find(command, span.begins)
    rest = text[span.closes :].lstrip()
    closing = text[begins + len(command) : len(text) - len(rest)]
    part = ToolPart(
        tool=tool,
        call_id=call_id,
        state=Pending(input={"command": command}),
        metadata={key: {"before": text[len(before) : begins], "after": closing}},
    )
    first = (TextPart(text=before),) if before else ()
    return (*first, part, TextPart(text=rest)) if rest else (*first, part)
