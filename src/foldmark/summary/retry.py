"""When a request that failed is sent again: growing pauses, unless the provider names one.

A schedule only: whoever sends requests waits, adds jitter and knows when to give up.
"""

FIRST_PAUSE = 1.0  # seconds


def retry_pause(
    attempt: int, retry_after: float | None = None, *, first: float = FIRST_PAUSE
) -> float:
    """Seconds to wait after the failed attempt of this number, counted from 1.

    Each pause is twice the one before; a longer wait that the provider asks for is respected.
    """
    return max(first * 2.0 ** (attempt - 1), retry_after or 0.0)
