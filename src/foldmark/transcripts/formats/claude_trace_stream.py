"""Recorded streams of Anthropic's Messages API: server-sent events as text, read to a response.

How events are put together is told in `wire.stream_anthropic`. A stream that breaks off is an
answer as far as it came.
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from foldmark.errors import BadInput
from foldmark.model.values import Json
from foldmark.transcripts.build import decoder
from foldmark.wire.stream_anthropic import AnthropicStream, Event

_DATA = "\ndata:"
_strict = msgspec.json.Decoder(Event)
_event = decoder(Event)


def streamed(text: str) -> Json | None:
    """The response that a stream of events tells; None where it tells none."""
    stream = AnthropicStream()
    for event in _events([piece.partition("\n")[0] for piece in f"\n{text}".split(_DATA)[1:]]):
        stream.take_event(event)
    return stream.as_far()


def _events(lines: list[str]) -> Iterator[Event]:
    try:
        yield from _strict.decode_lines("\n".join(lines))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        for line in lines:
            with suppress(BadInput):  # cut off within a line
                yield _event(line.encode(errors="surrogatepass"))
