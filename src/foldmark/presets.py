"""The presets: each version of the spec, and our own, as data."""

from difflib import get_close_matches

from .errors import BadPolicy
from .policy import CompactRules, Policy, PruneRules, TailRules, ViewRules, WindowRules

_NO_PRUNE = PruneRules(on=False)
_NO_TAIL = TailRules(on=False)
_SINCE_2025 = ("input", "cache.read", "output")
# All that was said before goes to the model as it is, where that fits.
_AS_IT_IS = CompactRules(
    rungs=("prefix", "serial", "chunks", "tight"), prompts="000", always_resume=True
)
_AS_TEXT = CompactRules(always_resume=True)

FOLDMARK = Policy(
    name="foldmark",
    estimate="classes",
    window=WindowRules(
        preflight=True,
        below_input="buffer",
        below_context="output",
        honour_reserved=True,
        largest_reserve=0.25,
    ),
    prune=PruneRules(
        stop_at_pruned=False,
        stop_at_summary=False,
        attachments=True,
        scale=0.25,
        superseded=True,
        duplicated=True,
        keep_errors=2_000,
        keep_small=60,
        keep_unread=True,
        inside_turns=True,
    ),
    tail=TailRules(
        by_json=False, cuts=("pairs", "batches", "thinking"), keep_newest=True, capped=True
    ),
    view=ViewRules(
        placeholder="[{what}: {size} pruned; recall {handle}]",
        valid=True,
        words=8_000,
        summary=6_000,
        longest=0.3,
    ),
    compact=CompactRules(
        rungs=("prefix", "serial", "chunks", "tight"),
        prompts="foldmark",
        digest=True,
        both_ends=True,
        resume="Go on with what was being done.",
    ),
)

OPENCODE = Policy(
    name="opencode",
    window=WindowRules(below_input="buffer", below_context="output"),
    view=ViewRules(dangling_tail="everything", old_pivots=True),
    compact=_AS_TEXT,
)

OPENCODE_2025 = Policy(
    name="opencode-2025",
    window=WindowRules(counted=_SINCE_2025, prefer_total=False, clamp=False, inclusive=False),
    tail=_NO_TAIL,
    compact=_AS_IT_IS,
)

OPENCODE_BUFFER = Policy(
    name="opencode-buffer",
    estimate="ceil4",
    window=WindowRules(below_input="buffer", below_context="buffer", clamp=False),
    prune=PruneRules(minimum=None, stop_at_pruned=False),
    view=ViewRules(placeholder="[output truncated by compaction]"),
    compact=_AS_TEXT,
)

CODELET = Policy(
    name="codelet",
    window=WindowRules(counted=_SINCE_2025, prefer_total=False, ratio=0.9, inclusive=False),
    prune=_NO_PRUNE,
    tail=_NO_TAIL,
    compact=_AS_IT_IS,
)

CODELET_USABLE = Policy(
    name="codelet-usable",
    window=WindowRules(
        counted=_SINCE_2025,
        prefer_total=False,
        knows_input_limit=False,
        output_unknown_is_cap=False,
        inclusive=False,
    ),
    prune=_NO_PRUNE,
    tail=_NO_TAIL,
    compact=_AS_IT_IS,
)

PRESETS = {
    policy.name: policy
    for policy in (FOLDMARK, OPENCODE, OPENCODE_2025, OPENCODE_BUFFER, CODELET, CODELET_USABLE)
}


def preset(name: str) -> Policy:
    """The preset of this name."""
    if name in PRESETS:
        return PRESETS[name]
    nearest = get_close_matches(name, PRESETS, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise BadPolicy(f"no policy is called {name!r}.{hint} There are: {', '.join(PRESETS)}")
