"""Recorded streams of Anthropic's Messages API: server-sent events as text, read to a response.

How events are put together is told in `wire.joiners`. A stream that breaks off is an answer as far
as it came.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import msgspec

from foldmark.errors import BadInput
from foldmark.model.values import Json, parsed
from foldmark.wire.joiners import AnthropicJoiner

_DATA = "\ndata:"
_events = msgspec.json.Decoder()


def streamed(text: str) -> Json | None:
    """The response that a stream of events tells; None where it tells none."""
    joiner = AnthropicJoiner()
    for event in _read([piece.partition("\n")[0] for piece in f"\n{text}".split(_DATA)[1:]]):
        with suppress(BadInput):
            joiner.take(event)
    return joiner.as_far()


def _read(lines: list[str]) -> Iterator[Json]:
    found: list[object] = []
    try:
        found = cast("list[object]", _events.decode_lines("\n".join(lines)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        for line in lines:
            with suppress(BadInput):  # cut off within a line
                found.append(parsed(line.encode(errors="surrogatepass")))
    yield from (cast("Json", event) for event in found if isinstance(event, dict))
