"""Adjusting a policy: thresholds, reserves, environment variables, names of presets."""

import pytest
from msgspec.structs import replace

from foldmark.errors import BadPolicy
from foldmark.policy import FOLDMARK, OPENCODE, PRESETS, Policy, Threshold, preset
from foldmark.tokens.budget import is_overflow, threshold_for, usable
from foldmark.tokens.limits import Limit

CLAUDE = Limit(context=200_000, output=8_192)
AUTOCOMPACT = ("OPENCODE_DISABLE_AUTOCOMPACT", "FOLDMARK_DISABLE_AUTOCOMPACT")
PRUNE = ("OPENCODE_DISABLE_PRUNE", "FOLDMARK_DISABLE_PRUNE")
YES = ("1", "true", "TRUE", " yes ", "on")
NO = ("", "0", "false", "False", "no", "off")


def with_thresholds(**thresholds: Threshold) -> Policy:
    """Our own policy with thresholds for models (`claude_` stands for `claude-`)."""
    by_model = {name.replace("_", "-"): threshold for name, threshold in thresholds.items()}
    return replace(FOLDMARK, window=replace(FOLDMARK.window, thresholds=by_model))


# --- thresholds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "tokens"),
    [(0.5, 100_000), (0.001, 200), (150_000, 150_000), (60_000.0, 60_000)],
)
def test_a_threshold_is_a_fraction_up_to_one_and_tokens_above(
    threshold: Threshold, tokens: int
) -> None:
    assert usable(FOLDMARK.adjusted(threshold=threshold), CLAUDE) == tokens


@pytest.mark.parametrize("threshold", [1, 1.0, 200_000, 10**9])
def test_a_threshold_never_exceeds_the_usable_window(threshold: Threshold) -> None:
    assert usable(FOLDMARK.adjusted(threshold=threshold), CLAUDE) == 191_808


def test_a_threshold_decides_about_overflow() -> None:
    policy = FOLDMARK.adjusted(threshold=100_000)
    assert not is_overflow(policy, 99_999, CLAUDE)
    assert is_overflow(policy, 100_000, CLAUDE)
    assert not is_overflow(FOLDMARK, 100_000, CLAUDE)


def test_a_threshold_works_under_every_preset() -> None:
    for policy in PRESETS.values():
        assert usable(policy.adjusted(threshold=0.25), CLAUDE) == 50_000


def test_a_model_has_its_own_threshold_by_its_exact_name() -> None:
    policy = with_thresholds(claude_small=0.5, gpt_large=90_000).adjusted(threshold=0.75)
    assert usable(policy, CLAUDE, "claude-small") == 100_000
    assert usable(policy, CLAUDE, "gpt-large") == 90_000
    assert usable(policy, CLAUDE, "claude-smaller") == 150_000
    assert usable(policy, CLAUDE) == 150_000


def test_the_longest_pattern_wins_unless_a_name_is_exact() -> None:
    thresholds: dict[str, Threshold] = {"*": 1_000, "claude-*": 2_000, "claude-haiku-*": 3_000}
    rules = replace(FOLDMARK.window, thresholds=thresholds | {"claude-h": 4_000})
    assert threshold_for(rules, "gpt-4") == 1_000
    assert threshold_for(rules, "claude-opus") == 2_000
    assert threshold_for(rules, "claude-haiku-4") == 3_000
    assert threshold_for(rules, "claude-h") == 4_000


def test_overflow_uses_the_threshold_of_the_model() -> None:
    policy = with_thresholds(claude_small=0.5)
    assert is_overflow(policy, 100_000, CLAUDE, "claude-small")
    assert not is_overflow(policy, 100_000, CLAUDE, "claude-large")


@pytest.mark.parametrize("threshold", [0, -1, -0.5, 1.5, 100.25])
def test_a_senseless_threshold_is_refused(threshold: Threshold) -> None:
    with pytest.raises(BadPolicy, match=r"threshold is .*fraction like 0\.8 or a number"):
        FOLDMARK.adjusted(threshold=threshold)


def test_a_negative_reserve_is_refused() -> None:
    problem = "reserved must be a whole number of tokens, 0 or more, not -1"
    with pytest.raises(BadPolicy, match=problem):
        FOLDMARK.adjusted(reserved=-1)
    with pytest.raises(BadPolicy):
        OPENCODE.adjusted(reserved=-20_000)


# --- environment variables ------------------------------------------------------------------


@pytest.mark.parametrize("name", AUTOCOMPACT)
@pytest.mark.parametrize("value", YES)
def test_the_environment_switches_automatic_compaction_off(name: str, value: str) -> None:
    policy = FOLDMARK.in_environment({name: value})
    assert (policy.auto, policy.prune.on) == (False, True)
    assert not is_overflow(policy, 10**9, CLAUDE)


@pytest.mark.parametrize("name", PRUNE)
@pytest.mark.parametrize("value", YES)
def test_the_environment_switches_pruning_off(name: str, value: str) -> None:
    policy = FOLDMARK.in_environment({name: value})
    assert (policy.auto, policy.prune.on) == (True, False)


@pytest.mark.parametrize("name", [*AUTOCOMPACT, *PRUNE])
@pytest.mark.parametrize("value", NO)
def test_a_false_value_switches_nothing_off(name: str, value: str) -> None:
    assert FOLDMARK.in_environment({name: value}) == FOLDMARK


def test_an_empty_environment_changes_nothing() -> None:
    for policy in PRESETS.values():
        assert policy.in_environment({}) == policy
        assert policy.in_environment({"DISABLE_PRUNE": "1", "PATH": "1"}) == policy


def test_the_environment_switches_nothing_on() -> None:
    policy = FOLDMARK.adjusted(auto=False, prune=False)
    assert policy.in_environment(dict.fromkeys((*AUTOCOMPACT, *PRUNE), "0")) == policy


# --- adjusting, and names -------------------------------------------------------------------


def test_adjusting_nothing_changes_nothing_and_a_preset_itself_never_changes() -> None:
    for name, policy in PRESETS.items():
        assert policy.adjusted() == policy
        policy.adjusted(auto=False, prune=False, reserved=1, threshold=0.1, tail_tokens=1)
        assert preset(name) == policy
        assert policy.auto


def test_adjusting_changes_only_the_given_rules() -> None:
    adjusted = FOLDMARK.adjusted(tail_tokens=5, prune=False)
    assert adjusted.tail == replace(FOLDMARK.tail, tokens=5)
    assert adjusted.prune == replace(FOLDMARK.prune, on=False)
    assert (adjusted.window, adjusted.view) == (FOLDMARK.window, FOLDMARK.view)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_found_by_its_name(name: str) -> None:
    assert preset(name).name == name


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("opencod", "opencode"), ("codelet-useable", "codelet-usable"), ("Foldmark", "foldmark")],
)
def test_an_unknown_preset_names_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(BadPolicy, match=rf"{typed!r}\. Did you mean {meant!r}") as caught:
        preset(typed)
    assert all(name in str(caught.value) for name in PRESETS)


def test_a_name_unlike_any_preset_lists_all() -> None:
    with pytest.raises(BadPolicy) as caught:
        preset("zzz")
    assert "did you mean" not in str(caught.value)
    assert all(name in str(caught.value) for name in PRESETS)


# --- senseless values -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tail_tokens", "output_cap"])
def test_numbers_of_tokens_must_not_be_negative(name: str) -> None:
    with pytest.raises(BadPolicy):
        FOLDMARK.adjusted(**{name: -1})  # pyright: ignore[reportArgumentType]


def test_the_threshold_of_a_single_model_is_checked_too() -> None:
    with pytest.raises(BadPolicy):
        usable(with_thresholds(claude_small=-3), CLAUDE, "claude-small")
