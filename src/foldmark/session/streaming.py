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
from .replies import answer_of
from .switching import Switching

C = TypeVar("C")


class Listening(Switching):
    """Records answers that are streamed."""

    def listen(self, stream: Iterable[C], wire: str | None = None) -> Generator[C]:
        """The chunks of a client's stream just as they come; at its end the answer is recorded.

            for chunk in session.listen(client.chat.completions.create(..., stream=True)):
                ...

        Also where the loop is left early, or an error comes: what was said is recorded then, and
        the error goes on. An error that a provider sends as a chunk is passed on like any other.
        The wire is recognised, if it is not given.
        """
        heard = Stream(wire)
        if not isinstance(stream, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(_no_stream(stream, is_async=False))
        return self._listened(stream, heard)

    def alisten(self, stream: AsyncIterable[C], wire: str | None = None) -> "Hearing[C]":
        """`listen`, async.

            async for chunk in session.alisten(await client.responses.create(..., stream=True)):
                ...

        Where it is kept under a name and the loop is left early, `aclose` it, or use `async with`.
        """
        heard = Stream(wire)
        if not isinstance(stream, AsyncIterable):  # pyright: ignore[reportUnnecessaryIsInstance] - from a user
            raise BadInput(_no_stream(stream, is_async=True))
        return Hearing(aiter(stream), heard.take, lambda: self._heard(heard))

    def _listened(self, stream: Iterable[C], heard: Stream) -> Generator[C]:
        try:
            for chunk in stream:
                heard.take(chunk)
                yield chunk
        except BaseException as error:
            _keep(lambda: self._heard(heard), error)
            raise
        self._heard(heard)

    def _heard(self, heard: Stream) -> Message | None:
        """Record what was heard; None where that is nothing."""
        said = heard.streamed()
        if said is None:
            return None
        if said.ended:
            return self.record(said.response, wire=said.wire)
        parts, told = answer_of(said.response, said.wire, named=not self.model)
        parts = tuple(part for part in parts if _says_something(part))
        if not parts:
            return None
        reason = said.failure or "the answer broke off"
        error = {"name": "MessageAbortedError", "data": {"message": reason}}
        info = {**told, "error": error, "finish": UNSET}
        return self._append(self.maker.assistant(parts, info, self.model))


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
