"""Event bus within a process: subscribers get events, but cannot affect what publishes them.

A plain subscriber is called by the thread that publishes, or by the one that is delivering
already. An async one is awaited on the event loop in which it subscribed, else on the bus's own
loop. The bus knows nothing of sessions and stores no events.
"""

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from foldmark.model.events import Event

Subscriber = Callable[[Event], object]
MAX_WAITING = 10_000  # events for one async subscriber; older ones are dropped
CLOSE_SECONDS = 1.0  # time that `close` gives to queued events

_Loop = asyncio.AbstractEventLoop
_Item = Event | Awaitable[object]
_log = logging.getLogger("foldmark")


class Bus:
    """Delivers events to subscribers, to each in the order in which they were published."""

    def __init__(self) -> None:
        """Start without subscribers and without a thread."""
        self._subscriptions: tuple[_Subscription, ...] = ()  # replaced, so read without the lock
        self.due: deque[tuple[_Subscription, Event]] = deque()
        self._delivering = threading.Lock()  # held by the one thread that delivers
        self._lock = threading.Lock()
        self._background: _Background | None = None
        self._closed = False

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = ()) -> Callable[[], None]:
        """Call a subscriber for each event of these kinds; call the returned function to stop.

        No kinds means all; a kind that ends with a dot matches all that start with it.
        """
        subscription = _Subscription(subscriber, kinds, self._own_loop)
        with self._lock:
            if self._closed:
                raise RuntimeError("the bus is closed")
            self._subscriptions = (*self._subscriptions, subscription)
        return partial(self._drop, subscription)

    def publish(self, events: Iterable[Event]) -> None:
        """Deliver these events; may be called from any thread.

        If a thread is delivering already, it delivers these too. So no lock is held while a
        subscriber runs, and no thread waits for another.
        """
        self.queue(events)
        self.deliver()

    def queue(self, events: Iterable[Event]) -> None:
        """Queue these events in order, for `deliver`."""
        subscriptions = self._subscriptions
        if subscriptions:
            batch = list(events)
            self.due.extend(
                [(to, event) for event in batch for to in subscriptions if to.wants(event)]
            )

    def close(self) -> None:
        """Stop delivering; events queued on the bus's own loop get a second to finish.

        Events queued on another loop are handled there as long as it runs.
        """
        self.deliver()  # in case a KeyboardInterrupt interrupted an earlier delivery
        with self._lock:
            self._closed = True
            self._subscriptions = ()
            background, self._background = self._background, None
        if background is not None:
            background.stop()

    def deliver(self) -> None:
        """Deliver the queued events, unless another thread is doing so."""
        # Checked again after the release: another thread may have relied on this one.
        while self.due and self._delivering.acquire(blocking=False):
            try:
                while self.due:
                    subscription, event = self.due.popleft()
                    if not subscription.deliver(event):
                        self._drop(subscription)
            finally:
                self._delivering.release()

    def _drop(self, subscription: "_Subscription") -> None:
        with self._lock:
            remaining = tuple(other for other in self._subscriptions if other is not subscription)
            self._subscriptions = remaining
        subscription.end()

    def _own_loop(self) -> _Loop | None:
        with self._lock:
            if self._background is None and not self._closed:
                self._background = _Background()
            return self._background.loop if self._background else None


class _Subscription:
    """A subscriber, the kinds of events it wants, and its queue.

    A plain subscriber is called at once. Events for an async one wait in a queue; one task on its
    loop awaits them one after the other.
    """

    def __init__(
        self, subscriber: Subscriber, kinds: Iterable[str], own_loop: Callable[[], _Loop | None]
    ) -> None:
        kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        self._subscriber = subscriber
        self._kinds = frozenset(kinds)
        self._prefixes = tuple(kind for kind in kinds if kind.endswith("."))
        self._loop = _running_loop()
        self._own_loop = own_loop
        # Other callables that return awaitables are recognized at their first call.
        self._is_async = inspect.iscoroutinefunction(subscriber)
        self._waiting: deque[_Item] = deque()
        self._busy = threading.Lock()  # held while a task works through the queue
        self._task: asyncio.Future[Any] | None = None  # keeps it from being garbage collected
        self._ended = False
        self._logged: set[str] = set()

    def wants(self, event: Event) -> bool:
        """Whether the subscriber wants an event."""
        kind = event.kind
        return not self._kinds or kind in self._kinds or kind.startswith(self._prefixes)

    def deliver(self, event: Event) -> bool:
        """Call the subscriber, or queue the event for it; returns False if it has ended."""
        if self._ended:
            return False
        if self._is_async:
            self._queue(event)
            return not self._ended
        try:
            answer = self._subscriber(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - logged
            self._log_failure(error)
            return True
        if inspect.isawaitable(answer):
            # From now on call it on its loop, so that events are handled one after the other.
            self._is_async = True
            self._queue(answer)
        return not self._ended

    def end(self) -> None:
        """Deliver nothing more, and drop the queue."""
        self._ended = True
        with suppress(IndexError):
            while True:
                _discard(self._waiting.popleft())

    def _queue(self, item: _Item) -> None:
        """Append an item to the queue without waiting."""
        self._waiting.append(item)
        if len(self._waiting) > MAX_WAITING:
            with suppress(IndexError):  # another thread emptied the queue
                _discard(self._waiting.popleft())
            text = "the subscriber %s lags %d events behind; the oldest are dropped"
            self._log_once(logging.WARNING, text, MAX_WAITING)
        try:
            self._wake()
        except RuntimeError:  # the loop was closed meanwhile
            self.end()

    def _wake(self) -> None:
        self._loop = loop = self._loop or self._own_loop()
        if self._ended or loop is None or loop.is_closed():
            self.end()
        elif not self._busy.acquire(blocking=False):
            pass  # the running task will handle this item too
        elif _running_loop() is loop:
            # At once: `asyncio.run` cancels existing tasks before it stops the loop.
            self._begin()
        else:
            loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        # Gathered: a plain task logs an error if its loop is closed before it is done.
        self._task = task = asyncio.gather(self._run(), return_exceptions=True)
        task.add_done_callback(self._after)

    async def _run(self) -> None:
        while (item := self._next()) is not None:
            await self._receive(item)
            if _is_cancelled():
                raise asyncio.CancelledError  # the subscriber may have swallowed it
            await asyncio.sleep(0)  # let other tasks of this loop run

    def _next(self) -> _Item | None:
        """The oldest item, or None, no longer busy, if the queue is empty."""
        while True:
            with suppress(IndexError):
                return self._waiting.popleft()
            self._busy.release()
            # Another thread may have queued an item while this one was still busy.
            if not self._waiting or not self._busy.acquire(blocking=False):
                return None

    async def _receive(self, item: _Item) -> None:
        try:
            answer = self._subscriber(item) if isinstance(item, Event) else item
            if inspect.isawaitable(answer):
                await answer
        # CancelledError: something it awaited was cancelled, or it is being cancelled itself.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - logged
            if not _is_cancelled():
                self._log_failure(error)

    def _after(self, task: "asyncio.Future[tuple[BaseException | None]]") -> None:
        (problem,) = task.result()
        if problem is not None:  # cancelled: the loop is stopping
            self.end()

    def _log_failure(self, error: BaseException) -> None:
        text = "the subscriber %s failed; it still gets further events"
        self._log_once(logging.ERROR, text, error=error)

    def _log_once(
        self, level: int, text: str, *more: object, error: BaseException | None = None
    ) -> None:
        if text not in self._logged:
            self._logged.add(text)
            name = getattr(self._subscriber, "__qualname__", type(self._subscriber).__qualname__)
            _log.log(level, text, name, *more, exc_info=error)


class _Background:
    """An event loop in its own thread, for async subscribers without a loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopped: asyncio.Future[None] = self.loop.create_future()
        self._thread = threading.Thread(target=self._run, name="foldmark-bus", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the loop when its tasks are done, or after the time limit."""
        with suppress(RuntimeError):  # a subscriber has stopped it
            self.loop.call_soon_threadsafe(self._stopped.set_result, None)
        if threading.current_thread() is self._thread:
            return
        self._thread.join(2 * CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("a subscriber blocks the event thread, which is abandoned")

    def _run(self) -> None:
        # The runner cancels tasks that exceed the time limit.
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stopped
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=CLOSE_SECONDS)


def _running_loop() -> _Loop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def _is_cancelled() -> bool:
    """Whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _discard(item: _Item) -> None:
    """Drop an item; closes a coroutine, since Python warns if it is never awaited."""
    if isinstance(item, Coroutine):
        item.close()
