"""Send one streamed request to a model through pydantic-ai, without retries.

The dialogue counts calls and waits between them, so the providers' own retries are off. `requests`
writes what is sent, and `responses` reads the reply.
"""

import asyncio
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Self
from weakref import WeakKeyDictionary

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from foldmark.errors import BadPolicy
from foldmark.summary.protocol import (
    DeltaHandler,
    ModelFailure,
    ModelRequest,
    Outcome,
    StepReply,
    TextHandler,
    text_only,
)

from .driver import error_line
from .requests import model_request, wire_name
from .responses import forward_delta, model_failure, step_reply

# Candidates for a misspelled name; pydantic-ai has no list of its own.
_PROVIDERS = (
    *("alibaba", "anthropic", "azure", "bedrock", "cerebras", "cohere", "deepseek", "fireworks"),
    *("github-copilot", "google", "google-cloud", "groq", "huggingface", "litellm", "meta"),
    *("mistral", "moonshotai", "ollama", "openai", "openai-chat", "openai-responses"),
    *("openrouter", "together", "vercel", "vllm", "xai", "zai"),
)
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")


class ProviderModel:
    """A provider's model, which answers summary requests and agent steps.

    Its client is open during a request only, because nothing tells it when the program is done.
    `async with` keeps connections open between requests.
    """

    def __init__(self, connect: Callable[[], Model], name: str) -> None:
        self._connect = connect
        self.name = name  # the requested name
        # Connections belong to an event loop, and a program may run several at once.
        self._models: WeakKeyDictionary[asyncio.AbstractEventLoop, Model] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        """Keep connections open in this event loop."""
        await self._own_model().__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Close the connections when the last user leaves."""
        await self._own_model().__aexit__(*raised)

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        """The reply to one request; `on_text` gets its text only, without reasoning and calls."""
        outcome = await self.step(request, text_only(on_text))
        return outcome if isinstance(outcome, ModelFailure) else outcome.reply()

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply | ModelFailure:
        """The reply to one agent step; `on_delta` gets each piece as it arrives."""
        model = self._own_model()
        # A custom model may not report why a reply ended.
        is_known = model.provider is not None and type(model).__module__.startswith("pydantic_ai.")
        try:
            response = await _response(request, model, on_delta)
            return step_reply(response, wire_name(model), reports_finish=is_known)
        except Exception as error:  # noqa: BLE001 - each provider's library has its own
            return model_failure(error)

    def _own_model(self) -> Model:
        loop = asyncio.get_running_loop()
        model = self._models.get(loop)
        if model is None:
            model = self._models[loop] = self._connect()
        return model


async def _response(request: ModelRequest, model: Model, on_delta: DeltaHandler) -> ModelResponse:
    seen_calls = set[int]()
    messages, settings, parameters = model_request(request, model)
    opened = model_request_stream(
        model, messages, model_settings=settings, model_request_parameters=parameters
    )
    async with model, opened as stream:
        async for event in stream:
            forward_delta(event, on_delta, seen_calls)
        return stream.get()


def connect_model(provider: str, model: str, base_url: str | None, api_key: str | None) -> Model:
    """A model with its client. Raises BadPolicy if something is missing."""
    if base_url is not None and provider == "openai":
        provider = "openai-chat"  # compatible servers rarely offer Responses
    try:
        if base_url is not None and not _is_provider(provider):
            return _compatible_model(provider, model, base_url, api_key)
        return infer_model(f"{provider}:{model}", lambda kind: _provider(kind, base_url, api_key))
    except ImportError:
        raise BadPolicy(
            f"the package for provider {provider} is not installed; "
            f"run pip install 'pydantic-ai-slim[{provider}]'"
        ) from None
    except BadPolicy:
        raise
    except Exception as error:  # noqa: BLE001 - each provider's library has its own
        raise BadPolicy(f"{provider}:{model} cannot be used: {_missing(error)}") from None


def _provider(kind: str, base_url: str | None, api_key: str | None) -> Provider[Any]:
    if kind.startswith("gateway/"):
        return infer_provider(kind)
    if not _is_provider(kind):
        near = ", ".join(get_close_matches(kind, _PROVIDERS, cutoff=0.5))
        hint = f" Did you mean {near}?" if near else ""
        raise BadPolicy(
            f"unknown provider {kind!r}.{hint} "
            "Set base_url=… for a server with an OpenAI-compatible API."
        )
    provider_class = infer_provider_class(kind)
    options = {"base_url": base_url, "api_key": api_key}
    parameters = inspect.signature(provider_class).parameters
    for name, value in options.items():
        if value is not None and name not in parameters:
            raise BadPolicy(f"the provider {kind} does not accept {name}; leave it out")
    return provider_class(**{name: value for name, value in options.items() if value is not None})


def _is_provider(kind: str) -> bool:
    with suppress(ImportError):  # a known provider whose package is missing
        try:
            infer_provider_class(kind)
        except ValueError:
            return False
    return True


def _compatible_model(name: str, model: str, base_url: str, api_key: str | None) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - needs openai
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

    # OpenAI's key must not be sent to a server with another name.
    provider = OpenAICompatibleProvider(name, base_url=base_url, api_key=api_key)
    return OpenAIChatModel(model, provider=provider)


def _missing(error: Exception) -> str:
    """What to do, in one line; usually a variable must be set."""
    if isinstance(error, UserError) and (variable := _VARIABLE.search(error.message)):
        field = "base_url" if variable[1].endswith("URL") else "api_key"
        return f"set {variable[1]}, or pass {field}=… in Python"
    return error_line(error)
