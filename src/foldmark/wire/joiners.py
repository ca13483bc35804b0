"""Join the chunks of a streamed reply into the response of its API without streaming.

All joiners share one accumulator of JSON pieces. The API format is recognized in `streams`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from foldmark.errors import BadInput
from foldmark.model.values import Json, parse_json

from .codec import (
    any_case,
    arguments_object,
    json_type,
    object_at,
    objects,
    positive_int,
    subobject,
    text_at,
    without,
)
from .gemini import is_prompt_refused
from .openai_chat import REASONING_FIELDS

# --- pieces of JSON ------------------------------------------------------------------------


class _Text:
    """A text in pieces, perhaps thousands of them."""

    def __init__(self, first: object) -> None:
        self.pieces = [first] if isinstance(first, str) else []


def _merge(target: Json, update: Json, text_fields: Collection[str]) -> None:
    """Merge an update into the target; strings in text fields are appended."""
    for name, value in update.items():
        old = target.get(name)
        if isinstance(value, str) and name in text_fields:
            if not isinstance(old, _Text):
                old = target[name] = _Text(old)
            old.pieces.append(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                old = target[name] = {}
            _merge(cast("Json", old), cast("Json", value), text_fields)
        elif isinstance(value, list):
            if not isinstance(old, list):
                old = target[name] = []
            _extend(cast("list[Any]", old), cast("list[Any]", value), text_fields)
        elif name not in target or value not in (None, ""):
            target[name] = value


def _extend(target: list[Any], items: list[Any], text_fields: Collection[str]) -> None:
    """Add items to a list; one with the index and type of the last item continues it."""
    for item in items:
        if not isinstance(item, dict):
            target.append(item)
            continue
        fields = cast("Json", item)
        last = cast("Json", target[-1] if target and isinstance(target[-1], dict) else {})
        if "index" not in fields or any(last.get(n) != fields.get(n) for n in ("index", "type")):
            last = {}
            target.append(last)
        _merge(last, fields, text_fields)


def _join_texts(value: Any) -> Any:
    """The value with its text pieces joined."""
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, dict):
        return {name: _join_texts(item) for name, item in cast("Json", value).items()}
    if isinstance(value, list):
        return [_join_texts(item) for item in cast("list[Any]", value)]
    return value


class Joiner(ABC):
    """Joins the chunks of one reply in one API format."""

    def __init__(self) -> None:
        """Start without chunks."""
        self._head: Json = {}  # the response without its content

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether the reply is finished; else the stream broke off."""

    @abstractmethod
    def add(self, chunk: Json) -> None:
        """Add a chunk; one that is not of the API is ignored."""

    @abstractmethod
    def response(self) -> Json | None:
        """The response so far, without unfinished calls; None if there is none."""


# --- Anthropic: events of a message and its blocks -----------------------------------------

EVENTS = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_BLOCK_TEXTS = frozenset({"text", "thinking", "signature", "partial_json", "content"})


class AnthropicJoiner(Joiner):
    """Joins events, also those of recorded streams."""

    def __init__(self) -> None:
        """Start without chunks."""
        super().__init__()
        self._blocks: dict[int, Json] = {}
        self._finished: set[int] = set()  # indexes of complete blocks

    @property
    def is_complete(self) -> bool:
        """Whether the stop reason has arrived."""
        return self._head.get("stop_reason") is not None

    def add(self, chunk: Json) -> None:
        """Add an event."""
        kind, index = chunk.get("type"), chunk.get("index", 0)
        if kind not in EVENTS:
            return
        if not isinstance(index, int):
            raise BadInput(f"'index' of an event is {json_type(index)}, not a number")
        if kind == "content_block_delta":
            if index in self._blocks:
                delta = without(object_at(chunk, "delta"), "type")
                if "citation" in delta:
                    delta = {"citations": [delta.pop("citation")]}
                _merge(self._blocks[index], delta, _BLOCK_TEXTS)
        elif kind == "content_block_start":
            self._blocks[index] = dict(subobject(chunk, "content_block"))
        elif kind == "content_block_stop":
            self._finished.add(index)
        elif kind == "message_start":
            self._head = dict(subobject(chunk, "message"))
        elif kind == "message_delta":
            self._head |= object_at(chunk, "delta")
            usage = subobject(chunk, "usage").items()
            counts = {name: value for name, value in usage if value is not None}
            self._head["usage"] = {**subobject(self._head, "usage"), **counts}

    def response(self) -> Json | None:
        """The response so far; unless complete without usage, which precedes the output."""
        response = self.partial_response()
        if self.is_complete or response is None:
            return response
        blocks = [
            block
            for index, block in zip(sorted(self._blocks), response["content"], strict=True)
            if index in self._finished or block.get("type") not in _CALLS
        ]
        return {**without(response, "usage"), "content": blocks}

    def partial_response(self) -> Json | None:
        """The response so far, including unfinished calls."""
        if not self._head:
            return None
        blocks = [_block(_join_texts(self._blocks[index])) for index in sorted(self._blocks)]
        return {**self._head, "content": blocks}


def _block(block: Json) -> Json:
    """The block with its input parsed; input that broke off is kept as a string."""
    text = block.pop("partial_json", None)
    if not isinstance(text, str) or not text:
        return block
    with suppress(BadInput):
        value = parse_json(text.encode(errors="surrogatepass"))
        if isinstance(value, dict):
            return {**block, "input": value}
    return {**block, "input": {"arguments": text}}


# --- OpenAI's chat: deltas of each choice --------------------------------------------------

# Fields that arrive in pieces; others arrive complete, some repeatedly.
_CHAT_TEXTS = frozenset(
    {
        *("content", "refusal", "arguments", "input", *REASONING_FIELDS),
        *("text", "summary", "data", "transcript"),
    }
)
_CHUNK_FIELDS = ("choices", "object", "obfuscation")


class ChatJoiner(Joiner):
    """Joins chunks: texts in pieces, calls by index, usage in a last chunk without choices.

    Servers differ: some omit the index of a call, give several calls the same index, or repeat
    roles, ids and names in every chunk.
    """

    def __init__(self) -> None:
        """Start without chunks."""
        super().__init__()
        self._choices: dict[int, ChoiceJoiner] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all choices are finished."""
        return bool(self._choices) and all(joiner.is_complete for joiner in self._choices.values())

    def add(self, chunk: Json) -> None:
        """Add a chunk; one without the field `choices` is not of the API."""
        if "choices" not in chunk:
            return
        for name, value in without(chunk, *_CHUNK_FIELDS).items():
            if value is not None or name not in self._head:
                self._head[name] = value
        for choice in objects(chunk["choices"] or [], "'choices'"):
            number = positive_int(choice.get("index"))
            self._choices.setdefault(number, ChoiceJoiner()).add(choice)

    def response(self) -> Json | None:
        """The completion so far."""
        if not self._choices:
            return None
        choices = [
            {"index": number, **self._choices[number].build()} for number in sorted(self._choices)
        ]
        return {**self._head, "object": "chat.completion", "choices": choices}


class ChoiceJoiner:
    """Joins the deltas of one choice."""

    def __init__(self) -> None:
        """Start without pieces."""
        self._fields: Json = {"finish_reason": None}
        self._message: Json = {"role": "assistant", "content": None}
        self._calls: list[Json] = []
        self._positions: dict[int, int] = {}  # of the newest call with each index

    @property
    def is_complete(self) -> bool:
        """Whether the choice is finished."""
        return self._fields["finish_reason"] is not None

    def add(self, choice: Json) -> None:
        """Add a delta."""
        _merge(self._fields, without(choice, "index", "delta"), _CHAT_TEXTS)
        delta = subobject(choice, "delta")
        _merge(self._message, without(delta, "tool_calls"), _CHAT_TEXTS)
        for call in objects(delta.get("tool_calls") or [], "'tool_calls'"):
            self._add_call(call)

    def _add_call(self, piece: Json) -> None:
        index, name = piece.get("index"), piece.get("id")
        if isinstance(index, int):
            position = self._positions.get(index, -1)
        else:
            # Without an index, a piece with a name starts a call and others continue it.
            is_named = bool(name) or bool(subobject(piece, "function").get("name"))
            position = -1 if is_named else len(self._calls) - 1
        if position >= 0 and name and self._calls[position].get("id") not in (None, "", name):
            position = -1
        if position < 0:
            self._calls.append({})
            position = len(self._calls) - 1
        if isinstance(index, int):
            self._positions[index] = position
        _merge(self._calls[position], without(piece, "index"), _CHAT_TEXTS)

    def build(self) -> Json:
        """The choice so far; unless finished without incomplete calls."""
        message = _join_texts(self._message)
        calls: list[Json] = _join_texts(self._calls)
        calls = [call for call in calls if self.is_complete or _is_complete_call(call)]
        if calls:
            message["tool_calls"] = [_with_arguments(call) for call in calls]
        return {**_join_texts(self._fields), "message": message}


def _is_complete_call(call: Json) -> bool:
    """Whether a call is complete: no prefix of a JSON object is itself valid JSON."""
    function = subobject(call, "function")
    is_named = bool(call.get("id")) and bool(function.get("name"))
    return is_named and arguments_object(function.get("arguments") or "") is not None


def _with_arguments(call: Json) -> Json:
    """A function call as the API writes it; servers may omit empty arguments."""
    if call.get("type") == "custom":
        return call
    function = {"arguments": "", **subobject(call, "function")}
    return {"type": "function", **call, "function": function}


# --- OpenAI's Responses: items, then the whole response ------------------------------------

_LAST = ("response.completed", "response.incomplete")
# Events with a piece of a text: its field and index in the item, its block type and name.
_PIECES = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}


class ResponsesJoiner(Joiner):
    """Joins events: items by their index in the output, texts by their index in the item.

    Each item arrives complete when it is done, and all items again at the end. Some servers leave
    the output of the last event empty: then the finished items are the reply.
    """

    def __init__(self) -> None:
        """Start without chunks."""
        super().__init__()
        self._last = ""
        self._items: dict[int, Json] = {}
        self._finished: set[int] = set()
        self._texts: dict[int, dict[tuple[str, int], Json]] = {}  # blocks by item and index

    @property
    def is_complete(self) -> bool:
        """Whether the last event has arrived."""
        return self._last in _LAST

    def add(self, chunk: Json) -> None:
        """Add an event; one without a piece of the reply is ignored."""
        kind, position = str(chunk.get("type")), chunk.get("output_index")
        if isinstance(chunk.get("response"), dict):
            self._head, self._last = cast("Json", chunk["response"]), kind
        elif not isinstance(position, int):
            pass
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[position] = subobject(chunk, "item")
            if kind.endswith("done"):
                self._finished.add(position)
        elif kind in _PIECES and position in self._items:
            field, index, block, name = _PIECES[kind]
            at, delta = chunk.get(index), chunk.get("delta")
            if isinstance(at, int) and isinstance(delta, str):
                texts = self._texts.setdefault(position, {})
                _merge(texts.setdefault((field, at), {"type": block}), {name: delta}, (name,))

    def response(self) -> Json | None:
        """The response so far."""
        if self.is_complete and self._head.get("output"):
            return self._head
        candidates = (self._partial_item(position) for position in sorted(self._items))
        items = [item for item in candidates if item is not None]
        if not self._head and not items:
            return None
        return {"object": "response", **self._head, "output": items}

    def _partial_item(self, position: int) -> Json | None:
        """The item so far; None if it is unfinished and not a text."""
        item, texts = self._items[position], self._texts.get(position)
        if position in self._finished:
            return item
        if item.get("type") not in ("message", "reasoning") or not texts:
            return None
        fields: dict[str, list[Json]] = {}
        for field, at in sorted(texts):
            block: Json = _join_texts(texts[field, at])
            if block["type"] == "output_text":
                block["annotations"] = []
            fields.setdefault(field, []).append(block)
        # The provider may not store an unfinished item, so it is sent back without an id.
        return {**without(item, "id"), "status": "incomplete", **fields}


# --- Gemini: small responses, whose parts are joined ---------------------------------------

_UNCOPIED_FIELDS = ("candidates", "sdkHttpResponse", "sdk_http_response")
_TEXT_FIELDS = frozenset({"text", "thought"})
_CALL = ("functionCall", "function_call")
_PARTIAL_FIELDS = ("partialArgs", "partial_args", "willContinue", "will_continue")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,4})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "string_value", "number_value", "bool_value")


class GeminiJoiner(Joiner):
    """Joins chunks, each of which repeats the usage."""

    def __init__(self) -> None:
        """Start without chunks."""
        super().__init__()
        self._candidates: dict[int, CandidateJoiner] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all candidates are finished, or the prompt was refused."""
        joiners = self._candidates.values()
        are_complete = bool(joiners) and all(joiner.is_complete for joiner in joiners)
        return are_complete or is_prompt_refused(self._head)

    def add(self, chunk: Json) -> None:
        """Add a chunk."""
        self._head |= _non_null(without(chunk, *_UNCOPIED_FIELDS))
        for candidate in objects(chunk.get("candidates") or [], "'candidates'"):
            number = positive_int(candidate.get("index"))
            self._candidates.setdefault(number, CandidateJoiner()).add(candidate)

    def response(self) -> Json | None:
        """The response so far."""
        if not self._head and not self._candidates:
            return None
        candidates = [self._candidates[number].build() for number in sorted(self._candidates)]
        return {**({"candidates": candidates} if candidates else {}), **self._head}


class CandidateJoiner:
    """Joins the pieces of one candidate.

    Pieces of a text arrive as parts; a part with a signature must stay unchanged. Calls arrive
    complete, except on Vertex, where a program may request their arguments in pieces, by paths.
    """

    def __init__(self) -> None:
        """Start without pieces."""
        self._fields: Json = {}
        self._content: Json = {"role": "model"}
        self._parts: list[Json] = []
        self._may_continue = False  # whether the last part is a text without a signature
        self._call: Json | None = None  # a call whose arguments arrive in pieces
        self._args: Json = {}

    @property
    def is_complete(self) -> bool:
        """Whether the candidate is finished."""
        return any_case(self._fields, "finishReason") is not None

    def add(self, candidate: Json) -> None:
        """Add a piece of the candidate."""
        self._fields |= _non_null(without(candidate, "content"))
        content = subobject(candidate, "content")
        self._content |= {n: value for n, value in without(content, "parts").items() if value}
        for part in objects(content.get("parts") or [], "'parts'"):
            self._add_part(_non_null(part))

    def _add_part(self, part: Json) -> None:
        field = next((name for name in _CALL if isinstance(part.get(name), dict)), "")
        call = subobject(part, field)
        if field and (self._call is not None or any(name in call for name in _PARTIAL_FIELDS)):
            self._add_call_piece(part, field, call)
            return
        is_text = set(part) <= _TEXT_FIELDS and "text" in part
        if is_text and not text_at(part, "text"):
            return
        last = self._parts[-1] if self._parts else {}
        is_same = bool(last.get("thought")) == bool(part.get("thought"))
        if not (is_text and self._may_continue and is_same):
            last = Json()
            self._parts.append(last)
        _merge(last, part, ("text",) if is_text else ())
        self._may_continue = is_text

    def _add_call_piece(self, part: Json, field: str, call: Json) -> None:
        """Add a piece of a call, which is complete after a piece that does not continue."""
        self._may_continue = False
        if self._call is None:
            self._call, self._args = part, {}
        pieces: object = call.get("partialArgs") or call.get("partial_args") or []
        for piece in objects(pieces, "'partialArgs'"):
            _set_argument(self._args, piece)
        if call.get("willContinue") or call.get("will_continue"):
            return
        first = subobject(self._call, field)
        args = {**subobject(first, "args"), **self._args}
        complete = {**without(first, *_PARTIAL_FIELDS), "args": args}
        self._parts.append({**self._call, field: complete})
        self._call = None

    def build(self) -> Json:
        """The candidate so far."""
        return {"content": {**self._content, "parts": _join_texts(self._parts)}, **self._fields}


def _non_null(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _set_argument(args: Json, piece: Json) -> None:
    """Set the argument at a piece's path; a text is appended to the text that is there."""
    path = str(piece.get("jsonPath") or piece.get("json_path") or "")
    steps: list[int | str] = [int(at) if at else a or b or c for a, at, b, c in _STEP.findall(path)]
    value = next((piece[name] for name in _VALUES if piece.get(name) is not None), None)
    container: Any = args
    if steps and isinstance(steps[0], int):
        return  # arguments are an object
    for step, after in pairwise([*steps, None]):
        current = _value_at(container, step)
        if after is None:
            is_text = isinstance(current, str) and isinstance(value, str)
            container[step] = f"{current}{value}" if is_text else value
            return
        if not isinstance(current, list if isinstance(after, int) else dict):
            container[step] = [] if isinstance(after, int) else {}
        container = container[step]


def _value_at(container: Any, step: int | str | None) -> Any:
    """The value at a step of a path; a list is extended to have that index."""
    if isinstance(container, dict):
        return cast("Json", container).get(str(step))
    items = cast("list[Any]", container)
    items += [None] * (int(step or 0) + 1 - len(items))
    return items[int(step or 0)]
