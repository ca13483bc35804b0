"""Errors as clients and frameworks raise them: often wrapped, sometimes twice, or in groups."""

from collections.abc import Iterator
from contextlib import suppress
from typing import cast

_DEEPEST = 8  # errors inside errors


def errors_within(error: BaseException) -> Iterator[BaseException]:
    """An error, what caused it, and those of a group."""
    waiting: list[tuple[BaseException, int]] = [(error, 0)]
    while waiting:
        one, depth = waiting.pop()
        yield one
        if depth >= _DEEPEST:
            continue
        inner = [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            inner += cast("BaseExceptionGroup[BaseException]", one).exceptions
        waiting += [(held, depth + 1) for held in inner if held is not None]


def error_text(error: BaseException) -> str:
    """What an error says; its body holds the provider's own words."""
    body = getattr(error, "body", None)
    if body is None:  # of a client that knows HTTP alone
        with suppress(Exception):  # a stream that was not read has no text
            body = getattr(getattr(error, "response", None), "text", None)
    return f"{error} {body}" if body else str(error)


def error_status(error: BaseException) -> int | None:
    """The HTTP status of the response that it tells of, as the clients name that."""
    named = (getattr(error, name, None) for name in ("status_code", "status", "code"))
    found = (held for held in named if isinstance(held, int) and not isinstance(held, bool))
    return next(found, None)


def error_code(error: BaseException) -> str | None:
    """The provider's own code for it."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else None
