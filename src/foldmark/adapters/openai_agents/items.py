"""Mirrors a list of Responses items, as in OpenAI's Agents SDK, in a session.

Each item is a message of the history. Items that the view leaves unchanged are sent as received,
with their ids and encrypted reasoning. Around a changed item, as many neighbors are rewritten as
the provider requires. This module does not know the SDK.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import blake2b
from itertools import chain, groupby

from msgspec.structs import replace

from foldmark.adapters.conversations import SharedSession
from foldmark.model.messages import AnyPart, AssistantInfo, FilePart, Message, Tokens, UserInfo
from foldmark.model.prompt_messages import AssistantMessage, PromptMessage, ToolMessage, UserMessage
from foldmark.model.values import Json
from foldmark.session.fingerprints import content_of, read_content, with_mark
from foldmark.session.history_mirror import HistoryMirror, MirroredMessage, number_of
from foldmark.session.session import Session
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import RESULT, ReadMessage, codec_named, read_unknown_role, subobject
from foldmark.wire.lists import to_prompt
from foldmark.wire.openai_items import CUSTOM, KEY, KIND, is_result, opaque_item
from foldmark.wire.plain import plain_object

_CODEC = codec_named("openai-responses")
_TAG = "tag"  # names the item of a user part: a view may merge several items
# The SDK's own notes on items, which it never sends.
_NOTES = frozenset({"_agents_tool_description", "_agents_tool_title", "created_by"})


class ItemDialect:
    """Reads items so that each can be written back on its own."""

    key = KEY
    unique = False

    def __init__(self) -> None:
        """Start without usage."""
        self.measured: tuple[str, Tokens] | None = None  # for the response that this item starts

    def read(self, item: Json, /) -> ReadMessage:
        """The content of an item."""
        content = _CODEC.read(item)
        if content.results:
            result = content.results[0]
            # Its kind must not depend on the call, which is another item.
            result = replace(result, rest={**result.rest, KIND: item["type"]})
            return replace(content, results=(result,))
        if _round_trip(content) != [item]:
            # The codec would write it differently: store it whole.
            opaque = ReadMessage(role="assistant", parts=(opaque_item(item),), joins=True)
            content = opaque if content.role == "assistant" else read_unknown_role(KEY, item)
        if content.role != "assistant":
            tag: Json = {_TAG: item_tag(item)}
            parts = (with_mark(_in_view(part), KEY, tag) for part in content.parts)
            content = replace(content, parts=tuple(parts))
        if self.measured and content.role == "assistant" and self.measured[0] == item_name(item):
            content = replace(content, tokens=self.measured[1])
        return content

    def write(self, messages: Sequence[PromptMessage], _original: Json | None, /) -> list[Json]:
        """Items with this content."""
        return _CODEC.write(tuple(messages), as_is=False)

    def prompt(self, _item: Json, /) -> None:
        """Return None: instructions are not items, and system items are part of the history."""
        return


class ItemsMirror(HistoryMirror[Json]):
    """Mirrors one complete list of items in one session."""

    def __init__(self, session: Session) -> None:
        """Load the items that this session has mirrored before."""
        self.own = ItemDialect()
        self.items: list[Json] = []
        self._unconfirmed: list[Json] = []  # sent to a model, but not added by the SDK yet
        self._items_by_tag: dict[str, Json] = {}
        version = session.info.version
        super().__init__(session, self.own)
        self._shared = SharedSession(session, self._load, version)

    def _load(self) -> None:
        super()._load()
        self._base, self._contents = 0, {}
        self.items = _items_of(self.session.export(reverted=False).messages)
        self._unconfirmed = [item for item in self._unconfirmed if item in self.items]
        self._tag(self.items)
        pairs = zip(self.items, self._items, strict=False)
        self._items = [MirroredMessage(item, entry.fingerprint) for item, entry in pairs]

    def turn(self) -> AbstractContextManager[None]:
        """Hold the lease so that nobody else writes; starts by loading their changes."""
        return self._shared.turn()

    def all_items(self) -> list[Json]:
        """All items, including those that others have added."""
        with self._shared.lock:
            self._shared.refresh()
            return list(self.items)

    # --- the history ---

    def take(self, history: Sequence[Json], *, whole: bool = True) -> None:
        """Bring the session up to date with the list."""
        self._tag(history[len(self.items) :])
        super().take(history, whole=whole)
        self.items = list(history)

    def _tag(self, new: Iterable[Json]) -> None:
        self._items_by_tag |= {item_tag(item): item for item in new if not is_result(item)}

    def add(self, items: Iterable[object]) -> None:
        """Add items, except those that were stored when they were sent to a model."""
        new = [plain_object(item) for item in items]
        waiting = [_without_notes(item) for item in self._unconfirmed]
        unconfirmed = list[Json]()
        for start in range(len(waiting)):
            same = _common_prefix(waiting[start:], new)
            if same and (same == len(new) or start + same == len(waiting)):
                unconfirmed = self._unconfirmed[start + same :]
                new = new[same:]
                break
        self._unconfirmed = unconfirmed
        if new:
            self._unconfirmed = []
            self.take([*self.items, *new])

    def pop(self) -> Json | None:
        """Revert the last item and return it; it is hidden, not lost."""
        if not self.items:
            return None
        last = self.items[-1]
        if self._unconfirmed[-1:] == [last]:
            self._unconfirmed.pop()
        self.take(self.items[:-1])
        return last

    def clear(self) -> None:
        """Revert all items."""
        self._unconfirmed = []
        self.take([])

    def try_follow(self, items: Sequence[Json]) -> bool:
        """Store items that are about to be sent, if they are this list or continue it."""
        new = self._new_items(items)
        if new:
            self.take([*self.items, *new])
            self._unconfirmed += new
        return new is not None

    def follow(self, items: Sequence[Json]) -> None:
        """Store items that are about to be sent, even if they are another list."""
        if not self.try_follow(items):
            self.clear()
            self.try_follow(items)

    def is_continued_by(self, items: Sequence[Json]) -> bool:
        """Whether these items are this list or continue it."""
        return self._new_items(items) is not None

    def _new_items(self, items: Sequence[Json]) -> list[Json] | None:
        """The items beyond this list; None if the items are not a continuation."""
        index = 0
        omissions = _Omissions(self.items)
        for number, item in enumerate(items):
            while index < len(self.items) and _without_notes(self.items[index]) != item:
                if not omissions.may_omit(index):
                    return None
                index += 1
            if index == len(self.items):
                return [plain_object(new) for new in items[number:]]
            index += 1
        return [] if all(map(omissions.may_omit, range(index, len(self.items)))) else None

    # --- the view ---

    def _write_view(self, messages: Iterable[PromptMessage]) -> list[Json]:
        result: list[Json] = []
        visible = tuple(messages)
        for index, message in enumerate(visible):
            after = visible[index + 1] if index + 1 < len(visible) else None
            match message:
                case AssistantMessage():
                    results = after if isinstance(after, ToolMessage) else None
                    result += self._response_items(message, results)
                case UserMessage():
                    result += self._user_items(message)
                case ToolMessage():
                    pass  # written together with its calls
        return result

    def _user_items(self, message: UserMessage) -> list[Json]:
        """The items that a user message consists of, and new ones for other content."""
        result: list[Json] = []
        rest = message.content
        while rest:
            item = self._items_by_tag.get(_own(rest[0].provider_options).get(_TAG, ""))
            content = read_content(self.own.read(item)) if item else []
            blocks = rest[: len(content) or 1]
            part = UserMessage(content=blocks)
            if item and content_of((part,)) == content:
                result.append(_without_notes(item))
            else:
                result += _CODEC.write((part,), as_is=False)
            rest = rest[len(blocks) :]
        return result

    def _response_items(self, message: AssistantMessage, tools: ToolMessage | None) -> list[Json]:
        """The items of a response, and the results of its calls."""
        calls = [self._unchanged_item(piece) for piece in _pieces(message)]
        results: list[Json] = []
        for piece in _pieces(tools) if tools else ():
            original = self._unchanged_item(piece)
            results += original or _CODEC.write((piece,), as_is=True)
            # Results of built-in tools such as the shell cannot hold a placeholder.
            calls.append([] if original or _is_free_text(piece) else None)
        items = [item for original in calls if original is not None for item in original]
        if all(original is not None for original in calls):
            return items + results
        return _CODEC.write((message, tools) if tools else (message,), as_is=False)

    def _unchanged_item(self, piece: PromptMessage) -> list[Json] | None:
        """The original item of a piece, unless the view changed it."""
        number = number_of(_marks(piece))
        if number is None or number >= len(self.items):
            return None
        item = self.items[number]
        if number not in self._contents:
            self._contents[number] = read_content(self.own.read(item))
        return [_without_notes(item)] if content_of((piece,)) == self._contents[number] else None


class _Omissions:
    """Items that the SDK itself omits: calls without results, and repeated ids."""

    def __init__(self, items: Sequence[Json]) -> None:
        self._items = items
        self._names: Counter[str] | None = None
        self._result_ids: set[str] = set()

    def may_omit(self, index: int) -> bool:
        if self._names is None:  # computed only if needed
            self._names = Counter(map(item_name, self._items))
            self._result_ids = {item["call_id"] for item in self._items if is_result(item)}
        item = self._items[index]
        if item.get("type") == "reasoning":
            later = range(index + 1, len(self._items))
            after = next((n for n in later if self._items[n].get("type") != "reasoning"), None)
            return after is not None and self.may_omit(after)
        call_id = item.get("call_id")
        is_open = isinstance(call_id, str) and call_id not in self._result_ids
        return is_open or self._names[item_name(item)] > 1


# --- single items --------------------------------------------------------------------------


def item_name(item: Json) -> str:
    """A name that identifies an item: its kind, and its id or that of its call."""
    name = item.get("call_id") or item.get("id")
    return f"{item.get('type')} {name}" if name else f"{item.get('type')} {item!r}"


def item_tag(item: Json) -> str:
    """A hash of an item's content."""
    text = json.dumps(item, sort_keys=True)  # a store does not preserve the order of fields
    return blake2b(text.encode(), digest_size=9).hexdigest()


def _in_view(part: AnyPart) -> AnyPart:
    """A part that a view shows: it would omit text files, whose text it expects elsewhere."""
    if isinstance(part, FilePart) and part.mime in EXPANDED:
        return replace(part, mime="application/octet-stream")
    return part


def _round_trip(content: ReadMessage) -> list[Json]:
    """The items that the codec writes for content that it has read."""
    kind = AssistantInfo if content.role == "assistant" else UserInfo
    message = Message(info=kind(id="msg", wire={KEY: content.rest}), parts=content.parts)
    return _CODEC.write(to_prompt(message), as_is=True)


def _items_of(messages: Iterable[Message]) -> list[Json]:
    """All items that a session has mirrored, as they were received."""
    items: dict[int, Json] = {}
    for message in messages:
        for piece in chain.from_iterable(map(_pieces, to_prompt(message))):
            own = _marks(piece)
            number = number_of(own)
            if number is not None:
                kind = {"type": own[KIND]} if isinstance(piece, ToolMessage) else {}
                items[number] = _CODEC.write((piece,), as_is=True)[0] | kind
    return [items[number] for number in sorted(items)]


def _pieces(message: PromptMessage) -> Iterator[PromptMessage]:
    """Split a message into one piece per item."""
    match message:
        case UserMessage():
            yield message
        case ToolMessage():
            for result in message.content:
                yield ToolMessage(content=(result,))
        case AssistantMessage():
            blocks = message.content
            for _, group in groupby(blocks, lambda block: number_of(_own(block.provider_options))):
                yield AssistantMessage(content=tuple(group))


def _marks(piece: PromptMessage) -> Json:
    """The metadata of the item of a piece."""
    match piece:
        case UserMessage():
            return _own(piece.wire)
        case ToolMessage():
            return subobject(_own(piece.content[0].provider_options), RESULT)
        case AssistantMessage():
            return _own(piece.content[0].provider_options) if piece.content else {}


def _own(metadata: object) -> Json:
    return subobject(metadata, KEY)


def _is_free_text(piece: PromptMessage) -> bool:
    """Whether a result is of a function or custom tool, which may have any text."""
    if not isinstance(piece, ToolMessage):
        return False
    return _own(piece.content[0].provider_options).get(KIND) in (None, CUSTOM)


def _without_notes(item: Json) -> Json:
    """An item without the SDK's own notes, as it is sent."""
    if _NOTES.isdisjoint(item):
        return item
    return {name: value for name, value in item.items() if name not in _NOTES}


def _common_prefix(ones: Sequence[Json], others: Sequence[Json]) -> int:
    """The number of equal items at the start of two lists."""
    count = 0
    for one, other in zip(ones, others, strict=False):
        if one != _without_notes(other):
            break
        count += 1
    return count
