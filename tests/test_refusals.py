"""Each row of the tables, the stated windows, the recorded vectors and hostile text."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.refusals import (
    READ_CHARS,
    REFUSALS,
    THROTTLES,
    Refusal,
    is_context_overflow,
    matches,
    stated_window,
)

CODES = (
    "context_length_exceeded",
    "exceed_context_size_error",
    "input_too_large",
    "model_context_window_exceeded",
    "model_max_prompt_tokens_exceeded",
    "request_too_large",
)


def each(rows: tuple[Refusal, ...]) -> pytest.MarkDecorator:
    names = [f"{number}-{row.provider}" for number, row in enumerate(rows)]
    return pytest.mark.parametrize("row", rows, ids=names)


@each(REFUSALS)
def test_a_refusal_is_recognized_unless_its_status_is_429(row: Refusal) -> None:
    assert matches((row,), row.example)
    assert is_context_overflow(row.example)
    assert is_context_overflow(row.example, status=400)
    assert not is_context_overflow(row.example, status=429)
    lines = row.example.replace(" ", "\n    ")
    assert is_context_overflow(f"APICallError:\n  {lines}\n")


@each(THROTTLES)
@pytest.mark.parametrize("status", [None, 400, 413, 429])
def test_a_throttle_is_never_an_overflow(row: Refusal, status: int | None) -> None:
    assert matches((row,), row.example)
    assert not is_context_overflow(row.example, status=status)
    assert stated_window(row.example) is None


@pytest.mark.parametrize(
    "message",
    [
        "",
        "400 status code (no body)",
        "422 status code (no body)",
        "500 Internal Server Error",
        "`max_new_tokens` must be <= 192. Given: 512",
        "Invalid API key provided",
        "tool_use ids were found without tool_result blocks immediately after",
        "image dimensions exceed 2000px",
    ],
)
def test_other_errors_are_not_overflows(message: str) -> None:
    assert not is_context_overflow(message)
    assert stated_window(message) is None


def test_status_413_is_an_overflow_without_any_text() -> None:
    assert is_context_overflow("", status=413)
    assert not is_context_overflow("", status=400)


@pytest.mark.parametrize("code", CODES)
def test_a_code_decides_without_any_text(code: str) -> None:
    assert is_context_overflow("", code=code)
    assert is_context_overflow("", code=code.upper())
    assert not is_context_overflow("", code=code, status=429)


def test_a_throttle_code_takes_precedence_over_status_413() -> None:
    assert not is_context_overflow("Request too large", status=413, code="rate_limit_exceeded")


def test_a_rate_limit_header_beside_a_refusal_is_ignored() -> None:
    assert is_context_overflow(
        "prompt is too long: 214676 tokens > 200000 maximum "
        "headers={'anthropic-ratelimit-tokens-limit': '80000'} see docs/api/rate-limits"
    )


WINDOWS = {
    "prompt is too long: 214676 tokens > 200000 maximum": 200_000,
    "Prompt has 5,958,968 tokens, but the configured context size is 256,000 tokens": 256_000,
    "context length is 128000 tokens. However, your messages resulted in 130005 tokens.": 128_000,
    "request (4031 tokens) exceeds the available context size (2048 tokens)": 2_048,
    'request exceeds the available context size. enable context shift","type":'
    '"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}': 256,
    r"\"type\": \"exceed_context_size_error\", \"n_prompt_tokens\": 14429, \"n_ctx\": 8192}": 8_192,
    # The reserved output counts, as the provider adds it before it refuses.
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000": 200_000,
    "'max_tokens' is too large: 8192. This model's maximum context length is 65536 tokens "
    "and your request has 57879 input tokens": 65_536,
    "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens and 60": 2_048,
    "too many tokens: size limit exceeded by 19296 tokens. Try using shorter "
    "or fewer inputs. The limit for this model is 132000 tokens.": 132_000,
    "The prompt is too long: 40177, model maximum context length: 32767": 32_767,
    "Range of input length should be [1, 204800]": 204_800,
    "The input token count exceeds the maximum number of tokens allowed (1048576).": 1_048_576,
    "input token count (1200000) exceeds the maximum number of tokens allowed": None,
}


@pytest.mark.parametrize(("message", "limit"), WINDOWS.items())
def test_a_stated_window_is_read_from_the_message(message: str, limit: int | None) -> None:
    assert stated_window(message) == limit


@pytest.mark.parametrize(
    "message",
    [
        "context_length_exceeded",
        "invalid params, context window exceeds limit (2013)",
        "prompt too long; exceeded max context length by 100918 tokens",
        "too many tokens: size limit exceeded by 11326 tokens. Try using shorter inputs.",
        "413 status code (no body)",
    ],
)
def test_a_refusal_without_a_window_states_none(message: str) -> None:
    assert is_context_overflow(message)
    assert stated_window(message) is None


@each(REFUSALS)
def test_a_stated_window_is_a_number_of_the_example(row: Refusal) -> None:
    limit = stated_window(row.example)
    assert (limit is not None) == ("<limit>" in row.pattern)
    assert limit is None or str(limit) in row.example.replace(",", "")


def test_only_the_start_of_a_message_is_read() -> None:
    assert is_context_overflow("prompt is too long" + "x" * READ_CHARS)
    assert not is_context_overflow("x" * READ_CHARS + " prompt is too long")


HOSTILE = ("(", "9", "1,", " ", "\n", "\\", "prompt contains 1 tokens ", "İ", "inputs` tokens + ")


@pytest.mark.parametrize("piece", [*HOSTILE, *(row.example[:-3] for row in REFUSALS)])
def test_a_megabyte_of_repetition_is_read_without_delay(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    is_context_overflow(text)
    stated_window(text)


@given(st.text(), st.none() | st.integers(), st.none() | st.text())
def test_no_text_raises(message: str, status: int | None, code: str | None) -> None:
    assert is_context_overflow(message, status=status, code=code) in {True, False}
    stated_window(message)


@given(st.lists(st.sampled_from([r.example for r in (*REFUSALS, *THROTTLES)]), max_size=4))
def test_no_mixture_of_real_messages_raises(messages: list[str]) -> None:
    text = "".join(messages)
    if matches(THROTTLES, text):
        assert not is_context_overflow(text)
    stated_window(text)


def test_the_recorded_results_are_reproduced(vectors: Callable[[str], Any]) -> None:
    recorded = vectors("is_context_overflow")
    assert recorded
    for case in recorded:
        assert is_context_overflow(case["message"]) is case["overflow"], case["message"]


class APIError(Exception):
    """An error in the form of the official clients."""

    def __init__(self, text: str, status_code: int = 400, code: str | None = None) -> None:
        super().__init__(text)
        self.status_code = status_code
        self.code = code
        self.body = {"error": {"message": text}}


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("the step failed")
    outer.__cause__ = error
    return outer


def test_errors_are_recognized_at_any_depth() -> None:
    text = "prompt is too long: 212032 tokens > 200000 maximum"
    refusal = APIError(text)
    group = ExceptionGroup("two", [ValueError("other"), wrapped(refusal)])
    for error in (refusal, wrapped(refusal), group, APIError("too much", code=CODES[0])):
        assert is_context_overflow(error)
    assert stated_window(group) == 200_000
    assert not is_context_overflow(APIError("prompt is too long: 3 tokens > 2 maximum", 429))
    assert not is_context_overflow(wrapped(ValueError("other")))
    request = httpx.Request("POST", "http://127.0.0.1/v1")
    with pytest.raises(httpx.HTTPStatusError) as raised:
        httpx.Response(400, request=request, text=text).raise_for_status()
    assert is_context_overflow(raised.value)
    base = type("ContextOverflowError", (ValueError,), {})
    assert is_context_overflow(wrapped(type("OpenAIsOwn", (base,), {})("another text")))
    assert stated_window(ValueError("other")) is None
