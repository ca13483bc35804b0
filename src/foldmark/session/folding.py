"""Pruning and compacting a session, and taking that back. Each call is one transaction."""

from collections.abc import Callable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from foldmark.compaction.pivot import marker_message, summary_message
from foldmark.compaction.plan import check_window, session_fold
from foldmark.compaction.prune import Prune, prune_plan
from foldmark.compaction.situation import USUAL_ROOM
from foldmark.compaction.tail import Fold
from foldmark.errors import BadInput
from foldmark.log.log import marker_part
from foldmark.log.view import view_start
from foldmark.model import events
from foldmark.model.messages import AnyPart, FilePart, Message, TextPart, Tokens, file_name
from foldmark.model.operations import Operation
from foldmark.model.prompt_messages import AssistantMessage, UserMessage
from foldmark.model.values import Frozen
from foldmark.store.transaction import Change
from foldmark.tokens.sizes import message_sizes

from .hooks import Compaction
from .noting import Noting


class Completion(Frozen):
    """A summary with which a pivot is to be completed."""

    text: str
    tokens: Tokens | None = None
    cost: float = 0.0
    model: str = ""
    act: int | None = None  # the queued compaction that it is for; None: whichever waits, or none
    claimed: bool = False  # that one was claimed when its summary was begun
    fold: Fold | None = None  # what it was made of; None: what would be folded now
    words: int | None = None  # tokens of the user's words after it
    resume: bool = False  # whether the session may go on by itself
    told: Mapping[str, object] = {}  # for the event


class Folding(Noting):
    """What shapes a session's view."""

    def prune(self) -> Operation | None:
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
        return prune_plan(
            self._log, self.policy.prune, start=start, usable=self.room, explain=False
        )

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

    def queue(
        self, *, auto: bool = False, overflow: bool = False, instructions: str = ""
    ) -> Operation | None:
        """Queue a compaction by a marker; the one that is queued already, if one is.

        None where a hook forbids it, or where it is automatic and the policy is not.
        """
        with self._lock:
            asked = self._asked(auto=auto, overflow=overflow, instructions=instructions)
            if asked is None:
                return None
            return self._act(self._write(lambda change: self._queued(change, asked)))

    def pending(self) -> Operation | None:
        """The compaction that is queued, if one is."""
        queued = self._store.queued(self._key)
        if not queued:
            return None  # as it is at most steps, however many pivots there are
        acts = self._store.acts(self._key, "pivot")
        # What a newer pivot has folded is not waited for, until that one is taken back.
        folded = max((act.marker or 0 for act in acts if act.in_force), default=-1)
        waiting = [act for act in queued if (act.marker or 0) > folded]
        return waiting[-1] if waiting else None

    def cancel(self, reason: str = "cancelled") -> Operation | None:
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

    def _asked(self, *, auto: bool, overflow: bool, instructions: str = "") -> Compaction | None:
        """The compaction as hooks leave it; one that is queued already is not asked for again."""
        asked = Compaction(
            session=self.id,
            auto=auto,
            overflow=overflow,
            tokens=self.tokens,
            instructions=instructions or self.focus,
        )
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
        marker = marker_message(
            self.maker.made(self.id),
            auto=asked.auto,
            overflow=asked.overflow,
            model=self.maker.model_ref(self.model),
        )
        sizes = message_sizes(marker, self._count)
        before = self._viewer.tokens
        number = change.act("pivot", marker=change.places, before=before)
        change.append(marker, self._kept_sizes(marker, sizes))
        self._log.append(marker, sizes)
        # Who makes the summary, here or elsewhere, finds with the event what hooks wished.
        wishes = {
            "context": list(asked.context),
            "prompt": asked.prompt,
            "instructions": asked.instructions,
        }
        change.event(
            events.QUEUED,
            act=number,
            message=marker.id,
            auto=asked.auto,
            before=before,
            **{name: wish for name, wish in wishes.items() if wish},
        )
        return number

    def _pivot_job(self, made: Completion, asked: Compaction) -> Callable[[Change], int]:
        """Complete the queued compaction, or a new one: marker, summary and tail at once."""

        def job(change: Change) -> int:
            before = self._viewer.tokens
            waiting = self.pending()  # asked here, where no other process can change it
            if made.act is not None and (waiting is None or waiting.number != made.act):
                raise BadInput(
                    f"compaction {made.act} of session {self.id} is not waiting any more"
                )
            fold = made.fold or self._fold(asked, None if waiting is None else waiting.marker)
            if waiting is None:
                number = self._queue(change, asked)
                marker = change.places - 1
            else:
                number, marker = waiting.number, waiting.marker or 0
            if not change.claim(number, self._holder, anew=not made.claimed):
                raise BadInput(f"compaction {number} of session {self.id} is another's, or done")
            if not made.claimed:
                change.event(events.STARTED, act=number)
            message, place = self._fold_away(change, number, marker, fold, made)
            self._replay(change, fold)
            self._load_changed(change)
            if made.resume and self._must_resume():
                self._say(change, self.policy.compact.resume)
            after = self._load_changed(change)
            change.change_act(number, summary=place, before=before, after=after)
            told = {name: held for name, held in made.told.items() if held}
            change.event(
                events.COMPACTED, act=number, message=message.id, before=before, after=after, **told
            )
            return number

        return job

    def _fold(self, asked: Compaction, marker: int | None) -> Fold:
        """What a pivot with the caller's own summary folds."""
        room = self.room or USUAL_ROOM
        if self.limit is not None and self.policy.tail.capped:
            check_window(self._viewer, room, fixed=self.fixed)
        return session_fold(
            self._viewer, room, fixed=self.fixed, overflow=asked.overflow, before=marker
        )

    def _fold_away(
        self, change: Change, number: int, marker: int, fold: Fold, made: Completion
    ) -> tuple[Message, int]:
        """Write the summary and where the tail begins; the message and its place."""
        tail_id = fold.tail_start
        tail = None if tail_id is None else self._log.place(tail_id, below=marker)
        tail_id = None if tail is None else tail_id
        self._note_pivot(change, marker, tail_id, made.words)
        memory = self._log.requests.memory(marker if tail is None else tail)
        message = summary_message(
            self.maker.made(self.id),
            made.text,
            marker=self._log.entries[marker].message.id,
            model=self.maker.model_ref(made.model or self.model),
            tokens=made.tokens,
            cost=made.cost,
        )
        sizes = self._kept_sizes(message, message_sizes(message, self._count))
        place = change.append(message, sizes)
        change.change_act(number, memory, marker=marker, summary=place, tail=tail, tail_id=tail_id)
        change.settled = change.places
        change.index_all()  # what is folded now is no longer at hand to be looked through
        return message, place

    def _replay(self, change: Change, fold: Fold) -> None:
        """Say the request that overflowed once more, its files named and not shown."""
        if fold.replay is not None:
            parts = tuple(map(_named_only, fold.replay.parts))
            message = self.maker.user(parts, {})
            sizes = message_sizes(message, self._count)
            change.append(message, self._kept_sizes(message, sizes))

    def _must_resume(self) -> bool:
        """Whether a model would otherwise be asked to follow its own words."""
        shown = self._viewer.view().messages
        rules = self.policy.compact
        replayed = bool(shown) and isinstance(shown[-1], UserMessage)
        return not replayed and (rules.always_resume or isinstance(shown[-1], AssistantMessage))

    def _say(self, change: Change, text: str) -> None:
        """Say something in the user's place, marked as not theirs."""
        message = self.maker.user((TextPart(text=text, synthetic=True),), {})
        change.append(message, self._kept_sizes(message, message_sizes(message, self._count)))

    def _note_pivot(
        self, change: Change, marker: int, tail_id: str | None, words: int | None
    ) -> None:
        """Write into the marker where its tail begins, and how long the user's words may be."""
        entry = self._log.entries[marker]
        part = marker_part(entry.message)
        if part is None or (tail_id is None and words is None):
            return
        room = UNSET if words is None else words
        named = replace(part, tail_start_id=tail_id or UNSET, words=room)
        parts = tuple(named if held is part else held for held in entry.message.parts)
        newer = replace(entry.message, parts=parts)
        sizes = self._kept_sizes(newer, message_sizes(newer, self._count))
        change.put(marker, entry.ordinal, entry.message, newer, sizes)

    # --- taking back ---

    def undo(self, act: int | None = None) -> Operation:
        """Take back the latest prune, pivot or revert, or the one of this number."""
        return self._take_back(act, undone=True)

    def redo(self, act: int | None = None) -> Operation:
        """Put in force again what was undone last, or the act of this number."""
        return self._take_back(act, undone=False)

    def _take_back(self, wanted: int | None, *, undone: bool) -> Operation:
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

    def _to_take_back(self, wanted: int | None, *, undone: bool) -> Operation:
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

    def revert(self, message: str) -> Operation:
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


def _named_only(part: AnyPart) -> AnyPart:
    """A part without the ids of the message that it is a copy of; a file as its name."""
    if isinstance(part, FilePart):
        return TextPart(text=file_name(part))
    return replace(part, id=UNSET, message_id=UNSET) if isinstance(part, TextPart) else part


def _can_be_redone(act: Operation) -> bool:
    return act.undone is not None and act.reverted is None
