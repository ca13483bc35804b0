"""Gemini's contents.

Facts of this wire: the field that a part has says what it is; calls mostly have no ids, and their
results are told by the name of the tool; what the model thought is signed on whichever part
followed; the system prompt stands beside the contents. Fields are in camelCase in JSON and in
snake_case in the dicts of the Python SDK: each goes back as it came.
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
    UserMessage,
)
from foldmark.model.values import Json
from foldmark.tokens.media import media_text

from .codec import (
    NOTHING_TO_READ,
    RESULT,
    Answer,
    Names,
    Read,
    Reply,
    UsageFields,
    Wire,
    as_number,
    data_url,
    either,
    in_snake_case,
    is_joined,
    kept,
    kind_words,
    measured,
    object_at,
    objects,
    opaque,
    options,
    text_at,
    unknown_role,
    url_parts,
    whole_message,
    with_whole_messages,
    without,
)
from .exactness import as_it_came, exact, raw_unless

KEY = "google"
UNNAMED = "unnamed"  # noted of a call that has no id: the one that we made is not sent
_WITHIN = "within"  # noted of a result: how many of its files stand inside of it
_TEXTS = ("output", "result", "content")
# Fields that say what a part is; one that has another, or several, stays as it is.
_KINDS = {
    "text": "text",
    "functionCall": "call",
    "functionResponse": "result",
    "inlineData": "inline",
    "fileData": "address",
    "executableCode": "other",
    "codeExecutionResult": "other",
}
KINDS = {form: kind for name, kind in _KINDS.items() for form in (name, in_snake_case(name))}
usage_tokens = partial(
    measured,
    UsageFields(
        given="promptTokenCount",
        made="candidatesTokenCount",
        read="cachedContentTokenCount",
        thought="thoughtsTokenCount",
        total="totalTokenCount",
        is_thought_apart=True,
    ),
)
_ROLES = ("user", "model", "function", None)
_SIGNATURES = ("thoughtSignature", "thought_signature")
_ANY_KIND = "application/octet-stream"
_DIGITS = str.maketrans("-_", "+/")
# Addresses that Google can reach.
_REACHED = ("https://", "http://", "gs://")
_REFUSALS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
    "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
})  # fmt: skip


class Gemini(Wire):
    """The codec."""

    name = "gemini"
    key = KEY
    provider = "google"

    # --- recognising ---

    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire."""
        return all(
            isinstance(message.get("parts"), list) and message.get("role") in _ROLES
            for message in messages
        )

    def recognises_reply(self, response: Json) -> bool:
        """Whether this is a response of this wire; where the prompt was refused, it is empty."""
        if isinstance(response.get("candidates"), list):
            return True
        return isinstance(either(response, "promptFeedback"), dict)

    # --- reading ---

    def read(self, message: Json) -> Read:
        """One content."""
        role = message.get("role")
        if role not in _ROLES:
            if isinstance(role, str):
                return unknown_role(KEY, message)
            raise BadInput(f"{kind_words(role)} is no role of a Gemini content")
        given = message.get("parts")
        reader = _PartsReader(by_model=role == "model")
        for part in [] if given is None else objects(given, "'parts'"):
            reader.take(part)
        return Read(
            role="assistant" if role == "model" else "user",
            parts=tuple(reader.parts),
            answers=tuple(reader.answers),
        )

    def read_reply(self, response: Json) -> Reply:
        """A whole response, of which the first candidate is the answer."""
        if not self.recognises_reply(response):
            raise BadInput("this is no response of Gemini")
        first = _first(response)
        content = {} if first.get("content") is None else object_at(first, "content")
        read = self.read({**content, "role": "model"})
        return Reply(
            read=read,
            tokens=usage_tokens(either(response, "usageMetadata")),
            finish=_finish(response, first, read.parts),
            model=str(either(response, "modelVersion") or ""),
            rest=_with_first(response, without(first, "content")),
        )

    # --- writing ---

    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Shown messages on this wire."""
        names = None if as_is else Names(longest=64, also=".:")
        written: list[Json] = []
        last: PromptMessage | None = None
        for message in with_whole_messages(shown, lambda block: whole_message(block, KEY)):
            if isinstance(message, dict):
                written.append(message)
                last = None
                continue
            wrote = _content(message, names)
            if as_is:
                along = isinstance(last, ToolMessage) and _is_joined(message)
            else:
                along = bool(written) and written[-1]["role"] == wrote["role"]
                wrote["parts"] = wrote["parts"] or ([] if along else [{"text": NOTHING_TO_READ}])
            if along:
                written[-1]["parts"] += wrote["parts"]
            else:
                written.append(wrote)
            last = message
        return written

    def write_reply(self, shown: Sequence[PromptMessage], rest: Json) -> Json:
        """A response again."""
        content = self.write(shown[:1], as_is=True)[0]
        return _with_first(rest, {**_first(rest), "content": content})


# --- responses -----------------------------------------------------------------------------


def _first(response: Json) -> Json:
    """The first candidate."""
    given = response.get("candidates")
    found = [] if given is None else objects(given, "'candidates'")
    return found[0] if found else {}


def _with_first(response: Json, candidate: Json) -> Json:
    """The response with another first candidate, where it has any."""
    if not response.get("candidates"):
        return dict(response)
    return {**response, "candidates": [candidate, *response["candidates"][1:]]}


def _finish(response: Json, first: Json, parts: Sequence[AnyPart]) -> str:
    reason = either(first, "finishReason")
    if reason == "STOP":
        return finish_of(parts)
    if reason == "MAX_TOKENS":
        return "length"
    feedback = either(response, "promptFeedback")
    is_refused = isinstance(feedback, dict) and either(cast("Json", feedback), "blockReason")
    return "content-filter" if is_refused or str(reason) in _REFUSALS else "other"


# --- reading -------------------------------------------------------------------------------


class _PartsReader:
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
        given: Json = {} if inner.get("args") is None else object_at(inner, "args")
        name, call_id, named = self._named(inner)
        own = without(part, field) | ({} if "id" in named else {UNNAMED: True})
        usual = {"functionCall": {**named, "args": given}, **without(own, UNNAMED)}
        return ToolPart(
            tool=name,
            call_id=call_id,
            state=Pending(input=given),
            metadata=kept(KEY, own | raw_unless(usual, part)),
        )

    def _answer(self, part: Json, field: str) -> Answer:
        inner = object_at(part, field)
        name, call_id, named = self._named(inner)
        output = _output(inner)
        files = _files_within(inner)
        answer = Answer(
            call_id=call_id,
            output=output.value,
            tool=name,
            is_error=output.type == "error-text",
            files=files,
            rest={_WITHIN: len(files)} if files else {},
            raw=part,
        )
        of_call = {} if "id" in named else {UNNAMED: True}
        return exact(answer, lambda result: _result(result, None)[0], KEY, of_call)

    def _named(self, inner: Json) -> tuple[str, str, Json]:
        """The name and the id of a call or a result, and the fields that tell them.

        Where there is no id, one is made of the name and its number.
        """
        name = text_at(inner, "name")
        if inner.get("id"):
            call_id = text_at(inner, "id")
            return name, call_id, {"id": call_id, "name": name}
        self._counts[name] += 1
        return name, f"call_{name}_{self._counts[name]}", {"name": name}


def _field(part: Json) -> str:
    """The field that says what a part is; empty where none or several do."""
    found = [name for name, held in part.items() if held is not None and name in KINDS]
    return found[0] if len(found) == 1 else ""


def _is_named(part: Json, field: str) -> bool:
    """Whether it is a whole call or result: where one is streamed, what follows has no name."""
    return object_at(part, field).get("name") is not None


def _is_signed(part: Json) -> bool:
    return any(part.get(name) for name in _SIGNATURES)


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


def _output(inner: Json) -> Output:
    """What a result says."""
    if inner.get("response") is None:
        return Output(type="text", value="")
    response = object_at(inner, "response")
    name, text = next(iter(response.items()), ("", None))
    if len(response) == 1 and isinstance(text, str) and name in (*_TEXTS, "error"):
        return Output(type="error-text" if name == "error" else "text", value=text)
    try:
        text = json.dumps(response, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        raise BadInput("the 'response' of a functionResponse cannot be written as JSON") from None
    return Output(type="text", value=text)


def _files_within(inner: Json) -> tuple[FilePart, ...]:
    """The files inside of a result; none where anything else is among them."""
    given = inner.get("parts")
    files: list[FilePart] = []
    for part in [] if given is None else objects(given, "'parts' of a functionResponse"):
        field = _field(part)
        is_file = KINDS.get(field) in ("inline", "address")
        file = _file(part, field) if is_file else None
        if file is None:
            return ()
        files.append(file)
    return tuple(files)


def _file(part: Json, field: str) -> FilePart | None:
    """A file that is inline or has an address; None where it lacks what makes it one."""
    inner = object_at(part, field)
    is_inline = KINDS[field] == "inline"
    mime = either(inner, "mimeType")
    data = inner.get("data") if is_inline else either(inner, "fileUri")
    mime = _ANY_KIND if mime is None and not is_inline else mime
    if not isinstance(data, str) or not isinstance(mime, str):
        return None
    rest = without(part, field)
    if is_inline:
        usual: Json = {"inlineData": {"mimeType": mime, "data": _usual_digits(data)}, **rest}
        data = data_url(mime, _usual_digits(data))
    else:
        usual = {"fileData": {"mimeType": mime, "fileUri": data}, **rest}
    return FilePart(mime=mime, url=data, metadata=kept(KEY, rest | raw_unless(usual, part)))


def _usual_digits(data: str) -> str:
    """Base64, not in the digits that the Python SDK writes and other providers refuse."""
    is_url_safe = ("-" in data or "_" in data) and "+" not in data and "/" not in data
    return data.translate(_DIGITS) if is_url_safe else data


# --- writing -------------------------------------------------------------------------------


def _is_joined(message: PromptMessage) -> bool:
    return isinstance(message, UserMessage) and is_joined(message)


def _content(message: PromptMessage, names: Names | None) -> Json:
    if isinstance(message, ToolMessage):
        parts = [part for held in message.content for part in _result(held, names)]
    else:
        found = (_part(held, names) for held in message.content)
        parts = [part for part in found if part is not None]
    return {"role": "model" if isinstance(message, AssistantMessage) else "user", "parts": parts}


def _part(block: Text | Media | Reasoning | Call, names: Names | None) -> Json | None:
    own = options(block.provider_options, KEY)
    match block:
        case Text() if isinstance(own.get(BLOCK), dict):
            return _block(block.text, own[BLOCK], as_is=names is None)
        case Text():
            is_shown = names is None or block.text.strip()
            return {"text": block.text, **own} if is_shown else None
        case Reasoning():
            is_shown = names is None or own
            return {"text": block.text, "thought": True, **own} if is_shown else None
        case Media():
            return _media(block, own, as_is=names is None)
        case Call():
            named = _named(block.tool_name, block.tool_call_id, own, names)
            call = {"functionCall": {**named, "args": block.input}, **_fields(own)}
            return as_it_came(call, own)


def _fields(own: Json) -> Json:
    """The fields of a part beside what it is."""
    return without(own, RESULT, RAW, UNNAMED)


def _block(text: str, block: Json, *, as_is: bool) -> Json | None:
    """What was kept as it came; half of a call is refused, and becomes words if it has any."""
    if as_is:
        return dict(block)
    is_half = any(KINDS.get(name) in ("call", "result") and block[name] for name in block)
    if is_half or all(held is None for held in block.values()):
        return {"text": text} if text.strip() else None
    return dict(block)


def _named(tool: str, call_id: str, call: Json, names: Names | None) -> Json:
    """The name of a tool and, where its call had one, the id."""
    if names is not None:
        tool, call_id = names.fit(tool), names.fit(call_id)
    is_named = call_id and not call.get(UNNAMED)
    return {"id": call_id, "name": tool} if is_named else {"name": tool}


def _result(result: Result, names: Names | None) -> list[Json]:
    """A result, and after it the files that do not stand inside of it."""
    own = options(result.provider_options, KEY)
    notes = options(own, RESULT)
    named = _named(result.tool_name, result.tool_call_id, own, names)
    name = "error" if result.output.type == "error-text" else _TEXTS[0]
    inner = {**named, "response": {name: result.output.value}}
    files = [
        _media(file, options(file.provider_options, KEY), as_is=names is None)
        for file in result.attachments
    ]
    within = files[: as_number(notes.get(_WITHIN))]
    if within and not any("text" in file for file in within):
        inner["parts"], files = within, files[len(within) :]
    return [as_it_came({"functionResponse": inner}, notes), *files]


def _media(block: Media, own: Json, *, as_is: bool) -> Json:
    mime, data = url_parts(block.data)
    if not as_is and data is None and not block.data.startswith(_REACHED):
        text = media_text(block.data, block.media_type) or ""
        return {"text": text if text.strip() else NOTHING_TO_READ}
    mime = mime or block.media_type
    told = {"mimeType": mime} if as_is or "*" not in mime else {}
    if data is None:
        written: Json = {"fileData": {**told, "fileUri": block.data}}
    else:
        written = {"inlineData": {**told, "data": data}}
    return as_it_came(written | _fields(own), own)
