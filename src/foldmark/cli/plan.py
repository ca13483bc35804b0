"""`foldmark plan`: what prune and compact would do to a session now, and why."""

import math
from typing import Annotated

import typer

from foldmark.analysis.inspection import newest_model
from foldmark.compaction.plan import Plan, session_plan, tokens_used
from foldmark.compaction.prune import Decision
from foldmark.errors import BadInput, UnknownModel
from foldmark.files import MOST_BYTES, harmless
from foldmark.log.log import handle
from foldmark.log.view import Viewer
from foldmark.model.messages import SessionInfo
from foldmark.model.values import Json
from foldmark.tokens.budget import is_overflow, usable
from foldmark.tokens.limits import Limit, model_limits

from .options import (
    DEFAULT_POLICY,
    AsJson,
    File,
    FormatName,
    Lenient,
    MaxSize,
    Pick,
    PolicyName,
    Wanted,
    opened,
    policy_named,
)
from .planned import Planned, report
from .tables import show, show_json

EXAMPLE = "Example: foldmark plan session.json --model anthropic:claude-sonnet-4-5"


def _fraction_or_tokens(text: str | float) -> float:
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise typer.BadParameter(f"{text!r} is neither a fraction like 0.8 nor a number of tokens")
    return threshold


ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER:NAME",
        help="The model to plan for; the newest one in the session unless given.",
    ),
]
Window = Annotated[
    int | None, typer.Option("--window", min=1, help="The model's context window in tokens.")
]
Reserved = Annotated[
    int | None, typer.Option("--reserved", help="Tokens to keep free in the window.")
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="X",
        parser=_fraction_or_tokens,
        help="Compact from here on: a fraction of the window, like 0.8, or tokens.",
    ),
]
Auto = Annotated[
    bool | None, typer.Option("--auto/--no-auto", help="Compact by itself on overflow, or never.")
]
Pruning = Annotated[bool | None, typer.Option("--prune/--no-prune", help="Prune, or never.")]


def plan(  # noqa: PLR0913 - each is an option of the command
    file: File,
    *,
    json: AsJson = False,
    policy: PolicyName = DEFAULT_POLICY,
    model: ModelName = None,
    window: Window = None,
    reserved: Reserved = None,
    threshold: Threshold = None,
    auto: Auto = None,
    prune: Pruning = None,
    format: FormatName = None,
    pick: Pick = None,
    lenient: Lenient = False,
    max_size: MaxSize = MOST_BYTES,
) -> None:
    """Show what prune and compact would do to a session now, and why. Nothing is changed."""
    rules = policy_named(policy).adjusted(
        auto=auto, prune=prune, reserved=reserved, threshold=threshold
    )
    wanted = Wanted(format=format, pick=pick, lenient=lenient, max_size=max_size)
    transcript, log = opened(file, rules, wanted)
    name = model or newest_model(log) or ""
    limit = _limits(name, file) if window is None else narrowed(name, window)
    viewer = Viewer(log, rules, model=name, usable=usable(rules, limit, name))
    made = planned(viewer, limit, transcript.info, model=name)
    if json:
        show_json(as_json(made))
    else:
        show(*report(made))


def _limits(model: str, file: str) -> Limit:
    if not model:
        cause = "no message names a model; give --model PROVIDER:NAME or --window N"
        raise BadInput(cause, source=harmless(file))
    return model_limits(model)


def narrowed(model: str, window: int) -> Limit:
    """A window of the user's, with what is known of the model's output."""
    try:
        known = model_limits(model)
    except UnknownModel:
        return Limit(context=window)
    return Limit(context=window, output=known.output)


def planned(viewer: Viewer, limit: Limit, info: SessionInfo, *, model: str) -> Planned:
    """The plan for a session, and what the session would be after its first half."""
    made = session_plan(viewer, limit, model=model, explain=True)
    return Planned(
        plan=made,
        log=viewer.log,
        info=info,
        policy=viewer.policy,
        model=model,
        limit=limit,
        pruned_tokens=_tokens_after(viewer, made) if made.prune.prune else made.tokens,
    )


def _tokens_after(viewer: Viewer, made: Plan) -> int:
    """What the session would have once the plan's outputs are hidden: tried, and taken back."""
    log, before, measured = viewer.log, viewer.tokens, viewer.log.measured
    log.mark(made.prune.ordinals, at=1)
    freed, tokens = before - viewer.tokens, tokens_used(viewer)
    log.unmark(made.prune.ordinals)
    log.measured = measured  # marks make the log forget it
    # A policy that only measures knows nothing until the next answer.
    return tokens if viewer.policy.window.preflight else max(0, made.tokens - freed)


def as_json(made: Planned) -> Json:
    """The plan as `--json` prints it."""
    after = made.pruned_tokens
    return {
        "policy": made.policy.name,
        "model": made.model or None,
        "window": made.limit.context,
        "overflow": made.plan.overflow,
        "usable": made.plan.usable,
        "tokens": made.plan.tokens,
        "pressure": made.plan.pressure,
        "freed": made.plan.prune.tokens,
        "after_prune": {
            "tokens": after,
            "pressure": made.pruned_pressure,
            "overflow": is_overflow(made.policy, after, made.limit, made.model),
        },
        "auto": made.policy.auto,
        "folded": len(made.plan.fold.head) if made.plan.fold else 0,
        "prune": [_decision(held) for held in made.plan.prune.prune],
        "keep": [_decision(held) for held in made.plan.prune.keep],
        "tail_start": made.plan.tail_start,
    }


def _decision(held: Decision) -> Json:
    return {
        "part": held.part,
        "handle": handle(held.ordinal),
        "tool": held.tool,
        "tokens": held.tokens,
        "reason": held.reason,
    }
