"""Who is asked for a summary, as the ladder must know it: within which bounds, in which window."""

import time

from msgspec.structs import replace

from foldmark.errors import UnknownModel
from foldmark.policy import CompactRules
from foldmark.providers.models import limits_name
from foldmark.summary.ladder import USUAL_WINDOW, SummarizerLimits
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.limits import Limit, model_limits

DIGEST = "digest"  # in place of a model's name: nobody is asked


def means(
    rules: CompactRules,
    summarizer: Summarizer | None,
    *,
    model: str,
    limit: Limit | None,
    overflowed: bool = False,
) -> SummarizerLimits:
    """The means of a session with this model and limit; without rungs where nobody can be asked."""
    own = summarizer is not None and summarizer.name == model
    known = limit if own or summarizer is None else _known(summarizer.name)
    return SummarizerLimits(
        rules=rules if summarizer is not None else replace(rules, rungs=()),
        limit=known or limit or Limit(context=USUAL_WINDOW),
        own=own,
        overflowed=overflowed,
        clock=time.monotonic,
    )


def _known(name: str) -> Limit | None:
    try:
        return model_limits(limits_name(name))
    except UnknownModel:
        return None
