"""Drives a session through any sequence of operations, and checks invariants after each.

The driver knows every text by its handle, every message by its index, the view before each
operation, and the view before the last one, which undo must restore.
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
    """The policy, changed to prune and compact sessions of a few messages."""
    rules = replace(policy.prune, protect=60, minimum=20, turns=1, scale=None, keep_small=0)
    tail = replace(policy.tail, tokens=150) if policy.tail.on else policy.tail
    return replace(policy, prune=rules, tail=tail)


POLICIES = [eager(policy) for policy in PRESETS.values()]


class Driver:
    """A session, and its expected content."""

    def __init__(self, where: str, policy: Policy, name: str) -> None:
        self.where = where
        self.policy = policy
        self.session = self._opened(name)
        self.texts: dict[str, str] = {}  # by handle
        self.messages: dict[int, bytes] = {}  # by index, without markers
        self.before: dict[int, bytes] = {}  # the view just before each operation
        self.newest: tuple[int, bytes] | None = None  # the last operation, if nothing came since
        self.waiting: list[tuple[str, int]] = []  # calls, and the indexes of their messages
        self.calls = 0

    def run(self, sequence: list[tuple[str, int]]) -> None:
        for name, number in sequence:
            operation: Callable[[int], None] = getattr(self, f"do_{name}")
            operation(number)
            self.check()
        self.check_all()
        self.session.close()

    def _opened(self, name: str) -> foldmark.Session:
        return opened(self.where, name, policy=self.policy)

    # --- invariants ---

    def check(self) -> None:
        """Check that another session object loads the same view."""
        with self._opened(self.session.id) as other:
            assert contents(other.view()) == contents(self.session.view())
            assert other.tokens == self.session.tokens

    def check_all(self) -> None:
        session = self.session
        for name, text in self.texts.items():
            assert session.recall(name) == text
        for index, data in self.messages.items():
            entry = state_of(session).store.message_at(state_of(session).key, index)
            assert entry is not None
            assert encode(entry.message) == data
        for number, view in self.before.items():
            assert bytes_of(session.view(before=number)) == view, f"before operation {number}"
        while any(one.kind == "revert" and one.in_force for one in session.operations()):
            session.undo()
        ids = {message.id for message in session.export(reverted=False).messages}
        assert len(ids) >= len(self.messages)

    # --- operations that write messages ---

    def do_user(self, number: int) -> None:
        text = ("Go on", "Never use tabs", "Why?", "Always test", "", "Fix the login")[number]
        self._note(self.session.user(text))

    def do_record(self, number: int) -> None:
        self._note(self.session.record(f"Answer {number} " * (number * 8 + 1)))

    def do_call(self, number: int) -> None:
        name = f"c{self.calls}"
        self.calls += 1
        message = self.session.record([TextPart(text="I look"), call(name, f"f{number}.py")])
        index = self._note(message)
        if number == 5:  # its result comes late, or never
            self.waiting.append((name, index))
            self.texts.pop(handle(self._ordinal(index) + 1))
            return
        self._settle(name, index, f"line {number} of {name}\n" * 40)

    def do_late(self, number: int) -> None:
        if not self.waiting:
            return
        name, index = self.waiting[number % len(self.waiting)]
        try:
            self._settle(name, index, f"late {number}\n" * 60)
        except BadInput:  # the call is hidden
            return
        self.waiting.remove((name, index))
        # Earlier views have the result too: indexes do not change, messages may be completed.
        operations = {operation.number: operation.place for operation in self.session.operations()}
        self.before = {n: view for n, view in self.before.items() if operations[n] <= index}

    def _settle(self, name: str, index: int, output: str) -> None:
        message = self.session.result(name, output)
        self.messages[index] = encode(message)
        self.texts[handle(self._ordinal(index) + 1)] = output
        self.newest = None

    def _note(self, message: Message) -> int:
        index = self.session.info.places - 1
        ordinal = self._ordinal(index)
        self.messages[index] = encode(message)
        for offset, part in enumerate(message.parts):
            self.texts[handle(ordinal + offset)] = part_text(part)
        self.newest = None
        return index

    def _ordinal(self, index: int) -> int:
        entry = state_of(self.session).store.message_at(state_of(self.session).key, index)
        assert entry is not None
        return entry.ordinal

    # --- operations that change the view ---

    def do_prune(self, _: int) -> None:
        self._run(self.session.prune)

    def do_compact(self, number: int) -> None:
        self._run(lambda: self.session.compact(f"Summary {number}: all is well."))

    def do_queue(self, _: int) -> None:
        view, waits = bytes_of(self.session.view()), self.session.pending()
        operation = self.session.queue()
        assert operation is not None
        assert bytes_of(self.session.view()) == view
        if waits is None:
            self.before[operation.number] = view
        else:
            assert operation == waits
        self.newest = None

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
        ids = [message.id for message in self.session.export(reverted=False).messages[:-7:-1]]
        if ids:
            self._run(lambda: self.session.revert(ids[number % len(ids)]))

    def do_revert_hidden(self, number: int) -> None:
        """Revert to a message that may be hidden or folded, by a handle."""
        names = list(self.texts)
        if names:
            self._run(lambda: self.session.revert(names[number * 7 % len(names)]))

    def _run(self, operation: Callable[[], Operation | None]) -> None:
        view, operations = bytes_of(self.session.view()), len(self.session.operations())
        result = operation()
        if result is not None:
            if len(self.session.operations()) > operations:  # it was not queued before
                self.before[result.number] = view
            self.newest = result.number, view

    # --- undo and redo ---

    def do_undo(self, _: int) -> None:
        newest = self.newest
        try:
            operation = self.session.undo()
        except BadInput:
            assert not any(operation.in_force for operation in self.session.operations())
            return
        assert not operation.in_force
        if newest is not None:
            assert operation.number == newest[0]
            assert bytes_of(self.session.view()) == newest[1]
        self.newest = None

    def do_redo(self, _: int) -> None:
        view = bytes_of(self.session.view())
        try:
            operation = self.session.redo()
        except BadInput:
            return
        assert operation.in_force
        self.session.undo(operation.number)
        assert bytes_of(self.session.view()) == view
        self.session.redo()
        self.newest = None

    def do_undo_one(self, number: int) -> None:
        done = [one for one in self.session.operations() if one.in_force]
        self._toggle(done, number, self.session.undo, self.session.redo)

    def do_redo_one(self, number: int) -> None:
        undone = [one for one in self.session.operations() if one.state == "undone"]
        undone = [one for one in undone if one.reverted is None]
        self._toggle(undone, number, self.session.redo, self.session.undo)

    def _toggle(
        self,
        candidates: list[Operation],
        number: int,
        there: Callable[[int], Operation],
        back: Callable[[int], Operation],
    ) -> None:
        """Check that any operation can be undone and redone, or the reverse."""
        if not candidates:
            return
        target = candidates[number % len(candidates)].number
        view = bytes_of(self.session.view())
        there(target)
        changed = bytes_of(self.session.view())
        back(target)
        assert bytes_of(self.session.view()) == view
        there(target)
        assert bytes_of(self.session.view()) == changed
        self.newest = None

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
        self.newest = None

    # --- other objects ---

    def do_reopen(self, _: int) -> None:
        view, plan = self.session.view(), self.session.plan()
        self.session.close()
        self.session = self._opened(self.session.id)
        assert contents(self.session.view()) == contents(view)
        assert self.session.plan() == plan

    def do_fork(self, _: int) -> None:
        """Check that changes of a fork do not affect its origin."""
        view = contents(self.session.view())
        with self.session.fork() as fork:
            # Indexes of invisible markers may differ.
            assert (bytes_of(fork.view()), fork.view().tokens) == (view[0], view[2])
            fork.user("Only in the fork")
            fork.compact("A summary of the fork")
            fork.undo()
            fork.undo() if any(one.in_force for one in fork.operations()) else None
        assert contents(self.session.view()) == view

    def do_go_on_in_fork(self, number: int) -> None:
        if number:
            return
        fork = self.session.fork()
        self.session.close()
        self.session = fork
        remaining = {message.id for message in fork.export(reverted=False).messages}
        self.messages = {
            index: encode(entry.message)
            for index in self.messages
            if (entry := state_of(fork).store.message_at(state_of(fork).key, index)) is not None
        }
        assert len(self.messages) <= len(remaining)
        self.texts = {name: text for name, text in self.texts.items() if self._has(name)}
        self.waiting = [(name, index) for name, index in self.waiting if index in self.messages]
        self.before = {}
        self.newest = None

    def _has(self, name: str) -> bool:
        try:
            self.session.recall(name)
        except BadInput:
            return False
        return True


def contents(view: View) -> tuple[bytes, tuple[int, ...], int]:
    return bytes_of(view), view.indexes, view.tokens
