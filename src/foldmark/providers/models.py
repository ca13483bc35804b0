"""Models of providers by name, for summaries and agent steps.

They are reached through pydantic-ai, an optional dependency that takes a second or two to import:
the first model loads it, importing Foldmark does not. A name is always `provider:model`; a provider
may have several names.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from difflib import get_close_matches
from functools import partial
from typing import cast

from foldmark.errors import BadPolicy
from foldmark.summary.protocol import Model
from foldmark.tokens.limits import known_limits, known_models

# pydantic-ai's names for providers with another name in the snapshot of limits.
_IN_LIMITS = {
    "azure-responses": "azure",
    "bedrock": "amazon-bedrock",
    "bedrock-mantle": "amazon-bedrock",
    "fireworks": "fireworks-ai",
    "google-cloud": "google-vertex",
    "google-gla": "google",
    "meta": "llama",
    "openai-chat": "openai",
    "openai-chatgpt": "openai",
    "openai-codex": "openai",
    "openai-responses": "openai",
    "together": "togetherai",
}
# Providers of the same model, used if a provider's own row is not in the snapshot.
_OTHER_PROVIDERS = {"google-vertex": ("google-vertex-anthropic", "google"), "azure": ("openai",)}
# Provider names of the snapshot and of older versions, and pydantic-ai's current names.
_CURRENT_NAMES = {
    "amazon-bedrock": "bedrock",
    "fireworks-ai": "fireworks",
    "google-gla": "google",
    "google-vertex": "google-cloud",
    "togetherai": "together",
}
# Bedrock's model names start with the region whose machines may answer.
_REGION = re.compile(r"^(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[a-z])")


def model_named(name: str, *, base_url: str | None = None, api_key: str | None = None) -> Model:
    """The model `provider:model`. Raises BadPolicy, which says what is missing.

    `base_url` is the address of another server: of the same provider, or an OpenAI-compatible one
    if the provider is `openai` or an unknown name.
    """
    provider, model = provider_and_model(name)
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise BadPolicy(f"base_url is {base_url!r}; it must start with http:// or https://")
    try:
        from .calls import ProviderModel, connect_model  # noqa: PLC0415 - optional and slow
    except ImportError as error:
        package = error.name or "pydantic_ai"
        hint = f"models need the package {package}; run pip install 'foldmark[models]'"
        raise BadPolicy(hint) from None
    connect = partial(connect_model, provider, model, base_url, api_key)
    connect()  # reports missing settings now, not during a compaction
    return ProviderModel(connect, name)


@asynccontextmanager
async def keep_open(model: Model) -> AsyncGenerator[None]:
    """Keep a model's connections open between steps, if it has any."""
    if isinstance(model, AbstractAsyncContextManager):
        async with cast("AbstractAsyncContextManager[object]", model):
            yield
    else:
        yield


# --- names ---------------------------------------------------------------------------------


def limits_name(name: str) -> str:
    """The name under which `limits` lists the model, or a likely one if it is not listed."""
    provider, colon, model = name.partition(":")
    if not colon:
        return name
    provider = provider.removeprefix("gateway/")
    own = _IN_LIMITS.get(provider, provider)
    models = (model, _REGION.sub("", model))
    homes = dict.fromkeys((provider, own, *_OTHER_PROVIDERS.get(own, ())))
    offers = [f"{home}:{model_name}" for home in homes for model_name in models]
    return next((offer for offer in offers if known_limits(offer)), f"{own}:{model}")


def provider_and_model(name: str) -> tuple[str, str]:
    """The current provider name and the model. Raises BadPolicy if the name has no provider."""
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        near = ", ".join(_offers(name))
        hint = f" Did you mean {near}?" if near else ""
        raise BadPolicy(f"{name!r} is not a model name; use provider:model.{hint}")
    return _CURRENT_NAMES.get(provider, provider), model


def _offers(model: str) -> list[str]:
    """Providers' models with this name, or with the most similar name."""
    own = {offer: offer.partition(":")[2] for offer in known_models()}
    same = [offer for offer, model_name in own.items() if model_name == model]
    near = get_close_matches(model, list(own.values()), n=1)
    return (same or [offer for offer, model_name in own.items() if model_name in near])[:3]
