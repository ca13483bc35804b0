"""Which lines to keep in a given room, so that most of what is likely needed again is covered.

Each reference has a weight, its likelihood of being needed. A line is worth the weights of those
it names, and more where it also says something of them. Lines are taken greedily by their worth
per token, each counted only for what those before it left uncovered; a worth that is an old bound
is looked at again before the line is taken (lazy greedy). A line may stand under a head, which
must then be there too.
"""

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from .needs import WORDS_THAT_EXPLAIN, plain_words
from .values import Frozen

# What a name alone is worth, and what it is worth more where it stands among words.
NAMED, EXPLAINED = 1.0, 1.6
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


def explains(line: str) -> bool:
    """Whether a line says something beside the references on it."""
    return len(plain_words(line)) >= WORDS_THAT_EXPLAIN


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


def chosen(candidates: Sequence[Candidate], covered: Covered, room: float) -> set[int]:
    """The places of the candidates that are worth most together, within the room."""
    under: dict[int, list[int]] = {}
    for place, held in enumerate(candidates):
        if held.head is not None:
            under.setdefault(held.head, []).append(place)
    heap = [(-covered.gain(held) / held.tokens, place) for place, held in enumerate(candidates)]
    heapq.heapify(heap)
    taken: set[int] = set()
    while heap:
        bound, place = heapq.heappop(heap)
        if place in taken or candidates[place].tokens > room:
            continue
        together = _with_head(candidates, place, taken)
        cost = sum(candidates[each].tokens for each in together)
        head = candidates[together[0]] if len(together) > 1 else None
        worth = covered.gain(candidates[place], head) / cost
        if worth <= 0 or cost > room:
            continue
        if worth < -bound * _SLIGHTLY and heap and worth < -heap[0][0]:
            heapq.heappush(heap, (-worth, place))
            continue
        room -= cost
        for each in together:
            taken.add(each)
            covered.add(candidates[each].names, explained=candidates[each].explains)
            # Those under a head cost less now that it is there.
            for other in under.pop(each, ()):
                again = candidates[other]
                heapq.heappush(heap, (-covered.gain(again) / again.tokens, other))
    return taken


def _with_head(
    candidates: Sequence[Candidate], place: int, taken: set[int]
) -> tuple[int] | tuple[int, int]:
    head = candidates[place].head
    return (place,) if head is None or head in taken else (head, place)
