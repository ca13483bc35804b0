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
from .writer import answer_of, append, record

C = TypeVar("C")


def listen(state: SessionState, stream: Iterable[C], wire: str | None) -> Generator[C]:
    """The chunks of a client's stream just as they come; at its end the answer is recorded."""
    heard = Stream(wire)
    if not isinstance(stream, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(_no_stream(stream, is_async=False))
    return _listen(state, stream, heard)


def alisten(state: SessionState, stream: AsyncIterable[C], wire: str | None) -> "Hearing[C]":
    """`listen`, async."""
    heard = Stream(wire)
    if not isinstance(stream, AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
        raise BadInput(_no_stream(stream, is_async=True))
    return Hearing(aiter(stream), heard.take, lambda: _record(state, heard))


def _listen(state: SessionState, stream: Iterable[C], heard: Stream) -> Generator[C]:
    try:
        for chunk in stream:
            heard.take(chunk)
            yield chunk
    except BaseException as error:
        _keep(lambda: _record(state, heard), error)
        raise
    _record(state, heard)


def _record(state: SessionState, heard: Stream) -> Message | None:
    """Record what was heard; None where that is nothing."""
    said = heard.streamed()
    if said is None:
        return None
    if said.ended:
        return record(state, said.response, said.wire, {})
    parts, info = answer_of(said.response, said.wire, named=not state.model)
    parts = tuple(part for part in parts if _says_something(part))
    if not parts:
        return None
    reason = said.failure or "the answer broke off"
    error = {"name": "MessageAbortedError", "data": {"message": reason}}
    info |= {"error": error, "finish": UNSET}
    return append(state, state.maker.assistant(parts, info, state.model))


class Hearing(AsyncClosing, AsyncIterator[C], Generic[C]):
    """The chunks of an async stream as they come.

    No async generator: one of these is closed some time after its loop was left, and the next
    request would be made without what was said.
    """

    def __init__(
        self, stream: AsyncIterator[C], take: Callable[[C], None], heard: Callable[[], object]
    ) -> None:
        """Take the stream, who takes its chunks, and what records them."""
        self._stream = stream
        self._take = take
        self._heard = heard
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
            _keep(self._heard, error)
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


def _keep(heard: Callable[[], object], error: BaseException) -> None:
    """Record what was said until an error came; the error is what is raised in any case."""
    try:
        heard()
    except FoldmarkError as other:
        error.add_note(f"what was said until then could not be recorded: {other}")


def _says_something(part: AnyPart) -> bool:
    if isinstance(part, TextPart | ReasoningPart):
        return bool(part.text.strip() or part.metadata)
    return True


def _no_stream(given: object, *, is_async: bool) -> str:
    kind = type(given).__name__
    if is_async:
        return f"an async stream is expected, not {kind}; await what gives it, or use listen"
    if isinstance(given, AsyncIterable):
        return f"{kind} is an async stream; use alisten"
    return f"a stream is expected, not {kind}; one that is a context is given by its `with … as`"
