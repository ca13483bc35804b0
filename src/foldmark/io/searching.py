"""Finding messages by their words, shown or folded."""

from foldmark.log import handle, part_text
from foldmark.messages import AnyPart, Message, ToolPart
from foldmark.values import Frozen, to_plain

from .engine import Engine
from .rows import SessionRow, Stored, read_messages
from .words import message_words, strings, words

_AROUND = 60  # characters on each side of what was found
_MORE = 3  # so many times more are looked at than are told, to put the best first
_LEAST = 40


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
    looked_at = max(_LEAST, most * _MORE)
    found: list[Hit] = []
    for held in _candidates(engine, row, wanted, looked_at):
        hit = _best(held, wanted, query)
        if hit is not None:
            found.append(hit)
    found.sort(key=lambda hit: (not hit.exact, -hit.place))
    return found[:most]


def _candidates(engine: Engine, row: SessionRow, wanted: list[str], most: int) -> list[Stored]:
    """Messages that may hold the words: by the index, and the newest, which are not in it yet."""
    recent = read_messages(engine, row.key, row.indexed, row.places, sized=False)
    held = [one for one in reversed(recent) if _holds(one.message, wanted)]
    matching, args = engine.matches(wanted)
    places: set[int] = set()
    for column in ("key", "doc"):
        found = engine.read(
            f"SELECT m.place FROM ({matching}) w JOIN messages m ON m.{column} = w.doc "  # noqa: S608
            "WHERE m.session = ? AND m.place < ? ORDER BY w.doc DESC LIMIT ?",
            (*args, row.key, row.indexed, most),
        )
        places |= {row[0] for row in found}
    for place in sorted(places, reverse=True)[: max(most - len(held), 0)]:
        held += read_messages(engine, row.key, place, place + 1, sized=False)
    return held[:most]


def _holds(message: Message, wanted: list[str]) -> bool:
    known = message_words(message)
    return all(any(word.startswith(begin) for word in known) for begin in wanted)


def _best(held: Stored, wanted: list[str], query: str) -> Hit | None:
    """The part of a message that holds the most of what is wanted."""
    best: tuple[tuple[bool, int], int, str] | None = None
    for offset, part in enumerate(held.message.parts):
        text = searched_text(part)
        lowered = text.lower()
        exact = query.strip().lower() in lowered
        score = (exact, sum(word in lowered for word in wanted))
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
        kind=str(part.__struct_config__.tag),
        tool=part.tool if isinstance(part, ToolPart) else None,
        snippet=_snippet(text, wanted, query),
        exact=score[0],
    )


def searched_text(part: AnyPart) -> str:
    """What is searched of a part: what it says, and what a tool was asked."""
    text = part_text(part)
    rest = "\n".join(strings(to_plain(part)))
    return text if text == rest or text.startswith("data:") else f"{text}\n{rest}"


def _snippet(text: str, wanted: list[str], query: str) -> str:
    lowered = text.lower()
    places = [lowered.find(begin) for begin in (query.strip().lower(), *wanted)]
    found = next((place for place in places if place >= 0), 0)
    start, end = max(0, found - _AROUND), found + len(query) + _AROUND
    piece = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"
