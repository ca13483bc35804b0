"""OpenAI's Chat Completions API, and the many servers that speak it.

Facts of this wire: each result is a message of its own, of text alone; arguments are JSON inside
a text; reasoning has no place in it, so vendors add fields of their own for it and want them back;
a system prompt is a message and may stand anywhere.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import (
    AnyPart,
    Cache,
    FilePart,
    ReasoningPart,
    TextPart,
    Tokens,
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
    CHARS,
    NOTHING_TO_READ,
    RESULT,
    Answer,
    Pieces,
    Read,
    Reply,
    as_number,
    object_at,
    objects,
    options,
    outlined,
    text_at,
    texts_of,
    unknown_role,
    whole_message,
    with_whole_messages,
    without,
)
from .openai_chat_parts import (
    FIELDS,
    FILES,
    KEY,
    MARKS,
    OLD,
    THOUGHTS,
    UNDER,
    fitting_id,
    is_old,
    lone_result,
    noted,
    old_id,
    read_call,
    read_file,
    read_old_call,
    read_part,
    returned,
    written_calls,
    written_file,
    written_parts,
)

_FORM = "form"  # of the content, where it is not the usual: "list", "null" or "absent"
_ROLE = "role"
_NO_ID = "no_id"
_OUTLINE = "outline"

_PROMPTS = ("system", "developer")
_FINISH = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "length": "length",
    "content_filter": "content-filter",
}
# Blocks by which a list is known to be of another wire.
_FOREIGN = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"),
        *("server_tool_use", "input_text", "output_text", "input_image", "input_file"),
    }
)
_FILES_BELOW = "[Files that the tools gave back:]"
_SEE_BELOW = "[The file follows below.]"


class OpenAIChat:
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
        passed: list[Json] = []
        for message in with_whole_messages(shown, partial(_whole, as_is=as_is)):
            match message:
                case dict():
                    written.append(message)
                    passed.append(message)
                case UserMessage():
                    written.append(_from_user(message, as_is=as_is))
                case AssistantMessage():
                    written.append(_from_assistant(message, as_is=as_is))
                case ToolMessage():
                    written += [_result(held, as_is=as_is) for held in message.content]
                    written += [] if as_is else _files_of(message)
        if not as_is:
            # Servers that pass requests on to Anthropic take its breakpoints.
            ours = [held for held in written if not any(held is whole for whole in passed)]
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


def usage_tokens(usage: object) -> Tokens | None:
    """What was measured; the prompt's tokens include those that were cached."""
    if not isinstance(usage, dict):
        return None
    told = cast("Json", usage)
    given, made = as_number(told.get("prompt_tokens")), as_number(told.get("completion_tokens"))
    read = as_number(options(told, "prompt_tokens_details").get("cached_tokens"))
    return Tokens(
        input=max(given - read, 0),
        output=made,
        reasoning=as_number(options(told, "completion_tokens_details").get("reasoning_tokens")),
        total=as_number(told.get("total_tokens")) or given + made,
        cache=Cache(read=read, write=0),
    )


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
    parts = [read_part(block) for block in objects(content, "'content'")]
    # One bare text would be written as such, and nothing as null.
    is_bare = len(parts) == 1 and isinstance(parts[0], TextPart) and not parts[0].metadata
    return parts, {_FORM: "list"} if is_bare or not parts else {}


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
    rest |= {FIELDS: fields} if fields else {}
    return Read(role="assistant", parts=parts, rest=rest)


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
        own = {UNDER: ["audio"], **noted(without(fields.pop("audio"), "transcript"))}
        found.append(TextPart(text=transcript, metadata={KEY: own}))
    return found


def _calls(fields: Json) -> list[ToolPart]:
    parts: list[ToolPart] = []
    if fields.get("tool_calls") not in (None, []):
        parts = [read_call(held) for held in objects(fields.pop("tool_calls"), "'tool_calls'")]
    if fields.get(OLD) is not None:
        parts.append(read_old_call(object_at(fields, OLD)))
        del fields[OLD]
    return parts


def _answer(message: Json) -> Answer:
    rest: Json = {}
    name, taken = message.get("name"), ["role", "content"]
    if message["role"] == "function":
        call_id = old_id(text_at(message, "name"))
        taken.append("name")
    elif (found := _noted_id(message)) is not None:
        call_id, rest[_NO_ID] = found, True
    else:
        call_id = text_at(message, "tool_call_id")
        taken.append("tool_call_id")
    rest |= noted(without(message, *taken))
    pieces = Pieces()
    content = message.get("content", UNSET)
    if isinstance(content, str):
        pieces.add_text(content, {})
    elif content is UNSET or content is None:
        rest[_FORM] = "absent" if content is UNSET else "null"
    else:
        _take_pieces(pieces, objects(content, "'content'"))
        rest[_OUTLINE] = pieces.outline
    return Answer(
        call_id=call_id,
        output=pieces.text,
        tool=name if isinstance(name, str) else "",
        files=tuple(pieces.files),
        rest=rest,
        raw=message,
    )


def _noted_id(message: Json) -> str | None:
    """The id as SWE-agent notes it, in a list of its own."""
    ids = message.get("tool_call_ids")
    if "tool_call_id" in message or not isinstance(ids, list) or not ids:
        return None
    first = cast("list[object]", ids)[0]
    return first if isinstance(first, str) else None


def _take_pieces(pieces: Pieces, blocks: list[Json]) -> None:
    for block in blocks:
        kind, text = block.get("type"), block.get("text")
        if kind == "text" and isinstance(text, str):
            pieces.add_text(text, without(block, "type", "text"))
        elif kind in FILES and (file := read_file(block)) is not None:
            pieces.add_file(file, {})
        else:
            pieces.add_other(block)


# --- writing -------------------------------------------------------------------------------


def _whole(block: Block, *, as_is: bool) -> Json | None:
    """A message that passes through: of an unknown role, or a result without a call."""
    found = whole_message(block, KEY)
    return lone_result(block) if found is None and as_is else found


def _from_user(message: UserMessage, *, as_is: bool) -> Json:
    own = options(message.wire, KEY)
    role = own[_ROLE] if own.get(_ROLE) in _PROMPTS else "user"
    parts = written_parts(message.content, as_is=as_is, files=as_is or role == "user")
    content = _content(parts, own) if parts or as_is else NOTHING_TO_READ
    return _message(role, content) | returned(own, as_is=as_is)


def _message(role: str, content: Any) -> Json:
    return {"role": role} if content is UNSET else {"role": role, "content": content}


def _content(parts: list[Json], own: Json) -> Any:
    form = own.get(_FORM)
    if not parts and form != "list":
        return UNSET if form == "absent" else None
    if form != "list" and len(parts) == 1 and set(parts[0]) == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _from_assistant(message: AssistantMessage, *, as_is: bool) -> Json:
    own = options(message.wire, KEY)
    beside = returned(own, as_is=as_is)
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
    parts = written_parts(said, as_is=as_is, files=as_is)
    content = _content(parts, own)
    if not as_is and not parts and (not calls or content is not UNSET):
        content = None if calls else NOTHING_TO_READ  # a list must not be empty
    return _message("assistant", content) | beside | written_calls(calls, as_is=as_is)


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


def _result(result: Result, *, as_is: bool) -> Json:
    own = options(options(result.provider_options, KEY), RESULT)
    content = _result_content(result, own) if as_is else _result_text(result, own)
    message = _message("tool", content) | returned(own, as_is=as_is)
    if not as_is:
        message["tool_call_id"] = fitting_id(result.tool_call_id)
    elif is_old(result):
        message |= {"role": "function", "name": result.tool_name}
    elif not own.get(_NO_ID):
        message["tool_call_id"] = result.tool_call_id
    return message


def _result_content(result: Result, own: Json) -> Any:
    text, form = result.output.value, own.get(_FORM)
    files = [written_file(held, as_is=True) for held in result.attachments]
    if (pieces := _pieces(text, own)) is not None:
        return outlined(*pieces, files, "text")
    if form and not text:
        return UNSET if form == "absent" else None
    if not files:
        return text
    return [{"type": "text", "text": text}, *files]


def _result_text(result: Result, own: Json) -> str | list[Json]:
    """What a provider takes: texts alone."""
    text = result.output.value
    if text.strip() and (pieces := _pieces(text, own)) is not None:
        outline = [piece for piece in pieces[0] if CHARS in piece]
        parts = outlined(outline, pieces[1], (), "text")
        return [_marked_text(part) for part in parts if part["text"].strip()]
    return text if text.strip() or not result.attachments else _SEE_BELOW


def _marked_text(part: Json) -> Json:
    return {name: held for name, held in part.items() if name in ("type", "text", *MARKS)}


def _pieces(text: str, own: Json) -> tuple[list[Json], list[str]] | None:
    """The pieces in which an output came, if it still is the same."""
    outline = own.get(_OUTLINE)
    if not isinstance(outline, list):
        return None
    found = cast("list[Json]", outline)
    texts = texts_of(text, found)
    return None if texts is None else (found, texts)


def _files_of(message: ToolMessage) -> list[Json]:
    """What cannot stand in a tool's message: the user hands it over."""
    files = [file for result in message.content for file in result.attachments]
    if not files:
        return []
    parts = written_parts(files, as_is=False, files=True)
    return [{"role": "user", "content": [{"type": "text", "text": _FILES_BELOW}, *parts]}]
