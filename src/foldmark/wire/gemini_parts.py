"""The parts of Gemini's contents, read; and the notes by which they are written back.

A note is kept only where something was not written in the usual way, so that most parts have none.
"""

import json
from collections import Counter
from typing import Any

from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, FilePart, Pending, ReasoningPart, TextPart, ToolPart
from foldmark.model.prompt_messages import Output
from foldmark.model.values import Json

from .codec import Answer, data_url, kept, object_at, objects, opaque, options, text_at, without

KEY = "google"
# Fields that say what a part is; one that has another, or several, stays as it is.
KINDS = {
    "text": "text",
    "functionCall": "call",
    "function_call": "call",
    "functionResponse": "result",
    "function_response": "result",
    "inlineData": "inline",
    "inline_data": "inline",
    "fileData": "address",
    "file_data": "address",
    "executableCode": "other",
    "executable_code": "other",
    "codeExecutionResult": "other",
    "code_execution_result": "other",
}
# The SDK's names of what we look for.
SNAKE_CASE = {
    "mimeType": "mime_type",
    "fileUri": "file_uri",
    "finishReason": "finish_reason",
    "blockReason": "block_reason",
    "modelVersion": "model_version",
    "promptFeedback": "prompt_feedback",
    "usageMetadata": "usage_metadata",
    "promptTokenCount": "prompt_token_count",
    "cachedContentTokenCount": "cached_content_token_count",
    "candidatesTokenCount": "candidates_token_count",
    "thoughtsTokenCount": "thoughts_token_count",
    "totalTokenCount": "total_token_count",
}

# Notes on a call and on a file stand under these names, those on a result under RESULT.
CALL, MEDIA = "call", "media"
INNER = "inner"  # fields of a call, a result or a file that we do not know
BESIDE = "beside"  # fields of a part beside its result
SNAKE = "snake"
UNNAMED = "unnamed"  # a call without an id
BARE = "bare"  # a call without arguments, a file without its kind
WITHIN = "within"  # a file inside of a result
URL_SAFE = "url_safe"  # base64 in the digits of the Python SDK
FORM = "form"  # how a result told its text
AS_JSON, AS_NOTHING = "json", "nothing"
TEXTS = ("output", "result", "content")

_SIGNATURES = ("thoughtSignature", "thought_signature")
_DIGITS = str.maketrans("-_", "+/")
_ANY_KIND = "application/octet-stream"


def either(data: Json, name: str) -> Any:
    """A field by its name in JSON, or by the SDK's."""
    return data[name] if name in data else data.get(SNAKE_CASE[name])


class PartsReader:
    """Takes the parts of one content; calls and results without ids are counted by their names."""

    def __init__(self, *, by_model: bool) -> None:
        """Say whose content it is: only the model calls, only others answer."""
        self.parts: list[AnyPart] = []
        self.answers: list[Answer] = []
        self._by_model = by_model
        self._counts: Counter[str] = Counter()
        self._after_result = False

    def take(self, part: Json) -> None:
        """The next part."""
        field = _field(part)
        if KINDS.get(field) == "result" and not self._by_model and _is_named(part, field):
            self.answers.append(self._answer(part, field))
            self._after_result = True
            return
        read = self._read(part, field)
        if self._after_result and isinstance(read, FilePart):
            # What a tool shows beside its words follows its result.
            last = self.answers[-1]
            self.answers[-1] = replace(last, files=(*last.files, read))
            return
        self._after_result = False
        self.parts.append(read)

    def _read(self, part: Json, field: str) -> AnyPart:
        match KINDS.get(field):
            # A signature may come with no words at all; it must go back all the same.
            case "text" if text_at(part, "text").strip() or not _is_signed(part):
                return _words(part)
            case "call" if self._by_model and _is_named(part, field):
                return self._call(part, field)
            case "inline" | "address" if (file := _file(part, field)) is not None:
                return file
            case _:
                return opaque(KEY, part, _readable(part, field))

    def _call(self, part: Json, field: str) -> ToolPart:
        inner = object_at(part, field)
        name = text_at(inner, "name")
        call_id, is_made = self._id(inner, name)
        is_bare = inner.get("args") is None
        notes = _noted(
            inner=_unknown(inner, name=True, id=not is_made, args=not is_bare),
            snake="_" in field,
            unnamed=is_made,
            bare=is_bare,
        )
        return ToolPart(
            tool=name,
            call_id=call_id,
            state=Pending(input={} if is_bare else object_at(inner, "args")),
            metadata=kept(KEY, without(part, field) | _noted(call=notes)),
        )

    def _answer(self, part: Json, field: str) -> Answer:
        inner = object_at(part, field)
        name = text_at(inner, "name")
        call_id, is_made = self._id(inner, name)
        output, form = _output(inner)
        files = _files_within(inner)
        known = {"id": not is_made, "response": form != AS_NOTHING, "parts": bool(files)}
        return Answer(
            call_id=call_id,
            output=output.value,
            tool=name,
            is_error=output.type == "error-text",
            files=files,
            rest=_noted(
                inner=_unknown(inner, name=True, **known),
                beside=without(part, field),
                snake="_" in field,
                form=form,
            ),
            raw=part,
        )

    def _id(self, inner: Json, name: str) -> tuple[str, bool]:
        """The id of a call or a result, and whether we made it of its name and number."""
        if inner.get("id"):
            return text_at(inner, "id"), False
        self._counts[name] += 1
        return f"call_{name}_{self._counts[name]}", True


def _field(part: Json) -> str:
    """The field that says what a part is; empty where none or several do."""
    found = [name for name, held in part.items() if held is not None and name in KINDS]
    return found[0] if len(found) == 1 else ""


def _is_named(part: Json, field: str) -> bool:
    """Whether it is a whole call or result: where one is streamed, what follows has no name."""
    return object_at(part, field).get("name") is not None


def _is_signed(part: Json) -> bool:
    return any(part.get(name) for name in _SIGNATURES)


def _unknown(data: Json, /, **known: bool) -> Json:
    return {name: held for name, held in data.items() if not known.get(name)}


def _noted(**notes: Any) -> Json:
    return {name: held for name, held in notes.items() if held}


def _words(part: Json) -> TextPart | ReasoningPart:
    text = text_at(part, "text")
    if part.get("thought") is True:
        return ReasoningPart(text=text, metadata=kept(KEY, without(part, "text", "thought")))
    return TextPart(text=text, metadata=kept(KEY, without(part, "text")))


def _readable(part: Json, field: str) -> str:
    """What others may read of code that Gemini ran, of what came of it, of half a call."""
    inner = options(part, field)
    for name in ("code", "output"):
        if isinstance(inner.get(name), str):
            return inner[name]
    return ""


def _output(inner: Json) -> tuple[Output, str]:
    """What a result says, and how it told it, where that is not the usual way."""
    if inner.get("response") is None:
        return Output(type="text", value=""), AS_NOTHING
    response = object_at(inner, "response")
    name, text = next(iter(response.items()), ("", None))
    if len(response) == 1 and isinstance(text, str):
        if name in TEXTS:
            return Output(type="text", value=text), "" if name == TEXTS[0] else name
        if name == "error":
            return Output(type="error-text", value=text), ""
    try:
        text = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        raise BadInput("the 'response' of a functionResponse cannot be written as JSON") from None
    return Output(type="text", value=text), AS_JSON


def _files_within(inner: Json) -> tuple[FilePart, ...]:
    """The files inside of a result; none where anything else is among them."""
    given = inner.get("parts")
    files: list[FilePart] = []
    for part in [] if given is None else objects(given, "'parts' of a functionResponse"):
        field = _field(part)
        is_file = KINDS.get(field) in ("inline", "address")
        file = _file(part, field, within=True) if is_file else None
        if file is None:
            return ()
        files.append(file)
    return tuple(files)


def _file(part: Json, field: str, *, within: bool = False) -> FilePart | None:
    """A file that is inline or has an address; None where it lacks what makes it one."""
    inner = object_at(part, field)
    is_inline = KINDS[field] == "inline"
    mime = either(inner, "mimeType")
    data = inner.get("data") if is_inline else either(inner, "fileUri")
    is_bare = mime is None and not is_inline
    mime = _ANY_KIND if is_bare else mime
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    is_url_safe = is_inline and _is_url_safe(data)
    known = () if is_bare else ("mimeType", "mime_type")
    notes = _noted(
        inner=without(inner, *known, "data", "fileUri", "file_uri"),
        snake="_" in field,
        bare=is_bare,
        within=within,
        url_safe=is_url_safe,
    )
    if is_inline:
        data = data_url(mime, data.translate(_DIGITS) if is_url_safe else data)
    return FilePart(
        mime=mime, url=data, metadata=kept(KEY, without(part, field) | _noted(media=notes))
    )


def _is_url_safe(data: str) -> bool:
    """Whether base64 is in the digits that the Python SDK writes and other providers refuse."""
    return ("-" in data or "_" in data) and "+" not in data and "/" not in data
