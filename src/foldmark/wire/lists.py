"""Read a whole list of API messages, and write it back unchanged.

Most lists can be rebuilt from our messages and the data that the codec stores with each. Irregular
stretches (results in the wrong message, ids used twice) are read as well as possible, and the
original is noted on the first message of the stretch, so that any list is written back unchanged.
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
    is_error_output,
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

from .codec import JOINED, Codec, MessageReader, ReadMessage, ReadResult, opaque_part, subobject
from .exactness import difference_note, restore
from .pairing import CallPairing

M = TypeVar("M")
COVERS = "covers"  # beside a difference note: how many of our messages it covers


class DecodedList(Frozen):
    """A list of API messages converted to ours."""

    wire: str
    messages: tuple[Message, ...]
    origin: Origin  # with the system prompt at the start of the list, if separated
    results: tuple[ReadResult, ...] = ()  # results whose calls are not in the list


def read_list(codec: Codec, messages: Iterable[Json]) -> DecodedList:
    """Convert API messages to ours. Raises BadInput, naming the message that is malformed."""
    return _read_all(_ListReader(codec), messages).decoded(codec)


def read_addition(codec: MessageReader[M], messages: Iterable[M], *, prompts: bool) -> DecodedList:
    """Convert messages to add to a session, whose log may have the calls of their results."""
    reader = _read_all(_ListReader(codec, prompts=prompts, keep_orphans=False), messages)
    return DecodedList(
        wire=codec.name,
        messages=tuple(reader.messages()),
        origin=reader.origin(),
        results=tuple(reader.orphans),
    )


def _read_all(reader: "_ListReader[M]", messages: Iterable[M]) -> "_ListReader[M]":
    for number, message in enumerate(messages):
        try:
            reader.add(message)
        except BadInput as error:
            location = f"message {number + 1}" + (f", {error.location}" if error.location else "")
            raise BadInput(error.cause, location=location) from None
    return reader


def write_list(
    codec: Codec, messages: Iterable[Message], origin: Origin | None = None
) -> list[Json]:
    """Convert our messages to API messages, exactly as they were read."""
    output = _system(codec, origin)
    all_messages = tuple(messages)
    prompt: list[PromptMessage] = []
    index = 0
    while index < len(all_messages):
        stretch = _original_stretch(codec, all_messages, index)
        if stretch is None:
            prompt += to_prompt(all_messages[index])
            index += 1
            continue
        output += codec.write(prompt, as_is=True)
        prompt = []
        output += stretch[0]
        index += stretch[1]
    return output + codec.write(prompt, as_is=True)


def _system(codec: Codec, origin: Origin | None) -> list[Json]:
    if origin is None:
        return []
    originals = (origin.wire or {}).get(codec.name)
    if isinstance(originals, list):
        return list(cast("list[Json]", originals))
    return codec.system(origin.system) if origin.system else []


# --- reading -------------------------------------------------------------------------------


class _ListReader(Generic[M]):
    """Reads messages one by one.

    With `prompts`, system prompts at the start are separated from the messages; with
    `keep_orphans`, a result without a call becomes a text.
    """

    def __init__(
        self, codec: MessageReader[M], *, prompts: bool = True, keep_orphans: bool = True
    ) -> None:
        self.orphans: list[ReadResult] = []
        self._reader = codec
        self._prompts = prompts
        self._keep_orphans = keep_orphans
        self._system: list[M] = []
        self._texts: list[str] = []
        self._received: list[M] = []
        self._pairs = CallPairing(codec.key)
        # Where a stretch may start: counts of received messages, our messages and settled calls.
        self._starts: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._count = 0
        self._is_after_assistant = False  # whether the last message is the assistant's

    def add(self, message: M) -> None:
        read_message = self._reader.read(message)
        if read_message.role == "system" and self._prompts and not self._received:
            self._system.append(message)
            self._texts += [part.text for part in read_message.parts if isinstance(part, TextPart)]
            return
        joins = read_message.joins and self._is_after_assistant
        self._is_after_assistant = read_message.role == "assistant"
        if not joins and not read_message.results and self._received:
            self._starts.append((len(self._received), self._count, len(self._pairs.settled_calls)))
        self._received.append(message)
        parts = read_message.parts
        if read_message.results:
            parts = (*self._settle(read_message.results), *parts)
        if joins:
            self._pairs.join(parts)
        elif parts or not read_message.results:
            self._add(read_message, parts)

    def _settle(self, results: Sequence[ReadResult]) -> list[TextPart]:
        """Give calls their results; the texts of results without a call, unless set aside."""
        orphans = [result for result in results if not self._pairs.settle(result)]
        if self._keep_orphans:
            return [orphan_text(result, self._reader.key) for result in orphans]
        self.orphans += orphans
        return []

    def _add(self, message: ReadMessage, parts: tuple[AnyPart, ...]) -> None:
        notes: Json = {self._reader.key: message.rest} if message.rest else {}
        if message.results:
            notes[JOINED] = True
        self._count += 1
        name = message.id or f"msg_{self._count:06d}"
        info = UserInfo(id=name, wire=notes or UNSET)
        if message.role == "assistant":
            info = AssistantInfo(id=name, wire=notes or UNSET, tokens=message.tokens or UNSET)
        self._pairs.add(Message(info=info, parts=parts))

    def messages(self) -> list[Message]:
        """Our messages, with results joined to their calls."""
        return self._pairs.flush()

    def decoded(self, codec: Codec) -> DecodedList:
        """The converted list, with notes where writing it would not give the received list."""
        messages = self.messages()
        output = _write_messages(codec, messages)
        if output != self._received:
            messages = self._with_originals(codec, messages, output)
        return DecodedList(wire=codec.name, messages=tuple(messages), origin=self.origin())

    def origin(self) -> Origin:
        """The system prompt at the start of the list."""
        if not self._system:
            return Origin()
        return Origin(system="\n\n".join(self._texts), wire={self._reader.name: self._system})

    def _with_originals(
        self, codec: Codec, messages: list[Message], output: list[Json]
    ) -> list[Message]:
        """Note the original of each stretch that would be written differently; else of all."""
        received = cast("list[Json]", self._received)
        noted, index = list(messages), 0
        starts = self._stretches()
        ends = [*starts[1:], (len(received), len(messages))]
        for (start, first), (end, last) in zip(starts, ends, strict=True):
            originals = received[start:end]
            if output[index : index + len(originals)] == originals:
                index += len(originals)
                continue
            canonical = _write_messages(codec, messages[first:last])
            index += len(canonical)
            if canonical != originals:
                note = difference_note(canonical, originals)
                noted[first] = _with_original(messages[first], codec.key, note, last - first)
        if write_list(codec, noted) != received:
            note = difference_note(_write_messages(codec, messages), received)
            noted = [_with_original(messages[0], codec.key, note, len(messages)), *messages[1:]]
        return noted

    def _stretches(self) -> list[tuple[int, int]]:
        """The starts of stretches, received and ours: no result has its call in an earlier one."""
        called = [number for number, _ in self._pairs.settled_calls]
        oldest = list(accumulate(reversed([*called, len(self._received)]), min))[::-1]
        return [(start, first) for start, first, count in self._starts if oldest[count] >= first]


def _write_messages(codec: Codec, messages: Iterable[Message]) -> list[Json]:
    prompt: list[PromptMessage] = []
    for message in messages:
        prompt += to_prompt(message)
    return codec.write(prompt, as_is=True)


def _with_original(message: Message, key: str, note: Json, covers: int) -> Message:
    notes = {**subobject(message.info.wire, key), **note, COVERS: covers}
    wire = {**(message.info.wire or {}), key: notes}
    return replace(message, info=replace(message.info, wire=wire))


def orphan_text(result: ReadResult, key: str) -> TextPart:
    """A synthetic text part for a result without a call."""
    text = opaque_part(key, result.raw, result.output)
    return replace(text, synthetic=True)


def _original_stretch(
    codec: Codec, messages: Sequence[Message], index: int
) -> tuple[list[Json], int] | None:
    """The original of an irregular stretch, if unchanged, and how many messages it covers."""
    notes = subobject(messages[index].info.wire, codec.key)
    covers = notes.get(COVERS)
    if not isinstance(covers, int) or covers < 1:
        return None
    canonical = _write_messages(codec, messages[index : index + covers])
    original = restore(canonical, notes)
    return None if original is canonical else (original, covers)


# --- writing -------------------------------------------------------------------------------


def to_prompt(message: Message) -> list[PromptMessage]:
    """The prompt messages of a message as it is: nothing hidden, repaired or left out."""
    wire = message.info.wire or None
    if isinstance(message.info, UserInfo):
        blocks = [block for part in message.parts if (block := _prompt_block(part)) is not None]
        if message.parts and not blocks:
            return []  # a marker, or another queued task
        user_blocks = tuple(block for block in blocks if not isinstance(block, Reasoning))
        return [UserMessage(content=user_blocks, wire=wire)]
    content: list[Text | Media | Reasoning | Call] = []
    results: list[Result] = []
    for part in message.parts:
        if isinstance(part, ToolPart):
            call, result = _call_and_result(part)
            content.append(call)
            results += result
        elif (block := _prompt_block(part)) is not None:
            content.append(block)
    prompt: list[PromptMessage] = [AssistantMessage(content=tuple(content), wire=wire)]
    if results:
        prompt.append(ToolMessage(content=tuple(results)))
    return prompt


def _prompt_block(part: object) -> Text | Media | Reasoning | None:
    match part:
        case TextPart():
            return Text(text=part.text, provider_options=part.metadata or None)
        case ReasoningPart():
            return Reasoning(text=part.text, provider_options=part.metadata or None)
        case FilePart():
            return media(part)
        case _:
            return None


def _call_and_result(part: ToolPart) -> tuple[Call, list[Result]]:
    options = part.metadata or None
    name, call_id = part.tool, part.call_id or ""
    call = Call(
        tool_call_id=call_id,
        tool_name=name,
        input=part.state.input or {},
        provider_options=options,
    )
    match part.state:
        case Completed() as state:
            kind = "error-text" if is_error_output(state) else "text"
            output = Output(type=kind, value=state.output)
            files = tuple(media(file) for file in state.attachments or ())
        case Failed() as state:
            output, files = Output(type="error-text", value=state.error), ()
        case _:
            return call, []
    result = Result(
        tool_call_id=call_id,
        tool_name=name,
        output=output,
        attachments=files,
        provider_options=options,
    )
    return call, [result]
