"""A list of a wire's messages, read as a whole and written back as it was.

Most of what a list says is told by the messages and what the codec keeps of each. What is odd
beyond that (results in other messages than they belong, ids used twice) is read as well as it can
be, and kept as it came beside the first message of the stretch: so whatever was read is written
back the same.
"""

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.messages import (
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Origin,
    Part,
    ReasoningPart,
    TextPart,
    ToolPart,
    UserInfo,
    told_error,
    with_part,
)
from foldmark.shown import (
    AnyShown,
    Call,
    FromAssistant,
    FromTools,
    FromUser,
    Media,
    Output,
    Reasoning,
    Result,
    Text,
)
from foldmark.values import Frozen, Json

from .model import JOINED, RESULT, Answer, Read, Wire, opaque, options
from .weaving import Weaver

VERBATIM, COVERS, ORDER = "verbatim", "covers", "order"


class Decoded(Frozen):
    """A list of a wire's messages as ours; the system prompt that led it is in the origin."""

    wire: str
    messages: tuple[Message, ...]
    origin: Origin


def read_list(wire: Wire, messages: Sequence[Json]) -> Decoded:
    """Our messages for a wire's; BadInput names the message that is none."""
    reader = _ListReader(wire)
    for number, message in enumerate(messages):
        try:
            reader.take(message)
        except BadInput as error:
            place = f"message {number + 1}" + (f", {error.place}" if error.place else "")
            raise BadInput(error.cause, place=place) from None
    return reader.decoded()


def write_list(wire: Wire, messages: Iterable[Message], origin: Origin | None = None) -> list[Json]:
    """A wire's messages for ours, just as they came from it."""
    written = _system(wire, origin)
    given = tuple(messages)
    shown: list[AnyShown] = []
    place = 0
    while place < len(given):
        odd = _verbatim(wire, given, place)
        if odd is None:
            shown += as_shown(given[place], wire.key)
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


class _ListReader:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._system: list[Json] = []
        self._texts: list[str] = []
        self._done: list[Message] = []
        self._stretch: list[Json] = []
        self._weaver = Weaver(wire.key, most=2**62)
        self._count = 0
        self._answering = False  # whether the last that was read is an answer of the model

    def take(self, message: Json) -> None:
        read = self._wire.read(message)
        if read.role == "system" and not self._count and not self._stretch:
            self._system.append(message)
            self._texts += [part.text for part in read.parts if isinstance(part, TextPart)]
            return
        joins = read.joins and self._answering
        if self._stretch and not (self._weaver.is_open or read.answers or joins):
            self._close()
        self._stretch.append(message)
        self._take(read, joins=joins)
        self._answering = read.role == "assistant"

    def decoded(self) -> Decoded:
        self._close()
        origin = Origin(
            system="\n\n".join(self._texts) if self._system else UNSET,
            wire={self._wire.name: self._system} if self._system else UNSET,
        )
        return Decoded(wire=self._wire.name, messages=tuple(self._done), origin=origin)

    def _take(self, read: Read, *, joins: bool) -> None:
        lost = [answer for answer in read.answers if not self._weaver.answer(answer)]
        last = self._weaver.last
        if joins and last is not None:
            self._weaver.extend(replace(last, parts=last.parts + read.parts))
            return
        parts = (*(orphan(answer, self._wire.key) for answer in lost), *read.parts)
        if not parts and read.answers:
            return
        own: Json = {self._wire.key: read.rest} if read.rest else {}
        if read.answers:
            own[JOINED] = True
        self._count += 1
        kind = AssistantInfo if read.role == "assistant" else UserInfo
        info = kind(id=read.id or f"msg_{self._count:06d}", wire=own or UNSET)
        self._weaver.add(Message(info=info, parts=parts))

    def _close(self) -> None:
        """End a stretch: what it would be written back as is compared with what it was."""
        weaver, self._weaver = self._weaver, Weaver(self._wire.key, most=2**62)
        messages = list(weaver.rest())
        _note_order(messages, weaver.answered, self._wire.key)
        shown = [held for message in messages for held in as_shown(message, self._wire.key)]
        if self._wire.write(shown, as_is=True) != self._stretch:
            messages = self._kept_verbatim(messages)
        self._done += messages
        self._stretch = []

    def _kept_verbatim(self, messages: list[Message]) -> list[Message]:
        if not messages:
            return []
        first = messages[0]
        own = options(first.info.wire, self._wire.key)
        own = {**own, VERBATIM: self._stretch, COVERS: len(messages)}
        wire = {**(first.info.wire or {}), self._wire.key: own}
        return [replace(first, info=replace(first.info, wire=wire)), *messages[1:]]


def orphan(answer: Answer, key: str) -> TextPart:
    """A result without a call: a text that the program wrote."""
    text = opaque(key, answer.raw, answer.output)
    return replace(text, synthetic=True)


def _note_order(messages: list[Message], answered: list[tuple[int, int]], key: str) -> None:
    """Where results came in another order than their calls, note it beside them."""
    orders: dict[int, list[int]] = {}
    for number, offset in answered:
        orders.setdefault(number, []).append(offset)
    for number, offsets in orders.items():
        if offsets == sorted(offsets):
            continue
        for order, offset in enumerate(offsets):
            message = messages[number]
            part = message.parts[offset]
            if isinstance(part, ToolPart):
                own = options(part.metadata, key)
                result = {**options(own, RESULT), ORDER: order}
                metadata = {**(part.metadata or {}), key: {**own, RESULT: result}}
                messages[number] = with_part(message, offset, replace(part, metadata=metadata))


def _verbatim(wire: Wire, messages: Sequence[Message], place: int) -> tuple[list[Json], int] | None:
    """An odd stretch as it came, if the messages still say just that; and how many they are."""
    own = options(messages[place].info.wire, wire.key)
    raw, covers = own.get(VERBATIM), own.get(COVERS)
    if not isinstance(raw, list) or not isinstance(covers, int):
        return None
    found = messages[place : place + covers]
    try:
        again = read_list(wire, cast("list[Json]", raw))
    except BadInput:
        return None
    same = [_bare(message) for message in again.messages] == [_bare(held) for held in found]
    return (cast("list[Json]", raw), covers) if same else None


def _bare(message: Message) -> tuple[object, ...]:
    """The parts of a message without the ids that a store gives them."""
    names = {"id": UNSET, "session_id": UNSET, "message_id": UNSET}
    return tuple(
        replace(part, **names) if isinstance(part, Part) else part for part in message.parts
    )


# --- writing -------------------------------------------------------------------------------


def as_shown(message: Message, key: str) -> list[AnyShown]:
    """A message just as it is: nothing hidden, nothing mended, nothing left out."""
    wire = message.info.wire or None
    if isinstance(message.info, UserInfo):
        said = [held for part in message.parts if (held := _said(part)) is not None]
        if message.parts and not said:
            return []  # a marker, or another task of the program's own
        words = tuple(held for held in said if not isinstance(held, Reasoning))
        return [FromUser(content=words, wire=wire)]
    content: list[Text | Media | Reasoning | Call] = []
    results: list[Result] = []
    for part in message.parts:
        if isinstance(part, ToolPart):
            call, result = _called(part)
            content.append(call)
            results += result
        elif (said := _said(part)) is not None:
            content.append(said)
    shown: list[AnyShown] = [FromAssistant(content=tuple(content), wire=wire)]
    if results:
        results.sort(key=lambda held: _order(held, key))
        shown.append(FromTools(content=tuple(results)))
    return shown


def _said(part: object) -> Text | Media | Reasoning | None:
    match part:
        case TextPart():
            return Text(text=part.text, provider_options=_given(part.metadata))
        case ReasoningPart():
            return Reasoning(text=part.text, provider_options=_given(part.metadata))
        case FilePart():
            return _file(part)
        case _:
            return None


def _called(part: ToolPart) -> tuple[Call, list[Result]]:
    given = _given(part.metadata)
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
            files = tuple(_file(held) for held in state.attachments or ())
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


def _file(part: FilePart) -> Media:
    return Media(
        data=part.url,
        media_type=part.mime,
        filename=part.filename or None,
        provider_options=_given(part.metadata),
    )


def _given(metadata: Json | UnsetType) -> Json | None:
    return metadata or None


def _order(result: Result, key: str) -> int:
    order = options(options(result.provider_options, key), RESULT).get(ORDER)
    return order if isinstance(order, int) else 0
