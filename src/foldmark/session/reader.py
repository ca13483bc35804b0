"""Looking at a session: its view, plan, acts and events; searching and recalling what was said."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from foldmark.compaction.plan import Plan, session_plan, tokens_used
from foldmark.errors import BadInput, BadPolicy, StoreError
from foldmark.log.log import Log, ordinal_of, part_text
from foldmark.log.marks import marked_messages, with_reverts
from foldmark.log.view import View
from foldmark.model.events import Event, known_kinds
from foldmark.model.messages import Transcript
from foldmark.model.operations import Operation
from foldmark.model.values import Frozen
from foldmark.store.loading import Slice
from foldmark.store.rows import SessionRow
from foldmark.store.search import search
from foldmark.store.sqlite import BESIDE
from foldmark.store.transaction import WORTH_INDEXING
from foldmark.tokens.budget import pressure
from foldmark.tokens.limits import Limit

from .bus import Subscriber
from .diff import ViewDiff, view_diff
from .state import Keeper

State = Literal["shown", "pruned", "folded", "reverted"]


class Found(Frozen):
    """A part that a search found, and whether the model is shown it now."""

    handle: str
    message: str
    place: int
    kind: str
    tool: str | None
    snippet: str
    state: State


class Looking(Keeper):
    """What can be asked of a session without changing it."""

    def view(self, *, before: int | None = None) -> View:
        """What the model is shown now, or was shown before an act."""
        with self._lock:
            if before is None:
                view = self._fresh().view()
            else:
                log = self._log_before(before)
                with self._undamaged():
                    view = self._viewing(log).view()
        return self._hooks.view(view) if before is None else view

    def plan(self, *, explain: bool = True) -> Plan:
        """What prune and compact would do, and why."""
        with self._lock:
            viewer, limit = self._fresh(), self._window()
            return session_plan(viewer, limit, model=self.model, fixed=self.fixed, explain=explain)

    def pressure(self) -> float:
        """Used ÷ usable; over 1 is too much."""
        with self._lock:
            viewer, limit = self._fresh(), self._window()
            if limit.context == 0:
                return 0.0
            return pressure(tokens_used(viewer, fixed=self.fixed), self.room)

    def _window(self) -> Limit:
        if self.limit is None:
            raise BadPolicy("no window is known; give model=… or window=…")
        return self.limit

    @property
    def tokens(self) -> int:
        """The tokens of the next request, as far as they are known."""
        with self._lock:
            return tokens_used(self._fresh(), fixed=self.fixed)

    def may_continue(self) -> bool:
        """Whether hooks let a loop go on by itself after a compaction."""
        return self._hooks.may_continue(self.id)

    def acts(self) -> list[Operation]:
        """The prunes, pivots and reverts so far, oldest first."""
        return self._store.acts(self._key)

    def diff(self, old: View | int, new: View | None = None) -> ViewDiff:
        """How two views differ: the old one as a value, or as the number of an act after it."""
        earlier = self.view(before=old) if isinstance(old, int) else old
        return view_diff(earlier, self.view() if new is None else new)

    def search(self, query: str, *, most: int = 20) -> list[Found]:
        """Where words were said, shown or not: exact matches first, then the newest."""
        with self._lock:
            self._index()
            viewer = self._fresh()
            places, marks = set(viewer.view().places), self._log.marks
            gaps = self._store.gaps(self._key)
            with self._store.engine.reading(), self._undamaged():
                row = self._store.row(self._key)
                hits = search(self._store.engine, row, query, most)
        found: list[Found] = []
        for hit in hits:
            state: State = "shown" if hit.place in places else "folded"
            if state == "shown" and (ordinal_of(hit.handle) or 0) in marks:
                state = "pruned"
            if state == "folded" and any(hit.place in gap for gap in gaps):
                state = "reverted"
            found.append(
                Found(
                    handle=hit.handle,
                    message=hit.message,
                    place=hit.place,
                    kind=hit.kind,
                    tool=hit.tool,
                    snippet=hit.snippet,
                    state=state,
                )
            )
        return found

    def _index(self) -> None:
        """What was imported is indexed by who searches first; where that cannot be, it is read."""
        row = self._store.row(self._key)
        if row.places - row.indexed >= WORTH_INDEXING:
            with suppress(StoreError):
                self._store.index(self._key)

    def recall(self, name: str) -> str:
        """The content behind a handle, hidden or not."""
        ordinal = ordinal_of(name)
        held = None if ordinal is None else self._store.holding(self._key, ordinal)
        if held is None or ordinal is None:
            raise BadInput(f"{name!r} is no handle of session {self.id}")
        with self._undamaged():
            return part_text(held.message.parts[ordinal - held.ordinal])

    def export(self, *, reverted: bool = True) -> Transcript:
        """The session as `opencode export` writes it, with its marks.

        What reverts hide is part of it, and named in `info`; `reverted=False` leaves it out.
        """
        part = Slice(everything=True, reverted=reverted)
        with self._undamaged():
            loaded = self._store.load(self._key, part, estimate=self.policy.estimate)
            pivots = self._store.acts(self._key, "pivot")
            times = {act.marker or 0: act.undone for act in pivots if act.undone is not None}
            messages = marked_messages(self._built(loaded), times)
            gaps = self._store.gaps(self._key) if reverted else []
        info = with_reverts(loaded.row.info, messages, gaps)
        return Transcript(info=info, messages=messages, extra=loaded.row.extra)

    @property
    def info(self) -> SessionRow:
        """What is kept of the session beside its messages."""
        return self._store.row(self._key)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its store; none where that is a server."""
        place = str(self._where)
        if "://" in place:
            return ()
        return tuple(Path(place + end) for end in ("", *BESIDE))

    def _log_before(self, act: int) -> Log:
        part = self._slice(act)
        self._act(act)
        with self._undamaged():
            return self._built(self._store.load(self._key, part, estimate=self.policy.estimate))

    def _place(self, message: str, *, hidden: bool = False) -> int:
        """Where a message stands, by its id or handle; by this, it may be one a revert hides."""
        place = self._store.place_of(self._key, message)
        if place is None:
            ordinal = ordinal_of(message)
            held = None if ordinal is None else self._store.holding(self._key, ordinal)
            place = None if held is None else held.place
            if place is not None and not hidden and self._store.hidden(self._key, place):
                place = None
        if place is None:
            raise BadInput(f"there is no message {message!r} in session {self.id}")
        return place

    def _act(self, number: int) -> Operation:
        act = self._store.act(self._key, number)
        if act is None:
            raise BadInput(f"session {self.id} has no act {number}")
        return act

    # --- events ---

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = ()) -> Callable[[], None]:
        """Be told of events in this process; the function given back ends that.

        A kind that ends with a dot stands for all that begin with it.
        """
        return self._bus.subscribe(subscriber, known_kinds(kinds))

    def events(self, after: int = 0, most: int = 1_000) -> list[Event]:
        """What happened after an event, in order, whoever did it."""
        return self._store.events(self._row, after, most)

    def follow(self, after: int = 0, *, seconds: float | None = None) -> Iterator[Event]:
        """Every event after one, as they come; ends when none has come for so many seconds."""
        waited, pause = 0.0, 0.05
        while seconds is None or waited <= seconds:
            found = self.events(after)
            for event in found:
                yield event
                after = event.number
            if found:
                waited, pause = 0.0, 0.05
            else:
                time.sleep(pause)
                waited, pause = waited + pause, min(pause * 1.5, 0.5)
