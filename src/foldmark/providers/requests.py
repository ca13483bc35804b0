"""A request as it is sent through pydantic-ai: messages, settings and tools.

Where the model's wire is one of ours, our codec writes the messages: so they begin, byte by byte,
as the session's own requests do, and what a provider has cached of those is read and not paid for
again. pydantic-ai's own form of them is there for the other providers.
"""

from typing import NamedTuple, cast

from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from foldmark.log.view import GO_ON
from foldmark.model.prompt_messages import AssistantMessage, PromptMessage, Text, UserMessage
from foldmark.model.values import Json
from foldmark.summary.protocol import ModelRequest
from foldmark.summary.steps import STEP
from foldmark.wire.breakpoints import MARK
from foldmark.wire.formats import request

from .messages import model_messages


class Wired(NamedTuple):
    """How a class of models talks: a codec of ours, and the field that holds its messages."""

    wire: str
    field: str


# By the names of classes, as to import them is slow and not always possible. Others build on these.
_WIRED = {
    "AnthropicModel": Wired("anthropic", "messages"),
    "OpenAIChatModel": Wired("openai-chat", "messages"),
    "OpenAIResponsesModel": Wired("openai-responses", "input"),
}
# Their cache of messages ends where the choice of tools changes, so it is left as it is there.
_CHOICE_IN_PREFIX = ("anthropic", "bedrock")
_GOOGLE = "google"


class Request(NamedTuple):
    """All that a request is made of."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


def model_request(ask: ModelRequest, model: Model) -> Request:
    """What is sent to this model to ask it this."""
    ask = replace(ask, messages=_answerable(ask.messages))
    messages = model_messages(ask, model.system)
    settings = _settings(ask, model)
    wired = _wired(model)
    if wired is not None:
        written = request(ask.messages, wired.wire, ask.system)
        settings["extra_body"] = {wired.field: written}
        if wired.wire == "anthropic" and _is_marked(written):
            settings = cast("ModelSettings", {**settings, **_OTHER_MARKS})
    return Request(messages, settings, _parameters(ask))


def spoken_wire(model: Model) -> str:
    """The name of its wire; of its provider, where we have no codec for it."""
    wired = _wired(model)
    if wired is not None:
        return wired.wire
    return _GOOGLE if model.system.startswith(_GOOGLE) else model.system


def _wired(model: Model) -> Wired | None:
    kinds = (kind.__name__ for kind in type(model).__mro__)
    return next((_WIRED[kind] for kind in kinds if kind in _WIRED), None)


def _answerable(messages: tuple[PromptMessage, ...]) -> tuple[PromptMessage, ...]:
    """Messages that the user has the last word of: else a provider refuses, or goes on with it.

    The note is the one that a view has between two answers, so the next request begins alike.
    """
    if messages and isinstance(messages[-1], AssistantMessage):
        return (*messages, UserMessage(content=(Text(text=GO_ON),)))
    return messages


def _settings(ask: ModelRequest, model: Model) -> ModelSettings:
    """No temperature: some models take none, and the session's own requests say nothing of it."""
    settings = ModelSettings(max_tokens=ask.most)
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    if ask.tools or ask.purpose == STEP:
        # Tools are declared where the request begins as the session's own: what was cached of
        # those is read here. Elsewhere a cache would be paid for and never read.
        settings["cache"] = True
    if ask.tools and ask.purpose != STEP and model.system not in _CHOICE_IN_PREFIX:
        settings["tool_choice"] = "none"
    return settings


# Four marks are allowed. Where the session marks its messages, the codec has set theirs.
_OTHER_MARKS = {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}


def _is_marked(messages: list[Json]) -> bool:
    """Whether a block of these has a mark: it is looked for where the codec sets them."""
    blocks = [cast("object", message.get("content")) for message in messages]
    rows = [cast("list[Json]", content) for content in blocks if isinstance(content, list)]
    return any(MARK in block for row in rows for block in row)


def _parameters(ask: ModelRequest) -> ModelRequestParameters:
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=tool.schema,
                strict=False,  # as it is declared, not as a provider would like it
            )
            for tool in ask.tools
        ]
    )
