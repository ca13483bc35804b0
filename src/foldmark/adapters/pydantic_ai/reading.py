"""Messages of pydantic-ai, read into ours.

What we have words for becomes parts of ours; the fields beside the words are kept under our key
as pydantic-ai's own JSON, each with the place that it had. A part that we have no words for is
kept whole. How they are written again is told in `writing`.
"""

from typing import NamedTuple, cast

from msgspec import UNSET
from msgspec.structs import replace
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
from foldmark.model.values import Json
from foldmark.providers.responses import measured_tokens
from foldmark.session.history_mirror import VOLATILE
from foldmark.tokens.sizes import EXPANDED
from foldmark.wire.codec import ARGUMENTS, RAW, Answer, Read, arguments_object, compact, data_url

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
