"""Compacting a session: who is asked for a summary, and what is done when the window is full.

While a model is waited for no lock is held: what is said meanwhile comes after the marker. Where
it ends badly, by an error, an abort or Ctrl-C, the marker is cancelled and nothing else is left.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple, overload

from msgspec.structs import replace

from foldmark.compaction.breaker import stop_reason, stopped
from foldmark.compaction.plan import tokens_used
from foldmark.compaction.situation import CompactionRequest, Situation, SummaryInstructions, prepare
from foldmark.errors import Aborted, BadInput, CompactionStopped, FoldmarkError, SessionOvertaken
from foldmark.log.carryover import open_request
from foldmark.log.log import marker_part
from foldmark.log.view import Viewer
from foldmark.model import events
from foldmark.model.messages import Message, Tokens
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Json
from foldmark.providers.background import uncut
from foldmark.providers.driver import adrive, drive
from foldmark.store.transaction import Change
from foldmark.summary.ladder import Summary, summarize
from foldmark.summary.protocol import ModelDialogue, Summarizer
from foldmark.tokens.budget import is_overflow
from foldmark.tokens.limits import Limit
from foldmark.wire.codec import wire_named
from foldmark.wire.formats import request

from .folding import Completion
from .hooks import Compaction
from .means import DIGEST, means
from .summarizing import Summarizing, Telling

_GLANCE = 0.02  # seconds between two looks at a lock


class Compacting(Summarizing):
    """What keeps a session's view within its window."""

    @overload
    def messages(self) -> tuple[PromptMessage, ...]: ...
    @overload
    def messages(self, wire: str) -> list[Json]: ...
    def messages(self, wire: str | None = None) -> tuple[PromptMessage, ...] | list[Json]:
        """What to send to the model, on a provider's wire; made to fit first, if it must be.

        Raises CompactionStopped or WindowTooSmall where it cannot be made to fit.
        """
        name = None if wire is None else wire_named(wire).name
        self.fit()
        return self._sent(name)

    @overload
    async def amessages(self) -> tuple[PromptMessage, ...]: ...
    @overload
    async def amessages(self, wire: str) -> list[Json]: ...
    async def amessages(self, wire: str | None = None) -> tuple[PromptMessage, ...] | list[Json]:
        """`messages`, async."""
        name = None if wire is None else wire_named(wire).name
        await self.afit()
        return await asyncio.to_thread(self._sent, name)

    def _sent(self, name: str | None) -> tuple[PromptMessage, ...] | list[Json]:
        with self._lock:
            shown = self.view().messages
            origin = self._row.info.origin
        if name is None:
            return shown
        return request(shown, name, (origin.system or "") if origin else "")

    def fit(self) -> Operation | None:
        """Bring the view into the window: prune, and compact only where that is not enough.

        A compaction that is queued goes first. None where nothing had to be done.
        """
        if (waiting := self.pending()) is not None:
            # One that is given up, as it frees nothing, does no harm where all fits without it.
            with suppress(CompactionStopped):
                act = self.compact(act=waiting.number)
                if act is not None and act.in_force:
                    return act
        act, wanted = self._pruned_to_fit()
        return act if wanted is None else self._compacted(wanted)

    async def afit(self) -> Operation | None:
        """`fit`, async."""
        if (waiting := await asyncio.to_thread(self.pending)) is not None:
            with suppress(CompactionStopped):
                act = await self.acompact(act=waiting.number)
                if act is not None and act.in_force:
                    return act
        act, wanted = await asyncio.to_thread(self._pruned_to_fit)
        return act if wanted is None else await self._acompacted(wanted)

    def _pruned_to_fit(self) -> "tuple[Operation | None, Wanted | None]":
        """Prune where that is enough; the prune, and the compaction that is still needed."""
        with self._lock:
            # At most steps there is room: a plan is made only where something must be done.
            if not self._is_full(self._fresh()):
                return None, None
            plan = self.plan(explain=False)
            act = self.prune() if plan.prune_is_enough else None
            # Hooks may have kept what was to go.
            if act is not None and not self._is_full_still():
                return act, None
            return act, Wanted(auto=True, seen=self._newest_pivot())

    def _is_full_still(self) -> bool:
        """Whether a prune was not enough; where only answers are measured, the next one tells."""
        return self.policy.window.preflight and self._is_full(self._fresh())

    def _is_full(self, viewer: Viewer) -> bool:
        if self.limit is None:
            return False
        used = tokens_used(viewer, fixed=self.fixed)
        return is_overflow(self.policy, used, self.limit, self.model)

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
        if summary is not None:
            return self._completed(summary, tokens, act, auto=auto, overflow=overflow)
        _check_target(target)
        seen = self._newest_pivot()
        return self._compacted(Wanted(auto, overflow, instructions, act, target, seen))

    def _compacted(self, wanted: "Wanted") -> Operation | None:
        if getattr(self._here, "depth", 0):
            # A subscriber, or another task of a loop: to wait here would be to wait for ever.
            raise BadInput(
                f"a compaction of session {self.id} is being made in this very thread; "
                "wait for its end, or use the async form"
            )
        with self._compacting, self._at_it():
            self._aborted.clear()
            try:
                begun = self._begun(wanted)
                if not isinstance(begun, _Begun):
                    return begun
                made = drive(begun.flow, begun.model, delta=begun.delta, aborted=self._aborted)
                return self._ended(begun, made)
            except BaseException as error:
                self._give_up(error)
                raise

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
        if summary is not None:
            return await asyncio.to_thread(
                self._completed, summary, tokens, act, auto=auto, overflow=overflow
            )
        _check_target(target)
        seen = await asyncio.to_thread(self._newest_pivot)
        wanted = Wanted(auto, overflow, instructions, act, target, seen)
        return await self._acompacted(wanted)

    async def _acompacted(self, wanted: "Wanted") -> Operation | None:
        async with _held(self._compacting):
            with self._at_it():
                self._aborted.clear()
                return await self._amade(wanted)

    async def _amade(self, wanted: "Wanted") -> Operation | None:
        try:
            begun = await uncut(self._begun, wanted)
            if not isinstance(begun, _Begun):
                return begun
            made = await adrive(begun.flow, begun.model, delta=begun.delta, aborted=self._aborted)
            return await uncut(self._ended, begun, made)
        except BaseException as error:
            # Not awaited: a cancelled task must not be cancelled once more on the way out.
            self._give_up(error)
            raise

    def abort(self) -> None:
        """Give up the compaction that is being made, from any thread; its marker is cancelled."""
        self._aborted.set()

    # --- one compaction, from its marker to its summary ---

    def _completed(
        self,
        summary: str,
        tokens: Tokens | None,
        act: int | None,
        *,
        auto: bool,
        overflow: bool,
    ) -> Operation | None:
        """A pivot with the caller's own summary."""
        if not summary.strip():
            raise BadInput("a summary must not be empty")
        with self._lock:
            asked = self._asked(auto=auto, overflow=overflow)
            if asked is None:
                return None
            made = Completion(text=summary, tokens=tokens, act=act)
            return self._act(self._write(self._pivot_job(made, asked)))

    def _begun(self, wanted: "Wanted") -> "_Begun | Operation | None":
        """The marker queued and claimed; or what else there is to return."""
        with self._at_it(), self._lock:
            self._fresh()
            waiting = self.pending()
            if wanted.act is not None and (waiting is None or waiting.number != wanted.act):
                return self._act(wanted.act)  # another thread or process was quicker
            if waiting is None:
                if (newer := self._newest_pivot()) > wanted.seen:
                    return self._act(newer)
                self._refuse_futile(wanted)
            asked = self._asked(
                auto=wanted.auto, overflow=wanted.overflow, instructions=wanted.instructions
            )
            if asked is None:
                return None
            act = self._act(self._write(lambda change: self._claimed(change, asked, wanted)))
            return self._begun_on(act, asked, wanted) if act.state == "claimed" else act

    def _newest_pivot(self) -> int:
        """The number of the newest pivot in force; who saw an older one has been overtaken."""
        acts = self._store.acts(self._key, "pivot")
        return max((act.number for act in acts if act.in_force), default=0)

    def _refuse_futile(self, wanted: "Wanted") -> None:
        """Raise, before anything is written, where it makes no sense to compact."""
        if self.policy.auto or not wanted.auto:
            ready = prepare(
                self._job(None, SummaryInstructions(), wanted, overflow=wanted.overflow)
            )
            if wanted.auto:
                self._refuse_thrash(ready)

    def _refuse_thrash(self, ready: Situation) -> None:
        reason = stop_reason(
            [act for act in self.acts() if self._was_automatic(act)],
            self._log,
            self.policy.compact,
            fixed=self.fixed,
            foreseen=ready.min_freed_share,
            read=self._folded_message,
        )
        if reason is not None:
            raise stopped(reason, self._viewer, usable=self.room, fixed=self.fixed)

    def _was_automatic(self, act: Operation) -> bool:
        """Whether a pivot came by itself: what the user did by hand is no thrashing."""
        if act.kind != "pivot" or act.marker is None:
            return False
        entry = self._log.entries.get(act.marker)
        message = entry.message if entry else self._folded_message(act.marker)
        part = marker_part(message) if message else None
        return part is not None and bool(part.auto)

    def _folded_message(self, place: int) -> Message | None:
        held = self._store.message_at(self._key, place)
        return None if held is None else held.message

    def _claimed(self, change: Change, asked: Compaction, wanted: "Wanted") -> int:
        """The compaction that is to be made now, or the one that was made meanwhile."""
        waiting = self.pending()
        if wanted.act is not None and (waiting is None or waiting.number != wanted.act):
            return wanted.act
        if waiting is None and (newer := self._newest_pivot()) > wanted.seen:
            return newer
        number = self._queued(change, asked)
        change.claim(number, self._holder)
        change.event(events.STARTED, act=number)
        return number

    def _begun_on(self, act: Operation, asked: Compaction, wanted: "Wanted") -> "_Begun":
        wish, told = self._wish(act, asked)
        marker = act.marker or 0
        ready = prepare(self._job(marker, wish, wanted, overflow=told.overflow))
        if told.auto:  # one that was queued has not been held against the breaker yet
            self._refuse_thrash(ready)
        model = self._summarizer()
        asked_means = means(
            self.policy.compact,
            model,
            model=self.model,
            limit=self.limit,
            overflowed=told.overflow,
        )
        mid_work = told.auto and open_request(self._log, marker) is not None
        return _Begun(
            act=act,
            flow=summarize(ready, asked_means),
            model=model,
            delta=self._telling(act),
            mid_work=mid_work,
        )

    def _wish(self, act: Operation, asked: Compaction) -> tuple[SummaryInstructions, Compaction]:
        """What was wished for when the compaction was queued, here or by another process."""
        entry = self._log.entries.get(act.marker or 0)
        part = marker_part(entry.message) if entry else None
        if part is not None:
            asked = replace(asked, auto=bool(part.auto), overflow=bool(part.overflow))
        data = self._store.wishes(self._key, act.number)
        wish = SummaryInstructions(
            instructions=asked.instructions or str(data.get("instructions") or ""),
            context=tuple(map(str, data.get("context") or asked.context)),
            prompt=data.get("prompt") or asked.prompt,
        )
        return wish, asked

    def _job(
        self, marker: int | None, wish: SummaryInstructions, wanted: "Wanted", *, overflow: bool
    ) -> CompactionRequest:
        limit, model = wanted.into or (self.limit, self.model)
        return CompactionRequest(
            viewer=self._viewer,
            limit=limit,
            model=model,
            fixed=self.fixed,
            marker=marker,
            overflow=overflow,
            target=wanted.target,
            wish=wish,
            system=self.system,
            tools=self.tools,
        )

    def _ended(self, begun: "_Begun", made: Summary) -> Operation:
        """The pivot made of a summary."""
        begun.delta.end()
        if self._aborted.is_set():
            raise Aborted
        resume = begun.mid_work and self.may_continue()
        by_model = made.how != DIGEST and begun.model is not None
        completion = Completion(
            text=made.text,
            tokens=made.spent.tokens,
            cost=made.spent.cost,
            model=begun.model.name if by_model and begun.model else "",
            act=begun.act.number,
            claimed=True,
            fold=made.fold,
            words=made.words,
            resume=resume,
            told={"how": made.how, "calls": made.spent.calls, "flaws": list(made.spent.flaws)},
        )
        asked = Compaction(session=self.id, auto=False, overflow=False, tokens=0)
        with self._at_it(), self._lock:
            return self._act(self._write(self._pivot_job(completion, asked)))

    def _give_up(self, error: BaseException) -> None:
        """Cancel the marker; where even that cannot be written, it waits for who comes next."""
        reason = str(error) or type(error).__name__

        def job(change: Change) -> None:
            for act in self._own():
                change.change_act(act.number, failed=reason)
                change.event(events.FAILED, act=act.number, reason=reason)

        with self._at_it(), self._lock, suppress(FoldmarkError):
            if isinstance(error, SessionOvertaken) or not self._own():
                return
            try:
                self._write(job)
            except SessionOvertaken:
                self._held = self._is_lost = True  # the caller is told with the next write

    def _own(self) -> list[Operation]:
        """The compactions that were begun here and not brought to an end."""
        acts = self._store.acts(self._key, "pivot")
        return [act for act in acts if act.state == "claimed" and act.claimed == self._holder]


class Wanted(NamedTuple):
    """What the caller of `compact` asked for."""

    auto: bool = False
    overflow: bool = False
    instructions: str = ""
    act: int | None = None
    target: int | None = None
    seen: int = 0  # the newest pivot when it was asked for: a newer one is taken in its stead
    into: tuple[Limit, str] | None = None  # the window of another model that it shall fit


class _Begun(NamedTuple):
    """A compaction whose marker is queued and claimed."""

    act: Operation
    flow: ModelDialogue[Summary]
    model: Summarizer | None
    delta: Telling
    mid_work: bool  # the turn was cut, and may go on by itself


def _check_target(target: int | None) -> None:
    if target is not None and target < 1:
        raise BadInput(f"the target is {target}; it must be a number of tokens")


@asynccontextmanager
async def _held(lock: threading.Lock) -> AsyncGenerator[None]:
    """A lock of threads, waited for without keeping the event loop from its work."""
    while not lock.acquire(blocking=False):
        await asyncio.sleep(_GLANCE)
    try:
        yield
    finally:
        lock.release()
