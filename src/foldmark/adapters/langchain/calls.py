"""Calls of an AIMessage: in its lists of calls, and as blocks among its content.

A provider's block of a call and the entry in `tool_calls` are one part here. A call that LangChain
could not parse wants a result as any other does, so it is a part as well.
"""

from collections.abc import Iterable
from typing import Any, cast

from langchain_core.messages import AIMessage
from msgspec import UNSET

from foldmark.model.messages import AnyPart, Pending, ToolPart
from foldmark.model.prompt_messages import Call
from foldmark.model.values import Json
from foldmark.wire.codec import kept, options, without

from .blocks import FORM, HOLE, KEY, filled, read_block
from .values import restored, stored

# Blocks that are calls: the name of their id, and where their input is.
_BLOCKS = {
    "tool_use": ("id", "input"),
    "tool_call": ("id", "args"),
    "function_call": ("call_id", "arguments"),
}
_INVALID, _UNLISTED, _MORE, _PLACE = "invalid", "unlisted", "more", "place"


class CallReader:
    """Reads the calls of one message; each is given once, at its block or at the end."""

    def __init__(self, message: AIMessage) -> None:
        """Take the message."""
        self._left: list[tuple[str, int, Json]] = [
            *(
                ("valid", place, cast("Json", call))
                for place, call in enumerate(message.tool_calls)
            ),
            *(
                ("invalid", place, cast("Json", call))
                for place, call in enumerate(message.invalid_tool_calls)
            ),
        ]
        self._given = {"valid": 0, "invalid": 0}

    def block(self, block: object) -> AnyPart:
        """The part of a block of content: a call, if it is one."""
        fields: Json = stored(cast("Json", block)) if isinstance(block, dict) else {}
        if fields.get("type") not in _BLOCKS:
            return read_block(cast("object", block))
        id_name, input_name = _BLOCKS[fields["type"]]
        name, call_id = fields.get("name"), fields.get(id_name)
        if not isinstance(call_id, str) or not isinstance(name, str):
            return read_block(fields)
        found = next((held for held in self._left if held[2].get("id") == call_id), None)
        if found is None:
            return _unlisted(fields, name, call_id, input_name)
        self._left.remove(found)
        part = self._part(*found)
        own: Json = {FORM: fields}
        if fields.get(input_name) == part.state.input and not isinstance(part.state.input, str):
            own = {FORM: {**fields, input_name: None}, HOLE: [input_name]}
        return _with_own(part, own)

    def rest(self) -> Iterable[ToolPart]:
        """The calls that had no block."""
        return [self._part(*held) for held in self._left]

    def _part(self, kind: str, place: int, call: Json) -> ToolPart:
        own: Json = {}
        if place != self._given[kind]:
            own[_PLACE] = place
        self._given[kind] += 1
        call_id, name, given = call.get("id"), call.get("name"), call.get("args")
        if kind == "invalid":
            own[_INVALID] = stored(call)
        elif more := stored(without(call, "id", "name", "args", "type")):
            own[_MORE] = more
        state = Pending(input=stored(cast("Json", given)) if isinstance(given, dict) else {})
        return ToolPart(
            tool=str(name or "unknown"),
            call_id=str(call_id) if call_id is not None else UNSET,
            state=state,
            metadata=kept(KEY, own),
        )


def _unlisted(block: Json, name: str, call_id: str, input_name: str) -> ToolPart:
    """A call that stands among the content alone: its provider wants a result of it, too."""
    given = block.get(input_name)
    state = Pending(input=cast("Json", given) if isinstance(given, dict) else {})
    own: Json = {FORM: block, _UNLISTED: True}
    return ToolPart(tool=name, call_id=call_id, state=state, metadata={KEY: own})


def _with_own(part: ToolPart, own: Json) -> ToolPart:
    metadata = {KEY: {**options(part.metadata, KEY), **own}}
    return ToolPart(tool=part.tool, call_id=part.call_id, state=part.state, metadata=metadata)


class CallWriter:
    """Collects the calls of one message as they are written."""

    def __init__(self) -> None:
        """Begin with none."""
        self._valid: list[tuple[int, Json]] = []
        self._invalid: list[tuple[int, Json]] = []

    def add(self, call: Call) -> Json | None:
        """Take a call; the block that it is among the content, if it is one."""
        own = options(call.provider_options, KEY)
        call_id = call.tool_call_id
        if isinstance(own.get(_INVALID), dict):
            entry: Json = {**cast("Json", restored(own[_INVALID])), "id": call_id}
            self._invalid.append((_place(own, len(self._invalid)), entry))
        elif not own.get(_UNLISTED):
            entry = {"name": call.tool_name, "args": restored(call.input), "id": call_id}
            entry |= {"type": "tool_call", **cast("Json", restored(options(own, _MORE)))}
            self._valid.append((_place(own, len(self._valid)), entry))
        block = filled(own, call.input)
        if block is not None and block.get("type") in _BLOCKS:
            block[_BLOCKS[block["type"]][0]] = call_id
        return block

    def fields(self) -> dict[str, Any]:
        """What an AIMessage is given of calls."""
        return {
            "tool_calls": [call for _, call in sorted(self._valid, key=_first)],
            "invalid_tool_calls": [call for _, call in sorted(self._invalid, key=_first)],
        }


def _place(own: Json, usual: int) -> int:
    place = own.get(_PLACE)
    return place if isinstance(place, int) else usual


def _first(entry: tuple[int, Json]) -> int:
    return entry[0]
