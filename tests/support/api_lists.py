"""Lists of the wires in tests: read, stored and written back; and JSON of any kind."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from hypothesis import strategies as st
from msgspec import UNSET

from foldmark.errors import BadInput
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    FilePart,
    Message,
    ReasoningPart,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
    UserInfo,
    decode_transcript,
)
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import encode as to_json
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import options, wire_named
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from foldmark.wire.lists import COVERS
from tests.support.session_strategies import PNG

Json = dict[str, Any]
TO = ("anthropic", "gemini")
# Names under which codecs keep notes: what a list holds under them must not be taken for notes.
NOTES = (
    "anthropic", "google", "block", "result", "form", "rest", "outline", "order", "chars", "file",
    "kept", "call", "media", "inner", "beside", "snake", "unnamed", "bare", "within", "url_safe",
    "envelope", "verbatim", "covers", "joined", "reply", "whole", "document", "redactedData",
    "signature", "cache_control",
)  # fmt: skip


def verbatim(messages: Iterable[Message], wire: str) -> int:
    """How many stretches were kept as they came."""
    key = wire_named(wire).key
    return sum(COVERS in options(message.info.wire, key) for message in messages)


def round_trip(given: Sequence[Any], wire: str) -> int:
    """Read, store, read again and write back; how many stretches were kept as they came."""
    found = decode(given, wire)
    stored = to_json(Transcript(info=SessionInfo(id="s"), messages=found.messages))
    messages = decode_transcript(stored).messages
    assert encode(messages, wire, found.origin) == given
    return verbatim(messages, wire)


def lengthened(value: Any, name: str = "") -> Any:
    """The same with long texts, each another one."""
    if isinstance(value, dict):
        fields = cast("Json", value).items()
        return {field: lengthened(held, field) for field, held in fields}
    if isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        return [lengthened(held, f"{name} {number}") for number, held in items]
    is_said = isinstance(value, str) and name.partition(" ")[0] in ("text", "content", "output")
    return f"{value}, which is {name} and told at some length: {id(value)}" if is_said else value


def kept_twice(given: Sequence[Json], wire: str) -> list[str]:
    """The long texts of a list that are stored more often than they were said.

    A block that only its own wire can write is stored whole, beside what others may read of it.
    """
    found = decode(given, wire)
    assert encode(found.messages, wire, found.origin) == given
    stored = list(_texts(json.loads(msgspec.json.encode(found.messages))))
    said = list(_texts(list(given)))
    return [text for text in said if len(text) > 40 and _count(text, stored) > _count(text, said)]


def _count(text: str, texts: Sequence[str]) -> int:
    return sum(text in held for held in texts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for held in cast("list[Any]", value):
            yield from _texts(held)
    elif isinstance(value, dict):
        yield from _texts([held for name, held in cast("Json", value).items() if name != "block"])


def shown(messages: Iterable[Message], model: str = "") -> tuple[PromptMessage, ...]:
    """What the model of this name is shown."""
    return Viewer(Log(by_classes, messages), FOLDMARK, model=model).view().messages


def requested(given: Sequence[Any], wire: str, to: str = "") -> list[Json]:
    """The request for what a list of a wire says."""
    return request(shown(decode(given, wire).messages), to or wire)


def by_model(messages: Iterable[Message], provider: str, model: str) -> list[Message]:
    """The same messages, the answers by this model."""
    return [
        Message(
            info=AssistantInfo(id=held.id, provider_id=provider, model_id=model),
            parts=held.parts,
        )
        if isinstance(held.info, AssistantInfo)
        else held
        for held in messages
    ]


# --- JSON of any kind ----------------------------------------------------------------------


def any_json(names: Sequence[str], texts: Sequence[str]) -> st.SearchStrategy[Any]:
    """JSON in which these names and texts come up often."""
    numbers = st.integers(-3, 9) | st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | numbers | st.sampled_from(texts) | st.text(max_size=3)
    fields = st.sampled_from((*names, *NOTES))
    return st.recursive(
        leaves,
        lambda held: st.lists(held, max_size=3) | st.dictionaries(fields, held, max_size=4),
        max_leaves=12,
    )


def assert_read_or_refused(given: Any, wire: str) -> None:
    """A list is refused in words, or written back as it was and shown to anybody."""
    try:
        found = decode(given, wire)
    except BadInput:
        return
    assert encode(found.messages, wire, found.origin) == given
    for to in TO:
        request(shown(found.messages), to)


def assert_reply_read_or_refused(given: Any, wire: str) -> None:
    try:
        message = decode_reply(given, wire)
    except BadInput:
        return
    assert encode_reply(message, wire) == given
    encode([message], wire)


def noted_messages(notes: st.SearchStrategy[Any], key: str) -> st.SearchStrategy[list[Message]]:
    """A short session whose metadata, as it may come from elsewhere, holds anything."""

    def made(held: list[Any]) -> list[Message]:
        own: list[Any] = [{key: note} if note is not None else UNSET for note in held]
        file = FilePart(mime="image/png", url=PNG, metadata=own[0])
        state = Completed(input={"a": 1}, output="a\nbc", attachments=(file,))
        said: tuple[AnyPart, ...] = (
            ReasoningPart(text="Hm", metadata=own[1]),
            TextPart(text="Hi", metadata=own[2]),
            ToolPart(tool="ls", call_id="a", state=state, metadata=own[3]),
        )
        asked: tuple[AnyPart, ...] = (TextPart(text="Go", metadata=own[4]), file)
        return [
            Message(info=UserInfo(id="u", wire=own[5]), parts=asked),
            Message(info=AssistantInfo(id="a", wire=own[5]), parts=said),
            Message(info=UserInfo(id="v", wire=own[5]), parts=asked),
        ]

    return st.lists(notes, min_size=6, max_size=6).map(made)
