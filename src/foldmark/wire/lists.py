"""A list of a wire's messages, read as a whole and written back as it was.

Most of what a list says is told by the messages and what the codec keeps of each. What is odd
beyond that (results in other messages than they belong, ids used twice) is read as well as it can
be, and what came is noted beside the first message of the stretch: so whatever was read is written
back the same.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar, cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.log.render import media
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Origin,
    ReasoningPart,
    TextPart,
    ToolPart,
    UserInfo,
    told_error,
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

from .codec import JOINED, Answer, Read, Reader, Wire, opaque, options
from .exactness import as_it_came, raw_unless
from .pairing import Weaver

M = TypeVar("M")
COVERS = "covers"  # beside what came: how many of our messages that was


class Decoded(Frozen):
    """A list of a wire's messages as ours."""

    wire: str
    messages: tuple[Message, ...]
    origin: Origin  # with the system prompt that led the list, if one was told apart
    answers: tuple[Answer, ...] = ()  # results of calls that were made elsewhere


def read_list(wire: Wire, messages: Iterable[Json]) -> Decoded:
    """Our messages for a wire's; BadInput names the message that is none."""
    return _taken(_ListReader(wire), messages).decoded(wire)


def take_list(wire: Reader[M], messages: Iterable[M], *, prompts: bool) -> Decoded:
    """What a list adds to a session, in which its results may have their calls."""
    reader = _taken(_ListReader(wire, prompts=prompts, orphans=False), messages)
    return Decoded(
        wire=wire.name,
        messages=tuple(reader.messages()),
        origin=reader.origin(),
        answers=tuple(reader.lost),
    )


def _taken(reader: "_ListReader[M]", messages: Iterable[M]) -> "_ListReader[M]":
    for number, message in enumerate(messages):
        try:
            reader.take(message)
        except BadInput as error:
            place = f"message {number + 1}" + (f", {error.place}" if error.place else "")
            raise BadInput(error.cause, place=place) from None
    return reader


def write_list(wire: Wire, messages: Iterable[Message], origin: Origin | None = None) -> list[Json]:
    """A wire's messages for ours, just as they came from it."""
    written = _system(wire, origin)
    given = tuple(messages)
    shown: list[PromptMessage] = []
    place = 0
    while place < len(given):
        odd = _verbatim(wire, given, place)
        if odd is None:
            shown += as_shown(given[place])
            place += 1
            continue
        written += wire.write(shown, as_is=True)
        shown = []
        written += odd[0]
        place += odd[1]
    return written + wire.write(shown, as_is=True)


def _system(wire: Wire, origin: Origin | None) -> list[Json]:
    if origin is None:
        return []
    kept = (origin.wire or {}).get(wire.name)
    if isinstance(kept, list):
        return list(cast("list[Json]", kept))
    return wire.system(origin.system) if origin.system else []


# --- reading -------------------------------------------------------------------------------


class _ListReader(Generic[M]):
    """Reads messages one by one.

    With `prompts`, system prompts that lead the list are told apart from its messages; with
    `orphans`, a result without a call becomes a text.
    """

    def __init__(self, wire: Reader[M], *, prompts: bool = True, orphans: bool = True) -> None:
        self.lost: list[Answer] = []
        self._wire = wire
        self._prompts = prompts
        self._orphans = orphans
        self._system: list[M] = []
        self._texts: list[str] = []
        self._given: list[M] = []
        self._weaver = Weaver(wire.key)
        # Where a stretch may begin: its first message as given, as ours, and the answers so far.
        self._starts: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._count = 0
        self._answering = False  # whether the last that was read is an answer of the model

    def take(self, message: M) -> None:
        read = self._wire.read(message)
        if read.role == "system" and self._prompts and not self._given:
            self._system.append(message)
            self._texts += [part.text for part in read.parts if isinstance(part, TextPart)]
            return
        joins = read.joins and self._answering
        self._answering = read.role == "assistant"
        if not joins and not read.answers and self._given:
            self._starts.append((len(self._given), self._count, len(self._weaver.answered)))
        self._given.append(message)
        parts = read.parts
        if read.answers:
            parts = (*self._answered(read.answers), *parts)
        if joins:
            self._weaver.join(parts)
        elif parts or not read.answers:
            self._add(read, parts)

    def _answered(self, answers: Sequence[Answer]) -> list[TextPart]:
        """Give calls their results; those without a call as texts, or apart."""
        lost = [answer for answer in answers if not self._weaver.answer(answer)]
        if self._orphans:
            return [orphan(answer, self._wire.key) for answer in lost]
        self.lost += lost
        return []

    def _add(self, read: Read, parts: tuple[AnyPart, ...]) -> None:
        own: Json = {self._wire.key: read.rest} if read.rest else {}
        if read.answers:
            own[JOINED] = True
        self._count += 1
        name = read.id or f"msg_{self._count:06d}"
        info = UserInfo(id=name, wire=own or UNSET)
        if read.role == "assistant":
            info = AssistantInfo(id=name, wire=own or UNSET, tokens=read.tokens or UNSET)
        self._weaver.add(Message(info=info, parts=parts))

    def messages(self) -> list[Message]:
        """Our messages, results with their calls."""
        return self._weaver.rest()

    def decoded(self, wire: Wire) -> Decoded:
        """The list as it is kept: what it would be written back as is compared with what it was."""
        messages = self.messages()
        written = _written(wire, messages)
        if written != self._given:
            messages = self._kept(wire, messages, written)
        return Decoded(wire=wire.name, messages=tuple(messages), origin=self.origin())

    def origin(self) -> Origin:
        """The system prompt that led the list."""
        if not self._system:
            return Origin()
        return Origin(system="\n\n".join(self._texts), wire={self._wire.name: self._system})

    def _kept(self, wire: Wire, messages: list[Message], written: list[Json]) -> list[Message]:
        """Keep stretches as they came that would not be written back so; if need be, all."""
        all_given = cast("list[Json]", self._given)
        key, kept, place = wire.key, list(messages), 0
        starts = self._stretches()
        ends = [*starts[1:], (len(self._given), len(messages))]
        for (start, first), (end, last) in zip(starts, ends, strict=True):
            given = all_given[start:end]
            if written[place : place + len(given)] == given:
                place += len(given)
                continue
            alone = _written(wire, messages[first:last])
            place += len(alone)
            if alone != given:
                note = raw_unless(alone, given)
                kept[first] = _with_verbatim(messages[first], key, note, last - first)
        if write_list(wire, kept) != all_given:
            note = raw_unless(_written(wire, messages), all_given)
            kept = [_with_verbatim(messages[0], key, note, len(messages)), *messages[1:]]
        return kept

    def _stretches(self) -> list[tuple[int, int]]:
        """Where stretches begin, as given and as ours: no result after it has its call before."""
        answered = [number for number, _ in self._weaver.answered]
        oldest = list(accumulate(reversed([*answered, len(self._given)]), min))[::-1]
        return [(place, number) for place, number, told in self._starts if oldest[told] >= number]


def _written(wire: Wire, messages: Iterable[Message]) -> list[Json]:
    shown: list[PromptMessage] = []
    for message in messages:
        shown += as_shown(message)
    return wire.write(shown, as_is=True)


def _with_verbatim(message: Message, key: str, note: Json, covers: int) -> Message:
    own = {**options(message.info.wire, key), **note, COVERS: covers}
    wire = {**(message.info.wire or {}), key: own}
    return replace(message, info=replace(message.info, wire=wire))


def orphan(answer: Answer, key: str) -> TextPart:
    """A result without a call: a text that the program wrote."""
    text = opaque(key, answer.raw, answer.output)
    return replace(text, synthetic=True)


def _verbatim(wire: Wire, messages: Sequence[Message], place: int) -> tuple[list[Json], int] | None:
    """An odd stretch as it came, if it would still be written as it was; and how many it covers."""
    own = options(messages[place].info.wire, wire.key)
    covers = own.get(COVERS)
    if not isinstance(covers, int) or covers < 1:
        return None
    usual = _written(wire, messages[place : place + covers])
    came = as_it_came(usual, own)
    return None if came is usual else (came, covers)


# --- writing -------------------------------------------------------------------------------


def as_shown(message: Message) -> list[PromptMessage]:
    """A message just as it is: nothing hidden, nothing mended, nothing left out."""
    wire = message.info.wire or None
    if isinstance(message.info, UserInfo):
        said = [held for part in message.parts if (held := _said(part)) is not None]
        if message.parts and not said:
            return []  # a marker, or another task of the program's own
        words = tuple(held for held in said if not isinstance(held, Reasoning))
        return [UserMessage(content=words, wire=wire)]
    content: list[Text | Media | Reasoning | Call] = []
    results: list[Result] = []
    for part in message.parts:
        if isinstance(part, ToolPart):
            call, result = _called(part)
            content.append(call)
            results += result
        elif (said := _said(part)) is not None:
            content.append(said)
    shown: list[PromptMessage] = [AssistantMessage(content=tuple(content), wire=wire)]
    if results:
        shown.append(ToolMessage(content=tuple(results)))
    return shown


def _said(part: object) -> Text | Media | Reasoning | None:
    match part:
        case TextPart():
            return Text(text=part.text, provider_options=part.metadata or None)
        case ReasoningPart():
            return Reasoning(text=part.text, provider_options=part.metadata or None)
        case FilePart():
            return media(part)
        case _:
            return None


def _called(part: ToolPart) -> tuple[Call, list[Result]]:
    given = part.metadata or None
    name, call_id = part.tool, part.call_id or ""
    call = Call(
        tool_call_id=call_id,
        tool_name=name,
        input=part.state.input or {},
        provider_options=given,
    )
    match part.state:
        case Completed() as state:
            kind = "error-text" if told_error(state) else "text"
            output = Output(type=kind, value=state.output)
            files = tuple(media(held) for held in state.attachments or ())
        case Failed() as state:
            output, files = Output(type="error-text", value=state.error), ()
        case _:
            return call, []
    result = Result(
        tool_call_id=call_id,
        tool_name=name,
        output=output,
        attachments=files,
        provider_options=given,
    )
    return call, [result]
