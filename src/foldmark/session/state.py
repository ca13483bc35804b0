"""What a session object holds: the store, the lease to write, and the log as far as it is shown.

Reading needs no lease: what others wrote is noticed by the session's version. Writing takes the
lease, and every write is one transaction that checks it. A process that was stopped for longer than
its lease and overtaken by another one is told so once, by SessionOvertaken from its next write; the
call after that works again, on the session as the other one left it.
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from foldmark.errors import FoldmarkError, SessionOvertaken, StoreError
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model import events
from foldmark.model.events import Event
from foldmark.model.messages import Message
from foldmark.policy import Policy
from foldmark.store import leases
from foldmark.store.loading import Slice, load
from foldmark.store.rows import Loaded, SessionRow
from foldmark.store.store import Outdated, Store
from foldmark.store.transaction import WORTH_INDEXING, Change
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import counter
from foldmark.tokens.sizes import Size, message_sizes

from .bus import Bus
from .hooks import HookRunner, found_hooks
from .maker import Maker
from .settings import Settings

if TYPE_CHECKING:
    from foldmark.model.prompt_messages import Declared

T = TypeVar("T")
_log = logging.getLogger("foldmark")
_TRIES = 3  # of a write that found the session changed since it was read


class Keeper:
    """Keeps a session's log up to date with the store, and its lease alive."""

    def __init__(self, store: Store, row: SessionRow, settings: Settings, policy: Policy) -> None:
        """Take the store and the session in it."""
        self._store = store
        self._key = row.key
        self._settings = settings
        self.id = row.id
        self.policy = policy
        self.limit = settings.limit()
        self.model = settings.model or ""
        self.fixed = 0  # tokens of the system prompt and the tools, which are in every request
        self.system = ""  # these two, where the program has said what they are
        self.tools: tuple[Declared, ...] = ()
        self.focus = ""  # of every summary for which no other is given
        self._count = counter(policy.estimate)
        self.maker = Maker(row.id)
        self._bus = Bus()
        self._hooks = HookRunner((), seconds=settings.hook_seconds, report=self._report)
        self._reports: list[tuple[str, str, str]] = []
        self._lock = _Turn(self._bus.deliver)
        self._holder = leases.new_holder()
        self._held = False  # the lease, as far as is known here: each write checks it
        self._is_lost = False  # it is held, but another one has been seen to have it
        self._heartbeat: _Heartbeat | None = None
        self._stale = False
        self._closed = threading.Event()
        self._where: str | Path = ""
        self._given_hooks: tuple[object, ...] = ()
        self._given_summarizer: Summarizer | None = None
        self._usual_summarizer: Summarizer | None = None  # of who works here now
        self._reached: tuple[str, Summarizer | None] | None = None  # by the name of its model
        self._compacting = threading.Lock()  # held while a compaction is made
        self.at_work = threading.Lock()  # held by a loop, for one turn
        self._aborted = threading.Event()
        self._here = threading.local()  # how deep this thread is in making a compaction
        self._reload()

    def prepare(
        self,
        where: str | Path,
        hooks: tuple[object, ...],
        summarizer: Summarizer | None = None,
    ) -> None:
        """Take where the store is, hooks beside the installed ones, and who summarises."""
        self._where = where
        self._given_summarizer = summarizer
        self._given_hooks = hooks
        self._hooks = HookRunner(
            (*found_hooks(), *hooks), seconds=self._settings.hook_seconds, report=self._report
        )

    @property
    def room(self) -> int:
        """The tokens that may stand in the window; 0 where no limit is known."""
        return 0 if self.limit is None else usable(self.policy, self.limit, self.model)

    # --- the log ---

    def _reload(self) -> None:
        with self._undamaged():
            loaded = self._store.load(self._key, self._slice(), estimate=self.policy.estimate)
            self._adopt(loaded)

    def _slice(self, act: int | None = None) -> Slice:
        """What the view needs of the session, now or before an act."""
        return Slice(act=act, dangling=self.policy.view.dangling_tail == "everything")

    @contextmanager
    def _undamaged(self) -> Generator[None]:
        """Rows that do not fit together are told as damage: what is read was written whole."""
        try:
            yield
        except (LookupError, ValueError, TypeError) as error:
            raise StoreError(
                self._store.name,
                f"session {self.id} is damaged ({error!r}); restore a backup of it",
            ) from error

    def _adopt(self, loaded: Loaded) -> None:
        self._row = loaded.row
        self._log = self._built(loaded)
        self._viewer = self._viewing(self._log)
        self._stale = False

    def _built(self, loaded: Loaded) -> Log:
        """The log of what was loaded; what others than our counter counted is counted anew."""
        known = loaded.row.estimate == self.policy.estimate
        log = Log(self._count, past=loaded.past)
        for held in loaded.messages:
            log.skip(held.place, held.ordinal)
            log.append(held.message, held.sizes if known else None)
        log.skip(loaded.end, loaded.parts)
        log.forget_measured(max(loaded.row.settled, log.pivot.summary if log.pivot else 0))
        return log

    def _kept_sizes(self, message: Message, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
        """A message's sizes as the store keeps them: counted as all others of the session are."""
        known = self._row.estimate
        if known == self.policy.estimate:
            return sizes
        return message_sizes(message, counter(known))

    def _viewing(self, log: Log) -> Viewer:
        return Viewer(log, self.policy, model=self.model, usable=self.room)

    def _fresh(self) -> Viewer:
        """The viewer, after what others may have written was read."""
        is_shared = self._is_lost or not self._held
        if self._stale or (is_shared and self._changed()):
            self._reload()
        return self._viewer

    def _changed(self) -> bool:
        return self._store.version(self._key) != self._row.version

    # --- the lease ---

    def _acquire(self) -> None:
        """Get the lease, waiting for who holds it as long as the settings say."""
        if self._closed.is_set():
            raise StoreError(self._store.name, f"session {self.id} was closed")
        if self._held:
            return
        deadline = time.monotonic() + self._settings.wait_seconds
        pause = 0.01
        while not self._store.take_lease(self._key, self._holder, self._settings.lease_seconds):
            if time.monotonic() >= deadline:
                raise leases.busy(self._store.engine, self._key, self.id)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        self._held, self._is_lost = True, False
        if self._heartbeat is None:
            self._heartbeat = _Heartbeat(self)
            self._heartbeat.start()

    def _renew(self) -> bool:
        """Keep the lease, if there is one; False where another one has it.

        One that was given back meanwhile is never taken again here.
        """
        engine, seconds = self._store.engine, self._settings.lease_seconds
        if self._held and not leases.renew(engine, self._key, self._holder, seconds):
            self._is_lost = True  # reading looks again from now on; the next write raises
            return False
        return True

    def acquire(self) -> None:
        """Keep others from writing until `release` or `close`; SessionBusy where one does not end.

        The first write does so by itself: this is for who must read before it, and be alone.
        Raises SessionOvertaken where it was held here already, and another one took it over.
        """
        with self._lock:
            if not self._renew():
                self._forget_lease()
                raise leases.overtaken(self._store.engine, self._key, self.id)
            if not self._held:
                self._acquire()
                self._stale = self._stale or self._changed()  # who has it does not look again

    def release(self) -> None:
        """Let others write; the next write here asks for the lease again."""
        with self._lock:
            if self._held:
                self._held = self._is_lost = False
                leases.release(self._store.engine, self._key, self._holder)

    # --- writing ---

    def _write(self, job: Callable[[Change], T]) -> T:
        """Do a job as one transaction; what it did to the log counts only if that went well."""
        with self._lock:
            was_held = self._held
            for _ in range(_TRIES):
                self._acquire()
                try:
                    result, told = self._attempt(job)
                except SessionOvertaken:
                    self._forget_lease()
                    if was_held:  # else nothing was built on it: it is asked for once more
                        raise
                except Outdated:
                    self._reload()
                else:
                    self._bus.queue(told)  # told of when the lock is free
                    return result
        raise leases.busy(self._store.engine, self._key, self.id)

    def _attempt(self, job: Callable[[Change], T]) -> tuple[T, Iterator[Event]]:
        seconds = self._settings.lease_seconds
        if self._stale:
            self._reload()
        with self._store.change(self._row, self._holder, seconds) as change:
            self._stale = True
            result = job(change)
            for hook, point, problem in self._reports:
                change.event(events.HOOK_FAILED, hook=hook, point=point, problem=problem)
        self._reports = []
        self._row = change.row_after()
        self._stale = False
        return result, change.events()

    def _forget_lease(self) -> None:
        """Ask for the lease again with the next write, on the session as it is then."""
        self._held, self._is_lost, self._stale = False, False, True

    def _load_changed(self, change: Change) -> int:
        """Load the session as it is inside a transaction; the tokens of its view."""
        row = change.row_now()
        sized = row.estimate == self.policy.estimate
        self._log = self._built(load(self._store.engine, row, self._slice(), sized=sized))
        self._viewer = self._viewing(self._log)
        return self._viewer.tokens

    def _report(self, hook: str, point: str, problem: str) -> None:
        """A hook that failed is told in the log of the program, and with the next write."""
        _log.warning("hook %s was skipped at %s: %s", hook, point, problem)
        self._reports.append((hook, point, problem))

    def _index_rest(self) -> None:
        """Leave no long tail of messages that a search would have to look through."""
        if self._held and self._row.places - self._row.indexed >= WORTH_INDEXING:
            self._write(lambda change: change.index_all())

    def close(self) -> None:
        """Give the lease back and let the store go."""
        with self._lock:
            if self._closed.is_set():
                return
            with suppress(FoldmarkError):  # it is found without, only slower
                self._index_rest()
            self._closed.set()
            with suppress(FoldmarkError):  # what cannot be given back ends by itself
                self.release()
            self._bus.close()
            self._store.close()


class _Turn:
    """A lock that may be taken again by who has it; when it is free, `after` is called.

    Subscribers are called there: one that waits for another thread must hold nothing meanwhile.
    """

    def __init__(self, after: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._after = after

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        is_free = self._depth == 0
        self._lock.release()
        if is_free:
            self._after()


class _Heartbeat(threading.Thread):
    """Renews a session's lease whenever it has one, for as long as the session is there."""

    def __init__(self, keeper: Keeper) -> None:
        super().__init__(name=f"foldmark-lease-{keeper.id}", daemon=True)
        self._keeper = weakref.ref(keeper)
        self._closed = keeper._closed  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._pause = keeper._settings.lease_seconds / 3  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    def run(self) -> None:
        while not self._closed.wait(self._pause):
            keeper = self._keeper()
            if keeper is None:
                return
            try:
                keeper._renew()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
            except FoldmarkError as error:
                _log.warning("the lease of session %s was not renewed: %s", keeper.id, error)
            del keeper
