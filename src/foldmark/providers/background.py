"""Run coroutines from blocking code, and blocking code from coroutines.

One event loop in its own thread runs coroutines for blocking callers. It is started on first use
and shared by the process. A forked child starts its own, because threads do not survive a fork.
This module does not know what runs on the loop.
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

_POLL = 0.5  # seconds between checks: on some systems a lock cannot be interrupted
_THREADS = 64
_END_TIMEOUT = 2.0  # seconds for the loop to end at exit


class _Loop:
    """An event loop and the thread that runs it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="foldmark-models", daemon=True)
        self._is_ended = False
        self.thread.start()

    def _run(self) -> None:
        """Keep running whatever a task raises; whoever awaits the task gets the error."""
        while not self._is_ended:
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    def end(self) -> None:
        """Cancel all tasks, then stop the loop."""
        ending = asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop)
        wait((ending,), _END_TIMEOUT)
        self._is_ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_END_TIMEOUT)
        if not self.thread.is_alive() and ending.done():
            self.loop.close()


async def _cancel_all() -> None:
    """Cancel all other tasks and wait for them: asyncio warns about tasks that are cut off."""
    await end_tasks(asyncio.all_tasks() - {asyncio.current_task()}, None)


@cache
def _threads() -> ThreadPoolExecutor:
    """Own threads: a loop's default threads resolve addresses, which work here may wait for."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="foldmark")


class _SharedLoop:
    """The background event loop of this process, created on first use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: _Loop | None = None
        self.inherited: list[_Loop] = []  # of the parent; closing one would close shared files

    def running(self) -> _Loop:
        with self.lock:
            if self.current is None:
                self.current = _Loop()
            return self.current

    def forget(self) -> None:
        self.lock = threading.Lock()  # the parent may have forked while it was locked
        _threads.cache_clear()
        if self.current is not None:
            self.inherited.append(self.current)
            self.current = None

    def end(self) -> None:
        if self.current is not None:
            self.current.end()


_SHARED = _SharedLoop()
atexit.register(_SHARED.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SHARED.forget)


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the background and return its result; an interrupt cancels it."""
    running = _SHARED.running()
    if threading.current_thread() is running.thread:
        work.close()
        raise RuntimeError("code on the background loop must await instead of blocking")
    job = _Work(work)
    try:
        running.loop.call_soon_threadsafe(job.start)
        return job.result()
    except BaseException:
        running.loop.call_soon_threadsafe(job.cancel)
        raise


class _Work(Generic[T]):
    """A coroutine that can be cancelled before and after the loop has started it.

    It exists before it is started, so that an interrupt at any point finds it. A queue signals its
    end because an interrupt could leave a lock acquired, and the loop's thread would wait for it
    forever.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self._ended_tasks: SimpleQueue[asyncio.Task[T]] = SimpleQueue()

    def start(self) -> None:
        if not self._is_cancelled:
            self._task = asyncio.get_running_loop().create_task(self._work)
            self._task.add_done_callback(self._ended_tasks.put)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()

    def result(self) -> T:
        while True:
            with suppress(Empty):
                task = self._ended_tasks.get(timeout=_POLL)
                break
        return task.result()


async def end_tasks(tasks: Iterable["asyncio.Task[Any] | None"], grace: float | None) -> None:
    """Cancel running tasks and wait up to `grace` seconds; tasks that do not end are left."""
    running = [task for task in tasks if task is not None and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=grace)


async def run_uninterrupted(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run a call in a thread and return its result; a cancellation waits for its end."""
    work = partial(copy_context().run, partial(call, *args, **options))
    return await wait_uninterrupted(asyncio.get_running_loop().run_in_executor(_threads(), work))


async def wait_uninterrupted(work: asyncio.Future[T]) -> T:
    """Wait for a future to its end; a cancellation is raised only after that."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait((work,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # marks the error as retrieved
    raise cancelled


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run a function in a thread that is abandoned if the wait is cancelled.

    It is not one of asyncio's threads: they are few, and a program waits for them before it exits.
    """
    result_future: Future[Callable[[], T]] = Future()
    future = asyncio.wrap_future(result_future)
    context = copy_context()

    def run() -> None:
        if not result_future.set_running_or_notify_cancel():
            return
        # A future cannot hold every error, so it holds a function that raises it.
        try:
            result = context.run(work)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            result_future.set_result(partial(_raise, error))
        else:
            result_future.set_result(lambda: result)

    threading.Thread(target=run, name="foldmark-tool", daemon=True).start()
    return (await future)()


def _raise(error: BaseException) -> NoReturn:
    raise error
