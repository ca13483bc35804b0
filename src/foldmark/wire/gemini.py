"""Gemini's contents.

Facts of this wire: the field that a part has says what it is; calls mostly have no ids, and their
results are told by the name of the tool; what the model thought is signed on whichever part
followed; the system prompt stands beside the contents. Fields are in camelCase in JSON and in
snake_case in the dicts of the Python SDK: each goes back as it came.
"""

import json
from collections.abc import Sequence
from typing import Any, cast

from msgspec import UNSET

from foldmark.errors import BadInput
from foldmark.model.messages import BLOCK, AnyPart, Cache, Tokens, finish_of
from foldmark.model.prompt_messages import (
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
    Names,
    Read,
    Reply,
    as_number,
    is_joined,
    kind_words,
    object_at,
    objects,
    options,
    unknown_role,
    url_parts,
    whole_message,
    with_whole_messages,
    without,
)
from .gemini_parts import (
    AS_JSON,
    AS_NOTHING,
    BARE,
    BESIDE,
    CALL,
    FORM,
    INNER,
    KEY,
    KINDS,
    MEDIA,
    SNAKE,
    SNAKE_CASE,
    TEXTS,
    UNNAMED,
    URL_SAFE,
    WITHIN,
    PartsReader,
    either,
)

_ENVELOPE = "envelope"  # what a content said beside its parts, where that is not its role alone
_PARTS = "parts"  # that it had none
# Addresses that Google can reach.
_REACHED = ("https://", "http://", "gs://")
_URL_SAFE_DIGITS = str.maketrans("+/", "-_")
_REFUSALS = frozenset({
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
    "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
})  # fmt: skip


class Gemini:
    """The codec."""

    name = "gemini"
    key = KEY
    provider = "google"

    # --- recognising ---

    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire."""
        return all(
            isinstance(message.get("parts"), list)
            and message.get("role") in ("user", "model", "function", None)
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
        if role not in ("user", "model", "function", None):
            if isinstance(role, str):
                return unknown_role(KEY, message)
            raise BadInput(f"{kind_words(role)} is no role of a Gemini content")
        given = message.get("parts")
        reader = PartsReader(by_model=role == "model")
        for part in [] if given is None else objects(given, "'parts'"):
            reader.take(part)
        rest: Json = {}
        if given is None:
            rest[_PARTS] = "null" if "parts" in message else "absent"
        envelope = without(message, "parts")
        if envelope != {"role": "model" if role == "model" else "user"}:
            # Results are kept apart from the content in which they came.
            (reader.answers[0].rest if reader.answers else rest)[_ENVELOPE] = envelope
        return Read(
            role="assistant" if role == "model" else "user",
            parts=tuple(reader.parts),
            answers=tuple(reader.answers),
            rest=rest,
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
            if along:
                written[-1]["parts"] += wrote.get("parts") or []
            else:
                written.append(wrote)
            last = message
        if not as_is:
            for content in written:
                if content["role"] in ("user", "model") and not content["parts"]:
                    content["parts"] = [{"text": NOTHING_TO_READ}]
        return written

    def system(self, text: str) -> list[Json]:
        """None: it stands beside the contents."""
        del text
        return []

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


def usage_tokens(usage: object) -> Tokens | None:
    """What was measured; Gemini counts thoughts beside the output, and the cached in the prompt."""
    if not isinstance(usage, dict):
        return None
    told = cast("Json", usage)
    prompt = as_number(either(told, "promptTokenCount"))
    cached = min(as_number(either(told, "cachedContentTokenCount")), prompt)
    thought = as_number(either(told, "thoughtsTokenCount"))
    made = as_number(either(told, "candidatesTokenCount")) + thought
    return Tokens(
        input=prompt - cached,
        output=made,
        reasoning=thought,
        total=as_number(either(told, "totalTokenCount")) or prompt + made,
        cache=Cache(read=cached, write=0),
    )


# --- writing -------------------------------------------------------------------------------


def _is_joined(message: PromptMessage) -> bool:
    return isinstance(message, UserMessage) and is_joined(message)


def _content(message: PromptMessage, names: Names | None) -> Json:
    if isinstance(message, ToolMessage):
        parts = [part for held in message.content for part in _result(held, names)]
        first = message.content[0].provider_options if message.content else None
        own = options(options(first, KEY), RESULT)
    else:
        found = (_part(held, names) for held in message.content)
        parts = [part for part in found if part is not None]
        own = options(message.wire, KEY)
    role = {"role": "model" if isinstance(message, AssistantMessage) else "user"}
    if names is not None:
        return {**role, "parts": parts}
    envelope = own.get(_ENVELOPE)
    written: Json = dict(cast("Json", envelope)) if isinstance(envelope, dict) else role
    if parts or own.get(_PARTS) != "absent":
        written["parts"] = None if not parts and own.get(_PARTS) == "null" else parts
    return written


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
            return _call(block, own, names)


def _block(text: str, block: Json, *, as_is: bool) -> Json | None:
    """What was kept as it came; half of a call is refused, and becomes words if it has any."""
    if as_is:
        return dict(block)
    is_half = any(KINDS.get(name) in ("call", "result") and block[name] for name in block)
    if is_half or all(held is None for held in block.values()):
        return {"text": text} if text.strip() else None
    return dict(block)


def _call(block: Call, own: Json, names: Names | None) -> Json:
    notes = options(own, CALL)
    inner: Json = _named(block.tool_name, block.tool_call_id, notes, names)
    if block.input or not notes.get(BARE):
        inner["args"] = block.input
    field = "function_call" if notes.get(SNAKE) else "functionCall"
    return {field: inner | options(notes, INNER), **without(own, RESULT, CALL)}


def _named(tool: str, call_id: str, call: Json, names: Names | None) -> Json:
    """The name of a tool and, where its call had one, the id."""
    if names is not None:
        tool, call_id = names.tool(tool), names.call_id(call_id)
    is_named = call_id and not call.get(UNNAMED)
    return {"id": call_id, "name": tool} if is_named else {"name": tool}


def _result(result: Result, names: Names | None) -> list[Json]:
    """A result, and after it the files that do not stand inside of it."""
    own = options(result.provider_options, KEY)
    notes = options(own, RESULT)
    inner = _named(result.tool_name, result.tool_call_id, options(own, CALL), names)
    response = _response(result.output, notes.get(FORM))
    if response is not UNSET:
        inner["response"] = response
    after: list[Json] = []
    for file in result.attachments:
        held = options(file.provider_options, KEY)
        wrote = _media(file, held, as_is=names is None)
        is_within = options(held, MEDIA).get(WITHIN) and "text" not in wrote
        (inner.setdefault("parts", []) if is_within else after).append(wrote)
    field = "function_response" if notes.get(SNAKE) else "functionResponse"
    return [{field: inner | options(notes, INNER), **options(notes, BESIDE)}, *after]


def _response(output: Output, form: object) -> Any:
    text = output.value
    if output.type == "error-text":
        return {"error": text}
    if form == AS_NOTHING and not text:
        return UNSET
    if form == AS_JSON and (held := _parsed(text)) is not None:
        return held
    return {form if form in TEXTS else TEXTS[0]: text}


def _parsed(text: str) -> Json | None:
    """The object that a text stands for; None where the output was replaced by other words."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Json", found) if isinstance(found, dict) else None


def _media(block: Media, own: Json, *, as_is: bool) -> Json:
    notes = options(own, MEDIA)
    mime, data = url_parts(block.data)
    if not as_is and data is None and not block.data.startswith(_REACHED):
        text = media_text(block.data, block.media_type) or ""
        return {"text": text if text.strip() else NOTHING_TO_READ}
    inner: Json = {}
    if data is None:
        field, inner["fileUri"] = "fileData", block.data
    else:
        field = "inlineData"
        inner["data"] = data.translate(_URL_SAFE_DIGITS) if notes.get(URL_SAFE) else data
    mime = mime or block.media_type
    if not notes.get(BARE) and (as_is or "*" not in mime):
        inner["mimeType"] = mime
    if notes.get(SNAKE):
        field = {"inlineData": "inline_data", "fileData": "file_data"}[field]
        inner = {SNAKE_CASE.get(name, name): held for name, held in inner.items()}
    return {field: inner | options(notes, INNER), **without(own, MEDIA)}
