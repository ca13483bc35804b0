"""Fingerprints, which recognize the messages of a framework's history, and marks, which store them.

Each stored message that came from a history has a mark: its number in the history, a fingerprint
of everything, and one of its content only, because frameworks may assign new ids and times.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.prompt_messages import Call, Media, PromptMessage, Reasoning, Result, Text
from foldmark.model.values import Json, encode
from foldmark.wire.codec import RESULT, ReadMessage, subobject, without
from foldmark.wire.lists import to_prompt

# Key in `rest` of a message or result: data that may change, which fingerprints ignore.
VOLATILE = "volatile"
_MARK = "followed"  # under the dialect's key


class Fingerprint(NamedTuple):
    """Hashes that recognize a message."""

    exact: str
    content: str  # of its text, calls and results only


def fingerprint_of(read: ReadMessage) -> Fingerprint:
    """The fingerprint of a message; ignores its token usage, which is not always repeated."""
    stable = replace(read, tokens=None) if read.tokens else read
    if VOLATILE in read.rest or any(VOLATILE in answer.rest for answer in read.results):
        answers = tuple(replace(one, rest=without(one.rest, VOLATILE)) for one in read.results)
        stable = replace(stable, rest=without(read.rest, VOLATILE), results=answers)
    return Fingerprint(_hash(stable), _hash((read.role, read_content(read))))


def _hash(value: object) -> str:
    return blake2b(encode(value), digest_size=9).hexdigest()


def mark(number: int, fingerprint: Fingerprint) -> Json:
    """The stored mark of a message."""
    return {_MARK: [number, *fingerprint]}


def number_of(data: Json) -> int | None:
    """The number in the history, from the data stored under a dialect's key, or None."""
    entry = _parse_mark(data)
    return entry[0] if entry else None


def marks(message: Message, key: str) -> list[tuple[int, Fingerprint]]:
    """The marks of a stored message: its own first, then those of its parts and results."""
    sources = [subobject(message.info.wire, key)]
    for part in message.parts:
        if isinstance(part, TextPart | ReasoningPart | FilePart | ToolPart):
            own = subobject(part.metadata, key)
            sources += [own, subobject(own, RESULT)]
    return [entry for entry in map(_parse_mark, sources) if entry is not None]


def _parse_mark(data: Json) -> tuple[int, Fingerprint] | None:
    match data.get(_MARK):
        case [int(number), str(exact), str(content)]:
            return number, Fingerprint(exact, content)
        case _:
            return None


def with_mark(part: AnyPart, key: str, data: Json) -> AnyPart:
    """The part with a mark of its own, for a message that is merged into another one."""
    if not isinstance(part, TextPart | ReasoningPart | FilePart | ToolPart):
        return part
    metadata = part.metadata or {}
    return replace(part, metadata={**metadata, key: {**subobject(metadata, key), **data}})


# --- the content of a message ---


def read_content(read: ReadMessage) -> list[object]:
    """The content of a message, as `content_of` returns it for a view that shows all of it."""
    kind = AssistantInfo if read.role == "assistant" else UserInfo
    parts = to_prompt(Message(info=kind(id="msg"), parts=read.parts))
    results = [(answer.call_id, answer.output, len(answer.files)) for answer in read.results]
    return [*results, *content_of(parts if read.parts else ())]


def content_of(messages: Iterable[PromptMessage]) -> list[object]:
    """The text, calls and results of messages, without ids and metadata."""
    return [_block_content(block) for message in messages for block in message.content]


def _block_content(block: Text | Media | Reasoning | Call | Result) -> object:
    match block:
        case Text() | Reasoning():
            return block.text
        case Media():
            return block.data
        case Call():
            return block.tool_call_id, block.tool_name, block.input
        case Result():
            return block.tool_call_id, block.output.value, len(block.attachments)
