"""The session: every call in two forms, blocking, and async with `a` in front of its name.

The async forms run the blocking ones in a thread; the two may be mixed on one session.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from msgspec import UNSET

from foldmark.compaction.plan import Plan
from foldmark.log.view import View
from foldmark.model.events import Event
from foldmark.model.messages import (
    AnyPart,
    FilePart,
    Message,
    SessionInfo,
    Time,
    Tokens,
    Transcript,
)
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Json
from foldmark.store.rows import SessionRow
from foldmark.store.store import Store, checked_id, forked_info
from foldmark.summary.protocol import Summarizer
from foldmark.wire.codec import Reader

from .closing import AsyncClosing, Closing
from .diff import ViewDiff
from .noting import OpenCall
from .reader import Found
from .streaming import Listening

M = TypeVar("M")
P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    return await asyncio.to_thread(call, *args, **named)


class Session(Listening, Closing, AsyncClosing):
    """A session: everything that was said, and the view of it that fits."""

    def __repr__(self) -> str:
        """Which one it is."""
        return f"<Session {self.id} in {self._store.name}>"

    def fork(self, message: str | None = None, *, session: str | None = None) -> "Session":
        """A new session that begins as this one is, or was at a message."""
        with self._lock:
            place = None if message is None else self._place(message)
            name = self.maker.session_id() if session is None else checked_id(session)
            info = forked_info(self.info.info, name, self.maker.now())
            row = self._store.fork(self._key, info, place)
        fork = self._beside(row)
        fork.fixed, fork.system, fork.tools = self.fixed, self.system, self.tools
        return fork

    def child(self, title: str = "") -> "Session":
        """A new session in the same store for a part of the work of this one."""
        now = self.maker.now()
        info = SessionInfo(
            id=self.maker.session_id(),
            parent_id=self.id,
            title=title or UNSET,
            time=Time(created=now, updated=now),
        )
        return self._beside(self._store.create(info, estimate=self.policy.estimate))

    def _beside(self, row: SessionRow) -> "Session":
        """Another session of the store, set as this one is."""
        settings = self._settings
        wait = max(settings.wait_seconds, 1.0)
        store = Store.open(self._where, durable=settings.durable, wait=wait)
        session = Session(store, row, settings, self.policy)
        session.prepare(self._where, self._given_hooks, self._given_summarizer)
        return session

    # --- the same, async ---

    async def auser(self, content: str | Sequence[AnyPart] | Message, **info: Any) -> Message:
        """`user`, async."""
        return await _in_thread(self.user, content, **info)

    async def arecord(
        self,
        reply: object,
        *,
        tokens: Tokens | None = None,
        finish: str | None = None,
        wire: str | None = None,
        **info: Any,
    ) -> Message:
        """`record`, async."""
        return await _in_thread(self.record, reply, tokens=tokens, finish=finish, wire=wire, **info)

    async def atake(self, messages: Iterable[object], wire: str | None = None) -> list[Message]:
        """`take`, async."""
        return await _in_thread(self.take, messages, wire)

    async def atake_read(self, messages: Sequence[M], reader: Reader[M]) -> list[Message]:
        """`take_read`, async."""
        return await _in_thread(self.take_read, messages, reader)

    async def aresult(
        self,
        call_id: str,
        output: str,
        *,
        error: bool = False,
        files: Sequence[FilePart] = (),
        metadata: Json | None = None,
    ) -> Message:
        """`result`, async."""
        return await _in_thread(
            self.result, call_id, output, error=error, files=files, metadata=metadata
        )

    async def aupdate(self, message: Message) -> Message:
        """`update`, async."""
        return await _in_thread(self.update, message)

    async def aview(self, *, before: int | None = None) -> View:
        """`view`, async."""
        return await _in_thread(self.view, before=before)

    async def aplan(self, *, explain: bool = True) -> Plan:
        """`plan`, async."""
        return await _in_thread(self.plan, explain=explain)

    async def apressure(self) -> float:
        """`pressure`, async."""
        return await _in_thread(self.pressure)

    async def amay_continue(self) -> bool:
        """`may_continue`, async."""
        return await _in_thread(self.may_continue)

    async def aacts(self) -> list[Operation]:
        """`acts`, async."""
        return await _in_thread(self.acts)

    async def adiff(self, old: View | int, new: View | None = None) -> ViewDiff:
        """`diff`, async."""
        return await _in_thread(self.diff, old, new)

    async def asearch(self, query: str, *, most: int = 20) -> list[Found]:
        """`search`, async."""
        return await _in_thread(self.search, query, most=most)

    async def arecall(self, name: str) -> str:
        """`recall`, async."""
        return await _in_thread(self.recall, name)

    async def aexport(self, *, reverted: bool = True) -> Transcript:
        """`export`, async."""
        return await _in_thread(self.export, reverted=reverted)

    async def aprune(self) -> Operation | None:
        """`prune`, async."""
        return await _in_thread(self.prune)

    async def aqueue(
        self, *, auto: bool = False, overflow: bool = False, instructions: str = ""
    ) -> Operation | None:
        """`queue`, async."""
        return await _in_thread(self.queue, auto=auto, overflow=overflow, instructions=instructions)

    async def aswitch(
        self, model: str | None = None, *, window: int | None = None, output: int | None = None
    ) -> list[Operation]:
        """`switch`, async."""
        return await _in_thread(self.switch, model, window=window, output=output)

    async def arecover(self, error: str | BaseException) -> bool:
        """`recover`, async."""
        return await _in_thread(self.recover, error)

    async def aabort(self) -> None:
        """`abort`, async."""
        self.abort()

    async def apending(self) -> Operation | None:
        """`pending`, async."""
        return await _in_thread(self.pending)

    async def acancel(self, reason: str = "cancelled") -> Operation | None:
        """`cancel`, async."""
        return await _in_thread(self.cancel, reason)

    async def aundo(self, act: int | None = None) -> Operation:
        """`undo`, async."""
        return await _in_thread(self.undo, act)

    async def aredo(self, act: int | None = None) -> Operation:
        """`redo`, async."""
        return await _in_thread(self.redo, act)

    async def arevert(self, message: str) -> Operation:
        """`revert`, async."""
        return await _in_thread(self.revert, message)

    async def afork(self, message: str | None = None, *, session: str | None = None) -> "Session":
        """`fork`, async."""
        return await _in_thread(self.fork, message, session=session)

    async def achild(self, title: str = "") -> "Session":
        """`child`, async."""
        return await _in_thread(self.child, title)

    async def atell(self, kind: str, **data: object) -> None:
        """`tell`, async."""
        await _in_thread(self.tell, kind, **data)

    async def aequip(
        self, *, system: str, tools: Iterable[Declared], summarizer: Summarizer | None = None
    ) -> None:
        """`equip`, async."""
        await _in_thread(self.equip, system=system, tools=tools, summarizer=summarizer)

    async def aopen_calls(self) -> list[OpenCall]:
        """`open_calls`, async."""
        return await _in_thread(self.open_calls)

    async def anewest(self) -> Message | None:
        """`newest`, async."""
        return await _in_thread(self.newest)

    async def acost_of(self, act: Operation) -> float:
        """`cost_of`, async."""
        return await _in_thread(self.cost_of, act)

    async def afinish_step(self, message: str, snapshot: str) -> Message:
        """`finish_step`, async."""
        return await _in_thread(self.finish_step, message, snapshot)

    async def asummarise_turn(self, message: str, summary: Json) -> Message:
        """`summarise_turn`, async."""
        return await _in_thread(self.summarise_turn, message, summary)

    async def adescribe(
        self,
        *,
        title: str | None = None,
        summary: Json | None = None,
        directory: str | None = None,
    ) -> None:
        """`describe`, async."""
        await _in_thread(self.describe, title=title, summary=summary, directory=directory)

    async def aevents(self, after: int = 0, most: int = 1_000) -> list[Event]:
        """`events`, async."""
        return await _in_thread(self.events, after, most)

    async def aacquire(self) -> None:
        """`acquire`, async."""
        await _in_thread(self.acquire)

    async def arelease(self) -> None:
        """`release`, async."""
        await _in_thread(self.release)

    async def aclose(self) -> None:
        """`close`, async."""
        await _in_thread(self.close)

    async def afollow(
        self, after: int = 0, *, seconds: float | None = None
    ) -> AsyncIterator[Event]:
        """`follow`, async."""
        waited, pause = 0.0, 0.05
        while seconds is None or waited <= seconds:
            found = await self.aevents(after)
            for event in found:
                yield event
                after = event.number
            if found:
                waited, pause = 0.0, 0.05
            else:
                await asyncio.sleep(pause)
                waited, pause = waited + pause, min(pause * 1.5, 0.5)
