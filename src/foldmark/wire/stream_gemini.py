"""Gemini's contents, streamed: chunks are small responses, whose parts are joined.

Facts of this stream: pieces of a text are parts of their own; a signature stands on whichever part
it came with, and a part that has one must stay as it is; calls come whole, except on Vertex, where
a program may ask for their arguments in pieces, by paths; usage is told again in each chunk.
"""

import re
from itertools import pairwise
from typing import Any, cast

from foldmark.model.values import Json

from .codec import as_number, objects, options, text_at, without
from .gemini_parts import either

_JOINED = frozenset({"text", "thought"})
_CALL = ("functionCall", "function_call")
_NOT_OF_A_RESPONSE = ("candidates", "sdkHttpResponse", "sdk_http_response")
_STREAMED = ("partialArgs", "partial_args", "willContinue", "will_continue")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d{1,4})\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "string_value", "number_value", "bool_value")


class GeminiStream:
    """Takes chunks as they come."""

    failure = ""

    def __init__(self) -> None:
        """Begin with none."""
        self._head: Json = {}
        self._candidates: dict[int, _Candidate] = {}

    @property
    def ended(self) -> bool:
        """Whether the model came to its end, or was not let begin."""
        feedback = either(self._head, "promptFeedback")
        if isinstance(feedback, dict) and either(cast("Json", feedback), "blockReason"):
            return True
        return bool(self._candidates) and all(held.ended for held in self._candidates.values())

    def take(self, chunk: Json) -> None:
        """The next chunk."""
        for name, held in without(chunk, *_NOT_OF_A_RESPONSE).items():
            if held is not None:
                self._head[name] = held
        for candidate in objects(chunk.get("candidates") or [], "'candidates'"):
            number = as_number(candidate.get("index"))
            self._candidates.setdefault(number, _Candidate()).take(candidate)

    def response(self) -> Json | None:
        """The whole response; before the end what was said, without calls that are not whole."""
        if not self._head and not self._candidates:
            return None
        found = [self._candidates[number].whole() for number in sorted(self._candidates)]
        return {**({"candidates": found} if found else {}), **self._head}


class _Candidate:
    """One answer."""

    def __init__(self) -> None:
        self._fields: Json = {}
        self._content: Json = {"role": "model"}
        self._parts: list[Json] = []
        self._texts: list[str] = []  # of the last part, if it is one that goes on
        self._call: Json | None = None  # one whose arguments come in pieces
        self._args: Json = {}

    @property
    def ended(self) -> bool:
        return either(self._fields, "finishReason") is not None

    def take(self, candidate: Json) -> None:
        for name, held in without(candidate, "content").items():
            if held is not None:
                self._fields[name] = held
        content = options(candidate, "content")
        self._content |= {n: held for n, held in without(content, "parts").items() if held}
        for part in objects(content.get("parts") or [], "'parts'"):
            self._take_part({name: held for name, held in part.items() if held is not None})

    def _take_part(self, part: Json) -> None:
        field = next((name for name in _CALL if isinstance(part.get(name), dict)), "")
        call = options(part, field)
        if field and (self._call is not None or any(name in call for name in _STREAMED)):
            self._take_pieces(part, field, call)
            return
        last = self._parts[-1] if self._parts else {}
        if not set(part) <= _JOINED or "text" not in part:
            self._close()
            self._parts.append(part)
        elif self._texts and bool(last.get("thought")) == bool(part.get("thought")):
            self._texts.append(text_at(part, "text"))
        elif text := text_at(part, "text"):
            self._close()
            self._parts.append(part)
            self._texts = [text]

    def _take_pieces(self, part: Json, field: str, call: Json) -> None:
        """Take a piece of a call; it is whole when one comes that does not go on."""
        if self._call is None:
            self._close()
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

    def _close(self) -> None:
        """Put the texts of the last part together."""
        if self._texts:
            self._parts[-1] = {**self._parts[-1], "text": "".join(self._texts)}
            self._texts = []

    def whole(self) -> Json:
        parts = list(self._parts)
        if self._texts:
            parts[-1] = {**parts[-1], "text": "".join(self._texts)}
        return {"content": {**self._content, "parts": parts}, **self._fields}


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
