"""OpenAI's Chat Completions API, streamed: chunks joined to the whole completion.

Facts of this stream: a chunk has a delta for each choice; texts come in pieces, calls by their
index, usage in a last chunk without choices. Servers that speak it differ: some leave the index of
a call out, give one index to several, or repeat roles, ids and names in every chunk.
"""

from typing import Any, cast

from foldmark.model.values import Json

from .codec import arguments_object, as_number, objects, options, without
from .openai_chat_parts import THOUGHTS

# Fields whose pieces make one text; others come whole, some again and again.
_PIECES = frozenset(
    {
        *("content", "refusal", "arguments", "input", *THOUGHTS),
        *("text", "summary", "data", "transcript"),
    }
)
_NOT_OF_A_COMPLETION = ("choices", "object", "obfuscation")


class ChatStream:
    """Takes chunks as they come."""

    failure = ""

    def __init__(self) -> None:
        """Begin with none."""
        self._head: Json = {}
        self._choices: dict[int, _Choice] = {}

    @property
    def ended(self) -> bool:
        """Whether the model came to its end, in all of its answers."""
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
            self._choices.setdefault(number, _Choice()).take(choice)

    def response(self) -> Json | None:
        """The whole completion; before the end what was said, without calls that are not whole."""
        if not self._choices:
            return None
        choices = [
            {"index": number, **self._choices[number].whole()} for number in sorted(self._choices)
        ]
        return {**self._head, "object": "chat.completion", "choices": choices}


class _Choice:
    """One answer."""

    def __init__(self) -> None:
        self._fields: Json = {"finish_reason": None}
        self._said: Json = {"role": "assistant", "content": None}
        self._calls: list[Json] = []
        self._places: dict[int, int] = {}  # of the newest call of each index

    @property
    def ended(self) -> bool:
        return self._fields["finish_reason"] is not None

    def take(self, choice: Json) -> None:
        _merge(self._fields, without(choice, "index", "delta"))
        delta = options(choice, "delta")
        _merge(self._said, without(delta, "tool_calls"))
        for call in objects(delta.get("tool_calls") or [], "'tool_calls'"):
            self._take_call(call)

    def _take_call(self, piece: Json) -> None:
        index, name = piece.get("index"), piece.get("id")
        last = len(self._calls) - 1
        if isinstance(index, int):
            place = self._places.get(index, -1)
        else:
            # Without an index, what has a name begins a call, and what has none goes on with it.
            is_named = bool(name) or bool(options(piece, "function").get("name"))
            place = -1 if is_named else last
        if place >= 0 and name and self._calls[place].get("id") not in (None, "", name):
            place = -1
        if place < 0:
            self._calls.append({})
            place = len(self._calls) - 1
        if isinstance(index, int):
            self._places[index] = place
        _merge(self._calls[place], without(piece, "index"))

    def whole(self) -> Json:
        said = _joined(self._said)
        calls = [call for call in map(_joined, self._calls) if self.ended or _is_whole(call)]
        if calls:
            said["tool_calls"] = [_with_arguments(call) for call in calls]
        return {**_joined(self._fields), "message": said}


def _is_whole(call: Json) -> bool:
    """Whether all of a call has come: no beginning of a JSON object is one itself."""
    if not call.get("id"):
        return False
    function = options(call, "function")
    return (
        bool(function.get("name")) and arguments_object(function.get("arguments") or "") is not None
    )


def _with_arguments(call: Json) -> Json:
    """A call of a function as the API tells it; one without arguments may come with none."""
    if call.get("type") == "custom":
        return call
    return {"type": "function", **call, "function": {"arguments": "", **options(call, "function")}}


class _Text:
    """A text in pieces, which may be thousands."""

    def __init__(self) -> None:
        self.pieces: list[str] = []


def _merge(held: Json, more: Json) -> None:
    """Add what came to what is held."""
    for name, value in more.items():
        old = held.get(name)
        if isinstance(value, str) and name in _PIECES:
            if not isinstance(old, _Text):
                old = held[name] = _Text()
            old.pieces.append(value)
        elif isinstance(value, dict):
            if not isinstance(old, dict):
                old = held[name] = {}
            _merge(cast("Json", old), cast("Json", value))
        elif isinstance(value, list):
            if not isinstance(old, list):
                old = held[name] = []
            _extend(cast("list[Any]", old), cast("list[Any]", value))
        elif name not in held or value not in (None, ""):
            held[name] = value


def _extend(held: list[Any], more: list[Any]) -> None:
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
        _merge(last, given)


def _joined(value: Any) -> Any:
    """The same with its texts as texts."""
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, dict):
        return {name: _joined(held) for name, held in cast("Json", value).items()}
    if isinstance(value, list):
        return [_joined(held) for held in cast("list[Any]", value)]
    return value
