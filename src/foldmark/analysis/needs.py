"""The references that later calls need, and which of them a view still names and explains.

A reference is *needed* if the input of a call after the cut contains it, text before the cut
contained it, and nothing between the cut and the call did. It is *named* if the view contains it,
and *explained* if a line of the view has it together with three words of an original line: a bare
list of names explains nothing. No model is asked, and any view can be measured.
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
    """A reference that a later call needs, and the words beside it on each original line."""

    reference: str
    beside: tuple[frozenset[str], ...]


class Retention(Frozen):
    """How many references are needed, and how many of them a view names and explains."""

    needed: int
    named: int
    explained: int


def part_texts(part: AnyPart) -> Iterator[str]:
    """The texts of a part: its text, the values of its input, its output."""
    if isinstance(part, ToolPart):
        yield from values(part.state.input or {})
    if isinstance(part, TextPart | ReasoningPart) or has_result(part):
        yield part_text(part)


def messages_text(messages: Iterable[Message]) -> str:
    """The texts of all messages, joined."""
    return "\n".join(text for m in messages for part in m.parts for text in part_texts(part))


def needs(before: str, after: Sequence[Message], calls: int = FURTHER_CALLS) -> list[Need]:
    """The references in `before` that the next calls in `after` need."""
    needed: dict[str, None] = {}
    visible: list[str] = []
    for part in (part for message in after for part in message.parts):
        if not isinstance(part, ToolPart):
            visible += part_texts(part)
            continue
        if calls == 0:
            break
        calls -= 1
        inputs = list(values(part.state.input or {}))
        since = "\n".join(visible)
        for name in dict.fromkeys(name for text in inputs for name in references(text)):
            if name not in needed and name not in since and name in before:
                needed[name] = None
        visible = [since, *part_texts(part)]
    return [Need(reference=name, beside=tuple(_beside(before, name))) for name in needed]


def retention(needs: Iterable[Need], view: str) -> Retention:
    """How many of the needed references a view names and explains."""
    needed = named = explained = 0
    for need in needs:
        needed += 1
        if need.reference in view:
            named += 1
            explained += is_explained(need, view)
    return Retention(needed=needed, named=named, explained=explained)


def is_explained(need: Need, view: str) -> bool:
    """Whether a line of the view has the reference with words of an original line."""
    beside = set(_beside(view, need.reference))
    return any(
        len(here & there) >= WORDS_THAT_EXPLAIN
        for here in beside
        for there in need.beside
        if len(there) >= WORDS_THAT_EXPLAIN
    )


def _beside(text: str, reference: str) -> Iterator[frozenset[str]]:
    """The plain words on each line with a reference, without other references."""
    lines = dict.fromkeys(line for line in text.split("\n") if reference in line)
    return map(plain_words, lines)


def plain_words(line: str) -> frozenset[str]:
    """The words of a line that are not part of a reference."""
    for reference in dict.fromkeys(references(line)):
        line = line.replace(reference, " ")
    return frozenset(WORD.findall(line))
