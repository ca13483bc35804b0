"""Refusals for length, as frameworks and clients raise them: often wrapped, sometimes twice."""

from collections.abc import Iterator
from typing import cast

from foldmark.refusals import is_context_overflow, overflow_figures

_DEEPEST = 8  # errors inside errors


def is_overflow_error(error: BaseException) -> bool:
    """Whether a model was not asked, as the request was too long for it."""
    return any(_says_so(one) for one in _chain(error))


def stated_window(error: BaseException) -> int | None:
    """The tokens that the refusal says are allowed, if it does."""
    for one in _chain(error):
        figures = overflow_figures(_text(one))
        if figures is not None and figures.limit:
            return figures.limit
    return None


def _says_so(error: BaseException) -> bool:
    status = next((held for held in map(_number, _statuses(error)) if held), None)
    code = getattr(error, "code", None)
    return is_context_overflow(_text(error), status=status, code=code if _is_text(code) else None)


def _statuses(error: BaseException) -> Iterator[object]:
    yield getattr(error, "status_code", None)
    yield getattr(error, "status", None)
    yield getattr(error, "code", None)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _text(error: BaseException) -> str:
    """What an error says; its body holds the provider's own words."""
    body = getattr(error, "body", None)
    return f"{error} {body}" if body else str(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
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
