"""Anthropic's Messages API.

Tool results are blocks of the user message after the call and precede its other blocks; thinking
is accepted only with its signature; `cache_control` marks the end of a cached prefix, at most four
times in a request; the system prompt is a separate field of the request.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from foldmark.errors import BadInput
from foldmark.model.messages import (
    BLOCK,
    AnyPart,
    FilePart,
    Pending,
    ReasoningPart,
    TextPart,
    ToolPart,
    finish_of,
)
from foldmark.model.prompt_messages import (
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
from foldmark.tokens.media import media_text

from .breakpoints import with_breakpoints
from .codec import (
    NOTHING_TO_READ,
    RESULT,
    Codec,
    NameFitter,
    ReadMessage,
    ReadReply,
    ReadResult,
    UsageFields,
    codec_metadata,
    data_url,
    is_joined,
    object_at,
    objects,
    opaque_part,
    read_output,
    read_unknown_role,
    read_usage,
    result_notes,
    subobject,
    text_at,
    url_parts,
    whole_message,
    with_whole_messages,
    without,
)
from .exactness import restore, with_difference

_KEY = "anthropic"
_FORM = "form"  # "text" or "list", if the content has not the usual form of its role
_ID = "tool_use_id"
_REST = "rest"  # other fields of a message or a result
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}
usage_tokens = partial(
    read_usage,
    UsageFields(
        input="input_tokens",
        output="output_tokens",
        cache_read="cache_read_input_tokens",
        cache_write="cache_creation_input_tokens",
        is_cache_separate=True,
    ),
)
# Blocks that only OpenAI's formats have.
_OPENAI_BLOCKS = frozenset(
    {"image_url", "input_audio", "refusal", "file"}
    | {"input_text", "output_text", "input_image", "input_file"}
)
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "image/*"})
_PDF = "application/pdf"
# A call or a result without its counterpart is refused.
_CALL_HALVES = ("tool_use", "tool_result")
_EMPTY_ERROR = "[The tool failed without a word.]"


class Anthropic(Codec):
    """Codec for Anthropic's Messages API."""

    name = "anthropic"
    key = _KEY
    provider = "anthropic"

    def recognizes(self, messages: Sequence[Json]) -> bool:
        """Whether a list can have this API format."""
        return all(_is_possible(message) for message in messages)

    def recognizes_reply(self, response: Json) -> bool:
        """Whether a response has this API format."""
        is_message = response.get("type") == "message" and response.get("role") == "assistant"
        return is_message and isinstance(response.get("content"), list)

    def read(self, message: Json) -> ReadMessage:
        """Read one message."""
        role = text_at(message, "role")
        if role not in ("user", "assistant"):
            return read_unknown_role(_KEY, message)
        content = message.get("content")
        others = without(message, "role", "content")
        rest: Json = {_REST: others} if others else {}
        if isinstance(content, str):
            if role == "assistant":
                rest[_FORM] = "text"
            return ReadMessage(role=role, parts=(TextPart(text=content),), rest=rest)
        blocks = objects(content, "'content'")
        parts: list[AnyPart] = []
        results: list[ReadResult] = []
        for block in blocks:
            if block.get("type") == "tool_result" and role == "user":
                results.append(_read_result(block))
            elif block.get("type") == "tool_use" and role == "user":
                parts.append(opaque_part(_KEY, block))  # a user cannot call tools
            else:
                parts.append(read_block(block))
        if role == "user" and not results and _is_one_text(parts):
            rest[_FORM] = "list"
        return ReadMessage(role=role, parts=tuple(parts), results=tuple(results), rest=rest)

    def read_reply(self, response: Json) -> ReadReply:
        """Read a complete response."""
        message = self.read({"role": "assistant", "content": response.get("content")})
        rest = without(response, "content")
        if not rest:
            raise BadInput("this is not a response of Anthropic's API")
        return ReadReply(
            message=message,
            tokens=usage_tokens(response.get("usage")),
            finish=finish_of_stop(response.get("stop_reason"), message.parts),
            model=str(response.get("model") or ""),
            rest=rest,
        )

    def write(self, messages: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Write prompt messages, unchanged if `as_is`, else as the API accepts them."""
        names = None if as_is else NameFitter(max_length=128)
        output: list[Json] = []
        last: PromptMessage | None = None
        ours: list[Json] = []
        for message in with_whole_messages(messages, lambda block: whole_message(block, _KEY)):
            if isinstance(message, dict):
                output.append(message)
                last = None
                continue
            api_message = _message(message, names)
            if isinstance(last, ToolMessage) and _joins_results(message, as_is=as_is):
                # The user's blocks after results belong to the same message.
                output[-1]["content"] += _as_blocks(api_message["content"])
                output[-1] |= without(api_message, "role", "content")
            else:
                output.append(api_message)
                ours.append(api_message)
            last = message
        if as_is:
            return output
        for message in ours:
            message["content"] = message["content"] or [{"type": "text", "text": NOTHING_TO_READ}]
        with_breakpoints(ours)
        return output

    def write_reply(self, messages: Sequence[PromptMessage], rest: Json) -> Json:
        """Rebuild a response from its content and its other fields."""
        output = self.write(messages[:1], as_is=True)
        return {**rest, "content": _as_blocks(output[0]["content"])}


def _is_possible(message: Json) -> bool:
    content = message.get("content")
    if message.get("role") not in ("user", "assistant") or "tool_calls" in message:
        return False
    if isinstance(content, str):
        return True
    if not isinstance(content, list):
        return False
    kinds = [
        cast("Json", block).get("type") if isinstance(block, dict) else None
        for block in cast("list[object]", content)
    ]
    return all(isinstance(kind, str) and kind not in _OPENAI_BLOCKS for kind in kinds)


def finish_of_stop(reason: object, parts: Sequence[AnyPart]) -> str:
    """The finish reason of a reply in our terms, derived from its calls if it is not stated."""
    if isinstance(reason, str):
        return _FINISH.get(reason, "other")
    return finish_of(parts)


def read_block(block: Json) -> AnyPart:
    """Read one block of a message, except a tool result."""
    match block.get("type"):
        case "text":
            rest = without(block, "type", "text")
            return TextPart(text=text_at(block, "text"), metadata=codec_metadata(_KEY, rest))
        case "thinking":
            metadata = codec_metadata(_KEY, without(block, "type", "thinking"))
            return ReasoningPart(text=text_at(block, "thinking"), metadata=metadata)
        case "redacted_thinking" if isinstance(block.get("data"), str):
            rest = without(block, "type", "data")
            metadata = {_KEY: {**rest, "redactedData": block["data"]}}
            return ReasoningPart(text="", metadata=metadata)
        case "tool_use":
            rest = without(block, "type", "id", "name", "input")
            return ToolPart(
                tool=text_at(block, "name"),
                call_id=text_at(block, "id"),
                state=Pending(input=object_at(block, "input")),
                metadata=codec_metadata(_KEY, rest),
            )
        case "image" | "document" if (file := _file(block)) is not None:
            return file
        case _:
            return opaque_part(_KEY, block, _readable(block))


def _readable(block: Json) -> str:
    """The text of a block for other codecs: the summary of a compaction, or a document's text."""
    for name in ("content", "text"):
        value = block.get(name)
        if isinstance(value, str):
            return value
    source = block.get("source")
    if isinstance(source, dict) and cast("Json", source).get("type") == "text":
        return str(cast("Json", source).get("data") or "")
    return ""


def _file(block: Json) -> FilePart | None:
    """Read an image or document that is inline or has a URL; None for other sources."""
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    fields = cast("Json", source)
    rest = without(block, "type", "source")
    if block["type"] == "document":
        rest["document"] = True
    metadata = codec_metadata(_KEY, rest)
    match fields:
        case {"type": "base64", "media_type": str(mime), "data": str(data)} if len(fields) == 3:
            return FilePart(mime=mime, url=data_url(mime, data), metadata=metadata)
        case {"type": "url", "url": str(url)} if len(fields) == 2:
            mime = "application/pdf" if block["type"] == "document" else "image/*"
            return FilePart(mime=mime, url=url, metadata=metadata)
        case _:
            return None


def _read_result(block: Json) -> ReadResult:
    fields = without(block, "type", "tool_use_id", "content")
    is_error = block.get("is_error") is True
    call_id = text_at(block, "tool_use_id")
    output, files = read_output(block.get("content"), ("text",), _attached_file)
    if is_error:
        del fields["is_error"]
    result = ReadResult(
        call_id=call_id,
        output=output,
        is_error=is_error,
        files=files,
        rest={_REST: fields} if fields else {},
        raw=block,
    )
    return with_difference(result, _canonical_result, _KEY, {}, _ID)


def _attached_file(block: Json) -> FilePart | None:
    return _file(block) if block.get("type") in ("image", "document") else None


def _is_one_text(parts: Sequence[AnyPart]) -> bool:
    """Whether the parts are one text without metadata, which is written as a string."""
    return len(parts) == 1 and isinstance(parts[0], TextPart) and not parts[0].metadata


# --- writing -------------------------------------------------------------------------------


def _joins_results(message: PromptMessage, *, as_is: bool) -> bool:
    return is_joined(message) if as_is else isinstance(message, UserMessage)


def _message(message: PromptMessage, names: NameFitter | None) -> Json:
    if isinstance(message, ToolMessage):
        return {"role": "user", "content": [_result(item, names) for item in message.content]}
    role = "user" if isinstance(message, UserMessage) else "assistant"
    notes = subobject(message.wire, _KEY)
    form = notes.get(_FORM, "text" if role == "user" else "list")
    candidates = (_block(item, names, role) for item in message.content)
    blocks = [block for block in candidates if block is not None]
    content: Any = blocks
    if form == "text" and len(blocks) == 1 and blocks[0] == _text_block(str(blocks[0].get("text"))):
        content = blocks[0]["text"]
    return {"role": role, "content": content, **(subobject(notes, _REST) if names is None else {})}


def _block(
    block: Text | Media | Reasoning | Call, names: NameFitter | None, role: str
) -> Json | None:
    notes = subobject(block.provider_options, _KEY)
    match block:
        case Text() if isinstance(notes.get(BLOCK), dict):
            is_accepted = names is None or notes[BLOCK].get("type") not in _CALL_HALVES
            return dict(notes[BLOCK]) if is_accepted else _visible_text(block.text)
        case Text():
            as_is = {**_text_block(block.text), **notes}
            return as_is if names is None or block.text.strip() else None
        case Reasoning():
            return _thinking(block, notes, as_is=names is None)
        case Media():
            return _media(block, notes) if names is None else _accepted_media(block, notes, role)
        case Call():
            call_id, name = block.tool_call_id, block.tool_name
            if names is not None:
                call_id, name = names.fit(call_id), names.fit(name)
            rest = without(notes, RESULT)
            return {"type": "tool_use", "id": call_id, "name": name, "input": block.input, **rest}


def _text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def _visible_text(text: str) -> Json | None:
    """A text block; None for white space alone, which is refused."""
    return _text_block(text) if text.strip() else None


def _thinking(block: Reasoning, notes: Json, *, as_is: bool) -> Json | None:
    if "redactedData" in notes:
        return {
            "type": "redacted_thinking",
            "data": notes["redactedData"],
            **without(notes, "redactedData"),
        }
    if not as_is and not notes.get("signature"):
        return None  # unsigned thinking is refused
    return {"type": "thinking", "thinking": block.text, **notes}


def _media(block: Media, notes: Json) -> Json:
    mime, data = url_parts(block.data)
    mime = mime or block.media_type
    is_document = bool(notes.get("document")) or mime == _PDF
    if data is None:
        source: Json = {"type": "url", "url": block.data}
    else:
        source = {"type": "base64", "media_type": mime, "data": data}
    kind = "document" if is_document else "image"
    return {"type": kind, "source": source, **without(notes, "document")}


def _accepted_media(block: Media, notes: Json, role: str = "user") -> Json:
    """A file as the API accepts it: images and documents of the user, texts as documents."""
    mime, data = url_parts(block.data)
    mime = mime or block.media_type
    is_reachable = data is not None or block.data.startswith(("https://", "http://"))
    if role == "user" and is_reachable and (mime in _IMAGES or mime == _PDF):
        return _media(block, notes)
    text = media_text(block.data, block.media_type)
    if role == "user" and text is not None and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, **without(notes, "document")}
    return _text_block(NOTHING_TO_READ)


def _canonical_result(result: Result, *, as_is: bool = True) -> Json:
    text = result.output.value
    block: Json = {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": text}
    if result.attachments:
        text_blocks = [_text_block(text)] if text.strip() else []
        files = [_attachment(file, as_is=as_is) for file in result.attachments]
        block["content"] = text_blocks + files
    block |= {"is_error": True} if result.output.type == "error-text" else {}
    return block | subobject(result_notes(result, _KEY), _REST)


def _result(result: Result, names: NameFitter | None) -> Json:
    canonical = _canonical_result(result, as_is=names is None)
    block: Json = restore(canonical, result_notes(result, _KEY), _ID)
    if names is None:
        return block
    content = block.pop("content", None)
    if isinstance(content, list):
        content = [item for item in cast("list[Json]", content) if _has_content(item)]
    if result.output.type == "error-text" and not content:
        content = _EMPTY_ERROR  # an error must not be empty
    content_field = {} if content is None else {"content": content}
    block[_ID] = names.fit(result.tool_call_id)
    return {"type": block["type"], _ID: block[_ID], **content_field, **block}


def _attachment(file: Media, *, as_is: bool) -> Json:
    notes = subobject(file.provider_options, _KEY)
    return _media(file, notes) if as_is else _accepted_media(file, notes)


def _has_content(block: Json) -> bool:
    return block.get("type") != "text" or bool(str(block.get("text") or "").strip())


def _as_blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
