"""Which lines to keep in a given room, so that most of what is likely needed again is covered.

Each reference has a weight, its likelihood of being needed. A line is worth the weights of those
it names, and more where it also says something of them. Lines are taken greedily by their worth
per token, each counted only for what those before it left uncovered; a worth that is an old bound
is looked at again before the line is taken (lazy greedy). A line may stand under a head, which
must then be there too. What comes of it is an order: its beginnings are the choices for less room.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from foldmark.model.values import Frozen

from .references import WORD, WORDS_THAT_EXPLAIN

# What a name alone is worth, and what it is worth more where it stands among words.
NAMED, EXPLAINED = 1.0, 1.2
_HASH_LETTERS = frozenset("0123456789abcdefABCDEF-")
# Two words and a slash are a path, or prose: read/write.
_EITHER_OR = re.compile(r"[A-Za-z]+/[A-Za-z]+|\d+\w*/\w+")
_SLIGHTLY = 0.999  # below its bound a worth is only rounded


class Mention(Frozen, gc=False):
    """How a reference came up: how often, how long ago, by whom."""

    times: int
    age: float  # characters since it was last there
    by_user: bool
    in_calls: bool


class Candidate(Frozen, gc=False):
    """Something that could be shown, by itself or under the head at a place in the same list."""

    text: str
    tokens: float
    names: tuple[str, ...]
    explains: bool = False
    bonus: float = 0.0  # what it is worth whatever it names
    head: int | None = None
    bare: bool = False  # a name alone, of which there must not be too many


class Rooms(Frozen, gc=False):
    """Tokens for all that is chosen, and for the bare names in it."""

    all: float
    bare: float


def weight(name: str, mention: Mention) -> float:
    """How likely a reference is needed again.

    The figures are the rounded ones of a logistic regression over recorded sessions: what was
    used in calls is used again, what is old is not, whole paths are, addresses and hashes seldom.
    """
    odds = -2.2 - 0.6 * math.log1p(mention.age / 4_000) + 0.15 * math.log(mention.times)
    odds += 0.5 * mention.by_user + 1.1 * mention.in_calls
    if "://" in name or _HASH_LETTERS.issuperset(name):
        odds -= 1.7
    elif name.startswith("--"):
        odds += 0.5
    elif name.startswith("/"):
        odds += 1.3
    elif _EITHER_OR.fullmatch(name):
        odds -= 0.5
    return 1 / (1 + math.exp(-odds))


def explains(line: str, names: Iterable[str]) -> bool:
    """Whether a line says something beside the references on it, which are these."""
    return len(_words_beside(line, names)) >= WORDS_THAT_EXPLAIN


def says_more(line: str, names: Iterable[str]) -> bool:
    """Whether a line has any word beside its references: else it is a list of names."""
    return bool(_words_beside(line, names))


def _words_beside(line: str, names: Iterable[str]) -> set[str]:
    for name in names:
        line = line.replace(name, " ")
    return set(WORD.findall(line))


class Covered:
    """What is named and explained so far."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Take the weights of all references."""
        self._weights = weights
        self._named: set[str] = set()
        self._explained: set[str] = set()

    def add(self, names: Iterable[str], *, explained: bool) -> None:
        """Note what a line names."""
        self._named.update(names)
        if explained:
            self._explained.update(names)

    def gain(self, candidate: Candidate, head: Candidate | None = None) -> float:
        """What a candidate adds to it, with its head where that comes along."""
        worth = candidate.bonus
        weights, named, explained = self._weights, self._named, self._explained
        for name in candidate.names:
            if name not in named:
                worth += NAMED * weights.get(name, 0.0)
            if candidate.explains and name not in explained:
                worth += EXPLAINED * weights.get(name, 0.0)
        return worth if head is None else worth + self._rest(head, candidate)

    def _rest(self, head: Candidate, candidate: Candidate) -> float:
        """What a head adds beside the line under it: what both name counts once."""
        worth = head.bonus
        for name in head.names:
            twice = name in candidate.names
            if name not in self._named and not twice:
                worth += NAMED * self._weights.get(name, 0.0)
            if head.explains and name not in self._explained and not (twice and candidate.explains):
                worth += EXPLAINED * self._weights.get(name, 0.0)
        return worth


def in_order(
    candidates: Sequence[Candidate], covered: Covered, rooms: Rooms, first: Iterable[int] = ()
) -> list[int]:
    """The places of the candidates that are worth most together, after those that come first."""
    choice = _Choice(candidates, covered, rooms)
    for place in first:
        choice.take(place)
    choice.fill()
    return choice.order


class _Choice:
    """What is taken so far, the best first, and the room that is left."""

    def __init__(self, candidates: Sequence[Candidate], covered: Covered, rooms: Rooms) -> None:
        self.order: list[int] = []
        self._candidates, self._covered = candidates, covered
        self._left, self._left_bare = rooms.all, rooms.bare
        self._taken: set[int] = set()
        self._bare: dict[str, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._under: dict[int, list[int]] = {}
        for place, held in enumerate(candidates):
            if held.head is not None:
                self._under.setdefault(held.head, []).append(place)

    def take(self, place: int) -> None:
        """Take a candidate, whatever it is worth."""
        held = self._candidates[place]
        self._taken.add(place)
        self.order.append(place)
        self._left -= held.tokens
        self._count_bare(held)
        self._covered.add(held.names, explained=held.explains)
        if self._heap:  # those under a head cost less now that it is there
            for other in self._under.get(place, ()):
                heapq.heappush(self._heap, (-self._bound(other), other))

    def _count_bare(self, held: Candidate) -> None:
        """Count a bare name, or give back the room of those that a line now names."""
        if held.bare:
            self._left_bare -= held.tokens
            self._bare[held.text] = held.tokens
            return
        for name in held.names:
            if tokens := self._bare.pop(name, 0.0):
                self._left += tokens
                self._left_bare += tokens

    def fill(self) -> None:
        """Take what is worth most for its tokens, until the room is full."""
        every = range(len(self._candidates))
        self._heap = [(-self._bound(place), place) for place in every if place not in self._taken]
        heapq.heapify(self._heap)
        while self._heap:
            bound, place = heapq.heappop(self._heap)
            if place in self._taken or not self._fits(place, self._candidates[place].tokens):
                continue
            together, worth = self._offer(place)
            if worth <= 0:
                continue
            if worth < -bound * _SLIGHTLY and self._heap and worth < -self._heap[0][0]:
                heapq.heappush(self._heap, (-worth, place))
                continue
            for each in together:
                self.take(each)

    def _bound(self, place: int) -> float:
        held = self._candidates[place]
        return self._covered.gain(held) / held.tokens

    def _fits(self, place: int, cost: float) -> bool:
        bare = self._candidates[place].bare
        return cost <= self._left and (not bare or cost <= self._left_bare)

    def _offer(self, place: int) -> tuple[tuple[int, ...], float]:
        """A candidate, with its head where that comes along, and what they are worth by token."""
        held = self._candidates[place]
        if held.head is None or held.head in self._taken:
            return (place,), self._covered.gain(held) / held.tokens
        head = self._candidates[held.head]
        cost = held.tokens + head.tokens
        worth = self._covered.gain(held, head) / cost
        return (held.head, place), worth if self._fits(place, cost) else 0.0


# --- Candidates about the focus that the user gave ---

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
