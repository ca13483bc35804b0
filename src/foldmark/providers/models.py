"""Models of a provider, reached through pydantic-ai: they summarise, and step for an agent.

The library is an extra and takes a second or two to import: it is brought in by the first model
that is asked for, and never by importing Foldmark.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from foldmark.errors import BadPolicy
from foldmark.summary.protocol import Summarizer
from foldmark.summary.steps import Model

from .names import limits_name, provider_and_model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

__all__ = ["kept_open", "limits_name", "model_named", "model_summarizer", "own_model", "summarizer"]


def summarizer(name: str, *, base_url: str | None = None, api_key: str | None = None) -> Summarizer:
    """The model of this name, to be asked for summaries."""
    return model_named(name, base_url=base_url, api_key=api_key)


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
        raise _not_installed(error) from None
    made = partial(reached_model, provider, model, base_url, api_key)
    made()  # so that what is missing is told now, and not in the middle of a compaction
    return CalledModel(made, name)


def model_summarizer(model: "TheirModel") -> Summarizer:
    """A model of pydantic-ai that the program has made itself, to be asked for summaries."""
    return own_model(model)


def own_model(model: "TheirModel") -> Model:
    """A model of pydantic-ai that the program has made itself."""
    from .calls import CalledModel  # noqa: PLC0415 - an extra, and slow

    return CalledModel(lambda: model, f"{model.system}:{model.model_name}")


@asynccontextmanager
async def kept_open(model: Model) -> AsyncGenerator[None]:
    """Inside, a model keeps its connections from one step to the next, if it has any."""
    if isinstance(model, AbstractAsyncContextManager):
        async with cast("AbstractAsyncContextManager[object]", model):
            yield
    else:
        yield


def _not_installed(error: ImportError) -> BadPolicy:
    return BadPolicy(
        f"models need the package {error.name or 'pydantic_ai'}: pip install 'foldmark[models]'"
    )
