"""Follows a framework's own history with a session, and shows the framework a view that fits.

The history stays the framework's and stays whole: what is new in it is taken into the session, a
history that was taken back takes the session back. What the view shows unaltered is handed back as
the very object that came; only hidden outputs and summaries are new ones. Which framework it is
only a dialect knows.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import is_
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from foldmark.errors import CompactionStopped, FoldmarkError
from foldmark.io.background import uncut
from foldmark.messages import (
    AnyPart,
    AssistantInfo,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
    UserInfo,
    has_result,
)
from foldmark.refusals import is_context_overflow, stated_window
from foldmark.session.session import Session
from foldmark.shown import AnyShown, Call, FromTools, Media, Reasoning, Result, Text
from foldmark.values import Json, encode
from foldmark.wire.lists import as_shown, orphan
from foldmark.wire.model import RESULT, Answer, Read, options, without

M = TypeVar("M")
R = TypeVar("R")
_LESS = 0.9
_MARK = "followed"  # under the dialect's key: the number in the history, and a print of it
# In `rest` of a message or result: what may change while it stays the same. No print is made of it.
VOLATILE = "volatile"


class Dialect(Protocol[M]):
    """How a framework writes messages."""

    key: str  # under which what it alone knows of a message is kept
    unique: bool  # whether no two messages read the same: they have ids, or times

    def read(self, message: M, /) -> Read:
        """What a message says; `rest` is what `write` needs beside that to make it again."""
        ...

    def write(self, shown: Sequence[AnyShown], original: M | None, /) -> list[M]:
        """Messages that say this: with `original`, they are what the view shows of that one."""
        ...

    def prompt(self, message: M, /) -> M | None:
        """The system prompt in a message that leads a history, as a message; None without one."""
        ...


class Item(NamedTuple, Generic[M]):
    """A message of the history: as an object, if it was seen here, and its print, if known."""

    message: M | None
    print: str | None


class Following(Generic[M]):
    """One session that follows one history."""

    def __init__(self, session: Session, dialect: Dialect[M]) -> None:
        """Take the session, which may have followed before, and the framework's dialect."""
        self.session = session
        self._dialect = dialect
        # What the provider measured for the next answer in the history, if that does not tell.
        self.measured: Tokens | None = None
        self._base = 0  # where in all that was followed the history begins
        self._prompts: list[M] = []
        self._gists: dict[int, object] = {}
        self._items: list[Item[M]] = []
        self._open: set[str] = set()  # calls without a result
        self._load()

    # --- the history into the session ---

    def take(self, history: Sequence[M]) -> None:
        """Bring the session up to date with the history."""
        led = self._led(history)
        known = self._common(history)
        if known <= led < len(history) and len(self._items) > self._base + led:
            known = self._begun_elsewhere(history, led)
        if known < len(self._items) - self._base:
            known = self._go_back(known)
        self._add(history, known, led)

    def _begun_elsewhere(self, history: Sequence[M], led: int) -> int:
        """How much is known of a history that begins otherwise: with a later run, or anew."""
        self._base = len(self._items)
        if self._dialect.unique:
            first = _print(self._dialect.read(history[led]))
            places = (place for place, item in enumerate(self._items) if item.print == first)
            self._base = next(places, self._base + led) - led
        return self._common(history)

    def _common(self, history: Sequence[M]) -> int:
        """How many messages the history begins with that were followed before."""
        held = self._items[self._base :] if self._base else self._items
        both = min(len(held), len(history))
        if all(map(is_, history, (item.message for item in held))):
            return both
        for place in range(both):
            item = held[place]
            if item.message is history[place]:
                continue
            if item.print is not None and item.print != _print(self._dialect.read(history[place])):
                return place
            self._items[self._base + place] = Item(history[place], item.print)
        return both

    def _add(self, history: Sequence[M], start: int, led: int) -> None:
        first = max(start, led)
        self._items += [Item(message, None) for message in history[start:first]]
        new = history[first:]
        if not new:
            return
        reader = _Marking(self._dialect, self._base + first, self._open)
        taken = self._measuring([reader.read(message) for message in new])
        self.session.take_read(taken, _AsRead(self._dialect.key))
        self._items += map(Item, new, reader.prints)

    def _measuring(self, reads: list[Read]) -> list[Read]:
        """The same, the first answer with what was measured for it."""
        for place, read in enumerate(reads):
            if read.role == "assistant" and self.measured is not None:
                reads[place] = replace(read, tokens=read.tokens or self.measured)
                self.measured = None
        return reads

    def _led(self, history: Sequence[M]) -> int:
        """How many system prompts lead the history: they are in every view, and in no session."""
        self._prompts = []
        for place, message in enumerate(history):
            prompt = self._dialect.prompt(message)
            if prompt is None:
                return place
            self._prompts.append(prompt)
            if self._dialect.read(message).role != "system":
                return place  # it says something beside it
        return len(history)

    def _go_back(self, known: int) -> int:
        """Hide what is in the session and no more in the history; how much of that is left."""
        number, before = self._base + known, None
        for message in self.session.export().messages:
            numbers = [mark[0] for mark in _marks(message, self._dialect.key)]
            if not numbers or max(numbers) < number:
                before = message.id
                continue
            if before is None:  # there is no message to go back to
                self._base = len(self._items)
                return 0
            self.session.revert(before)
            number = min(number, *numbers)  # a result that changed takes its call along
            break
        del self._items[number:]
        self._gists = {}
        self._open = _open_calls(self.session.export().messages)
        return number - self._base

    def _load(self) -> None:
        """Learn what the session has followed before."""
        messages = self.session.export().messages
        found = dict(mark for held in messages for mark in _marks(held, self._dialect.key))
        last = max(found, default=-1)
        self._items = [Item(None, found.get(number)) for number in range(last + 1)]
        self._open = _open_calls(messages)

    # --- the view for the framework ---

    def view(self) -> list[M]:
        """What to send to the model: it is made to fit first, if it must be."""
        try:
            return self._written(self.session.messages())
        except CompactionStopped:
            # A loop that fills the window at each step is stopped, lest it asks a model each time.
            if self.session.asks_model:
                raise
            self.session.compact()
            return self._written(self.session.messages())

    async def aview(self) -> list[M]:
        """`view`, async."""
        try:
            return self._written(await self.session.amessages())
        except CompactionStopped:
            if self.session.asks_model:
                raise
            await self.session.acompact()
            return self._written(await self.session.amessages())

    def _written(self, shown: Iterable[AnyShown]) -> list[M]:
        bits = [bit for message in shown for bit in self._bits(message)]
        written: list[M] = []
        gists: dict[int, object] = {}
        for number, group in groupby(bits, key=lambda bit: bit[0]):
            held = _joined([bit for _, bit in group])
            original = None
            if number is not None and number < len(self._items):
                original = self._items[number].message
            if number is not None and original is not None:
                gists[number] = self._gists.get(number) or _said(self._dialect.read(original))
                if gists[number] == _shown(held):
                    written.append(original)
                    continue
            written += self._dialect.write(held, original)
        self._gists = gists
        return self._with_prompts(written)

    def _bits(self, message: AnyShown) -> list[tuple[int | None, AnyShown]]:
        """A shown message, or each result of one, with its number in the history."""
        key = self._dialect.key
        if not isinstance(message, FromTools):
            return [(number_of(options(message.wire, key)), message)]
        bits: list[tuple[int | None, AnyShown]] = []
        for result in message.content:
            kept = options(options(result.provider_options, key), RESULT)
            bits.append((number_of(kept), FromTools(content=(result,))))
        return bits

    def _with_prompts(self, written: list[M]) -> list[M]:
        if not self._prompts:
            return written
        first = self._items[self._base + len(self._prompts) - 1].message
        # A message that says more than its prompt brings it along, where it is shown as it is.
        brings = bool(written) and written[0] is first and self._prompts[-1] is not first
        return [*self._prompts[: -1 if brings else None], *written]

    # --- asking the model ---

    def ask(self, history: Sequence[M], model: Callable[[list[M]], R]) -> R:
        """The model's answer to a view of the history; after a refusal for length, a shorter one.

        Raises what the model raises; a refusal, too, where nothing more can be folded.
        """
        self.take(history)
        try:
            return model(self.view())
        except Exception as error:
            if not self.can_shrink(error):
                raise
            return model(self.shrunk(error))

    async def aask(self, history: Sequence[M], model: Callable[[list[M]], Awaitable[R]]) -> R:
        """`ask`, async."""
        await uncut(self.take, history)
        try:
            return await model(await self.aview())
        except Exception as error:
            if not self.can_shrink(error):
                raise
            return await model(await self.ashrunk(error))

    def can_shrink(self, error: Exception) -> bool:
        """Whether a model refused for length, and what it was shown may be shortened."""
        return self.session.policy.auto and is_context_overflow(error)

    def shrunk(self, error: Exception) -> list[M]:
        """A view that is shorter than the one that was refused."""
        window = self._smaller_window(error)
        try:
            if window is None or not self.session.switch(window=window):
                self.session.compact(auto=True, overflow=True)
            return self.view()
        except FoldmarkError as stopped:
            raise error from stopped

    async def ashrunk(self, error: Exception) -> list[M]:
        """`shrunk`, async."""
        window = self._smaller_window(error)
        try:
            if window is None or not await self.session.aswitch(window=window):
                await self.session.acompact(auto=True, overflow=True)
            return await self.aview()
        except FoldmarkError as stopped:
            raise error from stopped

    def _smaller_window(self, error: Exception) -> int | None:
        """The window that a refusal tells of: what it states, or less than was believed in."""
        stated, limit = stated_window(error), self.session.limit
        if limit is None or not limit.context or (stated and stated < limit.context):
            return stated
        return int(limit.context * _LESS)  # the provider counts more tokens than we do


class _AsRead:
    """Takes messages that were read already."""

    name = "read"

    def __init__(self, key: str) -> None:
        self.key = key

    def read(self, message: Read, /) -> Read:
        return message


class _Marking(Generic[M]):
    """Reads messages one after the other, and marks each with its number and print."""

    def __init__(self, dialect: Dialect[M], number: int, calls: set[str]) -> None:
        self._dialect = dialect
        self._open = calls
        self.number = number
        self.prints: list[str] = []

    def read(self, message: M) -> Read:
        read = self._dialect.read(message)
        self.prints.append(_print(read))
        mark: Json = {_MARK: [self.number, self.prints[-1]]}
        self.number += 1
        answers, lost = list[Answer](), list[TextPart]()
        for answer in read.answers:
            if answer.call_id in self._open:
                self._open.discard(answer.call_id)
                answers.append(replace(answer, rest={**answer.rest, **mark}))
            else:  # a result without a call is words like any other
                lost.append(orphan(answer, self._dialect.key))
        self._open |= {part.call_id or "" for part in read.parts if isinstance(part, ToolPart)}
        parts = (*lost, *read.parts)
        if read.joins:  # it becomes one with the message before it, whose mark is another
            parts = tuple(_marked(part, self._dialect.key, mark) for part in parts)
        return replace(read, parts=parts, answers=tuple(answers), rest={**read.rest, **mark})


def _print(read: Read) -> str:
    """A print of what a message says; what was measured beside it may be known only once."""
    said = replace(read, tokens=None) if read.tokens else read
    if VOLATILE in read.rest or any(VOLATILE in answer.rest for answer in read.answers):
        answers = tuple(replace(held, rest=without(held.rest, VOLATILE)) for held in read.answers)
        said = replace(said, rest=without(read.rest, VOLATILE), answers=answers)
    return blake2b(encode(said), digest_size=9).hexdigest()


def _marked(part: AnyPart, key: str, mark: Json) -> AnyPart:
    if not isinstance(part, TextPart | ReasoningPart | FilePart | ToolPart):
        return part
    metadata = part.metadata or {}
    return replace(part, metadata={**metadata, key: {**options(metadata, key), **mark}})


def number_of(kept: Json) -> int | None:
    """The number in the history that stands in what is kept under a dialect's key."""
    mark = _mark(kept)
    return mark[0] if mark else None


def _mark(kept: Json) -> tuple[int, str] | None:
    match kept.get(_MARK):
        case [int(number), str(text)]:
            return number, text
        case _:
            return None


def _marks(message: Message, key: str) -> list[tuple[int, str]]:
    """The marks of a message of ours: its own first, then those of parts and results."""
    held = [options(message.info.wire, key)]
    for part in message.parts:
        if isinstance(part, TextPart | ReasoningPart | FilePart | ToolPart):
            own = options(part.metadata, key)
            held += [own, options(own, RESULT)]
    return [mark for mark in map(_mark, held) if mark is not None]


def _open_calls(messages: Iterable[Message]) -> set[str]:
    return {
        part.call_id or ""
        for message in messages
        for part in message.parts
        if isinstance(part, ToolPart) and not has_result(part)
    }


# --- whether the view shows a message as it is ---


def _joined(bits: Sequence[AnyShown]) -> list[AnyShown]:
    """Results that stood in one message stand in one again."""
    joined: list[AnyShown] = []
    for bit in bits:
        last = joined[-1] if joined else None
        if isinstance(bit, FromTools) and isinstance(last, FromTools):
            joined[-1] = FromTools(content=last.content + bit.content)
        else:
            joined.append(bit)
    return joined


def _shown(messages: Iterable[AnyShown]) -> list[object]:
    return [_gist(block) for message in messages for block in message.content]


def _said(read: Read) -> list[object]:
    """What a view would show of a message, if it shows all of it."""
    kind = AssistantInfo if read.role == "assistant" else UserInfo
    parts = as_shown(Message(info=kind(id="msg"), parts=read.parts), "")
    results = [(answer.call_id, answer.output, len(answer.files)) for answer in read.answers]
    return [*results, *_shown(parts if read.parts else ())]


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
