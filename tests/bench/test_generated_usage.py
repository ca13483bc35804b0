from itertools import pairwise

import pytest
from bench.lab.generate import FULL, generate

from foldmark.log.log import Log, is_complete, marker_part
from foldmark.model.messages import AssistantInfo, Message, StepFinishPart, Tokens
from foldmark.tokens.counters import by_classes
from foldmark.tokens.sizes import MESSAGE_OVERHEAD


@pytest.fixture(scope="module")
def log() -> Log:
    return Log(by_classes, generate().messages)


@pytest.fixture(scope="module")
def compacted() -> Log:
    return Log(by_classes, generate(messages=1_500, pivots=True).messages)


def steps(log: Log) -> list[tuple[Message, AssistantInfo]]:
    """The answers that came to their end."""
    return [
        (entry.message, info)
        for entry in log.entries.values()
        if isinstance(info := entry.message.info, AssistantInfo) and info.finish
    ]


def prompt(info: AssistantInfo) -> int:
    """The tokens of the request that was answered."""
    tokens = info.tokens or Tokens()
    assert tokens.cache
    return int((tokens.input or 0) + (tokens.cache.read or 0) + (tokens.cache.write or 0))


def prompt_at(log: Log, place: int) -> int:
    info = log.entries[place].message.info
    assert isinstance(info, AssistantInfo)
    return prompt(info)


def test_usage_is_what_came_before(log: Log) -> None:
    before = 0
    for entry in log.entries.values():
        info = entry.message.info
        if isinstance(info, AssistantInfo) and info.finish:
            assert prompt(info) == pytest.approx(before, rel=0.02, abs=20)
        if entry.message.parts:
            before += MESSAGE_OVERHEAD + sum(size.fixed + size.body for size in entry.sizes)


def test_usage_grows_from_step_to_step(log: Log) -> None:
    grown = [prompt(info) for _, info in steps(log)]
    assert len(grown) > 300
    assert all(earlier < later for earlier, later in pairwise(grown))


def test_the_prefix_of_a_request_was_cached_by_the_one_before(log: Log) -> None:
    for (_, earlier), (_, later) in pairwise(steps(log)):
        assert later.tokens
        assert later.tokens.cache
        assert later.tokens.cache.read == prompt(earlier)


def test_the_end_of_a_step_tells_what_its_message_tells(log: Log) -> None:
    for message, info in steps(log):
        (end,) = [part for part in message.parts if isinstance(part, StepFinishPart)]
        assert (end.tokens, end.cost, end.reason) == (info.tokens, info.cost, info.finish)
        assert info.cost


def test_without_pivots_there_is_neither_marker_nor_summary(log: Log) -> None:
    assert not log.pivots
    assert not log.summaries
    assert not log.marks


def test_pivots_are_complete(compacted: Log) -> None:
    markers = [e.index for e in compacted.entries.values() if marker_part(e.message) is not None]
    assert len(markers) >= 3
    assert [pivot.marker for pivot in compacted.pivots] == markers
    for pivot in compacted.pivots:
        info = compacted.entries[pivot.summary].message.info
        assert isinstance(info, AssistantInfo)
        assert is_complete(info)
        assert (info.agent, info.mode) == ("compaction", "compaction")


def test_some_pivots_keep_a_tail_that_begins_with_the_user(compacted: Log) -> None:
    tails = [pivot.tail_id for pivot in compacted.pivots]
    kept = [tail for tail in tails if tail is not None]
    assert 0 < len(kept) < len(tails)
    for pivot in compacted.pivots:
        place = compacted.index_of(pivot.tail_id) if pivot.tail_id else pivot.marker - 1
        assert place is not None
        assert place < pivot.marker
        assert pivot.tail_id is None or compacted.entries[place].message.is_user


def test_pivots_bound_the_usage(compacted: Log) -> None:
    ordinary = [prompt(info) for _, info in steps(compacted) if not info.summary]
    assert max(ordinary) <= FULL * 200_000
    for pivot in compacted.pivots:
        after = pivot.summary + 2  # behind the request to go on
        assert prompt_at(compacted, after) < prompt_at(compacted, pivot.summary) / 2


def test_a_smaller_window_has_more_pivots(compacted: Log) -> None:
    small = Log(by_classes, generate(messages=1_500, pivots=True, window=64_000).messages)
    assert len(small.pivots) > 2 * len(compacted.pivots)


def test_pruning_marks_old_outputs_and_spares_the_last_two_turns() -> None:
    plain = Log(by_classes, generate(messages=1_000).messages)
    pruned = Log(by_classes, generate(messages=1_000, pruned=True).messages)
    assert len(pruned.marks) > 100
    hidden = [pruned.calls[ordinal] for ordinal in pruned.marks]
    assert max(call.index for call in hidden) < pruned.users[-2]
    assert all(call.part.tool != "skill" for call in hidden)
    assert [call.state.output for call in pruned.calls.values()] == [
        call.state.output for call in plain.calls.values()
    ]
    assert prompt(steps(pruned)[-1][1]) < prompt(steps(plain)[-1][1])


def test_not_every_provider_tells_what_it_writes_to_its_cache() -> None:
    other = Log(by_classes, generate(messages=20, model="openai:gpt-5").messages)
    for _, info in steps(other):
        assert (info.provider_id, info.model_id) == ("openai", "gpt-5")
        assert info.tokens
        assert info.tokens.cache
        assert info.tokens.cache.write == 0
