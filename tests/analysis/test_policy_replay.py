from pathlib import Path

import pytest
from bench.lab.generate import generate
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from foldmark.analysis.history import MOST_DEEDS, Rehearsal, rehearsal
from foldmark.analysis.plan import session_plan
from foldmark.log.log import Log
from foldmark.log.marks import marked_messages
from foldmark.log.view import Viewer
from foldmark.model.messages import Message
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import counter
from foldmark.tokens.limits import Limit
from foldmark.transcripts.read import read_transcript
from tests.support.sample_sessions import answer, asked, logged, pivot, ran, read
from tests.support.session_strategies import sessions

WINDOW = Limit(context=24_000, output=4_000)


def work(steps: int, lines: int = 300) -> list[Message]:
    """A request before every fourth step, and outputs of which none is like another."""
    messages: list[Message] = []
    for n in range(steps):
        if n % 4 == 0:
            messages.append(asked(f"u{n}", f"Look at wheel {n}"))
        messages.append(answer(f"m{n}", read(f"/mill/w{n}.py", f"tooth {n}\n" * lines)))
    return messages


def played(messages: list[Message], limit: Limit = WINDOW) -> Rehearsal:
    return rehearsal(logged(*messages), FOLDMARK, limit)


def test_a_session_that_fits_is_left_alone():
    found = played(work(4))
    assert (found.deeds, found.first_prune, found.first_compaction) == ((), None, None)
    assert 0 < found.peak < found.usable


def test_the_first_prune_comes_before_the_first_answer_that_would_have_overflown():
    messages = work(40)
    first = played(messages).first_prune
    assert first is not None
    before = logged(*messages[: first.message - 2])
    then = logged(*messages[: first.message - 1])
    for log, full in ((before, False), (then, True)):
        room = usable(FOLDMARK, WINDOW)
        viewer = Viewer(log, FOLDMARK, usable=room)
        assert session_plan(viewer, WINDOW).overflow is full
    assert first.after < first.before
    assert first.outputs > 0


def test_what_is_not_pruned_away_is_folded():
    words = [asked(f"u{n}", f"word {n} " * 300) for n in range(60)]
    said = [answer(f"m{n}", *work(1)[1].parts) for n in range(60)]
    talk = [message for pair in zip(words, said, strict=True) for message in pair]
    found = played(talk)
    assert found.compactions > 0
    assert found.first_compaction is not None
    assert found.first_compaction.messages > 0
    assert found.first_compaction.after < found.first_compaction.before
    assert found.peak <= found.usable


@pytest.mark.parametrize("window", [16_000, 60_000, 200_000])
def test_no_request_is_larger_than_what_is_usable(window: int):
    transcript = generate(5, messages=400, output_chars=2_500, model="acme:large", window=window)
    limit = Limit(context=window, output=8_000)
    found = rehearsal(Log(counter("classes"), transcript.messages), FOLDMARK, limit)
    assert found.stuck is None
    assert found.peak <= found.usable
    assert found.prunes + found.compactions > 0


def test_recorded_pivots_and_marks_make_no_difference():
    messages = work(60)
    plain = logged(*messages)
    marked = logged(*messages)
    marked.mark(list(marked.calls)[:9], at=5)
    recorded = [*marked_messages(marked)]
    recorded[30:30] = pivot("k", *asked("s", "So far, so good").parts)
    one = rehearsal(plain, FOLDMARK, WINDOW)
    two = rehearsal(logged(*recorded), FOLDMARK, WINDOW)
    assert (one.prunes, one.compactions, one.peak) == (two.prunes, two.compactions, two.peak)
    later = [deed.message - 2 if deed.message > 30 else deed.message for deed in two.deeds]
    assert [deed.message for deed in one.deeds] == later


def test_what_a_request_holds_beside_the_view_is_counted():
    log = logged(*work(60))
    early, late = (rehearsal(log, FOLDMARK, WINDOW, fixed=fixed) for fixed in (6_000, 0))
    assert early.first_prune is not None
    assert late.first_prune is not None
    assert early.first_prune.message < late.first_prune.message


def test_a_policy_that_does_nothing_by_itself_does_nothing():
    found = rehearsal(logged(*work(60)), replace(FOLDMARK, auto=False), WINDOW)
    assert found.deeds == ()
    assert found.peak > found.usable


def test_without_a_limit_nothing_is_done():
    found = played(work(60), Limit(context=0))
    assert (found.deeds, found.stuck, found.usable) == ((), None, 0)


def test_a_window_that_is_too_small_is_told_and_not_tried_again():
    log = logged(*work(40))
    found = rehearsal(log, FOLDMARK, Limit(context=2_000), fixed=3_000)
    assert found.stuck == 2
    assert found.compactions == 0


def test_a_rehearsal_changes_nothing():
    log = logged(*work(40))
    before = marked_messages(log)
    rehearsal(log, FOLDMARK, WINDOW)
    assert (marked_messages(log), log.pivots, log.marks) == (before, [], {})


def test_of_very_many_deeds_the_first_are_told_and_all_are_counted():
    found = rehearsal(logged(*work(600, 20)), PRESETS["opencode"], Limit(context=2_000, output=900))
    assert found.compactions > MOST_DEEDS == len(found.deeds)


@given(sessions(), st.sampled_from(sorted(PRESETS)), st.sampled_from((0, 200, 3_000, 50_000)))
def test_any_session_can_be_rehearsed_under_any_policy(
    messages: list[Message], name: str, window: int
):
    policy = PRESETS[name]
    log = Log(counter(policy.estimate), messages)
    found = rehearsal(log, policy, Limit(context=window))
    assert all(1 <= deed.message <= len(messages) for deed in found.deeds)
    assert found.prunes + found.compactions == len(found.deeds)


def test_real_sessions_fit_their_windows(corpus: Path):
    for path in sorted((corpus / "claude-code").glob("*.jsonl")):
        log = Log(counter("classes"), read_transcript(path).messages)
        found = rehearsal(log, FOLDMARK, Limit(context=100_000, output=16_000))
        assert found.stuck is None
        assert found.peak <= found.usable


def test_a_long_output_of_a_command_is_pruned_like_any_other():
    messages = [*work(8), answer("b", ran("make", "step done\n" * 4_000)), *work(12)]
    assert played(messages).prunes > 0
