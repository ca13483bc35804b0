"""Write a request for pydantic-ai: messages, settings and tools.

For API formats that Foldmark knows, its own codec writes the messages, so that a request starts
with the same bytes as the session's own requests and the provider's cache is used. Messages for
other providers use pydantic-ai's own form.
"""

from base64 import b64decode
from typing import Any, cast

from msgspec.structs import replace
from pydantic_ai import messages as theirs
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from foldmark.log.view import CONTINUE
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
from foldmark.wire.codec import NOTHING_TO_READ, NameFitter, subobject, url_parts
from foldmark.wire.formats import request as request_messages

_READABLE = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_NAMES = NameFitter(max_length=64)  # names of calls and tools; some providers refuse longer ones
# The API format of pydantic-ai's model classes and their subclasses, by class name: importing the
# classes is slow and not always possible.
_WIRE_BY_CLASS = {
    "AnthropicModel": "anthropic",
    "OpenAIChatModel": "openai-chat",
    "OpenAIResponsesModel": "openai-responses",
}
# Providers whose message cache depends on the tool choice, which is therefore not changed.
_CHOICE_IN_PREFIX = ("anthropic", "bedrock")
_ANTHROPIC, _GOOGLE = "anthropic", "google"


def model_request(
    request: ModelRequest, model: Model
) -> tuple[list[theirs.ModelMessage], ModelSettings, ModelRequestParameters]:
    """The messages, settings and tools that send this request to this model."""
    request = replace(request, messages=_ending_with_user(request.messages))
    messages = model_messages(request, model.system)
    settings = _settings(request, model)
    wire = wire_name(model)
    if wire in _WIRE_BY_CLASS.values():
        body = request_messages(request.messages, wire, request.system)
        settings["extra_body"] = {"input" if wire == "openai-responses" else "messages": body}
        if wire == _ANTHROPIC and _is_marked(body):
            settings = cast("ModelSettings", {**settings, **_OTHER_MARKS})
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.schema,
            strict=False,  # the schema as declared, not as the provider prefers it
        )
        for tool in request.tools
    ]
    return messages, settings, ModelRequestParameters(function_tools=tools)


def wire_name(model: Model) -> str:
    """The API format of a model, or its provider's name if Foldmark has no codec for it."""
    kinds = (kind.__name__ for kind in type(model).__mro__)
    usual = _GOOGLE if model.system.startswith(_GOOGLE) else model.system
    return next((_WIRE_BY_CLASS[kind] for kind in kinds if kind in _WIRE_BY_CLASS), usual)


def _ending_with_user(messages: tuple[PromptMessage, ...]) -> tuple[PromptMessage, ...]:
    """The messages, ending with a user message: some providers refuse or continue a reply.

    The added note is the one that a view has between two replies, so the next request starts the
    same.
    """
    if messages and isinstance(messages[-1], AssistantMessage):
        return (*messages, UserMessage(content=(Text(text=CONTINUE),)))
    return messages


def _settings(request: ModelRequest, model: Model) -> ModelSettings:
    """Settings without temperature: some models refuse it, and the session does not set it."""
    settings = ModelSettings(max_tokens=request.max_tokens)
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = 0
    if request.tools or request.purpose == STEP:
        # With tools, the request starts like the session's own and reads their cache. Other caches
        # would be paid for but never read.
        settings["cache"] = True
    if request.tools and request.purpose != STEP and model.system not in _CHOICE_IN_PREFIX:
        settings["tool_choice"] = "none"
    return settings


# Anthropic allows four cache marks; the codec has already set those of the messages.
_OTHER_MARKS = {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}


def _is_marked(messages: list[Json]) -> bool:
    """Whether a message block has a cache mark, as the codec sets it."""
    contents = (cast("object", message["content"]) for message in messages)
    rows = (cast("list[Json]", blocks) for blocks in contents if isinstance(blocks, list))
    return any(MARK in block for row in rows for block in row)


# --- messages for providers without a codec ------------------------------------------------
# Signatures return to the provider that made them; no other provider data is sent. Unsigned
# reasoning is left out, and a file that few providers accept becomes a note.


def model_messages(request: ModelRequest, system: str) -> list[theirs.ModelMessage]:
    """All messages of a request, for a provider of this system."""
    messages = [_message(message, system) for message in request.messages]
    last = messages[-1] if messages else None
    if request.system and isinstance(last, theirs.ModelRequest):
        last.instructions = request.system  # applies to the whole request
    return messages


def _message(message: PromptMessage, system: str) -> theirs.ModelMessage:
    match message:
        case UserMessage():
            items = message.content
            content = [item.text if isinstance(item, Text) else _file(item) for item in items]
            single = content[0] if len(content) == 1 else None
            prompt = theirs.UserPromptPart(content=single if isinstance(single, str) else content)
            return theirs.ModelRequest(parts=[prompt])
        case ToolMessage():
            parts = [part for result in message.content for part in _result_parts(result, system)]
            return theirs.ModelRequest(parts=parts)
        case AssistantMessage():
            blocks = [_part(block, system) for block in message.content]
            reply = [part for part in blocks if part is not None]
            return theirs.ModelResponse(parts=reply or [theirs.TextPart(content=NOTHING_TO_READ)])


def _part(block: Text | Media | Reasoning | Call, system: str) -> theirs.ModelResponsePart | None:
    match block:
        case Text():
            signed = _signature(block, system)
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
                **_signature(block, system),
            )


def _thinking(block: Reasoning, system: str) -> theirs.ThinkingPart | None:
    if system.startswith(_GOOGLE):
        signed = _signature(block, system)
        return theirs.ThinkingPart(content=block.text, **signed) if signed else None
    own = subobject(cast("object", block.provider_options), system)
    signature, name = own.get("signature"), own.get("id")
    if not (isinstance(signature, str) and signature):
        return None
    return theirs.ThinkingPart(
        content=block.text,
        id=name if isinstance(name, str) else None,
        signature=signature,
        provider_name=system,
        provider_details=subobject(own, "details") or None,
    )


def _signature(block: Text | Call | Reasoning, system: str) -> dict[str, Any]:
    """The signature of a text or call: Gemini refuses some requests without it."""
    metadata = subobject(cast("object", block.provider_options), _GOOGLE)
    metadata = subobject(metadata, BLOCK) or metadata  # a signature without text
    signature = metadata.get("thoughtSignature") or metadata.get("thought_signature")
    if not (system.startswith(_GOOGLE) and isinstance(signature, str)):
        return {}
    return {"provider_name": system, "provider_details": {"thought_signature": signature}}


def _result_parts(result: Result, system: str) -> list[theirs.ModelRequestPart]:
    is_error = result.output.type.startswith("error")
    content: str | dict[str, str] = result.output.value
    if system.startswith(_GOOGLE):  # like our own codec
        content = {"error" if is_error else "output": content}
    returned = theirs.ToolReturnPart(
        tool_name=_NAMES.fit(result.tool_name),
        content=content,
        tool_call_id=_NAMES.fit(result.tool_call_id),
        # Others would get a text that the session's own requests do not have.
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
