"""The usable tokens of a window and its overflow, under each preset (spec 000, 002, 004)."""

import pytest

from foldmark.compaction.fold import tokens_used
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Cache, Tokens
from foldmark.policy import (
    CODELET,
    CODELET_USABLE,
    FOLDMARK,
    OPENCODE,
    OPENCODE_2025,
    OPENCODE_BUFFER,
    PRESETS,
    Policy,
    preset,
)
from foldmark.tokens.budget import exceeds, is_overflow, pressure, usable, used
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit
from tests.support.messages import reply, said, user

CLAUDE = Limit(context=200_000, output=8_192)
GPT_4 = Limit(context=128_000, output=4_096)
HIGH_OUTPUT = Limit(context=200_000, output=64_000)
WITH_INPUT = Limit(context=400_000, output=128_000, input=272_000)
NO_OUTPUT = Limit(context=200_000, output=0)
UNLIMITED = Limit(context=0, output=8_192)
EACH_PRESET = pytest.mark.parametrize("policy", PRESETS.values(), ids=lambda p: p.name)


def measured(sent: int, received: int = 0, *, read: int = 0, write: int = 0) -> Tokens:
    return Tokens(input=sent, output=received, reasoning=0, cache=Cache(read=read, write=write))


# --- the table of presets -------------------------------------------------------------------


SINCE_2026 = {"opencode-buffer", "opencode", "foldmark"}


@EACH_PRESET
def test_each_preset_counts_its_own_figures_and_never_reasoning(policy: Policy) -> None:
    tokens = Tokens(input=1, output=20, reasoning=50_000, cache=Cache(read=300, write=4_000))
    assert used(tokens, policy.window) == (4_321 if policy.name in SINCE_2026 else 321)


@EACH_PRESET
def test_a_reported_total_is_preferred_by_some_presets_unless_it_is_zero(policy: Policy) -> None:
    total = 999 if policy.name in SINCE_2026 else 12
    assert used(Tokens(input=10, output=2, total=999), policy.window) == total
    assert used(Tokens(input=10, output=2, total=0), policy.window) == 12


def test_missing_figures_count_as_zero() -> None:
    assert used(Tokens(), FOLDMARK.window) == 0
    assert used(Tokens(output=7), OPENCODE_2025.window) == 7
    assert used(Tokens(input=3, cache=Cache(read=4)), OPENCODE_BUFFER.window) == 7


@pytest.mark.parametrize(
    ("name", "budgets"),
    [
        ("opencode-2025", (191_808, 123_904, 168_000, 272_000, 168_000)),
        ("opencode-buffer", (191_808, 123_904, 180_000, 252_000, 180_000)),
        ("opencode", (191_808, 123_904, 168_000, 252_000, 168_000)),
        ("codelet", (180_000, 115_200, 180_000, 360_000, 180_000)),
        ("codelet-usable", (191_808, 123_904, 168_000, 368_000, 200_000)),
        ("foldmark", (191_808, 123_904, 168_000, 252_000, 168_000)),
    ],
)
def test_each_preset_has_its_own_usable_tokens(name: str, budgets: tuple[int, ...]) -> None:
    limits = (CLAUDE, GPT_4, HIGH_OUTPUT, WITH_INPUT, NO_OUTPUT)
    assert tuple(usable(preset(name), limit) for limit in limits) == budgets


@pytest.mark.parametrize("policy", [OPENCODE_2025, CODELET, CODELET_USABLE], ids=lambda p: p.name)
@pytest.mark.parametrize("limit", [CLAUDE, GPT_4, HIGH_OUTPUT, WITH_INPUT])
def test_older_presets_overflow_only_beyond_the_usable_tokens(policy: Policy, limit: Limit) -> None:
    budget = usable(policy, limit)
    assert not is_overflow(policy, budget, limit)
    assert is_overflow(policy, budget + 1, limit)


@pytest.mark.parametrize("policy", [OPENCODE_BUFFER, OPENCODE, FOLDMARK], ids=lambda p: p.name)
@pytest.mark.parametrize("limit", [CLAUDE, GPT_4, HIGH_OUTPUT, WITH_INPUT])
def test_newer_presets_overflow_at_the_usable_tokens(policy: Policy, limit: Limit) -> None:
    budget = usable(policy, limit)
    assert not is_overflow(policy, budget - 1, limit)
    assert is_overflow(policy, budget, limit)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("opencode-2025", (0, 0, 1, 1, 1, 1, 2)),
        ("opencode-buffer", (0, 1, 1, 1, 1, 2, 2)),
        ("opencode", (0, 0, 1, 1, 1, 1, 2)),
    ],
)
def test_each_spec_estimates_a_quarter_of_the_length_in_its_own_rounding(
    name: str, tokens: tuple[int, ...]
) -> None:
    assert tuple(counter(preset(name).estimate)("x" * length) for length in range(7)) == tokens


# --- all presets ----------------------------------------------------------------------------


@EACH_PRESET
def test_a_model_without_a_context_limit_never_overflows(policy: Policy) -> None:
    assert usable(policy, UNLIMITED) == 0
    assert not is_overflow(policy, 10**9, UNLIMITED)


@EACH_PRESET
def test_nothing_overflows_if_compaction_is_not_automatic(policy: Policy) -> None:
    assert is_overflow(policy, 10**9, CLAUDE)
    assert not is_overflow(policy.adjusted(auto=False), 10**9, CLAUDE)


@EACH_PRESET
def test_compaction_is_automatic_unless_it_is_disabled(policy: Policy) -> None:
    assert policy.auto
    assert policy.adjusted(auto=True).auto
    assert policy.adjusted().auto


def test_pressure_is_used_by_usable() -> None:
    figures = {0: 0.0, 84_000: 0.5, 168_000: 1.0, 336_000: 2.0}
    assert {count: pressure(count, 168_000) for count in figures} == figures
    assert pressure(1, 0) == pressure(1, -5) == float("inf")
    assert pressure(0, 0) == 0.0


@EACH_PRESET
def test_usage_is_that_of_the_last_finished_reply_and_never_of_a_summary(policy: Policy) -> None:
    finished = [reply(tokens=measured(90_000)), reply(tokens=measured(40_000, 2_000))]
    log = Log(counter(policy.estimate), [*finished, reply(finish="", tokens=measured(70_000))])
    assert tokens_used(Viewer(log, policy)) == 42_000
    log.append(reply(summary=True, tokens=measured(80_000)))
    assert tokens_used(Viewer(log, policy)) == (42_000 if policy is FOLDMARK else 0)


def test_foldmark_also_counts_later_messages_and_the_fixed_tokens() -> None:
    request = user("word " * 5_000)
    log = Log(counter(FOLDMARK.estimate), [said(tokens=measured(1_000)), request])
    assert tokens_used(Viewer(log, OPENCODE)) == 1_000
    assert tokens_used(Viewer(log, FOLDMARK)) >= 1_000 + counter("classes")("word " * 5_000)
    alone = Log(counter(FOLDMARK.estimate), [request])
    view = Viewer(alone, FOLDMARK).view()
    assert tokens_used(Viewer(alone, FOLDMARK), fixed=700) == view.tokens + 700


# --- spec 000 -------------------------------------------------------------------------------


def test_an_unknown_output_limit_is_assumed_to_be_the_cap() -> None:
    assert usable(OPENCODE_2025, Limit(context=100_000, output=0)) == 68_000
    assert usable(OPENCODE, Limit(context=100_000, output=0)) == 68_000


def test_the_cap_on_output_can_be_set() -> None:
    policy = OPENCODE_2025.adjusted(output_cap=10_000)
    assert usable(policy, HIGH_OUTPUT) == 190_000
    assert usable(policy, CLAUDE) == 191_808


def test_an_input_limit_is_preferred_to_the_context() -> None:
    assert usable(OPENCODE_2025, WITH_INPUT) == 272_000
    assert not is_overflow(OPENCODE_2025, 272_000, WITH_INPUT)
    assert is_overflow(OPENCODE_2025, 272_001, WITH_INPUT)


# --- spec 002 and opencode ------------------------------------------------------------------


def test_the_buffer_is_twenty_thousand_or_the_output_if_that_is_smaller() -> None:
    assert usable(OPENCODE_BUFFER, Limit(context=100_000, output=64_000)) == 80_000
    assert usable(OPENCODE_BUFFER, Limit(context=100_000, output=19_999)) == 80_001
    assert usable(OPENCODE_BUFFER, Limit(context=100_000, output=50, input=60_000)) == 59_950


def test_a_reserve_replaces_the_buffer() -> None:
    policy = OPENCODE_BUFFER.adjusted(reserved=5_000)
    assert usable(policy, CLAUDE) == 195_000
    assert usable(policy, WITH_INPUT) == 267_000
    assert usable(OPENCODE_BUFFER.adjusted(reserved=0), CLAUDE) == 200_000


def test_the_buffer_may_be_larger_than_a_small_window() -> None:
    tiny = Limit(context=8_000, output=0)
    assert usable(OPENCODE_BUFFER, tiny) == -12_000
    assert is_overflow(OPENCODE_BUFFER, 0, tiny)


# --- spec 004 -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "legacy", "proposed"),
    [(CLAUDE, 180_000, 191_808), (GPT_4, 115_200, 123_904), (HIGH_OUTPUT, 180_000, 168_000)],
)
def test_the_worked_examples_have_their_results(limit: Limit, legacy: int, proposed: int) -> None:
    assert usable(CODELET, limit) == legacy
    assert usable(CODELET_USABLE, limit) == proposed


def test_claude_is_compacted_later_than_nine_tenths() -> None:
    count = used(measured(190_000, 1_000), CODELET_USABLE.window)
    assert count == 191_000
    assert not is_overflow(CODELET_USABLE, count, CLAUDE)
    assert is_overflow(CODELET, count, CLAUDE)


def test_a_model_of_high_output_is_compacted_earlier_than_nine_tenths() -> None:
    count = used(measured(170_000, 1_000), CODELET_USABLE.window)
    assert count == 171_000
    assert is_overflow(CODELET_USABLE, count, HIGH_OUTPUT)
    assert not is_overflow(CODELET, count, HIGH_OUTPUT)


def test_cache_reads_count_and_cache_writes_do_not() -> None:
    assert used(measured(1, 2, read=30, write=400), CODELET_USABLE.window) == 33


def test_the_subtraction_saturates() -> None:
    assert usable(CODELET_USABLE, Limit(context=4_000, output=8_192)) == 0
    assert is_overflow(CODELET_USABLE, 1, Limit(context=4_000, output=8_192))
    assert not is_overflow(CODELET_USABLE, 0, Limit(context=4_000, output=8_192))


def test_codelet_ignores_an_input_limit() -> None:
    assert usable(CODELET_USABLE, WITH_INPUT) == 368_000
    assert usable(CODELET, WITH_INPUT) == 360_000


# --- reserves, and what is kept free --------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "reserved", "limit", "tokens"),
    [
        (OPENCODE_2025, 50_000, CLAUDE, 191_808),
        (OPENCODE_2025, 50_000, WITH_INPUT, 272_000),
        (OPENCODE, 50_000, CLAUDE, 191_808),
        (OPENCODE, 50_000, WITH_INPUT, 222_000),
        (OPENCODE, 9_000, Limit(context=9_000, input=8_000), 0),
        (OPENCODE, None, Limit(context=8_000), 0),
        (OPENCODE, None, Limit(context=9_000, output=10, input=8_000), 7_990),
        (OPENCODE, None, Limit(context=32_768, output=32_768), 768),
        (FOLDMARK, 50_000, CLAUDE, 150_000),
        (FOLDMARK, 50_000, WITH_INPUT, 222_000),
        (FOLDMARK, 50_000, Limit(context=100_000, output=1_000), 50_000),
        (FOLDMARK, 0, CLAUDE, 200_000),
        (FOLDMARK, 9_000, Limit(context=8_000), 0),
        (FOLDMARK, None, Limit(context=8_000), 6_000),
        (FOLDMARK, None, Limit(context=32_768, output=32_768), 24_576),
        (FOLDMARK, None, Limit(context=40_000, output=30_000, input=10_000), 7_500),
    ],
)
def test_foldmark_honors_every_reserve_and_keeps_at_most_a_quarter_free(
    policy: Policy, reserved: int | None, limit: Limit, tokens: int
) -> None:
    assert usable(policy.adjusted(reserved=reserved), limit) == tokens


def test_tokens_exceed_a_window_even_if_compaction_is_not_automatic() -> None:
    policy = FOLDMARK.adjusted(auto=False)
    limit = Limit(context=1_000, output=100)
    assert exceeds(policy, 900, limit)
    assert not is_overflow(policy, 900, limit)
    assert not exceeds(policy, 10**9, Limit(context=0))
