"""Shown messages as messages of pydantic-ai: just as they came, where they came from there.

What the view altered (a hidden output, a summary) is written as words. What cannot be loaded any
more, as another version of pydantic-ai wrote it, is written as words, too.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, cast

from pydantic import ValidationError
from pydantic_ai.messages import ModelMessage

from foldmark.model.messages import BLOCK
from foldmark.model.prompt_messages import (
    AssistantMessage,
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
from foldmark.session.history_mirror import VOLATILE
from foldmark.wire.codec import ARGUMENTS, RAW, RESULT, Read, compact, options, url_parts

from .reading import (
    AT,
    FIELDS,
    FORM,
    ITEM,
    KEY,
    MESSAGE,
    PART,
    PROMPTS,
    laid_out,
    loaded,
    read_message,
)

Block = Text | Media | Reasoning | Call
_MOST_RECENT = 16


class PydanticDialect:
    """How pydantic-ai writes messages. Its system prompts are led by who asks, not by this."""

    key = KEY
    unique = True  # each message has its time

    def __init__(self) -> None:
        """Nothing was read."""
        self._recent: dict[int, tuple[ModelMessage, Read]] = {}

    def read(self, message: ModelMessage, /) -> Read:
        """What a message says; one that is taken is soon asked for again, to be shown."""
        held = self._recent.pop(id(message), None)
        if held is not None and held[0] is message:
            return held[1]
        if len(self._recent) >= _MOST_RECENT:
            self._recent.clear()
        found = read_message(message)
        self._recent[id(message)] = message, found
        return found

    def write(
        self, shown: Sequence[PromptMessage], _original: ModelMessage | None, /
    ) -> list[ModelMessage]:
        """Messages that say this."""
        return written(shown)

    def prompt(self, _message: ModelMessage, /) -> ModelMessage | None:
        """None: a system prompt is a part of a message here."""
        return None


def written(shown: Sequence[PromptMessage]) -> list[ModelMessage]:
    """Messages that say this; what the user and tools say one after the other is one."""
    messages: list[ModelMessage] = []
    asked: list[UserMessage | ToolMessage] = []
    for message in shown:
        if isinstance(message, AssistantMessage):
            messages += _request(asked)
            asked = []
            messages.append(_response(message))
        else:
            asked.append(message)
    return messages + _request(asked)


def _loaded(fields: Json, parts: Sequence[Json], plain: Sequence[Json]) -> ModelMessage:
    try:
        return loaded({**fields, "parts": list(parts)})
    except (ValidationError, ValueError):
        return loaded({"kind": fields["kind"], "parts": list(plain)})


def _message_fields(own: Json) -> Json:
    """The fields of a message, and those that may change."""
    return {**options(own, MESSAGE), **options(options(own, VOLATILE), MESSAGE)}


def _own(held: object) -> Json:
    return options(held, KEY)


# --- requests ------------------------------------------------------------------------------


class _Placed(NamedTuple):
    """A part of a request: its place, itself, and what can be loaded in any case."""

    at: int
    part: Json
    plain: Json


def _request(asked: Sequence[UserMessage | ToolMessage]) -> list[ModelMessage]:
    if not asked:
        return []
    told: Json = {}
    placed: list[_Placed] = []
    for message in asked:
        if isinstance(message, ToolMessage):
            for result in message.content:
                own = options(_own(result.provider_options), RESULT)
                told = own if MESSAGE in own else told
                placed.append(_returned(result, own, _last(placed)))
        else:
            told = _own(message.wire) or told
            placed += _prompts(message, _last(placed))
    opening = cast("list[Json]", options(told, VOLATILE).get(PROMPTS) or [])
    parts = [*opening, *(held.part for held in sorted(placed, key=lambda held: held.at))]
    fields = {**_message_fields(told), "kind": "request"}
    return [_loaded(fields, parts, [held.plain for held in placed])]


def _last(placed: Sequence[_Placed]) -> int:
    return placed[-1].at if placed else 0


def _prompts(message: UserMessage, at: int) -> list[_Placed]:
    """What the user said; the items of one prompt are one part again."""
    placed: list[_Placed] = []
    before = 0  # places of messages that the view has made one with this
    for block in message.content:
        own = _own(block.provider_options)
        if placed and own.get(AT, at) + before < at:  # here the next of them begins
            before = at + 1
        at = own[AT] + before if AT in own else at
        words = block.text if isinstance(block, Text) else ""
        plain = {"part_kind": "user-prompt", "content": words}
        if ITEM in own:
            item = _item(block, own)
            if placed and placed[-1].at == at and isinstance(placed[-1].part["content"], list):
                cast("list[object]", placed[-1].part["content"]).append(item)
            else:
                part = {"part_kind": "user-prompt", **options(own, PART), "content": [item]}
                placed.append(_Placed(at, part, plain))
        else:
            placed.append(_Placed(at, _words(block, own), plain))
    return placed


def _words(block: Text | Media, own: Json) -> Json:
    if isinstance(block, Media):
        return {"part_kind": "user-prompt", "content": [_file(block, own)]}
    whole = options(own, BLOCK)
    if whole and whole["part_kind"] != "tool-return":  # a result without its call is refused
        return whole
    return {"part_kind": "user-prompt", "content": block.text, **options(own, PART)}


def _item(block: Text | Media, own: Json) -> str | Json:
    if BLOCK in own:
        held = options(own, BLOCK)
        return held["text"] if list(held) == ["text"] else held
    if isinstance(block, Media):
        return _file(block, own)
    return {**options(own, FIELDS), "content": block.text} if FIELDS in own else block.text


def _file(block: Media, own: Json) -> Json:
    """A file as it came; one of ours is written as what its address says."""
    _, inline = url_parts(block.data)
    told = options(own, FIELDS)
    if inline is not None:
        told = told or {"kind": "binary", "media_type": block.media_type}
        return {**told, "data": inline.replace("+", "-").replace("/", "_")}
    if told:
        return told
    kind = "image-url" if block.media_type.startswith("image/") else "document-url"
    return {"kind": kind, "url": block.data, "media_type": block.media_type}


def _returned(result: Result, own: Json, at: int) -> _Placed:
    value = result.output.value
    plain: Json = {
        "part_kind": "tool-return",
        "tool_name": result.tool_name,
        "tool_call_id": result.tool_call_id,
        "content": value,
    }
    if result.output.type.startswith("error"):
        plain["outcome"] = "failed" if own else "interrupted"
    part = {**plain, **options(own, PART), "content": _content(result, own)}
    return _Placed(own.get(AT, at), part, plain)


def _content(result: Result, own: Json) -> object:
    """The content of a result as it was, where the view shows it so; else its words."""
    value = result.output.value
    if RAW in own:
        text, files = laid_out(own[RAW])
        if (text, len(files)) == (value, len(result.attachments)):
            return own[RAW]
    if own.get(FORM) == "json":
        with suppress(ValueError):
            held: object = json.loads(value)
            return held if compact(held) == value else value
    shown = [_file(held, _own(held.provider_options)) for held in result.attachments]
    return [value, *shown] if shown else value


# --- responses -----------------------------------------------------------------------------


def _response(message: AssistantMessage) -> ModelMessage:
    parts = [_said(block) for block in message.content]
    plain = [
        {"part_kind": "text", "content": block.text}
        if isinstance(block, Text | Reasoning)
        else part
        for block, part in zip(message.content, parts, strict=True)
    ]
    return _loaded({**_message_fields(_own(message.wire)), "kind": "response"}, parts, plain)


def _said(block: Block) -> Json:
    own = _own(block.provider_options)
    told = options(own, PART)
    match block:
        case Text():
            words = {"part_kind": "text", "content": block.text, **told}
            return options(own, BLOCK) or words
        case Reasoning():
            return {"part_kind": "thinking", "content": block.text, **told}
        case Media():
            return {"part_kind": "file", **told, "content": _file(block, own)}
        case Call():
            return {
                "part_kind": "tool-call",
                **told,
                "tool_name": block.tool_name,
                "tool_call_id": block.tool_call_id,
                "args": _arguments(block, own),
            }


def _arguments(block: Call, own: Json) -> object:
    if ARGUMENTS in own:
        return own[ARGUMENTS]
    return compact(block.input) if own.get(FORM) == "text" else block.input
