"""The view: what the model is shown of a log.

The latest pivot's marker and summary, its tail, and all that came since. Built once and then
carried on message by message: a step costs what is new. It reads the log and changes nothing.
"""

from bisect import bisect_left
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
GO_ON = "[Go on.]"
BEGINNING = "[The session begins with the assistant.]"
NOTE_TOKENS = 16  # of any of these notes, with what a message costs


class View(Frozen):
    """What a model is shown, which messages of the log that is, and what it costs."""

    messages: tuple[PromptMessage, ...]
    indexes: tuple[int, ...]
    tokens: int
    pivot: Pivot | None


class Viewer:
    """Keeps the view of a log up to date, and what a plan remembers of it."""

    def __init__(self, log: Log, policy: Policy, *, model: str = "", usable: int = 0) -> None:
        """Take the log; the model and the room it has are known only where a request is made."""
        self.log = log
        self.policy = policy
        self._rules = policy.view
        self._model = model
        self.longest = int(
            usable * (self._rules.longest_output or 0)
        )  # tokens of an output; 0: any
        self._renderer = Renderer(log, self._rules, model, self.longest)
        self._words = user_text_budget(policy, usable)
        self._pivot: Pivot | None = None
        self._cells: dict[int, Cell] = {}
        self._sequence = MessageSequence(valid=self._rules.valid)
        self._seen = len(log.changes)
        self._end = len(log)  # messages from here on have no cell yet
        self._view: View | None = None
        self.bridge_tokens = 0
        self._rebuild({})

    def view(self) -> View:
        """The view of the log as it is now."""
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
        """What the view costs now."""
        self._catch_up()
        return self._sequence.tokens

    @property
    def cells(self) -> Mapping[int, Cell]:
        """The cells of the view in their order, by their places in the log."""
        self._catch_up()
        return self._cells

    def tokens_after(self, place: int) -> int:
        """The tokens of what the view shows after a place in the log."""
        self._catch_up()
        tokens = 0
        for index in reversed(self._cells):
            if index <= place:
                break
            tokens += self._cells[index].tokens
        return tokens

    def _catch_up(self) -> None:
        """Add what is new; if older messages changed, add all again with the cells that stay."""
        log = self.log
        if self._seen == len(log.changes):
            return
        changed = dict.fromkeys(log.changes[self._seen :])
        known, self._view = self._end, None
        if log.pivot != self._pivot:
            self._rebuild({})
        elif self._may_reorder(changed) or any(index < known for index in changed):
            for index in changed:
                self._renderer.forget(index)
                self._cells.pop(index, None)
            self._rebuild(self._cells)
        else:
            for index in changed:
                if index not in log.retired_indexes:
                    self._cells[index] = self._cell(index)
                    self._sequence.add(self._cells[index])
        self._seen, self._end = len(log.changes), len(log)

    def _may_reorder(self, changed: Iterable[int]) -> bool:
        """Whether a marker may go before its tail: where old pivots are shown, a failed one too."""
        if not self._rules.old_pivots:
            return False
        entries = self.log.entries
        messages = (entries[index].message for index in changed if index in entries)
        return any(is_marker(message) or is_summary(message) for message in messages)

    def _rebuild(self, kept: Mapping[int, Cell]) -> None:
        """Put the view together; after another pivot, call ids are given out anew."""
        if self._pivot != self.log.pivot:
            self._pivot = self.log.pivot
            self._renderer = Renderer(self.log, self._rules, self._model, self.longest)
        places = view_indexes(self.log, self._rules)
        self._cells = {index: kept.get(index) or self._cell(index) for index in places}
        self._sequence = MessageSequence(valid=self._rules.valid)
        self.bridge_tokens = 0  # of the request that is repeated after a summary
        for index, cell in self._cells.items():
            self._sequence.add(cell)
            if self._words and self._pivot is not None and index == self._pivot.summary:
                repeated = self._repeated(
                    self._pivot.marker,
                    _tail_start(self.log, self._pivot),
                    self._room_for_words(self._pivot),
                    whole=self._asked_words(self._pivot) is UNSET,
                )
                self.bridge_tokens = repeated.tokens
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
        """A complete marker asks what was done; what the user said beside it goes along."""
        room, tail = 0, None
        if self._pivot is not None and entry.index == self._pivot.marker:
            room, tail = self._room_for_words(self._pivot), _tail_start(self.log, self._pivot)
        asked = self._question(entry.index, tail, room)
        beside = self._renderer.cell(entry)
        return Cell(
            index=entry.index,
            messages=asked.messages + beside.messages,
            tokens=asked.tokens + beside.tokens,
            by_assistant=False,
        )

    def _question(self, marker: int, tail: int | None, room: int) -> Cell:
        """The user's words from before a marker, if there is room for any, and its question."""
        text = carried_user_text(self.log, marker, tail, room) if room else ""
        text = f"{text}\n\n{self._rules.marker}" if text else self._rules.marker
        return _text_cell(marker, text, self.log.count(text), by_assistant=False)

    def _room_for_words(self, pivot: Pivot) -> int:
        """What the window gives them, or less where a smaller view was asked for."""
        asked = self._asked_words(pivot)
        return self._words if asked is UNSET else min(self._words, asked)

    def _asked_words(self, pivot: Pivot) -> int | UnsetType:
        part = marker_part(self.log.entries[pivot.marker].message)
        return part.words if part else UNSET

    def _repeated(self, marker: int, tail: int | None, room: int, *, whole: bool) -> Cell:
        """The request on which the first messages after the summary work, where it was folded."""
        text = repeated_request(self.log, marker, tail, room, whole=whole)
        cell = _text_cell(-1, text, self.log.count(text), by_assistant=False)
        files = repeated_files(self.log, marker, tail, room)
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
        """What the view would be after a pivot at a place, beside the text of its summary.

        `tail` are the places that stay, `words` the tokens for what the user said; `whole` as
        in `repeated_request`.
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
    """Shown messages in a row, mended where a provider would refuse them.

    Mending adds short notes rather than merging what was sent before: bytes of an earlier
    request stay as they were. Two messages of the user are merged only where none was sent
    between them.
    """

    def __init__(self, *, valid: bool) -> None:
        """Say whether to mend."""
        self._valid = valid
        self._shown: list[PromptMessage] = []
        self._assistant_between = False
        self._merged: list[Text | Media] = []  # the content that the last message will have
        self.tokens = 0

    def add(self, cell: Cell) -> None:
        """Add what a cell shows."""
        self.tokens += cell.tokens
        if cell.by_assistant:
            self._assistant_between = True
        for message in cell.messages:
            if self._valid:
                self._add_valid(message)
            else:
                self._shown.append(message)
        if cell.messages and not cell.by_assistant:
            self._assistant_between = False

    def messages(self) -> tuple[PromptMessage, ...]:
        """What has been added; an answer of thoughts alone is left out at the end."""
        self._settle()
        if self._valid and self._shown and _only_thinks(self._shown[-1]):
            return tuple(self._shown[:-1])
        return tuple(self._shown)

    def _settle(self) -> None:
        """Put what was merged into the last message; many merges cost one."""
        if self._merged:
            self._shown[-1] = UserMessage(content=tuple(self._merged))
            self._merged = []

    def _add_valid(self, message: PromptMessage) -> None:
        last = self._shown[-1] if self._shown else None
        if isinstance(message, ToolMessage) or isinstance(last, ToolMessage):
            self._shown.append(message)
            return
        if not isinstance(message, UserMessage) or self._assistant_between:
            self._settle()
        match last, message:
            case None, AssistantMessage():
                self._shown.append(UserMessage(content=(Text(text=BEGINNING),)))
                self.tokens += NOTE_TOKENS
            case UserMessage(), UserMessage() if self._assistant_between:
                self._shown.append(AssistantMessage(content=(Text(text=NO_REPLY),)))
                self.tokens += NOTE_TOKENS
            case UserMessage(), UserMessage():
                self._merged = self._merged or list(last.content)
                self._merged += message.content
                return
            case AssistantMessage(), AssistantMessage() if _only_thinks(last):
                self._shown[-1] = AssistantMessage(content=last.content + message.content)
                return
            case AssistantMessage(), AssistantMessage():
                self._shown.append(UserMessage(content=(Text(text=GO_ON),)))
                self.tokens += NOTE_TOKENS
            case AssistantMessage(), UserMessage() if _only_thinks(last):
                self._shown[-1] = AssistantMessage(content=(Text(text=NO_REPLY),))
                self.tokens += NOTE_TOKENS
            case _:
                pass
        self._shown.append(message)


def view_indexes(log: Log, rules: ViewRules) -> list[int]:
    """The places of the messages that a view shows, in its order."""
    pivot = log.pivot
    start = view_start(log, rules)
    here = [i for i in range(start, len(log)) if i in log.entries and i not in log.retired_indexes]
    if pivot is None or rules.old_pivots:
        return _reordered(log, here, rules)
    # The latest pivot's messages are shown first, those of earlier ones never.
    old = {place for pivot in log.pivots for place in (pivot.marker, pivot.summary)}
    first = bisect_left(here, pivot.marker)
    kept = (index for index in here[:first] if index not in old)
    since = (index for index in here[first:] if index not in old)
    return [pivot.marker, pivot.summary, *kept, *since]


def view_start(log: Log, rules: ViewRules) -> int:
    """The oldest place that a view shows, beside the latest pivot."""
    pivot = log.pivot
    if pivot is None:
        return 0
    tail = _tail_start(log, pivot)
    if tail is not None:
        return tail
    return 0 if pivot.tail_id and rules.dangling_tail == "everything" else pivot.marker


def _reordered(log: Log, places: list[int], rules: ViewRules) -> list[int]:
    """The newest marker with a tail goes before its tail, with all up to its summary."""
    if not rules.old_pivots:
        return places
    for index in reversed(places):
        message = log.entries[index].message
        part, name = marker_part(message), message.id
        if part is None or not part.tail_start_id or not message.is_user:
            continue
        summary = next((i for i in log.summaries if i > index and _parent(log, i) == name), None)
        tail = next((i for i in places if log.entries[i].message.id == part.tail_start_id), None)
        if summary is None or tail is None or tail >= index:
            break
        return [
            *(place for place in places if index <= place <= summary),
            *(place for place in places if tail <= place < index),
            *(place for place in places if place > summary),
        ]
    return places


def _parent(log: Log, place: int) -> str | None:
    info = log.entries[place].message.info
    return (info.parent_id or None) if isinstance(info, AssistantInfo) else None


def _tail_start(log: Log, pivot: Pivot) -> int | None:
    if pivot.tail_id is None:
        return None
    return log.index_of(pivot.tail_id, below=pivot.marker)


def _text_cell(index: int, text: str, tokens: int, *, by_assistant: bool) -> Cell:
    if not text.strip():
        return Cell(index=index, messages=(), tokens=0, by_assistant=by_assistant)
    content = (Text(text=text),)
    shown = AssistantMessage(content=content) if by_assistant else UserMessage(content=content)
    tokens += MESSAGE_OVERHEAD
    return Cell(index=index, messages=(shown,), tokens=tokens, by_assistant=by_assistant)


def _only_thinks(message: PromptMessage) -> bool:
    return isinstance(message, AssistantMessage) and all(
        isinstance(block, Reasoning) for block in message.content
    )
