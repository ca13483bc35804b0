"""The public `Session` class: all messages of a conversation, and the view that fits the model.

`Session` only delegates: `state` keeps what lasts between calls; `reader`, `writer`, `operations`,
`compactor` and `streaming` do the work. Each method has an async form whose name starts with `a`.
Most of these run the blocking method in a thread, so both forms may be mixed on one session.
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
from foldmark.model.events import Event, check_kinds
from foldmark.model.messages import FilePart, Message, Tokens, Transcript
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import PromptMessage, ToolDeclaration
from foldmark.model.values import Json
from foldmark.policy import Policy
from foldmark.store.rows import SessionRow
from foldmark.store.search import SearchHit
from foldmark.store.sqlite import COMPANION_SUFFIXES
from foldmark.store.store import Store, check_session_id
from foldmark.summary.fallback import declared_tokens
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.limits import Limit
from foldmark.wire.codec import codec_named

from . import compactor, operations, reader, streaming, writer
from .bus import Subscriber
from .closing import AsyncClosing, Closing
from .message_builder import Content
from .state import SessionSetup, SessionState
from .view_diff import ViewDiff, view_diff
from .writer import OpenCall

C = TypeVar("C")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


def threaded(
    call: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The async form of a blocking method, which runs in a thread."""

    @wraps(call)
    async def run(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(call, self, *args, **kwargs)

    return run


class Session(Closing, AsyncClosing):
    """All messages of one conversation, and the view of them that fits the model's window."""

    def __init__(self, row: SessionRow, setup: SessionSetup) -> None:
        """Open a stored session; use `foldmark.open` instead."""
        self._state = SessionState(row, setup)

    def __repr__(self) -> str:
        """The session's id and its store."""
        return f"<Session {self.id} in {self._state.store.name}>"

    # --- properties ---

    @property
    def id(self) -> str:
        """The id of the session in its store."""
        return self._state.id

    @property
    def info(self) -> SessionRow:
        """The stored data about the session, such as its title, except for its messages."""
        return self._state.store.row(self._state.key)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the store, or () if the store is a server."""
        location = str(self._state.setup.where)
        suffixes = () if "://" in location else ("", *COMPANION_SUFFIXES)
        return tuple(Path(location + suffix) for suffix in suffixes)

    @property
    def policy(self) -> Policy:
        """The rules by which the session is pruned and compacted."""
        return self._state.policy

    @property
    def model(self) -> str:
        """The name of the model that the session is sent to, or "" if none is set."""
        return self._state.model

    @property
    def limit(self) -> Limit | None:
        """The model's token limits, or None if its context window is unknown."""
        return self._state.limit

    @property
    def usable(self) -> int:
        """The tokens that a request may use of the window, or 0 if the window is unknown."""
        return self._state.usable

    @property
    def tokens(self) -> int:
        """The tokens of the next request; by default the larger of measured and estimated."""
        return self._state.tokens

    @property
    def system(self) -> str:
        """The system prompt of every request, or "" if it was not given."""
        return self._state.system

    @property
    def tools(self) -> tuple[ToolDeclaration, ...]:
        """The tools of every request, or () if they were not given."""
        return self._state.tools

    @property
    def fixed_tokens(self) -> int:
        """The tokens of the system prompt and the tools, which every request contains."""
        return self._state.fixed_tokens

    @fixed_tokens.setter
    def fixed_tokens(self, tokens: int) -> None:
        self._state.fixed_tokens = tokens

    def configure(
        self,
        *,
        system: str,
        tools: Iterable[ToolDeclaration],
        summarizer: Summarizer | None = None,
        focus: str | None = None,
    ) -> None:
        """Set the system prompt and the tools of every request, and the default summarizer.

        `focus` is what summaries emphasize unless a compaction has its own instructions.
        """
        state = self._state
        with state.lock:
            state.system, state.tools = system, tuple(tools)
            state.fixed_tokens = declared_tokens(state.system, state.tools, state.count)
            state.default_summarizer = summarizer
            state.focus = state.focus if focus is None else focus

    # --- writing messages ---

    def user(self, content: Content, **info: Any) -> Message:
        """Append a message of the user: a text, a list of parts, or a `Message`."""
        return writer.append(self._state, self._state.builder.user(content, info))

    def record(
        self,
        reply: object,
        *,
        tokens: Tokens | None = None,
        finish: str | None = None,
        api: str | None = None,
        **info: Any,
    ) -> Message:
        """Append a model's reply: a provider's response, a text, a list of parts, or a `Message`.

        A response is an object of a provider's SDK or its JSON; token usage is read from it.
        `api` names its API format, such as "anthropic", and is detected if not given.
        """
        usage = {"tokens": tokens, "finish": finish}
        measured = {name: value for name, value in usage.items() if value is not None}
        return writer.record(self._state, reply, api, info | measured)

    def record_stream(self, stream: Iterable[C], api: str | None = None) -> Generator[C]:
        """Yield the chunks of a client's stream unchanged, then record the whole reply.

            for chunk in session.record_stream(client.chat.completions.create(..., stream=True)):
                ...

        If the loop ends early or the stream raises, the partial reply is recorded, and the error
        propagates. Chunks that report an error are yielded like all others. `api` names the API
        format, such as "anthropic", and is detected if not given.
        """
        return streaming.record_stream(self._state, stream, api)

    def arecord_stream(
        self, stream: AsyncIterable[C], api: str | None = None
    ) -> streaming.StreamRecording[C]:
        """Async form of `record_stream`.

            chunks = await client.responses.create(..., stream=True)
            async for chunk in session.arecord_stream(chunks):
                ...

        If you assign the result to a variable and may leave the loop early, call its `aclose` or
        use `async with`.
        """
        return streaming.arecord_stream(self._state, stream, api)

    def extend(self, messages: Iterable[object], api: str | None = None) -> list[Message]:
        """Append a list of messages in an API format, tool results included: all or none.

        `api` names the API format, such as "openai-chat", and is detected if not given. If the
        session is empty, a leading system prompt becomes the session's own.
        """
        return writer.extend(self._state, messages, api)

    def result(
        self,
        call_id: str,
        output: str,
        *,
        error: bool = False,
        files: Sequence[FilePart] = (),
        metadata: Json | None = None,
    ) -> Message:
        """Record the output of a tool call, even if the call was summarized meanwhile.

        Raises BadInput if no call with this id waits for a result.
        """
        return writer.result(
            self._state, call_id, output, error=error, files=files, metadata=metadata
        )

    def open_calls(self) -> list[OpenCall]:
        """The tool calls without a result, oldest first, including summarized ones."""
        return writer.open_calls(self._state)

    # --- reading ---

    @overload
    def messages(self) -> tuple[PromptMessage, ...]: ...
    @overload
    def messages(self, api: str) -> list[Json]: ...
    def messages(self, api: str | None = None) -> tuple[PromptMessage, ...] | list[Json]:
        """The messages to send to the model; prunes or compacts first if they do not fit.

        `api` is the API format, such as "anthropic"; without it, the messages are Foldmark's own
        objects. Raises CompactionStopped or WindowTooSmall if they cannot be made to fit.
        """
        name = None if api is None else codec_named(api).name
        compactor.run(self._state, compactor.fit(self._state))
        return compactor.view_messages(self._state, name)

    def view(self, *, before: int | None = None, after: int | None = None) -> View:
        """The view that the model gets now, or got just before or after an operation number."""
        return reader.view(self._state, after or before, after=after is not None)

    def plan(self) -> Plan:
        """What pruning and compacting would do now, and why; changes nothing."""
        return reader.plan(self._state)

    def pressure(self) -> float:
        """The share of the usable window that is in use; 1 or more means that it is full."""
        return reader.pressure(self._state)

    def diff(self, old: View | int, new: View | None = None) -> ViewDiff:
        """The messages that differ between two views; `new` is the current view by default.

        `old` is a view, or the number of an operation, which stands for the view before it.
        """
        earlier = self.view(before=old) if isinstance(old, int) else old
        return view_diff(earlier, self.view() if new is None else new)

    def search(self, query: str, *, limit: int = 20) -> list[SearchHit]:
        """Search all messages, including hidden ones: exact matches first, then newest first."""
        return reader.search(self._state, query, limit)

    def recall(self, name: str) -> str:
        """The full content behind a handle such as "h12", whether or not it is hidden."""
        return reader.recall(self._state, name)

    def export(self, *, reverted: bool = True) -> Transcript:
        """The whole session in the format of `opencode export`.

        Messages hidden by reverts are included and listed in `info`, unless `reverted=False`.
        """
        return reader.export(self._state, reverted=reverted)

    # --- pruning and compacting ---

    def fit(self) -> Operation | None:
        """Make the view fit the window: prune, then compact if pruning is not enough.

        A queued compaction is completed first. Returns the last operation, or None if the view
        fits already.
        """
        return compactor.run(self._state, compactor.fit(self._state))

    def prune(self) -> Operation | None:
        """Hide old tool outputs in the view; returns None if there is nothing to hide."""
        return operations.prune(self._state)

    def compact(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        summary: str | None = None,
        *,
        instructions: str = "",
        auto: bool = False,
        overflow: bool = False,
        tokens: Tokens | None = None,
        operation: int | None = None,
        target: int | None = None,
    ) -> Operation | None:
        """Replace older messages in the view by a summary; the stored messages do not change.

        The summary is `summary`, else written by the model, else a digest made without a model.
        `instructions` say what it should emphasize. `target` is the size of the new view in
        tokens. `operation` completes only the queued compaction of that number. Returns None if
        a hook forbids it, or if `auto` is true and the policy allows no automatic compaction.
        """
        options = {"auto": auto, "overflow": overflow, "operation": operation, "target": target}
        steps = compactor.compact(
            self._state, summary, tokens, instructions=instructions, **options
        )
        return compactor.run(self._state, steps)

    def queue(
        self, *, auto: bool = False, overflow: bool = False, instructions: str = ""
    ) -> Operation | None:
        """Queue a compaction for later, and return it or the one that is queued already.

        Returns None if a hook forbids it, or if `auto` is true and the policy allows no automatic
        compaction.
        """
        options = {"auto": auto, "overflow": overflow, "instructions": instructions}
        return operations.queue(self._state, compactor.new_request(self._state, **options))

    def pending(self) -> Operation | None:
        """The queued compaction, or None."""
        return operations.pending(self._state)

    def cancel(self, reason: str = "cancelled") -> Operation | None:
        """Cancel the queued compaction for good, and return it, or None if none is queued."""
        return operations.cancel(self._state, reason)

    def abort(self) -> None:
        """Stop the running compaction and cancel it; may be called from any thread."""
        self._state.aborted.set()

    def switch_model(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Operation]:
        """Continue with another model or window; the old model compacts first if needed.

        Returns the compactions. Raises WindowTooSmall if the view cannot be made to fit.
        """
        return compactor.run(self._state, compactor.switch(self._state, model, window, output))

    def recover(self, error: str | BaseException) -> bool:
        """Shorten the view after a provider refused a request as too long.

        Returns False, and does nothing, if `error` has another cause or the policy is not `auto`.
        The window stated by the error is used from now on; if it states no smaller one, the window
        shrinks by a tenth.
        Raises CompactionStopped or WindowTooSmall if the view cannot be shortened further.
        """
        return compactor.run(self._state, compactor.recover(self._state, error))

    # --- operations: undo, redo, revert, fork ---

    def operations(self) -> list[Operation]:
        """All prunes, compactions and reverts of the session, oldest first."""
        return self._state.store.operations(self._state.key)

    def undo(self, operation: int | None = None) -> Operation:
        """Undo the latest prune, compaction or revert, or the operation of this number."""
        return operations.undo_or_redo(self._state, operation, undo=True)

    def redo(self, operation: int | None = None) -> Operation:
        """Redo the operation that was undone last, or the operation of this number."""
        return operations.undo_or_redo(self._state, operation, undo=False)

    def revert(self, message: str) -> Operation:
        """Go back to a message, given by id or handle; later messages and operations are hidden."""
        return operations.revert(self._state, message)

    def fork(self, message: str | None = None, *, session: str | None = None) -> "Session":
        """Copy the session, whole or up to a message, into a new session in the same store."""
        state = self._state
        with state.lock:
            index = None if message is None else state.message_index(message)
            name = state.builder.make_id("ses") if session is None else check_session_id(session)
            row = state.store.fork(state.key, name, index)
        fork = open_beside(self, row)
        other = state_of(fork)
        other.fixed_tokens, other.system, other.tools = (
            state.fixed_tokens,
            state.system,
            state.tools,
        )
        return fork

    # --- events ---

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = ()) -> Callable[[], None]:
        """Call `subscriber` for each event in this process; call the returned function to stop.

        `kinds` limits the events; a kind that ends with a dot matches all that start with it.
        """
        return self._state.bus.subscribe(subscriber, check_kinds(kinds))

    def publish(self, kind: str, **data: object) -> None:
        """Send an event to subscribers without storing it."""
        compactor.publish(self._state, kind, data)

    def events(self, after: int = 0, limit: int = 1_000) -> list[Event]:
        """The stored events after event number `after`, oldest first, from all processes."""
        return self._state.store.events(self._state.row, after, limit)

    def follow(self, after: int = 0, *, seconds: float | None = None) -> Iterator[Event]:
        """Yield stored events as they occur; ends once none occurred for `seconds`."""
        for step in reader.poll(self._state, after, seconds):
            if isinstance(step, list):
                yield from step
            else:
                time.sleep(step)

    # --- the lease ---

    def release(self) -> None:
        """Release the lease so that other processes can write; the next write takes it again."""
        self._state.release()

    def close(self) -> None:
        """Release the lease and close the store."""
        self._state.close()

    # --- async forms; most run the blocking method in a thread ---

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
    aoperations = threaded(operations)
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
    async def amessages(self, api: str) -> list[Json]: ...
    async def amessages(self, api: str | None = None) -> tuple[PromptMessage, ...] | list[Json]:
        """Async form of `messages`; models are called in the caller's event loop."""
        name = None if api is None else codec_named(api).name
        await compactor.arun(self._state, compactor.fit(self._state))
        return await asyncio.to_thread(compactor.view_messages, self._state, name)

    async def afit(self) -> Operation | None:
        """Async form of `fit`; models are called in the caller's event loop."""
        return await compactor.arun(self._state, compactor.fit(self._state))

    async def acompact(  # noqa: PLR0913 - the same
        self,
        summary: str | None = None,
        *,
        instructions: str = "",
        auto: bool = False,
        overflow: bool = False,
        tokens: Tokens | None = None,
        operation: int | None = None,
        target: int | None = None,
    ) -> Operation | None:
        """Async form of `compact`; models are called in the caller's event loop."""
        options = {"auto": auto, "overflow": overflow, "operation": operation, "target": target}
        steps = compactor.compact(
            self._state, summary, tokens, instructions=instructions, **options
        )
        return await compactor.arun(self._state, steps)

    async def aswitch_model(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Operation]:
        """Async form of `switch_model`."""
        steps = compactor.switch(self._state, model, window, output)
        return await compactor.arun(self._state, steps)

    async def arecover(self, error: str | BaseException) -> bool:
        """Async form of `recover`."""
        return await compactor.arun(self._state, compactor.recover(self._state, error))

    async def afollow(
        self, after: int = 0, *, seconds: float | None = None
    ) -> AsyncIterator[Event]:
        """Async form of `follow`."""
        steps = reader.poll(self._state, after, seconds)
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            if isinstance(step, list):
                for event in step:
                    yield event
            else:
                await asyncio.sleep(step)

    async def aclose(self) -> None:
        """Async form of `close`."""
        await asyncio.to_thread(self.close)


def state_of(session: Session) -> SessionState:
    """The internal state of a session, for modules that need more than its public methods."""
    return session._state  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def open_beside(session: Session, row: SessionRow) -> Session:
    """Open another session of the same store with the same settings."""
    setup = state_of(session).setup
    settings = state_of(session).settings
    wait = max(settings.wait_seconds, 1.0)
    store = Store.open(setup.where, durable=settings.durable, wait=wait)
    return Session(row, setup._replace(store=store, settings=settings))
