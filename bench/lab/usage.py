"""What a provider would have measured for a made-up session, and what OpenCode would have pruned.

Both are carried on from message to message. Knows parts and their tokens, not how they came about.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foldmark.model.messages import AnyPart, Cache, Completed, ReasoningPart, Tokens, ToolPart
from foldmark.tokens.counters import by_classes
from foldmark.tokens.sizes import MESSAGE_OVERHEAD, Size, part_size

NONE = Tokens(total=0, input=0, output=0, reasoning=0, cache=Cache(read=0, write=0))
PLACEHOLDER = 8  # tokens that are shown in a pruned output's place
_FRESH = 4  # tokens at the end of a request that are not cached
_PRICES = {"input": 3.0, "output": 15.0, "read": 0.3, "write": 3.75}  # dollars for a million
_PROTECT, _MINIMUM = 40_000, 20_000
_PROTECTED_TOOLS = frozenset({"skill"})


class Meter:
    """The tokens of all that the model is shown."""

    def __init__(self, *, writes: bool) -> None:
        """Begin with nothing; not every provider reports what it writes to its cache."""
        self._writes = writes
        self._cached = 0
        self.context = 0  # what the next request would have
        self.total = 0  # of all messages ever

    def take(self, parts: Iterable[AnyPart]) -> list[Size]:
        """Count a message's parts."""
        sizes = [part_size(part, by_classes) for part in parts]
        tokens = MESSAGE_OVERHEAD + sum(size.fixed + size.body for size in sizes)
        self.context += tokens
        self.total += tokens
        return sizes

    def step(self, parts: Sequence[AnyPart]) -> tuple[Tokens, list[Size]]:
        """Count an answer's parts, and give what was measured for it and them."""
        before = self.context
        sizes = self.take(parts)
        thought = sum(
            size.fixed
            for part, size in zip(parts, sizes, strict=True)
            if isinstance(part, ReasoningPart)
        )
        said = sum(size.fixed for size in sizes) - thought
        read = min(self._cached, before)
        fresh = min(_FRESH, before - read) if self._writes else before - read
        self._cached = before
        tokens = Tokens(
            total=before + said + thought,
            input=fresh,
            output=said,
            reasoning=thought,
            cache=Cache(read=read, write=before - read - fresh),
        )
        return tokens, sizes

    def restart(self, context: int) -> None:
        """Go on with another prefix, of which nothing is cached."""
        self.context = context
        self._cached = 0


def cost(tokens: Tokens) -> float:
    """What a step costs, in dollars."""
    cache = tokens.cache or Cache()
    dollars = (
        (tokens.input or 0) * _PRICES["input"]
        + ((tokens.output or 0) + (tokens.reasoning or 0)) * _PRICES["output"]
        + (cache.read or 0) * _PRICES["read"]
        + (cache.write or 0) * _PRICES["write"]
    )
    return round(dollars / 1_000_000, 6)


class Output(NamedTuple):
    """A tool's output by its place, with its tokens."""

    message: int
    part: int
    tokens: int


class Pruner:
    """Outputs that are still shown, and the choice of those to hide."""

    def __init__(self, window: int) -> None:
        """Take the model's window; a small one protects less."""
        self._protect = min(_PROTECT, window // 5)
        self._minimum = min(_MINIMUM, window // 10)
        self._outputs: list[Output] = []

    def take(self, place: int, parts: Sequence[AnyPart], sizes: Sequence[Size]) -> None:
        """Note the outputs of a message."""
        for offset, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            if not isinstance(part, ToolPart) or part.tool in _PROTECTED_TOOLS:
                continue
            if isinstance(part.state, Completed):
                self._outputs.append(Output(place, offset, size.body))

    def hidden(self, before: int) -> list[Output]:
        """The outputs to hide now, all before a place; none where it would not be worth it."""
        seen = 0
        hidden: list[Output] = []
        for output in reversed(self._outputs):
            if output.message < before:
                seen += output.tokens
                if seen > self._protect:
                    hidden.append(output)
        if sum(output.tokens for output in hidden) <= self._minimum:
            return []
        # They are the oldest of all, for a place after one that is hidden is never older.
        self._outputs = self._outputs[len(hidden) :]
        return hidden

    def forget(self) -> None:
        """Go on behind a pivot."""
        self._outputs = []
