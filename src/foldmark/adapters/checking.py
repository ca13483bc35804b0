"""Looks at the settings of an adapter when it is made, and not when it is first asked.

Opens no store and asks nobody; what only a store or a model can tell is told when it is opened.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foldmark.errors import BadInput
from foldmark.io.model_names import provider_and_model
from foldmark.policy import Policy
from foldmark.session.hooks import useful_hooks
from foldmark.session.means import DIGEST
from foldmark.session.settings import load_settings

_BESIDE = frozenset({"fixed", "hooks", "system", "tools"})  # `foldmark.open` has more than settings


def check_settings(where: str | Path | None, settings: Mapping[str, Any]) -> None:
    """Refuse what `foldmark.open` would refuse, as far as it can be told before."""
    if "store" in settings:
        raise BadInput("the store is the first argument, and is not given as store=")
    useful_hooks(settings.get("hooks", ()))
    given = {name: held for name, held in settings.items() if name not in _BESIDE}
    policy = given.pop("policy", None)
    own = policy if isinstance(policy, Policy) else None
    summarizer = given.pop("summarizer", None)
    is_named = summarizer is None or isinstance(summarizer, str)
    given["summarizer"] = summarizer if is_named else DIGEST  # an object answers in its place
    chosen = load_settings(store=where, policy=policy if own is None else None, **given)
    chosen.rules(own)
    chosen.limit()
    if chosen.summarizer not in {None, DIGEST}:
        provider_and_model(str(chosen.summarizer))
