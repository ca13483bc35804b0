"""Messages of pydantic-ai, read into ours and written back: just as they came, where they can.

What we have words for becomes parts of ours; the fields beside the words are kept under our key
as pydantic-ai's own JSON, each with the place that it had. A part that we have no words for is
kept whole. What the view altered (a hidden output, a summary) is written as words; so is what
another version of pydantic-ai wrote and this one cannot load.
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
    Answer,
    Read,
    arguments_object,
    compact,
    data_url,
    options,
    url_parts,
)

KEY = "pydantic-ai"
# Under our key: the place in the message, the place in a prompt of several items, the fields.
AT, ITEM, PART, FIELDS = "at", "item", "part", "fields"
MESSAGE, PROMPTS = "message", "prompts"  # fields of the message; system prompts that open it
FORM = "form"  # of a result that was JSON, or of arguments that were a text
_SAME = ("timestamp", "run_id")  # what never changes of a message, and tells it from others
_USUAL = {"image-url": "image/png", "audio-url": "audio/mpeg", "video-url": "video/mp4"}
_BYTES = "application/octet-stream"
_FILE_KINDS = frozenset({*_USUAL, "binary", "document-url", "uploaded-file"})
_LONGEST = 2_000  # characters of what only a provider can read that others are told
Block = Text | Media | Reasoning | Call


class PydanticDialect:
    """How pydantic-ai writes messages. Its system prompts are led by who asks, not by this."""

    key = KEY
    unique = True  # each message has its time

    def read(self, message: ModelMessage, /) -> Read:
        """What a message says."""
        data = dumped(message)
        if any(part["part_kind"] == "retry-prompt" for part in data["parts"]):
            message = loaded(data)  # an old kind of part is loaded as what it always meant
            data = dumped(message)
        rest = _message_fields(data)
        if isinstance(message, ModelRequest):
            return _request(message, data, rest)
        parts = [read for at, part in enumerate(data["parts"]) for read in _parts(at, part)]
        tokens = measured_tokens(message)
        return Read(role="assistant", parts=tuple(parts), rest=rest, tokens=tokens)

    def write(
        self, shown: Sequence[PromptMessage], _original: ModelMessage | None, /
    ) -> list[ModelMessage]:
        """Messages that say this; what the user and tools say one after the other is one."""
        written: list[ModelMessage] = []
        for is_answer, group in groupby(shown, lambda held: isinstance(held, AssistantMessage)):
            held = list(group)
            written += map(_loaded, [[one] for one in held] if is_answer else [held])
        return written

    def prompt(self, _message: ModelMessage, /) -> ModelMessage | None:
        """None: a system prompt is a part of a message here."""
        return None


def dumped(message: ModelMessage) -> Json:
    """The JSON of a message; what is no JSON in it is named by its kind."""
    return ModelMessagesTypeAdapter.dump_python(
        [message], mode="json", fallback=_kind, warnings=False
    )[0]


def loaded(data: Json) -> ModelMessage:
    """The message of such JSON."""
    text = compact([data]).encode("utf-8", "replace")  # half a pair is refused
    return ModelMessagesTypeAdapter.validate_json(text)[0]


def _kind(value: object) -> str:
    return f"<{type(value).__name__}>"


def fields(data: Json, *names: str) -> Json:
    """What is set of an object, without these fields."""
    return {
        name: held
        for name, held in data.items()
        if held is not None and name not in names and not (name in _EMPTY and not held)
    }


_EMPTY = ("content_file_digests", "details")


def _message_fields(data: Json) -> Json:
    told = fields(data, "parts")
    if "usage" in told:
        told["usage"] = {name: held for name, held in told["usage"].items() if held}
    same = {name: told.pop(name) for name in _SAME if name in told}
    return {MESSAGE: same, VOLATILE: {MESSAGE: told}}


def _request(message: ModelRequest, data: Json, rest: Json) -> Read:
    # System prompts that open a message in which the user says something, too.
    kinds = [part.part_kind for part in message.parts]
    first = next((at for at, kind in enumerate(kinds) if kind != "system-prompt"), 0)
    opening = first if "user-prompt" in kinds else 0
    if opening:
        rest[VOLATILE][PROMPTS] = [fields(held) for held in data["parts"][:opening]]
    parts, answers = list[AnyPart](), list[Answer]()
    for at in range(opening, len(message.parts)):
        part, told = message.parts[at], data["parts"][at]
        if isinstance(part, theirs.ToolReturnPart):
            answers.append(_answer(at, part, told))
        elif isinstance(part, theirs.RetryFeedbackPart):
            own = {AT: at, PART: fields(told)}
            text = part.model_response()
            parts.append(TextPart(text=text, synthetic=True, metadata={KEY: own}))
        else:
            parts += _parts(at, told, asked=True)
    if answers:  # where there is nothing else, they alone are kept
        answers[0] = replace(answers[0], rest={**answers[0].rest, **rest})
    return Read(role="user", parts=tuple(parts), answers=tuple(answers), rest=rest)


def _parts(at: int, data: Json, *, asked: bool = False) -> list[AnyPart]:
    """What a part says: words, thoughts, files, a call; one that we have no words for is whole."""
    kind, content = data["part_kind"], data.get("content")
    own: Json = {AT: at, PART: fields(data, "content")}
    text = content if isinstance(content, str) else ""
    has_words = bool(text.strip())
    match kind:
        case "thinking":
            part: AnyPart = ReasoningPart(text=text, metadata={KEY: own})
        case "text" | "user-prompt" if has_words:
            part = TextPart(text=text, metadata={KEY: own})
        case "system-prompt" if has_words and data["scope"] == "conversation":
            part = TextPart(text=text, synthetic=True, metadata={KEY: own})
        case "tool-call":
            part = _call(at, data)
        case "file":
            part = _file(cast("Json", content), own)
        case "user-prompt" if content and isinstance(content, list):
            items = enumerate(cast("list[str | Json]", content))
            return [_item(held, {**own, ITEM: place}) for place, held in items]
        case _:
            synthetic = asked and kind != "user-prompt"
            own = {AT: at, BLOCK: fields(data)}
            part = TextPart(text=_readable(data), synthetic=synthetic or UNSET, metadata={KEY: own})
    return [part]


def _readable(data: Json) -> str:
    """What others may read of a part."""
    for name in ("content", "transcript", "args"):
        held: object = data.get(name)
        if held and not isinstance(held, str):
            held = compact(held)
        if isinstance(held, str) and held.strip():
            named = data.get("tool_name")
            return f"{named}: {held}"[:_LONGEST] if named else held[:_LONGEST]
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
    # A mark of a cache, or a file that would not be shown as one.
    return TextPart(text="", metadata={KEY: {**own, BLOCK: fields(item)}})


def _file(item: Json, own: Json) -> FilePart:
    mime, inline = item["media_type"] or _USUAL.get(item["kind"], _BYTES), item.get("data")
    if isinstance(inline, str):
        url = data_url(mime, inline.replace("-", "+").replace("_", "/"))
    else:
        url = item.get("url") or item.get("file_id") or ""
    # With its nulls: in results a file is known by a print of all its fields.
    kept = {name: held for name, held in item.items() if name != "data"}
    return FilePart(mime=mime, url=url, metadata={KEY: {**own, FIELDS: kept}})


# --- results -------------------------------------------------------------------------------


def _answer(at: int, part: theirs.ToolReturnPart, data: Json) -> Answer:
    content = cast("object", data["content"])
    rest: Json = {AT: at, PART: fields(data, "content", "tool_call_id")}
    text, files = laid_out(content)
    if files:
        rest[RAW] = content
    elif not isinstance(content, str):
        rest[FORM] = "json"
    return Answer(
        call_id=part.tool_call_id,
        output=text,
        tool=part.tool_name,
        is_error=part.outcome in theirs.ERROR_OUTCOMES,
        files=files,
        rest=rest,
        raw=fields(data),
    )


def laid_out(content: object) -> tuple[str, tuple[FilePart, ...]]:
    """The words and the files of a result's content: a text, a file, a list, or other JSON."""
    if isinstance(content, str):
        return content, ()
    items = cast("list[object]", content) if isinstance(content, list) else [content]
    files = tuple(_file(cast("Json", item), {}) for item in items if _is_file(item))
    if not files:
        return compact(cast("object", content)), ()
    words = [item for item in items if not _is_file(item)]
    texts = [item if isinstance(item, str) else compact(item) for item in words]
    return "\n".join(texts) or f"[{files[0].mime}]", files


def _is_file(item: object) -> bool:
    held = cast("Json", item) if isinstance(item, dict) else {}
    return held.get("kind") in _FILE_KINDS and "media_type" in held


def _call(at: int, data: Json) -> ToolPart:
    """A call; arguments that our JSON would not give again are kept as they were written."""
    args = data["args"]
    own: Json = {AT: at, PART: fields(data, "args", "tool_call_id", "tool_name")}
    given = cast("Json", args) if isinstance(args, dict) else {}
    if isinstance(args, str):
        given = arguments_object(args) or {}
        own[FORM] = "text"
        if compact(given) != args:
            own[ARGUMENTS] = args
    elif args is None:
        own[ARGUMENTS] = None
    return ToolPart(
        tool=data["tool_name"],
        call_id=data["tool_call_id"],
        state=Pending(input=given),
        metadata={KEY: own},
    )


# --- writing -------------------------------------------------------------------------------


def _loaded(shown: Sequence[PromptMessage]) -> ModelMessage:
    """The message of what one side says; without what was kept, where that cannot be loaded."""
    try:
        return loaded(_message(shown))
    except (ValidationError, ValueError):
        return loaded(_message([_plain(message) for message in shown]))


def _plain(message: PromptMessage) -> PromptMessage:
    blocks = (replace(block, provider_options=None) for block in message.content)
    return replace(message, wire=None, content=tuple(blocks))


def _message(shown: Sequence[PromptMessage]) -> Json:
    kept: Json = {}
    placed: list[tuple[int, Json]] = []
    for message in shown:
        at = placed[-1][0] if placed else 0
        match message:
            case ToolMessage():
                for result in message.content:
                    own = options(_own(result.provider_options), RESULT)
                    kept = own if MESSAGE in own else kept
                    at = own.get(AT, at)
                    placed.append((at, _returned(result, own)))
            case UserMessage():
                kept = _own(message.wire) or kept
                placed += _prompts(message, at)
            case AssistantMessage():
                kept = _own(message.wire)
                placed += [(0, _part(block)) for block in message.content]
    volatile = options(kept, VOLATILE)
    parts = [part for _, part in sorted(placed, key=lambda held: held[0])]
    return {
        **options(kept, MESSAGE),
        **options(volatile, MESSAGE),
        "kind": "response" if isinstance(shown[0], AssistantMessage) else "request",
        "parts": [*cast("list[Json]", volatile.get(PROMPTS) or ()), *parts],
    }


def _own(held: object) -> Json:
    return options(held, KEY)


def _part(block: Block, *, asked: bool = False) -> Json:
    own = _own(block.provider_options)
    told, whole = options(own, PART), options(own, BLOCK)
    match block:
        case Text() if whole and whole["part_kind"] != "tool-return":
            part = whole
        case Text():  # a result without its call is refused
            part = {"part_kind": "user-prompt" if asked else "text", "content": block.text, **told}
        case Reasoning():
            part = {"part_kind": "thinking", "content": block.text, **told}
        case Media() if asked:
            part = {"part_kind": "user-prompt", "content": [_write_file(block, own)]}
        case Media():
            part = {"part_kind": "file", **told, "content": _write_file(block, own)}
        case Call():
            part = {
                "part_kind": "tool-call",
                **told,
                "tool_name": block.tool_name,
                "tool_call_id": block.tool_call_id,
                "args": _arguments(block, own),
            }
    return part


def _prompts(message: UserMessage, at: int) -> list[tuple[int, Json]]:
    """What the user said; the items of one prompt are one part again."""
    placed: list[tuple[int, Json]] = []
    before = 0  # places of messages that the view has made one with this
    for block in message.content:
        own = _own(block.provider_options)
        if placed and own.get(AT, at) + before < at:  # here the next of them begins
            before = at + 1
        at = own[AT] + before if AT in own else at
        if ITEM not in own:
            placed.append((at, _part(block, asked=True)))
            continue
        item = _write_item(block, own)
        if placed and placed[-1][0] == at and isinstance(placed[-1][1]["content"], list):
            cast("list[object]", placed[-1][1]["content"]).append(item)
        else:
            part = {"part_kind": "user-prompt", **options(own, PART), "content": [item]}
            placed.append((at, part))
    return placed


def _write_item(block: Text | Media, own: Json) -> str | Json:
    if BLOCK in own:
        held = options(own, BLOCK)
        return held["text"] if list(held) == ["text"] else held
    if isinstance(block, Media):
        return _write_file(block, own)
    return {**options(own, FIELDS), "content": block.text} if FIELDS in own else block.text


def _write_file(block: Media, own: Json) -> Json:
    """A file as it came; one of ours is written as what its address says."""
    _, inline = url_parts(block.data)
    told = options(own, FIELDS)
    if inline is not None:
        told = told or {"kind": "binary", "media_type": block.media_type}
        return {**told, "data": inline.replace("+", "-").replace("/", "_")}
    if told:
        return told
    kind = "image-url" if block.media_type.startswith("image/") else "document-url"
    return {"kind": kind, "url": block.data, "media_type": block.media_type}


def _returned(result: Result, own: Json) -> Json:
    part: Json = {
        "part_kind": "tool-return",
        "tool_name": result.tool_name,
        "tool_call_id": result.tool_call_id,
    }
    if result.output.type.startswith("error"):
        part["outcome"] = "failed" if own else "interrupted"
    return {**part, **options(own, PART), "content": _content(result, own)}


def _content(result: Result, own: Json) -> object:
    """The content of a result as it was, where the view shows it so; else its words."""
    value = result.output.value
    if RAW in own:
        text, files = laid_out(own[RAW])
        if (text, len(files)) == (value, len(result.attachments)):
            return own[RAW]
    if own.get(FORM) == "json":
        with suppress(ValueError):
            held: object = json.loads(value)
            return held if compact(held) == value else value
    shown = [_write_file(held, _own(held.provider_options)) for held in result.attachments]
    return [value, *shown] if shown else value


def _arguments(block: Call, own: Json) -> object:
    if ARGUMENTS in own:
        return own[ARGUMENTS]
    return compact(block.input) if own.get(FORM) == "text" else block.input
