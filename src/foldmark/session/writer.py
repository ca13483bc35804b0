"""Writes to a session: user messages, model replies, tool results and notes.

Each call is one transaction. Notes are data that no model gets, such as titles and snapshots; they
may be added to a message later.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.log.log import Entry, handle
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Time,
    ToolPart,
    checked_json,
    with_part,
)
from foldmark.model.values import Frozen, Json, encode
from foldmark.store.transaction import Change
from foldmark.tokens.sizes import message_sizes
from foldmark.wire.codec import WIRES, MessageReader, ReadMessage, codec_named
from foldmark.wire.detect import candidates, recognize, reply_candidates
from foldmark.wire.formats import decode, decode_reply
from foldmark.wire.lists import read_addition
from foldmark.wire.pairing import settle_call
from foldmark.wire.plain import is_sdk_object, plain_object, plain_objects

from .state import SessionState

M = TypeVar("M")


class OpenCall(Frozen):
    """A tool call that waits for its result."""

    call_id: str
    tool: str
    input: Json
    message: str  # the id of its message


# --- one message ---


def write_message(
    state: SessionState, change: Change, message: Message, *, with_events: bool = False
) -> Entry:
    """Append a message to the store and the log, with an event if requested."""
    data = checked_json(message)
    sizes = message_sizes(message, state.count)
    change.append(message, sizes, data, with_events=with_events)
    return state.log.append(message, sizes)


def append(state: SessionState, message: Message) -> Message:
    """Append a message, with an event."""
    entry = state.write(lambda change: write_message(state, change, message, with_events=True))
    return entry.message


# --- replies ---


def record(state: SessionState, reply: object, api: str | None, info: Json) -> Message:
    """Append a model's reply: a provider's response, a text, parts, or a message."""
    if _is_from_wire(reply):
        reply, measured = reply_parts(reply, api, with_model=not state.model)
        info = measured | info
    content = cast("str | Sequence[AnyPart] | Message", reply)
    return append(state, state.builder.assistant(content, info, state.model))


def _is_from_wire(reply: object) -> bool:
    """Whether a reply is a provider's response, and not a text, parts or a `Message`."""
    if isinstance(reply, Sequence) and not isinstance(reply, str):
        items = cast("Sequence[object]", reply)
        return bool(items) and all(
            isinstance(item, Mapping) or is_sdk_object(item) for item in items
        )
    return not isinstance(reply, str | Message)


def reply_parts(
    reply: object, api: str | None, *, with_model: bool
) -> tuple[tuple[AnyPart, ...], Json]:
    """The parts of a response and the fields of its info, including its model if requested."""
    message = _reply_message(reply, api)
    info = message.info
    if not isinstance(info, AssistantInfo):
        raise BadInput("expected a model's reply, not a message of the user or a tool result")
    fields: Json = {"wire": info.wire, "tokens": info.tokens}
    if info.finish:
        fields["finish"] = info.finish
    if with_model:
        fields |= {"provider_id": info.provider_id, "model_id": info.model_id}
    return message.parts, fields


def _reply_message(reply: object, api: str | None) -> Message:
    """The message of a whole response, of a message in an API format, or of a list of items."""
    if isinstance(reply, Sequence):
        return _only_message([plain_object(item) for item in cast("Sequence[object]", reply)], api)
    response = plain_object(reply)
    if api is not None:
        is_whole = codec_named(api).recognizes_reply(response)
    else:
        is_whole = bool(reply_candidates(response))
        if not is_whole and not candidates([response]):
            known_apis = ", ".join(WIRES)
            raise BadInput(f"the reply is in no known API format ({known_apis}); give api=…")
    return decode_reply(response, api) if is_whole else _only_message([response], api)


def _only_message(items: list[Json], api: str | None) -> Message:
    messages = decode(items, api).messages
    if len(messages) != 1:
        raise BadInput(f"expected one reply of a model, not {len(messages)} messages")
    return messages[0]


# --- lists of messages ---


def extend(state: SessionState, messages: Iterable[object], api: str | None) -> list[Message]:
    """Append messages in an API format; an empty session adopts a leading system prompt."""
    items = plain_objects(messages)
    if not items:
        return []
    codec = codec_named(api) if api else recognize(items)
    return _extend(state, codec, items, prompts=bool(codec.system("Be brief.")))


class _PassThrough:
    """Reader of messages that have been read already."""

    name = "read"

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, message: ReadMessage, /) -> ReadMessage:
        return message


def extend_read(state: SessionState, reads: Sequence[ReadMessage], key: str) -> list[Message]:
    """Append messages of a framework that have been read already.

    Unlike `extend`, it treats system prompts like other messages: the framework sends its own.
    """
    return _extend(state, _PassThrough(key), reads, prompts=False)


def _extend(
    state: SessionState, codec: MessageReader[M], items: Sequence[M], *, prompts: bool
) -> list[Message]:
    """Append messages; with `prompts`, an empty session adopts a leading system prompt."""

    def job(change: Change) -> list[Message]:
        is_new = change.places == 0 and not change.row.info.origin
        batch = read_addition(codec, items, prompts=prompts and is_new)
        messages = [_with_new_ids(state, message) for message in batch.messages]
        for answer in batch.results:
            settle(
                state,
                change,
                answer.call_id,
                lambda part, at, answer=answer: settle_call(part, answer, codec.key, at),
            )
        for message in messages:
            write_message(state, change, message, with_events=True)
        if batch.origin.wire:
            update_info(state, change, origin=batch.origin)
        return messages

    return state.write(job)


def _with_new_ids(state: SessionState, message: Message) -> Message:
    info: Json = {"wire": message.info.wire}
    if not isinstance(message.info, AssistantInfo):
        return state.builder.user(message.parts, info)
    info["tokens"] = message.info.tokens
    return state.builder.assistant(message.parts, info, state.model)


# --- tool results ---


def result(
    state: SessionState,
    call_id: str,
    output: str,
    *,
    error: bool,
    files: Sequence[FilePart],
    metadata: Json | None,
) -> Message:
    """Record the output of a tool call, even if the call was folded meanwhile."""
    if not isinstance(output, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(f"the output must be a str, not {type(output).__name__}")

    def complete(part: ToolPart, at: int) -> ToolPart:
        old = part.state
        fields: Json = {"input": old.input, "title": old.title}
        fields["time"] = replace(old.time or Time(start=at), end=at)
        fields["metadata"] = old.metadata if metadata is None else metadata
        if error:
            return replace(part, state=Failed(error=output, **fields))
        attached = tuple(files) or UNSET
        return replace(part, state=Completed(output=output, attachments=attached, **fields))

    return state.write(lambda change: settle(state, change, call_id, complete))


def settle(
    state: SessionState, change: Change, call_id: str, complete: Callable[[ToolPart, int], ToolPart]
) -> Message:
    """Complete an open call with its result; raises BadInput if there is no such call."""
    for entry in reversed(state.log.entries.values()):
        for offset, part in enumerate(entry.message.parts):
            if not isinstance(part, ToolPart) or isinstance(part.state, Completed | Failed):
                continue
            if call_id == (part.call_id or handle(entry.ordinal + offset)):
                message = with_part(entry.message, offset, complete(part, change.at))
                data = checked_json(message)
                newer = state.log.record_result(entry.ordinal + offset, message)
                change.put(entry, newer, data, with_events=True)
                return message
    # The result of a folded call is stored with the call, where it can be recalled.
    waiting: list[str] = []
    for entry, offset, part in state.store.pending_calls(state.key, change.parts):
        waiting.append(part.call_id or handle(entry.ordinal + offset))
        if waiting[-1] == call_id:
            newer = with_part(entry.message, offset, complete(part, change.at))
            return _rewrite_folded(state, change, entry, newer, with_events=True)
    hint = f"open calls: {', '.join(waiting[:5])}" if waiting else "there are no open calls"
    raise BadInput(f"no call {call_id!r} waits for a result; {hint}")


def _rewrite_folded(
    state: SessionState, change: Change, old: Entry, new: Message, *, with_events: bool = False
) -> Message:
    """Store a new version of a message that is not in the log."""
    data = checked_json(new)
    newer = replace(old, message=new, sizes=message_sizes(new, state.count))
    change.put(old, newer, data, with_events=with_events)
    return new


def open_calls(state: SessionState) -> list[OpenCall]:
    """The tool calls without a result, oldest first, including folded ones."""
    with state.lock:
        state.refresh()
        calls = [
            OpenCall(
                call_id=part.call_id or handle(entry.ordinal + offset),
                tool=part.tool,
                input=part.state.input or {},
                message=entry.message.id,
            )
            for entry, offset, part in state.store.pending_calls(state.key, state.log.parts)
        ]
    return calls[::-1]


# --- notes ---


def amend(state: SessionState, message: str, edit: Callable[[Message], Message]) -> Message:
    """Change a message, folded or not, with `edit`."""

    def job(change: Change) -> Message:
        index = state.log.index_of(message)  # first: the store would search the whole session
        index = state.message_index(message) if index is None else index
        entry = state.log.entries.get(index)
        if entry is not None:
            newer = state.log.amend(edit(entry.message))
            change.put(entry, newer, encode(newer.message))
            return newer.message
        entry = state.store.message_at(state.key, index)
        if entry is None:
            raise BadInput(f"session {state.id} has no message {message!r}")
        return _rewrite_folded(state, change, entry, edit(entry.message))

    return state.write(job)


def update_info(state: SessionState, change: Change, **fields: object) -> None:
    """Change fields of the session's info."""
    info = replace(change.row.info, **fields)
    state.store.update_info(change.row, info)
    change.row = replace(change.row, info=info)
