"""Finding messages by their words, shown or folded."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from foldmark.log.log import handle
from foldmark.model.messages import Message, ToolPart, kind_of
from foldmark.model.values import Frozen

from .engine import Engine
from .rows import SessionRow, Stored, read_messages, read_places
from .schema import key_at
from .search_terms import message_words, searched_text, words

_MOST_WORDS = 32
_AROUND = 60  # characters on each side of what was found
_CHUNK = 256
_MORE = 2  # so many times more are looked at than are told, to put the best first


class Hit(Frozen):
    """A part that holds what was searched for."""

    handle: str
    message: str  # its id
    place: int
    kind: str  # text, tool, …
    tool: str | None
    snippet: str
    exact: bool  # the words stand in it as they were given


def search(engine: Engine, row: SessionRow, query: str, most: int) -> list[Hit]:
    """The parts of a session that hold all words of a query; exact ones first, then the newest."""
    wanted = list(dict.fromkeys(words(query)))
    if not wanted or most <= 0:
        return []
    found: list[Hit] = []
    for held in _candidates(engine, row, wanted, most * _MORE):
        hit = _best(held, wanted, query)
        if hit is not None:
            found.append(hit)
    found.sort(key=lambda hit: (not hit.exact, -hit.place))
    return found[:most]


def _candidates(engine: Engine, row: SessionRow, wanted: list[str], most: int) -> list[Stored]:
    """Messages that may hold the words: by the index, and the newest, which are not in it yet."""
    held = list(islice(_recent(engine, row, wanted), most))
    # A whole page may be searched for; an engine is asked for its most telling words.
    telling = sorted(wanted, key=len, reverse=True)[:_MOST_WORDS]
    places = _indexed(engine, row, telling, most - len(held))
    found = read_places(engine, row.key, places)
    if len(wanted) > _MOST_WORDS:
        found = [one for one in found if _holds(one.message, wanted)]
    return held + found


def _recent(engine: Engine, row: SessionRow, wanted: list[str]) -> Iterator[Stored]:
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


def _best(held: Stored, wanted: list[str], query: str) -> Hit | None:
    """The part of a message that holds the most of what is wanted."""
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
    return Hit(
        handle=handle(held.ordinal + offset),
        message=held.message.id,
        place=held.place,
        kind=kind_of(part),
        tool=part.tool if isinstance(part, ToolPart) else None,
        snippet=_snippet(text, wanted, query),
        exact=score[0],
    )


def _snippet(text: str, wanted: list[str], query: str) -> str:
    lowered = text.lower()
    places = (lowered.find(begin) for begin in (query.strip().lower(), *wanted))
    found = next((place for place in places if place >= 0), 0)
    start, end = max(0, found - _AROUND), found + len(query) + _AROUND
    piece = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"
