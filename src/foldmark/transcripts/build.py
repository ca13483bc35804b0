"""Builds sessions from the records of a transcript: the code that all formats share.

A `FormatReader` reads one file record by record and passes each record's content to a
`ConversationBuilder`, which makes messages with the transcript's ids and times and joins tool calls
with their results. Nothing here opens a file or knows a store.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    CompactionPart,
    Message,
    Number,
    SessionInfo,
    TextPart,
    Time,
    Tokens,
    ToolPart,
    UserInfo,
    finish_of,
    has_result,
)
from foldmark.model.values import Extra, Frozen, Json
from foldmark.wire.codec import ReadResult, json_type, text_at
from foldmark.wire.lists import orphan_text
from foldmark.wire.pairing import CallPairing, LateResult

from .source import Head, Record

_LATEST = 2**53


class SessionOpened(Frozen):
    """The following steps belong to this session, which is new or was opened before."""

    info: SessionInfo
    extra: Extra | UnsetType = UNSET


class OutputsPruned(Frozen):
    """The outputs of these calls are hidden from now on."""

    calls: tuple[str, ...]
    at: Number | None


class SessionReverted(Frozen):
    """The user took back all messages after this one."""

    message: str | None  # its id; None if all messages were taken back


Change = Message | LateResult | OutputsPruned | SessionReverted
Step = SessionOpened | Change


class Tally(Struct):
    """The number of messages, calls and results in a file, in the units of its format."""

    messages: int = 0
    calls: int = 0
    results: int = 0

    def count_calls(self, parts: Iterable[AnyPart]) -> None:
        """Count the calls among these parts, and the results that they have."""
        calls = [part for part in parts if isinstance(part, ToolPart)]
        self.calls += len(calls)
        self.results += sum(map(has_result, calls))


class FormatReader:
    """Reads one file. A format overrides `recognizes` and `read`, and other methods if needed.

    If `read` raises BadInput, all that it added for the record is dropped.
    """

    name: str  # as in --format NAME
    about: str  # the program that writes it, as `foldmark formats` shows it
    key = ""  # the key in a part's metadata for fields that only this format knows
    list_field = ""  # if a file may be a bare list: the field in which `read` gets that list

    def __init__(self, name: str) -> None:
        """Start reading a file; its name becomes the id of sessions that have none."""
        self.stem = Path(name).stem.removesuffix(".traj")
        self.line = 0  # number of the line being read, from 1
        self.tally = Tally()
        self.session_ids = UniqueIds()
        self.conversation = ConversationBuilder(self, SessionInfo(id=self.stem))
        self.conversations = {self.stem: self.conversation}  # flushed at the end of the file
        self._steps: list[Step] = []
        self._current: ConversationBuilder | None = None

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        raise NotImplementedError

    def decode(self, record: Record) -> Any:
        """Return a line or document in the form that `read` takes: unless overridden, a dict."""
        value = record.value()
        if self.list_field and isinstance(value, list):
            return {self.list_field: cast("object", value)}
        if isinstance(value, dict):
            return cast("Json", value)
        raise BadInput(f"the record is {json_type(value)}, not an object")

    def read(self, record: Any) -> None:
        """Add a record's content to a conversation; raises BadInput if it cannot be read."""
        raise NotImplementedError

    def finish(self) -> None:
        """Add what is still pending once all records are read; by default nothing."""

    def steps_of(self, record: Record) -> list[Step]:
        """The steps that a record adds."""
        self.line = record.line
        try:
            self.read(self.decode(record))
        except Exception:
            if any(isinstance(step, SessionOpened) for step in self._drain()):
                self._current = None  # so that the session is opened again
            raise
        return self._drain()

    def final_steps(self) -> list[Step]:
        """The steps that remain at the end of the file."""
        self.finish()
        for conversation in self.conversations.values():
            conversation.flush()
            if conversation.emitted_info not in (None, conversation.info):
                self.emit(conversation)
        return self._drain()

    def emit(self, conversation: "ConversationBuilder", *steps: Step) -> None:
        """Emit steps of a conversation; its info comes first if it is new or changed."""
        emitted, info = conversation.emitted_info, conversation.info
        is_emitted = emitted is info or emitted == info
        if conversation is not self._current or not is_emitted:
            self._current = conversation
            self._steps.append(SessionOpened(info=info, extra=conversation.extra))
            conversation.emitted_info = info
        self._steps += steps

    def _drain(self) -> list[Step]:
        steps, self._steps = self._steps, []
        return steps


class ConversationBuilder:
    """Builds the messages of one conversation in order, and joins results with their calls."""

    def __init__(
        self, reader: FormatReader, info: SessionInfo, extra: Extra | UnsetType = UNSET
    ) -> None:
        """Build the session with this info for a reader, which emits its messages."""
        self.info = info
        self.extra = extra
        self.emitted_info: SessionInfo | None = None  # the info that was emitted last
        self.last_id: str | None = None  # the id of the newest message
        self.reader = reader
        self._pairing = CallPairing(reader.key)
        self._orphans = 0

    @property
    def last(self) -> Message | None:
        """The newest message, or None if no more can be added to it."""
        return self._pairing.last

    def open(self, **changes: Any) -> None:
        """Emit the session's info with these changes, before or after its first message."""
        self.info = replace(self.info, **changes) if changes else self.info
        self.reader.emit(self)

    def add_user(
        self, id: str, parts: Iterable[AnyPart], at: Number | None, wire: Json | None = None
    ) -> None:
        """Add a message of the user."""
        self.add(user_message(id, parts, at, wire=wire))

    def add_assistant(
        self, id: str, parts: Iterable[AnyPart], at: Number | None, **about: Any
    ) -> None:
        """Add a reply of the model, with the options of `assistant_message`."""
        self.add(assistant_message(id, parts, at, **about))

    def add(self, message: Message) -> None:
        """Add a message, whose calls can get their results from now on."""
        self.reader.tally.count_calls(message.parts)
        self.last_id = message.id
        self._pairing.add(message)
        self._emit_ready()

    def extend(self, parts: Sequence[AnyPart], **fields: Any) -> None:
        """Add parts to the newest message, a reply, and change fields of its info."""
        last = self._pairing.last
        if last is not None:
            self.reader.tally.count_calls(parts)
            whole = (*last.parts, *parts)
            fields = {"finish": finish_of(whole), **fields}
            self._pairing.extend(with_info(replace(last, parts=whole), **fields))

    def add_result(self, result: ReadResult, at: Number | None) -> None:
        """Add the result of a call; a result without a call becomes a message with a text."""
        self.reader.tally.results += 1
        match = self._pairing.settle(result, at)
        if match is False:
            self._orphans += 1
            id = f"{result.call_id or 'call'}-result-{self._orphans}"
            self._pairing.add(user_message(id, (orphan_text(result, self.reader.key),), at))
        elif match is not True:
            self.reader.emit(self, match)
        self._emit_ready()

    def add_compaction(
        self,
        id: str,
        summary: Iterable[AnyPart],
        at: Number | None,
        *,
        auto: bool,
        tail: str | None = None,
        wire: Json | None = None,
        **about: Any,
    ) -> None:
        """Add a recorded compaction: a marker and its summary; `about` is info of the summary."""
        time = _created(at)
        marker = Message(
            info=UserInfo(id=f"{id}-marker", time=time, wire=wire or UNSET),
            parts=(CompactionPart(auto=auto, tail_start_id=tail or UNSET),),
        )
        info = AssistantInfo(
            id=f"{id}-summary",
            parent_id=marker.id,
            time=time,
            summary=True,
            finish="stop",
            **about,
        )
        self.flush()
        self.last_id = info.id
        self.reader.emit(self, marker, Message(info=info, parts=tuple(summary)))

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        """Hide the outputs of these calls from now on."""
        self.flush()
        self.reader.emit(self, OutputsPruned(calls=tuple(calls), at=at))

    def revert(self, message: str | None) -> None:
        """Take back all messages after the one with this id, or all if it is None."""
        self.flush()
        self.reader.emit(self, SessionReverted(message=message))
        self.last_id = message

    def flush(self) -> None:
        """Emit all messages, including those that wait for results."""
        if messages := self._pairing.flush():
            self.reader.emit(self, *messages)

    def _emit_ready(self) -> None:
        if messages := list(self._pairing.pop_ready()):
            self.reader.emit(self, *messages)


class UniqueIds:
    """Makes ids unique by appending numbers."""

    def __init__(self) -> None:
        """Start with no ids in use."""
        self._counts: dict[str, int] = {}

    def claim(self, id: str) -> str:
        """Return the id, with a number appended if it was claimed before."""
        while (count := self._counts.get(id, 0) + 1) > 1:
            self._counts[id] = count
            id = f"{id}-{count}"
        self._counts[id] = count
        return id


# --- messages ------------------------------------------------------------------------------


def user_message(
    id: str, parts: Iterable[AnyPart], at: Number | None, *, wire: Json | None = None
) -> Message:
    """A message of the user."""
    info = UserInfo(id=id, time=_created(at), wire=wire or UNSET)
    return Message(info=info, parts=tuple(parts))


def assistant_message(
    id: str,
    parts: Iterable[AnyPart],
    at: Number | None,
    *,
    model: tuple[str, str] = ("", ""),
    tokens: Tokens | None = None,
    finish: str | UnsetType = "",
    **more: Any,
) -> Message:
    """A reply of a model, given as provider and name; `more` are further fields of its info."""
    content = tuple(parts)
    info = AssistantInfo(
        id=id,
        time=_created(at),
        provider_id=model[0] or UNSET,
        model_id=model[1] or UNSET,
        tokens=tokens or UNSET,
        finish=(finish or finish_of(content)) if finish is not UNSET else UNSET,
        **more,
    )
    return Message(info=info, parts=content)


def with_info(message: Message, **fields: Any) -> Message:
    """The message with these fields of its info changed, such as its cost or an error."""
    return replace(message, info=replace(message.info, **fields)) if fields else message


def synthetic_text(text: str) -> TextPart:
    """A text that the program, not the user, put into the context."""
    return TextPart(text=text, synthetic=True)


def marked_synthetic(
    parts: Iterable[AnyPart], applies: Callable[[TextPart], object] = bool
) -> tuple[AnyPart, ...]:
    """The parts with their texts marked as synthetic: all, or those that `applies` selects."""
    return tuple(
        replace(part, synthetic=True) if isinstance(part, TextPart) and applies(part) else part
        for part in parts
    )


def _created(at: Number | None) -> Time | UnsetType:
    return UNSET if at is None else Time(created=at)


# --- records -------------------------------------------------------------------------------


def read_each(items: Any, name: str, read: Callable[[Any, int], object]) -> None:
    """Read each item of a list with its number; BadInput names the item that is unreadable."""
    if not isinstance(items, list):
        raise BadInput(f"'{name}' is {json_type(items)}, not a list")
    for number, item in enumerate(cast("list[Any]", items)):
        try:
            read(item, number)
        except BadInput as error:
            more = f", {error.location}" if error.location else ""
            raise BadInput(error.cause, location=f"{name}[{number}]{more}") from None


def optional_text(record: Json, name: str) -> str:
    """The text of a field, or "" if it is absent or null; raises BadInput for other values."""
    return "" if record.get(name) is None else text_at(record, name)


def text_or_empty(value: object) -> str:
    """The value if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def as_object(value: object) -> Json:
    """The value if it is an object, else {}."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list, else []."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def provider_and_model(name: object) -> tuple[str, str]:
    """The provider, if it is named, and the model of a name like `anthropic/claude-sonnet-4-5`."""
    if not isinstance(name, str):
        return "", ""
    provider, _, model = name.partition("/")
    return (provider, model) if provider and model else ("", name)


def number_or_unset(value: object) -> Number | UnsetType:
    """The value if it is a number, else UNSET."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else UNSET


def session_time(created: int | None, updated: int | None = None) -> Time | UnsetType:
    """The times at which a session was created and last changed, or UNSET if unknown."""
    return UNSET if created is None else Time(created=created, updated=updated or created)


def milliseconds(stamp: object) -> int | None:
    """Milliseconds since 1970 of a time in ISO 8601, seconds or milliseconds; None for others."""
    if isinstance(stamp, str):
        return _iso(stamp)
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 < stamp < _LATEST:
        # Seconds until the year 5138; milliseconds from 1973 on.
        return int(stamp * 1000) if stamp < 10**11 else int(stamp)
    return None


def _iso(stamp: str) -> int | None:
    try:
        time = datetime.fromisoformat(stamp)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return int(time.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
