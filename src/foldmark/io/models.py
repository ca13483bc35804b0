"""Summarizers that are models of a provider, reached through pydantic-ai.

The library is an extra and takes a second or two to import: it is brought in by the first model
that is asked for, and never by importing Foldmark.
"""

from functools import partial
from typing import TYPE_CHECKING

from foldmark.asking import Summarizer
from foldmark.errors import BadPolicy

from .model_names import limits_name, provider_and_model

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["limits_name", "model_summarizer", "summarizer"]


def summarizer(name: str, *, base_url: str | None = None, api_key: str | None = None) -> Summarizer:
    """The model of this name, as `provider:model`; BadPolicy says what is missing to reach it.

    `base_url` is the address of another server: of the provider's kind, or, with `openai` or any
    name that is not a provider's, one that talks as OpenAI's chat completions do.
    """
    provider, model = provider_and_model(name)
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise BadPolicy(f"base_url is {base_url!r}; it must begin with http:// or https://")
    try:
        from .model_calls import CalledModel, reached_model  # noqa: PLC0415 - an extra, and slow
    except ImportError as error:
        raise _not_installed(error) from None
    made = partial(reached_model, provider, model, base_url, api_key)
    made()  # so that what is missing is told now, and not in the middle of a compaction
    return CalledModel(made, name)


def model_summarizer(model: "Model") -> Summarizer:
    """A model of pydantic-ai that the program has made itself."""
    from .model_calls import CalledModel  # noqa: PLC0415 - an extra, and slow

    return CalledModel(lambda: model, f"{model.system}:{model.model_name}")


def _not_installed(error: ImportError) -> BadPolicy:
    return BadPolicy(
        f"models need the package {error.name or 'pydantic_ai'}: pip install 'foldmark[models]'"
    )
