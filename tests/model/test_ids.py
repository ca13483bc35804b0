"""Ids sort by their time of creation."""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from foldmark.session.message_builder import MessageBuilder


def still_clock() -> int:
    return 1_790_000_000_000


def test_ids_ascend_within_one_millisecond() -> None:
    builder = MessageBuilder("", still_clock, bytes)
    ids = [builder.make_id("msg") for _ in range(10_000)]
    assert ids == sorted(set(ids))


def test_ids_ascend_when_the_clock_goes_back() -> None:
    times = iter((1_790_000_000_005, 1_790_000_000_001))
    ids = MessageBuilder("", lambda: next(times), bytes)
    assert ids.make_id("msg") < ids.make_id("msg")


def test_ids_of_many_threads_are_unique() -> None:
    builder = MessageBuilder("", still_clock, bytes)

    def make_some(_: None) -> list[str]:
        return [builder.make_id("prt") for _ in range(2_000)]

    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(make_some, repeat(None, 8)))
    assert all(ids == sorted(ids) for ids in lists)
    assert len({one for ids in lists for one in ids}) == 16_000


def test_ids_sort_by_time_far_beyond_48_bits() -> None:
    early = MessageBuilder("", lambda: 2**36 - 1, bytes).make_id("msg")
    assert early < MessageBuilder("", lambda: 2**36 + 1, bytes).make_id("msg")
