"""OpenAI's Chat Completions API, and the many servers that speak it.

Each tool result is a message of its own with text only; arguments are JSON in a string; there is no
field for reasoning, so vendors add their own and expect them back; a system prompt is a message
and may be anywhere. Unknown fields are stored one level down, under `fields`, so that a vendor's
field is never taken for one of our notes.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from msgspec import UNSET
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
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Block,
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

from .breakpoints import with_breakpoints
from .codec import (
    NOTHING_TO_READ,
    Codec,
    NameFitter,
    ReadMessage,
    ReadReply,
    ReadResult,
    UsageFields,
    arguments_input,
    arguments_object,
    codec_metadata,
    compact_json,
    object_at,
    objects,
    opaque_part,
    read_output,
    read_unknown_role,
    read_usage,
    result_notes,
    subobject,
    text_at,
    whole_message,
    with_whole_messages,
    without,
)
from .exactness import difference_note, restore, with_difference
from .openai_chat_files import (
    KEY,
    MARKS,
    can_be_sent,
    file_block,
    file_note,
    read_file,
    select_fields,
)

FIELDS = "fields"  # unknown fields
SOURCES = "under"  # fields beside the content that a text was read from
_FORM = "form"  # of the content, if unusual: "list" or "absent"
_ROLE = "role"
# The predecessor of `tool_calls`: one call in a message, and without an id.
_LEGACY = "function_call"

_PROMPT_ROLES = ("system", "developer")
_FINISH = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "length": "length",
    "content_filter": "content-filter",
}
usage_tokens = partial(
    read_usage,
    UsageFields(
        input="prompt_tokens",
        output="completion_tokens",
        cache_read="prompt_tokens_details.cached_tokens",
        cache_write="cache_creation_input_tokens",  # LiteLLM's field
        reasoning="completion_tokens_details.reasoning_tokens",
        total="total_tokens",
    ),
)
# Vendors' fields for readable reasoning.
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
# Fields of a message or call that servers expect back; others do not belong in a request.
_RETURNED = frozenset(
    {
        *REASONING_FIELDS,
        *("name", "reasoning_details", "reasoning_opaque", "thinking_blocks"),
        *("extra_content", "provider_specific_fields"),
    }
)
# Any characters are accepted in ids, and some servers expect theirs unchanged: `functions.ls:0`.
_VALID_ID = re.compile(r"[!-~]{1,40}")
_CALL_IDS, _TOOL_NAMES = NameFitter(max_length=40), NameFitter(max_length=64)
# Blocks that only other API formats have.
_FOREIGN_BLOCKS = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"),
        *("server_tool_use", "input_text", "output_text", "input_image", "input_file"),
    }
)
_FILES_BELOW = "[Files that the tools gave back:]"
_SEE_BELOW = "[The file follows below.]"


class OpenAIChat(Codec):
    """Codec for OpenAI's Chat Completions API."""

    name = "openai-chat"
    key = KEY
    provider = "openai"

    def recognizes(self, messages: Sequence[Json]) -> bool:
        """Whether a list can have this API format."""
        return all(self._is_possible(message) for message in messages)

    def _is_possible(self, message: Json) -> bool:
        content = message.get("content")
        if "type" in message or "parts" in message:
            return False
        if isinstance(content, list) and any(map(_is_foreign, cast("list[object]", content))):
            return False
        with suppress(BadInput):
            return self.read(message).role != "other"
        return False

    def recognizes_reply(self, response: Json) -> bool:
        """Whether a response has this API format."""
        if response.get("object") == "chat.completion":
            return True
        choices = response.get("choices")
        first = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
        return bool(subobject(first, "message"))

    def read(self, message: Json) -> ReadMessage:
        """Read one message."""
        role = text_at(message, "role")
        match role:
            case "assistant":
                return _read_assistant(message)
            case "tool" | "function":
                return ReadMessage(role="user", results=(_read_result(message),))
            case "user" | "system" | "developer":
                parts, rest = _read_content(message)
                rest |= _field_notes(without(message, "role", "content"))
                if role == "user":
                    return ReadMessage(role="user", parts=tuple(parts), rest=rest)
                rest = {_ROLE: role, **rest}
                return ReadMessage(role="system", parts=_as_synthetic(parts), rest=rest)
            case _:
                return read_unknown_role(KEY, message)

    def read_reply(self, response: Json) -> ReadReply:
        """Read a complete response; its first choice is the reply."""
        choices = objects(response.get("choices"), "'choices'")
        if not choices:
            raise BadInput("'choices' is empty")
        message = self.read(object_at(choices[0], "message"))
        if message.role != "assistant":
            raise BadInput("the message of a response does not have the role 'assistant'")
        stop, model = choices[0].get("finish_reason"), response.get("model")
        return ReadReply(
            message=message,
            tokens=usage_tokens(response.get("usage")),
            finish=_FINISH.get(stop, "other") if isinstance(stop, str) else "other",
            model=model if isinstance(model, str) else "",
            rest={**response, "choices": [without(choices[0], "message"), *choices[1:]]},
        )

    def write(self, messages: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Write prompt messages, unchanged if `as_is`, else as servers accept them."""
        output: list[Json] = []
        raw_indexes: set[int] = set()  # messages that pass through unchanged
        for message in with_whole_messages(messages, partial(_raw_message, as_is=as_is)):
            match message:
                case dict():
                    raw_indexes.add(len(output))
                    output.append(message)
                case UserMessage():
                    output.append(_user_message(message, as_is=as_is))
                case AssistantMessage():
                    output.append(_assistant_message(message, as_is=as_is))
                case ToolMessage():
                    output += [_write_result(item, as_is=as_is) for item in message.content]
                    output += [] if as_is else _file_message(message)
        if not as_is:
            # Servers that forward requests to Anthropic accept its breakpoints.
            ours = [item for index, item in enumerate(output) if index not in raw_indexes]
            with_breakpoints([message for message in ours if message.get("content")])
        return output

    def system(self, text: str) -> list[Json]:
        """The message for a system prompt."""
        return [{"role": "system", "content": text}]

    def write_reply(self, messages: Sequence[PromptMessage], rest: Json) -> Json:
        """Rebuild a response from its content and its other fields."""
        message = self.write(messages[:1], as_is=True)[0]
        choices = objects(rest.get("choices"), "'choices'")
        return {**rest, "choices": [{**choices[0], "message": message}, *choices[1:]]}


def _is_foreign(block: object) -> bool:
    if not isinstance(block, dict):
        return True
    kind = cast("Json", block).get("type")
    return not isinstance(kind, str) or kind in _FOREIGN_BLOCKS or "source" in block


# --- reading -------------------------------------------------------------------------------


def _read_content(message: Json) -> tuple[list[TextPart | FilePart], Json]:
    """The parts of a message's content, and a note if its form is unusual."""
    content = message.get("content", UNSET)
    if isinstance(content, str):
        return [TextPart(text=content)], {}
    if content is UNSET:
        return [], {_FORM: "absent"}
    if content is None:
        return [], {}
    parts = [_read_part(block) for block in objects(content, "'content'")]
    # A single plain text would be written as a string, and no parts as null.
    is_bare = len(parts) == 1 and isinstance(parts[0], TextPart) and not parts[0].metadata
    return parts, {_FORM: "list"} if is_bare or not parts else {}


def _read_part(block: Json) -> TextPart | FilePart:
    """Read one part of the content."""
    match block.get("type"):
        case "text":
            notes = _field_notes(without(block, "type", "text"))
            return TextPart(text=text_at(block, "text"), metadata=codec_metadata(KEY, notes))
        case "image_url" | "input_audio" | "file" if (file := read_file(block)) is not None:
            return file
        case kind:
            text = block.get("refusal" if kind == "refusal" else "text")
            return opaque_part(KEY, block, text if isinstance(text, str) else "")


def _field_notes(fields: Json) -> Json:
    """The note for unknown fields; {} if there are none."""
    return {FIELDS: fields} if fields else {}


def _as_synthetic(parts: Sequence[TextPart | FilePart]) -> tuple[AnyPart, ...]:
    """The parts of a system prompt, marked as not written by the user."""
    return tuple(
        replace(part, synthetic=True) if isinstance(part, TextPart) else part for part in parts
    )


def _read_assistant(message: Json) -> ReadMessage:
    content, rest = _read_content(message)
    fields = without(message, "role", "content")
    # Each of these removes what it reads from the fields.
    parts = (*_read_reasoning(fields), *content, *_read_text_fields(fields), *_read_calls(fields))
    return ReadMessage(role="assistant", parts=parts, rest=rest | _field_notes(fields))


def _read_reasoning(fields: Json) -> list[ReasoningPart]:
    """Read reasoning; the same text in two fields, as some servers write it, is read once."""
    sources: dict[str, list[str]] = {}
    for name in REASONING_FIELDS:
        if isinstance(fields.get(name), str) and fields[name]:
            sources.setdefault(fields.pop(name), []).append(name)
    return [
        ReasoningPart(text=text, metadata={KEY: {SOURCES: names}})
        for text, names in sources.items()
    ]


def _read_text_fields(fields: Json) -> list[TextPart]:
    """Read a refusal and the transcript of audio."""
    parts: list[TextPart] = []
    if isinstance(fields.get("refusal"), str) and fields["refusal"]:
        notes: Json = {SOURCES: ["refusal"]}
        parts.append(TextPart(text=fields.pop("refusal"), metadata={KEY: notes}))
    transcript = subobject(fields, "audio").get("transcript")
    if isinstance(transcript, str) and transcript:
        audio = without(fields.pop("audio"), "transcript")
        notes = {SOURCES: ["audio"], **_field_notes(audio)}
        parts.append(TextPart(text=transcript, metadata={KEY: notes}))
    return parts


def _read_calls(fields: Json) -> list[ToolPart]:
    parts: list[ToolPart] = []
    if fields.get("tool_calls") not in (None, []):
        parts = [read_call(call) for call in objects(fields.pop("tool_calls"), "'tool_calls'")]
    if fields.get(_LEGACY) is not None:
        parts.append(_read_legacy_call(object_at(fields, _LEGACY)))
        del fields[_LEGACY]
    return parts


def read_call(call: Json) -> ToolPart:
    """Read a call of a function, whose arguments are JSON, or of a tool that takes any text."""
    kind, call_id = call.get("type"), text_at(call, "id")
    if kind == "custom":
        body = object_at(call, "custom")
        name, arguments = text_at(body, "name"), {"input": text_at(body, "input")}
    elif isinstance(kind, str) and kind != "function" and "function" not in call:
        arguments = subobject(call, kind)  # of an unknown type
        name = str(arguments.get("name") or kind)
    else:
        body = object_at(call, "function")
        name, arguments = text_at(body, "name"), arguments_input(text_at(body, "arguments"))
    notes = difference_note(_canonical_call(name, call_id, arguments), call, "id")
    state = Pending(input=arguments)
    return ToolPart(tool=name, call_id=call_id, state=state, metadata=codec_metadata(KEY, notes))


def _read_legacy_call(call: Json) -> ToolPart:
    """Read a call in the `function_call` field."""
    name, arguments = text_at(call, "name"), arguments_input(text_at(call, "arguments"))
    canonical = {"name": name, "arguments": compact_json(arguments)}
    notes = {_LEGACY: True, **difference_note(canonical, call)}
    return ToolPart(
        tool=name, call_id=_legacy_id(name), state=Pending(input=arguments), metadata={KEY: notes}
    )


def _legacy_id(name: str) -> str:
    """An id for a call without one: its result belongs to the last call of the function."""
    return f"function_{name}"


def _read_result(message: Json) -> ReadResult:
    name = message.get("name")
    is_legacy = message["role"] == "function"
    if is_legacy:
        call_id = _legacy_id(text_at(message, "name"))
    else:
        call_id = _listed_id(message) or text_at(message, "tool_call_id")
    output, files = read_output(message.get("content"), ("text",), read_file)
    result = ReadResult(
        call_id=call_id,
        output=output,
        tool=name if isinstance(name, str) else "",
        files=files,
        rest=_field_notes(without(message, "role", "content", "tool_call_id")),
        raw=message,
    )
    call_notes: Json = {_LEGACY: True} if is_legacy else {}
    return with_difference(result, _canonical_result, KEY, call_notes, "tool_call_id")


def _listed_id(message: Json) -> str:
    """The call id that SWE-agent writes in a list; "" if there is none."""
    ids = message.get("tool_call_ids")
    if "tool_call_id" in message or not isinstance(ids, list) or not ids:
        return ""
    first = cast("list[object]", ids)[0]
    return first if isinstance(first, str) else ""


# --- writing -------------------------------------------------------------------------------


def _raw_message(block: Block, *, as_is: bool) -> Json | None:
    """The message that passes through: one of unknown role, or a result without a call."""
    message = whole_message(block, KEY)
    return _orphan_result(block) if message is None and as_is else message


def _orphan_result(block: Block) -> Json | None:
    """The original message if a block stands for a result without a call."""
    original = subobject(subobject(block.provider_options, KEY), BLOCK)
    return dict(original) if original.get("role") in ("tool", "function") else None


def _user_message(message: UserMessage, *, as_is: bool) -> Json:
    notes = subobject(message.wire, KEY)
    role = notes[_ROLE] if notes.get(_ROLE) in _PROMPT_ROLES else "user"
    parts = _write_parts(message.content, as_is=as_is, files=as_is or role == "user")
    content = _content(parts, notes) if parts or as_is else NOTHING_TO_READ
    return _message(role, content) | _returned_fields(notes, as_is=as_is)


def _message(role: str, content: Any) -> Json:
    return {"role": role} if content is UNSET else {"role": role, "content": content}


def _content(parts: list[Json], notes: Json) -> Any:
    form = notes.get(_FORM)
    if not parts and form != "list":
        return UNSET if form == "absent" else None
    text = parts[0].get("text") if len(parts) == 1 else None
    if form != "list" and isinstance(text, str) and parts[0] == {"type": "text", "text": text}:
        return text
    return parts


def _assistant_message(message: AssistantMessage, *, as_is: bool) -> Json:
    notes = subobject(message.wire, KEY)
    fields = _returned_fields(notes, as_is=as_is)
    blocks: list[Text | Media] = []
    calls: list[Call] = []
    for block in message.content:
        match block:
            case Call():
                calls.append(block)
            case Reasoning():
                _add_field_text(fields, block, default="reasoning_content" if as_is else "")
            case Text() if as_is and SOURCES in subobject(block.provider_options, KEY):
                _add_field_text(fields, block)
            case _:
                blocks.append(block)
    parts = _write_parts(blocks, as_is=as_is, files=as_is)
    content = _content(parts, notes)
    if not as_is and not parts and (not calls or content is not UNSET):
        content = None if calls else NOTHING_TO_READ  # a list must not be empty
    return _message("assistant", content) | fields | _call_fields(calls, as_is=as_is)


def _add_field_text(fields: Json, block: Text | Reasoning, default: str = "") -> None:
    """Write a text into the fields it was read from; one of another format into `default`."""
    notes = subobject(block.provider_options, KEY)
    sources = notes.get(SOURCES)
    names = cast("list[object]", sources) if isinstance(sources, list) else [default]
    for name in names:
        if name == "audio":
            fields["audio"] = {**subobject(notes, FIELDS), "transcript": block.text}
        elif isinstance(name, str) and name and block.text:
            text = fields.get(name)
            fields[name] = f"{text}\n\n{block.text}" if isinstance(text, str) else block.text


def _write_parts(blocks: Sequence[Text | Media], *, as_is: bool, files: bool) -> list[Json]:
    """The parts of a content; without `files`, a note in place of each file."""
    parts: list[Json] = []
    for block in blocks:
        notes = subobject(block.provider_options, KEY)
        if isinstance(block, Media):
            file = file_block(block, as_is=as_is)
            is_sent = files and (as_is or can_be_sent(file["type"], block.data))
            parts.append(file if is_sent else file_note(block))
        elif isinstance(notes.get(BLOCK), dict) and not _orphan_result(block):
            parts.append(dict(notes[BLOCK]))
        elif as_is or block.text.strip():
            own = {} if SOURCES in notes else notes
            fields = _returned_fields(own, as_is=as_is, allowed=MARKS)
            parts.append({"type": "text", "text": block.text, **fields})
    return parts


def _returned_fields(notes: Json, *, as_is: bool, allowed: frozenset[str] = _RETURNED) -> Json:
    """The stored fields to send back: all if `as_is`, else the allowed ones."""
    fields = subobject(notes, FIELDS)
    return dict(fields) if as_is else select_fields(fields, allowed)


def _call_fields(calls: Sequence[Call], *, as_is: bool) -> Json:
    """The fields of a message for its calls."""
    legacy = [call for call in calls if as_is and _is_legacy(call)]
    legacy = legacy if len(legacy) == 1 else []
    fields: Json = {}
    for call in legacy:
        canonical = {"name": call.tool_name, "arguments": compact_json(call.input)}
        fields[_LEGACY] = restore(canonical, subobject(call.provider_options, KEY))
    others = [_write_call(call, as_is=as_is) for call in calls if call not in legacy]
    return fields | ({"tool_calls": others} if others else {})


def _is_legacy(block: Call | Result) -> bool:
    """Whether a call was in the `function_call` field."""
    return subobject(block.provider_options, KEY).get(_LEGACY) is True


def _canonical_call(name: str, call_id: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": compact_json(arguments)}
    return {"id": call_id, "type": "function", "function": function}


def _write_call(call: Call, *, as_is: bool) -> Json:
    canonical = _canonical_call(call.tool_name, call.tool_call_id, call.input)
    notes = subobject(call.provider_options, KEY)
    original: Json = canonical if _LEGACY in notes else restore(canonical, notes, "id")
    if as_is:
        return original
    name, call_id = _TOOL_NAMES.fit(call.tool_name), _fit_id(call.tool_call_id)
    if original is canonical or name != call.tool_name:
        canonical["id"], canonical["function"]["name"] = call_id, name
        return canonical
    original["id"] = canonical["id"] = call_id
    fields = select_fields(original, _RETURNED)
    function = subobject(original, "function")
    if original.get("type") == "custom":
        body = {name: original["custom"][name] for name in ("name", "input")}
        return {"id": call_id, "type": "custom", "custom": body, **fields}
    if not function:
        return original
    # Servers refuse arguments that are not a JSON object.
    if arguments_object(function["arguments"]) is not None:
        canonical["function"]["arguments"] = function["arguments"]
    return canonical | fields


def _fit_id(call_id: str) -> str:
    """The call id in a form that servers accept."""
    return call_id if _VALID_ID.fullmatch(call_id) else _CALL_IDS.fit(call_id)


def _canonical_result(result: Result) -> Json:
    text, call_id = result.output.value, result.tool_call_id
    canonical: Json = {"role": "tool", "content": text, "tool_call_id": call_id}
    canonical |= subobject(result_notes(result, KEY), FIELDS)
    if result.attachments:
        files = [file_block(file, as_is=True) for file in result.attachments]
        canonical["content"] = [{"type": "text", "text": text}, *files]
    if _is_legacy(result):
        del canonical["tool_call_id"]
        canonical |= {"role": "function", "name": result.tool_name}
    return canonical


def _write_result(result: Result, *, as_is: bool) -> Json:
    notes = result_notes(result, KEY)
    text = result.output.value
    original: Json = restore(_canonical_result(result), notes, "tool_call_id")
    if as_is:
        return original
    content = None if result.attachments else original.get("content")
    parts = cast("list[Json]", content) if isinstance(content, list) and text.strip() else []
    texts = [select_fields(part, MARKS | {"type", "text"}) for part in parts if _has_text(part)]
    visible_text = text if text.strip() or not result.attachments else _SEE_BELOW
    fields = _returned_fields(notes, as_is=False)
    message = {"role": "tool", "content": texts or visible_text, **fields}
    return {**message, "tool_call_id": _fit_id(result.tool_call_id)}


def _has_text(part: object) -> bool:
    """Whether a part is a text that is not blank."""
    match part:
        case {"type": "text", "text": str(text)}:
            return bool(text.strip())
        case _:
            return False


def _file_message(message: ToolMessage) -> list[Json]:
    """The user message with the files of results, which cannot be in tool messages."""
    files = [file for result in message.content for file in result.attachments]
    if not files:
        return []
    parts = _write_parts(files, as_is=False, files=True)
    return [{"role": "user", "content": [{"type": "text", "text": _FILES_BELOW}, *parts]}]
