"""Chance that keeps its promises: what is rare does come up, and no more often than it should.

Nothing here draws from anything but the generator it is given, or knows what is drawn for.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")

_LARGE_ONE_IN = 90


class Deck(Generic[T]):
    """Cards drawn without putting them back, and shuffled anew when none is left."""

    def __init__(self, rng: Random, cards: Mapping[T, int]) -> None:
        """Take how often each card is in the deck."""
        self._rng = rng
        self._cards = [card for card, count in cards.items() for _ in range(count)]
        self._left: list[T] = []

    def draw(self) -> T:
        """The next card."""
        if not self._left:
            self._left = self._rng.sample(self._cards, len(self._cards))
        return self._left.pop()


class Roll:
    """Lines made once, of which every stretch may be cut: cheap text of any length."""

    def __init__(self, rng: Random, lines: Iterable[str], count: int = 600) -> None:
        """Take so many of the lines."""
        self._rng = rng
        self._lines = list(islice(lines, count))
        self._mean = sum(map(len, self._lines)) / len(self._lines) + 1

    def cut(self, size: int) -> list[str]:
        """Lines of about so many characters together, and at least one."""
        wanted = max(1, round(size / self._mean))
        start = self._rng.randrange(len(self._lines))
        lines = self._lines[start : start + wanted]
        while len(lines) < wanted:
            lines += self._lines[: wanted - len(lines)]
        return lines


class Sizes:
    """Lengths around a mean with a heavy tail: one in ninety is ten to thirty times as long."""

    def __init__(self, rng: Random, mean: int, most: int) -> None:
        """Take the mean of the ordinary ones, and what the large ones must not exceed."""
        self._rng = rng
        self._mean = mean
        self._most = max(mean, most)
        self._large = Deck(rng, {True: 1, False: _LARGE_ONE_IN - 1})

    def draw(self) -> int:
        """The next length."""
        if self._large.draw():
            return min(self._most, int(self._mean * self._rng.uniform(10, 30)))
        # A log-normal of mean one: most are shorter, some several times as long.
        return max(80, min(self._most, int(self._mean * self._rng.lognormvariate(-0.25, 0.7))))
