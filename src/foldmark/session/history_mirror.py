"""Mirrors the history of a framework in a session, and gives the framework a view that fits.

The framework keeps its whole history. New messages are added to the session; if the history was
shortened, the session is reverted. Messages that the view shows unchanged are returned as the
framework's own objects; only hidden outputs and summaries are new objects. A dialect does
everything that depends on the framework.
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
from foldmark.providers.background import run_uninterrupted
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
    read_content,
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
    """Converts the messages of a framework."""

    key: str  # for the data that only this dialect reads
    unique: bool  # whether no two messages are equal, because they have ids or times

    def read(self, message: M, /) -> ReadMessage:
        """The content of a message; `rest` has what `write` needs to restore it."""
        ...

    def write(self, messages: Sequence[PromptMessage], original: M | None, /) -> list[M]:
        """The framework's messages for these; `original` is the message that they come from."""
        ...

    def prompt(self, message: M, /) -> M | None:
        """The system prompt in a leading message, as a message of its own, or None."""
        ...


class MirroredMessage(NamedTuple, Generic[M]):
    """A message of the history: its object if this process had it, and its fingerprint if known."""

    message: M | None
    fingerprint: Fingerprint | None


class HistoryMirror(Generic[M]):
    """Keeps one session in step with one history."""

    def __init__(self, session: Session, dialect: MessageDialect[M]) -> None:
        """Use a session, which may have mirrored the history before."""
        self.session = session
        self._support = LoopSupport(session)
        self._dialect = dialect
        # Token usage for the next reply in the history, if the reply does not have it.
        self.measured: Tokens | None = None
        self._base = 0  # the index in `_items` at which the history starts
        self._prompts: list[M] = []
        self._contents: dict[int, object] = {}
        self._items: list[MirroredMessage[M]] = []
        self._open: set[str] = set()  # calls without a result
        self._has_root = False
        self._load()

    # --- the history into the session ---

    def take(self, history: Sequence[M], *, whole: bool = False) -> None:
        """Update the session from the history.

        A history with another beginning continues the session, unless `whole` says that it is
        complete: then the session is reverted.
        """
        prompts = self._read_prompts(history)
        common = self._common_length(history)
        if common <= prompts < len(history) and len(self._items) > self._base + prompts:
            common = self._find_start(history, prompts, whole=whole)
        if common < len(self._items) - self._base:
            common = self._go_back(common)
        self._add(history, common, prompts)

    def _common_length(self, history: Sequence[M]) -> int:
        """The number of leading messages of the history that the session has."""
        items = self._items[self._base :] if self._base else self._items
        both = min(len(items), len(history))
        if all(map(is_, history, (item.message for item in items))):
            return both
        for index in range(both):
            item = items[index]
            if item.message is history[index]:
                continue
            if (old := item.fingerprint) is not None:
                new = fingerprint_of(self._dialect.read(history[index]))
                # After equal messages, equal content is enough.
                if new.content != old.content if index else new.exact != old.exact:
                    return index
            self._items[self._base + index] = MirroredMessage(history[index], old)
        return both

    def _find_start(self, history: Sequence[M], prompts: int, *, whole: bool) -> int:
        """Find where in the session a history with another beginning starts.

        It may start later, be a sliding window, have new ids each time, or be another history.
        Returns the number of its leading messages that the session has.
        """
        new_prints = [fingerprint_of(self._dialect.read(message)) for message in history[prompts:]]
        old_prints = [item.fingerprint for item in self._items]
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
        """Start an empty session with a hidden message, as the target of a revert to nothing."""
        if not self._has_root and self._support.newest() is None:
            self.session.user([TextPart(text=_BEGINNING, ignored=True, synthetic=True)])
        self._has_root = True

    def _read_prompts(self, history: Sequence[M]) -> int:
        """The number of leading system prompts, which are in every view but not in the session."""
        self._prompts = []
        for index, message in enumerate(history):
            prompt = self._dialect.prompt(message)
            if prompt is None:
                return index
            self._prompts.append(prompt)
            if self._dialect.read(message).role != "system":
                return index  # it has more content than the prompt
        return len(history)

    def _go_back(self, common: int) -> int:
        """Revert messages that the history no longer has; returns how many it still has."""
        number, before = self._base + common, None
        for message in self.session.export(reverted=False).messages:
            numbers = [number for number, _ in marks(message, self._dialect.key)]
            if not numbers or max(numbers) < number:
                before = message.id
                continue
            if before is None:  # there is no message to revert to
                self._base = len(self._items)
                return 0
            self.session.revert(before)
            number = min(number, *numbers)  # a changed result reverts its call too
            break
        del self._items[number:]
        self._contents = {}
        self._open = _open_calls(self.session.export(reverted=False).messages)
        return number - self._base

    def _load(self) -> None:
        """Read the marks of messages that the session mirrored before."""
        messages = self.session.export(reverted=False).messages
        known = dict(mark for message in messages for mark in marks(message, self._dialect.key))
        count = max(known, default=-1) + 1
        self._items = [MirroredMessage(None, known.get(number)) for number in range(count)]
        self._open = _open_calls(messages)

    # --- the view for the framework ---

    def view(self) -> list[M]:
        """The messages to send to the model; prunes or compacts first if they do not fit."""
        if self.session.limit is None and self.session.policy.auto:
            raise BadPolicy("the context window is unknown; give window=… (tokens) or model=…")
        try:
            return self._write_view(self.session.messages())
        except CompactionStopped:
            # Stop a loop that fills the window at each step, but only if summaries cost money.
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
                content = self._contents.get(number) or read_content(self._dialect.read(original))
                visible[number] = content
                if content == content_of(group_messages):
                    output.append(original)
                    continue
            output += self._dialect.write(group_messages, original)
        self._contents = visible
        return self._with_prompts(output)

    def _numbered(self, message: PromptMessage) -> list[tuple[int | None, PromptMessage]]:
        """A message of the view, or each result in it, with its number in the history."""
        key = self._dialect.key
        if not isinstance(message, ToolMessage):
            return [(number_of(subobject(message.wire, key)), message)]
        results: list[tuple[int | None, PromptMessage]] = []
        for result in message.content:
            data = subobject(subobject(result.provider_options, key), RESULT)
            results.append((number_of(data), ToolMessage(content=(result,))))
        return results

    def _with_prompts(self, messages: list[M]) -> list[M]:
        if not self._prompts:
            return messages
        first = self._items[self._base + len(self._prompts) - 1].message
        # A message with more content than its prompt contains the prompt if it is unchanged.
        has_prompt = bool(messages) and messages[0] is first and self._prompts[-1] is not first
        return [*self._prompts[: -1 if has_prompt else None], *messages]

    # --- after a refusal ---

    def can_shrink(self, error: Exception) -> bool:
        """Whether a model refused for length, and the policy allows to shorten the view."""
        return self.session.policy.auto and is_context_overflow(error)

    def shorter_view(self, error: Exception) -> list[M]:
        """A view that is shorter than the refused one; raises `error` if there is none."""
        try:
            self.session.recover(error)
            return self.view()
        except FoldmarkError as stopped:
            raise error from stopped


async def run_abortable(
    session: Session, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Run a call in a thread; if the task is cancelled, abort the compaction in that thread."""
    task = asyncio.ensure_future(run_uninterrupted(call, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        session.abort()
        task.cancel()  # it ends with its thread
        await asyncio.wait((task,))
        raise


class _MarkingReader(Generic[M]):
    """Reads consecutive messages, and marks each with its number and fingerprint."""

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
            else:  # a result without a call becomes text
                orphans.append(orphan_text(answer, self._dialect.key))
        self._open |= {part.call_id or "" for part in read.parts if isinstance(part, ToolPart)}
        parts = (*orphans, *read.parts)
        if read.joins:  # it is merged into the message before it, which has a mark of its own
            parts = tuple(with_mark(part, self._dialect.key, data) for part in parts)
        return replace(read, parts=parts, results=tuple(answers), rest={**read.rest, **data})


def _longest_run(
    old_prints: Sequence[Fingerprint | None], new_prints: Sequence[Fingerprint], *, unique: bool
) -> tuple[int, int]:
    """The index and length of the longest run of old messages that starts the new history.

    Two equal messages in a row are no coincidence, nor is a single one with an id of its own.
    """
    best = (0, 0, 0)  # the exactly equal length, the length, the index
    for index, first in enumerate(old_prints):
        if first is None or first.content != new_prints[0].content:
            continue
        pairs = list(zip(old_prints[index:], new_prints, strict=False))
        length = _count_leading(old and old.content == new.content for old, new in pairs)
        exact = _count_leading(old and old.exact == new.exact for old, new in pairs)
        if length > 1 or (unique and exact):
            best = max(best, (exact, length, index))
    return best[2], best[1]


def _count_leading(values: Iterable[bool | None]) -> int:
    """The number of true values before the first other one."""
    return sum(1 for _ in takewhile(bool, values))


def _known_ending(old: Sequence[Fingerprint | None], new: Sequence[Fingerprint]) -> int:
    """The length of the new history up to the last two old messages, or 0 if they are not in it."""
    newest = [item.content if item else None for item in old[-2:]]
    for end in range(len(new), 1, -1):
        if newest == [item.content for item in new[end - 2 : end]]:
            return end
    return 0


def _open_calls(messages: Iterable[Message]) -> set[str]:
    return {
        part.call_id or ""
        for message in messages
        for part in message.parts
        if isinstance(part, ToolPart) and not has_result(part)
    }


def _join_results(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    """The messages, with consecutive tool results merged back into one message."""
    result: list[PromptMessage] = []
    for message in messages:
        last = result[-1] if result else None
        if isinstance(message, ToolMessage) and isinstance(last, ToolMessage):
            result[-1] = ToolMessage(content=last.content + message.content)
        else:
            result.append(message)
    return result
