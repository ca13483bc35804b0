"""Gemini's contents.

The name of a part's field is its type; most calls have no ids, and results are matched by the name
of the tool; the signature of a thought is on whichever part follows it; the system prompt is a
separate field of the request. Fields are in camelCase in JSON and in snake_case in dicts of the
Python SDK; each is written back as it was received.
"""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import cast

from msgspec.structs import replace

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
    RAW,
    AssistantMessage,
    Call,
    Media,
    Output,
    PromptMessage,
    Reasoning,
    Result,
    Text,
    ToolMessage,
)
from foldmark.model.values import Json
from foldmark.tokens.media import media_text

from .codec import (
    NOTHING_TO_READ,
    RESULT,
    Codec,
    NameFitter,
    ReadMessage,
    ReadReply,
    ReadResult,
    UsageFields,
    any_case,
    codec_metadata,
    data_url,
    is_joined,
    json_type,
    object_at,
    objects,
    opaque_part,
    positive_int,
    read_unknown_role,
    read_usage,
    snake_case,
    subobject,
    text_at,
    url_parts,
    whole_message,
    with_whole_messages,
    without,
)
from .exactness import difference_note, restore, with_difference

KEY = "google"
UNNAMED = "unnamed"  # marks a call without an id: the id that we generated is not sent
_WITHIN = "within"  # in the notes of a result: how many of its files are inside it
_OUTPUT_FIELDS = ("output", "result", "content")
# Types of parts by their fields; a part with another field or with several is kept unchanged.
_KINDS = {
    "text": "text",
    "functionCall": "call",
    "functionResponse": "result",
    "inlineData": "inline",
    "fileData": "address",
    "executableCode": "other",
    "codeExecutionResult": "other",
}
KINDS = {form: kind for name, kind in _KINDS.items() for form in (name, snake_case(name))}
usage_tokens = partial(
    read_usage,
    UsageFields(
        input="promptTokenCount",
        output="candidatesTokenCount",
        cache_read="cachedContentTokenCount",
        reasoning="thoughtsTokenCount",
        total="totalTokenCount",
        is_reasoning_separate=True,
    ),
)
_ROLES = ("user", "model", "function", None)
_SIGNATURES = ("thoughtSignature", "thought_signature")
_UNKNOWN_MIME = "application/octet-stream"
_TO_STANDARD = str.maketrans("-_", "+/")
# URLs that Google can fetch.
_REACHABLE = ("https://", "http://", "gs://")
_REFUSALS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
    "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
})  # fmt: skip


class Gemini(Codec):
    """Codec for Gemini's API."""

    name = "gemini"
    key = KEY
    provider = "google"

    def recognizes(self, messages: Sequence[Json]) -> bool:
        """Whether a list can have this API format."""
        return all(
            isinstance(message.get("parts"), list) and message.get("role") in _ROLES
            for message in messages
        )

    def recognizes_reply(self, response: Json) -> bool:
        """Whether a response has this API format; one to a refused prompt has no candidates."""
        if isinstance(response.get("candidates"), list):
            return True
        return isinstance(any_case(response, "promptFeedback"), dict)

    def read(self, message: Json) -> ReadMessage:
        """Read one content."""
        role = message.get("role")
        if role not in _ROLES:
            if isinstance(role, str):
                return read_unknown_role(KEY, message)
            raise BadInput(f"'role' of a Gemini content is {json_type(role)}, not a string")
        parts = message.get("parts")
        reader = _PartsReader(is_model=role == "model")
        for part in [] if parts is None else objects(parts, "'parts'"):
            reader.add(part)
        return ReadMessage(
            role="assistant" if role == "model" else "user",
            parts=tuple(reader.parts),
            results=tuple(reader.results),
        )

    def read_reply(self, response: Json) -> ReadReply:
        """Read a complete response; its first candidate is the reply."""
        if not self.recognizes_reply(response):
            raise BadInput("this is not a response of Gemini's API")
        first = _first_candidate(response)
        content = {} if first.get("content") is None else object_at(first, "content")
        message = self.read({**content, "role": "model"})
        return ReadReply(
            message=message,
            tokens=usage_tokens(any_case(response, "usageMetadata")),
            finish=_finish(response, first, message.parts),
            model=str(any_case(response, "modelVersion") or ""),
            rest=_with_first_candidate(response, without(first, "content")),
        )

    def write(self, messages: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Write prompt messages, unchanged if `as_is`, else as the API accepts them."""
        names = None if as_is else NameFitter(max_length=64, extra=".:")
        output: list[Json] = []
        last: PromptMessage | None = None
        for message in with_whole_messages(messages, lambda block: whole_message(block, KEY)):
            if isinstance(message, dict):
                output.append(message)
                last = None
                continue
            content = _content(message, names)
            if as_is:
                is_continued = isinstance(last, ToolMessage) and is_joined(message)
            else:
                is_continued = bool(output) and output[-1]["role"] == content["role"]
                if not content["parts"] and not is_continued:
                    content["parts"] = [{"text": NOTHING_TO_READ}]
            if is_continued:
                output[-1]["parts"] += content["parts"]
            else:
                output.append(content)
            last = message
        return output

    def write_reply(self, messages: Sequence[PromptMessage], rest: Json) -> Json:
        """Rebuild a response from its content and its other fields."""
        content = self.write(messages[:1], as_is=True)[0]
        return _with_first_candidate(rest, {**_first_candidate(rest), "content": content})


# --- responses -----------------------------------------------------------------------------


def _first_candidate(response: Json) -> Json:
    """The first candidate, or {} if there is none."""
    value = response.get("candidates")
    candidates = [] if value is None else objects(value, "'candidates'")
    return candidates[0] if candidates else {}


def _with_first_candidate(response: Json, candidate: Json) -> Json:
    """The response with another first candidate, if it has any."""
    if not response.get("candidates"):
        return dict(response)
    return {**response, "candidates": [candidate, *response["candidates"][1:]]}


def _finish(response: Json, first: Json, parts: Sequence[AnyPart]) -> str:
    reason = any_case(first, "finishReason")
    if reason == "STOP":
        return finish_of(parts)
    if reason == "MAX_TOKENS":
        return "length"
    is_filtered = is_prompt_refused(response) or str(reason) in _REFUSALS
    return "content-filter" if is_filtered else "other"


def is_prompt_refused(response: Json) -> bool:
    """Whether the prompt of a response was blocked."""
    feedback = any_case(response, "promptFeedback")
    return isinstance(feedback, dict) and bool(any_case(cast("Json", feedback), "blockReason"))


# --- reading -------------------------------------------------------------------------------


class _PartsReader:
    """Reads the parts of one content; numbers calls and results without ids by their names."""

    def __init__(self, *, is_model: bool) -> None:
        """Take whether the content is the model's: only it has calls, only others have results."""
        self.parts: list[AnyPart] = []
        self.results: list[ReadResult] = []
        self._is_model = is_model
        self._counts: Counter[str] = Counter()
        self._after_result = False

    def add(self, part: Json) -> None:
        """Read the next part."""
        field = _kind_field(part)
        if KINDS.get(field) == "result" and not self._is_model and _has_name(part, field):
            self.results.append(self._read_result(part, field))
            self._after_result = True
            return
        piece = self._read_part(part, field)
        if self._after_result and isinstance(piece, FilePart):
            # Files after a result belong to the tool's output.
            last = self.results[-1]
            self.results[-1] = replace(last, files=(*last.files, piece))
            return
        self._after_result = False
        self.parts.append(piece)

    def _read_part(self, part: Json, field: str) -> AnyPart:
        match KINDS.get(field):
            # A signature may come with an empty text and must be sent back all the same.
            case "text" if text_at(part, "text").strip() or not _is_signed(part):
                return _text_part(part)
            case "call" if self._is_model and _has_name(part, field):
                return self._read_call(part, field)
            case "inline" | "address" if (file := _file(part, field)) is not None:
                return file
            case _:
                return opaque_part(KEY, part, _readable(part, field))

    def _read_call(self, part: Json, field: str) -> ToolPart:
        inner = object_at(part, field)
        arguments: Json = {} if inner.get("args") is None else object_at(inner, "args")
        name, call_id, identity = self._identity(inner)
        notes = without(part, field) | ({} if "id" in identity else {UNNAMED: True})
        canonical = {"functionCall": {**identity, "args": arguments}, **without(notes, UNNAMED)}
        return ToolPart(
            tool=name,
            call_id=call_id,
            state=Pending(input=arguments),
            metadata=codec_metadata(KEY, notes | difference_note(canonical, part)),
        )

    def _read_result(self, part: Json, field: str) -> ReadResult:
        inner = object_at(part, field)
        name, call_id, identity = self._identity(inner)
        output = _output(inner)
        files = _files_within(inner)
        read_result = ReadResult(
            call_id=call_id,
            output=output.value,
            tool=name,
            is_error=output.type == "error-text",
            files=files,
            rest={_WITHIN: len(files)} if files else {},
            raw=part,
        )
        call_notes = {} if "id" in identity else {UNNAMED: True}
        return with_difference(read_result, lambda item: _result(item, None)[0], KEY, call_notes)

    def _identity(self, inner: Json) -> tuple[str, str, Json]:
        """The name, the id and the identifying fields of a call or a result.

        A missing id is generated from the name and its number.
        """
        name = text_at(inner, "name")
        if inner.get("id"):
            call_id = text_at(inner, "id")
            return name, call_id, {"id": call_id, "name": name}
        self._counts[name] += 1
        return name, f"call_{name}_{self._counts[name]}", {"name": name}


def _kind_field(part: Json) -> str:
    """The field that gives the type of a part; "" if none or several do."""
    kinds = [name for name, value in part.items() if value is not None and name in KINDS]
    return kinds[0] if len(kinds) == 1 else ""


def _has_name(part: Json, field: str) -> bool:
    """Whether a call or result is complete: later pieces of a streamed one have no name."""
    return object_at(part, field).get("name") is not None


def _is_signed(part: Json) -> bool:
    return any(part.get(name) for name in _SIGNATURES)


def _text_part(part: Json) -> TextPart | ReasoningPart:
    text = text_at(part, "text")
    if part.get("thought") is True:
        metadata = codec_metadata(KEY, without(part, "text", "thought"))
        return ReasoningPart(text=text, metadata=metadata)
    return TextPart(text=text, metadata=codec_metadata(KEY, without(part, "text")))


def _readable(part: Json, field: str) -> str:
    """The text for other codecs of code that Gemini ran, or of its output."""
    inner = subobject(part, field)
    for name in ("code", "output"):
        if isinstance(inner.get(name), str):
            return inner[name]
    return ""


def _output(inner: Json) -> Output:
    """The output of a result."""
    if inner.get("response") is None:
        return Output(type="text", value="")
    response = object_at(inner, "response")
    name, text = next(iter(response.items()), ("", None))
    if len(response) == 1 and isinstance(text, str) and name in (*_OUTPUT_FIELDS, "error"):
        return Output(type="error-text" if name == "error" else "text", value=text)
    try:
        text = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        raise BadInput("the 'response' of a functionResponse cannot be written as JSON") from None
    return Output(type="text", value=text)


def _files_within(inner: Json) -> tuple[FilePart, ...]:
    """The files inside a result; none if anything else is among them."""
    parts = inner.get("parts")
    files: list[FilePart] = []
    for part in [] if parts is None else objects(parts, "'parts' of a functionResponse"):
        field = _kind_field(part)
        is_file = KINDS.get(field) in ("inline", "address")
        file = _file(part, field) if is_file else None
        if file is None:
            return ()
        files.append(file)
    return tuple(files)


def _file(part: Json, field: str) -> FilePart | None:
    """Read a file that is inline or has a URL; None if it is incomplete."""
    inner = object_at(part, field)
    is_inline = KINDS[field] == "inline"
    mime = any_case(inner, "mimeType")
    data = inner.get("data") if is_inline else any_case(inner, "fileUri")
    mime = _UNKNOWN_MIME if mime is None and not is_inline else mime
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    rest = without(part, field)
    if is_inline:
        canonical: Json = {"inlineData": {"mimeType": mime, "data": _standard_base64(data)}, **rest}
        data = data_url(mime, _standard_base64(data))
    else:
        canonical = {"fileData": {"mimeType": mime, "fileUri": data}, **rest}
    metadata = codec_metadata(KEY, rest | difference_note(canonical, part))
    return FilePart(mime=mime, url=data, metadata=metadata)


def _standard_base64(data: str) -> str:
    """Base64 in the standard alphabet: the Python SDK writes another that providers refuse."""
    is_url_safe = ("-" in data or "_" in data) and "+" not in data and "/" not in data
    return data.translate(_TO_STANDARD) if is_url_safe else data


# --- writing -------------------------------------------------------------------------------


def _content(message: PromptMessage, names: NameFitter | None) -> Json:
    if isinstance(message, ToolMessage):
        parts = [part for block in message.content for part in _result(block, names)]
    else:
        candidates = (_part(block, names) for block in message.content)
        parts = [part for part in candidates if part is not None]
    return {"role": "model" if isinstance(message, AssistantMessage) else "user", "parts": parts}


def _part(block: Text | Media | Reasoning | Call, names: NameFitter | None) -> Json | None:
    notes = subobject(block.provider_options, KEY)
    match block:
        case Text() if isinstance(notes.get(BLOCK), dict):
            return _block(block.text, notes[BLOCK], as_is=names is None)
        case Text():
            is_visible = names is None or block.text.strip()
            return {"text": block.text, **notes} if is_visible else None
        case Reasoning():
            is_visible = names is None or notes
            return {"text": block.text, "thought": True, **notes} if is_visible else None
        case Media():
            return _media(block, notes, as_is=names is None)
        case Call():
            identity = _identity(block.tool_name, block.tool_call_id, notes, names)
            call = {"functionCall": {**identity, "args": block.input}, **_fields(notes)}
            return restore(call, notes)


def _fields(notes: Json) -> Json:
    """The fields of a part beside the one that gives its type."""
    return without(notes, RESULT, RAW, UNNAMED)


def _block(text: str, block: Json, *, as_is: bool) -> Json | None:
    """An opaque part; a call or result without its counterpart is refused and becomes a text."""
    if as_is:
        return dict(block)
    is_half = any(KINDS.get(name) in ("call", "result") and block[name] for name in block)
    if is_half or all(value is None for value in block.values()):
        return {"text": text} if text.strip() else None
    return dict(block)


def _identity(tool: str, call_id: str, call: Json, names: NameFitter | None) -> Json:
    """The name of a tool, and the id of its call if that had one."""
    if names is not None:
        tool, call_id = names.fit(tool), names.fit(call_id)
    has_id = call_id and not call.get(UNNAMED)
    return {"id": call_id, "name": tool} if has_id else {"name": tool}


def _result(result: Result, names: NameFitter | None) -> list[Json]:
    """A result, followed by the files that are not inside it."""
    call_notes = subobject(result.provider_options, KEY)
    notes = subobject(call_notes, RESULT)
    identity = _identity(result.tool_name, result.tool_call_id, call_notes, names)
    name = "error" if result.output.type == "error-text" else _OUTPUT_FIELDS[0]
    inner = {**identity, "response": {name: result.output.value}}
    files = [
        _media(file, subobject(file.provider_options, KEY), as_is=names is None)
        for file in result.attachments
    ]
    within = files[: positive_int(notes.get(_WITHIN))]
    if within and not any("text" in file for file in within):
        inner["parts"], files = within, files[len(within) :]
    return [restore({"functionResponse": inner}, notes), *files]


def _media(block: Media, notes: Json, *, as_is: bool) -> Json:
    mime, data = url_parts(block.data)
    if not as_is and data is None and not block.data.startswith(_REACHABLE):
        text = media_text(block.data, block.media_type) or ""
        return {"text": text if text.strip() else NOTHING_TO_READ}
    mime = mime or block.media_type
    mime_field = {"mimeType": mime} if as_is or "*" not in mime else {}
    if data is None:
        block_json: Json = {"fileData": {**mime_field, "fileUri": block.data}}
    else:
        block_json = {"inlineData": {**mime_field, "data": data}}
    return restore(block_json | _fields(notes), notes)
