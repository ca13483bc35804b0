"""OpenAI's Responses API.

A list consists of items, and several items form one reply; tool results are items after their
calls; arguments are JSON in a string; reasoning is accepted only encrypted and before the item it
led to; the system prompt is a separate field of the request.
"""

from collections.abc import Sequence
from functools import partial
from typing import cast

from foldmark.model.messages import BLOCK, AnyPart, finish_of
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

from .codec import (
    ARGUMENTS,
    Codec,
    NameFitter,
    ReadMessage,
    ReadReply,
    UsageFields,
    arguments_input,
    arguments_object,
    compact_json,
    objects,
    opaque_part,
    read_usage,
    result_notes,
    subobject,
    without,
)
from .exactness import restore
from .openai_items import (
    CUSTOM,
    FIELD,
    INSIDE,
    ITEM,
    KEY,
    KIND,
    PROMPT_ROLES,
    REST,
    ROLE,
    ROLES,
    TEXT_BLOCKS,
    canonical_result,
    file_block,
    is_result,
    opaque_item,
    output_blocks,
    read_item,
)
from .openai_request import RequestItems

_BLOCKS = TEXT_BLOCKS - {"text"} | {"input_image", "input_file", "input_audio"}
# Items that only this format has, beside messages, calls and their results.
_KINDS = frozenset(
    {
        "reasoning",
        "tool_search_output",
        "compaction",
        "compaction_trigger",
        "item_reference",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "additional_tools",
        "configuration_update",
        "program",
        "program_output",
    }
)
_INCOMPLETE = {"max_output_tokens": "length", "content_filter": "content-filter"}
usage_tokens = partial(
    read_usage,
    UsageFields(
        input="input_tokens",
        output="output_tokens",
        cache_read="input_tokens_details.cached_tokens",
        cache_write="input_tokens_details.cache_write_tokens",
        reasoning="output_tokens_details.reasoning_tokens",
        total="total_tokens",
    ),
)
# OpenCode's names for fields of an item in the metadata of a part.
_OPENCODE = {"itemId": "id", "reasoningEncryptedContent": "encrypted_content", "phase": "phase"}


class OpenAIResponses(Codec):
    """Codec for OpenAI's Responses API."""

    name = "openai-responses"
    key = KEY
    provider = "openai"

    def recognizes(self, messages: Sequence[Json]) -> bool:
        """Whether a list can have this API format; messages without a type are not enough."""
        has_type = any(isinstance(item.get("type"), str) for item in messages)
        return has_type and all(_is_possible(item) for item in messages)

    def recognizes_reply(self, response: Json) -> bool:
        """Whether a response has this API format."""
        return response.get("object") == "response" and isinstance(response.get("output"), list)

    def read(self, message: Json) -> ReadMessage:
        """Read one item."""
        return read_item(message)

    def read_reply(self, response: Json) -> ReadReply:
        """Read a complete response."""
        items = objects(response.get("output"), "'output'")
        parts: list[AnyPart] = []
        answered_calls = {item["call_id"] for item in items if is_result(item)}
        for item in items:
            message = read_item(item)
            call_id = item.get("call_id")
            if isinstance(call_id, str) and call_id in answered_calls:
                parts.append(opaque_part(KEY, item))  # the provider ran this call itself
            else:
                parts += message.parts if message.role == "assistant" else (opaque_item(item),)
        return ReadReply(
            message=ReadMessage(role="assistant", parts=tuple(parts)),
            tokens=usage_tokens(response.get("usage")),
            finish=_finish(response, parts),
            model=str(response.get("model") or ""),
            rest=without(response, "output"),
        )

    def write(self, messages: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Write prompt messages, unchanged if `as_is`, else as the API accepts them."""
        writer = _ItemWriter(None if as_is else NameFitter(max_length=64))
        request = RequestItems()
        output: list[Json] = []
        for index, message in enumerate(messages):
            after = messages[index + 1] if index + 1 < len(messages) else None
            items = writer.write(message, after.content if isinstance(after, ToolMessage) else ())
            output += items if as_is else request.fit(items, message.role)
        return output

    def write_reply(self, messages: Sequence[PromptMessage], rest: Json) -> Json:
        """Rebuild a response from its content and its other fields."""
        return {**rest, "output": self.write(messages[:1], as_is=True)}


def _is_possible(item: Json) -> bool:
    kind = item.get("type")
    if isinstance(kind, str) and kind != "message":
        return kind in _KINDS or kind.endswith(("_call", "_call_output"))
    if kind not in (None, "message") or item.get("role") not in ROLES or "tool_calls" in item:
        return False
    content = item.get("content")
    if not isinstance(content, list):
        return isinstance(content, str)
    return all(
        isinstance(block, dict) and cast("Json", block).get("type") in _BLOCKS
        for block in cast("list[object]", content)
    )


def _finish(response: Json, parts: Sequence[AnyPart]) -> str:
    match response.get("status"):
        case "completed":
            return finish_of(parts)
        case "incomplete":
            reason = subobject(response, "incomplete_details").get("reason")
            return _INCOMPLETE.get(reason, "other") if isinstance(reason, str) else "other"
        case _:
            return "other"


# --- writing -------------------------------------------------------------------------------


class _ItemWriter:
    """Writes the items of consecutive messages: with `names` as the API accepts them."""

    def __init__(self, names: NameFitter | None) -> None:
        self._names = names
        self._results: dict[str, Result] = {}  # results of the last calls by id
        self._items: list[Json] = []
        self._current: Json | None = None  # the message that blocks are added to
        self._notes: list[tuple[int, Json]] = []  # indexes and notes of messages

    def write(self, message: PromptMessage, results: Sequence[Result]) -> list[Json]:
        """The items of a message; `results` are those in the message after it."""
        if isinstance(message, ToolMessage):
            return [self._write_result(result) for result in message.content]
        self._results = {result.tool_call_id: result for result in results}
        self._items, self._current, self._notes = [], None, []
        match message:
            case UserMessage():
                self._write_user(message)
            case AssistantMessage():
                self._write_assistant(message)
        if self._names is None:
            for index, notes in self._notes:
                self._items[index] = restore(self._items[index], notes)
        return self._items

    def _write_user(self, message: UserMessage) -> None:
        notes = subobject(message.wire, KEY)
        default_role = notes.get(ROLE)
        for block in message.content:
            block_notes = subobject(block.provider_options, KEY)
            role = block_notes.get(ROLE, default_role)
            role = role if role in PROMPT_ROLES else "user"
            if _is_item(block, block_notes):
                self._add(dict(block_notes[BLOCK]))
                continue
            if self._current is None or self._current["role"] != role:
                self._start_message(role, notes)
            self._add_block(block, block_notes, "input_text")
        if not message.content:
            self._start_message(default_role if default_role in PROMPT_ROLES else "user", notes)

    def _write_assistant(self, message: AssistantMessage) -> None:
        for block in message.content:
            notes = subobject(block.provider_options, KEY)
            match block:
                case Reasoning():
                    self._add_reasoning(block, notes)
                case Call():
                    self._add(self._write_call(block, notes))
                case Text() if _is_item(block, notes):
                    self._add(dict(notes[BLOCK]))
                case _:
                    fields = _fields(notes)
                    if ITEM in notes or self._is_other_message(fields):
                        self._start_message("assistant", {**notes, ITEM: fields})
                    self._add_block(block, notes, "output_text")

    def _is_other_message(self, fields: Json) -> bool:
        """Whether a block with these item fields does not belong to the current message."""
        return self._current is None or ("id" in fields and self._current.get("id") != fields["id"])

    def _add(self, item: Json) -> None:
        self._items.append(item)
        self._current = None

    def _start_message(self, role: str, notes: Json) -> None:
        item: Json = {"type": "message", "role": role, "content": [], **subobject(notes, ITEM)}
        self._notes.append((len(self._items), notes))
        self._add(item)
        self._current = item

    def _add_block(self, block: Text | Media, notes: Json, text_type: str) -> None:
        if self._current is not None:
            self._current["content"].append(_block(block, notes, text_type))

    def _add_reasoning(self, block: Reasoning, notes: Json) -> None:
        item = {"type": "reasoning", "summary": _summary(block.text), **_fields(notes)}
        last = self._items[-1] if self._items else {}
        is_same = last.get("type") == "reasoning" and last.get("id") == item.get("id")
        if is_same and isinstance(notes.get("itemId"), str):
            # OpenCode has a part for each text of a summary.
            last["summary"] = [*last["summary"], *item["summary"]]
            last.update(without(item, "type", "summary"))
        else:
            self._add(item)

    def _write_call(self, call: Call, notes: Json) -> Json:
        kind = notes.get(KIND)
        call_id, name = call.tool_call_id, call.tool_name
        if self._names is not None:
            call_id, name = self._names.fit(call_id), self._names.fit(name)
        if kind == CUSTOM:
            item: Json = {"type": kind, "call_id": call_id, "name": name}
            item["input"] = _text_input(call)
        elif isinstance(kind, str) and self._keeps_kind(call.tool_call_id, kind):
            item = {"type": kind, "call_id": call_id}
            if notes.get(FIELD):
                item[notes[FIELD]] = call.input
        else:
            arguments = _arguments(call, notes, as_is=self._names is None)
            fields = {} if isinstance(kind, str) else _fields(notes)
            item = {"type": "function_call", "call_id": call_id, "name": name}
            return {**item, "arguments": arguments, **fields}
        return item | _fields(notes)

    def _keeps_kind(self, call_id: str, kind: str) -> bool:
        """Whether a call of an OpenAI tool and its result keep their types.

        If the result has changed or is not of the tool's type, the call is written as a function's.
        """
        if self._names is None:
            return True
        result = self._results.get(call_id)
        if result is None or kind == CUSTOM:
            return False
        result_type = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
        return _restore_result(result)["type"] == result_type

    def _write_result(self, result: Result) -> Json:
        item = _restore_result(result)
        if self._names is None:
            return item
        call_id = self._names.fit(result.tool_call_id)
        kind = subobject(result.provider_options, KEY).get(KIND)
        if isinstance(kind, str) and self._keeps_kind(result.tool_call_id, kind):
            return {**item, "call_id": call_id}
        blocks = output_blocks(item.get("output"))
        output = {} if blocks is None else {"output": blocks}
        return {**canonical_result(result), "call_id": call_id, **output}


def _restore_result(result: Result) -> Json:
    return restore(canonical_result(result), result_notes(result, KEY), "call_id")


def _is_item(block: Text | Media, notes: Json) -> bool:
    """Whether a text block stands for a whole item."""
    return isinstance(block, Text) and isinstance(notes.get(BLOCK), dict) and INSIDE not in notes


def _fields(notes: Json) -> Json:
    """The fields of an item, as stored by us or by OpenCode."""
    if ITEM in notes:
        return subobject(notes, ITEM)
    values = {ours: notes.get(theirs) for theirs, ours in _OPENCODE.items()}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _block(block: Text | Media, notes: Json, text_type: str) -> Json:
    """The block of a message."""
    if isinstance(block, Media):
        return file_block(block)
    if isinstance(notes.get(BLOCK), dict):
        return dict(notes[BLOCK])
    kind = notes.get(KIND, text_type)
    name = "refusal" if kind == "refusal" else "text"
    return {"type": kind, name: block.text, **subobject(notes, REST)}


def _summary(text: str) -> list[Json]:
    return [{"type": "summary_text", "text": text}] if text else []


def _arguments(call: Call, notes: Json, *, as_is: bool) -> str:
    raw = notes.get(ARGUMENTS)
    if not isinstance(raw, str) or arguments_input(raw) != call.input:
        return compact_json(call.input)
    is_accepted = as_is or arguments_object(raw) is not None
    return raw if is_accepted else compact_json(call.input)


def _text_input(call: Call) -> str:
    """The input text of a custom tool."""
    match call.input:
        case {"input": str(text), **rest} if not rest:
            return text
        case _:
            return compact_json(call.input)
