"""Anthropic's Messages API.

Facts of this wire: results are blocks of the user's message after the call, before anything else
it says; thinking goes back only with its signature; a `cache_control` marks the end of a prefix
that is cached, four in a request at most; the system prompt stands beside the messages.
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
    Answer,
    Names,
    Read,
    Reply,
    UsageFields,
    Wire,
    data_url,
    is_joined,
    kept,
    measured,
    object_at,
    objects,
    opaque,
    options,
    read_output,
    text_at,
    unknown_role,
    url_parts,
    whole_message,
    with_whole_messages,
    without,
)
from .exactness import as_it_came, exact

_KEY = "anthropic"
_FORM = "form"  # whether the content was a text or a list, where that is not the usual
_ID = "tool_use_id"
_REST = "rest"  # what else a message or a result said
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
}
usage_tokens = partial(
    measured,
    UsageFields(
        given="input_tokens",
        made="output_tokens",
        read="cache_read_input_tokens",
        written="cache_creation_input_tokens",
        is_cached_apart=True,
    ),
)
# Blocks by which a list is known to be OpenAI's.
_OPENAI_BLOCKS = frozenset(
    {"image_url", "input_audio", "refusal", "file"}
    | {"input_text", "output_text", "input_image", "input_file"}
)
_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp", "image/*"})
_PDF = "application/pdf"
# The halves of a call: without the other half, they are refused.
_HALVES = ("tool_use", "tool_result")
_NO_WORDS = "[The tool failed without a word.]"


class Anthropic(Wire):
    """The codec."""

    name = "anthropic"
    key = _KEY
    provider = "anthropic"

    # --- recognising ---

    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire."""
        return all(_can_be(message) for message in messages)

    def recognises_reply(self, response: Json) -> bool:
        """Whether this is a response of this wire."""
        is_message = response.get("type") == "message" and response.get("role") == "assistant"
        return is_message and isinstance(response.get("content"), list)

    # --- reading ---

    def read(self, message: Json) -> Read:
        """One message."""
        role = text_at(message, "role")
        if role not in ("user", "assistant"):
            return unknown_role(_KEY, message)
        content = message.get("content")
        others = without(message, "role", "content")
        rest: Json = {_REST: others} if others else {}
        if isinstance(content, str):
            if role == "assistant":
                rest[_FORM] = "text"
            return Read(role=role, parts=(TextPart(text=content),), rest=rest)
        blocks = objects(content, "'content'")
        parts: list[AnyPart] = []
        answers: list[Answer] = []
        for block in blocks:
            if block.get("type") == "tool_result" and role == "user":
                answers.append(_answer(block))
            elif block.get("type") == "tool_use" and role == "user":
                parts.append(opaque(_KEY, block))  # a user calls nothing
            else:
                parts.append(read_block(block))
        if role == "user" and not answers and _is_one_text(parts):
            rest[_FORM] = "list"
        return Read(role=role, parts=tuple(parts), answers=tuple(answers), rest=rest)

    def read_reply(self, response: Json) -> Reply:
        """A whole response."""
        read = self.read({"role": "assistant", "content": response.get("content")})
        rest = without(response, "content")
        if not rest:
            raise BadInput("this is no response of Anthropic")
        return Reply(
            read=read,
            tokens=usage_tokens(response.get("usage")),
            finish=finish_of_stop(response.get("stop_reason"), read.parts),
            model=str(response.get("model") or ""),
            rest=rest,
        )

    # --- writing ---

    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Shown messages on this wire."""
        names = None if as_is else Names(longest=128)
        written: list[Json] = []
        last: PromptMessage | None = None
        ours: list[Json] = []
        for message in with_whole_messages(shown, lambda block: whole_message(block, _KEY)):
            if isinstance(message, dict):
                written.append(message)
                last = None
                continue
            wrote = _message(message, names)
            if isinstance(last, ToolMessage) and _goes_along(message, as_is=as_is):
                # What the user says after results stands in one message with them.
                written[-1]["content"] += _as_blocks(wrote["content"])
                written[-1] |= without(wrote, "role", "content")
            else:
                written.append(wrote)
                ours.append(wrote)
            last = message
        if as_is:
            return written
        for message in ours:
            message["content"] = message["content"] or [{"type": "text", "text": NOTHING_TO_READ}]
        with_breakpoints(ours)
        return written

    def write_reply(self, shown: Sequence[PromptMessage], rest: Json) -> Json:
        """A response again."""
        written = self.write(shown[:1], as_is=True)
        return {**rest, "content": _as_blocks(written[0]["content"])}


def _can_be(message: Json) -> bool:
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
    """How an answer ended, in our words; where it is not told, its calls tell."""
    if isinstance(reason, str):
        return _FINISH.get(reason, "other")
    return finish_of(parts)


def read_block(block: Json) -> AnyPart:
    """One block of a message, a result excepted."""
    match block.get("type"):
        case "text":
            rest = without(block, "type", "text")
            return TextPart(text=text_at(block, "text"), metadata=kept(_KEY, rest))
        case "thinking":
            rest = without(block, "type", "thinking")
            return ReasoningPart(text=text_at(block, "thinking"), metadata=kept(_KEY, rest))
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
                metadata=kept(_KEY, rest),
            )
        case "image" | "document" if (file := _file(block)) is not None:
            return file
        case _:
            return opaque(_KEY, block, _readable(block))


def _readable(block: Json) -> str:
    """What of a block that only this wire knows others may read: a compaction's summary, a text."""
    for name in ("content", "text"):
        held = block.get(name)
        if isinstance(held, str):
            return held
    source = block.get("source")
    if isinstance(source, dict) and cast("Json", source).get("type") == "text":
        return str(cast("Json", source).get("data") or "")
    return ""


def _file(block: Json) -> FilePart | None:
    """An image or document that is inline or has an address; None for other sources."""
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    given = cast("Json", source)
    rest = without(block, "type", "source")
    if block["type"] == "document":
        rest["document"] = True
    match given:
        case {"type": "base64", "media_type": str(mime), "data": str(data)} if len(given) == 3:
            return FilePart(mime=mime, url=data_url(mime, data), metadata=kept(_KEY, rest))
        case {"type": "url", "url": str(url)} if len(given) == 2:
            mime = "application/pdf" if block["type"] == "document" else "image/*"
            return FilePart(mime=mime, url=url, metadata=kept(_KEY, rest))
        case _:
            return None


def _answer(block: Json) -> Answer:
    fields = without(block, "type", "tool_use_id", "content")
    is_error = block.get("is_error") is True
    call_id = text_at(block, "tool_use_id")
    output, files = read_output(block.get("content"), ("text",), _attached_file)
    if is_error:
        del fields["is_error"]
    answer = Answer(
        call_id=call_id,
        output=output,
        is_error=is_error,
        files=files,
        rest={_REST: fields} if fields else {},
        raw=block,
    )
    return exact(answer, _usual_result, _KEY, {}, _ID)


def _attached_file(block: Json) -> FilePart | None:
    return _file(block) if block.get("type") in ("image", "document") else None


def _is_one_text(parts: Sequence[AnyPart]) -> bool:
    """What is written as a bare text where nothing else is said."""
    return len(parts) == 1 and isinstance(parts[0], TextPart) and not parts[0].metadata


# --- writing -------------------------------------------------------------------------------


def _goes_along(message: PromptMessage, *, as_is: bool) -> bool:
    if not isinstance(message, UserMessage):
        return False
    return not as_is or is_joined(message)


def _message(message: PromptMessage, names: Names | None) -> Json:
    if isinstance(message, ToolMessage):
        return {"role": "user", "content": [_result(held, names) for held in message.content]}
    role = "user" if isinstance(message, UserMessage) else "assistant"
    own = options(message.wire, _KEY)
    form = own.get(_FORM, "text" if role == "user" else "list")
    found = (_block(held, names, role) for held in message.content)
    blocks = [block for block in found if block is not None]
    content: Any = blocks
    if form == "text" and len(blocks) == 1 and blocks[0] == _said(str(blocks[0].get("text"))):
        content = blocks[0]["text"]
    return {"role": role, "content": content, **(options(own, _REST) if names is None else {})}


def _block(block: Text | Media | Reasoning | Call, names: Names | None, role: str) -> Json | None:
    own = options(block.provider_options, _KEY)
    match block:
        case Text() if isinstance(own.get(BLOCK), dict):
            is_taken = names is None or own[BLOCK].get("type") not in _HALVES
            return dict(own[BLOCK]) if is_taken else _words(block.text)
        case Text():
            return {**_said(block.text), **own} if names is None else _words(block.text, own)
        case Reasoning():
            return _thinking(block, own, as_is=names is None)
        case Media():
            return _media(block, own) if names is None else _taken_media(block, own, role)
        case Call():
            call_id, name = block.tool_call_id, block.tool_name
            if names is not None:
                call_id, name = names.fit(call_id), names.fit(name)
            rest = without(own, RESULT)
            return {"type": "tool_use", "id": call_id, "name": name, "input": block.input, **rest}


def _said(text: str) -> Json:
    return {"type": "text", "text": text}


def _words(text: str, own: Json | None = None) -> Json | None:
    """A text that may be shown: one of white space alone is refused."""
    return {**_said(text), **(own or {})} if text.strip() else None


def _thinking(block: Reasoning, own: Json, *, as_is: bool) -> Json | None:
    if "redactedData" in own:
        return {
            "type": "redacted_thinking",
            "data": own["redactedData"],
            **without(own, "redactedData"),
        }
    if not as_is and not own.get("signature"):
        return None  # unsigned thinking is refused
    return {"type": "thinking", "thinking": block.text, **own}


def _media(block: Media, own: Json) -> Json:
    mime, data = url_parts(block.data)
    mime = mime or block.media_type
    is_document = bool(own.get("document")) or mime == _PDF
    if data is None:
        source: Json = {"type": "url", "url": block.data}
    else:
        source = {"type": "base64", "media_type": mime, "data": data}
    kind = "document" if is_document else "image"
    return {"type": kind, "source": source, **without(own, "document")}


def _taken_media(block: Media, own: Json, role: str = "user") -> Json:
    """A file as it is taken: pictures and documents of the user, texts as documents."""
    mime, data = url_parts(block.data)
    mime = mime or block.media_type
    is_there = data is not None or block.data.startswith(("https://", "http://"))
    if role == "user" and is_there and (mime in _PICTURES or mime == _PDF):
        return _media(block, own)
    text = media_text(block.data, block.media_type)
    if role == "user" and text is not None and text.strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
        return {"type": "document", "source": source, **without(own, "document")}
    return _said(NOTHING_TO_READ)


def _usual_result(result: Result, *, as_is: bool = True) -> Json:
    text = result.output.value
    block: Json = {"type": "tool_result", "tool_use_id": result.tool_call_id, "content": text}
    if result.attachments:
        words = [_said(text)] if text.strip() else []
        block["content"] = words + [_attached(held, as_is=as_is) for held in result.attachments]
    block |= {"is_error": True} if result.output.type == "error-text" else {}
    return block | options(options(options(result.provider_options, _KEY), RESULT), _REST)


def _result(result: Result, names: Names | None) -> Json:
    usual = _usual_result(result, as_is=names is None)
    block: Json = as_it_came(usual, options(options(result.provider_options, _KEY), RESULT), _ID)
    if names is None:
        return block
    content = block.pop("content", None)
    if isinstance(content, list):
        content = [held for held in cast("list[Json]", content) if _says(held)]
    if result.output.type == "error-text" and not content:
        content = _NO_WORDS  # an error must say something
    told = {} if content is None else {"content": content}
    block[_ID] = names.fit(result.tool_call_id)
    return {"type": block["type"], _ID: block[_ID], **told, **block}


def _attached(file: Media, *, as_is: bool) -> Json:
    own = options(file.provider_options, _KEY)
    return _media(file, own) if as_is else _taken_media(file, own)


def _says(block: Json) -> bool:
    return block.get("type") != "text" or bool(str(block.get("text") or "").strip())


def _as_blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
