"""Runs of SWE-agent and mini-swe-agent: a list of chat messages, with commands in their texts.

Without function calling a model writes its command into its text. Such a text is split into what
is said and a call, so that the call's output can be told from what the user says. Nothing is lost:
what stood around the command is kept in the call's metadata.
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
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    provider_and_model,
    read_each,
    text_or_empty,
)
from foldmark.wire.codec import ReadResult
from foldmark.wire.openai_chat import OpenAIChat

_FACTS = ("exit_status", "model_stats")  # small; what was handed in is an output already
_FENCE = "```"
_LINE_END = re.compile(r"\s*\n")
# A fence or a tag, on either side of a command.
_OPENING = re.compile(r"(?:```[^\n`]*\n|<(\w+)>)\s*")
_CLOSING = re.compile(r"\s*(?:```|</(\w+)>)")
_MOST_OPENINGS = 64
_wire = OpenAIChat()


class AgentRun(ConversationBuilder):
    """The messages of one run, which is known by its task; each format says what they are."""

    def __init__(self, reader: FormatReader, task: object, messages: list[Json]) -> None:
        """Take the messages; the system prompts that lead them are told apart."""
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
        self.model: tuple[str, str] = ("", "")  # that was set up for the run
        self.unanswered: list[str] = []  # calls that wait for their outputs
        self.has_called = True  # whether the last answer has a call

    def read_all(self, name: str, about: Json, **info: object) -> None:
        """Tell of the run and all its messages; a wrong one is named by its place in the list."""
        self.extra = run_facts(self.reader.name, about, _FACTS)
        self.open(**{field: text_or_empty(held) or UNSET for field, held in info.items()})
        read_each(self._messages, name, self._read_if_said)

    def _read_if_said(self, said: Json, number: int) -> None:
        if number >= self._prompts:
            self.read(said, f"{self.info.id}-{number}")

    def read(self, said: Json, name: str) -> None:
        """Tell what a message says."""
        raise NotImplementedError

    def result(self, call: Any, content: object, at: int | None) -> None:
        """Tell what a call gave back."""
        given = {"role": "tool", "tool_call_id": call, "content": content}
        self.end_call(_wire.read(given).results[0], at)

    def end_call(self, answer: ReadResult, at: int | None) -> None:
        """Tell the result of a call, which waits no longer."""
        if answer.call_id in self.unanswered:
            self.unanswered.remove(answer.call_id)
        self.add_result(answer, at)

    def reply(
        self,
        name: str,
        parts: Iterable[AnyPart],
        at: int | None,
        model: object = None,
        **about: Any,
    ) -> None:
        """Tell an answer of the model, whose calls wait for their outputs."""
        parts = tuple(parts)
        calls = [part for part in parts if isinstance(part, ToolPart)]
        self.has_called = bool(calls)
        self.unanswered = [part.call_id or "" for part in calls if not has_result(part)]
        asked = self.model if any(self.model) else provider_and_model(model)
        self.add_assistant(name, parts, at, model=asked, **about)


def run_facts(name: str, about: Json, facts: Iterable[str]) -> Extra | UnsetType:
    """How a run ended and what it cost, under the name of its format."""
    found = {fact: about[fact] for fact in facts if about.get(fact) is not None}
    return Extra({name: found}) if found else UNSET


# --- commands in texts ---------------------------------------------------------------------


class CommandSpan(NamedTuple):
    """Where a command stands in a text, with what encloses it."""

    opens: int
    begins: int
    ends: int
    closes: int


def enclosed_commands(text: str, opening: str, closing: str) -> list[CommandSpan]:
    """All commands between an opening and a closing, each as short as it can be."""
    found: list[CommandSpan] = []
    opens = text.find(opening)
    while opens >= 0:
        begins = opens + len(opening)
        if opening.startswith(_FENCE):
            # The command begins on a line of its own; on this one nothing else may stand.
            line = _LINE_END.match(text, begins)
            if line is None:
                opens = text.find(opening, begins)
                continue
            begins = line.end()
        ends = text.find(closing, begins)
        if ends < 0:
            break
        found.append(CommandSpan(opens, begins, ends, ends + len(closing)))
        opens = text.find(opening, ends + len(closing))
    return found


def find_command(text: str, command: str) -> CommandSpan | None:
    """Where a command that is known stands last; None where it is written in another way."""
    if text.strip() == command:
        return CommandSpan(0, 0, len(text), len(text))
    for opening in reversed(deque(_OPENING.finditer(text), maxlen=_MOST_OPENINGS)):
        begins = opening.end()
        if text.startswith(command, begins):
            ends = begins + len(command)
            closing = _CLOSING.match(text, ends)
            if closing is not None and closing.group(1) == opening.group(1):
                return CommandSpan(opening.start(), begins, ends, closing.end())
    return None


def split_at_command(
    text: str, place: CommandSpan, key: str, tool: str, call_id: str
) -> tuple[AnyPart, ...]:
    """What is said before a command, the command as a call, and what is said after it.

    What encloses the command is kept in the call's metadata, under the key.
    """
    said = text[: place.opens].rstrip()
    command = text[place.begins : place.ends].strip()
    begins = text.find(command, place.begins)
    rest = text[place.closes :].lstrip()
    after = text[begins + len(command) : len(text) - len(rest)]
    part = ToolPart(
        tool=tool,
        call_id=call_id,
        state=Pending(input={"command": command}),
        metadata={key: {"before": text[len(said) : begins], "after": after}},
    )
    before = (TextPart(text=said),) if said else ()
    return (*before, part, TextPart(text=rest)) if rest else (*before, part)
