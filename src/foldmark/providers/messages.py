"""What a model is asked, as messages of pydantic-ai, for providers whose wire is none of ours.

Signatures go back to the provider that signed; of all else that a provider wants back nothing is
sent. Thinking that nobody signed is left out, and a file that few can read is a note.
"""

from base64 import b64decode
from typing import Any, cast

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.messages import (
    ModelRequest as ProviderRequest,
)

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
from foldmark.summary.protocol import ModelRequest
from foldmark.wire.codec import NOTHING_TO_READ, Names, options, url_parts

_READABLE = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
_ANTHROPIC, _GOOGLE = "anthropic", "google"
_NAMES = Names(longest=64)  # of calls and tools; longer ones are refused by one provider or other


def model_messages(ask: ModelRequest, system: str) -> list[ModelMessage]:
    """All messages of an ask, for a provider of this system."""
    messages = [_message(shown, system) for shown in ask.messages]
    last = messages[-1] if messages else None
    if ask.system and isinstance(last, ProviderRequest):
        last.instructions = ask.system  # of the whole request, though it stands here
    return messages


def _message(shown: PromptMessage, system: str) -> ModelMessage:
    match shown:
        case UserMessage():
            return ProviderRequest(parts=[UserPromptPart(content=_user_content(shown))])
        case ToolMessage():
            parts = [part for result in shown.content for part in _result_parts(result, system)]
            return ProviderRequest(parts=parts)
        case AssistantMessage():
            said = [part for block in shown.content if (part := _said(block, system)) is not None]
            return ModelResponse(parts=said or [TextPart(content=NOTHING_TO_READ)])


def _user_content(shown: UserMessage) -> str | list[UserContent]:
    content = [block.text if isinstance(block, Text) else _file(block) for block in shown.content]
    only = content[0] if len(content) == 1 else None
    return only if isinstance(only, str) else content


def _said(block: Text | Media | Reasoning | Call, system: str) -> ModelResponsePart | None:
    match block:
        case Text():
            signed = _signed(block, system)
            return TextPart(content=block.text, **signed) if block.text or signed else None
        case Media():
            return TextPart(content=_note(block))
        case Reasoning():
            return _thinking(block, system)
        case Call():
            return ToolCallPart(
                tool_name=_NAMES.tool(block.tool_name),
                args=block.input,
                tool_call_id=_NAMES.call_id(block.tool_call_id),
                **_signed(block, system),
            )


def _thinking(block: Reasoning, system: str) -> ThinkingPart | None:
    if system.startswith(_GOOGLE):
        signed = _signed(block, system)
        return ThinkingPart(content=block.text, **signed) if signed else None
    own = options(cast("object", block.provider_options), system)
    signature, name = own.get("signature"), own.get("id")
    if not (isinstance(signature, str) and signature):
        return None
    return ThinkingPart(
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


def _result_parts(result: Result, system: str) -> list[ModelRequestPart]:
    is_error = result.output.type.startswith("error")
    content: str | dict[str, str] = result.output.value
    if system.startswith(_GOOGLE):  # as our own wire tells it
        content = {"error" if is_error else "output": content}
    returned = ToolReturnPart(
        tool_name=_NAMES.tool(result.tool_name),
        content=content,
        tool_call_id=_NAMES.call_id(result.tool_call_id),
        # Others would be told of it in words that the session's own requests do not have.
        outcome="failed" if is_error and system == _ANTHROPIC else "success",
    )
    if not result.attachments:
        return [returned]
    files = [_file(media) for media in result.attachments]
    return [returned, UserPromptPart(content=files)]


def _file(media: Media) -> UserContent:
    if media.media_type not in _READABLE:
        return _note(media)
    if media.media_type.startswith("image/") and media.data.startswith("https://"):
        return ImageUrl(url=media.data)
    _, inline = url_parts(media.data)
    try:
        data = b64decode(inline or "", validate=True)
    except ValueError:
        data = b""
    return BinaryContent(data=data, media_type=media.media_type) if data else _note(media)


def _note(media: Media) -> str:
    return f"[A file of type {media.media_type}: {media.filename or 'without a name'}]"
