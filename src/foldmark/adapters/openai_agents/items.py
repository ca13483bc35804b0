"""A session that follows a list of Responses items, as OpenAI's Agents SDK has them.

Each item is a message of the history. Items that the view shows unaltered go back just as they
came, with their ids and encrypted thinking; where one was altered, so much around it is written
anew as the provider needs to take it. It knows nothing of the SDK itself.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from itertools import groupby

from msgspec.structs import replace

from foldmark.adapters.conversations import SharedSession
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    FilePart,
    Message,
    Tokens,
    UserInfo,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    PromptMessage,
    ToolMessage,
    UserMessage,
)
from foldmark.model.values import Json
from foldmark.session.fingerprints import gists, said, with_mark
from foldmark.session.history_mirror import HistoryMirror, MirroredMessage, number_of
from foldmark.session.session import Session
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import RESULT, Read, options, unknown_role, wire_named
from foldmark.wire.lists import as_shown
from foldmark.wire.openai_items import CUSTOM, KEY, KIND, is_answer, whole
from foldmark.wire.plain import plain_object

_CODEC = wire_named("openai-responses")
_TAG = "tag"  # of which item words of the user's side are: a view puts several into one message
# What the SDK notes beside items for itself, and never sends.
_NOTES = frozenset({"_agents_tool_description", "_agents_tool_title", "created_by"})


class ItemDialect:
    """Reads items so that each can be written back by itself."""

    key = KEY
    unique = False

    def __init__(self) -> None:
        """Begin with nothing measured."""
        self.measured: tuple[str, Tokens] | None = None  # of the answer that an item begins

    def read(self, item: Json, /) -> Read:
        """What an item says."""
        read = _CODEC.read(item)
        if read.answers:
            answer = read.answers[0]
            # Which kind it is must not depend on a call that is told elsewhere.
            answer = replace(answer, rest={**answer.rest, KIND: item["type"]})
            return replace(read, answers=(answer,))
        if _written_back(read) != [item]:
            # What the codec would write otherwise is kept whole.
            kept = Read(role="assistant", parts=(whole(item),), joins=True)
            read = kept if read.role == "assistant" else unknown_role(KEY, item)
        if read.role != "assistant":
            tag: Json = {_TAG: item_tag(item)}
            read = replace(
                read, parts=tuple(with_mark(_in_view(part), KEY, tag) for part in read.parts)
            )
        if self.measured and read.role == "assistant" and self.measured[0] == item_name(item):
            read = replace(read, tokens=self.measured[1])
        return read

    def write(self, shown: Sequence[PromptMessage], _original: Json | None, /) -> list[Json]:
        """Items that say this."""
        return _CODEC.write(tuple(shown), as_is=False)

    def prompt(self, _item: Json, /) -> None:
        """None: instructions stand beside the items, and other words of that rank among them."""
        return


class ItemsMirror(HistoryMirror[Json]):
    """One session that follows one list of items, and has all of it."""

    def __init__(self, session: Session) -> None:
        """Take the session; what it followed before is read from it."""
        self.own = ItemDialect()
        self.items: list[Json] = []
        self._ahead: list[Json] = []  # were sent to a model before the SDK told of them
        self._tagged: dict[str, Json] = {}
        version = session.info.version
        super().__init__(session, self.own)
        self._shared = SharedSession(session, self._load, version)

    def _load(self) -> None:
        super()._load()
        self._base, self._gists = 0, {}
        self.items = _items_of(self.session.export(reverted=False).messages)
        self._ahead = [item for item in self._ahead if item in self.items]
        self._tag(self.items)
        known = zip(self.items, self._items, strict=False)
        self._items = [MirroredMessage(item, held.print) for item, held in known]

    def turn(self) -> AbstractContextManager[None]:
        """Time in which nobody else writes; what others wrote before it is known then."""
        return self._shared.turn()

    def kept(self) -> list[Json]:
        """All items, also those that others have added."""
        with self._shared.lock:
            self._shared.look()
            return list(self.items)

    # --- the history ---

    def take(self, history: Sequence[Json], *, whole: bool = True) -> None:
        """Bring the session up to date with the list."""
        self._tag(history[len(self.items) :])
        super().take(history, whole=whole)
        self.items = list(history)

    def _tag(self, new: Iterable[Json]) -> None:
        self._tagged |= {item_tag(item): item for item in new if not is_answer(item)}

    def add(self, given: Iterable[object]) -> None:
        """Add items; those that were sent to a model already are there."""
        new = [plain_object(item) for item in given]
        held = [_sent(item) for item in self._ahead]
        ahead = list[Json]()
        for start in range(len(held)):
            same = _common(held[start:], new)
            if same and (same == len(new) or start + same == len(held)):
                ahead = self._ahead[start + same :]
                new = new[same:]
                break
        self._ahead = ahead
        if new:
            self._ahead = []
            self.take([*self.items, *new])

    def pop(self) -> Json | None:
        """Take back the last item; it is hidden, not lost."""
        if not self.items:
            return None
        last = self.items[-1]
        if self._ahead[-1:] == [last]:
            self._ahead.pop()
        self.take(self.items[:-1])
        return last

    def clear(self) -> None:
        """Take back all items."""
        self._ahead = []
        self.take([])

    def send(self, given: Sequence[Json]) -> bool:
        """Follow what is about to be sent to a model, if it is this list or goes on from it."""
        new = self._new(given)
        if new:
            self.take([*self.items, *new])
            self._ahead += new
        return new is not None

    def follow(self, given: Sequence[Json]) -> None:
        """Follow what is about to be sent, also where it is another list."""
        if not self.send(given):
            self.clear()
            self.send(given)

    def is_of(self, given: Sequence[Json]) -> bool:
        """Whether this is the list, or goes on from it."""
        return self._new(given) is not None

    def _new(self, given: Sequence[Json]) -> list[Json] | None:
        """What is sent beyond the list; None where something else is sent."""
        place = 0
        may_miss = _Missing(self.items)
        for number, item in enumerate(given):
            while place < len(self.items) and _sent(self.items[place]) != item:
                if not may_miss.at(place):
                    return None
                place += 1
            if place == len(self.items):
                return [plain_object(new) for new in given[number:]]
            place += 1
        return [] if all(may_miss.at(rest) for rest in range(place, len(self.items))) else None

    # --- the view ---

    def _written(self, shown: Iterable[PromptMessage]) -> list[Json]:
        written: list[Json] = []
        messages = tuple(shown)
        for place, message in enumerate(messages):
            after = messages[place + 1] if place + 1 < len(messages) else None
            match message:
                case AssistantMessage():
                    written += self._answer(
                        message, after if isinstance(after, ToolMessage) else None
                    )
                case UserMessage():
                    written += self._words_of(message)
                case ToolMessage():
                    pass  # written with its calls
        return written

    def _words_of(self, message: UserMessage) -> list[Json]:
        """The items of the user's side that a message is made of, and words beside them."""
        written: list[Json] = []
        rest = message.content
        while rest:
            item = self._tagged.get(_own(rest[0].provider_options).get(_TAG, ""))
            gist = said(self.own.read(item)) if item else []
            blocks = rest[: len(gist) or 1]
            part = UserMessage(content=blocks)
            if item and gists((part,)) == gist:
                written.append(_sent(item))
            else:
                written += _CODEC.write((part,), as_is=False)
            rest = rest[len(blocks) :]
        return written

    def _answer(self, message: AssistantMessage, tools: ToolMessage | None) -> list[Json]:
        """The items of an answer, and the results of its calls."""
        calls = [self._kept(bit) for bit in _bits(message)]
        results: list[Json] = []
        for bit in _bits(tools) if tools else ():
            kept = self._kept(bit)
            results += kept or _CODEC.write((bit,), as_is=True)
            # A shell's result, say, has a form of its own: it cannot say that it was hidden.
            calls.append([] if kept or _is_functions(bit) else None)
        items = [item for kept in calls if kept is not None for item in kept]
        if all(kept is not None for kept in calls):
            return items + results
        return _CODEC.write((message, tools) if tools else (message,), as_is=False)

    def _kept(self, bit: PromptMessage) -> list[Json] | None:
        """The item that this shows, if it shows just that."""
        number = number_of(_marks(bit))
        if number is None or number >= len(self.items):
            return None
        item = self.items[number]
        if number not in self._gists:
            self._gists[number] = said(self.own.read(item))
        return [_sent(item)] if gists((bit,)) == self._gists[number] else None


class _Missing:
    """Which items the SDK leaves out by itself: calls without results, and ids told twice."""

    def __init__(self, items: Sequence[Json]) -> None:
        self._items = items
        self._names: Counter[str] | None = None
        self._answered: set[str] = set()

    def at(self, place: int) -> bool:
        if self._names is None:  # as a rule nobody asks
            self._names = Counter(map(item_name, self._items))
            self._answered = {item["call_id"] for item in self._items if is_answer(item)}
        item = self._items[place]
        if item.get("type") == "reasoning":
            rest = (held for held in range(place + 1, len(self._items)))
            after = next((n for n in rest if self._items[n].get("type") != "reasoning"), None)
            return after is not None and self.at(after)
        call_id = item.get("call_id")
        is_open = isinstance(call_id, str) and call_id not in self._answered
        return is_open or self._names[item_name(item)] > 1


# --- items one by one ----------------------------------------------------------------------


def item_name(item: Json) -> str:
    """By what an item is known: its kind and its id, or its call's."""
    name = item.get("call_id") or item.get("id")
    return f"{item.get('type')} {name}" if name else f"{item.get('type')} {item!r}"


def item_tag(item: Json) -> str:
    """A short name for what an item says: equal items have the same."""
    text = json.dumps(item, sort_keys=True)  # a store does not keep the order of fields
    return blake2b(text.encode(), digest_size=9).hexdigest()


def _in_view(part: AnyPart) -> AnyPart:
    """A part that is shown: of files of plain text a view expects that they were told as text."""
    if isinstance(part, FilePart) and part.mime in EXPANDED:
        return replace(part, mime="application/octet-stream")
    return part


def _written_back(read: Read) -> list[Json]:
    """What the codec makes of a message that it has read."""
    kind = AssistantInfo if read.role == "assistant" else UserInfo
    message = Message(info=kind(id="msg", wire={KEY: read.rest}), parts=read.parts)
    return _CODEC.write(as_shown(message), as_is=True)


def _items_of(messages: Iterable[Message]) -> list[Json]:
    """All items that a session has followed, as they came."""
    found: dict[int, Json] = {}
    for message in messages:
        for bit in (bit for shown in as_shown(message) for bit in _bits(shown)):
            own = _marks(bit)
            number = number_of(own)
            if number is not None:
                kind = {"type": own[KIND]} if isinstance(bit, ToolMessage) else {}
                found[number] = _CODEC.write((bit,), as_is=True)[0] | kind
    return [found[number] for number in sorted(found)]


def _bits(shown: PromptMessage) -> Iterator[PromptMessage]:
    """What is shown, item by item."""
    match shown:
        case UserMessage():
            yield shown
        case ToolMessage():
            for result in shown.content:
                yield ToolMessage(content=(result,))
        case AssistantMessage():
            numbered = groupby(shown.content, lambda block: number_of(_own(block.provider_options)))
            for _, blocks in numbered:
                yield AssistantMessage(content=tuple(blocks))


def _marks(bit: PromptMessage) -> Json:
    """What is kept of the item that a bit is."""
    match bit:
        case UserMessage():
            return _own(bit.wire)
        case ToolMessage():
            return options(_own(bit.content[0].provider_options), RESULT)
        case AssistantMessage():
            return _own(bit.content[0].provider_options) if bit.content else {}


def _own(held: object) -> Json:
    return options(held, KEY)


def _is_functions(bit: PromptMessage) -> bool:
    """Whether a result is of a function or a custom tool, which may say anything."""
    return isinstance(bit, ToolMessage) and _own(bit.content[0].provider_options).get(KIND) in (
        None,
        CUSTOM,
    )


def _sent(item: Json) -> Json:
    """An item as the SDK sends it."""
    if _NOTES.isdisjoint(item):
        return item
    return {name: held for name, held in item.items() if name not in _NOTES}


def _common(ones: Sequence[Json], others: Sequence[Json]) -> int:
    """How many items two lists begin with alike."""
    count = 0
    for one, other in zip(ones, others, strict=False):
        if one != _sent(other):
            break
        count += 1
    return count
