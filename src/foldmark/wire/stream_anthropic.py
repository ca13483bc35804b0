"""Anthropic's Messages API, streamed: the events of one response put together to the whole of it.

Only what the events say: nothing is sent or awaited. A stream that breaks off is an answer as far
as it came. Recorded streams, which importers read, are put together here as well.
"""

from collections import defaultdict
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from foldmark.errors import BadInput
from foldmark.model.values import Json, parsed

from .codec import options

_ENDING = ("stop_reason", "stop_sequence", "stop_details", "container")
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
EVENTS = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


class Delta(Struct, gc=False):
    """A piece of a block, or what is told of the message at its end."""

    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    citation: Any = UNSET
    content: Any = UNSET  # of a compaction, which comes in one piece
    stop_reason: str | UnsetType | None = UNSET
    stop_sequence: str | UnsetType | None = UNSET
    stop_details: Any = UNSET
    container: Any = UNSET


class Event(Struct, gc=False):
    """What happens on a stream."""

    type: str
    index: int = 0
    delta: Delta | UnsetType = UNSET
    content_block: Json | UnsetType = UNSET
    message: Json | UnsetType = UNSET
    usage: Json | UnsetType | None = UNSET
    error: Any = UNSET


class _Block:
    """A block and its pieces, which may be thousands."""

    def __init__(self, begun: Json) -> None:
        self.is_call = begun.get("type") in _CALLS
        self.is_whole = False
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
        elif delta.content is not UNSET:
            self._begun = {**self._begun, "content": delta.content}

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


class AnthropicStream:
    """Takes events as they come."""

    def __init__(self) -> None:
        """Begin with none."""
        self.failure = ""
        self._message: Json = {}
        self._blocks: dict[int, _Block] = {}

    @property
    def ended(self) -> bool:
        """Whether the model came to its end."""
        return self._message.get("stop_reason") is not None

    def take(self, chunk: Json) -> None:
        """The next event as JSON; what is none is passed over."""
        if chunk.get("type") == "error":
            self.failure = str(options(chunk, "error").get("message") or "an error")
        elif chunk.get("type") in EVENTS:
            try:
                self.take_event(msgspec.convert(chunk, Event))
            except msgspec.ValidationError as error:
                raise BadInput(f"this is no event of Anthropic's: {error}") from None

    def take_event(self, event: Event) -> None:
        """The next event."""
        if event.type == "content_block_delta":
            if event.delta and event.index in self._blocks:
                self._blocks[event.index].add(event.delta)
        elif event.type == "content_block_start":
            self._blocks[event.index] = _Block(event.content_block or {})
        elif event.type == "content_block_stop":
            if event.index in self._blocks:
                self._blocks[event.index].is_whole = True
        elif event.type == "message_start":
            self._message = dict(event.message or {})
        elif event.type == "message_delta":
            self._end(event)

    def _end(self, event: Event) -> None:
        for name in _ENDING:
            if event.delta and getattr(event.delta, name) is not UNSET:
                self._message[name] = getattr(event.delta, name)
        before = self._message.get("usage")
        told = {name: held for name, held in (event.usage or {}).items() if held is not None}
        self._message["usage"] = {**(before if isinstance(before, dict) else {}), **told}

    def as_far(self) -> Json | None:
        """The response as far as it came, a call in the middle of its input as well."""
        return self._with([self._blocks[index] for index in sorted(self._blocks)])

    def response(self) -> Json | None:
        """The whole response; before the end what was said, without calls that are not whole."""
        if self.ended:
            return self.as_far()
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        found = self._with([block for block in blocks if block.is_whole or not block.is_call])
        if found is not None:
            found.pop("usage", None)  # it was told at the beginning, before anything was said
        return found

    def _with(self, blocks: list[_Block]) -> Json | None:
        if not self._message:
            return None
        return {**self._message, "content": [block.whole() for block in blocks]}


def _input(text: str) -> Json:
    """The input of a call; what broke off is no JSON and is kept as it is."""
    with suppress(BadInput):
        found = parsed(text.encode(errors="surrogatepass"))
        if isinstance(found, dict):
            return cast("Json", found)
    return {"arguments": text}
