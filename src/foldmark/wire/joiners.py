"""Joins the chunks of a streamed answer to the response that its API would have given at once.

One accumulator of JSON for all, and for each API what its chunks are. Nothing is recognised here.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from foldmark.errors import BadInput
from foldmark.model.values import Json, parsed

from .codec import (
    arguments_object,
    as_number,
    either,
    kind_words,
    object_at,
    objects,
    options,
    text_at,
    without,
)
from .openai_chat import THOUGHTS

# --- pieces of JSON, put together --------------------------------------------------------------


class _Text:
    """A text in pieces, which may be thousands."""

    def __init__(self, begun: object) -> None:
        self.pieces = [begun] if isinstance(begun, str) else []


def _merge(held: Json, more: Json, texts: Collection[str]) -> None:
    """Add what came to what is held: the pieces of some fields make one text."""
    for name, value in more.items():
        old = held.get(name)
        if isinstance(value, str) and name in texts:
            if not isinstance(old, _Text):
                old = held[name] = _Text(old)
            old.pieces.append(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                old = held[name] = {}
            _merge(cast("Json", old), cast("Json", value), texts)
        elif isinstance(value, list):
            if not isinstance(old, list):
                old = held[name] = []
            _extend(cast("list[Any]", old), cast("list[Any]", value), texts)
        elif name not in held or value not in (None, ""):
            held[name] = value


def _extend(held: list[Any], more: list[Any], texts: Collection[str]) -> None:
    """Add the items of a list; those that have an index, and came before, go on."""
    for item in more:
        if not isinstance(item, dict):
            held.append(item)
            continue
        given = cast("Json", item)
        last = cast("Json", held[-1] if held and isinstance(held[-1], dict) else {})
        if "index" not in given or any(last.get(n) != given.get(n) for n in ("index", "type")):
            last = {}
            held.append(last)
        _merge(last, given, texts)


def _whole(value: Any) -> Any:
    """The same with its texts as texts."""
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, dict):
        return {name: _whole(held) for name, held in cast("Json", value).items()}
    if isinstance(value, list):
        return [_whole(held) for held in cast("list[Any]", value)]
    return value


class Joiner(ABC):
    """Joins the chunks of one answer on one wire."""

    def __init__(self) -> None:
        """Begin with none."""
        self._head: Json = {}  # the response without what was said

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the model came to its end; else the stream broke off."""

    @abstractmethod
    def take(self, chunk: Json) -> None:
        """The next chunk; one that the API does not have is passed over."""

    @abstractmethod
    def response(self) -> Json | None:
        """The whole response; before the end what was said, without calls that are not whole."""


# --- Anthropic: events of a message and of its blocks ------------------------------------------

EVENTS = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
_BLOCK_TEXTS = frozenset({"text", "thinking", "signature", "partial_json", "content"})


class AnthropicJoiner(Joiner):
    """Joins events; recorded streams, which importers read, as well."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._blocks: dict[int, Json] = {}
        self._done: set[int] = set()  # blocks that came to their end

    @property
    def ended(self) -> bool:
        """Whether the model told why it stopped."""
        return self._head.get("stop_reason") is not None

    def take(self, chunk: Json) -> None:
        """The next event."""
        kind, index = chunk.get("type"), chunk.get("index", 0)
        if kind not in EVENTS:
            return
        if not isinstance(index, int):
            raise BadInput(f"'index' of an event is {kind_words(index)}, not a number")
        if kind == "content_block_delta":
            if index in self._blocks:
                delta = without(object_at(chunk, "delta"), "type")
                if "citation" in delta:
                    delta = {"citations": [delta.pop("citation")]}
                _merge(self._blocks[index], delta, _BLOCK_TEXTS)
        elif kind == "content_block_start":
            self._blocks[index] = dict(options(chunk, "content_block"))
        elif kind == "content_block_stop":
            self._done.add(index)
        elif kind == "message_start":
            self._head = dict(options(chunk, "message"))
        elif kind == "message_delta":
            self._head |= object_at(chunk, "delta")
            told = options(chunk, "usage").items()
            used = {name: held for name, held in told if held is not None}
            self._head["usage"] = {**options(self._head, "usage"), **used}

    def response(self) -> Json | None:
        """The response; before the end without usage, which was told before anything was said."""
        found = self.as_far()
        if self.ended or found is None:
            return found
        blocks = [
            block
            for index, block in zip(sorted(self._blocks), found["content"], strict=True)
            if index in self._done or block.get("type") not in _CALLS
        ]
        return {**without(found, "usage"), "content": blocks}

    def as_far(self) -> Json | None:
        """The response as far as it came, a call in the middle of its input as well."""
        if not self._head:
            return None
        blocks = [_block(_whole(self._blocks[index])) for index in sorted(self._blocks)]
        return {**self._head, "content": blocks}


def _block(block: Json) -> Json:
    """A block with its input, which comes as JSON in pieces; what broke off is kept as it is."""
    text = block.pop("partial_json", None)
    if not isinstance(text, str) or not text:
        return block
    with suppress(BadInput):
        found = parsed(text.encode(errors="surrogatepass"))
        if isinstance(found, dict):
            return {**block, "input": found}
    return {**block, "input": {"arguments": text}}


# --- OpenAI's chat: deltas of each choice ------------------------------------------------------

# Fields whose pieces make one text; others come whole, some again and again.
_CHAT_TEXTS = frozenset(
    {
        *("content", "refusal", "arguments", "input", *THOUGHTS),
        *("text", "summary", "data", "transcript"),
    }
)
_NOT_OF_A_COMPLETION = ("choices", "object", "obfuscation")


class ChatJoiner(Joiner):
    """Joins chunks: texts in pieces, calls by their index, usage in a last one without choices.

    Servers that speak it differ: some leave the index of a call out, give one index to several, or
    repeat roles, ids and names in every chunk.
    """

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._choices: dict[int, ChoiceJoiner] = {}

    @property
    def ended(self) -> bool:
        """Whether all of the answers came to their end."""
        return bool(self._choices) and all(held.ended for held in self._choices.values())

    def take(self, chunk: Json) -> None:
        """The next chunk; what has no choices, not even none, is not of the API."""
        if "choices" not in chunk:
            return
        for name, held in without(chunk, *_NOT_OF_A_COMPLETION).items():
            if held is not None or name not in self._head:
                self._head[name] = held
        for choice in objects(chunk["choices"] or [], "'choices'"):
            number = as_number(choice.get("index"))
            self._choices.setdefault(number, ChoiceJoiner()).take(choice)

    def response(self) -> Json | None:
        """The completion."""
        if not self._choices:
            return None
        choices = [
            {"index": number, **self._choices[number].whole()} for number in sorted(self._choices)
        ]
        return {**self._head, "object": "chat.completion", "choices": choices}


class ChoiceJoiner:
    """One answer of several."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._fields: Json = {"finish_reason": None}
        self._said: Json = {"role": "assistant", "content": None}
        self._calls: list[Json] = []
        self._places: dict[int, int] = {}  # of the newest call of each index

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return self._fields["finish_reason"] is not None

    def take(self, choice: Json) -> None:
        """The next delta."""
        _merge(self._fields, without(choice, "index", "delta"), _CHAT_TEXTS)
        delta = options(choice, "delta")
        _merge(self._said, without(delta, "tool_calls"), _CHAT_TEXTS)
        for call in objects(delta.get("tool_calls") or [], "'tool_calls'"):
            self._take_call(call)

    def _take_call(self, piece: Json) -> None:
        index, name = piece.get("index"), piece.get("id")
        if isinstance(index, int):
            place = self._places.get(index, -1)
        else:
            # Without an index, what has a name begins a call, and what has none goes on with it.
            is_named = bool(name) or bool(options(piece, "function").get("name"))
            place = -1 if is_named else len(self._calls) - 1
        if place >= 0 and name and self._calls[place].get("id") not in (None, "", name):
            place = -1
        if place < 0:
            self._calls.append({})
            place = len(self._calls) - 1
        if isinstance(index, int):
            self._places[index] = place
        _merge(self._calls[place], without(piece, "index"), _CHAT_TEXTS)

    def whole(self) -> Json:
        """The choice; before its end without calls that are not whole."""
        said = _whole(self._said)
        calls = [call for call in map(_whole, self._calls) if self.ended or _is_whole(call)]
        if calls:
            said["tool_calls"] = [_with_arguments(call) for call in calls]
        return {**_whole(self._fields), "message": said}


def _is_whole(call: Json) -> bool:
    """Whether all of a call has come: no beginning of a JSON object is one itself."""
    function = options(call, "function")
    is_named = bool(call.get("id")) and bool(function.get("name"))
    return is_named and arguments_object(function.get("arguments") or "") is not None


def _with_arguments(call: Json) -> Json:
    """A call of a function as the API tells it; one without arguments may come with none."""
    if call.get("type") == "custom":
        return call
    return {"type": "function", **call, "function": {"arguments": "", **options(call, "function")}}


# --- OpenAI's Responses: items, and the whole at the end ---------------------------------------

_LAST = ("response.completed", "response.incomplete")
# Events with a piece of a text: where in its item the piece belongs, and as what.
_PIECES = {
    "response.output_text.delta": ("content", "content_index", "output_text", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "reasoning_text", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "summary_text", "text"),
}


class ResponsesJoiner(Joiner):
    """Joins events: items by their place in the output, texts by theirs in the item.

    Each item is told whole when it is done, and all of them at the end. Some servers leave the
    output of the last event empty: then the items that were done are the answer.
    """

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._last = ""
        self._items: dict[int, Json] = {}
        self._done: set[int] = set()
        self._texts: dict[int, dict[tuple[str, int], Json]] = {}  # blocks of items by their places

    @property
    def ended(self) -> bool:
        """Whether the last event came."""
        return self._last in _LAST

    def take(self, chunk: Json) -> None:
        """The next event; one that tells nothing of the answer is passed over."""
        kind, place = str(chunk.get("type")), chunk.get("output_index")
        if isinstance(chunk.get("response"), dict):
            self._head, self._last = cast("Json", chunk["response"]), kind
        elif not isinstance(place, int):
            pass
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._items[place] = options(chunk, "item")
            if kind.endswith("done"):
                self._done.add(place)
        elif kind in _PIECES and place in self._items:
            field, index, block, name = _PIECES[kind]
            at, delta = chunk.get(index), chunk.get("delta")
            if isinstance(at, int) and isinstance(delta, str):
                found = self._texts.setdefault(place, {}).setdefault((field, at), {"type": block})
                _merge(found, {name: delta}, (name,))

    def response(self) -> Json | None:
        """The response."""
        if self.ended and self._head.get("output"):
            return self._head
        found = (self._so_far(place) for place in sorted(self._items))
        items = [item for item in found if item is not None]
        if not self._head and not items:
            return None
        return {"object": "response", **self._head, "output": items}

    def _so_far(self, place: int) -> Json | None:
        """An item; None where it is not whole and no words either."""
        item, texts = self._items[place], self._texts.get(place)
        if place in self._done:
            return item
        if item.get("type") not in ("message", "reasoning") or not texts:
            return None
        fields: dict[str, list[Json]] = {}
        for field, at in sorted(texts):
            block: Json = _whole(texts[field, at])
            if block["type"] == "output_text":
                block["annotations"] = []
            fields.setdefault(field, []).append(block)
        # The provider may not have kept what it did not finish: it goes back without an id.
        return {**without(item, "id"), "status": "incomplete", **fields}


# --- Gemini: small responses, whose parts are joined -------------------------------------------

_NOT_OF_A_RESPONSE = ("candidates", "sdkHttpResponse", "sdk_http_response")
_JOINED = frozenset({"text", "thought"})
_CALL = ("functionCall", "function_call")
_STREAMED = ("partialArgs", "partial_args", "willContinue", "will_continue")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,4})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "string_value", "number_value", "bool_value")


class GeminiJoiner(Joiner):
    """Joins chunks, of which each tells the usage again."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._candidates: dict[int, CandidateJoiner] = {}

    @property
    def ended(self) -> bool:
        """Whether the model came to its end, or was not let begin."""
        feedback = either(self._head, "promptFeedback")
        if isinstance(feedback, dict) and either(cast("Json", feedback), "blockReason"):
            return True
        return bool(self._candidates) and all(held.ended for held in self._candidates.values())

    def take(self, chunk: Json) -> None:
        """The next chunk."""
        self._head |= _told(without(chunk, *_NOT_OF_A_RESPONSE))
        for candidate in objects(chunk.get("candidates") or [], "'candidates'"):
            number = as_number(candidate.get("index"))
            self._candidates.setdefault(number, CandidateJoiner()).take(candidate)

    def response(self) -> Json | None:
        """The response."""
        if not self._head and not self._candidates:
            return None
        found = [self._candidates[number].whole() for number in sorted(self._candidates)]
        return {**({"candidates": found} if found else {}), **self._head}


class CandidateJoiner:
    """One answer of several.

    Pieces of a text are parts of their own; a part with a signature must stay as it is. Calls come
    whole, except on Vertex, where a program may ask for their arguments in pieces, by paths.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._fields: Json = {}
        self._content: Json = {"role": "model"}
        self._parts: list[Json] = []
        self._goes_on = False  # whether the last part is a text that may go on
        self._call: Json | None = None  # one whose arguments come in pieces
        self._args: Json = {}

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return either(self._fields, "finishReason") is not None

    def take(self, candidate: Json) -> None:
        """The next piece of it."""
        self._fields |= _told(without(candidate, "content"))
        content = options(candidate, "content")
        self._content |= {n: held for n, held in without(content, "parts").items() if held}
        for part in objects(content.get("parts") or [], "'parts'"):
            self._take_part(_told(part))

    def _take_part(self, part: Json) -> None:
        field = next((name for name in _CALL if isinstance(part.get(name), dict)), "")
        call = options(part, field)
        if field and (self._call is not None or any(name in call for name in _STREAMED)):
            self._take_pieces(part, field, call)
            return
        is_text = set(part) <= _JOINED and "text" in part
        if is_text and not text_at(part, "text"):
            return
        last = self._parts[-1] if self._parts else {}
        is_same = bool(last.get("thought")) == bool(part.get("thought"))
        if not (is_text and self._goes_on and is_same):
            last = Json()
            self._parts.append(last)
        _merge(last, part, ("text",) if is_text else ())
        self._goes_on = is_text

    def _take_pieces(self, part: Json, field: str, call: Json) -> None:
        """Take a piece of a call; it is whole when one comes that does not go on."""
        self._goes_on = False
        if self._call is None:
            self._call, self._args = part, {}
        pieces: object = call.get("partialArgs") or call.get("partial_args") or []
        for piece in objects(pieces, "'partialArgs'"):
            _put(self._args, piece)
        if call.get("willContinue") or call.get("will_continue"):
            return
        first = options(self._call, field)
        whole = {**without(first, *_STREAMED), "args": {**options(first, "args"), **self._args}}
        self._parts.append({**self._call, field: whole})
        self._call = None

    def whole(self) -> Json:
        """The candidate."""
        return {"content": {**self._content, "parts": _whole(self._parts)}, **self._fields}


def _told(fields: Json) -> Json:
    return {name: held for name, held in fields.items() if held is not None}


def _put(args: Json, piece: Json) -> None:
    """Put a piece of the arguments where its path says; a text goes on with what is there."""
    path = str(piece.get("jsonPath") or piece.get("json_path") or "")
    steps: list[int | str] = [int(at) if at else a or b or c for a, at, b, c in _STEP.findall(path)]
    value = next((piece[name] for name in _VALUES if piece.get(name) is not None), None)
    place: Any = args
    if steps and isinstance(steps[0], int):
        return  # arguments are an object
    for step, after in pairwise([*steps, None]):
        held = _held(place, step)
        if after is None:
            is_text = isinstance(held, str) and isinstance(value, str)
            place[step] = f"{held}{value}" if is_text else value
            return
        if not isinstance(held, list if isinstance(after, int) else dict):
            place[step] = [] if isinstance(after, int) else {}
        place = place[step]


def _held(place: Any, step: int | str | None) -> Any:
    """What is at a step of a path; a list is made long enough for it."""
    if isinstance(place, dict):
        return cast("Json", place).get(str(step))
    items = cast("list[Any]", place)
    items += [None] * (int(step or 0) + 1 - len(items))
    return items[int(step or 0)]
