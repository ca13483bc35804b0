"""Gemini CLI's records of messages, read: what was said, and what came of the calls.

Facts of these records: content is a text or Gemini's own parts; a call may stand among them and
again in `toolCalls`, where its result is what the model was told, with a copy for the screen.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    Cache,
    Message,
    Pending,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.values import Frozen, Json
from foldmark.transcripts.build import assistant_message, moment, user_message
from foldmark.wire.gemini import Gemini
from foldmark.wire.model import Answer, as_number

WIRE = Gemini()
_SNAPSHOT, _MASKED = "<state_snapshot>", "<tool_output_masked>"
_SETUP = "<session_context>"  # by it the program begins what it tells of where it works


class Thought(Struct, gc=False):
    """A summary of what the model thought."""

    subject: str | None = ""
    description: str | None = ""


class Called(Struct, gc=False):
    """A call, and what came of it."""

    name: str
    id: str | UnsetType | None = UNSET
    args: Json | UnsetType | None = UNSET
    result: Any = None


class Said(Struct, gc=False, rename="camel"):
    """A message."""

    id: str | UnsetType | None = UNSET
    type: str | UnsetType = UNSET
    timestamp: str | UnsetType | None = UNSET
    content: Any = None
    thoughts: list[Thought] | UnsetType | None = UNSET
    tool_calls: list[Called] | UnsetType | None = UNSET
    tokens: Json | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET


class Patch(Struct, gc=False, rename="camel"):
    """What changes of a session."""

    messages: list[Said] | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    last_updated: str | UnsetType | None = UNSET


class Record(Said, gc=False, rename="camel"):
    """A line, or a whole document: a message, what is said of the session, a change of it."""

    session_id: str | UnsetType = UNSET
    project_hash: str | UnsetType | None = UNSET
    start_time: str | UnsetType | None = UNSET
    last_updated: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    messages: list[Said] | UnsetType | None = UNSET
    history: list[Json] | UnsetType = UNSET
    contents: list[Json] | UnsetType = UNSET  # a request to the API
    system_instruction: Json | UnsetType = UNSET
    patch: Patch | UnsetType | None = field(default=UNSET, name="$set")
    rewind: str | UnsetType | None = field(default=UNSET, name="$rewindTo")


class Built(Frozen):
    """A message of ours, and the results that were told with it."""

    message: Message
    answers: tuple[Answer, ...]
    at: int | None

    @property
    def texts(self) -> list[TextPart]:
        """What it says in words."""
        return [part for part in self.message.parts if isinstance(part, TextPart)]

    @property
    def calls(self) -> set[str]:
        """The calls that it makes."""
        calls = (part for part in self.message.parts if isinstance(part, ToolPart))
        return {part.call_id for part in calls if part.call_id}

    @property
    def masked(self) -> set[str]:
        """The calls whose results the program took out of the context."""
        return {answer.call_id for answer in self.answers if _MASKED in answer.output}

    @property
    def is_snapshot(self) -> bool:
        """Whether it stands for messages that were folded."""
        return any(_SNAPSHOT in part.text for part in self.texts)


def is_content(item: object) -> bool:
    """Whether it is a content of the API; others that have parts tell the kind of each."""
    if not isinstance(item, dict):
        return False
    role, parts = (cast("Json", item).get(name) for name in ("role", "parts"))
    if role not in ("user", "model") or not isinstance(parts, list):
        return False
    return all(isinstance(part, dict) and "type" not in part for part in cast("list[Any]", parts))


def is_shown(said: Said) -> bool:
    """Whether the model sees it; of what the program says, only files that a tool gave."""
    if said.type in ("user", "gemini"):
        return True
    given = cast("list[object]", said.content) if isinstance(said.content, list) else []
    return said.type == "info" and any(
        isinstance(part, dict) and "inlineData" in part for part in given
    )


def built(said: Said, id: str) -> Built:
    """A record as a message of this id."""
    by_model, at = said.type == "gemini", moment(said.timestamp)
    content = {"role": "model" if by_model else "user", "parts": _parts(said.content)}
    read = WIRE.read(content)
    if not by_model:
        parts = tuple(_by_program(part) for part in read.parts)
        return Built(message=user_message(id, parts, at), answers=read.answers, at=at)
    calls = {call.id or f"{id}-{n}": call for n, call in enumerate(said.tool_calls or [], 1)}
    message = assistant_message(
        id,
        (*_thoughts(said.thoughts or []), *_with_calls(read.parts, calls)),
        at,
        model=(WIRE.provider, said.model) if said.model else ("", ""),
        tokens=_tokens(said.tokens) if said.tokens else None,
    )
    answers = (_answer(call_id, call) for call_id, call in calls.items() if call.result)
    return Built(message=message, answers=tuple(answers), at=at)


def _parts(content: object) -> list[Json]:
    """Content in the one form that the API takes."""
    held = cast("list[object]", content) if isinstance(content, list) else [content]
    parts = [{"text": part} if isinstance(part, str) else part for part in held]
    return [cast("Json", part) for part in parts if part and part != {"text": ""}]


def _by_program(part: AnyPart) -> AnyPart:
    is_setup = isinstance(part, TextPart) and part.text.startswith(_SETUP)
    return replace(part, synthetic=True) if is_setup else part


def _thoughts(thoughts: list[Thought]) -> Iterator[ReasoningPart]:
    for thought in thoughts:
        subject = f"**{thought.subject}**" if thought.subject else ""
        yield ReasoningPart(text=" ".join(filter(None, (subject, thought.description))))


def _with_calls(parts: Sequence[AnyPart], calls: dict[str, Called]) -> Iterator[AnyPart]:
    """All that was said, and the calls that do not stand in it already."""
    yield from parts
    told = {part.call_id for part in parts if isinstance(part, ToolPart)}
    for call_id, call in calls.items():
        if call_id not in told:
            state = Pending(input=call.args or {})
            yield ToolPart(tool=call.name, call_id=call_id, state=state)


def _answer(call_id: str, call: Called) -> Answer:
    """The result of a call; where it was changed later, those of its neighbours stand with it."""
    read = WIRE.read({"role": "user", "parts": _parts(call.result)})
    for answer in read.answers:
        if answer.call_id == call_id or len(read.answers) == 1:
            return replace(answer, call_id=call_id)
    text = "".join(part.text for part in read.parts if isinstance(part, TextPart))
    return Answer(call_id=call_id, output=text, tool=call.name, raw={"result": call.result})


def _tokens(told: Json) -> Tokens:
    given, cached = as_number(told.get("input")), as_number(told.get("cached"))
    thought = as_number(told.get("thoughts"))
    made = as_number(told.get("output")) + thought
    cached = min(cached, given)
    return Tokens(
        input=given - cached,
        output=made,
        reasoning=thought,
        total=as_number(told.get("total")) or given + made,
        cache=Cache(read=cached, write=0),
    )
