"""Lines that refer to nothing, for history that hardly refers to anything: talk, letters, reports.

What such lines are worth is told by their words: rare ones, and those said lately, say more. All
of them together are worth less than one reference, so that they only fill the room it leaves.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from foldmark.log.log import Entry
from foldmark.tokens.counters import Counter as TokenCounter

from .passages import Passage, lines, texts
from .references import references
from .selection import Candidate

_WORD = re.compile(r"[^\W\d_]{4,}")
# Lines of code and data have few words. Where no spaces part words, a run of letters says enough.
_SHORT_WORD = re.compile(r"[^\W\d_]{3,}")
_UNSPACED = re.compile(r"[^\W\d_\x00-\u02ff]{6,}")
_WORDS_THAT_SAY = 3
_MOST_LINES = 20_000  # the newest of them
_LATELY = 20_000  # characters after which a word is worth half
_WORTH = 0.0005
_BEGINS, _ANY = 2.0, 0.2  # words that the first line of what was said is worth, and any line


def plain_passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """The lines without references of what was said and given back; requests are told anyway."""
    at = 0
    for entry in entries:
        for ordinal, source, group, text in texts(entry):
            if source not in ("said", "output"):
                continue
            for line in lines(text):
                at += len(line)
                if _says(line) and not references(line):
                    yield Passage(
                        text=line, names=(), group=group, source=source, ordinal=ordinal, at=at
                    )


def prose(
    entries: Sequence[Entry], count: TokenCounter
) -> tuple[list[tuple[Passage, Candidate]], dict[str, float]]:
    """Candidates that cover words, each with its passage, and what the words are worth."""
    newest = {passage.text: passage for passage in plain_passages(entries)}
    held = list(newest.values())[-_MOST_LINES:]
    words = [_words(passage.text) for passage in held]
    often = Counter(word for found in words for word in found)
    end = held[-1].at if held else 0
    weights: dict[str, float] = {}
    candidates: list[tuple[Passage, Candidate]] = []
    first = -1
    for passage, found in zip(held, words, strict=True):
        lately = _LATELY / (_LATELY + end - passage.at)
        for word in found:
            rare = math.log1p(len(held) / often[word])
            weights[word] = max(weights.get(word, 0.0), _WORTH * rare * lately)
        # The first line of what was said tells best what it is about.
        bonus = (_BEGINS if passage.ordinal != first else _ANY) * _WORTH * lately
        first = passage.ordinal
        tokens = count(passage.text) + 2.0
        made = Candidate(text=passage.text, tokens=tokens, names=found, bonus=bonus)
        candidates.append((passage, made))
    return candidates, weights


def _says(line: str) -> bool:
    """Whether a line has words enough to say something."""
    return len(_SHORT_WORD.findall(line)) >= _WORDS_THAT_SAY or bool(_UNSPACED.search(line))


def _words(line: str) -> tuple[str, ...]:
    """The words of a line, marked so that none is taken for a reference."""
    return tuple(dict.fromkeys(f"\0{word.lower()}" for word in _WORD.findall(line)))
