"""One event loop in a thread of its own, on which blocking calls let coroutines run.

It is made when it is first needed and shared by the process. A forked child makes its own: of a
thread nothing is left there. This module does not know what runs on the loop.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_LOOK = 0.5  # seconds after which a wait looks up: some systems interrupt no lock
_END = 2.0  # seconds that the loop has to end with the process


class _Loop:
    """A running loop and its thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="foldmark-models", daemon=True
        )
        self.thread.start()

    def end(self) -> None:
        """Stop the loop, after what still runs on it has heard that it is cancelled."""
        ending = asyncio.run_coroutine_threadsafe(_cancelled(), self.loop)
        wait((ending,), _END)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_END)
        if not self.thread.is_alive() and ending.done():
            self.loop.close()


async def _cancelled() -> None:
    """Cancel all else that runs here, and wait for it: a task cut off in its middle complains."""
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


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
    future = asyncio.run_coroutine_threadsafe(work, running.loop)
    # Not waited for by its own lock: an interrupt between two lines of Python would leave that
    # taken, and the loop's thread would wait for it for ever.
    ended: SimpleQueue[object] = SimpleQueue()
    future.add_done_callback(ended.put)
    try:
        while not _got(ended):
            pass
    except BaseException:
        future.cancel()
        raise
    return future.result()


def _got(ended: SimpleQueue[object]) -> bool:
    try:
        ended.get(timeout=_LOOK)
    except Empty:
        return False
    return True
