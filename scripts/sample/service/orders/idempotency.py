"""Idempotency keys: a request that is sent again is answered as the first one was."""

from orders.errors import Invalid

LONGEST = 64


def key_of(environ) -> str | None:
    """The key of a request, if it has one."""
    key = environ.get("HTTP_IDEMPOTENCY_KEY")
    if key is not None and not 0 < len(key) <= LONGEST:
        raise Invalid(f"Idempotency-Key has 1 to {LONGEST} characters")
    return key
