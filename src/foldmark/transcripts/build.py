"""Builds sessions from the records of a transcript: what all formats share.

A `FormatReader` reads one file record by record. What a record says it tells a `Talk`, which makes
messages with the ids and times of the transcript, and joins calls with their results. Nothing here
opens a file or knows a store.
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
from foldmark.wire.codec import Answer, kind_words, text_at
from foldmark.wire.lists import orphan
from foldmark.wire.pairing import Late, Weaver

from .source import Head, Record

_LATEST = 2**53


class Opened(Frozen):
    """What follows is of this session: a new one, or one that was opened before."""

    info: SessionInfo
    extra: Extra | UnsetType = UNSET


class Pruned(Frozen):
    """The outputs of these calls are no longer shown."""

    calls: tuple[str, ...]
    at: Number | None


class Reverted(Frozen):
    """All after this message was taken back by the user."""

    message: str | None  # None: everything


Step = Opened | Message | Late | Pruned | Reverted


class Tally(Struct):
    """How many messages, calls and results a file has by its own count."""

    messages: int = 0
    calls: int = 0
    results: int = 0

    def count_calls(self, parts: Iterable[AnyPart]) -> None:
        """Count the calls among these parts, and those of them that have a result."""
        calls = [part for part in parts if isinstance(part, ToolPart)]
        self.calls += len(calls)
        self.results += sum(map(has_result, calls))


class FormatReader:
    """Reads one file; each format overrides `recognises` and `read`, and what else it needs.

    What `read` tells before it raises BadInput is dropped: a record counts wholly or not at all.
    """

    name: str
    about: str  # for people: which program writes it
    key = ""  # under which the metadata of parts keeps what only this format knows
    bare = ""  # the field in which a list would stand that is all of a file, if it may be

    def __init__(self, name: str) -> None:
        """Take the file's name, for sessions that have none of their own."""
        self.stem = Path(name).stem.removesuffix(".traj")
        self.line = 0  # the number of the one that is read
        self.tally = Tally()
        self.names = UniqueNames()  # of its sessions
        self.talk = Talk(self, SessionInfo(id=self.stem))
        self.talks = {self.stem: self.talk}  # all that may hold messages back
        self._steps: list[Step] = []
        self._current: Talk | None = None

    @classmethod
    def recognises(cls, head: Head) -> bool:
        """Whether a file that begins so is of this format."""
        raise NotImplementedError

    def decode(self, record: Record) -> Any:
        """A line or a document as `read` takes it."""
        value = record.value()
        if self.bare and isinstance(value, list):
            return {self.bare: cast("object", value)}
        if isinstance(value, dict):
            return cast("Json", value)
        raise BadInput(f"a record is an object, not {kind_words(value)}")

    def read(self, record: Any) -> None:
        """Tell what a record says; BadInput if it cannot be read."""
        raise NotImplementedError

    def finish(self) -> None:
        """Tell what is left once all records are read."""

    def take(self, record: Record) -> list[Step]:
        """The steps that a record adds."""
        self.line = record.line
        try:
            self.read(self.decode(record))
        except Exception:
            if any(isinstance(step, Opened) for step in self._told()):
                self._current = None  # to be told anew
            raise
        return self._told()

    def end(self) -> list[Step]:
        """The steps that are left at the end of the file."""
        self.finish()
        for talk in self.talks.values():
            talk.flush()
            if talk.opened not in (None, talk.info):
                self.tell(talk)
        return self._told()

    def tell(self, talk: "Talk", *steps: Step) -> None:
        """Add steps of a conversation; first which one it is, where that or its info changes."""
        is_known = talk.opened is talk.info or talk.opened == talk.info
        if talk is not self._current or not is_known:
            self._current = talk
            self._steps.append(Opened(info=talk.info, extra=talk.extra))
            talk.opened = talk.info
        self._steps += steps

    def _told(self) -> list[Step]:
        steps, self._steps = self._steps, []
        return steps


class Talk:
    """One conversation: its messages in order, results joined with their calls."""

    def __init__(
        self, reader: FormatReader, info: SessionInfo, extra: Extra | UnsetType = UNSET
    ) -> None:
        """Take who reads the file, and what is known of the session."""
        self.info = info
        self.extra = extra
        self.opened: SessionInfo | None = None  # as it was told
        self.last_id: str | None = None  # the id of the newest message
        self.reader = reader
        self._weaver = Weaver(reader.key)
        self._orphans = 0

    @property
    def last(self) -> Message | None:
        """The newest message, while more can be added to it."""
        return self._weaver.last

    def open(self, **changes: Any) -> None:
        """Tell of the session, though nothing was said yet, with changes of its info."""
        self.info = replace(self.info, **changes) if changes else self.info
        self.reader.tell(self)

    def user(
        self, name: str, parts: Iterable[AnyPart], at: Number | None, wire: Json | None = None
    ) -> None:
        """Add a message of the user."""
        self.add(user_message(name, parts, at, wire=wire))

    def assistant(
        self, name: str, parts: Iterable[AnyPart], at: Number | None, **about: Any
    ) -> None:
        """Add an answer; what is known about it as `assistant_message` takes it."""
        self.add(assistant_message(name, parts, at, **about))

    def add(self, message: Message) -> None:
        """Add a message; its calls may be answered from now on."""
        self.reader.tally.count_calls(message.parts)
        self.last_id = message.id
        self._weaver.add(message)
        self._tell_ready()

    def extend(self, parts: Sequence[AnyPart], **fields: Any) -> None:
        """Add parts to the newest message, an answer, and change what is said of it."""
        last = self._weaver.last
        if last is not None:
            self.reader.tally.count_calls(parts)
            whole = (*last.parts, *parts)
            fields = {"finish": finish_of(whole), **fields}
            self._weaver.extend(with_info(replace(last, parts=whole), **fields))

    def answer(self, answer: Answer, at: Number | None) -> None:
        """Add the result of a call; one without a call becomes a text of its own."""
        self.reader.tally.results += 1
        result = self._weaver.answer(answer, at)
        if result is False:
            self._orphans += 1
            name = f"{answer.call_id or 'call'}-result-{self._orphans}"
            self._weaver.add(user_message(name, (orphan(answer, self.reader.key),), at))
        elif result is not True:
            self.reader.tell(self, result)
        self._tell_ready()

    def fold(
        self,
        name: str,
        summary: Iterable[AnyPart],
        at: Number | None,
        *,
        auto: bool,
        tail: str | None = None,
        wire: Json | None = None,
        **about: Any,
    ) -> None:
        """Add a recorded compaction: a marker, and the summary, of which more may be known."""
        time = _created(at)
        marker = Message(
            info=UserInfo(id=f"{name}-marker", time=time, wire=wire or UNSET),
            parts=(CompactionPart(auto=auto, tail_start_id=tail or UNSET),),
        )
        info = AssistantInfo(
            id=f"{name}-summary",
            parent_id=marker.id,
            time=time,
            summary=True,
            finish="stop",
            **about,
        )
        self.flush()
        self.last_id = info.id
        self.reader.tell(self, marker, Message(info=info, parts=tuple(summary)))

    def prune(self, calls: Iterable[str], at: Number | None) -> None:
        """Hide the outputs of these calls from now on."""
        self.flush()
        self.reader.tell(self, Pruned(calls=tuple(calls), at=at))

    def revert(self, message: str | None) -> None:
        """Take back all after a message; with None, everything."""
        self.flush()
        self.reader.tell(self, Reverted(message=message))
        self.last_id = message

    def flush(self) -> None:
        """Hand on all messages that are held, answered or not."""
        if messages := self._weaver.rest():
            self.reader.tell(self, *messages)

    def _tell_ready(self) -> None:
        if messages := list(self._weaver.ready()):
            self.reader.tell(self, *messages)


class UniqueNames:
    """Names, of which each is given once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._given: dict[str, int] = {}

    def once(self, name: str) -> str:
        """A name, or one made of it where it was given before."""
        while (count := self._given.get(name, 0) + 1) > 1:
            self._given[name] = count
            name = f"{name}-{count}"
        self._given[name] = count
        return name


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
    """An answer of a model, by the names of its provider and its own; `more` are fields of info."""
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
    """A message of which more is said: its cost, an error, what its wire kept."""
    return replace(message, info=replace(message.info, **fields)) if fields else message


def note(text: str) -> TextPart:
    """A text that the program put into the context, not the user."""
    return TextPart(text=text, synthetic=True)


def by_program(
    parts: Iterable[AnyPart], wrote: Callable[[TextPart], object] = bool
) -> tuple[AnyPart, ...]:
    """The same parts, with the texts marked that the program wrote: all, or only some."""
    return tuple(
        replace(part, synthetic=True) if isinstance(part, TextPart) and wrote(part) else part
        for part in parts
    )


def _created(at: Number | None) -> Time | UnsetType:
    return UNSET if at is None else Time(created=at)


# --- records -------------------------------------------------------------------------------


def read_each(items: Any, name: str, read: Callable[[Any, int], object]) -> None:
    """Read the items of a list with their numbers; what is refused is refused by its place."""
    if not isinstance(items, list):
        raise BadInput(f"'{name}' is {kind_words(items)}, not a list")
    for number, item in enumerate(cast("list[Any]", items)):
        try:
            read(item, number)
        except BadInput as error:
            more = f", {error.place}" if error.place else ""
            raise BadInput(error.cause, place=f"{name}[{number}]{more}") from None


def optional_text(record: Json, name: str) -> str:
    """The text of a field that may be absent or null; BadInput if it is something else."""
    return "" if record.get(name) is None else text_at(record, name)


def text_or_empty(value: object) -> str:
    """A text; nothing where the value is none."""
    return value if isinstance(value, str) else ""


def as_object(value: object) -> Json:
    """An object; an empty one where the value is none."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """A list; an empty one where the value is none."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def named_model(name: object) -> tuple[str, str]:
    """A provider and its model, of a name as `anthropic/claude-sonnet-4-5`."""
    if not isinstance(name, str):
        return "", ""
    provider, found, model = name.partition("/")
    return (provider, model) if found and provider and model else ("", name)


def number_or_unset(value: object) -> Number | UnsetType:
    """A number; absent where the value is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else UNSET


def session_time(begun: int | None, ended: int | None = None) -> Time | UnsetType:
    """When a session began, and when it was last changed."""
    return UNSET if begun is None else Time(created=begun, updated=ended or begun)


def moment(stamp: object) -> int | None:
    """Milliseconds since 1970 for a time as transcripts write it: ISO 8601, seconds, or these."""
    if isinstance(stamp, str):
        return _iso(stamp)
    if isinstance(stamp, int | float) and not isinstance(stamp, bool) and 0 < stamp < _LATEST:
        # Seconds until the year 5138; milliseconds from 1973 on.
        return int(stamp * 1000) if stamp < 10**11 else int(stamp)
    return None


def _iso(stamp: str) -> int | None:
    try:
        when = datetime.fromisoformat(stamp)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
