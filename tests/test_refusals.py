"""Every row of the tables is its own test; then the figures, the vectors and hostile text."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.refusals import (
    OVERFLOW_CODES,
    READ_CHARS,
    REFUSALS,
    THROTTLES,
    Figures,
    Refusal,
    is_context_overflow,
    matches,
    overflow_figures,
)


def named(rows: tuple[Refusal, ...]) -> list[Any]:
    return [pytest.param(row, id=f"{i}-{row.provider}") for i, row in enumerate(rows)]


@pytest.mark.parametrize("row", named(REFUSALS))
def test_a_refusal_is_recognised_by_its_own_row_and_by_the_function(row: Refusal) -> None:
    assert matches(row, row.example)
    assert is_context_overflow(row.example)
    assert is_context_overflow(row.example, status=400)


@pytest.mark.parametrize("row", named(REFUSALS))
def test_a_refusal_is_recognised_inside_a_wrapped_and_indented_log(row: Refusal) -> None:
    wrapped = row.example.replace(" ", "\n    ")
    assert is_context_overflow(f"APICallError:\n  {wrapped}\n")


@pytest.mark.parametrize("row", named(THROTTLES))
@pytest.mark.parametrize("status", [None, 400, 413, 429])
def test_a_throttle_is_never_an_overflow_whatever_its_status(
    row: Refusal, status: int | None
) -> None:
    assert matches(row, row.example)
    assert not is_context_overflow(row.example, status=status)
    assert overflow_figures(row.example) is None


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
    assert overflow_figures(message) is None


@pytest.mark.parametrize("row", named(REFUSALS))
def test_status_429_is_never_an_overflow(row: Refusal) -> None:
    assert not is_context_overflow(row.example, status=429)


def test_status_413_is_an_overflow_without_any_text() -> None:
    assert is_context_overflow("", status=413)
    assert not is_context_overflow("", status=400)


@pytest.mark.parametrize("code", sorted(OVERFLOW_CODES))
def test_a_code_decides_without_any_text(code: str) -> None:
    assert is_context_overflow("", code=code)
    assert is_context_overflow("", code=code.upper())
    assert not is_context_overflow("", code=code, status=429)


def test_a_throttle_code_outweighs_status_413() -> None:
    assert not is_context_overflow("Request too large", status=413, code="rate_limit_exceeded")


def test_a_rate_limit_header_beside_a_refusal_does_not_hide_it() -> None:
    assert is_context_overflow(
        "prompt is too long: 214676 tokens > 200000 maximum "
        "headers={'anthropic-ratelimit-tokens-limit': '80000'} see docs/api/rate-limits"
    )


@pytest.mark.parametrize(
    ("message", "used", "limit"),
    [
        pytest.param("prompt is too long: 214676 tokens > 200000 maximum", 214_676, 200_000),
        pytest.param(
            "Prompt has 5,958,968 tokens, but the configured context size is 256,000 tokens",
            5_958_968,
            256_000,
        ),
        pytest.param(
            "This model's maximum context length is 128000 tokens. However, your messages resulted "
            "in 130005 tokens.",
            130_005,
            128_000,
        ),
        pytest.param(
            "request (4031 tokens) exceeds the available context size (2048 tokens)", 4_031, 2_048
        ),
        pytest.param(
            "the request exceeds the available context size. try increasing the context size or "
            'enable context shift","type":"exceed_context_size_error","n_prompt_tokens":1407,'
            '"n_ctx":256}}',
            1_407,
            256,
        ),
        pytest.param(
            '{\\"type\\": \\"exceed_context_size_error\\", \\"n_prompt_tokens\\": 14429, '
            '\\"n_ctx\\": 8192}',
            14_429,
            8_192,
        ),
        # Reserved output counts: the provider adds it before it refuses.
        pytest.param(
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
            209_573,
            200_000,
        ),
        pytest.param(
            "'max_tokens' is too large: 8192. This model's maximum context length is 65536 tokens "
            "and your request has 57879 input tokens",
            66_071,
            65_536,
        ),
        pytest.param(
            "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens "
            "and 60 `max_new_tokens`",
            3_534,
            2_048,
        ),
        pytest.param(
            "too many tokens: size limit exceeded by 19296 tokens. Try using shorter "
            "or fewer inputs. The limit for this model is 132000 tokens.",
            151_296,
            132_000,
        ),
        pytest.param(
            "The prompt is too long: 40177, model maximum context length: 32767", 40_177, 32_767
        ),
        pytest.param("Range of input length should be [1, 204800]", None, 204_800),
        pytest.param(
            "The input token count exceeds the maximum number of tokens allowed (1048576).",
            None,
            1_048_576,
        ),
        pytest.param(
            "input token count (1200000) exceeds the maximum number of tokens allowed",
            1_200_000,
            None,
        ),
    ],
)
def test_figures_are_read_where_the_message_states_them(
    message: str, used: int | None, limit: int | None
) -> None:
    assert overflow_figures(message) == Figures(used=used, limit=limit)


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
def test_a_refusal_without_figures_states_none(message: str) -> None:
    assert is_context_overflow(message)
    assert overflow_figures(message) is None


@pytest.mark.parametrize("row", named(REFUSALS))
def test_a_stated_use_is_above_its_stated_limit(row: Refusal) -> None:
    figures = overflow_figures(row.example)
    if figures and figures.used is not None and figures.limit is not None:
        assert figures.used > figures.limit


def test_only_the_head_of_a_message_is_read() -> None:
    assert is_context_overflow("prompt is too long" + "x" * READ_CHARS)
    assert not is_context_overflow("x" * READ_CHARS + " prompt is too long")


HOSTILE = ("(", "9", "1,", " ", "\n", "\\", "prompt contains 1 tokens ", "İ", "inputs` tokens + ")


@pytest.mark.parametrize("piece", [*HOSTILE, *(row.example[:-3] for row in REFUSALS)])
def test_a_megabyte_of_repetition_is_read_without_delay(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    is_context_overflow(text)
    overflow_figures(text)


@given(st.text(), st.none() | st.integers(), st.none() | st.text())
def test_no_text_raises(message: str, status: int | None, code: str | None) -> None:
    assert is_context_overflow(message, status=status, code=code) in {True, False}
    overflow_figures(message)


@given(st.lists(st.sampled_from([r.example for r in (*REFUSALS, *THROTTLES)]), max_size=4))
def test_no_mixture_of_real_messages_raises(messages: list[str]) -> None:
    text = "".join(messages)
    if any(matches(row, text) for row in THROTTLES):
        assert not is_context_overflow(text)
    overflow_figures(text)


def test_the_recorded_answers_are_given_exactly(vectors: Callable[[str], Any]) -> None:
    recorded = vectors("is_context_overflow")
    assert recorded
    for case in recorded:
        assert is_context_overflow(case["message"]) is case["overflow"], case["message"]


class Refused(Exception):
    """As the official clients raise it."""

    def __init__(self, text: str, status_code: int = 400, code: str | None = None) -> None:
        super().__init__(text)
        self.status_code = status_code
        self.code = code
        self.body = {"error": {"message": text}}


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("the step failed")
    outer.__cause__ = error
    return outer


def test_errors_are_recognised_however_deep_they_are_wrapped() -> None:
    refused = Refused("prompt is too long: 212032 tokens > 200000 maximum")
    grouped = ExceptionGroup("two", [ValueError("other"), wrapped(refused)])
    for error in (
        refused,
        wrapped(refused),
        grouped,
        Refused("too much", code=next(iter(OVERFLOW_CODES))),
    ):
        assert is_context_overflow(error)
    figures = overflow_figures(grouped)
    assert figures is not None
    assert figures.limit == 200_000
    assert not is_context_overflow(Refused("prompt is too long: 3 tokens > 2 maximum", 429))
    assert not is_context_overflow(wrapped(ValueError("other")))
    request = httpx.Request("POST", "http://127.0.0.1/v1")
    text = "prompt is too long: 212032 tokens > 200000 maximum"
    with pytest.raises(httpx.HTTPStatusError) as raised:
        httpx.Response(400, request=request, text=text).raise_for_status()
    assert is_context_overflow(raised.value)
    named = type("ContextOverflowError", (ValueError,), {})
    assert is_context_overflow(wrapped(type("OpenAIsOwn", (named,), {})("in words of its own")))
    assert overflow_figures(ValueError("other")) is None
