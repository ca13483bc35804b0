"""Pruning and compacting a session, and taking that back. Each call is one transaction."""

from collections.abc import Callable
from typing import overload

from msgspec import UNSET
from msgspec.structs import replace

from foldmark import events
from foldmark.acts import Act
from foldmark.errors import BadInput
from foldmark.io.change import Change
from foldmark.log import marker_part
from foldmark.messages import Tokens
from foldmark.pivot import marker_message, summary_message
from foldmark.plan import check_window, session_fold
from foldmark.prune import Prune
from foldmark.shown import AnyShown
from foldmark.sizes import message_sizes
from foldmark.values import Json
from foldmark.view import view_start
from foldmark.wire import request, wire_named

from .hooks import Compaction
from .saying import Saying

# Where no limit is known, a pivot keeps what it would keep in a window of this size.
USUAL_ROOM = 200_000


class Folding(Saying):
    """What shapes a session's view."""

    @overload
    def messages(self) -> tuple[AnyShown, ...]: ...
    @overload
    def messages(self, wire: str) -> list[Json]: ...
    def messages(self, wire: str | None = None) -> tuple[AnyShown, ...] | list[Json]:
        """What to send to the model, on a provider's wire; pruned first, if the window is full."""
        name = None if wire is None else wire_named(wire).name
        with self._lock:
            self._fresh()
            if self.limit is not None and self.plan(explain=False).overflow:
                self.prune()
            shown = self.view().messages
            origin = self._row.info.origin
        if name is None:
            return shown
        return request(shown, name, (origin.system or "") if origin else "")

    def prune(self) -> Act | None:
        """Hide old tool outputs by marks; None where there is nothing to hide."""
        with self._lock:
            self._fresh()
            planned = self._planned()
            if not planned.prune:
                return None
            kept = self._hooks.kept(planned)  # before the transaction: others need not wait for it
            number = self._write(lambda change: self._prune(change, kept))
            return None if number is None else self._act(number)

    def _planned(self) -> Prune:
        start = view_start(self._log, self.policy.view)
        return self._viewer.pruner.plan(start=start, usable=self.room, explain=False)

    def _prune(self, change: Change, kept: set[int]) -> int | None:
        ordinals = [ordinal for ordinal in self._planned().ordinals if ordinal not in kept]
        if not ordinals:
            return None
        before = self._viewer.tokens
        self._log.mark(ordinals, at=change.at)
        after = self._viewer.tokens
        number = change.prune(ordinals, change.at, before=before, after=after)
        change.event(events.PRUNED, act=number, parts=len(ordinals), before=before, after=after)
        return number

    def compact(
        self,
        summary: str | None = None,
        *,
        auto: bool = False,
        overflow: bool = False,
        tokens: Tokens | None = None,
        act: int | None = None,
    ) -> Act | None:
        """Queue a compaction, or with a summary complete it: the queued one, else a new one.

        With `act`, only the queued one of that number. None where a hook forbids it, or where it
        is automatic and the policy is not.
        """
        if summary is not None and not summary.strip():
            raise BadInput("a summary must not be empty")
        with self._lock:
            asked = self._asked(auto=auto, overflow=overflow)
            if asked is None:
                return None
            if summary is None:
                return self._act(self._write(lambda change: self._queued(change, asked)))
            return self._act(self._write(self._pivot_job(summary, asked, tokens, act)))

    def pending(self) -> Act | None:
        """The compaction that is queued, if one is."""
        acts = self._store.acts(self._key, "pivot")
        # What a newer pivot has folded is not waited for, until that one is taken back.
        folded = max((act.marker or 0 for act in acts if act.in_force), default=-1)
        waiting = [act for act in acts if _waits(act) and (act.marker or 0) > folded]
        return waiting[-1] if waiting else None

    def cancel(self, reason: str = "cancelled") -> Act | None:
        """Give a queued compaction up: it is never shown, and never tried again."""

        def job(change: Change) -> int | None:
            pending = self.pending()
            if pending is None:
                return None
            change.change_act(pending.number, failed=reason)
            change.event(events.FAILED, act=pending.number, reason=reason)
            return pending.number

        with self._lock:
            number = self._write(job) if self.pending() else None
            return None if number is None else self._act(number)

    def _asked(self, *, auto: bool, overflow: bool) -> Compaction | None:
        """The compaction as hooks leave it; one that is queued already is not asked for again."""
        asked = Compaction(session=self.id, auto=auto, overflow=overflow, tokens=self.tokens)
        if self.pending() is not None:
            return asked
        if auto and not self.policy.auto:
            return None
        changed, veto = self._hooks.compaction(asked)
        if veto is None:
            return changed
        self._write(lambda change: change.event(events.FAILED, reason=f"vetoed: {veto}"))
        return None

    def _queued(self, change: Change, asked: Compaction) -> int:
        """The compaction that is queued, by another process perhaps, or a new one."""
        pending = self.pending()
        return pending.number if pending else self._queue(change, asked)

    def _queue(self, change: Change, asked: Compaction) -> int:
        marker = marker_message(self.maker.made(self.id), auto=asked.auto, overflow=asked.overflow)
        sizes = message_sizes(marker, self._count)
        before = self._viewer.tokens
        number = change.act("pivot", marker=change.places, before=before)
        change.append(marker, self._kept_sizes(marker, sizes))
        self._log.append(marker, sizes)
        # Who makes the summary, here or elsewhere, finds with the event what hooks wished.
        wishes = {"context": list(asked.context), "prompt": asked.prompt}
        change.event(
            events.QUEUED,
            act=number,
            message=marker.id,
            auto=asked.auto,
            before=before,
            **{name: wish for name, wish in wishes.items() if wish},
        )
        return number

    def _pivot_job(
        self, summary: str, asked: Compaction, tokens: Tokens | None, act: int | None
    ) -> Callable[[Change], int]:
        def job(change: Change) -> int:
            before = self._viewer.tokens
            room = self.room or USUAL_ROOM
            if self.limit is not None and self.policy.tail.capped:
                check_window(self._log, self.policy, room, fixed=self.fixed)
            fold = session_fold(self._viewer, room, fixed=self.fixed, overflow=asked.overflow)
            waiting = self.pending()  # asked here, where no other process can change it
            if act is not None and (waiting is None or waiting.number != act):
                raise BadInput(f"compaction {act} of session {self.id} is not waiting any more")
            if waiting is None:
                number = self._queue(change, asked)
                marker = change.places - 1
            else:
                number, marker = waiting.number, waiting.marker or 0
            if not change.claim(number, self._holder):
                raise BadInput(f"compaction {number} of session {self.id} is another's, or done")
            change.event(events.STARTED, act=number)
            tail_id = fold.tail_start
            tail = None if tail_id is None else self._log.place(tail_id, below=marker)
            self._name_tail(change, marker, None if tail is None else tail_id)
            start = marker if tail is None else tail
            memory = self._log.requests.memory(start)
            message = summary_message(
                self.maker.made(self.id),
                summary,
                marker=self._log.entries[marker].message.id,
                model=self.maker.model_ref(self.model),
                tokens=tokens,
            )
            sizes = self._kept_sizes(message, message_sizes(message, self._count))
            place = change.append(message, sizes)
            change.change_act(
                number, memory, marker=marker, summary=place, tail=tail,
                tail_id=None if tail is None else tail_id, before=before,
            )  # fmt: skip
            change.settled = change.places
            change.index_all()  # what is folded now is no longer at hand to be looked through
            after = self._load_changed(change)
            change.change_act(number, after=after)
            change.event(
                events.COMPACTED, act=number, message=message.id, before=before, after=after
            )
            return number

        return job

    def _name_tail(self, change: Change, marker: int, tail_id: str | None) -> None:
        """Write into the marker where its tail begins."""
        entry = self._log.entries[marker]
        part = marker_part(entry.message)
        if part is None or tail_id is None:
            return
        named = replace(part, tail_start_id=tail_id or UNSET)
        parts = tuple(named if held is part else held for held in entry.message.parts)
        newer = replace(entry.message, parts=parts)
        sizes = self._kept_sizes(newer, message_sizes(newer, self._count))
        change.put(marker, entry.ordinal, entry.message, newer, sizes)

    # --- taking back ---

    def undo(self, act: int | None = None) -> Act:
        """Take back the latest prune, pivot or revert, or the one of this number."""
        return self._take_back(act, undone=True)

    def redo(self, act: int | None = None) -> Act:
        """Put in force again what was undone last, or the act of this number."""
        return self._take_back(act, undone=False)

    def _take_back(self, wanted: int | None, *, undone: bool) -> Act:
        def job(change: Change) -> int:
            act = self._to_take_back(wanted, undone=undone)
            before = self._viewer.tokens
            change.take_back(act.number, undone=undone)
            after = self._load_changed(change)
            kind = events.UNDONE if undone else events.REDONE
            change.event(kind, act=act.number, what=act.kind, before=before, after=after)
            return act.number

        with self._lock:
            self._to_take_back(wanted, undone=undone)  # refuse before a lease is asked for
            return self._act(self._write(job))

    def _to_take_back(self, wanted: int | None, *, undone: bool) -> Act:
        if wanted is not None:
            act = self._act(wanted)
            if act.in_force if undone else _can_be_redone(act):
                return act
            raise BadInput(f"act {wanted} is {act.state}: there is nothing to take back")
        acts = self.acts()
        if undone:
            found = sorted((act for act in acts if act.in_force), key=lambda act: act.done)
        else:
            found = sorted(filter(_can_be_redone, acts), key=lambda act: act.undone or 0)
        if not found:
            raise BadInput(f"session {self.id}: there is nothing to {'undo' if undone else 'redo'}")
        return found[-1]

    def revert(self, message: str) -> Act:
        """Go back to a message: what came after it is hidden, what was folded since is shown."""

        def job(change: Change) -> int:
            place = self._place(message, hidden=True)
            before = self._viewer.tokens
            number = change.revert(place)
            after = self._load_changed(change)
            change.change_act(number, before=before, after=after)
            change.event(events.REVERTED, act=number, message=message, before=before, after=after)
            return number

        with self._lock:
            self._place(message, hidden=True)
            return self._act(self._write(job))


def _can_be_redone(act: Act) -> bool:
    return act.undone is not None and act.reverted is None


def _waits(act: Act) -> bool:
    return act.state in {"queued", "claimed"}
