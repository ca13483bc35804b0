"""A policy: every threshold and rule as one frozen value, and the presets.

What is here is data. The budget, prune, tail and view read it; none of them asks for the name of
a preset.
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
QUESTION = "What did we do so far?"  # what a marker asks
Rung = Literal["prefix", "serial", "chunks", "tight"]
Prompts = Literal["foldmark", "000", "001"]
T = TypeVar("T", bound=Frozen)


def check_tokens(**figures: object) -> None:
    """Refuse a figure that is no number of tokens."""
    for name, tokens in figures.items():
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
            raise BadPolicy(f"{name} must be a whole number of tokens, 0 or more, not {tokens!r}")


def _check_threshold(threshold: Threshold | None) -> None:
    if threshold is None:
        return
    if not 0 < threshold < float("inf") or (threshold > 1 and threshold != int(threshold)):
        raise BadPolicy(
            f"the threshold is {threshold}; it must be a fraction like 0.8, or a number of tokens"
        )


class WindowRules(Frozen):
    """How much of a window may be used, and when that is exceeded."""

    counted: tuple[Usage, ...] = ("input", "output", "cache.read", "cache.write")
    prefer_total: bool = True
    preflight: bool = False  # also estimate, and take the larger of measured and estimated
    ratio: float | None = None  # usable is this part of the context, and nothing else matters
    knows_input_limit: bool = True
    below_input: Reserve = "none"  # kept free below limit.input, where a model has one
    below_context: Reserve = "output"  # kept free below the context otherwise
    reserved: int | None = None  # the user's own figure for the buffer
    honour_reserved: bool = False  # take it whatever the two rules above say
    buffer: int = 20_000
    output_cap: int = 32_000
    output_unknown_is_cap: bool = True
    largest_reserve: float = 1.0  # of the context: more is never kept free
    clamp: bool = True  # usable is never below nothing
    inclusive: bool = True  # usable itself is already too much
    threshold: Threshold | None = None  # a fraction of the context, or tokens
    thresholds: Mapping[str, Threshold] = {}  # the same for single models, by name or pattern

    def __post_init__(self) -> None:
        """Refuse figures that make no sense."""
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
    stop_at_summary: bool = True  # at any that calls itself one, complete or not
    attachments: bool = False  # files that came with an output count too
    scale: float | None = None  # of usable: protect at most so much; the minimum is half of that
    superseded: bool = False
    duplicated: bool = False
    keep_errors: int = 0  # failed commands' outputs of up to so many tokens stay
    keep_small: int = 0  # so do outputs that are hardly longer than a placeholder
    keep_unread: bool = False  # and those that the model has not been shown yet
    inside_turns: bool = False  # the last turns are spared only up to `protect` tokens


class TailRules(Frozen):
    """How much stays verbatim across a pivot."""

    on: bool = True
    tokens: int | None = None  # the user's own figure
    fraction: float = 0.25
    least: int = 2_000
    most: int = 15_000
    by_json: bool = True  # measure the JSON of the messages, not the sum of their parts
    cuts: tuple[Cut, ...] = ()  # where a turn may be split; none named: anywhere
    keep_newest: bool = False  # something stays even where everything would fit
    capped: bool = False  # never more than the window has left for it
    share: float = 0.12  # of a view of a size that was asked for: a digest says more in the room

    def __post_init__(self) -> None:
        """Refuse figures that make no sense."""
        check_tokens(tail_tokens=self.tokens or 0)


class ViewRules(Frozen):
    """How the log is shown to a model."""

    marker: str = QUESTION
    placeholder: str = "[Old tool result content cleared]"
    interrupted: str = "[Tool execution was interrupted]"
    dangling_tail: Literal["everything", "nothing"] = "nothing"
    old_pivots: bool = False  # show earlier pivots that lie in the tail
    valid: bool = False  # mend what providers refuse: roles, repeated call ids, empty messages
    words: int = 0  # tokens for the user's own words from before a pivot; 0: none
    summary: int = 4_000  # tokens set aside for a summary
    longest: float | None = None  # of usable: a longer output is shown cut in its middle


class CompactRules(Frozen):
    """How a summary is made, and within which bounds. The digest is always the last resort."""

    rungs: tuple[Rung, ...] = ("serial", "chunks", "tight")
    prompts: Prompts = "001"
    digest: bool = False  # it also rides along with a model's summary
    both_ends: bool = False  # outputs are cut in the middle, not at the end
    cut: int = 2_000  # characters of an output in the record that a model summarises
    calls: int = 12  # to models, at most
    retries: int = 2  # of them for one request that was throttled or failed
    seconds: float = 600.0
    request_seconds: float = 180.0
    cost: float | None = None  # in dollars
    mask: bool = True  # secrets
    resume: str = "Continue if you have next steps"  # said in the user's place after a pivot
    always_resume: bool = False  # it is, wherever a turn was cut; else only where it is needed
    futile: float = 0.1  # freeing less than this share of the view is no progress

    def __post_init__(self) -> None:
        """Refuse figures that make no sense."""
        check_tokens(calls=self.calls, retries=self.retries, cut=self.cut)


class Policy(Frozen):
    """All thresholds and rules."""

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
        """The same policy with what a user set for themselves."""
        window = {"reserved": reserved, "threshold": threshold, "output_cap": output_cap}
        return replace(
            changed(self, auto=auto),
            window=changed(self.window, **window),
            tail=changed(self.tail, tokens=tail_tokens),
            prune=changed(self.prune, on=prune),
        )

    def in_environment(self, environment: Mapping[str, str]) -> "Policy":
        """The same policy with what environment variables switch off."""
        return self.adjusted(
            auto=False if _is_set(environment, "DISABLE_AUTOCOMPACT") else None,
            prune=False if _is_set(environment, "DISABLE_PRUNE") else None,
        )


def changed(rules: T, **changes: object) -> T:
    """The same rules with those changes that are not None."""
    return replace(rules, **{name: held for name, held in changes.items() if held is not None})


def _is_set(environment: Mapping[str, str], name: str) -> bool:
    return any(
        environment.get(f"{prefix}_{name}", "").strip().lower() in {"1", "true", "yes", "on"}
        for prefix in ("FOLDMARK", "OPENCODE")
    )


# --- the presets: each version of the spec, and our own ---------------------------------------

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
