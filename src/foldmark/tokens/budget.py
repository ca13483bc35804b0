"""How much of a window is usable, how much is used, and whether that is an overflow."""

from foldmark.model.messages import Number, Tokens
from foldmark.policy import Policy, Reserve, Threshold, WindowRules

from .limits import Limit, normalized_name, value_for_name

MAX_TOKENS = 2**53  # larger figures are not plausible measurements


def used(tokens: Tokens, rules: WindowRules) -> int:
    """The tokens that a provider measured, counted by the rules and limited to MAX_TOKENS."""
    cache = tokens.cache or None
    figures = {
        "input": tokens.input,
        "output": tokens.output,
        "cache.read": cache.read if cache else 0,
        "cache.write": cache.write if cache else 0,
    }
    total = tokens.total if rules.prefer_total else 0
    total = total or sum(figures[name] or 0 for name in rules.counted)
    return int(min(max(total, 0), MAX_TOKENS))


def usable(policy: Policy, limit: Limit, model: str = "") -> int:
    """The tokens that a window may contain before it must be compacted."""
    rules = policy.window
    if limit.context == 0:
        return 0  # unlimited: `is_overflow` is always false for it
    if rules.ratio is not None:
        tokens = int(limit.context * rules.ratio)
    elif limit.input and rules.knows_input_limit:
        tokens = limit.input - _reserve(rules, rules.below_input, limit)
    else:
        tokens = limit.context - _reserve(rules, rules.below_context, limit)
    threshold = threshold_for(rules, model)
    if threshold is not None:
        share = int(limit.context * threshold) if threshold <= 1 else int(threshold)
        tokens = min(tokens, share)
    return max(0, tokens) if rules.clamp else tokens


def threshold_for(rules: WindowRules, model: str) -> Threshold | None:
    """The user's threshold for a model: by name, then by the longest pattern, then for all."""
    if not rules.thresholds:
        return rules.threshold  # the usual case; this runs at every step
    threshold = value_for_name(rules.thresholds, (normalized_name(model),))
    return rules.threshold if threshold is None else threshold


def _reserve(rules: WindowRules, kind: Reserve, limit: Limit) -> int:
    if rules.honor_reserved and rules.reserved is not None:
        return rules.reserved
    output = min(limit.output, rules.output_cap)
    if output == 0 and rules.output_unknown_is_cap:
        output = rules.output_cap
    buffer = min(rules.buffer, output) if rules.reserved is None else rules.reserved
    reserve = {"none": 0, "output": output, "buffer": buffer}[kind]
    if rules.largest_reserve < 1:
        reserve = min(reserve, int((limit.input or limit.context) * rules.largest_reserve))
    return reserve


def pressure(count: Number, budget: int) -> float:
    """Used tokens ÷ usable tokens; above 1, the window overflows."""
    if budget <= 0:
        return float("inf") if count > 0 else 0.0
    return count / budget


def is_overflow(policy: Policy, count: Number, limit: Limit, model: str = "") -> bool:
    """Whether this many tokens require a compaction; never if the policy is not automatic."""
    return policy.auto and exceeds(policy, count, limit, model)


def exceeds(policy: Policy, count: Number, limit: Limit, model: str = "") -> bool:
    """Whether this many tokens overflow the model's window, with or without `auto`."""
    if limit.context == 0:
        return False
    budget = usable(policy, limit, model)
    return count >= budget if policy.window.inclusive else count > budget
