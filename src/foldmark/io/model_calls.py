"""One request to a model through pydantic-ai, streamed, with nothing tried twice.

The flow counts calls and waits between them, so the providers' own retries are off. What goes
out is made in `model_requests`, what comes back is read in `model_outcomes`.
"""

import asyncio
import inspect
import re
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class

from foldmark.asking import Ask, Delta, Outcome
from foldmark.errors import BadPolicy

from .driving import error_line
from .model_names import unknown_provider
from .model_outcomes import answered, refused
from .model_requests import model_request

_VARIABLE = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")


class CalledModel:
    """A model of a provider as a summarizer."""

    def __init__(self, made: Callable[[], Model], name: str) -> None:
        self._made = made
        self._name = name
        # Connections belong to an event loop, and a program may have several at the same time.
        self._models: WeakKeyDictionary[asyncio.AbstractEventLoop, Model] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """Which model it is, as it was asked for."""
        return self._name

    async def ask(self, ask: Ask, delta: Delta) -> Outcome:
        """The outcome of one request."""
        try:
            return await self._answer(ask, delta)
        except Exception as error:  # noqa: BLE001 - each provider's library has its own
            return refused(error)

    async def _answer(self, ask: Ask, delta: Delta) -> Outcome:
        model = self._own_model()
        request = model_request(ask, model)
        # Its client is open inside only: nobody tells a summarizer when the program has done.
        async with (
            model,
            model_request_stream(
                model,
                request.messages,
                model_settings=request.settings,
                model_request_parameters=request.parameters,
            ) as stream,
        ):
            async for event in stream:
                if piece := _piece(event):
                    delta(piece)
            return answered(stream.get(), says_how_it_ends=_says_how_it_ends(model))

    def _own_model(self) -> Model:
        loop = asyncio.get_running_loop()
        model = self._models.get(loop)
        if model is None:
            model = self._models[loop] = self._made()
        return model


def _says_how_it_ends(model: Model) -> bool:
    """Whether it is one of the library with a provider behind; a program's own may leave it out."""
    return model.provider is not None and type(model).__module__.startswith("pydantic_ai.")


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
        raise unknown_provider(kind)
    made = infer_provider_class(kind)
    given = {"base_url": base_url, "api_key": api_key}
    taken = inspect.signature(made).parameters
    for name, value in given.items():
        if value is not None and name not in taken:
            raise BadPolicy(f"the provider {kind} takes no {name}")
    return made(**{name: value for name, value in given.items() if value is not None})


def _is_provider(kind: str) -> bool:
    try:
        infer_provider_class(kind)
    except ValueError:
        return False
    except ImportError:
        return True  # it is one whose package is missing
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
        return f"set {variable[1]}, or give {field}=…"
    return error_line(error)


def _piece(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""
