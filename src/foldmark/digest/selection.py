"""Selects the lines that cover most of the references likely to be needed again.

Each reference has a weight, its likelihood of being needed. A line is worth the weights of the
references it names, and more if it also explains them. Lines are chosen greedily by worth per
token, counting only references not yet covered; an outdated worth is computed again before its
line is chosen (lazy greedy). A line may belong under a head, which must then be chosen, too. The
result is an ordering: every prefix is the selection for a smaller budget.
"""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from foldmark.model.values import Frozen

from .references import WORD, WORDS_THAT_EXPLAIN

# The worth of a bare name, and the additional worth of a name that is explained.
NAMED, EXPLAINED = 1.0, 1.2
_HASH_LETTERS = frozenset("0123456789abcdefABCDEF-")
# Two words and a slash may be a path or prose: read/write.
_EITHER_OR = re.compile(r"[A-Za-z]+/[A-Za-z]+|\d+\w*/\w+")
_ROUNDING = 0.999  # a worth this close to its bound differs by rounding only


class Mention(Frozen, gc=False):
    """How often, how recently and by whom a reference was used."""

    times: int
    age: float  # characters since its last use
    by_user: bool
    in_calls: bool


class Candidate(Frozen, gc=False):
    """A line that could be shown, alone or under the candidate at index `head`."""

    text: str
    tokens: float
    names: tuple[str, ...]
    explains: bool = False
    bonus: float = 0.0  # its worth apart from names
    head: int | None = None
    bare: bool = False  # a name without a line; these have their own budget


class Budgets(Frozen, gc=False):
    """The tokens for all chosen candidates, and for bare names among them."""

    all: float
    bare: float


def weight(name: str, mention: Mention) -> float:
    """The likelihood that a reference is needed again.

    The coefficients are those of a logistic regression over recorded sessions, rounded: names
    used in calls and whole paths are used again; old names, URLs and hashes seldom are.
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
    """Whether a line has enough words beside these references to explain them."""
    return len(_words_beside(line, names)) >= WORDS_THAT_EXPLAIN


def says_more(line: str, names: Iterable[str]) -> bool:
    """Whether a line has any word beside its references, and is not just a list of names."""
    return bool(_words_beside(line, names))


def _words_beside(line: str, names: Iterable[str]) -> set[str]:
    for name in names:
        line = line.replace(name, " ")
    return set(WORD.findall(line))


class Coverage:
    """The references that are named and explained so far."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        """Start empty, with the weights of all references."""
        self._weights = weights
        self._named: set[str] = set()
        self._explained: set[str] = set()

    def add(self, names: Iterable[str], *, explained: bool) -> None:
        """Add the names of a line."""
        self._named.update(names)
        if explained:
            self._explained.update(names)

    def gain(self, candidate: Candidate, head: Candidate | None = None) -> float:
        """The worth that a candidate adds, with its head if given."""
        worth = candidate.bonus
        weights, named, explained = self._weights, self._named, self._explained
        for name in candidate.names:
            if name not in named:
                worth += NAMED * weights.get(name, 0.0)
            if candidate.explains and name not in explained:
                worth += EXPLAINED * weights.get(name, 0.0)
        return worth if head is None else worth + self._head_gain(head, candidate)

    def _head_gain(self, head: Candidate, candidate: Candidate) -> float:
        """The worth that a head adds to its candidate; names of both count once."""
        worth = head.bonus
        for name in head.names:
            twice = name in candidate.names
            if name not in self._named and not twice:
                worth += NAMED * self._weights.get(name, 0.0)
            if head.explains and name not in self._explained and not (twice and candidate.explains):
                worth += EXPLAINED * self._weights.get(name, 0.0)
        return worth


def selection_order(
    candidates: Sequence[Candidate], coverage: Coverage, budgets: Budgets, first: Iterable[int] = ()
) -> list[int]:
    """The indexes of the chosen candidates: `first`, then the most valuable ones."""
    selection = _Selection(candidates, coverage, budgets)
    for index in first:
        selection.choose(index)
    selection.fill()
    return selection.order


class _Selection:
    """The chosen candidates, best first, and the budget that is left."""

    def __init__(self, candidates: Sequence[Candidate], coverage: Coverage, total: Budgets) -> None:
        self.order: list[int] = []
        self._candidates, self._coverage = candidates, coverage
        self._left, self._left_bare = total.all, total.bare
        self._chosen: set[int] = set()
        self._bare: dict[str, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._under: dict[int, list[int]] = {}
        for index, candidate in enumerate(candidates):
            if candidate.head is not None:
                self._under.setdefault(candidate.head, []).append(index)

    def choose(self, index: int) -> None:
        """Choose a candidate, whatever its worth."""
        candidate = self._candidates[index]
        self._chosen.add(index)
        self.order.append(index)
        self._left -= candidate.tokens
        self._count_bare(candidate)
        self._coverage.add(candidate.names, explained=candidate.explains)
        if self._heap:  # candidates under this head cost less now
            for other in self._under.get(index, ()):
                heapq.heappush(self._heap, (-self._bound(other), other))

    def _count_bare(self, candidate: Candidate) -> None:
        """Deduct the cost of a standalone name, or refund names that a chosen line contains."""
        if candidate.bare:
            self._left_bare -= candidate.tokens
            self._bare[candidate.text] = candidate.tokens
            return
        for name in candidate.names:
            if tokens := self._bare.pop(name, 0.0):
                self._left += tokens
                self._left_bare += tokens

    def fill(self) -> None:
        """Choose candidates by worth per token until the budget is used."""
        every = range(len(self._candidates))
        self._heap = [(-self._bound(index), index) for index in every if index not in self._chosen]
        heapq.heapify(self._heap)
        while self._heap:
            bound, index = heapq.heappop(self._heap)
            if index in self._chosen or not self._fits(index, self._candidates[index].tokens):
                continue
            together, worth = self._offer(index)
            if worth <= 0:
                continue
            if worth < -bound * _ROUNDING and self._heap and worth < -self._heap[0][0]:
                heapq.heappush(self._heap, (-worth, index))
                continue
            for each in together:
                self.choose(each)

    def _bound(self, index: int) -> float:
        candidate = self._candidates[index]
        return self._coverage.gain(candidate) / candidate.tokens

    def _fits(self, index: int, cost: float) -> bool:
        bare = self._candidates[index].bare
        return cost <= self._left and (not bare or cost <= self._left_bare)

    def _offer(self, index: int) -> tuple[tuple[int, ...], float]:
        """A candidate, with its head if not yet chosen, and their worth per token."""
        candidate = self._candidates[index]
        if candidate.head is None or candidate.head in self._chosen:
            return (index,), self._coverage.gain(candidate) / candidate.tokens
        head = self._candidates[candidate.head]
        cost = candidate.tokens + head.tokens
        worth = self._coverage.gain(candidate, head) / cost
        return (candidate.head, index), worth if self._fits(index, cost) else 0.0


# --- candidates that match the user's focus ---

_WORTH = 2.0  # a name that may be needed again is worth about 0.1
_HALF = 20  # the rank at which a candidate is worth half
_MAX_STEMS = 100
_WORD = re.compile(r"[^\W_]{2,}")
# In scripts without spaces, each pair of letters is a stem.
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
# Words of the request itself, which do not name a subject.
_STOP_WORDS = re.compile(
    "about|above|all|and|any|are|details|everything|especially|exactly|focus|for|from|how|into"
    "|keep|look|mention|mind|most|not|note|please|preserve|remember|summari[sz]e|summary|that|the"
    "|their|them|these|this|those|what|when|where|which|with|words|you|your"
)
_ENDINGS = re.compile(r"(?<=[a-z]{4})(?:es|s|ing|ed)$")
_SHORT, _LONG = 2, 6  # letters of names such as DB, and of words that may lose their last two


def boost_focus(candidates: Sequence[Candidate], focus: str) -> list[Candidate]:
    """The candidates, with a bonus for those that match the focus."""
    stems = _stems(focus)
    if not stems:
        return list(candidates)
    pattern = re.compile("|".join(map(re.escape, stems)))
    stems_by_index = {
        index: matches
        for index, candidate in enumerate(candidates)
        if (matches := frozenset(pattern.findall(candidate.text.lower())))
    }
    frequency = Counter(stem for matches in stems_by_index.values() for stem in matches)
    rare = {stem: math.log1p(len(candidates) / times) for stem, times in frequency.items()}
    whole = sum(rare.get(stem, 0.0) for stem in stems)
    share = {  # summed in the order of the stems: floating-point sums depend on it
        index: sum(rare[stem] for stem in stems if stem in matches) / whole
        for index, matches in stems_by_index.items()
    }
    result = list(candidates)
    newest = sorted(share, key=lambda index: (-share[index], result[index].bare, -index))
    for rank, index in enumerate(newest):
        worth = _WORTH * share[index] * _HALF / (_HALF + rank)
        result[index] = replace(result[index], bonus=result[index].bonus + worth)
    return result


def _stems(focus: str) -> list[str]:
    """The stems of the words in a focus, longest first."""
    stems: dict[str, None] = {}
    for word in _WORD.findall(focus):
        if len(word) > _SHORT or word.isupper() or _UNSPACED.fullmatch(word):
            stems |= dict.fromkeys(_pieces(word.lower()))
    return sorted(list(stems)[:_MAX_STEMS], key=lambda stem: (-len(stem), stem))


def _pieces(word: str) -> list[str]:
    if _STOP_WORDS.fullmatch(word):
        return []
    if _UNSPACED.fullmatch(word):
        return [word[index : index + 2] for index in range(len(word) - 1)]
    if word.isascii() or len(word) < _LONG:
        return [_ENDINGS.sub("", word)]
    return [word[:-2]]
