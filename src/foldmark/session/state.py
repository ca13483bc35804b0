"""What a session object holds: the store, the lease to write, and the log as far as it is shown.

Everything that lasts between two calls is here, in one place: the lock, the heartbeat, what is
known of the store, and the marks of each thread. What is done with it is told in `reader`,
`writer`, `operations` and `compactor`, which hold nothing themselves.

Reading needs no lease: what others wrote is noticed by the session's version. Writing takes the
lease, and every write is one transaction that checks it. A process that was stopped for longer than
its lease and overtaken by another one is told so once, by SessionOvertaken from its next write; the
call after that works again, on the session as the other one left it.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from foldmark.compaction.fold import tokens_used
from foldmark.errors import BadInput, FoldmarkError, SessionOvertaken, StoreError
from foldmark.log.log import Log, ordinal_of
from foldmark.log.view import Viewer
from foldmark.model import events
from foldmark.model.operations import Operation
from foldmark.policy import Policy
from foldmark.store import leases
from foldmark.store.loading import Slice, load
from foldmark.store.rows import LoadedSession, SessionRow, is_hidden, read_operations
from foldmark.store.store import Store
from foldmark.store.transaction import WORTH_INDEXING, Change, StaleSession, open_change
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import counter

from .bus import Bus
from .hooks import HookRunner
from .message_builder import MessageBuilder
from .settings import Settings

if TYPE_CHECKING:
    from foldmark.model.prompt_messages import ToolDeclaration

T = TypeVar("T")
_log = logging.getLogger("foldmark")
_TRIES = 3  # of a write that found the session changed since it was read


class SessionSetup(NamedTuple):
    """With what a session is opened; its forks and children are opened with the same."""

    store: Store
    settings: Settings
    policy: Policy
    where: str | Path = ""  # the path or address of the store
    hooks: tuple[object, ...] = ()
    summarizer: Summarizer | None = None


class SessionState:
    """Keeps a session's log up to date with the store, and its lease alive."""

    def __init__(self, row: SessionRow, setup: SessionSetup) -> None:
        """Take the session, and the store that it is in."""
        self.setup = setup
        self.store = setup.store
        self.settings = setup.settings
        self.policy = setup.policy
        self.key = row.key
        self.id = row.id
        self.limit = setup.settings.limit()
        self.model = setup.settings.model or ""
        self.fixed_tokens = (
            0  # tokens of the system prompt and the tools, which are in every request
        )
        self.system = ""  # these two, where the program has said what they are
        self.tools: tuple[ToolDeclaration, ...] = ()
        self.focus = ""  # of every summary for which no other is given
        self.count = counter(self.policy.estimate)
        # What counts for the store, where the session was begun under another policy.
        same = row.estimate == self.policy.estimate
        self.other_count = None if same else counter(row.estimate)
        self.builder = MessageBuilder(row.id)
        self.bus = Bus()
        seconds = self.settings.hook_seconds
        self.hooks = HookRunner(setup.hooks, seconds=seconds, report=self._report)
        self.default_summarizer: Summarizer | None = None  # of who works here now
        self.cached_summarizer: tuple[str, Summarizer | None] | None = (
            None  # by the name of its model
        )
        self.compaction_lock = threading.Lock()  # held while a compaction is made
        self.turn_lock = threading.Lock()  # held by a loop, for one turn
        self.aborted = threading.Event()
        self.lock = _DeliveringLock(self.bus.due, self.bus.deliver)
        self.holder = leases.new_holder()
        self.closed = threading.Event()
        self._reports: list[tuple[str, str, str]] = []
        self._has_lease = False  # the lease, as far as is known here: each write checks it
        self._lost_lease = False  # it is held, but another one has been seen to have it
        self._heartbeat: _Heartbeat | None = None
        self._stale = False
        self._thread_local = threading.local()  # how deep this thread is in making a compaction
        self.reload()

    @property
    def usable(self) -> int:
        """The tokens that may stand in the window; 0 where no limit is known."""
        return 0 if self.limit is None else usable(self.policy, self.limit, self.model)

    @property
    def tokens(self) -> int:
        """The tokens of the next request, as far as they are known."""
        with self.lock:
            return tokens_used(self.refresh(), fixed=self.fixed_tokens)

    # --- the log ---

    def reload(self) -> None:
        """Read the session anew."""
        with self.report_damage():
            loaded = self.store.load(self.key, self.slice(), estimate=self.policy.estimate)
            self.row = loaded.row
            self.set_log(self.build_log(loaded))
            self._stale = False

    def slice(self, operation: int | None = None, *, after: bool = False) -> Slice:
        """What the view needs of the session, now or before or after an act."""
        dangling = self.policy.view.dangling_tail == "everything"
        return Slice(operation=operation, after=after, dangling=dangling)

    @contextmanager
    def report_damage(self) -> Generator[None]:
        """Rows that do not fit together are told as damage: what is read was written whole."""
        try:
            yield
        except (LookupError, ValueError, TypeError) as error:
            raise StoreError(
                self.store.name,
                f"session {self.id} is damaged ({error!r}); restore a backup of it",
            ) from error

    def set_log(self, log: Log) -> None:
        """Put another log in the place of the one that is shown."""
        self.log = log
        self.viewer = self.viewer_of(log)

    def build_log(self, loaded: LoadedSession) -> Log:
        """The log of what was loaded; what others than our counter counted is counted anew."""
        log = Log(self.count, checkpoint=loaded.past)
        for entry in loaded.messages:
            log.skip(entry.index, entry.ordinal)
            log.append(entry.message, None if self.other_count else entry.sizes)
        log.skip(loaded.end, loaded.parts)
        log.forget_measured(max(loaded.row.settled, log.pivot.summary if log.pivot else 0))
        return log

    def viewer_of(self, log: Log) -> Viewer:
        """A viewer of a log, under the rules of this session."""
        return Viewer(log, self.policy, model=self.model, usable=self.usable)

    def refresh(self) -> Viewer:
        """The viewer, after what others may have written was read."""
        is_shared = self._lost_lease or not self._has_lease
        if self._stale or (is_shared and self._changed()):
            self.reload()
        return self.viewer

    def _changed(self) -> bool:
        return self.store.version(self.key) != self.row.version

    # --- by a name or a number ---

    def operation(self, number: int) -> Operation:
        """What was done to the session under a number."""
        matches = read_operations(self.store.engine, self.key, "number = ?", number)
        if not matches:
            raise BadInput(f"session {self.id} has no act {number}")
        return matches[0]

    def message_index(self, message: str, *, hidden: bool = False) -> int:
        """Where a message stands, by its id or handle; by this, it may be one a revert hides."""
        index = self.store.message_index(self.key, message)
        if index is None:
            ordinal = ordinal_of(message)
            entry = None if ordinal is None else self.store.message_with_part(self.key, ordinal)
            index = None if entry is None else entry.index
            if index is not None and not hidden and is_hidden(self.store.engine, self.key, index):
                index = None
        if index is None:
            raise BadInput(f"there is no message {message!r} in session {self.id}")
        return index

    # --- the lease ---

    def _take_lease(self) -> None:
        """Get the lease, waiting for who holds it as long as the settings say."""
        if self.closed.is_set():
            raise StoreError(self.store.name, f"session {self.id} was closed")
        if self._has_lease:
            return
        deadline = time.monotonic() + self.settings.wait_seconds
        pause = 0.01
        engine, seconds = self.store.engine, self.settings.lease_seconds
        while not leases.acquire(engine, self.key, self.holder, seconds):
            if time.monotonic() >= deadline:
                raise leases.busy_error(engine, self.key, self.id)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        self._has_lease, self._lost_lease = True, False
        if self._heartbeat is None:
            self._heartbeat = _Heartbeat(self)
            self._heartbeat.start()

    def renew(self) -> bool:
        """Keep the lease, if there is one; False where another one has it.

        One that was given back meanwhile is never taken again here.
        """
        engine, seconds = self.store.engine, self.settings.lease_seconds
        if self._has_lease and not leases.renew(engine, self.key, self.holder, seconds):
            self._lost_lease = True  # reading looks again from now on; the next write raises
            return False
        return True

    def acquire(self) -> None:
        """Keep others from writing until `release` or `close`; SessionBusy where one does not end.

        The first write does so by itself: this is for who must read before it, and be alone.
        Raises SessionOvertaken where it was held here already, and another one took it over.
        """
        with self.lock:
            if not self.renew():
                self._forget_lease()
                raise leases.overtaken_error(self.store.engine, self.key, self.id)
            if not self._has_lease:
                self._take_lease()
                self._stale = self._stale or self._changed()  # who has it does not look again

    def release(self) -> None:
        """Let others write; the next write here asks for the lease again."""
        with self.lock:
            if self._has_lease:
                self._has_lease = self._lost_lease = False
                leases.release(self.store.engine, self.key, self.holder)

    def report_overtaken_later(self) -> None:
        """Let the next write raise that the session was overtaken: nobody was told of it yet."""
        self._has_lease = self._lost_lease = True

    def _forget_lease(self) -> None:
        """Ask for the lease again with the next write, on the session as it is then."""
        self._has_lease, self._lost_lease, self._stale = False, False, True

    # --- writing ---

    def write(self, job: Callable[[Change], T]) -> T:
        """Do a job as one transaction; what it did to the log counts only if that went well."""
        with self.lock:
            had_lease = self._has_lease
            for _ in range(_TRIES):
                self._take_lease()
                try:
                    return self._attempt(job)
                except SessionOvertaken:
                    self._forget_lease()
                    if had_lease:  # else nothing was built on it: it is asked for once more
                        raise
                except StaleSession:
                    self.reload()
        raise leases.busy_error(self.store.engine, self.key, self.id)

    def _attempt(self, job: Callable[[Change], T]) -> T:
        if self._stale:
            self.reload()
        engine, seconds = self.store.engine, self.settings.lease_seconds
        with open_change(engine, self.row, self.holder, seconds, self.other_count) as change:
            self._stale = True
            result = job(change)
            for hook, point, problem in self._reports:
                change.add_event(events.HOOK_FAILED, hook=hook, point=point, problem=problem)
        self._reports = []
        self.row = change.row
        self._stale = False
        self.bus.queue(change.events)  # told of when the lock is free
        return result

    def load_changed(self, change: Change) -> int:
        """Load the session as it is inside a transaction; the tokens of its view."""
        row = change.current_row()
        sized = self.other_count is None
        self.set_log(self.build_log(load(self.store.engine, row, self.slice(), sized=sized)))
        return self.viewer.tokens

    def _report(self, hook: str, point: str, problem: str) -> None:
        """A hook that failed is told in the log of the program, and with the next write."""
        _log.warning("hook %s was skipped at %s: %s", hook, point, problem)
        self._reports.append((hook, point, problem))

    # --- compacting ---

    @contextmanager
    def compacting_here(self) -> Generator[None]:
        """Note that this thread makes a compaction, or tells of one."""
        self._thread_local.depth = getattr(self._thread_local, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread_local.depth -= 1

    @property
    def is_compacting_here(self) -> bool:
        """Whether this very thread makes a compaction, or tells of one."""
        return bool(getattr(self._thread_local, "depth", 0))

    # --- the end ---

    def close(self) -> None:
        """Give the lease back and let the store go."""
        with self.lock:
            if self.closed.is_set():
                return
            with suppress(FoldmarkError):  # it is found without, only slower
                if self._has_lease and self.row.places - self.row.indexed >= WORTH_INDEXING:
                    self.write(lambda change: change.index())
            self.closed.set()
            with suppress(FoldmarkError):  # what cannot be given back ends by itself
                self.release()
            self.bus.close()
            self.store.close()


class _DeliveringLock:
    """Re-entrant lock that calls `deliver` once its outermost holder releases it, if that is due.

    Subscribers are called there: one that waits for another thread must hold nothing meanwhile.
    """

    def __init__(self, due: Sized, deliver: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._due = due
        self._deliver = deliver

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        is_free = self._depth == 0
        self._lock.release()
        if is_free and self._due:
            self._deliver()


class _Heartbeat(threading.Thread):
    """Renews a session's lease whenever it has one, for as long as the session is there."""

    def __init__(self, state: SessionState) -> None:
        super().__init__(name=f"foldmark-lease-{state.id}", daemon=True)
        self._state = weakref.ref(state)
        self._closed = state.closed
        self._pause = state.settings.lease_seconds / 3

    def run(self) -> None:
        while not self._closed.wait(self._pause):
            state = self._state()
            if state is None:
                return
            try:
                state.renew()
            except FoldmarkError as error:
                _log.warning("the lease of session %s was not renewed: %s", state.id, error)
            del state
