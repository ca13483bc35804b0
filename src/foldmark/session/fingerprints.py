"""Prints of messages, by which a history is found again, and the marks that keep them.

Each message of ours that came from a history bears a mark: the number of its source, an exact
print, and a print of what it says alone, as ids and times may be new though the words are not.
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

# In `rest` of a message or result: what may change while it stays the same. No print is made of it.
VOLATILE = "volatile"
_MARK = "followed"  # under the dialect's key


class Fingerprint(NamedTuple):
    """By what a message is known."""

    exact: str
    said: str  # of its words, calls and results alone


def fingerprint_of(read: ReadMessage) -> Fingerprint:
    """The print of a message; what was measured beside it may be known only once."""
    stable = replace(read, tokens=None) if read.tokens else read
    if VOLATILE in read.rest or any(VOLATILE in answer.rest for answer in read.results):
        answers = tuple(replace(one, rest=without(one.rest, VOLATILE)) for one in read.results)
        stable = replace(stable, rest=without(read.rest, VOLATILE), results=answers)
    return Fingerprint(_hashed(stable), _hashed((read.role, said(read))))


def _hashed(value: object) -> str:
    return blake2b(encode(value), digest_size=9).hexdigest()


def mark(number: int, fingerprint: Fingerprint) -> Json:
    """What is kept of a message's source."""
    return {_MARK: [number, *fingerprint]}


def number_of(data: Json) -> int | None:
    """The number in the history that stands in what is kept under a dialect's key."""
    parse_json = _parse_mark(data)
    return parse_json[0] if parse_json else None


def marks(message: Message, key: str) -> list[tuple[int, Fingerprint]]:
    """The marks of a message of ours: its own first, then those of parts and results."""
    places = [subobject(message.info.wire, key)]
    for part in message.parts:
        if isinstance(part, TextPart | ReasoningPart | FilePart | ToolPart):
            own = subobject(part.metadata, key)
            places += [own, subobject(own, RESULT)]
    return [found for found in map(_parse_mark, places) if found is not None]


def _parse_mark(data: Json) -> tuple[int, Fingerprint] | None:
    match data.get(_MARK):
        case [int(number), str(exact), str(content)]:
            return number, Fingerprint(exact, content)
        case _:
            return None


def with_mark(part: AnyPart, key: str, data: Json) -> AnyPart:
    """A part that bears a mark of its own, as its message becomes one with another."""
    if not isinstance(part, TextPart | ReasoningPart | FilePart | ToolPart):
        return part
    metadata = part.metadata or {}
    return replace(part, metadata={**metadata, key: {**subobject(metadata, key), **data}})


# --- what a message says ---


def said(read: ReadMessage) -> list[object]:
    """What a view would show of a message, if it shows all of it."""
    kind = AssistantInfo if read.role == "assistant" else UserInfo
    parts = to_prompt(Message(info=kind(id="msg"), parts=read.parts))
    results = [(answer.call_id, answer.output, len(answer.files)) for answer in read.results]
    return [*results, *content_of(parts if read.parts else ())]


def content_of(messages: Iterable[PromptMessage]) -> list[object]:
    """The same of what is shown."""
    return [_gist(block) for message in messages for block in message.content]


def _gist(block: Text | Media | Reasoning | Call | Result) -> object:
    match block:
        case Text() | Reasoning():
            return block.text
        case Media():
            return block.data
        case Call():
            return block.tool_call_id, block.tool_name, block.input
        case Result():
            return block.tool_call_id, block.output.value, len(block.attachments)
