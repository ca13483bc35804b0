"""OpenAI's Responses API.

Facts of this wire: a list is made of items, of which several are one answer of the model; results
are items of their own after their calls; arguments are JSON inside a text; thinking goes back only
encrypted and before the item it led to; the system prompt stands beside the items.
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
    RESULT,
    Names,
    Read,
    Reply,
    UsageFields,
    Wire,
    arguments_input,
    arguments_object,
    compact,
    measured,
    objects,
    opaque,
    options,
    without,
)
from .exactness import as_it_came
from .openai_items import (
    ABOVE,
    CUSTOM,
    FIELD,
    INSIDE,
    ITEM,
    KEY,
    KIND,
    REST,
    ROLE,
    ROLES,
    TEXT_BLOCKS,
    answer_blocks,
    is_answer,
    read_item,
    usual_result,
    whole,
    written_file,
)
from .openai_request import Request

_BLOCKS = TEXT_BLOCKS - {"text"} | {"input_image", "input_file", "input_audio"}
# Items beside messages, calls and their results by which a list is known to be of this wire.
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
    measured,
    UsageFields(
        given="input_tokens",
        made="output_tokens",
        read="input_tokens_details.cached_tokens",
        written="input_tokens_details.cache_write_tokens",
        thought="output_tokens_details.reasoning_tokens",
        total="total_tokens",
    ),
)
# How OpenCode names fields of an item in the metadata of a part.
_OPENCODE = {"itemId": "id", "reasoningEncryptedContent": "encrypted_content", "phase": "phase"}


class OpenAIResponses(Wire):
    """The codec."""

    name = "openai-responses"
    key = KEY
    provider = "openai"

    # --- recognising ---

    def recognises(self, messages: Sequence[Json]) -> bool:
        """Whether this list can be of this wire; bare messages alone do not tell."""
        is_told = any(isinstance(item.get("type"), str) for item in messages)
        return is_told and all(_can_be(item) for item in messages)

    def recognises_reply(self, response: Json) -> bool:
        """Whether this is a response of this wire."""
        return response.get("object") == "response" and isinstance(response.get("output"), list)

    # --- reading ---

    def read(self, message: Json) -> Read:
        """One item."""
        return read_item(message)

    def read_reply(self, response: Json) -> Reply:
        """A whole response."""
        items = objects(response.get("output"), "'output'")
        parts: list[AnyPart] = []
        answered = {item["call_id"] for item in items if is_answer(item)}
        for item in items:
            read = read_item(item)
            call_id = item.get("call_id")
            if isinstance(call_id, str) and call_id in answered:
                parts.append(opaque(KEY, item))  # the provider ran this itself
            else:
                parts += read.parts if read.role == "assistant" else (whole(item),)
        return Reply(
            read=Read(role="assistant", parts=tuple(parts)),
            tokens=usage_tokens(response.get("usage")),
            finish=_finish(response, parts),
            model=str(response.get("model") or ""),
            rest=without(response, "output"),
        )

    # --- writing ---

    def write(self, shown: Sequence[PromptMessage], *, as_is: bool) -> list[Json]:
        """Shown messages on this wire."""
        items = _Items(None if as_is else Names(longest=64))
        request = Request()
        written: list[Json] = []
        for place, message in enumerate(shown):
            after = shown[place + 1] if place + 1 < len(shown) else None
            found = items.of(message, after.content if isinstance(after, ToolMessage) else ())
            written += found if as_is else request.taken(found, message.role)
        return written

    def write_reply(self, shown: Sequence[PromptMessage], rest: Json) -> Json:
        """A response again."""
        return {**rest, "output": self.write(shown[:1], as_is=True)}


def _can_be(item: Json) -> bool:
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
            reason = options(response, "incomplete_details").get("reason")
            return _INCOMPLETE.get(reason, "other") if isinstance(reason, str) else "other"
        case _:
            return "other"


# --- writing -------------------------------------------------------------------------------


class _Items:
    """Writes the items of messages, one after the other; with names, for a provider to take."""

    def __init__(self, names: Names | None) -> None:
        self._names = names
        self._results: dict[str, Result] = {}  # of the last calls
        self._written: list[Json] = []
        self._open: Json | None = None  # the message that blocks go into
        self._begun: list[tuple[int, Json]] = []  # places of messages, and what is kept of them

    def of(self, message: PromptMessage, results: Sequence[Result]) -> list[Json]:
        """The items of a message; `results` are those that come after it."""
        if isinstance(message, ToolMessage):
            return [self._result(result) for result in message.content]
        self._results = {result.tool_call_id: result for result in results}
        self._written, self._open, self._begun = [], None, []
        match message:
            case UserMessage():
                self._user(message)
            case AssistantMessage():
                self._assistant(message)
        if self._names is None:
            for place, own in self._begun:
                self._written[place] = as_it_came(self._written[place], own)
        return self._written

    def _user(self, message: UserMessage) -> None:
        own = options(message.wire, KEY)
        usual = own.get(ROLE)
        for block in message.content:
            marks = options(block.provider_options, KEY)
            role = marks.get(ROLE, usual)
            role = role if role in ABOVE else "user"
            if _is_item(block, marks):
                self._add(dict(marks[BLOCK]))
                continue
            if self._open is None or self._open["role"] != role:
                self._begin(role, own)
            self._say(block, marks, "input_text")
        if not message.content:
            self._begin(usual if usual in ABOVE else "user", own)

    def _assistant(self, message: AssistantMessage) -> None:
        for block in message.content:
            own = options(block.provider_options, KEY)
            match block:
                case Reasoning():
                    self._think(block, own)
                case Call():
                    self._add(self._call(block, own))
                case Text() if _is_item(block, own):
                    self._add(dict(own[BLOCK]))
                case _:
                    fields = _fields(own)
                    if self._open is None or ITEM in own or _other_id(self._open, fields):
                        self._begin("assistant", {**own, ITEM: fields})
                    self._say(block, own, "output_text")

    def _add(self, item: Json) -> None:
        self._written.append(item)
        self._open = None

    def _begin(self, role: str, own: Json) -> None:
        item: Json = {"type": "message", "role": role, "content": [], **options(own, ITEM)}
        self._begun.append((len(self._written), own))
        self._add(item)
        self._open = item

    def _say(self, block: Text | Media, own: Json, usual: str) -> None:
        if self._open is not None:
            self._open["content"].append(_block(block, own, usual))

    def _think(self, block: Reasoning, own: Json) -> None:
        item = {"type": "reasoning", "summary": _summary(block.text), **_fields(own)}
        last = self._written[-1] if self._written else {}
        is_same = last.get("type") == "reasoning" and last.get("id") == item.get("id")
        if is_same and isinstance(own.get("itemId"), str):
            # OpenCode has a part for each text of a summary.
            last["summary"] = [*last["summary"], *item["summary"]]
            last.update(without(item, "type", "summary"))
        else:
            self._add(item)

    def _call(self, call: Call, own: Json) -> Json:
        kind = own.get(KIND)
        call_id, name = call.tool_call_id, call.tool_name
        if self._names is not None:
            call_id, name = self._names.fit(call_id), self._names.fit(name)
        if kind == CUSTOM:
            item: Json = {"type": kind, "call_id": call_id, "name": name}
            item["input"] = _text_input(call)
        elif isinstance(kind, str) and self._keeps_kind(call.tool_call_id, kind):
            item = {"type": kind, "call_id": call_id}
            if own.get(FIELD):
                item[own[FIELD]] = call.input
        else:
            arguments = _arguments(call, own, as_is=self._names is None)
            fields = {} if isinstance(kind, str) else _fields(own)
            return {
                "type": "function_call",
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
                **fields,
            }
        return item | _fields(own)

    def _keeps_kind(self, call_id: str, kind: str) -> bool:
        """Whether a call of OpenAI's own tools and its result are written as they came.

        They cannot be made to fit: where a result is not what these tools give, or has changed,
        the call becomes one of a function.
        """
        if self._names is None:
            return True
        result = self._results.get(call_id)
        if result is None or kind == CUSTOM:
            return False
        usual = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
        return _result_as_it_came(result)["type"] == usual

    def _result(self, result: Result) -> Json:
        item = _result_as_it_came(result)
        if self._names is None:
            return item
        call_id = self._names.fit(result.tool_call_id)
        kind = options(result.provider_options, KEY).get(KIND)
        if isinstance(kind, str) and self._keeps_kind(result.tool_call_id, kind):
            return {**item, "call_id": call_id}
        blocks = answer_blocks(item.get("output"))
        output = {} if blocks is None else {"output": blocks}
        return {**usual_result(result), "call_id": call_id, **output}


def _result_as_it_came(result: Result) -> Json:
    kept = options(options(result.provider_options, KEY), RESULT)
    return as_it_came(usual_result(result), kept, "call_id")


def _is_item(block: Text | Media, own: Json) -> bool:
    """Whether a text stands for a whole item."""
    return isinstance(block, Text) and isinstance(own.get(BLOCK), dict) and INSIDE not in own


def _fields(own: Json) -> Json:
    """The fields of an item, as we keep them or as OpenCode does."""
    if ITEM in own:
        return options(own, ITEM)
    named = {ours: own.get(theirs) for theirs, ours in _OPENCODE.items()}
    return {name: held for name, held in named.items() if isinstance(held, str)}


def _other_id(item: Json, fields: Json) -> bool:
    return "id" in fields and item.get("id") != fields["id"]


def _block(block: Text | Media, own: Json, usual: str) -> Json:
    """A block of a message."""
    if isinstance(block, Media):
        return written_file(block)
    if isinstance(own.get(BLOCK), dict):
        return dict(own[BLOCK])
    kind = own.get(KIND, usual)
    name = "refusal" if kind == "refusal" else "text"
    return {"type": kind, name: block.text, **options(own, REST)}


def _summary(text: str) -> list[Json]:
    return [{"type": "summary_text", "text": text}] if text else []


def _arguments(call: Call, own: Json, *, as_is: bool) -> str:
    raw = own.get(ARGUMENTS)
    if not isinstance(raw, str) or arguments_input(raw) != call.input:
        return compact(call.input)
    is_taken = as_is or arguments_object(raw) is not None
    return raw if is_taken else compact(call.input)


def _text_input(call: Call) -> str:
    """The input of a custom tool."""
    match call.input:
        case {"input": str(text), **rest} if not rest:
            return text
        case _:
            return compact(call.input)
