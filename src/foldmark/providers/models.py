"""Models of a provider by their names: they summarise, and step for an agent.

They are reached through pydantic-ai, which is an extra and takes a second or two to import: it is
brought in by the first model that is asked for, and never by importing Foldmark. A name is
`provider:model` everywhere; who the provider is has more than one word.
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

# The words of pydantic-ai for what the snapshot of limits has under another name.
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
# Who else offers the same model, where a provider's own row is not in the snapshot.
_ELSEWHERE = {"google-vertex": ("google-vertex-anthropic", "google"), "azure": ("openai",)}
# Words of earlier versions of pydantic-ai, and of the snapshot, that it has no more.
_RENAMED = {
    "amazon-bedrock": "bedrock",
    "fireworks-ai": "fireworks",
    "google-gla": "google",
    "google-vertex": "google-cloud",
    "togetherai": "together",
}
# Bedrock's names begin with the part of the world whose machines may answer.
_REGION = re.compile(r"^(?:us|us-gov|eu|apac|jp|au|ca|global)\.(?=[a-z])")


def model_named(name: str, *, base_url: str | None = None, api_key: str | None = None) -> Model:
    """The model of this name, as `provider:model`; BadPolicy says what is missing to reach it.

    `base_url` is the address of another server: of the provider's kind, or, with `openai` or any
    name that is not a provider's, one that talks as OpenAI's chat completions do.
    """
    provider, model = provider_and_model(name)
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise BadPolicy(f"base_url is {base_url!r}; it must begin with http:// or https://")
    try:
        from .calls import CalledModel, reached_model  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        package = error.name or "pydantic_ai"
        hint = f"models need the package {package}: pip install 'foldmark[models]'"
        raise BadPolicy(hint) from None
    made = partial(reached_model, provider, model, base_url, api_key)
    made()  # so that what is missing is told now, and not in the middle of a compaction
    return CalledModel(made, name)


@asynccontextmanager
async def kept_open(model: Model) -> AsyncGenerator[None]:
    """Inside, a model keeps its connections from one step to the next, if it has any."""
    if isinstance(model, AbstractAsyncContextManager):
        async with cast("AbstractAsyncContextManager[object]", model):
            yield
    else:
        yield


# --- names ---------------------------------------------------------------------------------


def limits_name(name: str) -> str:
    """The same model as `limits` names it; as it was given where that is not known."""
    provider, colon, model = name.partition(":")
    if not colon:
        return name
    provider = provider.removeprefix("gateway/")
    own = _IN_LIMITS.get(provider, provider)
    models = (model, _REGION.sub("", model))
    homes = dict.fromkeys((provider, own, *_ELSEWHERE.get(own, ())))
    offers = [f"{home}:{called}" for home in homes for called in models]
    return next((offer for offer in offers if known_limits(offer)), f"{own}:{model}")


def provider_and_model(name: str) -> tuple[str, str]:
    """The two halves of a name, the first in today's words; BadPolicy where it has no halves."""
    provider, colon, model = name.partition(":")
    if not (provider and colon and model):
        near = ", ".join(_offers(name))
        hint = f" Did you mean {near}?" if near else ""
        raise BadPolicy(f"a model is named provider:model, not {name!r}.{hint}")
    return _RENAMED.get(provider, provider), model


def _offers(model: str) -> list[str]:
    """Models of this name, by whoever offers them; else those whose names are near."""
    own = {offer: offer.partition(":")[2] for offer in known_models()}
    same = [offer for offer, called in own.items() if called == model]
    near = get_close_matches(model, list(own.values()), n=1)
    return (same or [offer for offer, called in own.items() if called in near])[:3]
