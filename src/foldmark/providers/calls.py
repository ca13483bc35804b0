"""One request to a model through pydantic-ai, streamed, and sent once.

The flow counts calls and waits between them, so the providers' own retries are off. What goes out
is made in `requests`, what comes back is read in `responses`.
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
    Delta,
    ModelFailure,
    ModelRequest,
    Outcome,
    Stepped,
    Tell,
    words_to,
)

from .driver import error_line
from .requests import model_request, spoken_wire
from .responses import refused, report, stepped

# Which of them a misspelt name may mean; pydantic-ai has no list of its own.
_PROVIDERS = (
    *("alibaba", "anthropic", "azure", "bedrock", "cerebras", "cohere", "deepseek", "fireworks"),
    *("github-copilot", "google", "google-cloud", "groq", "huggingface", "litellm", "meta"),
    *("mistral", "moonshotai", "ollama", "openai", "openai-chat", "openai-responses"),
    *("openrouter", "together", "vercel", "vllm", "xai", "zai"),
)
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")


class CalledModel:
    """A model of a provider: it is asked for summaries, and steps for an agent.

    Its client is open during a request only, as nobody tells it when the program has done. Whoever
    enters it keeps connections from one request to the next, until they leave it.
    """

    def __init__(self, made: Callable[[], Model], name: str) -> None:
        self._made = made
        self.name = name  # which model it is, as it was asked for
        # Connections belong to an event loop, and a program may have several at the same time.
        self._models: WeakKeyDictionary[asyncio.AbstractEventLoop, Model] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        """Keep connections open, in this event loop."""
        await self._own_model().__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Close them, once the last who entered has left."""
        await self._own_model().__aexit__(*raised)

    async def ask(self, ask: ModelRequest, delta: Delta) -> Outcome:
        """The outcome of one request; only words are told, and neither thoughts nor calls."""
        outcome = await self.step(ask, words_to(delta))
        return outcome if isinstance(outcome, ModelFailure) else outcome.reply()

    async def step(self, ask: ModelRequest, tell: Tell) -> Stepped | ModelFailure:
        """The outcome of one step; each piece of it is told as it comes."""
        model = self._own_model()
        # A program's own model may leave out how an answer ends.
        ends = model.provider is not None and type(model).__module__.startswith("pydantic_ai.")
        try:
            response = await _response(ask, model, tell)
            return stepped(response, spoken_wire(model), says_how_it_ends=ends)
        except Exception as error:  # noqa: BLE001 - each provider's library has its own
            return refused(error)

    def _own_model(self) -> Model:
        loop = asyncio.get_running_loop()
        model = self._models.get(loop)
        if model is None:
            model = self._models[loop] = self._made()
        return model


async def _response(ask: ModelRequest, model: Model, tell: Tell) -> ModelResponse:
    called = set[int]()
    messages, settings, parameters = model_request(ask, model)
    asked = model_request_stream(
        model, messages, model_settings=settings, model_request_parameters=parameters
    )
    async with model, asked as stream:
        async for event in stream:
            report(event, tell, called)
        return stream.get()


def reached_model(provider: str, model: str, base_url: str | None, api_key: str | None) -> Model:
    """A model with its client, ready to be asked; BadPolicy where something is missing."""
    if base_url is not None and provider == "openai":
        provider = "openai-chat"  # what other servers talk; Responses are asked for by name
    try:
        if base_url is not None and not _is_provider(provider):
            return _compatible_model(provider, model, base_url, api_key)
        return infer_model(f"{provider}:{model}", lambda kind: _provider(kind, base_url, api_key))
    except ImportError:
        raise BadPolicy(
            f"the provider {provider} needs a package that is not installed: "
            f"pip install 'pydantic-ai-slim[{provider}]'"
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
            f"there is no provider {kind!r}.{hint} "
            "Give base_url=… for a server that talks as OpenAI's does."
        )
    made = infer_provider_class(kind)
    given = {"base_url": base_url, "api_key": api_key}
    taken = inspect.signature(made).parameters
    for name, value in given.items():
        if value is not None and name not in taken:
            raise BadPolicy(f"the provider {kind} takes no {name}")
    return made(**{name: value for name, value in given.items() if value is not None})


def _is_provider(kind: str) -> bool:
    with suppress(ImportError):  # it is one whose package is missing
        try:
            infer_provider_class(kind)
        except ValueError:
            return False
    return True


def _compatible_model(name: str, model: str, base_url: str, api_key: str | None) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - needs openai
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

    # A key of OpenAI's own is not sent to a server that is not named as OpenAI.
    provider = OpenAICompatibleProvider(name, base_url=base_url, api_key=api_key)
    return OpenAIChatModel(model, provider=provider)


def _missing(error: Exception) -> str:
    """What to do, in one line: most often a variable is to be set."""
    if isinstance(error, UserError) and (variable := _VARIABLE.search(error.message)):
        field = "base_url" if variable[1].endswith("URL") else "api_key"
        return f"set {variable[1]}, or give {field}=… in a program"
    return error_line(error)
