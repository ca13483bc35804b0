"""How many tokens a model takes.

Reads a dated snapshot that is packaged with Foldmark, on the first question and once only.
It does not know how much of a window is usable, asks no provider, and never guesses: a model
that is in neither the snapshot nor the overrides is an `UnknownModel`.
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

# Providers that sell what they make: theirs are the limits of a model named without a provider.
MAKERS = frozenset(
    {
        *("alibaba", "anthropic", "cohere", "deepseek", "google", "llama", "minimax", "mistral"),
        *("moonshotai", "openai", "perplexity", "stepfun", "xai", "xiaomi", "zai", "zhipuai"),
    }
)

# Only full dates: a shorter one may be another model (gpt-4-1106 has 16 times the window of gpt-4).
_RELEASE = re.compile(r"-(?:latest|20\d\d(-?)(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01]))$")


class Limit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model's window in tokens; `context` 0 is unlimited, `output` 0 is not known."""

    context: int
    output: int = 0
    input: int | None = None

    def __post_init__(self) -> None:
        check_tokens(context=self.context, output=self.output, input=self.input or 0)


# What is assumed where nobody has told a window, and no model whose window is known.
DEFAULT_LIMIT = Limit(context=200_000)


class KnownModel(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A model as one provider offers it, named `provider:model`."""

    name: str
    limit: Limit


class _Snapshot(msgspec.Struct, frozen=True):
    models: tuple[KnownModel, ...]


def model_limits(name: str, overrides: Mapping[str, Limit] | None = None) -> Limit:
    """The limits of a model: from the overrides (exact, then longest pattern), or the snapshot."""
    model = _resolved(name.lower())
    if overrides:
        names = (
            (normalized_name(name), normalized_name(model.name))
            if model
            else (normalized_name(name),)
        )
        if (limit := value_for_name(overrides, names)) is not None:
            return limit
    if model is None:
        raise UnknownModel(name, _nearest(name.lower()))
    return model.limit


def known_limits(name: str) -> Limit | None:
    """The limits of a model that the snapshot has; None if it has no such model."""
    model = _resolved(name.lower())
    return model.limit if model else None


def limits_or_default(name: str, *, is_explicit: bool) -> Limit:
    """The limits of a model, else the usual ones; UnknownModel where the user has named it."""
    if is_explicit:
        return model_limits(name)
    return known_limits(name) or DEFAULT_LIMIT


def limits_with_window(name: str, window: int) -> Limit:
    """A window of the user's own, with what is known of the model's output."""
    known = known_limits(name)
    return Limit(context=window, output=known.output) if known else Limit(context=window)


def known_models() -> tuple[str, ...]:
    """Every name in the snapshot, as `provider:model`, sorted."""
    return tuple(model.name for model in _known())


@cache
def _known() -> tuple[KnownModel, ...]:
    data = Path(__file__).with_name("limits.json").read_bytes()
    return msgspec.json.decode(data, type=_Snapshot).models


@cache
def _index() -> tuple[dict[str, KnownModel], dict[str, list[KnownModel]]]:
    """The models by their names in lower case, and by these without a provider."""
    full = {model.name.lower(): model for model in _known()}
    bare: dict[str, list[KnownModel]] = {}
    for name, model in full.items():
        bare.setdefault(name.partition(":")[2], []).append(model)
    return full, bare


def normalized_name(name: str) -> str:
    """The name in lower case, its provider before a colon: `OpenAI/gpt-5` as `openai:gpt-5`."""
    provider, slash, model = name.lower().partition("/")
    return f"{provider}:{model}" if slash and ":" not in provider else name.lower()


@lru_cache(maxsize=1024)
def _resolved(name: str) -> KnownModel | None:
    model = _named(name)
    if model is None and (release := _RELEASE.search(name)):
        model = _named(name[: release.start()])
    return model


def _named(name: str) -> KnownModel | None:
    full, bare = _index()
    return full.get(normalized_name(name)) or _agreed(name, bare.get(name, []))


def _agreed(name: str, offers: list[KnownModel]) -> KnownModel | None:
    """The one model behind several offers: its maker's, or what all of them say."""
    offers = [offer for offer in offers if _maker_made(offer)] or offers
    if len(offers) == 1:
        return offers[0]
    limits = {offer.limit for offer in offers}
    return KnownModel(name, limits.pop()) if len(limits) == 1 else None


def _maker_made(model: KnownModel) -> bool:
    return model.name.partition(":")[0] in MAKERS


def value_for_name(table: Mapping[str, T], names: Iterable[str]) -> T | None:
    """The value for one of these folded names: its own, else that of the longest pattern."""
    names, folded = tuple(names), {normalized_name(key): value for key, value in table.items()}
    for name in names:
        if name in folded:
            return folded[name]
    patterns = [key for key in folded if any(fnmatchcase(name, key) for name in names)]
    return folded[max(patterns, key=lambda key: (len(key), key))] if patterns else None


def _nearest(name: str) -> tuple[str, ...]:
    full, bare = _index()
    if rivals := bare.get(name):
        return tuple(model.name for model in rivals[:3])
    if ":" in normalized_name(name):
        near = get_close_matches(normalized_name(name), full)
        return tuple(full[key].name for key in near)
    near = get_close_matches(name, bare)
    return tuple(max(bare[key], key=_maker_made).name for key in near)
