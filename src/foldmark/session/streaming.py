"""Listening to a model that streams: each chunk is passed on as it came, the answer is recorded.

Who asks is the program, with a client of its own; what its chunks say together is told in
`wire.streams`. An answer that breaks off is recorded as far as it came, marked as cut off: its
words are kept, and calls that are not whole are left out.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import UNSET

from foldmark.errors import BadInput, FoldmarkError
from foldmark.model.messages import AnyPart, Message, ReasoningPart, TextPart
from foldmark.providers.background import uncut
from foldmark.wire.streams import Stream

from .closing import AsyncClosing
from .state import SessionState
from .writer import append, record, reply_parts

C = TypeVar("C")


def record_stream(state: SessionState, stream: Iterable[C], api: str | None) -> Generator[C]:
    """The chunks of a client's stream just as they come; at its end the answer is recorded."""
    reply = Stream(api)
    if not isinstance(stream, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(_stream_problem(stream, is_async=False))
    return _record_chunks(state, stream, reply)


def arecord_stream(
    state: SessionState, stream: AsyncIterable[C], api: str | None
) -> "StreamRecording[C]":
    """`listen`, async."""
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
    """Record what was heard; None where that is nothing."""
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
    """The chunks of an async stream as they come.

    No async generator: one of these is closed some time after its loop was left, and the next
    request would be made without what was said.
    """

    def __init__(
        self, stream: AsyncIterator[C], take: Callable[[C], None], record: Callable[[], object]
    ) -> None:
        """Take the stream, who takes its chunks, and what records them."""
        self._stream = stream
        self._take = take
        self._heard = record
        self._over = False

    async def __anext__(self) -> C:
        """The next chunk."""
        if self._over:
            raise StopAsyncIteration
        try:
            chunk = await anext(self._stream)
            self._take(chunk)
        except StopAsyncIteration:
            await self.aclose()
            raise
        except BaseException as error:
            self._over = True
            # Not awaited: a cancelled task must not be cancelled once more on the way out.
            _record_partial(self._heard, error)
            raise
        return chunk

    async def aclose(self) -> None:
        """Listen no more: what was said is recorded."""
        if not self._over:
            self._over = True
            await uncut(self._heard)

    def __del__(self) -> None:
        """A loop over it was left early, and nobody has it any more."""
        if not self._over:
            self._over = True
            with suppress(FoldmarkError):  # nobody could be told
                self._heard()


def _record_partial(record: Callable[[], object], error: BaseException) -> None:
    """Record what was said until an error came; the error is what is raised in any case."""
    try:
        record()
    except FoldmarkError as other:
        error.add_note(f"what was said until then could not be recorded: {other}")


def _has_content(part: AnyPart) -> bool:
    if isinstance(part, TextPart | ReasoningPart):
        return bool(part.text.strip() or part.metadata)
    return True


def _stream_problem(value: object, *, is_async: bool) -> str:
    kind = type(value).__name__
    if is_async:
        return f"an async stream is expected, not {kind}; await what gives it, or use listen"
    if isinstance(value, AsyncIterable):
        return f"{kind} is an async stream; use alisten"
    return f"a stream is expected, not {kind}; one that is a context is given by its `with … as`"
