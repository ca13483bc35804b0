"""Ids that sort by creation: within one millisecond, across threads, and when the clock goes back.

The shape is OpenCode's (prefix, time, random letters), with two hexadecimal digits more, so that
the time does not wrap around. Clock and randomness come in from outside.
"""

from collections.abc import Callable
from threading import Lock
from typing import Literal

Prefix = Literal["ses", "msg", "prt"]

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LETTERS = 12


class Ids:
    """A source of ids, each greater than all before it from the same source."""

    def __init__(self, clock: Callable[[], int], entropy: Callable[[int], bytes]) -> None:
        """Take the clock in milliseconds, and a function that gives n random bytes."""
        self._clock = clock
        self._entropy = entropy
        self._last = 0
        self._lock = Lock()

    def make(self, prefix: Prefix) -> str:
        """A new id."""
        with self._lock:
            # Twelve bits leave room for 4096 ids a millisecond; more borrow from the next one.
            self._last = max(self._last + 1, self._clock() << 12)
            stamp = self._last
        letters = (_LETTERS[byte % len(_LETTERS)] for byte in self._entropy(_RANDOM_LETTERS))
        return f"{prefix}_{stamp:014x}{''.join(letters)}"
