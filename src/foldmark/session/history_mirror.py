"""Follows a framework's own history with a session, and shows the framework a view that fits.

The history stays the framework's and stays whole: what is new in it is taken into the session, a
history that was taken back takes the session back. What the view shows unaltered is handed back as
the very object that came; only hidden outputs and summaries are new ones. Which framework it is
only a dialect knows.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, takewhile
from operator import is_
from typing import Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from foldmark.errors import BadPolicy, CompactionStopped, FoldmarkError
from foldmark.model.messages import Message, TextPart, Tokens, ToolPart, has_result
from foldmark.model.prompt_messages import PromptMessage, ToolMessage
from foldmark.providers.background import uncut
from foldmark.refusals import is_context_overflow
from foldmark.wire.codec import RESULT, ReadMessage, ReadResult, subobject
from foldmark.wire.lists import orphan_text

from .fingerprints import (
    VOLATILE,
    Fingerprint,
    content_of,
    fingerprint_of,
    mark,
    marks,
    number_of,
    said,
    with_mark,
)
from .loop_support import LoopSupport
from .session import Session, state_of
from .writer import extend_read

__all__ = [
    "VOLATILE",
    "HistoryMirror",
    "MessageDialect",
    "MirroredMessage",
    "number_of",
    "run_abortable",
]

M = TypeVar("M")
R = TypeVar("R")
P = ParamSpec("P")
_BEGINNING = "[Here begins what follows a history.]"


class MessageDialect(Protocol[M]):
    """How a framework writes messages."""

    key: str  # under which what it alone knows of a message is kept
    unique: bool  # whether no two messages read the same: they have ids, or times

    def read(self, message: M, /) -> ReadMessage:
        """What a message says; `rest` is what `write` needs beside that to make it again."""
        ...

    def write(self, shown: Sequence[PromptMessage], original: M | None, /) -> list[M]:
        """Messages that say this: with `original`, they are what the view shows of that one."""
        ...

    def prompt(self, message: M, /) -> M | None:
        """The system prompt in a message that leads a history, as a message; None without one."""
        ...


class MirroredMessage(NamedTuple, Generic[M]):
    """A message of the history: as an object, if it was seen here, and its print, if known."""

    message: M | None
    print: Fingerprint | None


class HistoryMirror(Generic[M]):
    """One session that follows one history."""

    def __init__(self, session: Session, dialect: MessageDialect[M]) -> None:
        """Take the session, which may have followed before, and the framework's dialect."""
        self.session = session
        self._support = LoopSupport(session)
        self._dialect = dialect
        # What the provider measured for the next answer in the history, if that does not tell.
        self.measured: Tokens | None = None
        self._base = 0  # where in all that was followed the history begins
        self._prompts: list[M] = []
        self._gists: dict[int, object] = {}
        self._items: list[MirroredMessage[M]] = []
        self._open: set[str] = set()  # calls without a result
        self._begun = False  # whether the session is known to hold something
        self._load()

    # --- the history into the session ---

    def take(self, history: Sequence[M], *, whole: bool = False) -> None:
        """Bring the session up to date with the history.

        A history that begins otherwise than what was followed goes on with the session; with
        `whole` it is all that there is: then the session goes back.
        """
        prompts = self._read_prompts(history)
        common = self._common_length(history)
        if common <= prompts < len(history) and len(self._items) > self._base + prompts:
            common = self._find_start(history, prompts, whole=whole)
        if common < len(self._items) - self._base:
            common = self._go_back(common)
        self._add(history, common, prompts)

    def _common_length(self, history: Sequence[M]) -> int:
        """How many messages the history begins with that were followed before."""
        items = self._items[self._base :] if self._base else self._items
        both = min(len(items), len(history))
        if all(map(is_, history, (item.message for item in items))):
            return both
        for index in range(both):
            item = items[index]
            if item.message is history[index]:
                continue
            if item.print is not None:
                fingerprint = fingerprint_of(self._dialect.read(history[index]))
                # Where all before it is the same, the words are enough.
                same = (
                    fingerprint.said == item.print.said
                    if index
                    else fingerprint.exact == item.print.exact
                )
                if not same:
                    return index
            self._items[self._base + index] = MirroredMessage(history[index], item.print)
        return both

    def _find_start(self, history: Sequence[M], prompts: int, *, whole: bool) -> int:
        """How much is known of a history that begins otherwise, and where in the session it does.

        It may begin with a later run, have slid on, have ids of its own each time, or be another.
        """
        new_prints = [fingerprint_of(self._dialect.read(message)) for message in history[prompts:]]
        old_prints = [item.print for item in self._items]
        index, length = _longest_run(old_prints, new_prints, unique=self._dialect.unique)
        if length and index >= prompts:
            self._base = index - prompts
            return prompts + length
        end = _known_ending(old_prints, new_prints)
        if not whole and end and len(old_prints) >= prompts + end:
            self._base = len(old_prints) - prompts - end
            return prompts + end
        self._base = 0 if whole else len(old_prints)
        return 0

    def _add(self, history: Sequence[M], start: int, prompts: int) -> None:
        first = max(start, prompts)
        self._items += [MirroredMessage(message, None) for message in history[start:first]]
        new = history[first:]
        if not new:
            return
        self._write_root()
        reader = _MarkingReader(self._dialect, self._base + first, self._open)
        reads = [reader.read(message) for message in new]
        for index, read in enumerate(reads):
            if read.role == "assistant" and self.measured is not None:
                reads[index] = replace(read, tokens=read.tokens or self.measured)
                self.measured = None
        extend_read(state_of(self.session), reads, self._dialect.key)
        self._items += map(MirroredMessage, new, reader.prints)

    def _write_root(self) -> None:
        """Begin an empty session with a message that is not shown: one can go back to it."""
        if not self._begun and self._support.newest() is None:
            self.session.user([TextPart(text=_BEGINNING, ignored=True, synthetic=True)])
        self._begun = True

    def _read_prompts(self, history: Sequence[M]) -> int:
        """How many system prompts lead the history: they are in every view, and in no session."""
        self._prompts = []
        for index, message in enumerate(history):
            prompt = self._dialect.prompt(message)
            if prompt is None:
                return index
            self._prompts.append(prompt)
            if self._dialect.read(message).role != "system":
                return index  # it says something beside it
        return len(history)

    def _go_back(self, common: int) -> int:
        """Hide what is in the session and no more in the history; how much of that is left."""
        number, before = self._base + common, None
        for message in self.session.export(reverted=False).messages:
            numbers = [number for number, _ in marks(message, self._dialect.key)]
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
        self._open = _open_calls(self.session.export(reverted=False).messages)
        return number - self._base

    def _load(self) -> None:
        """Learn what the session has followed before."""
        messages = self.session.export(reverted=False).messages
        fingerprints = dict(
            numbered for message in messages for numbered in marks(message, self._dialect.key)
        )
        last = max(fingerprints, default=-1)
        self._items = [
            MirroredMessage(None, fingerprints.get(number)) for number in range(last + 1)
        ]
        self._open = _open_calls(messages)

    # --- the view for the framework ---

    def view(self) -> list[M]:
        """What to send to the model: it is made to fit first, if it must be."""
        if self.session.limit is None and self.session.policy.auto:
            # A window that nobody knows is an error, and no silent default.
            raise BadPolicy(
                "no window is known, so nothing can be made to fit: give window=… in tokens, "
                "or model=… by its name"
            )
        try:
            return self._write_view(self.session.messages())
        except CompactionStopped:
            # A loop that fills the window at each step is stopped, lest it asks a model each time.
            if self._support.asks_model:
                raise
            self.session.compact()
            return self._write_view(self.session.messages())

    def _write_view(self, messages: Iterable[PromptMessage]) -> list[M]:
        numbered = [item for message in messages for item in self._numbered(message)]
        output: list[M] = []
        visible: dict[int, object] = {}
        for number, group in groupby(numbered, key=lambda item: item[0]):
            group_messages = _join_results([item for _, item in group])
            original = None
            if number is not None and number < len(self._items):
                original = self._items[number].message
            if number is not None and original is not None:
                visible[number] = self._gists.get(number) or said(self._dialect.read(original))
                if visible[number] == content_of(group_messages):
                    output.append(original)
                    continue
            output += self._dialect.write(group_messages, original)
        self._gists = visible
        return self._with_prompts(output)

    def _numbered(self, message: PromptMessage) -> list[tuple[int | None, PromptMessage]]:
        """A shown message, or each result of one, with its number in the history."""
        key = self._dialect.key
        if not isinstance(message, ToolMessage):
            return [(number_of(subobject(message.wire, key)), message)]
        bits: list[tuple[int | None, PromptMessage]] = []
        for result in message.content:
            data = subobject(subobject(result.provider_options, key), RESULT)
            bits.append((number_of(data), ToolMessage(content=(result,))))
        return bits

    def _with_prompts(self, messages: list[M]) -> list[M]:
        if not self._prompts:
            return messages
        first = self._items[self._base + len(self._prompts) - 1].message
        # A message that says more than its prompt brings it along, where it is shown as it is.
        brings = bool(messages) and messages[0] is first and self._prompts[-1] is not first
        return [*self._prompts[: -1 if brings else None], *messages]

    # --- after a refusal ---

    def can_shrink(self, error: Exception) -> bool:
        """Whether a model refused for length, and what it was shown may be shortened."""
        return self.session.policy.auto and is_context_overflow(error)

    def shorter_view(self, error: Exception) -> list[M]:
        """A view that is shorter than the one that was refused."""
        try:
            self.session.recover(error)
            return self.view()
        except FoldmarkError as stopped:
            raise error from stopped


async def run_abortable(
    session: Session, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """What a call gives in a thread; a task that is cancelled aborts the compaction in it."""
    task = asyncio.ensure_future(uncut(call, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        session.abort()
        task.cancel()  # it ends with its thread
        await asyncio.wait((task,))
        raise


class _MarkingReader(Generic[M]):
    """Reads messages one after the other, and marks each with its number and print."""

    def __init__(self, dialect: MessageDialect[M], number: int, calls: set[str]) -> None:
        self._dialect = dialect
        self._open = calls
        self.number = number
        self.prints: list[Fingerprint] = []

    def read(self, message: M) -> ReadMessage:
        read = self._dialect.read(message)
        self.prints.append(fingerprint_of(read))
        data = mark(self.number, self.prints[-1])
        self.number += 1
        answers, orphans = list[ReadResult](), list[TextPart]()
        for answer in read.results:
            if answer.call_id in self._open:
                self._open.discard(answer.call_id)
                answers.append(replace(answer, rest={**answer.rest, **data}))
            else:  # a result without a call is words like any other
                orphans.append(orphan_text(answer, self._dialect.key))
        self._open |= {part.call_id or "" for part in read.parts if isinstance(part, ToolPart)}
        parts = (*orphans, *read.parts)
        if read.joins:  # it becomes one with the message before it, whose mark is another
            parts = tuple(with_mark(part, self._dialect.key, data) for part in parts)
        return replace(read, parts=parts, results=tuple(answers), rest={**read.rest, **data})


def _longest_run(
    old_prints: Sequence[Fingerprint | None], new_prints: Sequence[Fingerprint], *, unique: bool
) -> tuple[int, int]:
    """Where in what is known a history begins, and how much of it is there; the longest such run.

    Two messages in a row that say the same are no chance, nor is one with an id of its own.
    """
    best = (0, 0, 0)  # the run's exact part, its length, its place
    for index, old in enumerate(old_prints):
        if old is None or old.said != new_prints[0].said:
            continue
        both = list(zip(old_prints[index:], new_prints, strict=False))
        length = _count_leading(one is not None and one.said == other.said for one, other in both)
        exact = _count_leading(one is not None and one.exact == other.exact for one, other in both)
        if length > 1 or (unique and exact):
            best = max(best, (exact, length, index))
    return best[2], best[1]


def _count_leading(same: Iterable[bool]) -> int:
    """How many are true, up to the first that is not."""
    return sum(1 for _ in takewhile(bool, same))


def _known_ending(
    old_prints: Sequence[Fingerprint | None], new_prints: Sequence[Fingerprint]
) -> int:
    """How much of a history is known, if what is known ends in it: two messages at least."""
    for end in range(len(new_prints), 1, -1):
        newest = [item.said if item else None for item in old_prints[-2:]]
        if newest == [item.said for item in new_prints[end - 2 : end]]:
            return end
    return 0


def _open_calls(messages: Iterable[Message]) -> set[str]:
    return {
        part.call_id or ""
        for message in messages
        for part in message.parts
        if isinstance(part, ToolPart) and not has_result(part)
    }


# --- whether the view shows a message as it is ---


def _join_results(bits: Sequence[PromptMessage]) -> list[PromptMessage]:
    """Results that stood in one message stand in one again."""
    joined: list[PromptMessage] = []
    for bit in bits:
        last = joined[-1] if joined else None
        if isinstance(bit, ToolMessage) and isinstance(last, ToolMessage):
            joined[-1] = ToolMessage(content=last.content + bit.content)
        else:
            joined.append(bit)
    return joined
