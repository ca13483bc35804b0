"""The state of a session object: its store, its lease, and the part of the log in memory.

Everything that lasts between two calls is here: the lock, the heartbeat, what is known of the
store, and the marks of each thread. `reader`, `writer`, `operations` and `compactor` work on it
and keep no state themselves.

Reading needs no lease; the session's version shows whether others have written. Writing takes the
lease, and every write is one transaction that checks it. If a process was suspended for longer
than its lease and another one took over, its next write raises SessionOvertaken once; the write
after that continues from what the other process stored.
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
_TRIES = 3  # attempts of a write if the session changed since it was read


class SessionSetup(NamedTuple):
    """The arguments for opening a session; its forks and children get the same."""

    store: Store
    settings: Settings
    policy: Policy
    where: str | Path = ""  # the path or address of the store
    hooks: tuple[object, ...] = ()
    summarizer: Summarizer | None = None


class SessionState:
    """Keeps a session's log in step with the store, and its lease alive."""

    def __init__(self, row: SessionRow, setup: SessionSetup) -> None:
        """Load the session from its store."""
        self.setup = setup
        self.store = setup.store
        self.settings = setup.settings
        self.policy = setup.policy
        self.key = row.key
        self.id = row.id
        self.limit = setup.settings.limit()
        self.model = setup.settings.model or ""
        self.fixed_tokens = 0  # of the system prompt and the tools, which every request contains
        self.system = ""
        self.tools: tuple[ToolDeclaration, ...] = ()
        self.focus = ""  # of summaries without instructions of their own
        self.count = counter(self.policy.estimate)
        # The store's counter, if the session was created with another one.
        same = row.estimate == self.policy.estimate
        self.other_count = None if same else counter(row.estimate)
        self.builder = MessageBuilder(row.id)
        self.bus = Bus()
        seconds = self.settings.hook_seconds
        self.hooks = HookRunner(setup.hooks, seconds=seconds, report=self._report)
        self.default_summarizer: Summarizer | None = None  # set by `configure`
        self.cached_summarizer: tuple[str, Summarizer | None] | None = None  # by model name
        self.compaction_lock = threading.Lock()
        self.turn_lock = threading.Lock()  # held by an agent loop for one turn
        self.aborted = threading.Event()
        self.lock = _DeliveringLock(self.bus.due, self.bus.deliver)
        self.holder = leases.new_holder()
        self.closed = threading.Event()
        self._reports: list[tuple[str, str, str]] = []
        self._has_lease = False  # as far as is known here: each write checks it
        self._lost_lease = False  # `_has_lease`, but another process was seen to have it
        self._heartbeat: _Heartbeat | None = None
        self._stale = False
        self._thread_local = threading.local()  # nesting depth of `compacting_here`
        self.reload()

    @property
    def usable(self) -> int:
        """The tokens that a request may use of the window, or 0 if the window is unknown."""
        return 0 if self.limit is None else usable(self.policy, self.limit, self.model)

    @property
    def tokens(self) -> int:
        """The tokens of the next request: measured by the provider if possible, else estimated."""
        with self.lock:
            return tokens_used(self.refresh(), fixed=self.fixed_tokens)

    # --- the log ---

    def reload(self) -> None:
        """Read the session from the store again."""
        with self.report_damage():
            loaded = self.store.load(self.key, self.slice(), estimate=self.policy.estimate)
            self.row = loaded.row
            self.set_log(self.build_log(loaded))
            self._stale = False

    def slice(self, operation: int | None = None, *, after: bool = False) -> Slice:
        """The part of the session that a view needs: now, or before or after an operation."""
        dangling = self.policy.view.dangling_tail == "everything"
        return Slice(operation=operation, after=after, dangling=dangling)

    @contextmanager
    def report_damage(self) -> Generator[None]:
        """Raise StoreError for errors caused by inconsistent rows."""
        try:
            yield
        except (LookupError, ValueError, TypeError) as error:
            cause = f"session {self.id} is damaged ({error!r}); restore it from a backup"
            raise StoreError(self.store.name, cause) from error

    def set_log(self, log: Log) -> None:
        """Replace the log, and the viewer of it."""
        self.log = log
        self.viewer = self.viewer_of(log)

    def build_log(self, loaded: LoadedSession) -> Log:
        """The log of loaded messages; sizes by another counter are counted again."""
        log = Log(self.count, checkpoint=loaded.past)
        for entry in loaded.messages:
            log.skip(entry.index, entry.ordinal)
            log.append(entry.message, None if self.other_count else entry.sizes)
        log.skip(loaded.end, loaded.parts)
        log.forget_measured(max(loaded.row.settled, log.pivot.summary if log.pivot else 0))
        return log

    def viewer_of(self, log: Log) -> Viewer:
        """A viewer of a log under this session's policy."""
        return Viewer(log, self.policy, model=self.model, usable=self.usable)

    def refresh(self) -> Viewer:
        """Reload the session if others have written to it, and return its viewer."""
        is_shared = self._lost_lease or not self._has_lease
        if self._stale or (is_shared and self._changed()):
            self.reload()
        return self.viewer

    def _changed(self) -> bool:
        return self.store.version(self.key) != self.row.version

    # --- lookups ---

    def operation(self, number: int) -> Operation:
        """The operation of a number."""
        matches = read_operations(self.store.engine, self.key, "number = ?", number)
        if not matches:
            raise BadInput(f"session {self.id} has no operation {number}")
        return matches[0]

    def message_index(self, message: str, *, hidden: bool = False) -> int:
        """The index of a message given by id or handle; `hidden` allows reverted messages."""
        index = self.store.message_index(self.key, message)
        if index is None:
            ordinal = ordinal_of(message)
            entry = None if ordinal is None else self.store.message_with_part(self.key, ordinal)
            index = None if entry is None else entry.index
            if index is not None and not hidden and is_hidden(self.store.engine, self.key, index):
                index = None
        if index is None:
            raise BadInput(f"session {self.id} has no message {message!r}")
        return index

    # --- the lease ---

    def _take_lease(self) -> None:
        """Take the lease, waiting up to `wait_seconds` for its holder."""
        if self.closed.is_set():
            raise StoreError(self.store.name, f"session {self.id} is closed; open it again")
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
        """Renew the lease if it is held; returns False if another process has taken it.

        Never takes a lease that was released meanwhile.
        """
        engine, seconds = self.store.engine, self.settings.lease_seconds
        if self._has_lease and not leases.renew(engine, self.key, self.holder, seconds):
            self._lost_lease = True  # reads check the version from now on; the next write raises
            return False
        return True

    def acquire(self) -> None:
        """Keep others from writing until `release` or `close`.

        Writes do this themselves; call it to read something that must not change before a write.
        Raises SessionBusy if another process keeps the lease, SessionOvertaken if one took it over.
        """
        with self.lock:
            if not self.renew():
                self._forget_lease()
                raise leases.overtaken_error(self.store.engine, self.key, self.id)
            if not self._has_lease:
                self._take_lease()
                self._stale = self._stale or self._changed()  # not checked again under the lease

    def release(self) -> None:
        """Let others write; the next write here takes the lease again."""
        with self.lock:
            if self._has_lease:
                self._has_lease = self._lost_lease = False
                leases.release(self.store.engine, self.key, self.holder)

    def report_overtaken_later(self) -> None:
        """Let the next write raise SessionOvertaken, because no caller has seen it yet."""
        self._has_lease = self._lost_lease = True

    def _forget_lease(self) -> None:
        """Let the next write take the lease again and reload the session."""
        self._has_lease, self._lost_lease, self._stale = False, False, True

    # --- writing ---

    def write(self, job: Callable[[Change], T]) -> T:
        """Run a job as one transaction; if it fails, the log is reloaded."""
        with self.lock:
            had_lease = self._has_lease
            for _ in range(_TRIES):
                self._take_lease()
                try:
                    return self._attempt(job)
                except SessionOvertaken:
                    self._forget_lease()
                    if had_lease:  # otherwise nothing relied on it: try again
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
        self.bus.queue(change.events)  # delivered when the lock is free
        return result

    def load_changed(self, change: Change) -> int:
        """Load the session as it is inside a transaction; returns the tokens of its view."""
        row = change.current_row()
        sized = self.other_count is None
        self.set_log(self.build_log(load(self.store.engine, row, self.slice(), sized=sized)))
        return self.viewer.tokens

    def _report(self, hook: str, point: str, problem: str) -> None:
        """Log a failed hook now, and store an event of it with the next write."""
        _log.warning("hook %s was skipped at %s: %s", hook, point, problem)
        self._reports.append((hook, point, problem))

    # --- compacting ---

    @contextmanager
    def compacting_here(self) -> Generator[None]:
        """Mark this thread as compacting, or as publishing events of a compaction."""
        self._thread_local.depth = getattr(self._thread_local, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread_local.depth -= 1

    @property
    def is_compacting_here(self) -> bool:
        """Whether this thread is inside `compacting_here`."""
        return bool(getattr(self._thread_local, "depth", 0))

    # --- closing ---

    def close(self) -> None:
        """Release the lease and close the store."""
        with self.lock:
            if self.closed.is_set():
                return
            with suppress(FoldmarkError):  # without the index, searches are only slower
                if self._has_lease and self.row.places - self.row.indexed >= WORTH_INDEXING:
                    self.write(lambda change: change.index())
            self.closed.set()
            with suppress(FoldmarkError):  # a lease that cannot be released expires
                self.release()
            self.bus.close()
            self.store.close()


class _DeliveringLock:
    """Re-entrant lock that calls `deliver` after its outermost release if events are due.

    So subscribers run without the lock, and may wait for other threads.
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
    """Renews the lease of a session, when it has one, until the session is closed or collected."""

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
