"""Anthropic's Messages API, streamed: the events of one response put together to the whole of it.

Only what a recorded stream says: nothing is sent or awaited. A stream that breaks off is an
answer as far as it came.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.values import Json, parsed

from .format import decoder

_DATA = "\ndata:"


class Delta(Struct, gc=False):
    """A piece of a block, or what is told of the message at its end."""

    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: Any = UNSET
    stop_reason: str | UnsetType | None = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class Event(Struct, gc=False):
    """What happens on a stream."""

    type: str
    index: int = 0
    delta: Delta | UnsetType = UNSET
    content_block: Json | UnsetType = UNSET
    message: Json | UnsetType = UNSET
    usage: Json | UnsetType = UNSET


_strict = msgspec.json.Decoder(Event)
_event = decoder(Event)


def streamed(text: str) -> Json | None:
    """The response that a stream of events tells; None where it tells none."""
    stream = _Stream()
    for event in _events([piece.partition("\n")[0] for piece in f"\n{text}".split(_DATA)[1:]]):
        stream.take(event)
    return stream.response()


def _events(lines: list[str]) -> Iterator[Event]:
    try:
        yield from _strict.decode_lines("\n".join(lines))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        for line in lines:
            with suppress(BadInput):  # cut off within a line
                yield _event(line.encode(errors="surrogatepass"))


class _Block:
    """A block and its pieces, which may be thousands."""

    def __init__(self, begun: Json) -> None:
        self._begun = begun
        self._pieces: defaultdict[str, list[str]] = defaultdict(list)
        self._citations: list[object] = []

    def add(self, delta: Delta) -> None:
        if delta.text:
            self._pieces["text"].append(delta.text)
        elif delta.partial_json:
            self._pieces["partial_json"].append(delta.partial_json)
        elif delta.thinking:
            self._pieces["thinking"].append(delta.thinking)
        elif delta.signature:
            self._pieces["signature"].append(delta.signature)
        elif delta.citation is not UNSET:
            self._citations.append(delta.citation)

    def whole(self) -> Json:
        block = dict(self._begun)
        for name, pieces in self._pieces.items():
            text = "".join(pieces)
            if name == "partial_json":
                block["input"] = _input(text)
            else:
                block[name] = f"{block.get(name) or ''}{text}"
        if self._citations:
            block["citations"] = self._citations
        return block


class _Stream:
    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, _Block] = {}

    def take(self, event: Event) -> None:
        if event.type == "content_block_delta":
            if event.delta and event.index in self._blocks:
                self._blocks[event.index].add(event.delta)
        elif event.type == "content_block_start":
            self._blocks[event.index] = _Block(event.content_block or {})
        elif event.type == "message_start":
            self._message = dict(event.message or {})
        elif event.type == "message_delta":
            self._end(event)

    def _end(self, event: Event) -> None:
        for name in ("stop_reason", "stop_sequence"):
            if event.delta and getattr(event.delta, name) is not UNSET:
                self._message[name] = getattr(event.delta, name)
        before = self._message.get("usage")
        told = {name: held for name, held in (event.usage or {}).items() if held is not None}
        self._message["usage"] = {**(before if isinstance(before, dict) else {}), **told}

    def response(self) -> Json | None:
        if not self._message:
            return None
        blocks = [self._blocks[index].whole() for index in sorted(self._blocks)]
        return {**self._message, "content": blocks}


def _input(text: str) -> Json:
    """The input of a call; what broke off is no JSON and is kept as it is."""
    with suppress(BadInput):
        found = parsed(text.encode(errors="surrogatepass"))
        if isinstance(found, dict):
            return cast("Json", found)
    return {"arguments": text}
