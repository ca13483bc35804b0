"""The session: everything that was said, and the view of it that fits.

`Session` only hands calls on: what lasts is in `state`, what is done is in `reader`, `writer`,
`operations`, `compactor` and `streaming`. Each call has an async form with `a` in front of its
name; most of these run the blocking one in a thread, so the two may be mixed on one session.
"""

import asyncio
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from foldmark.analysis.plan import Plan
from foldmark.log.view import View
from foldmark.model.events import Event, known_kinds
from foldmark.model.messages import FilePart, Message, Tokens, Transcript
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import Declared, PromptMessage
from foldmark.model.values import Json
from foldmark.policy import Policy
from foldmark.store.rows import SessionRow
from foldmark.store.search import Found
from foldmark.store.sqlite import BESIDE
from foldmark.store.store import Store, checked_id
from foldmark.summary.ladder import declared_tokens
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.limits import Limit
from foldmark.wire.codec import wire_named

from . import compactor, operations, reader, streaming, writer
from .bus import Subscriber
from .closing import AsyncClosing, Closing
from .diff import ViewDiff, view_diff
from .maker import Content
from .state import SessionSetup, SessionState
from .writer import OpenCall

C = TypeVar("C")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def threaded(
    call: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The async form of a method: the blocking one, run in a thread."""

    @wraps(call)
    async def run(self: S, *args: P.args, **named: P.kwargs) -> T:
        return await asyncio.to_thread(call, self, *args, **named)

    return run


class Session(Closing, AsyncClosing):
    """A session: everything that was said, and the view of it that fits."""

    def __init__(self, row: SessionRow, setup: SessionSetup) -> None:
        """Take the session as the store has it, and with what it is opened."""
        self._state = SessionState(row, setup)

    def __repr__(self) -> str:
        """Which one it is."""
        return f"<Session {self.id} in {self._state.store.name}>"

    # --- what it is ---

    @property
    def id(self) -> str:
        """Its name in the store."""
        return self._state.id

    @property
    def info(self) -> SessionRow:
        """What is kept of the session beside its messages."""
        return self._state.store.row(self._state.key)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its store; none where that is a server."""
        place = str(self._state.setup.where)
        return () if "://" in place else tuple(Path(place + end) for end in ("", *BESIDE))

    @property
    def policy(self) -> Policy:
        """The rules under which it is pruned and compacted."""
        return self._state.policy

    @property
    def model(self) -> str:
        """The name of the model that it is shown to; "" where none is set."""
        return self._state.model

    @property
    def limit(self) -> Limit | None:
        """The limits of that model; None where no window is known."""
        return self._state.limit

    @property
    def room(self) -> int:
        """The tokens that may stand in the window; 0 where no limit is known."""
        return self._state.room

    @property
    def tokens(self) -> int:
        """The tokens of the next request, as far as they are known."""
        return self._state.tokens

    @property
    def system(self) -> str:
        """The system prompt of every request, where the program has said what it is."""
        return self._state.system

    @property
    def tools(self) -> tuple[Declared, ...]:
        """The tools of every request, where the program has said what they are."""
        return self._state.tools

    @property
    def fixed(self) -> int:
        """The tokens of the system prompt and the tools, which are in every request."""
        return self._state.fixed

    @fixed.setter
    def fixed(self, tokens: int) -> None:
        self._state.fixed = tokens

    def configure(
        self,
        *,
        system: str,
        tools: Iterable[Declared],
        summarizer: Summarizer | None = None,
        focus: str | None = None,
    ) -> None:
        """Say what requests hold beside the view, and who summarises if nobody else is set.

        `focus` is what every summary shall look at most, if no other instructions are given.
        """
        state = self._state
        with state.lock:
            state.system, state.tools = system, tuple(tools)
            state.fixed = declared_tokens(state.system, state.tools, state.count)
            state.usual_summarizer = summarizer
            state.focus = state.focus if focus is None else focus

    # --- what is said ---

    def user(self, content: Content, **info: Any) -> Message:
        """Say something as the user: a text, parts, or a whole message."""
        return writer.append(self._state, self._state.maker.user(content, info))

    def record(
        self,
        reply: object,
        *,
        tokens: Tokens | None = None,
        finish: str | None = None,
        wire: str | None = None,
        **info: Any,
    ) -> Message:
        """Record a model's answer: a provider's response, a text, parts, or a message.

        A response is an SDK's object or its JSON; what was measured is taken from it. Its wire is
        recognised, if it is not given.
        """
        usage = {"tokens": tokens, "finish": finish}
        given = {name: value for name, value in usage.items() if value is not None}
        return writer.record(self._state, reply, wire, info | given)

    def listen(self, stream: Iterable[C], wire: str | None = None) -> Generator[C]:
        """The chunks of a client's stream just as they come; at its end the answer is recorded.

            for chunk in session.listen(client.chat.completions.create(..., stream=True)):
                ...

        Also where the loop is left early, or an error comes: what was said is recorded then, and
        the error goes on. An error that a provider sends as a chunk is passed on like any other.
        The wire is recognised, if it is not given.
        """
        return streaming.listen(self._state, stream, wire)

    def alisten(self, stream: AsyncIterable[C], wire: str | None = None) -> streaming.Hearing[C]:
        """`listen`, async.

            async for chunk in session.alisten(await client.responses.create(..., stream=True)):
                ...

        Where it is kept under a name and the loop is left early, `aclose` it, or use `async with`.
        """
        return streaming.alisten(self._state, stream, wire)

    def extend(self, messages: Iterable[object], wire: str | None = None) -> list[Message]:
        """Take messages of a wire as they are sent and received: what is said, and results.

        All of them or none. A system prompt that leads a new session becomes the session's own.
        """
        return writer.extend(self._state, messages, wire)

    def result(
        self,
        call_id: str,
        output: str,
        *,
        error: bool = False,
        files: Sequence[FilePart] = (),
        metadata: Json | None = None,
    ) -> Message:
        """Record what a call of a tool gave back, however late."""
        return writer.result(
            self._state, call_id, output, error=error, files=files, metadata=metadata
        )

    def open_calls(self) -> list[OpenCall]:
        """The calls that wait for their results, shown or folded, the oldest first."""
        return writer.open_calls(self._state)

    # --- what is shown ---

    @overload
    def messages(self) -> tuple[PromptMessage, ...]: ...
    @overload
    def messages(self, wire: str) -> list[Json]: ...
    def messages(self, wire: str | None = None) -> tuple[PromptMessage, ...] | list[Json]:
        """What to send to the model, on a provider's wire; made to fit first, if it must be.

        Raises CompactionStopped or WindowTooSmall where it cannot be made to fit.
        """
        name = None if wire is None else wire_named(wire).name
        compactor.run(self._state, compactor.fit(self._state))
        return compactor.sent(self._state, name)

    def view(self, *, before: int | None = None, after: int | None = None) -> View:
        """What the model is shown now, or was shown right before or after an act."""
        return reader.view(self._state, after or before, after=after is not None)

    def plan(self) -> Plan:
        """What prune and compact would do, and why."""
        return reader.plan(self._state)

    def pressure(self) -> float:
        """Used ÷ usable; over 1 is too much."""
        return reader.pressure(self._state)

    def diff(self, old: View | int, new: View | None = None) -> ViewDiff:
        """How two views differ: the old one as a value, or as the number of an act after it."""
        earlier = self.view(before=old) if isinstance(old, int) else old
        return view_diff(earlier, self.view() if new is None else new)

    def search(self, query: str, *, most: int = 20) -> list[Found]:
        """Where words were said, shown or not: exact matches first, then the newest."""
        return reader.search(self._state, query, most)

    def recall(self, name: str) -> str:
        """The content behind a handle, hidden or not."""
        return reader.recall(self._state, name)

    def export(self, *, reverted: bool = True) -> Transcript:
        """The session as `opencode export` writes it, with its marks.

        What reverts hide is part of it, and named in `info`; `reverted=False` leaves it out.
        """
        return reader.export(self._state, reverted=reverted)

    # --- what keeps it small ---

    def fit(self) -> Operation | None:
        """Bring the view into the window: prune, and compact only where that is not enough.

        A compaction that is queued goes first. None where nothing had to be done.
        """
        return compactor.run(self._state, compactor.fit(self._state))

    def prune(self) -> Operation | None:
        """Hide old tool outputs by marks; None where there is nothing to hide."""
        return operations.prune(self._state)

    def compact(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        summary: str | None = None,
        *,
        instructions: str = "",
        auto: bool = False,
        overflow: bool = False,
        tokens: Tokens | None = None,
        act: int | None = None,
        target: int | None = None,
    ) -> Operation | None:
        """Fold the older part of the session: a summary stands for it from now on.

        A model writes the summary if one is set and answers, else it is a digest; `instructions`
        say what either shall look at most. Or the summary is the caller's own. With `act`, only
        the queued compaction of that number is completed. `target` is the tokens that the view
        shall have. None where a hook forbids it, or where it is automatic and the policy is not.
        """
        steps = compactor.compact(
            self._state,
            summary,
            tokens,
            auto=auto,
            overflow=overflow,
            instructions=instructions,
            act=act,
            target=target,
        )
        return compactor.run(self._state, steps)

    def queue(
        self, *, auto: bool = False, overflow: bool = False, instructions: str = ""
    ) -> Operation | None:
        """Queue a compaction by a marker; the one that is queued already, if one is.

        None where a hook forbids it, or where it is automatic and the policy is not.
        """
        wishes = {"auto": auto, "overflow": overflow, "instructions": instructions}
        return operations.queue(self._state, compactor.request(self._state, **wishes))

    def pending(self) -> Operation | None:
        """The compaction that is queued, if one is."""
        return operations.pending(self._state)

    def cancel(self, reason: str = "cancelled") -> Operation | None:
        """Give a queued compaction up: it is never shown, and never tried again."""
        return operations.cancel(self._state, reason)

    def abort(self) -> None:
        """Give up the compaction that is being made, from any thread; its marker is cancelled."""
        self._state.aborted.set()

    def switch(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Operation]:
        """Go on with another model; where its window is too small, the old one compacts first."""
        return compactor.run(self._state, compactor.switch(self._state, model, window, output))

    def recover(self, error: str | BaseException) -> bool:
        """Make the view shorter after a refusal for length; False where the error is another.

        The window that the refusal states holds from now on; where it states none, or none that
        is smaller, the provider counts more tokens than we do, and a smaller one is believed in.
        Raises what `compact` raises where nothing can be folded any more.
        """
        return compactor.run(self._state, compactor.recover(self._state, error))

    # --- what was done ---

    def acts(self) -> list[Operation]:
        """The prunes, pivots and reverts so far, oldest first."""
        return self._state.store.acts(self._state.key)

    def undo(self, act: int | None = None) -> Operation:
        """Take back the latest prune, pivot or revert, or the one of this number."""
        return operations.take_back(self._state, act, undone=True)

    def redo(self, act: int | None = None) -> Operation:
        """Put in force again what was undone last, or the act of this number."""
        return operations.take_back(self._state, act, undone=False)

    def revert(self, message: str) -> Operation:
        """Go back to a message: what came after it is hidden, what was folded since is shown."""
        return operations.revert(self._state, message)

    def fork(self, message: str | None = None, *, session: str | None = None) -> "Session":
        """A new session that begins as this one is, or was at a message."""
        state = self._state
        with state.lock:
            place = None if message is None else state.place(message)
            name = state.maker.make_id("ses") if session is None else checked_id(session)
            row = state.store.fork(state.key, name, place)
        fork = open_beside(self, row)
        other = state_of(fork)
        other.fixed, other.system, other.tools = state.fixed, state.system, state.tools
        return fork

    # --- what happens ---

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = ()) -> Callable[[], None]:
        """Be told of events in this process; the function given back ends that.

        A kind that ends with a dot stands for all that begin with it.
        """
        return self._state.bus.subscribe(subscriber, known_kinds(kinds))

    def publish(self, kind: str, **data: object) -> None:
        """Tell subscribers of something that is not kept."""
        compactor.publish(self._state, kind, data)

    def events(self, after: int = 0, most: int = 1_000) -> list[Event]:
        """What happened after an event, in order, whoever did it."""
        return self._state.store.events(self._state.row, after, most)

    def follow(self, after: int = 0, *, seconds: float | None = None) -> Iterator[Event]:
        """Every event after one, as they come; ends when none has come for so many seconds."""
        for step in reader.poll(self._state, after, seconds):
            if isinstance(step, list):
                yield from step
            else:
                time.sleep(step)

    # --- who writes ---

    def release(self) -> None:
        """Let others write; the next write here asks for the lease again."""
        self._state.release()

    def close(self) -> None:
        """Give the lease back and let the store go."""
        self._state.close()

    # --- the async forms: most run the blocking one in a thread ---

    aconfigure = threaded(configure)
    auser = threaded(user)
    arecord = threaded(record)
    aextend = threaded(extend)
    aresult = threaded(result)
    aopen_calls = threaded(open_calls)
    aview = threaded(view)
    aplan = threaded(plan)
    apressure = threaded(pressure)
    adiff = threaded(diff)
    asearch = threaded(search)
    arecall = threaded(recall)
    aexport = threaded(export)
    aprune = threaded(prune)
    aqueue = threaded(queue)
    apending = threaded(pending)
    acancel = threaded(cancel)
    aabort = threaded(abort)
    aacts = threaded(acts)
    aundo = threaded(undo)
    aredo = threaded(redo)
    arevert = threaded(revert)
    afork = threaded(fork)
    apublish = threaded(publish)
    aevents = threaded(events)
    arelease = threaded(release)

    @overload
    async def amessages(self) -> tuple[PromptMessage, ...]: ...
    @overload
    async def amessages(self, wire: str) -> list[Json]: ...
    async def amessages(self, wire: str | None = None) -> tuple[PromptMessage, ...] | list[Json]:
        """`messages`, async."""
        name = None if wire is None else wire_named(wire).name
        await compactor.arun(self._state, compactor.fit(self._state))
        return await asyncio.to_thread(compactor.sent, self._state, name)

    async def afit(self) -> Operation | None:
        """`fit`, async."""
        return await compactor.arun(self._state, compactor.fit(self._state))

    async def acompact(  # noqa: PLR0913 - the same
        self,
        summary: str | None = None,
        *,
        instructions: str = "",
        auto: bool = False,
        overflow: bool = False,
        tokens: Tokens | None = None,
        act: int | None = None,
        target: int | None = None,
    ) -> Operation | None:
        """`compact`, async: the model is asked in the caller's own event loop."""
        steps = compactor.compact(
            self._state,
            summary,
            tokens,
            auto=auto,
            overflow=overflow,
            instructions=instructions,
            act=act,
            target=target,
        )
        return await compactor.arun(self._state, steps)

    async def aswitch(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Operation]:
        """`switch`, async."""
        steps = compactor.switch(self._state, model, window, output)
        return await compactor.arun(self._state, steps)

    async def arecover(self, error: str | BaseException) -> bool:
        """`recover`, async."""
        return await compactor.arun(self._state, compactor.recover(self._state, error))

    async def afollow(
        self, after: int = 0, *, seconds: float | None = None
    ) -> AsyncIterator[Event]:
        """`follow`, async."""
        steps = reader.poll(self._state, after, seconds)
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            if isinstance(step, list):
                for event in step:
                    yield event
            else:
                await asyncio.sleep(step)

    async def aclose(self) -> None:
        """`close`, async."""
        await asyncio.to_thread(self.close)


def state_of(session: Session) -> SessionState:
    """The state of a session, for modules that do more with it than its public methods do."""
    return session._state  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def open_beside(session: Session, row: SessionRow) -> Session:
    """Another session of the same store, set as this one is."""
    setup = state_of(session).setup
    settings = state_of(session).settings
    wait = max(settings.wait_seconds, 1.0)
    store = Store.open(setup.where, durable=settings.durable, wait=wait)
    return Session(row, setup._replace(store=store, settings=settings))
