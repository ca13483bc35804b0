"""How much of a window is usable, how much is used, and whether that is too much."""

from foldmark.model.messages import Number, Tokens
from foldmark.policy import Policy, Reserve, Threshold, WindowRules

from .limits import Limit, normalized_name, value_for_name

MOST_TOKENS = 2**53  # more is no measurement


def used(tokens: Tokens, rules: WindowRules) -> int:
    """What a provider measured, counted as the rules say, within reason."""
    cache = tokens.cache or None
    figures = {
        "input": tokens.input,
        "output": tokens.output,
        "cache.read": cache.read if cache else 0,
        "cache.write": cache.write if cache else 0,
    }
    total = tokens.total if rules.prefer_total else 0
    total = total or sum(figures[name] or 0 for name in rules.counted)
    return int(min(max(total, 0), MOST_TOKENS))


def usable(policy: Policy, limit: Limit, model: str = "") -> int:
    """The tokens that may stand in the window before it must be compacted."""
    rules = policy.window
    if limit.context == 0:
        return 0  # no limit is known; `is_overflow` never says yes to it
    if rules.ratio is not None:
        room = int(limit.context * rules.ratio)
    elif limit.input and rules.knows_input_limit:
        room = limit.input - _reserve(rules, rules.below_input, limit)
    else:
        room = limit.context - _reserve(rules, rules.below_context, limit)
    own = threshold_for(rules, model)
    if own is not None:
        room = min(room, int(limit.context * own) if own <= 1 else int(own))
    return max(0, room) if rules.clamp else room


def threshold_for(rules: WindowRules, model: str) -> Threshold | None:
    """The user's own threshold for a model: by its name, else the longest pattern, else for all."""
    if not rules.thresholds:
        return rules.threshold  # as a rule: this is asked at every step
    own = value_for_name(rules.thresholds, (normalized_name(model),))
    return rules.threshold if own is None else own


def _reserve(rules: WindowRules, kind: Reserve, limit: Limit) -> int:
    if rules.honor_reserved and rules.reserved is not None:
        return rules.reserved
    output = min(limit.output, rules.output_cap)
    if output == 0 and rules.output_unknown_is_cap:
        output = rules.output_cap
    buffer = min(rules.buffer, output) if rules.reserved is None else rules.reserved
    kept = {"none": 0, "output": output, "buffer": buffer}[kind]
    if rules.largest_reserve < 1:
        kept = min(kept, int((limit.input or limit.context) * rules.largest_reserve))
    return kept


def pressure(count: Number, room: int) -> float:
    """Used ÷ usable; over 1 is too much."""
    if room <= 0:
        return float("inf") if count > 0 else 0.0
    return count / room


def is_overflow(policy: Policy, count: Number, limit: Limit, model: str = "") -> bool:
    """Whether to compact for so many tokens; never where compaction is not automatic."""
    return policy.auto and exceeds(policy, count, limit, model)


def exceeds(policy: Policy, count: Number, limit: Limit, model: str = "") -> bool:
    """Whether so many tokens are too many for a model, whatever is done about it."""
    if limit.context == 0:
        return False
    room = usable(policy, limit, model)
    return count >= room if policy.window.inclusive else count > room
