"""Anthropic's Messages API, streamed: the events of one response put together to the whole of it.

Only what a recorded stream says: nothing is sent or awaited. A stream that breaks off is an
answer as far as it came.
"""

from contextlib import suppress
from typing import cast

from foldmark.errors import BadInput
from foldmark.values import Json, parsed
from foldmark.wire.model import options

_DATA = "data:"
# A piece, by its kind: the field of the piece, and the field of the block that it goes on with.
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def streamed(text: str) -> Json | None:
    """The response that a stream of events tells; None where it tells none."""
    stream = _Stream()
    for line in text.split("\n"):
        if line.startswith(_DATA):
            with suppress(BadInput):  # cut off within a line
                event = parsed(line.removeprefix(_DATA).encode(errors="surrogatepass"))
                if isinstance(event, dict):
                    stream.take(cast("Json", event))
    return stream.response()


class _Stream:
    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, str] = {}

    def take(self, event: Json) -> None:
        index = event.get("index")
        match event.get("type"):
            case "message_start":
                self._message = dict(options(event, "message"))
            case "content_block_start" if isinstance(index, int):
                self._blocks[index] = dict(options(event, "content_block"))
            case "content_block_delta" if isinstance(index, int) and index in self._blocks:
                self._add(index, options(event, "delta"))
            case "message_delta":
                self._message |= options(event, "delta")
                usage = options(event, "usage")
                told = {name: held for name, held in usage.items() if held is not None}
                self._message["usage"] = {**options(self._message, "usage"), **told}
            case _:
                pass

    def _add(self, index: int, delta: Json) -> None:
        block, kind = self._blocks[index], delta.get("type")
        if kind in _TEXTS:
            name = _TEXTS[str(kind)]
            block[name] = f"{block.get(name) or ''}{delta.get(name) or ''}"
        elif kind == "input_json_delta":
            piece = delta.get("partial_json")
            self._inputs[index] = f"{self._inputs.get(index, '')}{piece or ''}"
        elif kind == "citations_delta":
            held = block.get("citations")
            before = cast("list[object]", held) if isinstance(held, list) else []
            block["citations"] = [*before, delta.get("citation")]

    def response(self) -> Json | None:
        if not self._message:
            return None
        for index, text in self._inputs.items():
            if text:
                self._blocks[index]["input"] = _input(text)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        return {**self._message, "content": blocks}


def _input(text: str) -> Json:
    """The input of a call; what broke off is no JSON and is kept as it is."""
    with suppress(BadInput):
        found = parsed(text.encode(errors="surrogatepass"))
        if isinstance(found, dict):
            return cast("Json", found)
    return {"arguments": text}
