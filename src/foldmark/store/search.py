"""Finding messages by their words, shown or folded.

Words are split by us, so that they are the same on every engine. What is searched for is split by
the same rule: it is data, and never a query's syntax.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal, cast

from foldmark.log.log import Entry, handle, part_text
from foldmark.model.messages import (
    AnyPart,
    Completed,
    Failed,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    kind_of,
)
from foldmark.model.values import Frozen, Json, to_plain

from .encoding import key_at
from .engine import Engine
from .rows import SessionRow, read_messages, read_places

State = Literal["shown", "pruned", "folded", "reverted"]
_MOST_WORDS = 32
_AROUND = 60  # characters on each side of what was found
_CHUNK = 256
_MORE = 2  # so many times more are looked at than are told, to put the best first
# A word is letters and digits; of Chinese, Japanese and Korean, each character is one.
_SIGNS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_SIGNS}]|[^\W_{_SIGNS}]+")
_LONGEST = 64
# What colours a terminal's output is no word, and must not stick to one.
_ESCAPE = "\x1b"
_STEERING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DATA = re.compile(r"data:[\w.+-]+/[\w.+-]+[;,]")
# Names and figures of ours and of providers, by which nobody looks for a message.
_NOT_WORDS = frozenset(
    {
        *("id", "sessionID", "messageID", "parentID", "callID", "providerID", "modelID"),
        *("type", "role", "status", "mode", "agent", "hash", "snapshot", "signature", "mime"),
        *("reasoningEncryptedContent", "itemId", "finish", "reason"),
    }
)


class Found(Frozen):
    """A part that holds what was searched for, and whether the model is shown it now."""

    handle: str
    message: str  # its id
    place: int
    kind: str  # text, tool, …
    tool: str | None
    snippet: str
    state: State = "folded"


def search(engine: Engine, row: SessionRow, query: str, most: int) -> list[Found]:
    """The parts of a session that hold all words of a query; exact ones first, then the newest."""
    wanted = list(dict.fromkeys(words(query)))
    if not wanted or most <= 0:
        return []
    candidates = _candidates(engine, row, wanted, most * _MORE)
    hits = [hit for held in candidates if (hit := _best(held, wanted, query)) is not None]
    hits.sort(key=lambda hit: (not hit[0], -hit[1].place))
    return [found for _, found in hits[:most]]


def _candidates(engine: Engine, row: SessionRow, wanted: list[str], most: int) -> list[Entry]:
    """Messages that may hold the words: by the index, and the newest, which are not in it yet."""
    held = list(islice(_recent(engine, row, wanted), most))
    # A whole page may be searched for; an engine is asked for its most telling words.
    telling = sorted(wanted, key=len, reverse=True)[:_MOST_WORDS]
    places = _indexed(engine, row, telling, most - len(held))
    found = read_places(engine, row.key, places)
    if len(wanted) > _MOST_WORDS:
        found = [one for one in found if _holds(one.message, wanted)]
    return held + found


def _recent(engine: Engine, row: SessionRow, wanted: list[str]) -> Iterator[Entry]:
    """Messages that are not in the index yet and hold the words, the newest first."""
    for end in range(row.places, row.indexed, -_CHUNK):
        first = max(end - _CHUNK, row.indexed)
        for held in reversed(read_messages(engine, row.key, first, end, sized=False)):
            if _holds(held.message, wanted):
                yield held


def _indexed(engine: Engine, row: SessionRow, wanted: list[str], most: int) -> list[int]:
    """The places of indexed messages that hold the words, the newest first."""
    first, end = key_at(row.key, 0), key_at(row.key, row.indexed)
    matching, args = engine.matches(wanted, first, end)
    rows = engine.read(f"SELECT doc FROM ({matching}) w ORDER BY doc DESC LIMIT ?", (*args, most))  # noqa: S608
    return [doc - first for (doc,) in rows]


def _holds(message: Message, wanted: list[str]) -> bool:
    known = sorted(message_words(message))
    places = ((bisect_left(known, begin), begin) for begin in wanted)
    return all(place < len(known) and known[place].startswith(begin) for place, begin in places)


def _best(held: Entry, wanted: list[str], query: str) -> tuple[bool, Found] | None:
    """The part of a message that holds the most of what is wanted; whether as it was given."""
    exactly = query.strip().lower()
    best: tuple[tuple[bool, int], int, str] | None = None
    for offset, part in enumerate(held.message.parts):
        text = searched_text(part)
        lowered = text.lower()
        score = (exactly in lowered, sum(word in lowered for word in wanted[:_MOST_WORDS]))
        if score[1] and (best is None or score > best[0]):
            best = score, offset, text
    if best is None:
        return None
    score, offset, text = best
    part = held.message.parts[offset]
    return score[0], Found(
        handle=handle(held.ordinal + offset),
        message=held.message.id,
        place=held.index,
        kind=kind_of(part),
        tool=part.tool if isinstance(part, ToolPart) else None,
        snippet=_snippet(text, wanted, query),
    )


def _snippet(text: str, wanted: list[str], query: str) -> str:
    lowered = text.lower()
    places = (lowered.find(begin) for begin in (query.strip().lower(), *wanted))
    found = next((place for place in places if place >= 0), 0)
    start, end = max(0, found - _AROUND), found + len(query) + _AROUND
    piece = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"


# --- words ---------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    if _ESCAPE in text:
        text = _STEERING.sub(" ", text)
    return [word[:_LONGEST] for word in _WORD.findall(text.lower())]


def message_words(message: Message) -> set[str]:
    """All words by which a message can be found: those of its parts, which are what is found."""
    return set(words("\n".join([searched_text(part) for part in message.parts])))


def searched_text(part: AnyPart) -> str:
    """What is searched of a part: what it says, and what a tool was asked."""
    if isinstance(part, TextPart | ReasoningPart):
        return part.text
    if isinstance(part, ToolPart):
        asked = "\n".join(strings([part.tool, part.state.input or {}, part.state.title or ""]))
        given = part_text(part) if isinstance(part.state, Completed | Failed) else ""
        return f"{given}\n{asked}"
    return "\n".join(strings(to_plain(part)))


def strings(value: Any) -> Iterator[str]:
    """The texts in plain JSON that a person or a model might look for."""
    match value:
        case str():
            if not is_data(value):
                yield value
        case dict():
            for key, item in cast("Json", value).items():
                if key not in _NOT_WORDS:
                    yield from strings(item)
        case list():
            for item in cast("list[Any]", value):
                yield from strings(item)
        case _:
            pass


def is_data(text: str) -> bool:
    """Whether a text is a file as a data URL, in which nobody looks for words."""
    return _DATA.match(text) is not None
