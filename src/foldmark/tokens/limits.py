"""The token limits of models.

They come from a dated snapshot in this package, which is read once, at the first lookup. This
module does not know how much of a window is usable, asks no provider, and never guesses: a model
that is in neither the snapshot nor the overrides raises `UnknownModel`.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from foldmark.errors import UnknownModel
from foldmark.policy import check_tokens

T = TypeVar("T")

# Providers of their own models: their limits are used for a model named without a provider.
MAKERS = frozenset(
    {
        *("alibaba", "anthropic", "cohere", "deepseek", "google", "llama", "minimax", "mistral"),
        *("moonshotai", "openai", "perplexity", "stepfun", "xai", "xiaomi", "zai", "zhipuai"),
    }
)

# Full dates only: a shorter one may be another model (gpt-4-1106 has 16 times gpt-4's window).
_RELEASE = re.compile(r"-(?:latest|20\d\d(-?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01]))$")


class Limit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model's window in tokens; `context` 0 means unlimited, `output` 0 means unknown."""

    context: int
    output: int = 0
    input: int | None = None

    def __post_init__(self) -> None:
        check_tokens(context=self.context, output=self.output, input=self.input or 0)


# Used if neither a window nor a known model is configured.
DEFAULT_LIMIT = Limit(context=200_000)


class KnownModel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model of one provider, named `provider:model`."""

    name: str
    limit: Limit


class _Snapshot(msgspec.Struct, frozen=True):
    models: tuple[KnownModel, ...]


def model_limits(name: str, overrides: Mapping[str, Limit] | None = None) -> Limit:
    """The limits of a model: from the overrides (exact, then longest pattern), or the snapshot."""
    model = _resolve(name.lower())
    if overrides:
        names = map(normalized_name, (name, model.name) if model else (name,))
        if (limit := value_for_name(overrides, names)) is not None:
            return limit
    if model is None:
        raise UnknownModel(name, _nearest(name.lower()))
    return model.limit


def known_limits(name: str) -> Limit | None:
    """The limits of a model in the snapshot, or None."""
    model = _resolve(name.lower())
    return model.limit if model else None


def limits_or_default(name: str, *, is_explicit: bool) -> Limit:
    """The limits of a model, or the default; raises UnknownModel if the user named the model."""
    if is_explicit:
        return model_limits(name)
    return known_limits(name) or DEFAULT_LIMIT


def limits_with_window(name: str, window: int) -> Limit:
    """The user's own window, with the output limit of the model if it is known."""
    limit = known_limits(name)
    return Limit(context=window, output=limit.output) if limit else Limit(context=window)


def known_models() -> tuple[str, ...]:
    """All names in the snapshot, as `provider:model`, sorted."""
    return tuple(model.name for model in _snapshot())


@cache
def _snapshot() -> tuple[KnownModel, ...]:
    data = Path(__file__).with_name("limits.json").read_bytes()
    return msgspec.json.decode(data, type=_Snapshot).models


@cache
def _index() -> tuple[dict[str, KnownModel], dict[str, list[KnownModel]]]:
    """The models by lower-case name, and by name without the provider."""
    full = {model.name.lower(): model for model in _snapshot()}
    bare: dict[str, list[KnownModel]] = {}
    for name, model in full.items():
        bare.setdefault(name.partition(":")[2], []).append(model)
    return full, bare


def normalized_name(name: str) -> str:
    """The name in lower case with a colon after the provider: `openai:gpt-5`."""
    provider, slash, model = name.lower().partition("/")
    return f"{provider}:{model}" if slash and ":" not in provider else name.lower()


@lru_cache(maxsize=1024)
def _resolve(name: str) -> KnownModel | None:
    model = _lookup(name)
    if model is None and (release := _RELEASE.search(name)):
        model = _lookup(name[: release.start()])
    return model


def _lookup(name: str) -> KnownModel | None:
    full, bare = _index()
    return full.get(normalized_name(name)) or _unanimous(name, bare.get(name, []))


def _unanimous(name: str, offers: list[KnownModel]) -> KnownModel | None:
    """The model behind several offers: its maker's, or any if all have the same limits."""
    offers = [offer for offer in offers if _is_by_maker(offer)] or offers
    if len(offers) == 1:
        return offers[0]
    limits = {offer.limit for offer in offers}
    return KnownModel(name, limits.pop()) if len(limits) == 1 else None


def _is_by_maker(model: KnownModel) -> bool:
    return model.name.partition(":")[0] in MAKERS


def value_for_name(table: Mapping[str, T], names: Iterable[str]) -> T | None:
    """The value for one of these normalized names: an exact match, else the longest pattern."""
    names, values = tuple(names), {normalized_name(key): value for key, value in table.items()}
    for name in names:
        if name in values:
            return values[name]
    patterns = [key for key in values if any(fnmatchcase(name, key) for name in names)]
    return values[max(patterns, key=lambda key: (len(key), key))] if patterns else None


def _nearest(name: str) -> tuple[str, ...]:
    full, bare = _index()
    if rivals := bare.get(name):
        return tuple(model.name for model in rivals[:3])
    if ":" in normalized_name(name):
        near = get_close_matches(normalized_name(name), full)
        return tuple(full[key].name for key in near)
    near = get_close_matches(name, bare)
    return tuple(max(bare[key], key=_is_by_maker).name for key in near)
