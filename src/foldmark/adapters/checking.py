"""Looks at the settings of an adapter when it is made, and not when it is first asked.

Opens no store and asks nobody; what only a store or a model can tell is told when it is opened.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foldmark.errors import BadInput
from foldmark.providers.models import provider_and_model
from foldmark.session.hooks import useful_hooks
from foldmark.session.means import DIGEST
from foldmark.session.opening import chosen_settings

# What `foldmark.open` takes beside the settings.
_BESIDE = frozenset({"fixed", "hooks", "policy", "summarizer", "system", "tools"})


def check_settings(where: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Refuse what `foldmark.open` would refuse, as far as it can be told before."""
    if "store" in settings:
        raise BadInput("the store is the first argument, and is not given as store=")
    useful_hooks(settings.get("hooks", ()))
    given = {name: held for name, held in settings.items() if name not in _BESIDE}
    summarizer = settings.get("summarizer")
    chosen, _ = chosen_settings(where, settings.get("policy"), summarizer, given)
    chosen.limit()
    is_named = summarizer is None or isinstance(summarizer, str)  # else an object answers
    if is_named and chosen.summarizer not in {None, DIGEST}:
        provider_and_model(str(chosen.summarizer))
