"""Who is told of events, in which order, on which thread, and that nobody is harmed by another."""

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
SOON = 20.0  # seconds in which a loaded machine does what takes a millisecond


def event(number: int = 1, kind: str = PRUNED) -> Event:
    return Event(number=number, session="s", kind=kind, at=0, data={})


def events(count: int) -> list[Event]:
    return [event(number) for number in range(1, count + 1)]


class Seen:
    """Remembers the numbers of events, and lets a test wait for so many."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.threads: set[threading.Thread] = set()
        self._changed = threading.Condition()

    def __call__(self, told: Event) -> None:
        with self._changed:
            self.numbers.append(told.number)
            self.threads.add(threading.current_thread())
            self._changed.notify_all()

    async def later(self, told: Event) -> None:
        self(told)

    async def endless(self, told: Event) -> None:
        self(told)
        await asyncio.Event().wait()

    async def stubborn(self, told: Event) -> None:
        with suppress(asyncio.CancelledError):
            await self.endless(told)

    def wait(self, count: int) -> list[int]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.numbers) >= count, SOON), self.numbers
        return self.numbers

    async def awaited(self, count: int) -> None:
        async with asyncio.timeout(SOON):
            while len(self.numbers) < count:
                await asyncio.sleep(0)


def plainly(subscriber: Async) -> Callable[[Event], object]:
    return lambda told: cast("object", subscriber(told))


PLAIN_OR_NOT = pytest.mark.parametrize("form", [plainly, partial])


@pytest.fixture
def bus(caplog: pytest.LogCaptureFixture) -> Iterator[Bus]:
    """A bus that leaves no thread behind, and nothing in the log that its test did not expect."""
    bus = Bus()
    yield bus
    bus.close()
    assert own_threads() == []
    gc.collect()  # what asyncio has to complain of, it tells now
    told = [*caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in told] == []


def logged(caplog: pytest.LogCaptureFixture, level: int) -> logging.LogRecord:
    """The one thing in the log, which is taken out of it."""
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("foldmark", level)
    caplog.clear()
    return record


def other_tasks() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "foldmark-bus"]


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ((), [COMPACTED, STARTED, DELTA]),
        ((DELTA, COMPACTED), [COMPACTED, DELTA]),
        (("compaction.",), [STARTED, DELTA]),
        (("compaction", "session.compact"), []),  # only a dot makes a prefix
        ("compaction.", [STARTED, DELTA]),  # one kind, not its letters
        (iter([DELTA]), [DELTA]),
    ],
)
def test_a_subscriber_is_told_of_the_kinds_that_it_wants(
    bus: Bus, kinds: tuple[str, ...], wanted: list[str]
) -> None:
    told: list[str] = []
    bus.subscribe(lambda e: told.append(e.kind), kinds)
    for _ in range(2):
        bus.publish(event(kind=kind) for kind in (COMPACTED, STARTED, DELTA))
    assert told == wanted * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_subscriber_is_logged_once_and_harms_nobody(
    bus: Bus, caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    asked, seen, awaited = Seen(), Seen(), Seen()

    def failing(told: Event) -> None:
        asked(told)
        raise ValueError("broken on purpose")

    async def failing_later(told: Event) -> None:
        if told.number == 2:  # what it awaits is cancelled, not it
            asked(told)
            (never := asyncio.get_running_loop().create_future()).cancel()
            await never
        failing(told)

    for subscriber in (failing_later if is_async else failing, seen, awaited.later):
        bus.subscribe(subscriber)
    bus.publish(events(3))
    assert asked.wait(3) == awaited.wait(3) == seen.numbers == [1, 2, 3]
    bus.close()  # so that the log is complete
    assert "ValueError: broken on purpose" in caplog.text
    assert "Traceback" in caplog.text
    assert "failing" in logged(caplog, logging.ERROR).message


@pytest.mark.parametrize("closing", [False, True])
def test_an_interrupt_goes_through_and_the_rest_is_told_later(bus: Bus, *, closing: bool) -> None:
    seen, asked = Seen(), Seen()

    def interrupted(told: Event) -> None:
        asked(told)
        if told.number == 1:
            raise KeyboardInterrupt

    bus.subscribe(interrupted)
    bus.subscribe(seen)
    with pytest.raises(KeyboardInterrupt):
        bus.publish(events(2))
    assert seen.numbers == []
    bus.close() if closing else bus.publish([event(3)])
    assert seen.numbers == asked.numbers == ([1, 2] if closing else [1, 2, 3])


def test_what_a_subscriber_publishes_comes_after_what_is_due_already(bus: Bus) -> None:
    told: list[tuple[str, int]] = []

    def answering(e: Event) -> None:
        told.append(("a", e.number))
        if e.number < 3:
            bus.publish([event(e.number + 10)])

    bus.subscribe(answering)
    bus.subscribe(lambda e: told.append(("b", e.number)))
    bus.publish(events(2))
    assert told == [(name, number) for number in (1, 2, 11, 12) for name in "ab"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_long_row_of_answers_needs_no_deep_stack(bus: Bus, *, is_async: bool) -> None:
    seen, most = Seen(), 5 * sys.getrecursionlimit()

    def answering(told: Event) -> None:
        if told.number < most:
            bus.publish([event(told.number + 1)])
        seen(told)

    async def later(told: Event) -> None:
        answering(told)

    bus.subscribe(later if is_async else answering)
    bus.publish([event(1)])
    assert seen.wait(most) == list(range(1, most + 1))


def test_subscribers_may_come_and_go_even_inside_one(bus: Bus) -> None:
    first, second, late = Seen(), Seen(), Seen()

    def once(told: Event) -> None:
        first(told)
        bus.subscribe(late)
        for end in (end_first, end_second, end_second):
            end()

    end_first = bus.subscribe(once)
    end_second = bus.subscribe(second)
    bus.subscribe(first)  # the same once more would be a subscription of its own, too
    bus.publish(events(2))
    bus.publish([event(3)])
    assert (first.numbers, second.numbers) == ([1, 1, 2, 3], [])  # gone at once
    assert late.numbers == [3]  # told of what is published after it came


def test_threads_that_publish_at_once_lose_and_repeat_nothing(bus: Bus) -> None:
    seen, other, awaited = Seen(), Seen(), Seen()
    for subscriber in (seen, other, awaited.later):
        bus.subscribe(subscriber)
    each, many = 300, 8
    begin = threading.Barrier(many)

    def publish(first: int) -> None:
        begin.wait(SOON)
        for number in range(first, first + each):
            bus.publish([event(number)])
            bus.subscribe(seen, ("nothing",))()

    with ThreadPoolExecutor(many) as pool:
        list(pool.map(publish, range(0, each * many, each)))
    numbers = seen.wait(each * many)
    assert numbers == other.wait(each * many) == awaited.wait(each * many)
    assert sorted(numbers) == list(range(each * many))
    for n in range(many):
        own = [number for number in numbers if number // each == n]
        assert own == sorted(own)


def test_a_subscriber_may_wait_for_a_thread_that_publishes(bus: Bus) -> None:
    told: list[str] = []

    def waiting(e: Event) -> None:
        told.append(f"begin {e.number}")
        if e.number == 1:
            thread = threading.Thread(target=bus.publish, args=([event(2)],))
            thread.start()
            thread.join(SOON)
            told.append(f"blocked: {thread.is_alive()}")

    bus.subscribe(waiting)
    bus.publish([event(1)])
    assert told == ["begin 1", "blocked: False", "begin 2"]


class Meddling:
    """A lock in whose last moment something happens, once."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._meddle = [meddle]
        self.acquire = self._lock.acquire

    def release(self) -> None:
        if self._meddle:
            self._meddle.pop()()
        self._lock.release()


def test_what_comes_at_the_last_moment_of_a_delivery_is_not_left(bus: Bus) -> None:
    plain, seen, inner = Seen(), Seen(), cast("Any", bus)

    async def main() -> None:
        bus.subscribe(seen.later)
        bus.subscribe(plain)
        bus.publish([event(1)])
        await asyncio.wait(other_tasks())
        inner._delivering = Meddling(lambda: bus.publish([event(3)]))
        inner._subscriptions[0]._busy = Meddling(lambda: bus.publish([event(4)]))
        bus.publish([event(2)])
        assert plain.numbers == [1, 2, 3]
        await seen.awaited(4)

    asyncio.run(main())
    assert seen.numbers == plain.numbers == [1, 2, 3, 4]


class Careful:
    """An async subscriber of any form, which fails where two of its calls overlap."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.inside = False

    async def __call__(self, told: Event) -> None:
        assert not self.inside
        self.inside = True
        for _ in range(3):
            await asyncio.sleep(0)
        self.inside = False
        self.seen(told)

    def sometimes(self, told: Event) -> Awaitable[None] | None:
        assert not self.inside
        return self(told) if told.number % 2 else self.seen(told)


FORMS: dict[str, Callable[[Careful], Callable[[Event], object]]] = {
    "object": lambda careful: careful,
    "method": lambda careful: careful.__call__,
    "partial": partial,
    "plain": plainly,
    "sometimes": lambda careful: careful.sometimes,
}


@pytest.mark.parametrize("form", FORMS)
def test_events_are_awaited_one_by_one_on_the_loop_of_the_subscriber(bus: Bus, form: str) -> None:
    careful = Careful()

    async def main() -> None:
        bus.subscribe(FORMS[form](careful))
        bus.publish(events(30)[:10])
        await asyncio.to_thread(bus.publish, events(30)[10:])
        await careful.seen.awaited(30)

    asyncio.run(main())
    assert careful.seen.numbers == list(range(1, 31))
    assert careful.seen.threads == {threading.current_thread()}


@pytest.mark.parametrize("form", FORMS)
def test_or_else_in_a_thread_of_the_bus_which_begins_with_the_first(bus: Bus, form: str) -> None:
    careful = Careful()
    bus.subscribe(FORMS[form](careful))
    assert own_threads() == []
    for told in events(30):
        bus.publish([told])
    assert careful.seen.wait(30) == list(range(1, 31))
    assert careful.seen.threads == set(own_threads())
    assert [thread.daemon for thread in own_threads()] == [True]


def test_a_slow_async_subscriber_blocks_neither_the_publisher_nor_others(bus: Bus) -> None:
    slow, quick, plain = Seen(), Seen(), Seen()

    async def main() -> None:
        for subscriber in (slow.endless, quick.later, plain):
            bus.subscribe(subscriber)
        bus.publish(events(5))
        await quick.awaited(5)

    asyncio.run(main())
    assert slow.numbers == [1]
    assert plain.numbers == quick.numbers == [1, 2, 3, 4, 5]


@PLAIN_OR_NOT
def test_of_too_many_waiting_events_the_oldest_are_dropped_and_that_is_logged_once(
    bus: Bus, form: Form, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    seen = Seen()

    async def main() -> None:
        bus.subscribe(form(seen.later))
        bus.publish(events(10))  # the loop has no turn before the end of this
        await seen.awaited(3)

    asyncio.run(main())
    assert seen.numbers == [8, 9, 10]
    assert "dropped" in logged(caplog, logging.WARNING).message


def test_what_is_queued_for_one_who_unsubscribed_is_not_delivered(bus: Bus) -> None:
    seen, other = Seen(), Seen()

    async def main() -> None:
        async def once(told: Event) -> None:
            seen(told)
            end()

        end = bus.subscribe(once)
        never = bus.subscribe(plainly(seen.later))
        bus.subscribe(other.later)
        bus.publish(events(3))
        never()
        await other.awaited(3)

    asyncio.run(main())
    assert seen.numbers == [1]


@PLAIN_OR_NOT
@pytest.mark.parametrize("subscriber", [Seen.endless, Seen.stubborn])
@pytest.mark.parametrize(("published", "begun"), [(0, 0), (3, 0), (3, 1)])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_subscriber_whose_loop_ends_is_dropped_quietly(
    bus: Bus, form: Form, subscriber: Any, published: int, begun: int, *, cancels: bool
) -> None:
    seen, other = Seen(), Seen()

    async def main() -> None:
        bus.subscribe(form(partial(subscriber, seen)))
        bus.publish(events(published))
        await seen.awaited(begun)

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
    assert len(seen.numbers) in (begun, min(published, 1))


def test_a_subscriber_whose_task_is_cancelled_is_dropped(bus: Bus) -> None:
    seen = Seen()

    async def main() -> None:
        bus.subscribe(seen.endless)
        bus.publish(events(2))
        await seen.awaited(1)
        for task in (tasks := other_tasks()):
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0)
        bus.publish([event(3)])
        assert bus._subscriptions == ()  # pyright: ignore[reportPrivateUsage]

    asyncio.run(main())


def test_closing_lets_what_is_queued_come_to_its_end(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", SOON)
    careful = Careful()
    bus.subscribe(careful)
    bus.publish(events(50))
    bus.close()
    assert careful.seen.numbers == list(range(1, 51))


def test_closing_cancels_what_does_not_end(bus: Bus) -> None:
    seen = Seen()
    bus.subscribe(seen.endless)
    bus.publish(events(3))
    bus.close()
    assert seen.numbers == [1]
    assert own_threads() == []


def test_a_subscriber_that_blocks_does_not_hold_up_closing(
    bus: Bus, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.02)
    seen, gate = Seen(), threading.Event()

    async def blocking(told: Event) -> None:
        seen(told)
        gate.wait(SOON)

    bus.subscribe(blocking)
    bus.publish([event()])
    seen.wait(1)
    bus.close()
    assert "left behind" in logged(caplog, logging.WARNING).message
    (thread,) = own_threads()
    gate.set()
    thread.join(SOON)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_bus_closed_by_a_subscriber_tells_nobody(bus: Bus, *, is_async: bool) -> None:
    seen = Seen()

    def closing(told: Event) -> Awaitable[None]:
        bus.close()
        return seen.later(told)  # let go: a coroutine never awaited would be a warning

    async def closing_later(_: Event) -> None:
        bus.close()

    end = bus.subscribe(closing_later if is_async else closing)
    bus.publish(events(2))
    for thread in own_threads():
        thread.join(SOON)
    bus.publish([event(3)])
    end()
    assert seen.numbers == []
    with pytest.raises(RuntimeError, match="closed"):
        bus.subscribe(seen)
