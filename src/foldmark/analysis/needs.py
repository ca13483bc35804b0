"""What later calls need of a session's past, and what of it a view still names and explains.

A reference is *needed* where a call's input holds it, something before the cut had shown it, and
nothing after the cut had shown it again before that call. It is *named* where the view holds it,
and *explained* where it stands there on a line with three words of a line that had shown it: a
bare list of names explains nothing. No model is asked, and nothing is known of how a view is made.
"""

from collections.abc import Iterable, Iterator, Sequence

from foldmark.digest.references import WORD, WORDS_THAT_EXPLAIN, references, values
from foldmark.log.log import part_text
from foldmark.model.messages import (
    AnyPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    has_result,
)
from foldmark.model.values import Frozen

FURTHER_CALLS = 40


class Need(Frozen):
    """A reference that a later call needs, and the words it was shown with, line by line."""

    reference: str
    beside: tuple[frozenset[str], ...]


class Kept(Frozen):
    """How many references were needed, and how many a view names and explains."""

    needed: int
    named: int
    explained: int


def told(part: AnyPart) -> Iterator[str]:
    """The texts that a part shows: words, the values of an input, an output."""
    if isinstance(part, ToolPart):
        yield from values(part.state.input or {})
    if isinstance(part, TextPart | ReasoningPart) or has_result(part):
        yield part_text(part)


def text_of(messages: Iterable[Message]) -> str:
    """All that messages show, in one text."""
    return "\n".join(text for message in messages for part in message.parts for text in told(part))


def needs(before: str, after: Sequence[Message], calls: int = FURTHER_CALLS) -> list[Need]:
    """What the next calls need of a past that showed this text."""
    found: dict[str, None] = {}
    shown: list[str] = []
    for part in (part for message in after for part in message.parts):
        if not isinstance(part, ToolPart):
            shown += told(part)
            continue
        if calls == 0:
            break
        calls -= 1
        given = list(values(part.state.input or {}))
        since = "\n".join(shown)
        for name in dict.fromkeys(name for text in given for name in references(text)):
            if name not in found and name not in since and name in before:
                found[name] = None
        shown = [since, *told(part)]
    return [Need(reference=name, beside=tuple(_beside(before, name))) for name in found]


def kept(wanted: Iterable[Need], view: str) -> Kept:
    """What of the needed a view still names and explains."""
    needed = named = explained = 0
    for need in wanted:
        needed += 1
        if need.reference in view:
            named += 1
            explained += is_explained(need, view)
    return Kept(needed=needed, named=named, explained=explained)


def is_explained(need: Need, view: str) -> bool:
    """Whether a line of the view has the reference, and words of a line that had shown it."""
    beside = set(_beside(view, need.reference))
    return any(
        len(here & there) >= WORDS_THAT_EXPLAIN
        for here in beside
        for there in need.beside
        if len(there) >= WORDS_THAT_EXPLAIN
    )


def _beside(text: str, reference: str) -> Iterator[frozenset[str]]:
    """The plain words on each line with a reference: other references are no explanation."""
    lines = dict.fromkeys(line for line in text.split("\n") if reference in line)
    return map(plain_words, lines)


def plain_words(line: str) -> frozenset[str]:
    """The words of a line that are no part of a reference."""
    for reference in dict.fromkeys(references(line)):
        line = line.replace(reference, " ")
    return frozenset(WORD.findall(line))
