"""OpenAI's Chat Completions API, and the many servers that speak it.

Facts of this wire: each result is a message of its own, of text alone; arguments are JSON inside
a text; reasoning has no place in it, so vendors add fields of their own for it and want them back;
a system prompt is a message and may stand anywhere.
Fields that we do not know are kept one level down, under `fields`: a vendor's field is then never
taken for one of our own notes.
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
    RESULT,
    Answer,
    Names,
    Read,
    Reply,
    UsageFields,
    Wire,
    arguments_input,
    arguments_object,
    compact,
    kept,
    measured,
    object_at,
    objects,
    opaque,
    options,
    read_output,
    text_at,
    unknown_role,
    whole_message,
    with_whole_messages,
    without,
)
from .exactness import as_it_came, exact, raw_unless
from .openai_chat_files import (
    KEY,
    MARKS,
    can_be_sent,
    file_note,
    known_fields,
    read_file,
    written_file,
)

FIELDS = "fields"  # what the wire says beside what we read
UNDER = "under"  # the fields in which a text stood that is no content
_FORM = "form"  # of the content, where it is not the usual: "list" or "absent"
_ROLE = "role"
# A call of the kind that came before `tool_calls`: one to a message, and without an id.
_OLD = "function_call"

_PROMPTS = ("system", "developer")
_FINISH = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "length": "length",
    "content_filter": "content-filter",
}
usage_tokens = partial(
    measured,
    UsageFields(
        given="prompt_tokens",
        made="completion_tokens",
        read="prompt_tokens_details.cached_tokens",
        written="cache_creation_input_tokens",  # as LiteLLM tells it
        thought="completion_tokens_details.reasoning_tokens",
        total="total_tokens",
    ),
)
# Thinking that can be read, by the fields that vendors have for it.
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
# What else of a message or call its own server wants back; other fields are none of a request.
_RETURNED = frozenset(
    {
        *THOUGHTS,
        *("name", "reasoning_details", "reasoning_opaque", "thinking_blocks"),
        *("extra_content", "provider_specific_fields"),
    }
)
# Ids of any letters are taken, and some servers want theirs back as they were: `functions.ls:0`.
_FITTING_ID = re.compile(r"[!-~]{1,40}")
_IDS, _TOOLS = Names(longest=40), Names(longest=64)
# Blocks by which a list is known to be of another wire.
_FOREIGN = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"),
        *("server_tool_use", "input_text", "output_text", "input_image", "input_file"),
    }
)
_FILES_BELOW = "[Files that the tools gave back:]"
_SEE_BELOW = "[The file follows below.]"


class OpenAIChat(Wire):
    """The codec."""

    name = "openai-chat"
    key = KEY
    provider = "openai"

    # --- recognising ---

    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire."""
        return all(self._can_be(message) for message in messages)

    def _can_be(self, message: Json) -> bool:
        content = message.get("content")
        if "type" in message or "parts" in message:
            return False
        if isinstance(content, list) and any(map(_is_foreign, cast("list[object]", content))):
            return False
        with suppress(BadInput):
            return self.read(message).role != "other"
        return False

    def recognises_reply(self, response: Json) -> bool:
        """Whether this is a response of this wire."""
        if response.get("object") == "chat.completion":
            return True
        choices = response.get("choices")
        first = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
        return bool(options(first, "message"))

    # --- reading ---

    def read(self, message: Json) -> Read:
        """One message."""
        role = text_at(message, "role")
        match role:
            case "assistant":
                return _said_by_model(message)
            case "tool" | "function":
                return Read(role="user", answers=(_answer(message),))
            case "user" | "system" | "developer":
                parts, rest = _content_parts(message)
                fields = without(message, "role", "content")
                rest |= {FIELDS: fields} if fields else {}
                if role == "user":
                    return Read(role="user", parts=tuple(parts), rest=rest)
                return Read(role="system", parts=_by_program(parts), rest={_ROLE: role, **rest})
            case _:
                return unknown_role(KEY, message)

    def read_reply(self, response: Json) -> Reply:
        """A whole response, of which the first choice is the answer."""
        choices = objects(response.get("choices"), "'choices'")
        if not choices:
            raise BadInput("'choices' is empty")
        read = self.read(object_at(choices[0], "message"))
        if read.role != "assistant":
            raise BadInput("the message of a response is not of the assistant")
        stop, model = choices[0].get("finish_reason"), response.get("model")
        return Reply(
            read=read,
            tokens=usage_tokens(response.get("usage")),
            finish=_FINISH.get(stop, "other") if isinstance(stop, str) else "other",
            model=model if isinstance(model, str) else "",
            rest={**response, "choices": [without(choices[0], "message"), *choices[1:]]},
        )

    # --- writing ---

    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Shown messages on this wire."""
        written: list[Json] = []
        passed: set[int] = set()  # places of those that came whole
        for message in with_whole_messages(shown, partial(_whole, as_is=as_is)):
            match message:
                case dict():
                    passed.add(len(written))
                    written.append(message)
                case UserMessage():
                    written.append(_from_user(message, as_is=as_is))
                case AssistantMessage():
                    written.append(_from_assistant(message, as_is=as_is))
                case ToolMessage():
                    written += [_result(held, as_is=as_is) for held in message.content]
                    written += [] if as_is else _files_of(message)
        if not as_is:
            # Servers that pass requests on to Anthropic take its breakpoints.
            ours = [held for place, held in enumerate(written) if place not in passed]
            with_breakpoints([message for message in ours if message.get("content")])
        return written

    def system(self, text: str) -> list[Json]:
        """One message."""
        return [{"role": "system", "content": text}]

    def write_reply(self, shown: Sequence[PromptMessage], rest: Json) -> Json:
        """A response again."""
        message = self.write(shown[:1], as_is=True)[0]
        choices = objects(rest.get("choices"), "'choices'")
        return {**rest, "choices": [{**choices[0], "message": message}, *choices[1:]]}


def _is_foreign(block: object) -> bool:
    if not isinstance(block, dict):
        return True
    kind = cast("Json", block).get("type")
    return not isinstance(kind, str) or kind in _FOREIGN or "source" in block


# --- reading -------------------------------------------------------------------------------


def _content_parts(message: Json) -> tuple[list[TextPart | FilePart], Json]:
    """What a message says, and what is to be noted of the form in which it does."""
    content = message.get("content", UNSET)
    if isinstance(content, str):
        return [TextPart(text=content)], {}
    if content is UNSET:
        return [], {_FORM: "absent"}
    if content is None:
        return [], {}
    parts = [_read_part(block) for block in objects(content, "'content'")]
    # One bare text would be written as such, and nothing as null.
    is_bare = len(parts) == 1 and isinstance(parts[0], TextPart) and not parts[0].metadata
    return parts, {_FORM: "list"} if is_bare or not parts else {}


def _read_part(block: Json) -> TextPart | FilePart:
    """One part of the content."""
    match block.get("type"):
        case "text":
            own = _noted(without(block, "type", "text"))
            return TextPart(text=text_at(block, "text"), metadata=kept(KEY, own))
        case "image_url" | "input_audio" | "file" if (file := read_file(block)) is not None:
            return file
        case kind:
            said = block.get("refusal" if kind == "refusal" else "text")
            return opaque(KEY, block, said if isinstance(said, str) else "")


def _noted(fields: Json) -> Json:
    """What is kept; nothing where there is nothing."""
    return {FIELDS: fields} if fields else {}


def _by_program(parts: Sequence[TextPart | FilePart]) -> tuple[AnyPart, ...]:
    """A prompt amid the messages is nothing that the user asks for."""
    return tuple(
        replace(part, synthetic=True) if isinstance(part, TextPart) else part for part in parts
    )


def _said_by_model(message: Json) -> Read:
    said, rest = _content_parts(message)
    fields = without(message, "role", "content")
    # What these read they take out of the fields.
    parts = (*_thoughts(fields), *said, *_words_beside(fields), *_calls(fields))
    return Read(role="assistant", parts=parts, rest=rest | _noted(fields))


def _thoughts(fields: Json) -> list[ReasoningPart]:
    """Thinking; what stands in two fields alike, as some servers write it, is read once."""
    found: dict[str, list[str]] = {}
    for name in THOUGHTS:
        if isinstance(fields.get(name), str) and fields[name]:
            found.setdefault(fields.pop(name), []).append(name)
    return [
        ReasoningPart(text=text, metadata={KEY: {UNDER: names}}) for text, names in found.items()
    ]


def _words_beside(fields: Json) -> list[TextPart]:
    """A refusal, and the transcript of what was spoken."""
    found: list[TextPart] = []
    if isinstance(fields.get("refusal"), str) and fields["refusal"]:
        own: Json = {UNDER: ["refusal"]}
        found.append(TextPart(text=fields.pop("refusal"), metadata={KEY: own}))
    transcript = options(fields, "audio").get("transcript")
    if isinstance(transcript, str) and transcript:
        own = {UNDER: ["audio"], **_noted(without(fields.pop("audio"), "transcript"))}
        found.append(TextPart(text=transcript, metadata={KEY: own}))
    return found


def _calls(fields: Json) -> list[ToolPart]:
    parts: list[ToolPart] = []
    if fields.get("tool_calls") not in (None, []):
        parts = [read_call(held) for held in objects(fields.pop("tool_calls"), "'tool_calls'")]
    if fields.get(_OLD) is not None:
        parts.append(_read_old_call(object_at(fields, _OLD)))
        del fields[_OLD]
    return parts


def read_call(call: Json) -> ToolPart:
    """A call: of a function, whose arguments are JSON, or of a tool that takes any text."""
    kind, call_id = call.get("type"), text_at(call, "id")
    if kind == "custom":
        body = object_at(call, "custom")
        name, given = text_at(body, "name"), {"input": text_at(body, "input")}
    elif isinstance(kind, str) and kind != "function" and "function" not in call:
        given = options(call, kind)  # of a kind that we do not know
        name = str(given.get("name") or kind)
    else:
        body = object_at(call, "function")
        name, given = text_at(body, "name"), arguments_input(text_at(body, "arguments"))
    return ToolPart(
        tool=name,
        call_id=call_id,
        state=Pending(input=given),
        metadata=kept(KEY, raw_unless(_usual_call(name, call_id, given), call, "id")),
    )


def _read_old_call(call: Json) -> ToolPart:
    """A call of the old kind."""
    name, given = text_at(call, "name"), arguments_input(text_at(call, "arguments"))
    own = {_OLD: True, **raw_unless({"name": name, "arguments": compact(given)}, call)}
    return ToolPart(
        tool=name, call_id=_old_id(name), state=Pending(input=given), metadata={KEY: own}
    )


def _old_id(name: str) -> str:
    """Calls of the old kind have no ids: a result belongs to the last call of its function."""
    return f"function_{name}"


def _answer(message: Json) -> Answer:
    name = message.get("name")
    is_old = message["role"] == "function"
    if is_old:
        call_id = _old_id(text_at(message, "name"))
    else:
        call_id = _noted_id(message) or text_at(message, "tool_call_id")
    output, files = read_output(message.get("content"), ("text",), read_file)
    answer = Answer(
        call_id=call_id,
        output=output,
        tool=name if isinstance(name, str) else "",
        files=files,
        rest=_noted(without(message, "role", "content", "tool_call_id")),
        raw=message,
    )
    return exact(answer, _usual_result, KEY, {_OLD: True} if is_old else {}, "tool_call_id")


def _noted_id(message: Json) -> str:
    """The id as SWE-agent notes it, in a list of its own."""
    ids = message.get("tool_call_ids")
    if "tool_call_id" in message or not isinstance(ids, list) or not ids:
        return ""
    first = cast("list[object]", ids)[0]
    return first if isinstance(first, str) else ""


# --- writing -------------------------------------------------------------------------------


def _whole(block: Block, *, as_is: bool) -> Json | None:
    """A message that passes through: of an unknown role, or a result without a call."""
    found = whole_message(block, KEY)
    return _lone_result(block) if found is None and as_is else found


def _lone_result(block: Block) -> Json | None:
    """The message that a result without a call was, if it is one."""
    held = options(options(block.provider_options, KEY), BLOCK)
    return dict(held) if held.get("role") in ("tool", "function") else None


def _from_user(message: UserMessage, *, as_is: bool) -> Json:
    own = options(message.wire, KEY)
    role = own[_ROLE] if own.get(_ROLE) in _PROMPTS else "user"
    parts = _written_parts(message.content, as_is=as_is, files=as_is or role == "user")
    content = _content(parts, own) if parts or as_is else NOTHING_TO_READ
    return _message(role, content) | _returned(own, as_is=as_is)


def _message(role: str, content: Any) -> Json:
    return {"role": role} if content is UNSET else {"role": role, "content": content}


def _content(parts: list[Json], own: Json) -> Any:
    form = own.get(_FORM)
    if not parts and form != "list":
        return UNSET if form == "absent" else None
    text = parts[0].get("text") if len(parts) == 1 else None
    if form != "list" and isinstance(text, str) and parts[0] == {"type": "text", "text": text}:
        return text
    return parts


def _from_assistant(message: AssistantMessage, *, as_is: bool) -> Json:
    own = options(message.wire, KEY)
    beside = _returned(own, as_is=as_is)
    said: list[Text | Media] = []
    calls: list[Call] = []
    for held in message.content:
        match held:
            case Call():
                calls.append(held)
            case Reasoning():
                _put_beside(beside, held, others="reasoning_content" if as_is else "")
            case Text() if as_is and UNDER in options(held.provider_options, KEY):
                _put_beside(beside, held)
            case _:
                said.append(held)
    parts = _written_parts(said, as_is=as_is, files=as_is)
    content = _content(parts, own)
    if not as_is and not parts and (not calls or content is not UNSET):
        content = None if calls else NOTHING_TO_READ  # a list must not be empty
    return _message("assistant", content) | beside | _written_calls(calls, as_is=as_is)


def _put_beside(beside: Json, held: Text | Reasoning, others: str = "") -> None:
    """Write a text into the fields it came from; another wire's into this one, if any."""
    own = options(held.provider_options, KEY)
    named = own.get(UNDER)
    names = cast("list[str]", named) if isinstance(named, list) else [others]
    for name in names:
        if name == "audio":
            beside[name] = {**options(own, FIELDS), "transcript": held.text}
        elif name and held.text:
            before = beside.get(name)
            beside[name] = f"{before}\n\n{held.text}" if isinstance(before, str) else held.text


def _written_parts(said: Sequence[Text | Media], *, as_is: bool, files: bool) -> list[Json]:
    """Parts of a content; where files may not stand, a note of each."""
    written: list[Json] = []
    for held in said:
        own = options(held.provider_options, KEY)
        if isinstance(held, Media):
            file = written_file(held, as_is=as_is)
            is_sent = files and (as_is or can_be_sent(file["type"], held.data))
            written.append(file if is_sent else file_note(held))
        elif isinstance(own.get(BLOCK), dict) and not _lone_result(held):
            written.append(dict(own[BLOCK]))
        elif as_is or held.text.strip():
            fields = {} if UNDER in own else _returned(own, as_is=as_is, known=MARKS)
            written.append({"type": "text", "text": held.text, **fields})
    return written


def _returned(own: Json, *, as_is: bool, known: frozenset[str] = _RETURNED) -> Json:
    """The fields that go back: all, or those that a server knows."""
    fields = options(own, FIELDS)
    return dict(fields) if as_is else known_fields(fields, known)


def _written_calls(calls: Sequence[Call], *, as_is: bool) -> Json:
    """The fields of a message that hold its calls."""
    old = [call for call in calls if as_is and _is_old(call)]
    old = old if len(old) == 1 else []
    fields: Json = {}
    for call in old:
        usual = {"name": call.tool_name, "arguments": compact(call.input)}
        fields[_OLD] = as_it_came(usual, options(call.provider_options, KEY))
    written = [_written_call(call, as_is=as_is) for call in calls if call not in old]
    return fields | ({"tool_calls": written} if written else {})


def _is_old(block: Call | Result) -> bool:
    """Whether it is of the old kind."""
    return options(block.provider_options, KEY).get(_OLD) is True


def _usual_call(name: str, call_id: str, given: Json) -> Json:
    function = {"name": name, "arguments": compact(given)}
    return {"id": call_id, "type": "function", "function": function}


def _written_call(call: Call, *, as_is: bool) -> Json:
    usual = _usual_call(call.tool_name, call.tool_call_id, call.input)
    own = options(call.provider_options, KEY)
    came: Json = usual if _OLD in own else as_it_came(usual, own, "id")
    if as_is:
        return came
    name, call_id = _TOOLS.fit(call.tool_name), _fitting_id(call.tool_call_id)
    if came is usual or name != call.tool_name:
        usual["id"], usual["function"]["name"] = call_id, name
        return usual
    came["id"] = usual["id"] = call_id
    fields = known_fields(came, _RETURNED)
    function = options(came, "function")
    if came.get("type") == "custom":
        body = {name: came["custom"][name] for name in ("name", "input")}
        return {"id": call_id, "type": "custom", "custom": body, **fields}
    if not function:
        return came
    # Servers refuse arguments that are no object in JSON.
    if arguments_object(function["arguments"]) is not None:
        usual["function"]["arguments"] = function["arguments"]
    return usual | fields


def _fitting_id(call_id: str) -> str:
    """An id that is taken."""
    return call_id if _FITTING_ID.fullmatch(call_id) else _IDS.fit(call_id)


def _usual_result(result: Result) -> Json:
    fields = options(options(options(result.provider_options, KEY), RESULT), FIELDS)
    text = result.output.value
    usual: Json = {"role": "tool", "content": text, "tool_call_id": result.tool_call_id, **fields}
    if result.attachments:
        files = [written_file(held, as_is=True) for held in result.attachments]
        usual["content"] = [{"type": "text", "text": text}, *files]
    if _is_old(result):
        usual = {**without(usual, "tool_call_id"), "role": "function", "name": result.tool_name}
    return usual


def _result(result: Result, *, as_is: bool) -> Json:
    own = options(options(result.provider_options, KEY), RESULT)
    text = result.output.value
    came: Json = as_it_came(_usual_result(result), own, "tool_call_id")
    if as_is:
        return came
    content = None if result.attachments else came.get("content")
    parts = cast("list[Json]", content) if isinstance(content, list) and text.strip() else []
    found = [known_fields(part, MARKS | {"type", "text"}) for part in parts if _says(part)]
    shown = text if text.strip() or not result.attachments else _SEE_BELOW
    written = {"role": "tool", "content": found or shown, **_returned(own, as_is=False)}
    return {**written, "tool_call_id": _fitting_id(result.tool_call_id)}


def _says(part: object) -> bool:
    """Whether it is a block of text that says something."""
    match part:
        case {"type": "text", "text": str(text)}:
            return bool(text.strip())
        case _:
            return False


def _files_of(message: ToolMessage) -> list[Json]:
    """What cannot stand in a tool's message: the user hands it over."""
    files = [file for result in message.content for file in result.attachments]
    if not files:
        return []
    parts = _written_parts(files, as_is=False, files=True)
    return [{"role": "user", "content": [{"type": "text", "text": _FILES_BELOW}, *parts]}]
