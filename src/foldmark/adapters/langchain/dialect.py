"""Reads LangChain's messages into ours and writes them back: every kind, with every field.

Fields that we have no equivalent for are stored as metadata, under LangChain's own names. Content
that we would write differently is stored whole and is restored unless the view changed it. An
artifact that is not JSON is not stored; it survives only while the message object is at hand.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_from_dict,
)
from msgspec import UNSET
from msgspec.structs import replace

from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Cache,
    FilePart,
    Message,
    Pending,
    TextPart,
    Tokens,
    ToolPart,
)
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    PromptMessage,
    Result,
    Text,
    UserMessage,
)
from foldmark.model.prompt_messages import ToolMessage as ToolResults
from foldmark.model.values import Json
from foldmark.session.fingerprints import content_of, read_content
from foldmark.wire.codec import (
    RESULT,
    ReadMessage,
    ReadResult,
    Role,
    codec_metadata,
    positive_int,
    subobject,
)
from foldmark.wire.lists import to_prompt

from .blocks import FORM, KEY, is_plain, plain_text, read_block, read_file, write_block
from .values import from_json, to_json

_KINDS = ("AI", "Human", "System", "Tool", "Chat", "Function")
_TYPES = {*map(str.lower, _KINDS), *(f"{kind}MessageChunk" for kind in _KINDS)}
_NAME = "langchain-name"  # in a part's metadata: the speaker
_TYPE, _LIST, _FIELDS, _RAW = "type", "list", "fields", "raw"
_CONTENT = ("content", "tool_calls", "invalid_tool_calls")
_SEPARATE_FIELDS = frozenset({*_CONTENT, "type", "tool_call_id", "artifact"})
# Kinds of call blocks, and the name of their id field.
_CALLS = {"tool_use": "id", "tool_call": "id", "function_call": "call_id"}
_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "ai": "assistant",
    "system": "system",
    "developer": "system",
}


class LangChainDialect:
    """Reads and writes LangChain's messages."""

    name = key = KEY
    unique = True  # a state assigns an id to each message

    def read(self, message: BaseMessage, /) -> ReadMessage:
        """The content of a message."""
        rest = _rest(message)
        if isinstance(message, ToolMessage):
            return ReadMessage(role="user", results=(_read_result(message, rest),), rest=rest)
        if isinstance(message, AIMessage):
            return _read_assistant(message, rest)
        parts = _parts(cast("object", message.content))
        if isinstance(message, HumanMessage) and message.name:
            parts = [  # each part names its speaker
                replace(part, metadata={**(part.metadata or {}), _NAME: message.name})
                if isinstance(part, TextPart | FilePart)
                else part
                for part in parts
            ]
        return ReadMessage(role=_role(message), parts=tuple(parts), rest=rest)

    def write(
        self, messages: Sequence[PromptMessage], original: BaseMessage | None, /
    ) -> list[BaseMessage]:
        """Messages with this content."""
        result: list[BaseMessage] = []
        for message in messages:
            match message:
                case ToolResults():
                    result += [_result(block, original) for block in message.content]
                case AssistantMessage():
                    result.append(_restore_original(message) or _assistant(message))
                case UserMessage():
                    result += _user(message)
        return result

    def prompt(self, message: BaseMessage, /) -> BaseMessage | None:
        """The message if it is a system prompt, else None."""
        return message if _role(message) == "system" else None


# --- reading -------------------------------------------------------------------------------


def _role(message: BaseMessage) -> Role:
    match message:
        case AIMessage():
            return "assistant"
        case SystemMessage():
            return "system"
        case ChatMessage():
            return _ROLES.get(message.role, "user")
        case _:
            return "user"


def _rest(message: BaseMessage) -> Json:
    """All fields of a message besides its content and calls, without defaults."""
    defaults = type(message).model_fields
    values = {**message.__dict__, **(message.__pydantic_extra__ or {})}
    fields: Json = {}
    for name, value in values.items():
        if name in _SEPARATE_FIELDS or value is None or value in ({}, []):
            continue
        if name not in defaults or value != defaults[name].default:
            fields[name] = to_json(value)
    if isinstance(message, ToolMessage):
        artifact = cast("object", message.artifact)
        if artifact is not None and to_json(artifact) == artifact:
            fields["artifact"] = artifact
    rest: Json = {_TYPE: message.type}
    if isinstance(message.content, list):
        rest[_LIST] = True
    if fields:
        rest[_FIELDS] = fields
    return rest


def _parts(content: object) -> list[AnyPart]:
    if isinstance(content, str):
        return [TextPart(text=str.__str__(content))] if content else []
    return [read_block(block) for block in cast("list[object]", content)]


def _read_assistant(message: AIMessage, rest: Json) -> ReadMessage:
    parts = _assistant_parts(message)
    prompt = to_prompt(Message(info=AssistantInfo(id="msg", wire={KEY: rest}), parts=parts))[0]
    rewritten = _assistant(cast("AssistantMessage", prompt))
    if any(getattr(rewritten, name, None) != getattr(message, name) for name in _CONTENT):
        rest = {**rest, _RAW: {name: to_json(getattr(message, name)) for name in _CONTENT}}
    return ReadMessage(role="assistant", parts=parts, rest=rest, tokens=_tokens(message))


def _assistant_parts(message: AIMessage) -> tuple[AnyPart, ...]:
    """The parts of an assistant message; a call is at the position of its block, or at the end.

    A call block and its entry in `tool_calls` are one part. Calls that are only in the content, and
    calls that LangChain could not parse, need a result like any other.
    """
    entries = cast("list[Json]", [*message.tool_calls, *message.invalid_tool_calls])
    content = cast("object", message.content)
    if isinstance(content, str):
        return (*_parts(content), *map(_call, entries))
    parts: list[AnyPart] = []
    for block in cast("list[object]", content):
        fields = _object(block)
        call_id = fields.get(_CALLS.get(str(fields.get("type")), ""))
        if not isinstance(call_id, str) or not isinstance(fields.get("name"), str):
            parts.append(read_block(block))
            continue
        entry = next((one for one in entries if one.get("id") == call_id), None)
        if entry is not None:
            entries.remove(entry)
        arguments = fields.get("input", fields.get("args"))
        parts.append(_call(entry or {**fields, "id": call_id, "args": arguments}, fields))
    return (*parts, *map(_call, entries))


def _object(block: object) -> Json:
    return cast("Json", block) if isinstance(block, dict) else {}


def _call(entry: Json, block: Json | None = None) -> ToolPart:
    call_id, arguments = entry.get("id"), entry.get("args")
    own = {} if block is None else {FORM: to_json(block, hole=arguments)}
    return ToolPart(
        tool=str(entry.get("name") or "unknown"),
        call_id=UNSET if call_id is None else str(call_id),
        state=Pending(input=to_json(_object(arguments))),
        metadata=codec_metadata(KEY, own),
    )


def _read_result(message: ToolMessage, rest: Json) -> ReadResult:
    """A tool result; unknown blocks become text, so that they are counted and can be hidden."""
    content = cast("object", message.content)
    texts, files = list[str](), list[FilePart]()
    for block in cast("list[object]", content) if isinstance(content, list) else [content]:
        fields = _object(block)
        text = fields.get("text") if fields.get("type") == "text" else block
        if isinstance(text, str):
            texts.append(str.__str__(text))
        elif (file := read_file(fields)) is not None:
            files.append(file)
        else:
            texts.append(json.dumps(to_json(block), ensure_ascii=False))
    output = "\n".join(texts)
    if isinstance(content, list):
        rest = {**rest, _RAW: to_json(cast("object", content), hole=output or None)}
    return ReadResult(
        call_id=message.tool_call_id,
        output=output,
        tool=message.name or "",
        is_error=message.status == "error",
        files=tuple(files),
        rest=rest,
        raw={"type": "text", "text": output},  # shown as text if its call is missing
    )


def _tokens(message: AIMessage) -> Tokens | None:
    """The measured usage; LangChain's input tokens include cached ones."""
    usage = cast("Mapping[str, Any] | None", message.usage_metadata)
    if not usage or not positive_int(usage.get("total_tokens")):
        return None
    details = _details(usage, "input_token_details")
    cache_read = positive_int(details.get("cache_read"))
    cache_write = positive_int(details.get("cache_creation"))
    return Tokens(
        input=max(positive_int(usage.get("input_tokens")) - cache_read - cache_write, 0),
        output=positive_int(usage.get("output_tokens")),
        reasoning=positive_int(_details(usage, "output_token_details").get("reasoning")),
        total=positive_int(usage.get("total_tokens")),
        cache=Cache(read=cache_read, write=cache_write),
    )


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", usage.get(name) or {})


# --- writing -------------------------------------------------------------------------------


def _kind(own: Json, default: str) -> str:
    value = str(own.get(_TYPE))
    return value if value in _TYPES else default


def _new_message(kind: str, /, **fields: Any) -> Any:
    """Create a message of this kind."""
    return messages_from_dict([{"type": kind, "data": fields}])[0]


def _fields(own: Json) -> dict[str, Any]:
    """The stored fields of a message; unexpected ones in foreign stores are dropped."""
    values = subobject(own, _FIELDS)
    return {
        name: from_json(value)
        for name, value in values.items()
        if name == "artifact" or name not in _SEPARATE_FIELDS
    }


def _user(message: UserMessage) -> list[BaseMessage]:
    own = subobject(message.wire, KEY)
    kind = _kind(own, "human")
    if own and not kind.lower().startswith("tool"):
        blocks = [write_block(block) for block in message.content]
        return [_new_message(kind, content=_content(blocks, own), **_fields(own))]
    # A view may have joined messages of several speakers; an orphaned result is text.
    return [
        HumanMessage(_content([*map(write_block, group)], {}), name=name)
        for name, group in groupby(message.content, _name)
    ]


def _name(block: Text | Media) -> str | None:
    name = cast("Json", block.provider_options or {}).get(_NAME)
    return name if isinstance(name, str) else None


def _assistant(message: AssistantMessage) -> BaseMessage:
    own = subobject(message.wire, KEY)
    blocks, calls = list[Any](), list[Json]()
    for part in message.content:
        if isinstance(part, Call):
            arguments, call_id = from_json(part.input), part.tool_call_id
            calls.append(
                {"name": part.tool_name, "args": arguments, "id": call_id, "type": "tool_call"}
            )
            form = subobject(part.provider_options, KEY).get(FORM)
            block = from_json(form, arguments)
            if isinstance(block, dict):
                block[_CALLS[cast("Json", block)["type"]]] = call_id
        else:
            block = write_block(part)
        blocks += [] if block is None else [block]
    kind = _kind(own, "ai")
    has_calls = kind.lower().startswith("ai")  # a ChatMessage has no calls
    call_field = {"tool_calls": calls} if has_calls else {}
    return _new_message(kind, content=_content(blocks, own), **_fields(own), **call_field)


def _restore_original(message: AssistantMessage) -> BaseMessage | None:
    """The message as it was stored whole, unless the view changed it; calls without ids get one."""
    own = subobject(message.wire, KEY)
    raw = cast("dict[str, list[Json]]", from_json(subobject(own, _RAW)))
    if not raw:
        return None
    entries = raw["tool_calls"] + raw["invalid_tool_calls"]
    entry_ids = {entry["id"] for entry in entries}
    call_ids = (block.tool_call_id for block in message.content if isinstance(block, Call))
    missing = (call_id for call_id in call_ids if call_id not in entry_ids)
    for entry in entries:
        entry["id"] = next(missing, "") if entry["id"] is None else entry["id"]
    answer: AIMessage = _new_message(_kind(own, "ai"), **raw, **_fields(own))
    content = read_content(ReadMessage(role="assistant", parts=_assistant_parts(answer)))
    return answer if content == content_of((message,)) else None


def _result(result: Result, original: BaseMessage | None) -> BaseMessage:
    own = subobject(subobject(result.provider_options, KEY), RESULT)
    fields = _fields(own) if own else {"name": result.tool_name or None}
    if result.output.type == "error-text":
        fields["status"] = "error"
    if isinstance(original, ToolMessage) and original.artifact is not None:
        fields["artifact"] = original.artifact
    fields |= {"tool_call_id": result.tool_call_id}
    new_message = partial(_new_message, _kind(own, "tool"), **fields)
    text = result.output.value
    if _RAW in own:
        whole = new_message(content=from_json(own[_RAW], text))
        answer = _read_result(whole, {})
        if (answer.output, len(answer.files)) == (text, len(result.attachments)):
            return whole
    files = [write_block(file) for file in result.attachments]
    text_blocks = [{"type": "text", "text": text}] if text else []
    return new_message(content=[*text_blocks, *files] if files else text)


def _content(blocks: Sequence[Any], own: Json) -> Any:
    is_text = not own.get(_LIST) and all(map(is_plain, blocks))
    return plain_text(blocks) if is_text else list(blocks)
