"""Policies: every threshold and rule as one frozen value, and the presets.

This module is data only. The budget, prune, tail and view modules read these rules; none of them
depends on the name of a preset.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, TypeVar

from msgspec.structs import replace

from .errors import BadPolicy
from .model.values import Frozen

Reserve = Literal["none", "output", "buffer"]
Usage = Literal["input", "output", "cache.read", "cache.write"]
Cut = Literal["pairs", "batches", "thinking", "roles"]
Threshold = int | float
QUESTION = "What did we do so far?"  # the text of a marker in the view
Fallback = Literal["prefix", "serial", "chunks", "tight"]
Prompts = Literal["foldmark", "000", "001"]
T = TypeVar("T", bound=Frozen)


def check_tokens(**values: object) -> None:
    """Raise BadPolicy for a value that is not a number of tokens."""
    for name, tokens in values.items():
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise BadPolicy(f"{name} must be a whole number of tokens, 0 or more, not {tokens!r}")


def _check_threshold(threshold: Threshold | None) -> None:
    if threshold is None:
        return
    if not 0 < threshold < float("inf") or (threshold > 1 and threshold != int(threshold)):
        raise BadPolicy(
            f"the threshold is {threshold}; it must be a fraction like 0.8 or a number of tokens"
        )


class WindowRules(Frozen):
    """How much of a window may be used, and what counts as overflow."""

    counted: tuple[Usage, ...] = ("input", "output", "cache.read", "cache.write")
    prefer_total: bool = True
    preflight: bool = False  # also estimate before sending, and use the larger figure
    ratio: float | None = None  # usable is this share of the context; other rules are ignored
    knows_input_limit: bool = True
    below_input: Reserve = "none"  # kept free below limit.input, if the model has one
    below_context: Reserve = "output"  # kept free below the context otherwise
    reserved: int | None = None  # the user's own value for the buffer
    honor_reserved: bool = False  # use `reserved` regardless of the two rules above
    buffer: int = 20_000
    output_cap: int = 32_000
    output_unknown_is_cap: bool = True
    largest_reserve: float = 1.0  # the largest share of the context that may be kept free
    clamp: bool = True  # usable is never negative
    inclusive: bool = True  # exactly `usable` tokens are already an overflow
    threshold: Threshold | None = None  # a fraction of the context, or a number of tokens
    thresholds: Mapping[str, Threshold] = {}  # the same per model, by name or pattern

    def __post_init__(self) -> None:
        """Raise BadPolicy for values that make no sense."""
        check_tokens(reserved=self.reserved or 0, buffer=self.buffer, output_cap=self.output_cap)
        for threshold in (self.threshold, *self.thresholds.values()):
            _check_threshold(threshold)


class PruneRules(Frozen):
    """Which old tool outputs are hidden."""

    on: bool = True
    turns: int = 2
    protect: int = 40_000
    minimum: int | None = 20_000
    protected_tools: tuple[str, ...] = ("skill",)
    stop_at_pruned: bool = True
    stop_at_summary: bool = True  # at every summary message, complete or not
    attachments: bool = False  # also count the files attached to an output
    scale: float | None = None  # protect at most this share of usable, with half as the minimum
    superseded: bool = False
    duplicated: bool = False
    keep_errors: int = 0  # keep outputs of failed commands up to this many tokens
    keep_small: int = 0  # keep outputs up to this many tokens: placeholders are not smaller
    keep_unread: bool = False  # keep outputs that were not sent to the model yet
    inside_turns: bool = False  # protect the last turns only up to `protect` tokens


class TailRules(Frozen):
    """How many recent messages stay verbatim across a pivot."""

    on: bool = True
    tokens: int | None = None  # the user's own value
    fraction: float = 0.25  # of usable, without such a value
    min_tokens: int = 2_000
    max_tokens: int = 15_000
    by_json: bool = True  # measure the JSON of the messages, not the sum of their parts
    cuts: tuple[Cut, ...] = ()  # what a split of a turn must respect; if empty, any split is valid
    keep_newest: bool = False  # if everything fits the tail, still compact half and keep half
    capped: bool = False  # limit the tail to the free space in the window
    share: float = 0.12  # of a requested view size: a digest uses the rest better than a tail

    def __post_init__(self) -> None:
        """Raise BadPolicy for values that make no sense."""
        check_tokens(tail_tokens=self.tokens or 0)


class ViewRules(Frozen):
    """How the log is rendered for a model."""

    marker: str = QUESTION
    placeholder: str = "[Old tool result content cleared]"
    interrupted: str = "[Tool execution was interrupted]"
    dangling_tail: Literal["everything", "nothing"] = "nothing"
    old_pivots: bool = False  # show earlier pivots that are in the tail
    valid: bool = False  # fix what providers refuse: roles, repeated call ids, empty messages
    user_text: int = 0  # tokens for the user's own text from before a pivot
    summary: int = 4_000  # tokens reserved for a summary
    longest_output: float | None = None  # share of usable; longer outputs lose their middle


class CompactRules(Frozen):
    """How a summary is made, and its limits. The digest is always the last fallback."""

    fallbacks: tuple[Fallback, ...] = ("serial", "chunks", "tight")
    prompts: Prompts = "001"
    digest: bool = False  # also append the digest to a model's summary
    both_ends: bool = False  # truncate outputs in the middle, not at the end
    output_chars: int = 2_000  # characters per output in the text that a model summarizes
    calls: int = 12  # the most model calls for one compaction
    retries: int = 2  # of these, for one request that was throttled or failed
    seconds: float = 600.0
    request_seconds: float = 180.0
    cost: float | None = None  # in dollars
    mask: bool = True  # mask secrets
    resume: str = "Continue if you have next steps"  # the synthetic user message after a pivot
    always_resume: bool = False  # after every split turn, not only if a user message is needed
    futile: float = 0.1  # a compaction that frees a smaller share of the view is no progress

    def __post_init__(self) -> None:
        """Raise BadPolicy for values that make no sense."""
        check_tokens(calls=self.calls, retries=self.retries, output_chars=self.output_chars)


class Policy(Frozen):
    """All thresholds and rules of a session."""

    name: str
    auto: bool = True
    estimate: str = "round4"
    window: WindowRules = WindowRules()
    prune: PruneRules = PruneRules()
    tail: TailRules = TailRules()
    view: ViewRules = ViewRules()
    compact: CompactRules = CompactRules()

    def adjusted(
        self,
        *,
        auto: bool | None = None,
        prune: bool | None = None,
        reserved: int | None = None,
        threshold: Threshold | None = None,
        tail_tokens: int | None = None,
        output_cap: int | None = None,
    ) -> "Policy":
        """The same policy with the user's own settings applied."""
        window = {"reserved": reserved, "threshold": threshold, "output_cap": output_cap}
        return replace(
            changed(self, auto=auto),
            window=changed(self.window, **window),
            tail=changed(self.tail, tokens=tail_tokens),
            prune=changed(self.prune, on=prune),
        )

    def in_environment(self, environment: Mapping[str, str]) -> "Policy":
        """The same policy without what environment variables disable."""
        return self.adjusted(
            auto=False if _is_set(environment, "DISABLE_AUTOCOMPACT") else None,
            prune=False if _is_set(environment, "DISABLE_PRUNE") else None,
        )


def changed(rules: T, **changes: object) -> T:
    """These rules with the changes that are not None."""
    return replace(rules, **{name: value for name, value in changes.items() if value is not None})


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return any(
        environment.get(f"{prefix}_{name}", "").strip().lower() in {"1", "true", "yes", "on"}
        for prefix in ("FOLDMARK", "OPENCODE")
    )


# --- presets: each version of the specification, and our own ----------------------------------

_NO_PRUNE = PruneRules(on=False)
_NO_TAIL = TailRules(on=False)
_SINCE_2025 = ("input", "cache.read", "output")
# Send the history to the model unchanged if it fits.
_AS_MESSAGES = CompactRules(
    fallbacks=("prefix", "serial", "chunks", "tight"), prompts="000", always_resume=True
)
_AS_TEXT = CompactRules(always_resume=True)

FOLDMARK = Policy(
    name="foldmark",
    estimate="classes",
    window=WindowRules(
        preflight=True,
        below_input="buffer",
        below_context="output",
        honor_reserved=True,
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
        user_text=8_000,
        summary=6_000,
        longest_output=0.3,
    ),
    compact=CompactRules(
        fallbacks=("prefix", "serial", "chunks", "tight"),
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
    compact=_AS_MESSAGES,
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
    compact=_AS_MESSAGES,
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
    compact=_AS_MESSAGES,
)

PRESETS = {
    policy.name: policy
    for policy in (FOLDMARK, OPENCODE, OPENCODE_2025, OPENCODE_BUFFER, CODELET, CODELET_USABLE)
}


def preset(name: str) -> Policy:
    """The preset with this name; raises BadPolicy if there is none."""
    if name in PRESETS:
        return PRESETS[name]
    nearest = get_close_matches(name, PRESETS, n=1)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    raise BadPolicy(f"there is no policy {name!r}.{hint} Policies: {', '.join(PRESETS)}")
