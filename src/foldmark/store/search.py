"""Find messages by their words, whether the view shows them or not.

Foldmark splits the words itself, so that every engine finds the same. A query is split by the same
rule: it is data and never query syntax.
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
from .rows import SessionRow, read_messages, read_messages_at

State = Literal["shown", "pruned", "folded", "reverted"]
_MAX_WORDS = 32
_SNIPPET_MARGIN = 60  # characters on each side of a match
_CHUNK = 256
_CANDIDATE_FACTOR = 2  # candidates per requested hit, so that the best come first
# A word is letters and digits; each Chinese, Japanese or Korean character is one word.
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_MAX_WORD_LENGTH = 64
# Escape sequences that color terminal output must not stick to words.
_ESCAPE = "\x1b"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_DATA = re.compile(r"data:[\w.+-]+/[\w.+-]+[;,]")
# Ids and type names of ours and of providers, which nobody searches for.
_SKIPPED_KEYS = frozenset(
    {
        *("id", "sessionID", "messageID", "parentID", "callID", "providerID", "modelID"),
        *("type", "role", "status", "mode", "agent", "hash", "snapshot", "signature", "mime"),
        *("reasoningEncryptedContent", "itemId", "finish", "reason"),
    }
)


class SearchHit(Frozen):
    """A part that matches a query, and whether the view shows it."""

    handle: str
    message: str  # id of the message
    place: int
    kind: str  # text, tool, …
    tool: str | None
    snippet: str
    state: State = "folded"


def search(engine: Engine, row: SessionRow, query: str, limit: int) -> list[SearchHit]:
    """The parts of a session with all words of a query: exact matches first, then the newest."""
    terms = list(dict.fromkeys(words(query)))
    if not terms or limit <= 0:
        return []
    candidates = _candidates(engine, row, terms, limit * _CANDIDATE_FACTOR)
    hits = [hit for entry in candidates if (hit := _best_part(entry, terms, query)) is not None]
    hits.sort(key=lambda hit: (not hit[0], -hit[1].place))
    return [hit for _, hit in hits[:limit]]


def _candidates(engine: Engine, row: SessionRow, terms: list[str], limit: int) -> list[Entry]:
    """Messages with the words: the newest, which are not indexed yet, then indexed ones."""
    recent = list(islice(_recent(engine, row, terms), limit))
    # A query may be a whole page; the engine gets its longest words, which are the rarest.
    longest = sorted(terms, key=len, reverse=True)[:_MAX_WORDS]
    indexes = _indexed(engine, row, longest, limit - len(recent))
    entries = read_messages_at(engine, row.key, indexes)
    if len(terms) > _MAX_WORDS:
        entries = [entry for entry in entries if _has_words(entry.message, terms)]
    return recent + entries


def _recent(engine: Engine, row: SessionRow, terms: list[str]) -> Iterator[Entry]:
    """Messages that are not indexed yet and have the words, newest first."""
    for end in range(row.places, row.indexed, -_CHUNK):
        first = max(end - _CHUNK, row.indexed)
        for entry in reversed(read_messages(engine, row.key, first, end, sized=False)):
            if _has_words(entry.message, terms):
                yield entry


def _indexed(engine: Engine, row: SessionRow, terms: list[str], limit: int) -> list[int]:
    """The indexes of indexed messages with the words, newest first."""
    first, end = key_at(row.key, 0), key_at(row.key, row.indexed)
    matching, args = engine.matches(terms, first, end)
    rows = engine.read(f"SELECT doc FROM ({matching}) w ORDER BY doc DESC LIMIT ?", (*args, limit))  # noqa: S608
    return [doc - first for (doc,) in rows]


def _has_words(message: Message, terms: list[str]) -> bool:
    ordered = sorted(message_words(message))
    spots = ((bisect_left(ordered, term), term) for term in terms)
    return all(at < len(ordered) and ordered[at].startswith(term) for at, term in spots)


def _best_part(entry: Entry, terms: list[str], query: str) -> tuple[bool, SearchHit] | None:
    """The part of a message that matches the query best, and whether it matches exactly."""
    phrase = query.strip().lower()
    best: tuple[tuple[bool, int], int, str] | None = None
    for offset, part in enumerate(entry.message.parts):
        text = search_text(part)
        lowered = text.lower()
        score = (phrase in lowered, sum(word in lowered for word in terms[:_MAX_WORDS]))
        if score[1] and (best is None or score > best[0]):
            best = score, offset, text
    if best is None:
        return None
    score, offset, text = best
    part = entry.message.parts[offset]
    return score[0], SearchHit(
        handle=handle(entry.ordinal + offset),
        message=entry.message.id,
        place=entry.index,
        kind=kind_of(part),
        tool=part.tool if isinstance(part, ToolPart) else None,
        snippet=_snippet(text, terms, query),
    )


def _snippet(text: str, terms: list[str], query: str) -> str:
    lowered = text.lower()
    positions = (lowered.find(prefix) for prefix in (query.strip().lower(), *terms))
    match = next((position for position in positions if position >= 0), 0)
    start, end = max(0, match - _SNIPPET_MARGIN), match + len(query) + _SNIPPET_MARGIN
    piece = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"


# --- words ---------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    if _ESCAPE in text:
        text = _ESCAPES.sub(" ", text)
    return [word[:_MAX_WORD_LENGTH] for word in _WORD.findall(text.lower())]


def message_words(message: Message) -> set[str]:
    """The words by which a message is found: those of its parts."""
    return set(words("\n".join([search_text(part) for part in message.parts])))


def search_text(part: AnyPart) -> str:
    """The searchable text of a part; for a tool call, its output and its input."""
    if isinstance(part, TextPart | ReasoningPart):
        return part.text
    if isinstance(part, ToolPart):
        call = "\n".join(strings([part.tool, part.state.input or {}, part.state.title or ""]))
        output = part_text(part) if isinstance(part.state, Completed | Failed) else ""
        return f"{output}\n{call}"
    return "\n".join(strings(to_plain(part)))


def strings(value: Any) -> Iterator[str]:
    """The searchable strings in plain JSON."""
    match value:
        case str():
            if not is_data(value):
                yield value
        case dict():
            for key, item in cast("Json", value).items():
                if key not in _SKIPPED_KEYS:
                    yield from strings(item)
        case list():
            for item in cast("list[Any]", value):
                yield from strings(item)
        case _:
            pass


def is_data(text: str) -> bool:
    """Whether a text is a data URL, which is not searched."""
    return _DATA.match(text) is not None
