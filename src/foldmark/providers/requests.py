"""A request as it is sent through pydantic-ai: messages, settings and tools.

Where the model's wire is one of ours, our codec writes the messages: so they begin, byte by byte,
as the session's own requests do, and what a provider has cached of those is read and not paid for
again. pydantic-ai's own form of them is there for the other providers.
"""

from base64 import b64decode
from typing import Any, cast

from msgspec.structs import replace
from pydantic_ai import messages as theirs
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from foldmark.log.view import GO_ON
from foldmark.model.messages import BLOCK
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    PromptMessage,
    Reasoning,
    Result,
    Text,
    ToolMessage,
    UserMessage,
)
from foldmark.model.values import Json
from foldmark.summary.protocol import STEP, ModelRequest
from foldmark.wire.breakpoints import MARK
from foldmark.wire.codec import NOTHING_TO_READ, Names, options, url_parts
from foldmark.wire.formats import request

_READABLE = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_NAMES = Names(longest=64)  # of calls and tools; longer ones are refused by one provider or other


# How classes of models talk, by their names: to import them is slow and not always possible. Others
# build on these.
_WIRED = {
    "AnthropicModel": "anthropic",
    "OpenAIChatModel": "openai-chat",
    "OpenAIResponsesModel": "openai-responses",
}
# Their cache of messages ends where the choice of tools changes, so it is left as it is there.
_CHOICE_IN_PREFIX = ("anthropic", "bedrock")
_ANTHROPIC, _GOOGLE = "anthropic", "google"


def model_request(
    ask: ModelRequest, model: Model
) -> tuple[list[theirs.ModelMessage], ModelSettings, ModelRequestParameters]:
    """What is sent to this model to ask it this: messages, settings, and tools."""
    ask = replace(ask, messages=_answerable(ask.messages))
    messages = model_messages(ask, model.system)
    settings = _settings(ask, model)
    wire = spoken_wire(model)
    if wire in _WIRED.values():
        written = request(ask.messages, wire, ask.system)
        settings["extra_body"] = {"input" if wire == "openai-responses" else "messages": written}
        if wire == _ANTHROPIC and _is_marked(written):
            settings = cast("ModelSettings", {**settings, **_OTHER_MARKS})
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.schema,
            strict=False,  # as it is declared, not as a provider would like it
        )
        for tool in ask.tools
    ]
    return messages, settings, ModelRequestParameters(function_tools=tools)


def spoken_wire(model: Model) -> str:
    """The name of its wire; of its provider, where we have no codec for it."""
    kinds = (kind.__name__ for kind in type(model).__mro__)
    usual = _GOOGLE if model.system.startswith(_GOOGLE) else model.system
    return next((_WIRED[kind] for kind in kinds if kind in _WIRED), usual)


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
    contents = (cast("object", message["content"]) for message in messages)
    rows = (cast("list[Json]", blocks) for blocks in contents if isinstance(blocks, list))
    return any(MARK in block for row in rows for block in row)


# --- messages for providers whose wire is none of ours -------------------------------------
# Signatures go back to the provider that signed; of all else that a provider wants back nothing is
# sent. Thinking that nobody signed is left out, and a file that few can read is a note.


def model_messages(ask: ModelRequest, system: str) -> list[theirs.ModelMessage]:
    """All messages of an ask, for a provider of this system."""
    messages = [_message(shown, system) for shown in ask.messages]
    last = messages[-1] if messages else None
    if ask.system and isinstance(last, theirs.ModelRequest):
        last.instructions = ask.system  # of the whole request, though it stands here
    return messages


def _message(shown: PromptMessage, system: str) -> theirs.ModelMessage:
    match shown:
        case UserMessage():
            said = [held.text if isinstance(held, Text) else _file(held) for held in shown.content]
            only = said[0] if len(said) == 1 else None
            prompt = theirs.UserPromptPart(content=only if isinstance(only, str) else said)
            return theirs.ModelRequest(parts=[prompt])
        case ToolMessage():
            parts = [part for result in shown.content for part in _result_parts(result, system)]
            return theirs.ModelRequest(parts=parts)
        case AssistantMessage():
            blocks = [_said(block, system) for block in shown.content]
            kept = [part for part in blocks if part is not None]
            return theirs.ModelResponse(parts=kept or [theirs.TextPart(content=NOTHING_TO_READ)])


def _said(block: Text | Media | Reasoning | Call, system: str) -> theirs.ModelResponsePart | None:
    match block:
        case Text():
            signed = _signed(block, system)
            return theirs.TextPart(content=block.text, **signed) if block.text or signed else None
        case Media():
            return theirs.TextPart(content=_note(block))
        case Reasoning():
            return _thinking(block, system)
        case Call():
            return theirs.ToolCallPart(
                tool_name=_NAMES.fit(block.tool_name),
                args=block.input,
                tool_call_id=_NAMES.fit(block.tool_call_id),
                **_signed(block, system),
            )


def _thinking(block: Reasoning, system: str) -> theirs.ThinkingPart | None:
    if system.startswith(_GOOGLE):
        signed = _signed(block, system)
        return theirs.ThinkingPart(content=block.text, **signed) if signed else None
    own = options(cast("object", block.provider_options), system)
    signature, name = own.get("signature"), own.get("id")
    if not (isinstance(signature, str) and signature):
        return None
    return theirs.ThinkingPart(
        content=block.text,
        id=name if isinstance(name, str) else None,
        signature=signature,
        provider_name=system,
        provider_details=options(own, "details") or None,
    )


def _signed(block: Text | Call | Reasoning, system: str) -> dict[str, Any]:
    """Gemini signs words and calls, and refuses some requests that come without."""
    kept = options(cast("object", block.provider_options), _GOOGLE)
    kept = options(kept, BLOCK) or kept  # a signature that came without words
    signature = kept.get("thoughtSignature") or kept.get("thought_signature")
    if not (system.startswith(_GOOGLE) and isinstance(signature, str)):
        return {}
    return {"provider_name": system, "provider_details": {"thought_signature": signature}}


def _result_parts(result: Result, system: str) -> list[theirs.ModelRequestPart]:
    is_error = result.output.type.startswith("error")
    content: str | dict[str, str] = result.output.value
    if system.startswith(_GOOGLE):  # as our own wire tells it
        content = {"error" if is_error else "output": content}
    returned = theirs.ToolReturnPart(
        tool_name=_NAMES.fit(result.tool_name),
        content=content,
        tool_call_id=_NAMES.fit(result.tool_call_id),
        # Others would be told of it in words that the session's own requests do not have.
        outcome="failed" if is_error and system == _ANTHROPIC else "success",
    )
    if not result.attachments:
        return [returned]
    files = [_file(media) for media in result.attachments]
    return [returned, theirs.UserPromptPart(content=files)]


def _file(media: Media) -> theirs.UserContent:
    if media.media_type not in _READABLE:
        return _note(media)
    if media.media_type.startswith("image/") and media.data.startswith("https://"):
        return theirs.ImageUrl(url=media.data)
    _, inline = url_parts(media.data)
    try:
        data = b64decode(inline or "", validate=True)
    except ValueError:
        data = b""
    return theirs.BinaryContent(data=data, media_type=media.media_type) if data else _note(media)


def _note(media: Media) -> str:
    return f"[A file of type {media.media_type}: {media.filename or 'without a name'}]"
