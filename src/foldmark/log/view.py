"""The view: the messages of a log that the model is shown.

It has the latest pivot's marker and summary, its tail, and all later messages. It is built once
and then extended by each new message. It reads the log and never changes it.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET, UnsetType

from foldmark.model.messages import AssistantInfo, is_opaque
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Media,
    PromptMessage,
    Reasoning,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.model.values import Frozen
from foldmark.policy import Policy, ViewRules
from foldmark.tokens.sizes import MESSAGE_OVERHEAD

from .carryover import (
    carried_user_text,
    file_tokens,
    repeated_files,
    repeated_request,
    user_text_budget,
)
from .log import Entry, Log, Pivot, marker_part
from .render import Cell, Renderer, is_marker, is_summary, media, message_text

NO_REPLY = "[No reply came to this.]"
CONTINUE = "[Go on.]"
BEGINNING = "[The session begins with the assistant.]"
NOTE_TOKENS = 16  # of each of these notes, including the overhead of a message


class View(Frozen):
    """The messages for a model, their indexes in the log, and their tokens."""

    messages: tuple[PromptMessage, ...]
    indexes: tuple[int, ...]
    tokens: int
    pivot: Pivot | None


class Viewer:
    """Keeps the view of a log up to date."""

    def __init__(self, log: Log, policy: Policy, *, model: str = "", usable: int = 0) -> None:
        """View a log under a policy; the model and its usable tokens are optional."""
        self.log = log
        self.policy = policy
        self._rules = policy.view
        self._model = model
        # The most tokens of an output; 0 means unlimited.
        self.longest = int(usable * (self._rules.longest_output or 0))
        self._renderer = Renderer(log, self._rules, model, self.longest)
        self._user_text = user_text_budget(policy, usable)
        self._pivot: Pivot | None = None
        self._cells: dict[int, Cell] = {}
        self._sequence = MessageSequence(valid=self._rules.valid)
        self._change_count = len(log.changes)
        self._end = len(log)  # messages from here on have no cell yet
        self._view: View | None = None
        self.repeated_tokens = 0  # of the request that is repeated after the summary
        self._rebuild({})

    def view(self) -> View:
        """The current view."""
        self._catch_up()
        if self._view is None:
            self._view = View(
                messages=self._sequence.messages(),
                indexes=tuple(self._cells),
                tokens=self._sequence.tokens,
                pivot=self._pivot,
            )
        return self._view

    @property
    def tokens(self) -> int:
        """The tokens of the current view."""
        self._catch_up()
        return self._sequence.tokens

    @property
    def cells(self) -> Mapping[int, Cell]:
        """The cells of the current view in its order, by their indexes in the log."""
        self._catch_up()
        return self._cells

    def tokens_after(self, index: int) -> int:
        """The tokens of the messages in the view after an index of the log."""
        self._catch_up()
        tokens = 0
        for other in reversed(self._cells):
            if other <= index:
                break
            tokens += self._cells[other].tokens
        return tokens

    def _catch_up(self) -> None:
        """Add new messages; if older ones changed, rebuild the view with the unchanged cells."""
        log = self.log
        if self._change_count == len(log.changes):
            return
        changed = dict.fromkeys(log.changes[self._change_count :])
        end, self._view = self._end, None
        if log.pivot != self._pivot:
            self._rebuild({})
        elif self._may_reorder(changed) or any(index < end for index in changed):
            for index in changed:
                self._renderer.forget(index)
                self._cells.pop(index, None)
            self._rebuild(self._cells)
        else:
            for index in changed:
                if index not in log.retired_indexes:
                    self._cells[index] = self._cell(index)
                    self._sequence.add(self._cells[index])
        self._change_count, self._end = len(log.changes), len(log)

    def _may_reorder(self, changed: Iterable[int]) -> bool:
        """Whether a marker may move before its tail; with old pivots, even a failed one may."""
        if not self._rules.old_pivots:
            return False
        entries = self.log.entries
        messages = (entries[index].message for index in changed if index in entries)
        return any(is_marker(message) or is_summary(message) for message in messages)

    def _rebuild(self, cells: Mapping[int, Cell]) -> None:
        """Build the view from these cells and new ones; a new pivot starts new call ids."""
        if self._pivot != self.log.pivot:
            self._pivot = self.log.pivot
            self._renderer = Renderer(self.log, self._rules, self._model, self.longest)
        indexes = view_indexes(self.log, self._rules)
        self._cells = {index: cells.get(index) or self._cell(index) for index in indexes}
        self._sequence = MessageSequence(valid=self._rules.valid)
        self.repeated_tokens = 0
        for index, cell in self._cells.items():
            self._sequence.add(cell)
            if self._user_text and self._pivot is not None and index == self._pivot.summary:
                repeated = self._repeated(
                    self._pivot.marker,
                    _tail_start(self.log, self._pivot),
                    self._budget_for(self._pivot),
                    whole=self._requested_budget(self._pivot) is UNSET,
                )
                self.repeated_tokens = repeated.tokens
                self._sequence.add(repeated)

    def _cell(self, index: int) -> Cell:
        entry = self.log.entries[index]
        if any(pivot.marker == index for pivot in self.log.pivots):
            return self._marker_cell(entry)
        if self._pivot is not None and index == self._pivot.summary:
            if self._rules.valid and any(is_opaque(part) for part in entry.message.parts):
                return self._renderer.summary(entry)
            text = message_text(entry.message)
            return _text_cell(index, text, self.log.count(text), by_assistant=True)
        return self._renderer.cell(entry)

    def _marker_cell(self, entry: Entry) -> Cell:
        """The question of a complete marker, followed by the user's own text in that message."""
        budget, tail = 0, None
        if self._pivot is not None and entry.index == self._pivot.marker:
            budget, tail = self._budget_for(self._pivot), _tail_start(self.log, self._pivot)
        question = self._question(entry.index, tail, budget)
        message = self._renderer.cell(entry)
        return Cell(
            index=entry.index,
            messages=question.messages + message.messages,
            tokens=question.tokens + message.tokens,
            by_assistant=False,
        )

    def _question(self, marker: int, tail: int | None, budget: int) -> Cell:
        """The user's text from before a marker, as far as the budget allows, and its question."""
        text = carried_user_text(self.log, marker, tail, budget) if budget else ""
        text = f"{text}\n\n{self._rules.marker}" if text else self._rules.marker
        return _text_cell(marker, text, self.log.count(text), by_assistant=False)

    def _budget_for(self, pivot: Pivot) -> int:
        """The tokens for the user's text: the window's, or less if a view size was requested."""
        requested = self._requested_budget(pivot)
        return self._user_text if requested is UNSET else min(self._user_text, requested)

    def _requested_budget(self, pivot: Pivot) -> int | UnsetType:
        part = marker_part(self.log.entries[pivot.marker].message)
        return part.words if part else UNSET

    def _repeated(self, marker: int, tail: int | None, budget: int, *, whole: bool) -> Cell:
        """The folded request that the first messages after the summary work on."""
        text = repeated_request(self.log, marker, tail, budget, whole=whole)
        cell = _text_cell(-1, text, self.log.count(text), by_assistant=False)
        files = repeated_files(self.log, marker, tail, budget)
        if not files:
            return cell
        content = (Text(text=text), *map(media, files))
        tokens = cell.tokens + sum(map(file_tokens, files))
        return Cell(
            index=-1, messages=(UserMessage(content=content),), tokens=tokens, by_assistant=False
        )

    def after_pivot(
        self, marker: int, tail: Sequence[int] = (), *, user_text: int, whole: bool = True
    ) -> "MessageSequence":
        """The view after a pivot at this index, without the text of its summary.

        `tail` has the indexes that stay, `user_text` is the budget for the user's own text, and
        `whole` is passed to `repeated_request`.
        """
        cells, start = self.cells, tail[0] if tail else None
        user_text = user_text if self._rules.user_text else 0
        sequence = MessageSequence(valid=self._rules.valid)
        sequence.add(self._question(marker, start, user_text))
        sequence.add(_text_cell(marker, "…", 0, by_assistant=True))
        if user_text:
            sequence.add(self._repeated(marker, start, user_text, whole=whole))
        for index in (*tail, *(index for index in cells if index >= marker)):
            if index in cells:
                sequence.add(cells[index])
        return sequence


class MessageSequence:
    """The messages of a view, corrected where a provider would refuse them.

    Corrections add short notes instead of merging messages, so that the bytes of earlier requests
    do not change. Two user messages are merged only if no request was sent between them.
    """

    def __init__(self, *, valid: bool) -> None:
        """Start an empty sequence; `valid` enables the corrections."""
        self._valid = valid
        self._messages: list[PromptMessage] = []
        self._assistant_between = False
        self._merged: list[Text | Media] = []  # the content for the last message
        self.tokens = 0

    def add(self, cell: Cell) -> None:
        """Add the messages of a cell."""
        self.tokens += cell.tokens
        if cell.by_assistant:
            self._assistant_between = True
        for message in cell.messages:
            if self._valid:
                self._add_valid(message)
            else:
                self._messages.append(message)
        if cell.messages and not cell.by_assistant:
            self._assistant_between = False

    def messages(self) -> tuple[PromptMessage, ...]:
        """The messages so far, without a last reply that has only reasoning."""
        self._merge()
        if self._valid and self._messages and _has_only_reasoning(self._messages[-1]):
            return tuple(self._messages[:-1])
        return tuple(self._messages)

    def _merge(self) -> None:
        """Write the merged content into the last message, once for many merges."""
        if self._merged:
            self._messages[-1] = UserMessage(content=tuple(self._merged))
            self._merged = []

    def _add_valid(self, message: PromptMessage) -> None:
        last = self._messages[-1] if self._messages else None
        if isinstance(message, ToolMessage) or isinstance(last, ToolMessage):
            self._messages.append(message)
            return
        if not isinstance(message, UserMessage) or self._assistant_between:
            self._merge()
        match last, message:
            case None, AssistantMessage():
                self._messages.append(UserMessage(content=(Text(text=BEGINNING),)))
                self.tokens += NOTE_TOKENS
            case UserMessage(), UserMessage() if self._assistant_between:
                self._messages.append(AssistantMessage(content=(Text(text=NO_REPLY),)))
                self.tokens += NOTE_TOKENS
            case UserMessage(), UserMessage():
                self._merged = self._merged or list(last.content)
                self._merged += message.content
                return
            case AssistantMessage(), AssistantMessage() if _has_only_reasoning(last):
                self._messages[-1] = AssistantMessage(content=last.content + message.content)
                return
            case AssistantMessage(), AssistantMessage():
                self._messages.append(UserMessage(content=(Text(text=CONTINUE),)))
                self.tokens += NOTE_TOKENS
            case AssistantMessage(), UserMessage() if _has_only_reasoning(last):
                self._messages[-1] = AssistantMessage(content=(Text(text=NO_REPLY),))
                self.tokens += NOTE_TOKENS
            case _:
                pass
        self._messages.append(message)


def view_indexes(log: Log, rules: ViewRules) -> list[int]:
    """The indexes of the messages in a view, in its order."""
    pivot = log.pivot
    start = view_start(log, rules)
    retired, entries = log.retired_indexes, log.entries
    indexes = [i for i in range(start, len(log)) if i in entries and i not in retired]
    if pivot is None or rules.old_pivots:
        return _reordered(log, indexes, rules)
    # The latest pivot comes first; earlier pivots are not shown.
    pivots = {index for pivot in log.pivots for index in (pivot.marker, pivot.summary)}
    return [pivot.marker, pivot.summary, *(index for index in indexes if index not in pivots)]


def view_start(log: Log, rules: ViewRules) -> int:
    """The first index of a view, beside the latest pivot."""
    pivot = log.pivot
    if pivot is None:
        return 0
    tail = _tail_start(log, pivot)
    if tail is not None:
        return tail
    return 0 if pivot.tail_id and rules.dangling_tail == "everything" else pivot.marker


def _reordered(log: Log, indexes: list[int], rules: ViewRules) -> list[int]:
    """The indexes with the newest marker that has a tail, up to its summary, before the tail."""
    if not rules.old_pivots:
        return indexes
    for index in reversed(indexes):
        message = log.entries[index].message
        part, name = marker_part(message), message.id
        if part is None or not part.tail_start_id or not message.is_user:
            continue
        summary = next((i for i in log.summaries if i > index and _parent(log, i) == name), None)
        tail = next((i for i in indexes if log.entries[i].message.id == part.tail_start_id), None)
        if summary is None or tail is None or tail >= index:
            break
        return [
            *(i for i in indexes if index <= i <= summary),
            *(i for i in indexes if tail <= i < index),
            *(i for i in indexes if i > summary),
        ]
    return indexes


def _parent(log: Log, index: int) -> str | None:
    info = log.entries[index].message.info
    return (info.parent_id or None) if isinstance(info, AssistantInfo) else None


def _tail_start(log: Log, pivot: Pivot) -> int | None:
    if pivot.tail_id is None:
        return None
    return log.index_of(pivot.tail_id, below=pivot.marker)


def _text_cell(index: int, text: str, tokens: int, *, by_assistant: bool) -> Cell:
    if not text.strip():
        return Cell(index=index, messages=(), tokens=0, by_assistant=by_assistant)
    content = (Text(text=text),)
    message = AssistantMessage(content=content) if by_assistant else UserMessage(content=content)
    tokens += MESSAGE_OVERHEAD
    return Cell(index=index, messages=(message,), tokens=tokens, by_assistant=by_assistant)


def _has_only_reasoning(message: PromptMessage) -> bool:
    return isinstance(message, AssistantMessage) and all(
        isinstance(block, Reasoning) for block in message.content
    )
