"""A model without a provider, for tests of programs that use Foldmark.

It answers what it was told to answer and keeps what it was asked. It knows no network and no
clock but that of the event loop it is asked in.
"""

import asyncio
from collections.abc import Callable

from .asking import Answered, Ask, Delta, Outcome, Refused

# A text, a whole outcome, an exception to raise, or a function of the ask that gives one of these.
Said = str | Answered | Refused | Exception
Reply = Said | Callable[[Ask], Said]

_PIECE = 16  # characters of an answer that are told at a time


class ScriptedModel:
    """A summarizer that answers by a script, in its order.

    With `repeat`, the last reply is given again and again; without it, whoever asks once more
    than there are replies is refused. `delay` is the seconds that each answer takes.

    >>> from foldmark.testing import ScriptedModel
    >>> from foldmark.asking import Refused
    >>> model = ScriptedModel(Refused(cause="throttled", message="slow down"), "All tests pass.")
    >>> model.name
    'scripted:model'
    """

    def __init__(
        self, *replies: Reply, name: str = "scripted:model", repeat: bool = True, delay: float = 0.0
    ) -> None:
        self._replies = replies
        self._name = name
        self._repeat = repeat
        self._delay = delay
        self.asks: list[Ask] = []  # all that it was asked, the oldest first

    @property
    def name(self) -> str:
        """Which model it says it is."""
        return self._name

    async def ask(self, ask: Ask, delta: Delta) -> Outcome:
        """What the script says next, its text told in pieces."""
        said = self._next(ask)
        if isinstance(said, Exception):
            await asyncio.sleep(self._delay)
            raise said
        outcome = Answered(text=said) if isinstance(said, str) else said
        text = outcome.text if isinstance(outcome, Answered) else ""
        pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
        for piece in pieces:
            await asyncio.sleep(self._delay / len(pieces))
            delta(piece)
        if not pieces:
            await asyncio.sleep(self._delay)
        return outcome

    def _next(self, ask: Ask) -> Said:
        """Taken at once, so that asks of the same time get replies of their own."""
        place = len(self.asks)
        self.asks.append(ask)
        if self._repeat and self._replies:
            place = min(place, len(self._replies) - 1)
        if place >= len(self._replies):
            return Refused(cause="unavailable", message="the script has no more replies")
        reply = self._replies[place]
        return reply(ask) if callable(reply) else reply
