"""Ids sort by creation."""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

from foldmark.session.message_builder import MessageBuilder


def still_clock() -> int:
    return 1_790_000_000_000


def test_ids_ascend_within_one_millisecond() -> None:
    ids = MessageBuilder("", still_clock, bytes)
    made = [ids.make_id("msg") for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_ascend_when_the_clock_goes_back() -> None:
    times = iter((1_790_000_000_005, 1_790_000_000_001))
    ids = MessageBuilder("", lambda: next(times), bytes)
    assert ids.make_id("msg") < ids.make_id("msg")


def test_ids_of_many_threads_are_each_others_equals_nowhere() -> None:
    ids = MessageBuilder("", still_clock, bytes)

    def some(_: None) -> list[str]:
        return [ids.make_id("prt") for _ in range(2_000)]

    with ThreadPoolExecutor(8) as pool:
        lists = list(pool.map(some, repeat(None, 8)))
    assert all(made == sorted(made) for made in lists)
    assert len({one for made in lists for one in made}) == 16_000


def test_ids_sort_by_time_far_beyond_48_bits() -> None:
    early, late = (
        MessageBuilder("", lambda: 2**36 - 1, bytes),
        MessageBuilder("", lambda: 2**36 + 1, bytes),
    )
    assert early.make_id("msg") < late.make_id("msg")
