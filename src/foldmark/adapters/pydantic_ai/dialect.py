"""Messages of pydantic-ai, read into ours and written back: just as they came, where they can.

What we have words for becomes parts of ours; the fields beside the words are kept under our key
as pydantic-ai's own JSON, each with the place that it had. A part that we have no words for is
kept whole. What the view altered (a hidden output, a summary) is written as words; so is what
another version of pydantic-ai wrote and this one cannot load.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from msgspec import UNSET
from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_ai import messages as theirs
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse

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
    RAW,
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
_MOST_RECENT = 16


class PydanticDialect:
    """How pydantic-ai writes messages. Its system prompts are led by who asks, not by this."""

    key = KEY
    unique = True  # each message has its time

    def __init__(self) -> None:
        """Nothing was read."""
        self._recent: dict[int, tuple[ModelMessage, Read]] = {}

    def read(self, message: ModelMessage, /) -> Read:
        """What a message says; one that is taken is soon asked for again, to be shown."""
        held = self._recent.pop(id(message), None)
        if held is not None and held[0] is message:
            return held[1]
        if len(self._recent) >= _MOST_RECENT:
            self._recent.clear()
        found = read_message(message)
        self._recent[id(message)] = message, found
        return found

    def write(
        self, shown: Sequence[PromptMessage], _original: ModelMessage | None, /
    ) -> list[ModelMessage]:
        """Messages that say this."""
        return written(shown)

    def prompt(self, _message: ModelMessage, /) -> ModelMessage | None:
        """None: a system prompt is a part of a message here."""
        return None


def read_message(message: ModelMessage) -> Read:
    """What a message says."""
    data = dumped(message)
    if any(part["part_kind"] == "retry-prompt" for part in data["parts"]):
        message = loaded(data)  # an old kind of part is loaded as what it always meant
        data = dumped(message)
    if isinstance(message, ModelResponse):
        return _response(message, data)
    return _request(message, data)


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


# --- requests ------------------------------------------------------------------------------


class _Said(NamedTuple):
    """What a request says."""

    parts: list[AnyPart]
    answers: list[Answer]


def _request(message: ModelRequest, data: Json) -> Read:
    rest = _message_fields(data)
    opening = opening_prompts(message)
    if opening:
        rest[VOLATILE][PROMPTS] = [fields(held) for held in data["parts"][:opening]]
    said = _Said([], [])
    for at in range(opening, len(message.parts)):
        _take_part(said, at, message.parts[at], data["parts"][at])
    if said.answers:  # where there is nothing else, they alone are kept
        first = said.answers[0]
        said.answers[0] = replace(first, rest={**first.rest, **rest})
    return Read(role="user", parts=tuple(said.parts), answers=tuple(said.answers), rest=rest)


def opening_prompts(message: ModelRequest) -> int:
    """How many system prompts open a message in which the user says something, too."""
    kinds = [part.part_kind for part in message.parts]
    count = next((at for at, kind in enumerate(kinds) if kind != "system-prompt"), 0)
    return count if "user-prompt" in kinds else 0


def _take_part(said: _Said, at: int, part: theirs.ModelRequestPart, data: Json) -> None:
    match part:
        case theirs.ToolReturnPart():
            said.answers.append(_answer(at, part, data))
        case theirs.UserPromptPart():
            said.parts.extend(_prompt(at, data))
        case theirs.SystemPromptPart() if part.scope == "conversation" and part.content.strip():
            own = {AT: at, PART: fields(data, "content")}
            said.parts.append(
                TextPart(text=part.content, synthetic=True, metadata={KEY: own}),
            )
        case theirs.RetryFeedbackPart():
            text = part.model_response()
            said.parts.append(
                TextPart(text=text, synthetic=True, metadata={KEY: {AT: at, PART: fields(data)}})
            )
        case _:
            said.parts.append(_whole(at, data, synthetic=True))


def _whole(at: int, data: Json, *, synthetic: bool = False) -> TextPart:
    """A part that is kept as it is."""
    return TextPart(
        text=_readable(data),
        synthetic=synthetic or UNSET,
        metadata={KEY: {AT: at, BLOCK: fields(data)}},
    )


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


def _prompt(at: int, data: Json) -> list[AnyPart]:
    """The parts of what the user says: words and files."""
    content, told = data["content"], fields(data, "content")
    if isinstance(content, str):
        if not content.strip():
            return [_whole(at, data)]
        return [TextPart(text=content, metadata={KEY: {AT: at, PART: told}})]
    items = cast("list[str | Json]", content)
    if not items:
        return [_whole(at, data)]
    return [
        _item(held, {AT: at, ITEM: place, **({PART: told} if place == 0 else {})})
        for place, held in enumerate(items)
    ]


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


# --- responses -----------------------------------------------------------------------------


def _response(message: ModelResponse, data: Json) -> Read:
    return Read(
        role="assistant",
        parts=tuple(_said(at, part) for at, part in enumerate(data["parts"])),
        rest=_message_fields(data),
        tokens=measured_tokens(message),
    )


def _said(at: int, data: Json) -> AnyPart:
    match data["part_kind"]:
        case "text" if data["content"].strip():
            own = {AT: at, PART: fields(data, "content")}
            return TextPart(text=data["content"], metadata={KEY: own})
        case "thinking":
            own = {AT: at, PART: fields(data, "content")}
            return ReasoningPart(text=data["content"], metadata={KEY: own})
        case "tool-call":
            return _call(at, data)
        case "file":
            return _file(data["content"], {AT: at, PART: fields(data, "content")})
        case _:
            return _whole(at, data)


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


def written(shown: Sequence[PromptMessage]) -> list[ModelMessage]:
    """Messages that say this; what the user and tools say one after the other is one."""
    messages: list[ModelMessage] = []
    asked: list[UserMessage | ToolMessage] = []
    for message in shown:
        if isinstance(message, AssistantMessage):
            messages += _write_request(asked)
            asked = []
            messages.append(_write_response(message))
        else:
            asked.append(message)
    return messages + _write_request(asked)


def _loaded(fields: Json, parts: Sequence[Json], plain: Sequence[Json]) -> ModelMessage:
    try:
        return loaded({**fields, "parts": list(parts)})
    except (ValidationError, ValueError):
        return loaded({"kind": fields["kind"], "parts": list(plain)})


def _kept_fields(own: Json) -> Json:
    """The fields of a message, and those that may change."""
    return {**options(own, MESSAGE), **options(options(own, VOLATILE), MESSAGE)}


def _own(held: object) -> Json:
    return options(held, KEY)


# --- requests ------------------------------------------------------------------------------


class _Placed(NamedTuple):
    """A part of a request: its place, itself, and what can be loaded in any case."""

    at: int
    part: Json
    plain: Json


def _write_request(asked: Sequence[UserMessage | ToolMessage]) -> list[ModelMessage]:
    if not asked:
        return []
    told: Json = {}
    placed: list[_Placed] = []
    for message in asked:
        if isinstance(message, ToolMessage):
            for result in message.content:
                own = options(_own(result.provider_options), RESULT)
                told = own if MESSAGE in own else told
                placed.append(_returned(result, own, _last(placed)))
        else:
            told = _own(message.wire) or told
            placed += _prompts(message, _last(placed))
    opening = cast("list[Json]", options(told, VOLATILE).get(PROMPTS) or [])
    parts = [*opening, *(held.part for held in sorted(placed, key=lambda held: held.at))]
    fields = {**_kept_fields(told), "kind": "request"}
    return [_loaded(fields, parts, [held.plain for held in placed])]


def _last(placed: Sequence[_Placed]) -> int:
    return placed[-1].at if placed else 0


def _prompts(message: UserMessage, at: int) -> list[_Placed]:
    """What the user said; the items of one prompt are one part again."""
    placed: list[_Placed] = []
    before = 0  # places of messages that the view has made one with this
    for block in message.content:
        own = _own(block.provider_options)
        if placed and own.get(AT, at) + before < at:  # here the next of them begins
            before = at + 1
        at = own[AT] + before if AT in own else at
        words = block.text if isinstance(block, Text) else ""
        plain = {"part_kind": "user-prompt", "content": words}
        if ITEM in own:
            item = _write_item(block, own)
            if placed and placed[-1].at == at and isinstance(placed[-1].part["content"], list):
                cast("list[object]", placed[-1].part["content"]).append(item)
            else:
                part = {"part_kind": "user-prompt", **options(own, PART), "content": [item]}
                placed.append(_Placed(at, part, plain))
        else:
            placed.append(_Placed(at, _words(block, own), plain))
    return placed


def _words(block: Text | Media, own: Json) -> Json:
    if isinstance(block, Media):
        return {"part_kind": "user-prompt", "content": [_write_file(block, own)]}
    whole = options(own, BLOCK)
    if whole and whole["part_kind"] != "tool-return":  # a result without its call is refused
        return whole
    return {"part_kind": "user-prompt", "content": block.text, **options(own, PART)}


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


def _returned(result: Result, own: Json, at: int) -> _Placed:
    value = result.output.value
    plain: Json = {
        "part_kind": "tool-return",
        "tool_name": result.tool_name,
        "tool_call_id": result.tool_call_id,
        "content": value,
    }
    if result.output.type.startswith("error"):
        plain["outcome"] = "failed" if own else "interrupted"
    part = {**plain, **options(own, PART), "content": _content(result, own)}
    return _Placed(own.get(AT, at), part, plain)


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


# --- responses -----------------------------------------------------------------------------


def _write_response(message: AssistantMessage) -> ModelMessage:
    parts = [_write_part(block) for block in message.content]
    plain = [
        {"part_kind": "text", "content": block.text}
        if isinstance(block, Text | Reasoning)
        else part
        for block, part in zip(message.content, parts, strict=True)
    ]
    return _loaded({**_kept_fields(_own(message.wire)), "kind": "response"}, parts, plain)


def _write_part(block: Block) -> Json:
    own = _own(block.provider_options)
    told = options(own, PART)
    match block:
        case Text():
            words = {"part_kind": "text", "content": block.text, **told}
            return options(own, BLOCK) or words
        case Reasoning():
            return {"part_kind": "thinking", "content": block.text, **told}
        case Media():
            return {"part_kind": "file", **told, "content": _write_file(block, own)}
        case Call():
            return {
                "part_kind": "tool-call",
                **told,
                "tool_name": block.tool_name,
                "tool_call_id": block.tool_call_id,
                "args": _arguments(block, own),
            }


def _arguments(block: Call, own: Json) -> object:
    if ARGUMENTS in own:
        return own[ARGUMENTS]
    return compact(block.input) if own.get(FORM) == "text" else block.input
