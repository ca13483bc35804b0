"""Records replies that a model streams: chunks pass through unchanged, the reply is stored.

The program makes the request with its own client; `wire.streams` joins the chunks. A reply that
breaks off is recorded with an error: its text is kept, incomplete tool calls are dropped.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import UNSET

from foldmark.errors import BadInput, FoldmarkError
from foldmark.model.messages import AnyPart, Message, ReasoningPart, TextPart
from foldmark.providers.background import run_uninterrupted
from foldmark.wire.streams import Stream

from .closing import AsyncClosing
from .state import SessionState
from .writer import append, record, reply_parts

C = TypeVar("C")


def record_stream(state: SessionState, stream: Iterable[C], api: str | None) -> Generator[C]:
    """Yield the chunks of a client's stream unchanged, then record the reply."""
    reply = Stream(api)
    if not isinstance(stream, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(_stream_problem(stream, is_async=False))
    return _record_chunks(state, stream, reply)


def arecord_stream(
    state: SessionState, stream: AsyncIterable[C], api: str | None
) -> "StreamRecording[C]":
    """Async form of `record_stream`."""
    reply = Stream(api)
    if not isinstance(stream, AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(_stream_problem(stream, is_async=True))
    return StreamRecording(aiter(stream), reply.add, lambda: _record_reply(state, reply))


def _record_chunks(state: SessionState, stream: Iterable[C], reply: Stream) -> Generator[C]:
    try:
        for chunk in stream:
            reply.add(chunk)
            yield chunk
    except BaseException as error:
        _record_partial(lambda: _record_reply(state, reply), error)
        raise
    _record_reply(state, reply)


def _record_reply(state: SessionState, reply: Stream) -> Message | None:
    """Record the reply of a stream; returns None if it is empty."""
    streamed = reply.result()
    if streamed is None:
        return None
    if streamed.is_complete:
        return record(state, streamed.response, streamed.wire, {})
    parts, info = reply_parts(streamed.response, streamed.wire, with_model=not state.model)
    parts = tuple(part for part in parts if _has_content(part))
    if not parts:
        return None
    reason = streamed.failure or "the answer broke off"
    error = {"name": "MessageAbortedError", "data": {"message": reason}}
    info |= {"error": error, "finish": UNSET}
    return append(state, state.builder.assistant(parts, info, state.model))


class StreamRecording(AsyncClosing, AsyncIterator[C], Generic[C]):
    """The chunks of an async stream, unchanged; records the reply at the end.

    An async generator would not do: it is closed some time after its loop ends, so that the next
    request could be made before the reply is recorded.
    """

    def __init__(
        self, stream: AsyncIterator[C], take: Callable[[C], None], record: Callable[[], object]
    ) -> None:
        """Pass each chunk of the stream to `take`, and call `record` at the end."""
        self._stream = stream
        self._take = take
        self._record = record
        self._closed = False

    async def __anext__(self) -> C:
        """The next chunk."""
        if self._closed:
            raise StopAsyncIteration
        try:
            chunk = await anext(self._stream)
            self._take(chunk)
        except StopAsyncIteration:
            await self.aclose()
            raise
        except BaseException as error:
            self._closed = True
            # Not awaited: a cancelled task must not be interrupted again while it cleans up.
            _record_partial(self._record, error)
            raise
        return chunk

    async def aclose(self) -> None:
        """Stop reading, and record the reply so far."""
        if not self._closed:
            self._closed = True
            await run_uninterrupted(self._record)

    def __del__(self) -> None:
        """Record the reply if a loop ended early."""
        if not self._closed:
            self._closed = True
            with suppress(FoldmarkError):  # there is no caller to raise to
                self._record()


def _record_partial(record: Callable[[], object], error: BaseException) -> None:
    """Record the reply up to an error; a failure to record becomes a note of that error."""
    try:
        record()
    except FoldmarkError as other:
        error.add_note(f"the partial reply could not be recorded: {other}")


def _has_content(part: AnyPart) -> bool:
    if isinstance(part, TextPart | ReasoningPart):
        return bool(part.text.strip() or part.metadata)
    return True


def _stream_problem(value: object, *, is_async: bool) -> str:
    kind = type(value).__name__
    if is_async:
        return f"expected an async stream, not {kind}; await the call, or use record_stream"
    if isinstance(value, AsyncIterable):
        return f"{kind} is an async stream; use arecord_stream"
    return f"expected a stream, not {kind}; enter a context manager using `with … as stream`"
