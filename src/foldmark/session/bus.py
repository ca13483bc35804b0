"""Tells subscribers in this process what happened; nothing that they do reaches back.

A plain subscriber is called by the thread that publishes, or by the one that is delivering
already. An async one is awaited on the loop that ran where it subscribed, else on a loop of the
bus's own. The bus knows nothing of sessions and keeps no event: it tells what is published after
a subscription, once.
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
MAX_WAITING = 10_000  # events that one async subscriber may lag behind
CLOSE_SECONDS = 1.0  # seconds that `close` gives to what is queued

_Loop = asyncio.AbstractEventLoop
_Item = Event | Awaitable[object]
_log = logging.getLogger("foldmark")


class Bus:
    """Delivers events to subscribers, to each in the order in which they were published."""

    def __init__(self) -> None:
        """Begin without subscribers and without a thread."""
        self._subscriptions: tuple[_Subscription, ...] = ()  # replaced, so read without the lock
        self.due: deque[tuple[_Subscription, Event]] = deque()
        self._delivering = threading.Lock()  # held by the one thread that delivers
        self._lock = threading.Lock()
        self._background: _Background | None = None
        self._closed = False

    def subscribe(self, subscriber: Subscriber, kinds: Iterable[str] = ()) -> Callable[[], None]:
        """Tell a subscriber of these kinds, or all; the function given back ends that.

        A kind that ends with a dot stands for all that begin with it.
        """
        subscription = _Subscription(subscriber, kinds, self._own_loop)
        with self._lock:
            if self._closed:
                raise RuntimeError("the bus is closed")
            self._subscriptions = (*self._subscriptions, subscription)
        return partial(self._drop, subscription)

    def publish(self, events: Iterable[Event]) -> None:
        """Tell of these events, from any thread.

        What is published while others are delivered, by a subscriber or another thread, is
        delivered after them by the thread that is at it. So no lock is held while a subscriber
        runs, and none waits for another.
        """
        self.queue(events)
        self.deliver()

    def queue(self, events: Iterable[Event]) -> None:
        """Take these events in their order; `deliver` tells of them."""
        subscriptions = self._subscriptions
        if subscriptions:
            batch = list(events)
            self.due.extend(
                [(to, event) for event in batch for to in subscriptions if to.wants(event)]
            )

    def close(self) -> None:
        """Tell nobody any more; what is queued on the bus's own loop has a second to end.

        What is queued on another loop goes on there for as long as that runs.
        """
        self.deliver()  # what a KeyboardInterrupt left
        with self._lock:
            self._closed = True
            self._subscriptions = ()
            background, self._background = self._background, None
        if background is not None:
            background.stop()

    def deliver(self) -> None:
        """Tell of what is queued, unless another thread is at it."""
        # Looked at again after the release: another thread may have seen us deliver, and left.
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
    """A subscriber, what it wants to be told, and what waits for it.

    A plain subscriber is called at once. What an async one is told waits in a queue; one task on
    its loop goes through that, and awaits each item before it begins the next.
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
        # What else gives an awaitable shows that with its first answer.
        self._is_async = inspect.iscoroutinefunction(subscriber)
        self._waiting: deque[_Item] = deque()
        self._busy = threading.Lock()  # held while a task goes through what waits
        self._task: asyncio.Future[Any] | None = None  # held, lest it be collected
        self._ended = False
        self._logged: set[str] = set()

    def wants(self, event: Event) -> bool:
        """Whether it is to be told of an event."""
        kind = event.kind
        return not self._kinds or kind in self._kinds or kind.startswith(self._prefixes)

    def deliver(self, event: Event) -> bool:
        """Call the subscriber, or queue the event for it; False if it has ended."""
        if self._ended:
            return False
        if self._is_async:
            self._queue(event)
            return not self._ended
        try:
            answer = self._subscriber(event)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - told in the log
            self._log_failure(error)
            return True
        if inspect.isawaitable(answer):
            # From now on it is called on its loop, so that one event ends before the next begins.
            self._is_async = True
            self._queue(answer)
        return not self._ended

    def end(self) -> None:
        """Deliver nothing more, and let go of what waits."""
        self._ended = True
        with suppress(IndexError):
            while True:
                _discard(self._waiting.popleft())

    def _queue(self, item: _Item) -> None:
        """Put an item at the end of the queue, without waiting."""
        self._waiting.append(item)
        if len(self._waiting) > MAX_WAITING:
            with suppress(IndexError):  # it was ended just now
                _discard(self._waiting.popleft())
            text = "the subscriber %s lags %d events behind; the oldest are dropped"
            self._log_once(logging.WARNING, text, MAX_WAITING)
        try:
            self._wake()
        except RuntimeError:  # the loop was closed just now
            self.end()

    def _wake(self) -> None:
        self._loop = loop = self._loop or self._own_loop()
        if self._ended or loop is None or loop.is_closed():
            self.end()
        elif not self._busy.acquire(blocking=False):
            pass  # the task that is at it comes to this one too
        elif _running_loop() is loop:
            # At once: `asyncio.run` cancels the tasks that there are, and only then stops.
            self._begin()
        else:
            loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        # Gathered, since a plain task complains where its loop is closed before it is done.
        self._task = task = asyncio.gather(self._run(), return_exceptions=True)
        task.add_done_callback(self._after)

    async def _run(self) -> None:
        while (item := self._next()) is not None:
            await self._receive(item)
            if _is_cancelled():
                raise asyncio.CancelledError  # though the subscriber may have swallowed it
            await asyncio.sleep(0)  # others on this loop have their turn

    def _next(self) -> _Item | None:
        """The oldest item; None, and no longer busy, where none waits."""
        while True:
            with suppress(IndexError):
                return self._waiting.popleft()
            self._busy.release()
            # Another thread may have put something, seen us busy, and left.
            if not self._waiting or not self._busy.acquire(blocking=False):
                return None

    async def _receive(self, item: _Item) -> None:
        try:
            answer = self._subscriber(item) if isinstance(item, Event) else item
            if inspect.isawaitable(answer):
                await answer
        # Something that it awaited was cancelled, or it is being cancelled itself.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - told in the log
            if not _is_cancelled():
                self._log_failure(error)

    def _after(self, task: "asyncio.Future[tuple[BaseException | None]]") -> None:
        (problem,) = task.result()
        if problem is not None:  # cancelled: the loop is about to end
            self.end()

    def _log_failure(self, error: BaseException) -> None:
        self._log_once(logging.ERROR, "the subscriber %s failed; it is told on", error=error)

    def _log_once(
        self, level: int, text: str, *more: object, error: BaseException | None = None
    ) -> None:
        if text not in self._logged:
            self._logged.add(text)
            name = getattr(self._subscriber, "__qualname__", type(self._subscriber).__qualname__)
            _log.log(level, text, name, *more, exc_info=error)


class _Background:
    """A loop in a thread of its own, for async subscribers that have none."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopped: asyncio.Future[None] = self.loop.create_future()
        self._thread = threading.Thread(target=self._run, name="foldmark-bus", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop when what is queued is done, or has had its time."""
        with suppress(RuntimeError):  # a subscriber has ended it
            self.loop.call_soon_threadsafe(self._stopped.set_result, None)
        if threading.current_thread() is self._thread:
            return
        self._thread.join(2 * CLOSE_SECONDS)
        if self._thread.is_alive():
            _log.warning("a subscriber blocks the bus's thread, which is left behind")

    def _run(self) -> None:
        # What is still there after its time is cancelled by the runner.
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
    """Whether the task at work is to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _discard(item: _Item) -> None:
    """Let go of an item; a coroutine that is neither awaited nor closed gives a warning."""
    if isinstance(item, Coroutine):
        item.close()
