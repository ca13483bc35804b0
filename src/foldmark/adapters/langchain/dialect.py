"""LangChain's messages, read into ours and written back: every kind, with every field.

What we have no word for is kept beside the message under our key, by the names of LangChain's own
fields. An artifact that is no JSON is kept by whoever has the message itself, and not in a store.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from msgspec.structs import replace

from foldmark.model.messages import BLOCK, AnyPart, Cache, FilePart, TextPart, Tokens
from foldmark.model.prompt_messages import (
    AssistantMessage,
    Call,
    Media,
    PromptMessage,
    Reasoning,
    Result,
    Text,
    UserMessage,
)
from foldmark.model.prompt_messages import ToolMessage as ToolResults
from foldmark.model.values import Json
from foldmark.wire.codec import (
    RESULT,
    Answer,
    Pieces,
    Read,
    Role,
    as_number,
    options,
    outlined,
    texts_of,
)

from .blocks import KEY, is_plain, plain_text, read_block, read_file, write_block
from .calls import CallReader, CallWriter
from .values import is_json, restored, stored

_KINDS: tuple[type[BaseMessage], ...] = (
    HumanMessage,
    AIMessage,
    SystemMessage,
    ToolMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessageChunk,
    AIMessageChunk,
    SystemMessageChunk,
    ToolMessageChunk,
    ChatMessageChunk,
    FunctionMessageChunk,
)
_CLASSES: dict[str, type[BaseMessage]] = {
    str(kind.model_fields["type"].default): kind for kind in _KINDS
}
_NAME = "langchain-name"  # beside our key in a part: who has said it
_TYPE, _LIST, _OUTLINE, _FIELDS = "type", "list", "outline", "fields"
_BARE, _JSON = "bare", "json"  # pieces of an output: a text without a block, a block as its JSON
_TOLD_ELSEWHERE = frozenset(
    {"content", "type", "tool_calls", "invalid_tool_calls", "tool_call_id", "artifact"}
)
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
        role = _role(message)
        calls = CallReader(message) if isinstance(message, AIMessage) else None
        parts = _parts(message.content, calls)
        if isinstance(message, HumanMessage) and message.name:
            parts = [_by(message.name, part) for part in parts]
        if calls is not None:
            parts += calls.rest()
        tokens = _tokens(message) if isinstance(message, AIMessage) else None
        return Read(role=role, parts=tuple(parts), rest=rest, tokens=tokens)

    def write(
        self, shown: Sequence[PromptMessage], original: BaseMessage | None, /
    ) -> list[BaseMessage]:
        """Messages that say this."""
        written: list[BaseMessage] = []
        for message in shown:
            match message:
                case ToolResults():
                    written += [self._result(held, original) for held in message.content]
                case AssistantMessage():
                    written.append(self._assistant(message))
                case UserMessage():
                    written += self._user(message)
        return written

    def prompt(self, message: BaseMessage, /) -> BaseMessage | None:
        """The message, where it is a system prompt."""
        return message if _role(message) == "system" else None

    def _user(self, message: UserMessage) -> list[BaseMessage]:
        own = options(message.wire, KEY)
        if own.get(_TYPE) in _TOOL_KINDS:
            return [_orphan(message)]
        if not own:  # a view has joined what several may have said
            return [
                HumanMessage(_content([*map(_joined, said)], own), name=name)
                for name, said in groupby(message.content, _name)
            ]
        blocks = [write_block(held) for held in message.content]
        return [_class(own, HumanMessage)(content=_content(blocks, own), **_fields(own))]

    def _assistant(self, message: AssistantMessage) -> BaseMessage:
        own = options(message.wire, KEY)
        calls = CallWriter()
        blocks = [_said(held, calls) for held in message.content]
        kind = _class(own, AIMessage)
        content = _content(blocks, own)
        if not issubclass(kind, AIMessage):  # a ChatMessage, which has no calls
            return kind(content=content, **_fields(own))
        return kind(content=content, **{**_fields(own), **calls.fields()})

    def _result(self, result: Result, original: BaseMessage | None) -> BaseMessage:
        own = options(options(result.provider_options, KEY), RESULT)
        fields = _fields(own) if own else {"name": result.tool_name or None}
        if result.output.type == "error-text":
            fields["status"] = "error"
        if isinstance(original, ToolMessage) and original.artifact is not None:
            fields["artifact"] = original.artifact
        kind = _class(own, ToolMessage)
        return kind(content=_output(result, own), tool_call_id=result.tool_call_id, **fields)


_TOOL_KINDS = frozenset(name for name, kind in _CLASSES.items() if issubclass(kind, ToolMessage))


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
        if artifact is not None and is_json(artifact):
            fields["artifact"] = artifact
    rest: Json = {_TYPE: message.type}
    if isinstance(message.content, list):
        rest[_LIST] = True
    if fields:
        rest[_FIELDS] = fields
    return rest


def _parts(content: object, calls: CallReader | None) -> list[AnyPart]:
    if isinstance(content, str):
        return [TextPart(text=str.__str__(content))] if content else []
    blocks = cast("list[object]", content)
    return [calls.block(block) if calls else read_block(block) for block in blocks]


def _by(name: str, part: AnyPart) -> AnyPart:
    """A part that tells by itself who said it."""
    if not isinstance(part, TextPart | FilePart):
        return part
    return replace(part, metadata={**(part.metadata or {}), _NAME: name})


def _answer(message: ToolMessage, rest: Json) -> Answer:
    content = cast("object", message.content)
    raw: Json = {**rest, "content": stored(content), "tool_call_id": message.tool_call_id}
    pieces = Pieces()
    if isinstance(content, str):
        output = str.__str__(content)
    else:
        for block in cast("list[object]", content):
            _take_piece(pieces, block)
        rest = {**rest, _OUTLINE: pieces.outline}
        output = pieces.text
    return Answer(
        call_id=message.tool_call_id,
        output=output,
        tool=message.name or "",
        is_error=message.status == "error",
        files=tuple(pieces.files),
        rest=rest,
        raw=raw,
    )


def _take_piece(pieces: Pieces, block: object) -> None:
    """A block of an output; one that we do not know is text as well, to be counted and hidden."""
    if isinstance(block, str):
        pieces.add_text(str.__str__(block), {_BARE: True})
        return
    fields = stored(block)
    if not isinstance(fields, dict):
        pieces.add_text(json.dumps(fields), {_JSON: True})
        return
    found = cast("Json", fields)
    text = found.get("text")
    if found.get("type") == "text" and isinstance(text, str):
        more = {name: held for name, held in found.items() if name not in {"type", "text"}}
        pieces.add_text(text, {_FIELDS: more} if more else {})
    elif (file := read_file(found)) is not None:
        pieces.add_file(file, {})
    else:
        pieces.add_text(json.dumps(found, ensure_ascii=False), {_JSON: True})


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


def _orphan(message: UserMessage) -> BaseMessage:
    """A result without a call: words, for a model."""
    texts = [held.text for held in message.content if isinstance(held, Text)]
    return HumanMessage(plain_text(texts))


def _class(own: Json, usual: type[BaseMessage]) -> Any:
    return _CLASSES.get(str(own.get(_TYPE)), usual)


def _fields(own: Json) -> dict[str, Any]:
    """What was kept of a message; a store may come from elsewhere, and hold what is not meant."""
    held = options(own, _FIELDS)
    return {
        name: restored(value)
        for name, value in held.items()
        if name == "artifact" or name not in _TOLD_ELSEWHERE
    }


def _joined(block: Text | Media) -> str | Json | None:
    """A block of a message that was joined; a result without a call is words for a model."""
    raw = options(options(block.provider_options, KEY), BLOCK)
    if isinstance(block, Text) and raw.get(_TYPE) in _TOOL_KINDS:
        return block.text
    return write_block(block)


def _name(block: Text | Media) -> str | None:
    told = cast("Json", block.provider_options or {}).get(_NAME)
    return told if isinstance(told, str) else None


def _said(block: Text | Media | Reasoning | Call, calls: CallWriter) -> str | Json | None:
    return calls.add(block) if isinstance(block, Call) else write_block(block)


def _content(blocks: Sequence[str | Json | None], own: Json) -> Any:
    found = [block for block in blocks if block is not None]
    if not own.get(_LIST) and all(map(is_plain, found)):
        return plain_text(found)
    return found


def _output(result: Result, own: Json) -> Any:
    outline = own.get(_OUTLINE)
    texts = texts_of(result.output.value, outline)
    files = [cast("Json", write_block(held)) for held in result.attachments]
    if texts is not None:
        blocks = outlined(cast("list[Json]", outline), texts, files, "text")
        return [_piece(block) for block in blocks]
    if not files:
        return result.output.value
    words = [{"type": "text", "text": result.output.value}] if result.output.value else []
    return [*words, *files]


def _piece(block: Json) -> Any:
    if block.get("type") != "text":
        return block
    if block.get(_BARE) is True:
        return block["text"]
    if block.get(_JSON) is True:
        with suppress(ValueError):
            return restored(json.loads(block["text"]))
        return block["text"]
    if isinstance(block.get(_FIELDS), dict):
        return {"type": "text", "text": block["text"], **restored(block[_FIELDS])}
    return block
