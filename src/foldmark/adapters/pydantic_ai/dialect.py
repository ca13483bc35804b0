"""Reads pydantic-ai's messages into ours and writes them back, unchanged if possible.

Known content becomes our parts; the other fields are stored as metadata in pydantic-ai's own JSON,
with the index of each part. Unknown parts are stored whole. Content that the view changed (a
hidden output, a summary) is written as text; so are fields from another version of pydantic-ai
that this one cannot load.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import cast

from msgspec import UNSET
from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_ai import messages as theirs
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest

from foldmark.model.messages import (
    BLOCK,
    AnyPart,
    FilePart,
    Pending,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.model.prompt_messages import (
    RAW,
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
from foldmark.providers.responses import measured_tokens
from foldmark.session.history_mirror import VOLATILE
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import (
    ARGUMENTS,
    RESULT,
    ReadMessage,
    ReadResult,
    arguments_object,
    compact_json,
    data_url,
    subobject,
    url_parts,
)

KEY = "pydantic-ai"
# Metadata keys: index in the message, index in a prompt of several items, fields.
AT, ITEM, PART, FIELDS = "at", "item", "part", "fields"
MESSAGE, PROMPTS = "message", "prompts"  # fields of the message; its leading system prompts
FORM = "form"  # marks results that were JSON, and arguments that were text
_STABLE = ("timestamp", "run_id")  # fields that identify a message and never change
_DEFAULT_TYPES = {"image-url": "image/png", "audio-url": "audio/mpeg", "video-url": "video/mp4"}
_BYTES = "application/octet-stream"
_FILE_KINDS = frozenset({*_DEFAULT_TYPES, "binary", "document-url", "uploaded-file"})
_MAX_READABLE = 2_000  # characters shown of a part that only its provider understands
Block = Text | Media | Reasoning | Call


class PydanticDialect:
    """Reads and writes messages of pydantic-ai; `persistent` handles system prompts."""

    key = KEY
    unique = True  # each message has a timestamp

    def read(self, message: ModelMessage, /) -> ReadMessage:
        """The content of a message."""
        data = dump(message)
        if any(part["part_kind"] == "retry-prompt" for part in data["parts"]):
            message = load(data)  # loading converts this old kind of part
            data = dump(message)
        rest = _message_fields(data)
        if isinstance(message, ModelRequest):
            return _request(message, data, rest)
        parts = [piece for index, part in enumerate(data["parts"]) for piece in _parts(index, part)]
        tokens = measured_tokens(message)
        return ReadMessage(role="assistant", parts=tuple(parts), rest=rest, tokens=tokens)

    def write(
        self, messages: Sequence[PromptMessage], _original: ModelMessage | None, /
    ) -> list[ModelMessage]:
        """Messages with this content; adjacent user and tool messages become one."""
        result: list[ModelMessage] = []
        for is_answer, group in groupby(messages, lambda one: isinstance(one, AssistantMessage)):
            side = list(group)
            result += map(_load_side, [[message] for message in side] if is_answer else [side])
        return result

    def prompt(self, _message: ModelMessage, /) -> ModelMessage | None:
        """Return None: a system prompt is a part of a message here."""
        return None


def dump(message: ModelMessage) -> Json:
    """The JSON of a message; values that are not JSON become the name of their type."""
    return ModelMessagesTypeAdapter.dump_python(
        [message], mode="json", fallback=_kind, warnings=False
    )[0]


def load(data: Json) -> ModelMessage:
    """The message of JSON from `dump`."""
    text = compact_json([data]).encode("utf-8", "replace")  # a lone surrogate would be refused
    return ModelMessagesTypeAdapter.validate_json(text)[0]


def _kind(value: object) -> str:
    return f"<{type(value).__name__}>"


def fields(data: Json, *names: str) -> Json:
    """The fields of an object that are set, except these."""
    return {
        name: value
        for name, value in data.items()
        if value is not None and name not in names and not (name in _EMPTY and not value)
    }


_EMPTY = ("content_file_digests", "details")


def _message_fields(data: Json) -> Json:
    values = fields(data, "parts")
    if "usage" in values:
        values["usage"] = {name: value for name, value in values["usage"].items() if value}
    stable = {name: values.pop(name) for name in _STABLE if name in values}
    return {MESSAGE: stable, VOLATILE: {MESSAGE: values}}


def _request(message: ModelRequest, data: Json, rest: Json) -> ReadMessage:
    # System prompts at the start of a message that also has a user prompt.
    kinds = [part.part_kind for part in message.parts]
    first = next((index for index, kind in enumerate(kinds) if kind != "system-prompt"), 0)
    opening = first if "user-prompt" in kinds else 0
    if opening:
        rest[VOLATILE][PROMPTS] = [fields(prompt) for prompt in data["parts"][:opening]]
    parts, results = list[AnyPart](), list[ReadResult]()
    for index in range(opening, len(message.parts)):
        part, part_data = message.parts[index], data["parts"][index]
        if isinstance(part, theirs.ToolReturnPart):
            results.append(_read_result(index, part, part_data))
        elif isinstance(part, theirs.RetryFeedbackPart):
            own = {AT: index, PART: fields(part_data)}
            text = part.model_response()
            parts.append(TextPart(text=text, synthetic=True, metadata={KEY: own}))
        else:
            parts += _parts(index, part_data, is_request=True)
    if results:  # a message of results only has no other place for its fields
        results[0] = replace(results[0], rest={**results[0].rest, **rest})
    return ReadMessage(role="user", parts=tuple(parts), results=tuple(results), rest=rest)


def _parts(index: int, data: Json, *, is_request: bool = False) -> list[AnyPart]:
    """Our parts for a part: text, thinking, files, a call; unknown ones are stored whole."""
    kind, content = data["part_kind"], data.get("content")
    own: Json = {AT: index, PART: fields(data, "content")}
    text = content if isinstance(content, str) else ""
    has_text = bool(text.strip())
    match kind:
        case "thinking":
            part: AnyPart = ReasoningPart(text=text, metadata={KEY: own})
        case "text" | "user-prompt" if has_text:
            part = TextPart(text=text, metadata={KEY: own})
        case "system-prompt" if has_text and data["scope"] == "conversation":
            part = TextPart(text=text, synthetic=True, metadata={KEY: own})
        case "tool-call":
            part = _call(index, data)
        case "file":
            part = _file(cast("Json", content), own)
        case "user-prompt" if content and isinstance(content, list):
            items = enumerate(cast("list[str | Json]", content))
            return [_item(item, {**own, ITEM: number}) for number, item in items]
        case _:
            synthetic = is_request and kind != "user-prompt"
            own = {AT: index, BLOCK: fields(data)}
            part = TextPart(text=_readable(data), synthetic=synthetic or UNSET, metadata={KEY: own})
    return [part]


def _readable(data: Json) -> str:
    """The readable text of a part that only its provider understands."""
    for name in ("content", "transcript", "args"):
        value: object = data.get(name)
        if value and not isinstance(value, str):
            value = compact_json(value)
        if isinstance(value, str) and value.strip():
            tool = data.get("tool_name")
            return f"{tool}: {value}"[:_MAX_READABLE] if tool else value[:_MAX_READABLE]
    return ""


def _item(item: str | Json, own: Json) -> TextPart | FilePart:
    if isinstance(item, str):
        if item.strip():
            return TextPart(text=item, metadata={KEY: own})
        return TextPart(text=item, metadata={KEY: {**own, BLOCK: {"text": item}}})
    text = item.get("content")
    if isinstance(text, str) and text.strip():
        return TextPart(text=text, metadata={KEY: {**own, FIELDS: fields(item, "content")}})
    if "media_type" in item and item["media_type"] not in EXPANDED:
        return _file(item, own)
    # A cache point, or a file that the view would expand to text.
    return TextPart(text="", metadata={KEY: {**own, BLOCK: fields(item)}})


def _file(item: Json, own: Json) -> FilePart:
    mime, inline = item["media_type"] or _DEFAULT_TYPES.get(item["kind"], _BYTES), item.get("data")
    if isinstance(inline, str):
        url = data_url(mime, inline.replace("-", "+").replace("_", "/"))
    else:
        url = item.get("url") or item.get("file_id") or ""
    # Nulls included: in results, the fingerprint of a file covers all its fields.
    saved_fields = {name: value for name, value in item.items() if name != "data"}
    return FilePart(mime=mime, url=url, metadata={KEY: {**own, FIELDS: saved_fields}})


# --- results -------------------------------------------------------------------------------


def _read_result(index: int, part: theirs.ToolReturnPart, data: Json) -> ReadResult:
    content = cast("object", data["content"])
    rest: Json = {AT: index, PART: fields(data, "content", "tool_call_id")}
    text, files = text_and_files(content)
    if files:
        rest[RAW] = content
    elif not isinstance(content, str):
        rest[FORM] = "json"
    return ReadResult(
        call_id=part.tool_call_id,
        output=text,
        tool=part.tool_name,
        is_error=part.outcome in theirs.ERROR_OUTCOMES,
        files=files,
        rest=rest,
        raw=fields(data),
    )


def text_and_files(content: object) -> tuple[str, tuple[FilePart, ...]]:
    """The text and the files in a result's content: a text, a file, a list, or other JSON."""
    if isinstance(content, str):
        return content, ()
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    files = tuple(_file(cast("Json", item), {}) for item in items if _is_file(item))
    if not files:
        return compact_json(cast("object", content)), ()
    others = [item for item in items if not _is_file(item)]
    texts = [item if isinstance(item, str) else compact_json(item) for item in others]
    return "\n".join(texts) or f"[{files[0].mime}]", files


def _is_file(item: object) -> bool:
    candidate = cast("Json", item) if isinstance(item, dict) else {}
    return candidate.get("kind") in _FILE_KINDS and "media_type" in candidate


def _call(index: int, data: Json) -> ToolPart:
    """A call; arguments that our JSON would write differently are stored as text."""
    args = data["args"]
    own: Json = {AT: index, PART: fields(data, "args", "tool_call_id", "tool_name")}
    arguments = cast("Json", args) if isinstance(args, dict) else {}
    if isinstance(args, str):
        arguments = arguments_object(args) or {}
        own[FORM] = "text"
        if compact_json(arguments) != args:
            own[ARGUMENTS] = args
    elif args is None:
        own[ARGUMENTS] = None
    return ToolPart(
        tool=data["tool_name"],
        call_id=data["tool_call_id"],
        state=Pending(input=arguments),
        metadata={KEY: own},
    )


# --- writing -------------------------------------------------------------------------------


def _load_side(messages: Sequence[PromptMessage]) -> ModelMessage:
    """The message of one side; without stored fields if they cannot be loaded."""
    try:
        return load(_message(messages))
    except (ValidationError, ValueError):
        return load(_message([_plain(message) for message in messages]))


def _plain(message: PromptMessage) -> PromptMessage:
    blocks = (replace(block, provider_options=None) for block in message.content)
    return replace(message, wire=None, content=tuple(blocks))


def _message(messages: Sequence[PromptMessage]) -> Json:
    saved_fields: Json = {}
    entries: list[tuple[int, Json]] = []
    for message in messages:
        index = entries[-1][0] if entries else 0
        match message:
            case ToolMessage():
                for result in message.content:
                    own = subobject(_own(result.provider_options), RESULT)
                    saved_fields = own if MESSAGE in own else saved_fields
                    index = own.get(AT, index)
                    entries.append((index, _tool_return(result, own)))
            case UserMessage():
                saved_fields = _own(message.wire) or saved_fields
                entries += _prompts(message, index)
            case AssistantMessage():
                saved_fields = _own(message.wire)
                entries += [(0, _part(block)) for block in message.content]
    volatile = subobject(saved_fields, VOLATILE)
    parts = [part for _, part in sorted(entries, key=lambda entry: entry[0])]
    return {
        **subobject(saved_fields, MESSAGE),
        **subobject(volatile, MESSAGE),
        "kind": "response" if isinstance(messages[0], AssistantMessage) else "request",
        "parts": [*cast("list[Json]", volatile.get(PROMPTS) or ()), *parts],
    }


def _own(metadata: object) -> Json:
    return subobject(metadata, KEY)


def _part(block: Block, *, is_request: bool = False) -> Json:
    own = _own(block.provider_options)
    part_fields, whole = subobject(own, PART), subobject(own, BLOCK)
    match block:
        case Text() if whole and whole["part_kind"] != "tool-return":
            part = whole
        case Text():  # an orphaned result becomes text: providers refuse it
            kind = "user-prompt" if is_request else "text"
            part = {"part_kind": kind, "content": block.text, **part_fields}
        case Reasoning():
            part = {"part_kind": "thinking", "content": block.text, **part_fields}
        case Media() if is_request:
            part = {"part_kind": "user-prompt", "content": [_write_file(block, own)]}
        case Media():
            part = {"part_kind": "file", **part_fields, "content": _write_file(block, own)}
        case Call():
            part = {
                "part_kind": "tool-call",
                **part_fields,
                "tool_name": block.tool_name,
                "tool_call_id": block.tool_call_id,
                "args": _arguments(block, own),
            }
    return part


def _prompts(message: UserMessage, index: int) -> list[tuple[int, Json]]:
    """The parts of a user message; the items of one prompt become one part again."""
    entries: list[tuple[int, Json]] = []
    offset = 0  # of parts from messages that the view has merged
    for block in message.content:
        own = _own(block.provider_options)
        if entries and own.get(AT, index) + offset < index:  # the next merged message starts here
            offset = index + 1
        index = own[AT] + offset if AT in own else index
        if ITEM not in own:
            entries.append((index, _part(block, is_request=True)))
            continue
        item = _write_item(block, own)
        if entries and entries[-1][0] == index and isinstance(entries[-1][1]["content"], list):
            cast("list[object]", entries[-1][1]["content"]).append(item)
        else:
            part = {"part_kind": "user-prompt", **subobject(own, PART), "content": [item]}
            entries.append((index, part))
    return entries


def _write_item(block: Text | Media, own: Json) -> str | Json:
    if BLOCK in own:
        item = subobject(own, BLOCK)
        return item["text"] if list(item) == ["text"] else item
    if isinstance(block, Media):
        return _write_file(block, own)
    return {**subobject(own, FIELDS), "content": block.text} if FIELDS in own else block.text


def _write_file(block: Media, own: Json) -> Json:
    """A file with its stored fields; without them, the kind follows from its URL."""
    _, inline = url_parts(block.data)
    file_fields = subobject(own, FIELDS)
    if inline is not None:
        file_fields = file_fields or {"kind": "binary", "media_type": block.media_type}
        return {**file_fields, "data": inline.replace("+", "-").replace("/", "_")}
    if file_fields:
        return file_fields
    kind = "image-url" if block.media_type.startswith("image/") else "document-url"
    return {"kind": kind, "url": block.data, "media_type": block.media_type}


def _tool_return(result: Result, own: Json) -> Json:
    part: Json = {
        "part_kind": "tool-return",
        "tool_name": result.tool_name,
        "tool_call_id": result.tool_call_id,
    }
    if result.output.type.startswith("error"):
        part["outcome"] = "failed" if own else "interrupted"
    return {**part, **subobject(own, PART), "content": _content(result, own)}


def _content(result: Result, own: Json) -> object:
    """The original content of a result unless the view changed it, else its text."""
    value = result.output.value
    if RAW in own:
        text, files = text_and_files(own[RAW])
        if (text, len(files)) == (value, len(result.attachments)):
            return own[RAW]
    if own.get(FORM) == "json":
        with suppress(ValueError):
            data: object = json.loads(value)
            return data if compact_json(data) == value else value
    files = [_write_file(one, _own(one.provider_options)) for one in result.attachments]
    return [value, *files] if files else value


def _arguments(block: Call, own: Json) -> object:
    if ARGUMENTS in own:
        return own[ARGUMENTS]
    return compact_json(block.input) if own.get(FORM) == "text" else block.input
