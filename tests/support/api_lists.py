"""Lists of API messages in tests: decoded, stored and encoded again; and arbitrary JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

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
    Tokens,
    ToolPart,
    Transcript,
    UserInfo,
    decode_transcript,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    Output,
    PromptMessage,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.model.values import encode as to_json
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import by_classes
from foldmark.wire.codec import WIRES, codec_named, subobject
from foldmark.wire.formats import decode, decode_reply, encode, encode_reply, request
from foldmark.wire.lists import COVERS
from tests.support.session_strategies import PNG

Json = dict[str, Any]
PDF = "data:application/pdf;base64,JVBERi0="
# Names under which codecs store notes: fields of a list with these names must not be mistaken.
NOTES = (
    "anthropic", "google", "block", "result", "form", "rest", "outline", "order", "chars", "file",
    "kept", "call", "media", "inner", "beside", "snake", "unnamed", "bare", "within", "url_safe",
    "envelope", "verbatim", "covers", "joined", "reply", "whole", "document", "redactedData",
    "signature", "cache_control",
)  # fmt: skip


class FormatCases(NamedTuple):
    """The test data of one API format."""

    user: Json  # a plain message
    call: Callable[[str], Json]  # a message with a call of this id
    result: Callable[[str], Json]  # a message with its result
    lists: dict[str, list[Json]]
    stretches: dict[str, int]  # stretches of these lists that are kept in their original form
    odd_lists: list[list[Json]]  # lists that the API refuses and programs store
    valid: st.SearchStrategy[list[Json]]  # lists that the API accepts
    odd: st.SearchStrategy[list[Json]]  # with results in the wrong place and ids used twice
    malformed: st.SearchStrategy[Any]  # objects that resemble messages
    malformed_replies: st.SearchStrategy[Any]
    notes: st.SearchStrategy[Any]  # JSON with the names of the format
    refused: list[tuple[Json, str]]  # malformed messages, with words of the error
    opaque: tuple[str, ...]  # texts of the list "opaque" that no other provider may get
    readable: tuple[str, ...]  # texts of it that other providers get
    files_request: list[Json]  # the request for `messages_with_files`
    reply: Json
    reply_messages: list[Json]  # the messages in the reply
    sdk_reply: Callable[[Json], object]
    tokens: Tokens  # the usage in the reply
    model: str
    finishes: list[tuple[Json, str]]  # responses, with their finish reasons in our terms
    recorded: Callable[[Path], Iterator[list[Json]]]  # lists in the corpus
    recorded_count: int


def verbatim(messages: Iterable[Message], wire: str) -> int:
    """The number of stretches that are kept in their original form."""
    key = codec_named(wire).key
    return sum(COVERS in subobject(message.info.wire, key) for message in messages)


def round_trip(messages: Sequence[Any], wire: str) -> int:
    """Decode, store, load and encode a list; return how many stretches keep their original."""
    decoded = decode(messages, wire)
    info = SessionInfo(id="s", origin=decoded.origin)
    stored = decode_transcript(to_json(Transcript(info=info, messages=decoded.messages)))
    pairs = [(decoded.messages, decoded.origin), (stored.messages, stored.info.origin or None)]
    for ours, origin in pairs:
        assert canonical(encode(ours, wire, origin)) == canonical(messages)
    return verbatim(stored.messages, wire)


def canonical(value: object) -> str:
    """The JSON of a value: in Python, 1 and true are equal."""
    return json.dumps(value, sort_keys=True)


def with_long_texts(value: Any, name: str = "") -> Any:
    """The same value with long texts, all different."""
    if isinstance(value, dict):
        fields = cast("Json", value).items()
        return {field: with_long_texts(item, field) for field, item in fields}
    if isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        return [with_long_texts(item, f"{name} {number}") for number, item in items]
    is_text = isinstance(value, str) and name.partition(" ")[0] in ("text", "content", "output")
    return f"{value}, which is {name} and has some length: {id(value)}" if is_text else value


def stored_twice(messages: Sequence[Json], wire: str) -> list[str]:
    """The long texts of a list that are stored more often than they occur in it.

    A block that only its own codec can write is stored whole, beside its text for other codecs.
    """
    decoded = decode(messages, wire)
    assert encode(decoded.messages, wire, decoded.origin) == messages
    stored = list(_texts(json.loads(msgspec.json.encode(decoded.messages))))
    texts = list(_texts(list(messages)))
    return [text for text in texts if len(text) > 40 and _count(text, stored) > _count(text, texts)]


def _count(text: str, texts: Sequence[str]) -> int:
    return sum(text in other for other in texts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from _texts([item for name, item in cast("Json", value).items() if name != "block"])


def view_messages(messages: Iterable[Message], model: str = "") -> tuple[PromptMessage, ...]:
    """The messages of the view for the model with this name."""
    return Viewer(Log(by_classes, messages), FOLDMARK, model=model).view().messages


def request_for(messages: Sequence[Any], wire: str, to: str = "") -> list[Json]:
    """The request, in this or another format, for a list of API messages."""
    return request(view_messages(decode(messages, wire).messages), to or wire)


def by_model(messages: Iterable[Message], provider: str, model: str) -> list[Message]:
    """The same messages with this model as the author of replies."""
    return [
        message
        if message.is_user
        else Message(
            info=AssistantInfo(id=message.id, provider_id=provider, model_id=model),
            parts=message.parts,
        )
        for message in messages
    ]


def messages_with_files() -> list[PromptMessage]:
    """Files of the user, of the model and of tools, and blank texts."""
    shot = Media(data=PNG, media_type="image/png", filename="shot.png")
    files = (
        shot,
        Media(data="https://a.b/c", media_type="image/*"),
        Media(data=PDF, media_type="application/pdf"),
        Media(data="data:audio/mpeg;base64,AA==", media_type="audio/mpeg"),
        Media(data="data:audio/ogg;base64,AA==", media_type="audio/ogg"),
        Media(data="data:text/csv;base64,YSxi", media_type="text/csv"),
        Media(data="data:text/markdown,a%20b", media_type="text/markdown"),
        Media(data="file:///tmp/a.png", media_type="image/png", filename="a.png"),
    )
    outputs = {"a": ("seen", files), "b": ("", (shot,))}
    calls = [Call(tool_call_id=name, tool_name="read", input={"path": "a.py"}) for name in outputs]
    results = [
        Result(
            tool_call_id=name,
            tool_name="read",
            output=Output(type="text", value=text),
            attachments=attachments,
        )
        for name, (text, attachments) in outputs.items()
    ]
    return [
        UserMessage(content=(Text(text=" "), *files)),
        AssistantMessage(content=(shot, *calls)),
        ToolMessage(content=tuple(results)),
        UserMessage(content=(Text(text=" "),)),
        AssistantMessage(content=(Text(text=" "),)),
    ]


# --- arbitrary JSON ------------------------------------------------------------------------


def any_json(names: Sequence[str], texts: Sequence[str]) -> st.SearchStrategy[Any]:
    """JSON in which these names and texts are frequent."""
    numbers = st.integers(-3, 9) | st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.none() | st.booleans() | numbers | st.sampled_from(texts) | st.text(max_size=3)
    fields = st.sampled_from((*names, *NOTES))
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields, inner, max_size=4),
        max_leaves=12,
    )


def merged(*parts: Json) -> Json:
    """The fields of all these objects."""
    return {name: value for part in parts for name, value in part.items()}


def is_refused(messages: Any, wire: str) -> bool:
    """Whether a list is refused; else it is encoded unchanged and can be sent to any provider."""
    try:
        decoded = decode(messages, wire)
    except BadInput:
        return True
    assert canonical(encode(decoded.messages, wire, decoded.origin)) == canonical(messages)
    for to in WIRES:
        request(view_messages(decoded.messages), to)
    return False


def assert_reply_unchanged_or_refused(response: Any, wire: str) -> None:
    try:
        message = decode_reply(response, wire)
    except BadInput:
        return
    assert encode_reply(message, wire) == response
    encode([message], wire)


def messages_with_notes(
    notes: st.SearchStrategy[Any], key: str
) -> st.SearchStrategy[list[Message]]:
    """A short session with arbitrary metadata, as it may come from elsewhere."""

    def build(values: list[Any]) -> list[Message]:
        own: list[Any] = [{key: note} if note is not None else UNSET for note in values]
        file = FilePart(mime="image/png", url=PNG, metadata=own[0])
        state = Completed(input={"a": 1}, output="a\nbc", attachments=(file,))
        reply: tuple[AnyPart, ...] = (
            ReasoningPart(text="Hm", metadata=own[1]),
            TextPart(text="Hi", metadata=own[2]),
            ToolPart(tool="ls", call_id="a", state=state, metadata=own[3]),
        )
        prompt: tuple[AnyPart, ...] = (TextPart(text="Go", metadata=own[4]), file)
        return [
            Message(info=UserInfo(id="u", wire=own[5]), parts=prompt),
            Message(info=AssistantInfo(id="a", wire=own[5]), parts=reply),
            Message(info=UserInfo(id="v", wire=own[5]), parts=prompt),
        ]

    return st.lists(notes, min_size=6, max_size=6).map(build)
