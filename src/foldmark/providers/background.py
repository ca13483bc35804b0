"""Blocking code and coroutines together: each may call the other.

One event loop in a thread of its own lets coroutines run for blocking calls. It is made when it
is first needed and shared by the process. A forked child makes its own: of a thread nothing is
left there. This module does not know what runs on the loop.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LOOK = 0.5  # seconds after which a wait looks up: some systems interrupt no lock
_THREADS = 64
_END = 2.0  # seconds that the loop has to end with the process


class _Loop:
    """A running loop and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="foldmark-models", daemon=True)
        self._ended = False
        self.thread.start()

    def _run(self) -> None:
        """Run on, whatever a task raises: to whoever waits for that task it is told anyway."""
        while not self._ended:
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    def end(self) -> None:
        """Stop the loop, after what still runs on it has heard that it is cancelled."""
        ending = asyncio.run_coroutine_threadsafe(_cancelled(), self.loop)
        wait((ending,), _END)
        self._ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_END)
        if not self.thread.is_alive() and ending.done():
            self.loop.close()


async def _cancelled() -> None:
    """Cancel all else that runs here, and wait for it: a task cut off in its middle complains."""
    await end_tasks(asyncio.all_tasks() - {asyncio.current_task()}, None)


@cache
def _threads() -> ThreadPoolExecutor:
    """Not a loop's own threads: those look up addresses, which what waits here may need."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="foldmark")


class _Shared:
    """The loop of this process, if there is one yet."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: _Loop | None = None
        self.lost: list[_Loop] = []  # of a parent; kept, as to drop one would close what it shares

    def running(self) -> _Loop:
        with self.lock:
            if self.held is None:
                self.held = _Loop()
            return self.held

    def forget(self) -> None:
        self.lock = threading.Lock()  # another thread of the parent may have held the old one
        _threads.cache_clear()
        if self.held is not None:
            self.lost.append(self.held)
            self.held = None

    def end(self) -> None:
        if self.held is not None:
            self.held.end()


_SHARED = _Shared()
atexit.register(_SHARED.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SHARED.forget)


def waited(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives, run in the background; an interrupt of the wait cancels it."""
    running = _SHARED.running()
    if threading.current_thread() is running.thread:
        work.close()
        raise RuntimeError("what runs on this loop may await, but must not block on it")
    held = _Work(work)
    try:
        running.loop.call_soon_threadsafe(held.begin)
        return held.result()
    except BaseException:
        running.loop.call_soon_threadsafe(held.cancel)
        raise


class _Work(Generic[T]):
    """A coroutine on its way to the loop and on it; it can be cancelled at either.

    It is there before it is begun, so an interrupt between two lines of Python finds it. And its
    end is not waited for by a lock of its own: such an interrupt would leave that taken, and the
    loop's thread would wait for it for ever.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False
        self._ended: SimpleQueue[asyncio.Task[T]] = SimpleQueue()

    def begin(self) -> None:
        if not self._cancelled:
            self._task = asyncio.get_running_loop().create_task(self._work)
            self._task.add_done_callback(self._ended.put)

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()

    def result(self) -> T:
        while True:
            with suppress(Empty):
                ended = self._ended.get(timeout=_LOOK)
                break
        return ended.result()


async def end_tasks(tasks: Iterable["asyncio.Task[Any] | None"], grace: float | None) -> None:
    """Cancel what still runs, and wait for it so many seconds; what will not end is left behind."""
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=grace)


async def uncut(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What a call gives in a thread, which nobody can cancel: its end is waited for even then."""
    work = partial(copy_context().run, partial(call, *args, **named))
    return await finished(asyncio.get_running_loop().run_in_executor(_threads(), work))


async def finished(work: asyncio.Future[T]) -> T:
    """What work gives, waited for to its end; then a cancellation of the wait is raised."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # it is not what is raised here
    raise cancelled


async def run_in_thread(work: Callable[[], T]) -> T:
    """What a function gives, run in a thread that nobody waits for when the wait is cancelled.

    Not one of asyncio's own: these are few, and a program does not end before they do.
    """
    ended: Future[Callable[[], T]] = Future()
    future = asyncio.wrap_future(ended)
    context = copy_context()

    def run() -> None:
        if not ended.set_running_or_notify_cancel():
            return
        # A future does not take every error: what it is given raises it again.
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - who waits is told of it
            ended.set_result(partial(_raise, error))
        else:
            ended.set_result(lambda: result)

    threading.Thread(target=run, name="foldmark-tool", daemon=True).start()
    return (await future)()


def _raise(error: BaseException) -> NoReturn:
    raise error
