"""The one loop that makes a view fit: prune if that is enough, else compact, and look again.

`fit` decides and changes nothing. It yields what is to be done, a `Prune` or a
`CompactionRequest`; its driver does it and resumes the generator, which then looks again:

    for step in fit(look):
        if isinstance(step, Prune):
            log.mark(step.ordinals, at=now)
        else:
            write_pivot(drive(summarize(prepare(step), limits), model))

An async driver awaits between the steps; the generator holds no lock and asks nobody.
"""

from collections.abc import Callable, Generator
from typing import Literal

from msgspec.structs import replace

from foldmark.tokens.budget import exceeds

from .prune import Prune, tokens_after, view_prune
from .situation import CompactionRequest

PASSES = 4  # pivots after which a view that is too large will not become smaller

FitStep = Prune | CompactionRequest
# Gives the session as it is now, and the tokens that its next request uses.
Look = Callable[[], tuple[CompactionRequest, int]]


def fit(
    look: Look,
    *,
    prune: Literal["if enough", "always", "never"] = "if enough",
    passes: int = PASSES,
) -> Generator[FitStep, None, None]:
    """What brings the view into its window, step by step; nothing if it is in it already.

    A prune is worth making if it is enough, as a pivot would make it useless. After so many
    pivots the loop ends, whether or not the view fits.
    """
    request, used = look()
    if not is_full(request, used):
        return
    if prune != "never" and request.target is None:
        plan = view_prune(request.viewer, request.budget, explain=False)
        if plan.prune and (prune == "always" or _is_enough(plan, look)):
            yield plan
            request, used = look()
            if not is_full(request, used):
                return
    for number in range(passes):
        target = request.target
        if target is not None:  # what missed its target is given less of it at each pass
            target = target * 3 // (3 + number)
        yield replace(request, target=target)
        request, used = look()
        if not is_full(request, used):
            return


def _is_enough(prune: Prune, look: Look) -> bool:
    request, _ = look()
    return not is_full(request, tokens_after(request.viewer, prune, lambda: look()[1]))


def is_full(request: CompactionRequest, used: int) -> bool:
    """Whether so many tokens are too many: for the window, or for the view that is wanted."""
    policy, limit = request.viewer.policy, request.limit
    if request.target is not None and request.viewer.tokens > request.target:
        return True
    if limit is None or (request.auto and not policy.auto):
        return False
    return exceeds(policy, used, limit, request.model)
