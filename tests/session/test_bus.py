"""The event bus: order of delivery, threads and loops, and isolation of subscribers."""

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, cast

import pytest

from foldmark.model.events import COMPACTED, DELTA, PRUNED, STARTED, Event
from foldmark.session import bus as module
from foldmark.session.bus import Bus

Async = Callable[[Event], Awaitable[None]]
Form = Callable[[Async], Callable[[Event], object]]
SOON = 20.0  # seconds that are enough even on a busy machine


def event(number: int = 1, kind: str = PRUNED) -> Event:
    return Event(number=number, session="s", kind=kind, at=0, data={})


def events(count: int) -> list[Event]:
    return [event(number) for number in range(1, count + 1)]


class EventRecorder:
    """Records the numbers of events, and lets a test wait for a count."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.threads: set[threading.Thread] = set()
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._changed:
            self.numbers.append(event.number)
            self.threads.add(threading.current_thread())
            self._changed.notify_all()

    async def later(self, event: Event) -> None:
        self(event)

    async def endless(self, event: Event) -> None:
        self(event)
        await asyncio.Event().wait()

    async def stubborn(self, event: Event) -> None:
        with suppress(asyncio.CancelledError):
            await self.endless(event)

    def wait(self, count: int) -> list[int]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.numbers) >= count, SOON), self.numbers
        return self.numbers

    async def awaited(self, count: int) -> None:
        async with asyncio.timeout(SOON):
            while len(self.numbers) < count:
                await asyncio.sleep(0)


def plainly(subscriber: Async) -> Callable[[Event], object]:
    return lambda event: cast("object", subscriber(event))


PLAIN_OR_NOT = pytest.mark.parametrize("form", [plainly, partial])


@pytest.fixture
def bus(caplog: pytest.LogCaptureFixture) -> Iterator[Bus]:
    """A bus that must leave no thread and no unexpected log records."""
    bus = Bus()
    yield bus
    bus.close()
    assert own_threads() == []
    gc.collect()  # asyncio logs its complaints now
    records = [*caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in records] == []


def logged(caplog: pytest.LogCaptureFixture, level: int) -> logging.LogRecord:
    """The only log record, which is removed."""
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("foldmark", level)
    caplog.clear()
    return record


def other_tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "foldmark-bus"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), [COMPACTED, STARTED, DELTA]),
        ((DELTA, COMPACTED), [COMPACTED, DELTA]),
        (("compaction.",), [STARTED, DELTA]),
        (("compaction", "session.compact"), []),  # only a dot makes a prefix
        ("compaction.", [STARTED, DELTA]),  # one kind, not its letters
        (iter([DELTA]), [DELTA]),
    ],
)
def test_a_subscriber_gets_only_the_kinds_that_it_wants(
    bus: Bus, kinds: tuple[str, ...], expected: list[str]
) -> None:
    received: list[str] = []
    bus.subscribe(lambda e: received.append(e.kind), kinds)
    for _ in range(2):
        bus.publish(event(kind=kind) for kind in (COMPACTED, STARTED, DELTA))
    assert received == expected * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_subscriber_is_logged_once_and_harms_nobody(
    bus: Bus, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    called, recorder, awaited = EventRecorder(), EventRecorder(), EventRecorder()

    def failing(event: Event) -> None:
        called(event)
        raise ValueError("broken on purpose")

    async def failing_later(event: Event) -> None:
        if event.number == 2:  # the awaited future is cancelled, not the subscriber
            called(event)
            (never := asyncio.get_running_loop().create_future()).cancel()
            await never
        failing(event)

    for subscriber in (failing_later if is_async else failing, recorder, awaited.later):
        bus.subscribe(subscriber)
    bus.publish(events(3))
    assert called.wait(3) == awaited.wait(3) == recorder.numbers == [1, 2, 3]
    bus.close()  # so that the log is complete
    assert "ValueError: broken on purpose" in caplog.text
    assert "Traceback" in caplog.text
    assert "failing" in logged(caplog, logging.ERROR).message


@pytest.mark.parametrize("closing", [False, True])
def test_an_interrupt_propagates_and_the_rest_is_delivered_later(
    bus: Bus, *, closing: bool
) -> None:
    recorder, called = EventRecorder(), EventRecorder()

    def interrupted(e: Event) -> None:
        called(e)
        if e.number == 1:
            raise KeyboardInterrupt

    bus.subscribe(interrupted)
    bus.subscribe(recorder)
    with pytest.raises(KeyboardInterrupt):
        bus.publish(events(2))
    assert recorder.numbers == []
    bus.close() if closing else bus.publish([event(3)])
    assert recorder.numbers == called.numbers == ([1, 2] if closing else [1, 2, 3])


def test_events_published_by_a_subscriber_come_after_queued_ones(bus: Bus) -> None:
    received: list[tuple[str, int]] = []

    def publishing(e: Event) -> None:
        received.append(("a", e.number))
        if e.number < 3:
            bus.publish([event(e.number + 10)])

    bus.subscribe(publishing)
    bus.subscribe(lambda e: received.append(("b", e.number)))
    bus.publish(events(2))
    assert received == [(name, number) for number in (1, 2, 11, 12) for name in "ab"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_chain_of_published_events_needs_no_deep_stack(bus: Bus, *, is_async: bool) -> None:
    recorder, limit = EventRecorder(), 5 * sys.getrecursionlimit()

    def publishing(e: Event) -> None:
        if e.number < limit:
            bus.publish([event(e.number + 1)])
        recorder(e)

    async def later(e: Event) -> None:
        publishing(e)

    bus.subscribe(later if is_async else publishing)
    bus.publish([event(1)])
    assert recorder.wait(limit) == list(range(1, limit + 1))


def test_subscriptions_can_start_and_end_inside_a_subscriber(bus: Bus) -> None:
    first, second, late = EventRecorder(), EventRecorder(), EventRecorder()

    def once(e: Event) -> None:
        first(e)
        bus.subscribe(late)
        for end in (end_first, end_second, end_second):
            end()

    end_first = bus.subscribe(once)
    end_second = bus.subscribe(second)
    bus.subscribe(first)
    bus.publish(events(2))
    bus.publish([event(3)])
    assert (first.numbers, second.numbers) == ([1, 1, 2, 3], [])  # ended at once
    assert late.numbers == [3]  # only events published after it subscribed


def test_concurrent_publishers_lose_and_repeat_nothing(bus: Bus) -> None:
    recorder, other, awaited = EventRecorder(), EventRecorder(), EventRecorder()
    for subscriber in (recorder, other, awaited.later):
        bus.subscribe(subscriber)
    each, many = 300, 8
    begin = threading.Barrier(many)

    def publish(first: int) -> None:
        begin.wait(SOON)
        for number in range(first, first + each):
            bus.publish([event(number)])
            bus.subscribe(recorder, ("nothing",))()

    with ThreadPoolExecutor(many) as pool:
        list(pool.map(publish, range(0, each * many, each)))
    numbers = recorder.wait(each * many)
    assert numbers == other.wait(each * many) == awaited.wait(each * many)
    assert sorted(numbers) == list(range(each * many))
    for n in range(many):
        own = [number for number in numbers if number // each == n]
        assert own == sorted(own)


def test_a_subscriber_may_wait_for_a_thread_that_publishes(bus: Bus) -> None:
    log: list[str] = []

    def waiting(e: Event) -> None:
        log.append(f"begin {e.number}")
        if e.number == 1:
            thread = threading.Thread(target=bus.publish, args=([event(2)],))
            thread.start()
            thread.join(SOON)
            log.append(f"blocked: {thread.is_alive()}")

    bus.subscribe(waiting)
    bus.publish([event(1)])
    assert log == ["begin 1", "blocked: False", "begin 2"]


class LockWithCallback:
    """A lock that calls a function once, just before its first release."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._callbacks = [callback]
        self.acquire = self._lock.acquire

    def release(self) -> None:
        if self._callbacks:
            self._callbacks.pop()()
        self._lock.release()


def test_an_event_at_the_last_moment_of_a_delivery_is_not_lost(bus: Bus) -> None:
    plain, recorder, inner = EventRecorder(), EventRecorder(), cast("Any", bus)

    async def main() -> None:
        bus.subscribe(recorder.later)
        bus.subscribe(plain)
        bus.publish([event(1)])
        await asyncio.wait(other_tasks())
        inner._delivering = LockWithCallback(lambda: bus.publish([event(3)]))
        inner._subscriptions[0]._busy = LockWithCallback(lambda: bus.publish([event(4)]))
        bus.publish([event(2)])
        assert plain.numbers == [1, 2, 3]
        await recorder.awaited(4)

    asyncio.run(main())
    assert recorder.numbers == plain.numbers == [1, 2, 3, 4]


class ExclusiveSubscriber:
    """An async subscriber that fails if two of its calls overlap."""

    def __init__(self) -> None:
        self.recorder = EventRecorder()
        self.inside = False

    async def __call__(self, event: Event) -> None:
        assert not self.inside
        self.inside = True
        for _ in range(3):
            await asyncio.sleep(0)
        self.inside = False
        self.recorder(event)

    def sometimes(self, event: Event) -> Awaitable[None] | None:
        assert not self.inside
        return self(event) if event.number % 2 else self.recorder(event)


FORMS: dict[str, Callable[[ExclusiveSubscriber], Callable[[Event], object]]] = {
    "object": lambda subscriber: subscriber,
    "method": lambda subscriber: subscriber.__call__,
    "partial": partial,
    "plain": plainly,
    "sometimes": lambda subscriber: subscriber.sometimes,
}


@pytest.mark.parametrize("form", FORMS)
def test_events_are_awaited_one_by_one_on_the_subscribers_loop(bus: Bus, form: str) -> None:
    subscriber = ExclusiveSubscriber()

    async def main() -> None:
        bus.subscribe(FORMS[form](subscriber))
        bus.publish(events(30)[:10])
        await asyncio.to_thread(bus.publish, events(30)[10:])
        await subscriber.recorder.awaited(30)

    asyncio.run(main())
    assert subscriber.recorder.numbers == list(range(1, 31))
    assert subscriber.recorder.threads == {threading.current_thread()}


@pytest.mark.parametrize("form", FORMS)
def test_without_a_loop_events_are_awaited_in_a_thread_of_the_bus(bus: Bus, form: str) -> None:
    subscriber = ExclusiveSubscriber()
    bus.subscribe(FORMS[form](subscriber))
    assert own_threads() == []
    for each in events(30):
        bus.publish([each])
    assert subscriber.recorder.wait(30) == list(range(1, 31))
    assert subscriber.recorder.threads == set(own_threads())
    assert [thread.daemon for thread in own_threads()] == [True]


def test_a_slow_async_subscriber_blocks_neither_the_publisher_nor_others(bus: Bus) -> None:
    slow, quick, plain = EventRecorder(), EventRecorder(), EventRecorder()

    async def main() -> None:
        for subscriber in (slow.endless, quick.later, plain):
            bus.subscribe(subscriber)
        bus.publish(events(5))
        await quick.awaited(5)

    asyncio.run(main())
    assert slow.numbers == [1]
    assert plain.numbers == quick.numbers == [1, 2, 3, 4, 5]


@PLAIN_OR_NOT
def test_too_many_queued_events_drop_the_oldest_and_log_once(
    bus: Bus, form: Form, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    recorder = EventRecorder()

    async def main() -> None:
        bus.subscribe(form(recorder.later))
        bus.publish(events(10))  # the loop cannot run before this ends
        await recorder.awaited(3)

    asyncio.run(main())
    assert recorder.numbers == [8, 9, 10]
    assert "dropped" in logged(caplog, logging.WARNING).message


def test_queued_events_are_not_delivered_after_unsubscribing(bus: Bus) -> None:
    recorder, other = EventRecorder(), EventRecorder()

    async def main() -> None:
        async def once(event: Event) -> None:
            recorder(event)
            end()

        end = bus.subscribe(once)
        never = bus.subscribe(plainly(recorder.later))
        bus.subscribe(other.later)
        bus.publish(events(3))
        never()
        await other.awaited(3)

    asyncio.run(main())
    assert recorder.numbers == [1]


@PLAIN_OR_NOT
@pytest.mark.parametrize("subscriber", [EventRecorder.endless, EventRecorder.stubborn])
@pytest.mark.parametrize(("published", "handled"), [(0, 0), (3, 0), (3, 1)])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_subscriber_whose_loop_ends_is_dropped_quietly(
    bus: Bus, form: Form, subscriber: Any, published: int, handled: int, *, cancels: bool
) -> None:
    recorder, other = EventRecorder(), EventRecorder()

    async def main() -> None:
        bus.subscribe(form(partial(subscriber, recorder)))
        bus.publish(events(published))
        await recorder.awaited(handled)

    if cancels:
        asyncio.run(main())
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    bus.subscribe(other)
    bus.publish(events(2))
    assert other.numbers == [1, 2]
    assert len(bus._subscriptions) == 1  # pyright: ignore[reportPrivateUsage]
    assert len(recorder.numbers) in (handled, min(published, 1))


def test_a_subscriber_whose_task_is_cancelled_is_dropped(bus: Bus) -> None:
    recorder = EventRecorder()

    async def main() -> None:
        bus.subscribe(recorder.endless)
        bus.publish(events(2))
        await recorder.awaited(1)
        for task in (tasks := other_tasks()):
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0)
        bus.publish([event(3)])
        assert bus._subscriptions == ()  # pyright: ignore[reportPrivateUsage]

    asyncio.run(main())


def test_closing_waits_for_queued_events(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", SOON)
    subscriber = ExclusiveSubscriber()
    bus.subscribe(subscriber)
    bus.publish(events(50))
    bus.close()
    assert subscriber.recorder.numbers == list(range(1, 51))


def test_closing_cancels_endless_subscribers(bus: Bus) -> None:
    recorder = EventRecorder()
    bus.subscribe(recorder.endless)
    bus.publish(events(3))
    bus.close()
    assert recorder.numbers == [1]
    assert own_threads() == []


def test_a_blocking_subscriber_does_not_block_closing(
    bus: Bus, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.02)
    recorder, gate = EventRecorder(), threading.Event()

    async def blocking(e: Event) -> None:
        recorder(e)
        gate.wait(SOON)

    bus.subscribe(blocking)
    bus.publish([event()])
    recorder.wait(1)
    bus.close()
    assert "abandoned" in logged(caplog, logging.WARNING).message
    (thread,) = own_threads()
    gate.set()
    thread.join(SOON)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_bus_closed_by_a_subscriber_delivers_nothing_more(bus: Bus, *, is_async: bool) -> None:
    recorder = EventRecorder()

    def closing(e: Event) -> Awaitable[None]:
        bus.close()
        return recorder.later(e)  # must be closed: Python warns about coroutines never awaited

    async def closing_later(_: Event) -> None:
        bus.close()

    end = bus.subscribe(closing_later if is_async else closing)
    bus.publish(events(2))
    for thread in own_threads():
        thread.join(SOON)
    bus.publish([event(3)])
    end()
    assert recorder.numbers == []
    with pytest.raises(RuntimeError, match="closed"):
        bus.subscribe(recorder)
