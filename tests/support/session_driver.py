"""Drives a session through any row of operations, and knows what must be true after each.

The model: every text by its handle, every message by its place, the view before each act, and the
view before the last operation, which undoing it must give back.
"""

from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace

import foldmark
from foldmark.errors import BadInput
from foldmark.log.log import handle, part_text
from foldmark.log.view import View
from foldmark.model.messages import Message, TextPart
from foldmark.model.operations import Operation
from foldmark.model.values import encode
from foldmark.policy import PRESETS, Policy
from foldmark.session.session import state_of
from tests.support.stored_sessions import bytes_of, call, opened

OPERATIONS = (
    *("user", "record", "call", "call", "call", "call", "prune", "prune"),
    *("compact", "queue", "complete", "cancel", "undo", "undo", "redo", "undo_one", "redo_one"),
    *("there_and_back", "revert", "revert_hidden", "fork", "go_on_in_fork", "reopen", "late"),
)
operations = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5)), min_size=3, max_size=30
)


def eager(policy: Policy) -> Policy:
    """The same policy, pruning and folding in sessions of a few messages."""
    rules = replace(policy.prune, protect=60, minimum=20, turns=1, scale=None, keep_small=0)
    tail = replace(policy.tail, tokens=150) if policy.tail.on else policy.tail
    return replace(policy, prune=rules, tail=tail)


POLICIES = [eager(policy) for policy in PRESETS.values()]


class Driver:
    """A session, and what is known of it."""

    def __init__(self, where: str, policy: Policy, name: str) -> None:
        self.where = where
        self.policy = policy
        self.session = self._opened(name)
        self.texts: dict[str, str] = {}  # by handle
        self.written: dict[int, bytes] = {}  # by place; markers are left out
        self.before: dict[int, bytes] = {}  # the view right before each act was noted
        self.fresh: tuple[int, bytes] | None = None  # the last act, if nothing came since
        self.waiting: list[tuple[str, int]] = []  # calls, and the places of their messages
        self.calls = 0

    def run(self, row: list[tuple[str, int]]) -> None:
        for name, number in row:
            operation: Callable[[int], None] = getattr(self, f"do_{name}")
            operation(number)
            self.check()
        self.check_all()
        self.session.close()

    def _opened(self, name: str) -> foldmark.Session:
        return opened(self.where, name, policy=self.policy)

    # --- what must be true ---

    def check(self) -> None:
        """After each operation: what another one would load is what is shown here."""
        with self._opened(self.session.id) as other:
            assert told(other.view()) == told(self.session.view())
            assert other.tokens == self.session.tokens

    def check_all(self) -> None:
        session = self.session
        for name, text in self.texts.items():
            assert session.recall(name) == text
        for place, data in self.written.items():
            held = state_of(session).store.message_at(state_of(session).key, place)
            assert held is not None
            assert encode(held.message) == data
        for number, view in self.before.items():
            assert bytes_of(session.view(before=number)) == view, f"before act {number}"
        while any(act.kind == "revert" and act.in_force for act in session.operations()):
            session.undo()
        told_now = {message.id for message in session.export(reverted=False).messages}
        assert len(told_now) >= len(self.written)

    # --- operations that say something ---

    def do_user(self, number: int) -> None:
        text = ("Go on", "Never use tabs", "Why?", "Always test", "", "Fix the mill")[number]
        self._take(self.session.user(text))

    def do_record(self, number: int) -> None:
        self._take(self.session.record(f"Answer {number} " * (number * 8 + 1)))

    def do_call(self, number: int) -> None:
        name = f"c{self.calls}"
        self.calls += 1
        message = self.session.record([TextPart(text="I look"), call(name, f"f{number}.py")])
        place = self._take(message)
        if number == 5:  # its result comes late, or never
            self.waiting.append((name, place))
            self.texts.pop(handle(self._ordinal(place) + 1))
            return
        self._settle(name, place, f"line {number} of {name}\n" * 40)

    def do_late(self, number: int) -> None:
        if not self.waiting:
            return
        name, place = self.waiting[number % len(self.waiting)]
        try:
            self._settle(name, place, f"late {number}\n" * 60)
        except BadInput:  # it is folded or hidden
            return
        self.waiting.remove((name, place))
        # The view of then shows it too: places do not change, messages may come to their end.
        acts = {act.number: act.place for act in self.session.operations()}
        self.before = {n: view for n, view in self.before.items() if acts[n] <= place}

    def _settle(self, name: str, place: int, output: str) -> None:
        message = self.session.result(name, output)
        self.written[place] = encode(message)
        self.texts[handle(self._ordinal(place) + 1)] = output
        self.fresh = None

    def _take(self, message: Message) -> int:
        place = self.session.info.places - 1
        ordinal = self._ordinal(place)
        self.written[place] = encode(message)
        for offset, part in enumerate(message.parts):
            self.texts[handle(ordinal + offset)] = part_text(part)
        self.fresh = None
        return place

    def _ordinal(self, place: int) -> int:
        held = state_of(self.session).store.message_at(state_of(self.session).key, place)
        assert held is not None
        return held.ordinal

    # --- operations that shape the view ---

    def do_prune(self, _: int) -> None:
        self._act(self.session.prune)

    def do_compact(self, number: int) -> None:
        self._act(lambda: self.session.compact(f"Summary {number}: all is well."))

    def do_queue(self, _: int) -> None:
        view, waits = bytes_of(self.session.view()), self.session.pending()
        act = self.session.queue()
        assert act is not None
        assert bytes_of(self.session.view()) == view
        if waits is None:
            self.before[act.number] = view
        else:
            assert act == waits
        self.fresh = None

    def do_complete(self, number: int) -> None:
        if self.session.pending() is not None:
            self.do_compact(number)

    def do_cancel(self, _: int) -> None:
        view = bytes_of(self.session.view())
        while (waits := self.session.pending()) is not None:  # undoing a revert may bring one back
            failed = self.session.cancel("no\0 \ud83d reason")
            assert failed is not None
            assert (failed.number, failed.failed) == (waits.number, "no\0 \ud83d reason")
        assert self.session.cancel() is None
        assert bytes_of(self.session.view()) == view

    def do_revert(self, number: int) -> None:
        ids = [
            self.session.export(reverted=False).messages[-1 - n].id for n in range(self._shown())
        ]
        if ids:
            self._act(lambda: self.session.revert(ids[number % len(ids)]))

    def _shown(self) -> int:
        return min(len(self.session.export(reverted=False).messages), 6)

    def do_revert_hidden(self, number: int) -> None:
        """To a message that may be hidden or folded, by a handle."""
        names = list(self.texts)
        if names:
            self._act(lambda: self.session.revert(names[number * 7 % len(names)]))

    def _act(self, act: Callable[[], Operation | None]) -> None:
        view, acts = bytes_of(self.session.view()), len(self.session.operations())
        done = act()
        if done is not None:
            if len(self.session.operations()) > acts:  # not one that was queued before
                self.before[done.number] = view
            self.fresh = done.number, view

    # --- taking back ---

    def do_undo(self, _: int) -> None:
        fresh = self.fresh
        try:
            act = self.session.undo()
        except BadInput:
            assert not any(act.in_force for act in self.session.operations())
            return
        assert not act.in_force
        if fresh is not None:
            assert act.number == fresh[0]
            assert bytes_of(self.session.view()) == fresh[1]
        self.fresh = None

    def do_redo(self, _: int) -> None:
        view = bytes_of(self.session.view())
        try:
            act = self.session.redo()
        except BadInput:
            return
        assert act.in_force
        self.session.undo(act.number)
        assert bytes_of(self.session.view()) == view
        self.session.redo()
        self.fresh = None

    def do_undo_one(self, number: int) -> None:
        found = [act.number for act in self.session.operations() if act.in_force]
        self._switch(found, number, self.session.undo, self.session.redo)

    def do_redo_one(self, number: int) -> None:
        acts = self.session.operations()
        found = [act.number for act in acts if act.undone is not None and act.reverted is None]
        self._switch(found, number, self.session.redo, self.session.undo)

    def _switch(
        self,
        found: list[int],
        number: int,
        there: Callable[[int], Operation],
        back: Callable[[int], Operation],
    ) -> None:
        """Any act may be switched, and switched back."""
        if not found:
            return
        wanted = found[number % len(found)]
        view = bytes_of(self.session.view())
        there(wanted)
        changed = bytes_of(self.session.view())
        back(wanted)
        assert bytes_of(self.session.view()) == view
        there(wanted)
        assert bytes_of(self.session.view()) == changed
        self.fresh = None

    def do_there_and_back(self, number: int) -> None:
        views = [bytes_of(self.session.view())]
        for _ in range(number):
            try:
                self.session.undo()
            except BadInput:
                break
            views.append(bytes_of(self.session.view()))
        for view in reversed(views[:-1]):
            self.session.redo()
            assert bytes_of(self.session.view()) == view
        self.fresh = None

    # --- other objects ---

    def do_reopen(self, _: int) -> None:
        view, plan = self.session.view(), self.session.plan()
        self.session.close()
        self.session = self._opened(self.session.id)
        assert told(self.session.view()) == told(view)
        assert self.session.plan() == plan

    def do_fork(self, _: int) -> None:
        """What is done to a fork is not done to its origin."""
        view = told(self.session.view())
        with self.session.fork() as fork:
            # Places of markers that show nothing may differ.
            assert (bytes_of(fork.view()), fork.view().tokens) == (view[0], view[2])
            fork.user("Only in the fork")
            fork.compact("A summary of the fork")
            fork.undo()
            fork.undo() if any(act.in_force for act in fork.operations()) else None
        assert told(self.session.view()) == view

    def do_go_on_in_fork(self, number: int) -> None:
        if number:
            return
        fork = self.session.fork()
        self.session.close()
        self.session = fork
        kept = {message.id for message in fork.export(reverted=False).messages}
        self.written = {
            place: encode(held.message)
            for place in self.written
            if (held := state_of(fork).store.message_at(state_of(fork).key, place)) is not None
        }
        assert len(self.written) <= len(kept)
        self.texts = {name: text for name, text in self.texts.items() if self._has(name)}
        self.waiting = [(name, place) for name, place in self.waiting if place in self.written]
        self.before = {}
        self.fresh = None

    def _has(self, name: str) -> bool:
        try:
            self.session.recall(name)
        except BadInput:
            return False
        return True


def told(view: View) -> tuple[bytes, tuple[int, ...], int]:
    return bytes_of(view), view.indexes, view.tokens
