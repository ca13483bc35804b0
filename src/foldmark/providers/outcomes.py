"""What came back through pydantic-ai, as an outcome: an answer, or why there is none.

Each provider has its own words for "too long" and "too much": the first are told by `refusals`,
the second by pydantic-ai. This module sends nothing and tries nothing again.
"""

import re
from traceback import walk_tb
from typing import cast

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelTimeoutError,
)
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from foldmark.model.messages import Cache, Tokens
from foldmark.refusals import THROTTLES, is_context_overflow, matches
from foldmark.summary.protocol import Cause, Finish, ModelFailure, ModelReply, Outcome

from .driver import error_line

_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length", "tool_call": "tool-calls"}
_CAUSES: tuple[tuple[type[Exception], Cause], ...] = (
    (ModelContextWindowExceededError, "overflow"),
    (ModelQuotaExceededError, "unavailable"),  # sent as a rate limit, but no wait will help
    (ModelRateLimitError, "throttled"),
    (ModelOverloadedError, "throttled"),
    (ModelAuthenticationError, "unavailable"),
    (ModelNotFoundError, "unavailable"),
    (ModelRequestTimeout, "timeout"),
    (ModelTimeoutError, "timeout"),
    (TimeoutError, "timeout"),
)
_HEAD = "_receive_response_headers"  # of httpcore, which reads the head of an answer in it
_SILENT = ("xai",)  # whose own word for how an answer ended the library does not keep
# OpenAI: "Please try again in 18.642s."; Gemini: "Please retry in 37.1s", "retryDelay": "37s".
_WAIT = re.compile(
    r"(?:try again in |retry in |retryDelay\W{1,5})(\d{1,6}(?:\.\d{1,9})?) ?(ms|s)\b"
)
_READ = 8_000  # characters of an error that are looked through
_LONGEST = 300  # characters of an error that are told


def answered(response: ModelResponse, *, says_how_it_ends: bool) -> Outcome:
    """The answer with what was measured of it; one that broke off without a word is none."""
    if says_how_it_ends and (refusal := broken_off(response)) is not None:
        return refusal
    return ModelReply(
        text="".join(part.content for part in response.parts if isinstance(part, TextPart)),
        finish=told_finish(response),
        tokens=measured_tokens(response),
        cost=told_cost(response),
        calls=sum(isinstance(part, ToolCallPart) for part in response.parts),
    )


def broken_off(response: ModelResponse) -> ModelFailure | None:
    """The refusal of an answer of which nobody said how it ended."""
    if response.finish_reason != "stop" or response.provider_name in _SILENT:
        is_broken = response.finish_reason is None
    else:  # of a stream that just stops, the library says `stop`
        is_broken = not (response.provider_details or {}).get("finish_reason")
    told = "the answer broke off before its end"
    return ModelFailure(cause="failed", message=told) if is_broken else None


def told_finish(response: ModelResponse) -> Finish:
    """How an answer ended, in our words."""
    return _FINISH.get(response.finish_reason or "stop", "other")


def refused(error: Exception) -> ModelFailure:
    """Why there is no answer."""
    if isinstance(error, ExceptionGroup):  # of models that were tried one after the other
        return refused(cast("ExceptionGroup[Exception]", error).exceptions[-1])
    if not isinstance(error, ModelAPIError):
        return ModelFailure(cause=_kind(error), message=error_line(error))
    return ModelFailure(
        cause="overflow" if _is_overflow(error) else _kind(error),
        message=_line(error),
        retry_after=error.retry_after or _told_wait(error),
    )


def was_hung_up(error: ModelConnectionError) -> bool:
    """Whether there was a connection, which the other side closed before any word of an answer."""
    if isinstance(error, ModelTimeoutError):
        return False
    return error.phase == "write" or (error.phase == "read" and _waited_for_the_head(error))


def _waited_for_the_head(error: BaseException | None) -> bool:
    """Whether the connection ended before the status and the headers: only where it failed says."""
    while error is not None:
        if any(frame.f_code.co_name == _HEAD for frame, _ in walk_tb(error.__traceback__)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _kind(error: Exception) -> Cause:
    for kind, cause in _CAUSES:
        if isinstance(error, kind):
            return cause
    return "throttled" if isinstance(error, ModelAPIError) and _is_busy(error) else "failed"


def _is_busy(error: ModelAPIError) -> bool:
    """Whether it says so in words alone, as gateways do, or under another status, as Groq does."""
    text = f"{error.body}"
    rates = (row for row in THROTTLES if not row.provider.endswith(" output"))
    return "overloaded" in text.lower() or any(matches(row, text) for row in rates)


def _is_overflow(error: ModelAPIError) -> bool:
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    codes = (error.provider_error_code, error.provider_error_type)
    text = f"{_said(error)} {error.body or ''}"
    return any(is_context_overflow(text, status=status, code=code) for code in codes)


def _told_wait(error: ModelAPIError) -> float | None:
    """The seconds to wait that the words of an error state, where no header does."""
    told = _WAIT.search(f"{error.body}"[:_READ])
    return float(told[1]) * (0.001 if told[2] == "ms" else 1) if told else None


def _line(error: ModelAPIError) -> str:
    """The status and the provider's own words."""
    said = " ".join(_said(error).split()) or type(error).__name__
    status = f"{error.status_code} " if isinstance(error, ModelHTTPError) else ""
    return f"{status}{said}"[:_LONGEST]


def _said(error: ModelAPIError) -> str:
    """The message inside an error's body, however deep; else what the library makes of it."""
    body = error.body
    while isinstance(body, dict):
        fields = cast("dict[str, object]", body)
        body = fields.get("message") or fields.get("error")
    return body if isinstance(body, str) and body else error.message


def measured_tokens(response: ModelResponse) -> Tokens | None:
    """What was measured; here the input is told without what was cached."""
    usage = response.usage
    if usage.unmeasured_requests or not usage.total_tokens:
        return None
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    return Tokens(
        input=max(usage.input_tokens - read - write, 0),
        output=usage.output_tokens,
        reasoning=usage.output_reasoning_tokens,
        total=usage.total_tokens,
        cache=Cache(read=read, write=write),
    )


def told_cost(response: ModelResponse) -> float | None:
    """The price of an answer in dollars, where it is known."""
    try:
        return float(response.usage.cost or response.cost().total_price)
    except Exception:  # noqa: BLE001 - a price is no reason to lose an answer
        return None
