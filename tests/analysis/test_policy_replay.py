"""Replays of sessions under a policy: what it would have pruned and compacted."""

from pathlib import Path
from typing import Any

import pytest
from bench.lab.generate import generate
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldmark.analysis.history import MAX_STEPS, PolicyReplay, policy_replay
from foldmark.analysis.plan import session_plan
from foldmark.log.log import Log
from foldmark.log.marks import marked_messages
from foldmark.log.view import Viewer
from foldmark.model.messages import Message
from foldmark.policy import FOLDMARK, PRESETS, Policy
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit
from foldmark.transcripts.read import read_transcript
from tests.support.sample_sessions import answer, bash_call, logged, pivot, read, user_text
from tests.support.session_strategies import sessions

WINDOW = Limit(context=24_000, output=4_000)


def work(steps: int, lines: int = 300) -> list[Message]:
    """A request before every fourth step, and outputs that all differ."""
    messages: list[Message] = []
    for n in range(steps):
        if n % 4 == 0:
            messages.append(user_text(f"u{n}", f"Look at file {n}"))
        messages.append(answer(f"m{n}", read(f"/app/f{n}.py", f"value {n}\n" * lines)))
    return messages


def replay(
    *messages: Message, limit: Limit = WINDOW, policy: Policy = FOLDMARK, **options: Any
) -> PolicyReplay:
    return policy_replay(logged(*messages), policy, limit, **options)


def test_a_session_that_fits_is_left_alone():
    result = replay(*work(4))
    assert (result.deeds, result.first_prune, result.first_compaction) == ((), None, None)
    assert 0 < result.peak < result.usable


def test_the_first_prune_comes_before_the_first_overflow():
    messages = work(40)
    first = replay(*messages).first_prune
    assert first is not None
    for end, overflows in ((first.message - 2, False), (first.message - 1, True)):
        viewer = Viewer(logged(*messages[:end]), FOLDMARK, usable=usable(FOLDMARK, WINDOW))
        assert session_plan(viewer, WINDOW).overflow is overflows
    assert first.after < first.before
    assert first.outputs > 0


def test_the_session_is_compacted_if_pruning_is_not_enough():
    replies = [answer(f"m{n}", *work(1)[1].parts) for n in range(60)]
    requests = [user_text(f"u{n}", f"word {n} " * 300) for n in range(60)]
    pairs = zip(requests, replies, strict=True)
    result = replay(*(message for pair in pairs for message in pair))
    assert result.compactions > 0
    first = result.first_compaction
    assert first is not None
    assert first.messages > 0
    assert first.after < first.before
    assert result.peak <= result.usable


@pytest.mark.parametrize("window", [16_000, 60_000, 200_000])
def test_no_request_is_larger_than_the_usable_window(window: int):
    transcript = generate(5, messages=400, output_chars=2_500, model="acme:large", window=window)
    result = replay(*transcript.messages, limit=Limit(context=window, output=8_000))
    assert result.stuck is None
    assert result.peak <= result.usable
    assert result.prunes + result.compactions > 0


def test_recorded_pivots_and_marks_make_no_difference():
    messages = work(60)
    marked = logged(*messages)
    marked.mark(list(marked.calls)[:9], at=5)
    recorded = [*marked_messages(marked)]
    recorded[30:30] = pivot("k", *user_text("s", "So far, so good").parts)
    one, two = replay(*messages), replay(*recorded)
    assert (one.prunes, one.compactions, one.peak) == (two.prunes, two.compactions, two.peak)
    numbers = [step.message - 2 if step.message > 30 else step.message for step in two.deeds]
    assert [step.message for step in one.deeds] == numbers


def test_the_fixed_part_of_requests_is_counted():
    early, late = (replay(*work(60), fixed=fixed).first_prune for fixed in (6_000, 0))
    assert early is not None
    assert late is not None
    assert early.message < late.message


def test_nothing_is_done_without_auto_or_without_a_limit():
    manual = replay(*work(60), policy=replace(FOLDMARK, auto=False))
    assert manual.deeds == ()
    assert manual.peak > manual.usable
    unlimited = replay(*work(60), limit=Limit(context=0))
    assert (unlimited.deeds, unlimited.stuck, unlimited.usable) == ((), None, 0)


def test_a_window_that_is_too_small_is_reported_and_not_tried_again():
    result = replay(*work(40), limit=Limit(context=2_000), fixed=3_000)
    assert result.stuck == 2
    assert result.compactions == 0


def test_a_replay_changes_nothing():
    log = logged(*work(40))
    before = marked_messages(log)
    policy_replay(log, FOLDMARK, WINDOW)
    assert (marked_messages(log), log.pivots, log.marks) == (before, [], {})


def test_only_the_first_of_very_many_steps_are_listed_but_all_are_counted():
    limit = Limit(context=2_000, output=900)
    result = replay(*work(600, 20), policy=PRESETS["opencode"], limit=limit)
    assert result.compactions > MAX_STEPS == len(result.deeds)


@given(sessions(), st.sampled_from(sorted(PRESETS)), st.sampled_from((0, 200, 3_000, 50_000)))
def test_any_session_can_be_replayed_under_any_policy(
    messages: list[Message], name: str, window: int
):
    policy = PRESETS[name]
    log = Log(counter(policy.estimate), messages)
    result = policy_replay(log, policy, Limit(context=window))
    assert all(1 <= step.message <= len(messages) for step in result.deeds)
    assert result.prunes + result.compactions == len(result.deeds)


def test_real_sessions_fit_their_windows(corpus: Path):
    for path in sorted((corpus / "claude-code").glob("*.jsonl")):
        limit = Limit(context=100_000, output=16_000)
        result = replay(*read_transcript(path).messages, limit=limit)
        assert result.stuck is None
        assert result.peak <= result.usable


def test_a_long_output_of_a_command_is_pruned_like_any_other():
    build = answer("b", bash_call("make", "step done\n" * 4_000))
    assert replay(*work(8), build, *work(12)).prunes > 0
