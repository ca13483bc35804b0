"""The loop that makes a view fit: prune if that is enough, else compact, and check again.

`fit` makes the decisions and changes nothing. It yields a `Prune` or a `CompactionRequest`; its
driver executes that step and resumes the generator, which checks the session again:

    for step in fit(look):
        if isinstance(step, Prune):
            log.mark(step.ordinals, at=now)
        else:
            write_pivot(drive(summarize(prepare(step), limits), model))

An async driver awaits between the steps; the generator holds no lock and calls no model.
"""

from collections.abc import Callable, Generator
from typing import Literal

from msgspec.structs import replace

from foldmark.tokens.budget import exceeds

from .prune import Prune, tokens_after, view_prune
from .situation import CompactionRequest

PASSES = 4  # further pivots would not make the view smaller

FitStep = Prune | CompactionRequest
# Returns the current state of the session, and the tokens of its next request.
Look = Callable[[], tuple[CompactionRequest, int]]


def fit(
    look: Look,
    *,
    prune: Literal["if enough", "always", "never"] = "if enough",
    passes: int = PASSES,
) -> Generator[FitStep, None, None]:
    """Yield the steps that make the view fit its window; none if it fits already.

    By default, a prune is yielded only if it is enough, because a pivot would make it useless.
    The loop ends after `passes` pivots, even if the view still does not fit.
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
        if target is not None:  # a view that missed its target gets a smaller one at each pass
            target = target * 3 // (3 + number)
        yield replace(request, target=target)
        request, used = look()
        if not is_full(request, used):
            return


def _is_enough(prune: Prune, look: Look) -> bool:
    request, _ = look()
    return not is_full(request, tokens_after(request.viewer, prune, lambda: look()[1]))


def is_full(request: CompactionRequest, used: int) -> bool:
    """Whether this many tokens exceed the window, or the view exceeds its requested size."""
    policy, limit = request.viewer.policy, request.limit
    if request.target is not None and request.viewer.tokens > request.target:
        return True
    if limit is None or (request.auto and not policy.auto):
        return False
    return exceeds(policy, used, limit, request.model)
