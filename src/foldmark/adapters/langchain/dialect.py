"""LangChain's messages, read into ours and written back: every kind, with every field.

What we have no word for is kept beside the message under our key, by the names of LangChain's own
fields. Content that would not be written back as it came is kept whole, and goes back while it
says what is shown. An artifact that is no JSON is kept by whoever has the message itself, and not
in a store.
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
from foldmark.session.fingerprints import gists, said
from foldmark.wire.codec import RESULT, Answer, Read, Role, as_number, kept, options
from foldmark.wire.lists import as_shown

from .blocks import FORM, KEY, is_plain, plain_text, read_block, read_file, write_block
from .values import restored, stored

_KINDS = ("AI", "Human", "System", "Tool", "Chat", "Function")
_TYPES = {*map(str.lower, _KINDS), *(f"{kind}MessageChunk" for kind in _KINDS)}
_NAME = "langchain-name"  # beside our key in a part: who has said it
_TYPE, _LIST, _FIELDS, _RAW = "type", "list", "fields", "raw"
_CONTENT = ("content", "tool_calls", "invalid_tool_calls")
_TOLD_ELSEWHERE = frozenset({*_CONTENT, "type", "tool_call_id", "artifact"})
# Blocks that are calls, and the name of their id.
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
    unique = True  # a state gives each message an id

    def read(self, message: BaseMessage, /) -> Read:
        """What a message says."""
        rest = _rest(message)
        if isinstance(message, ToolMessage):
            return Read(role="user", answers=(_answer(message, rest),), rest=rest)
        if isinstance(message, AIMessage):
            return _read_answer(message, rest)
        parts = _parts(cast("object", message.content))
        if isinstance(message, HumanMessage) and message.name:
            parts = [  # each tells by itself who said it
                replace(part, metadata={**(part.metadata or {}), _NAME: message.name})
                if isinstance(part, TextPart | FilePart)
                else part
                for part in parts
            ]
        return Read(role=_role(message), parts=tuple(parts), rest=rest)

    def write(
        self, shown: Sequence[PromptMessage], original: BaseMessage | None, /
    ) -> list[BaseMessage]:
        """Messages that say this."""
        written: list[BaseMessage] = []
        for message in shown:
            match message:
                case ToolResults():
                    written += [_result(held, original) for held in message.content]
                case AssistantMessage():
                    written.append(_as_it_came(message) or _assistant(message))
                case UserMessage():
                    written += _user(message)
        return written

    def prompt(self, message: BaseMessage, /) -> BaseMessage | None:
        """The message, where it is a system prompt."""
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
    """All that a message has beside its content and its calls, without what is usual."""
    usual = type(message).model_fields
    held = {**message.__dict__, **(message.__pydantic_extra__ or {})}
    fields: Json = {}
    for name, value in held.items():
        if name in _TOLD_ELSEWHERE or value is None or value in ({}, []):
            continue
        if name not in usual or value != usual[name].default:
            fields[name] = stored(value)
    if isinstance(message, ToolMessage):
        artifact = cast("object", message.artifact)
        if artifact is not None and stored(artifact) == artifact:
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


def _read_answer(message: AIMessage, rest: Json) -> Read:
    parts = _answer_parts(message)
    shown = as_shown(Message(info=AssistantInfo(id="msg", wire={KEY: rest}), parts=parts))
    written = _assistant(cast("AssistantMessage", shown[0]))
    if any(getattr(written, name, None) != getattr(message, name) for name in _CONTENT):
        rest = {**rest, _RAW: {name: stored(getattr(message, name)) for name in _CONTENT}}
    return Read(role="assistant", parts=parts, rest=rest, tokens=_tokens(message))


def _answer_parts(message: AIMessage) -> tuple[AnyPart, ...]:
    """The parts of an answer; a call stands where its block is, or behind all.

    A block of a call and its entry in `tool_calls` are one part. A call that stands among the
    content alone, and one that LangChain could not parse, want a result as any other does.
    """
    left = cast("list[Json]", [*message.tool_calls, *message.invalid_tool_calls])
    content = cast("object", message.content)
    if isinstance(content, str):
        return (*_parts(content), *map(_call, left))
    parts: list[AnyPart] = []
    for block in cast("list[object]", content):
        fields = _object(block)
        call_id = fields.get(_CALLS.get(str(fields.get("type")), ""))
        if not isinstance(call_id, str) or not isinstance(fields.get("name"), str):
            parts.append(read_block(block))
            continue
        entry = next((held for held in left if held.get("id") == call_id), None)
        if entry is not None:
            left.remove(entry)
        given = fields.get("input", fields.get("args"))
        parts.append(_call(entry or {**fields, "id": call_id, "args": given}, fields))
    return (*parts, *map(_call, left))


def _object(block: object) -> Json:
    return cast("Json", block) if isinstance(block, dict) else {}


def _call(entry: Json, block: Json | None = None) -> ToolPart:
    call_id, given = entry.get("id"), entry.get("args")
    own = {} if block is None else {FORM: stored(block, hole=given)}
    return ToolPart(
        tool=str(entry.get("name") or "unknown"),
        call_id=UNSET if call_id is None else str(call_id),
        state=Pending(input=stored(cast("Json", given)) if isinstance(given, dict) else {}),
        metadata=kept(KEY, own),
    )


def _answer(message: ToolMessage, rest: Json) -> Answer:
    """A result; a block that we do not know is text as well, to be counted and hidden."""
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
            texts.append(json.dumps(stored(block), ensure_ascii=False))
    output = "\n".join(texts)
    if isinstance(content, list):
        rest = {**rest, _RAW: stored(cast("object", content), hole=output or None)}
    return Answer(
        call_id=message.tool_call_id,
        output=output,
        tool=message.name or "",
        is_error=message.status == "error",
        files=tuple(files),
        rest=rest,
        raw={"type": "text", "text": output},  # without its call, it is words
    )


def _tokens(message: AIMessage) -> Tokens | None:
    """What was measured; LangChain's input counts what was cached as well."""
    usage = cast("Mapping[str, Any] | None", message.usage_metadata)
    if not usage or not as_number(usage.get("total_tokens")):
        return None
    told = _details(usage, "input_token_details")
    read, write = as_number(told.get("cache_read")), as_number(told.get("cache_creation"))
    return Tokens(
        input=max(as_number(usage.get("input_tokens")) - read - write, 0),
        output=as_number(usage.get("output_tokens")),
        reasoning=as_number(_details(usage, "output_token_details").get("reasoning")),
        total=as_number(usage.get("total_tokens")),
        cache=Cache(read=read, write=write),
    )


def _details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", usage.get(name) or {})


# --- writing -------------------------------------------------------------------------------


def _kind(own: Json, usual: str) -> str:
    told = str(own.get(_TYPE))
    return told if told in _TYPES else usual


def _made(kind: str, /, **fields: Any) -> Any:
    """A message of this kind."""
    return messages_from_dict([{"type": kind, "data": fields}])[0]


def _fields(own: Json) -> dict[str, Any]:
    """What was kept of a message; a store may come from elsewhere, and hold what is not meant."""
    held = options(own, _FIELDS)
    return {
        name: restored(value)
        for name, value in held.items()
        if name == "artifact" or name not in _TOLD_ELSEWHERE
    }


def _user(message: UserMessage) -> list[BaseMessage]:
    own = options(message.wire, KEY)
    kind = _kind(own, "human")
    if own and not kind.lower().startswith("tool"):
        blocks = [write_block(held) for held in message.content]
        return [_made(kind, content=_content(blocks, own), **_fields(own))]
    # A view has joined what several may have said; a result without a call is words for a model.
    return [
        HumanMessage(_content([*map(write_block, held)], {}), name=name)
        for name, held in groupby(message.content, _name)
    ]


def _name(block: Text | Media) -> str | None:
    told = cast("Json", block.provider_options or {}).get(_NAME)
    return told if isinstance(told, str) else None


def _assistant(message: AssistantMessage) -> BaseMessage:
    own = options(message.wire, KEY)
    blocks, calls = list[Any](), list[Json]()
    for held in message.content:
        if isinstance(held, Call):
            given, call_id = restored(held.input), held.tool_call_id
            calls.append(
                {"name": held.tool_name, "args": given, "id": call_id, "type": "tool_call"}
            )
            form = options(held.provider_options, KEY).get(FORM)
            block = restored(form, given)
            if isinstance(block, dict):
                block[_CALLS[cast("Json", block)["type"]]] = call_id
        else:
            block = write_block(held)
        blocks += [] if block is None else [block]
    kind = _kind(own, "ai")
    has_calls = kind.lower().startswith("ai")  # a ChatMessage has none
    called = {"tool_calls": calls} if has_calls else {}
    return _made(kind, content=_content(blocks, own), **_fields(own), **called)


def _as_it_came(message: AssistantMessage) -> BaseMessage | None:
    """The answer that was kept whole, if that says what is shown; calls without ids get theirs."""
    own = options(message.wire, KEY)
    raw = cast("dict[str, list[Json]]", restored(options(own, _RAW)))
    if not raw:
        return None
    entries = raw["tool_calls"] + raw["invalid_tool_calls"]
    known = {entry["id"] for entry in entries}
    made = (held.tool_call_id for held in message.content if isinstance(held, Call))
    new = (call_id for call_id in made if call_id not in known)
    for entry in entries:
        entry["id"] = next(new, "") if entry["id"] is None else entry["id"]
    answer: AIMessage = _made(_kind(own, "ai"), **raw, **_fields(own))
    is_same = said(Read(role="assistant", parts=_answer_parts(answer))) == gists((message,))
    return answer if is_same else None


def _result(result: Result, original: BaseMessage | None) -> BaseMessage:
    own = options(options(result.provider_options, KEY), RESULT)
    fields = _fields(own) if own else {"name": result.tool_name or None}
    if result.output.type == "error-text":
        fields["status"] = "error"
    if isinstance(original, ToolMessage) and original.artifact is not None:
        fields["artifact"] = original.artifact
    made = partial(_made, _kind(own, "tool"), tool_call_id=result.tool_call_id, **fields)
    text = result.output.value
    if _RAW in own:
        whole = made(content=restored(own[_RAW], text))
        answer = _answer(whole, {})
        if (answer.output, len(answer.files)) == (text, len(result.attachments)):
            return whole
    files = [write_block(held) for held in result.attachments]
    words = [{"type": "text", "text": text}] if text else []
    return made(content=[*words, *files] if files else text)


def _content(blocks: Sequence[Any], own: Json) -> Any:
    is_text = not own.get(_LIST) and all(map(is_plain, blocks))
    return plain_text(blocks) if is_text else list(blocks)
