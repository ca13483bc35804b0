"""The one loop that makes a view fit: prune if that is enough, else compact, and look again.

`fit` decides and changes nothing. It yields what is to be done, a `Prune` or a `Situation`; its
driver does it and resumes the generator, which then looks at the view as it is:

    for step in fit(request, is_full=is_full, may_prune=may_prune):
        if isinstance(step, Prune):
            log.mark(step.ordinals, at=now)
        else:
            write_pivot(drive(summarize(step, limits), model))

An async driver awaits between the steps; the generator holds no lock and asks nobody.
"""

from collections.abc import Callable, Generator

from msgspec.structs import replace

from foldmark.log.view import view_start

from .prune import Prune, prune_plan
from .situation import CompactionRequest, Situation, prepare

PASSES = 4  # pivots after which a view that is too large will not become smaller


def fit(
    request: CompactionRequest,
    *,
    is_full: Callable[[], bool],
    may_prune: Callable[[Prune], bool],
    passes: int = PASSES,
) -> Generator[Prune | Situation, None, None]:
    """What brings the view into its window, step by step; nothing if it is in it already.

    `may_prune` says whether a prune is worth making: as a rule, whether it is enough, since a
    pivot would make it useless. After so many pivots it ends, whether or not the view fits.
    Raises WindowTooSmall or CompactionStopped if no pivot can help.
    """
    viewer, policy = request.viewer, request.viewer.policy
    if not is_full():
        return
    if request.target is None:
        start = view_start(viewer.log, policy.view)
        plan = prune_plan(viewer.log, policy.prune, start=start, usable=request.room, explain=False)
        if plan.prune and may_prune(plan):
            yield plan
            if not is_full():
                return
    for number in range(passes):
        target = request.target
        if target is not None:  # what missed its target is given less of it at each pass
            target = target * 3 // (3 + number)
        yield prepare(replace(request, target=target))
        if not is_full():
            return
