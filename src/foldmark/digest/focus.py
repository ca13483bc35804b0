"""What a summary shall look at most, in the user's words: which of its candidates are about that.

A candidate is about it where it holds words of the wish, rare ones before common ones. Of many
such candidates each is worth a little less than the one before, so that the rest is not forgotten
for them. Words are looked for inside of names, too: "sluice" is in `sluice_gate.py`.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from .selection import Candidate

_WORTH = 2.0  # against about 0.1 for a name that may come again
_HALF = 20  # candidates after which one more is worth half
_MOST_STEMS = 100
_WORD = re.compile(r"[^\W_]{2,}")
# Where no spaces part words, each two letters are looked for.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
# Words of the asking itself, which say nothing of what it is about.
_ASKING = re.compile(
    "about|above|all|and|any|are|details|everything|especially|exactly|focus|for|from|how|into"
    "|keep|look|mention|mind|most|not|note|please|preserve|remember|summari[sz]e|summary|that|the"
    "|their|them|these|this|those|what|when|where|which|with|words|you|your"
)
_ENDINGS = re.compile(r"(?<=[a-z]{4})(?:es|s|ing|ed)$")
_SHORT, _LONG = 2, 6  # letters: of names such as DB, and of words that may lose two at their end


def focused(candidates: Sequence[Candidate], focus: str) -> list[Candidate]:
    """The same candidates, those worth more that are about the focus."""
    stems = _stems(focus)
    if not stems:
        return list(candidates)
    wanted = re.compile("|".join(map(re.escape, stems)))
    found = {
        place: held
        for place, candidate in enumerate(candidates)
        if (held := frozenset(wanted.findall(candidate.text.lower())))
    }
    often = Counter(stem for held in found.values() for stem in held)
    rare = {stem: math.log1p(len(candidates) / times) for stem, times in often.items()}
    whole = sum(rare.get(stem, 0.0) for stem in stems)
    share = {  # in the order of the stems, as sums of fractions depend on it
        place: sum(rare[stem] for stem in stems if stem in held) / whole
        for place, held in found.items()
    }
    made = list(candidates)
    newest = sorted(share, key=lambda place: (-share[place], made[place].bare, -place))
    for rank, place in enumerate(newest):
        worth = _WORTH * share[place] * _HALF / (_HALF + rank)
        made[place] = replace(made[place], bonus=made[place].bonus + worth)
    return made


def _stems(focus: str) -> list[str]:
    """The pieces of words that tell what it is about, the longest first."""
    found: dict[str, None] = {}
    for word in _WORD.findall(focus):
        if len(word) > _SHORT or word.isupper() or _UNSPACED.fullmatch(word):
            found |= dict.fromkeys(_pieces(word.lower()))
    return sorted(list(found)[:_MOST_STEMS], key=lambda stem: (-len(stem), stem))


def _pieces(word: str) -> list[str]:
    if _ASKING.fullmatch(word):
        return []
    if _UNSPACED.fullmatch(word):
        return [word[place : place + 2] for place in range(len(word) - 1)]
    if word.isascii() or len(word) < _LONG:
        return [_ENDINGS.sub("", word)]
    return [word[:-2]]
