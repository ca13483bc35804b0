from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.analysis.history import (
    MOST_POINTS,
    Growth,
    Point,
    growth,
    is_named,
    sampled,
)
from foldmark.analysis.inspection import inspection
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Cache, Message, TextPart, Tokens
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import read_transcript
from tests.support.sample_sessions import answer, asked, logged, pivot, ran, read, session
from tests.support.session_strategies import sessions

LONG = "def valve(): ...\n" * 90
DONE = TextPart(text="The valve was mended.")


def grown(*messages: Message, folder: str = "/pump") -> Growth:
    return growth(logged(*messages), FOLDMARK, folder=folder)


# --- points --------------------------------------------------------------------------------


@given(sessions(), st.sampled_from(sorted(PRESETS)))
def test_growth_ends_with_the_view_and_the_log_as_they_are(messages: list[Message], name: str):
    policy = PRESETS[name]
    log = Log(counter(policy.estimate), messages)
    points = growth(log, policy).points
    assert [point.message for point in points] == list(range(1, len(messages) + 1))
    assert all(one.log <= two.log for one, two in pairwise(points))
    if points:
        viewer = Viewer(log, policy)
        assert points[-1].view == viewer.tokens
        assert points[-1].log == inspection(viewer).tokens.total


@pytest.mark.parametrize("folder", ["opencode", "claude-code", "pi"])
def test_real_sessions_grow_to_the_view_that_they_have(corpus: Path, folder: str):
    for path in sorted((corpus / folder).iterdir()):
        transcript = read_transcript(path)
        log = Log(counter("classes"), transcript.messages)
        found = growth(log, FOLDMARK)
        assert found.points[-1].view == Viewer(log, FOLDMARK).tokens
        assert len(found.compactions) == len(log.pivots)
        assert sum(held.outputs for held in found.prunes) == len(log.marks)
        for held in found.compactions:
            assert held.after < held.before


def test_before_anything_is_hidden_the_view_is_the_log():
    points = grown(*session()).points
    assert [point.view for point in points] == [point.log for point in points]


def test_a_session_without_messages_did_not_grow():
    assert grown().points == ()


def test_of_many_points_the_peaks_and_the_last_are_kept():
    points = [Point(message=n + 1, log=n, view=n % 97) for n in range(5_000)]
    points[3_333] = Point(message=3_334, log=3_333, view=10_000)
    kept = sampled(points)
    assert MOST_POINTS // 2 <= len(kept) <= MOST_POINTS
    assert max(point.view for point in kept) == 10_000
    assert kept[-1] == points[-1]
    assert [point.message for point in kept] == sorted({point.message for point in kept})


def test_few_points_are_all_kept():
    points = [Point(message=n, log=n, view=n) for n in range(1, MOST_POINTS + 1)]
    assert sampled(points) == tuple(points)


# --- prunes --------------------------------------------------------------------------------


def views(found: Growth) -> list[int]:
    return [point.view for point in found.points]


def test_an_output_is_hidden_from_the_message_on_that_came_after_its_mark():
    messages = (
        asked("m1", "Mend it", at=1_000),
        answer("m2", read("/pump/valve.py", LONG, pruned=3_500), at=2_000),
        answer("m3", TextPart(text="Yes"), at=3_000),
        answer("m4", TextPart(text="No"), at=4_000),
    )
    found = grown(*messages)
    (prune,) = found.prunes
    assert (prune.message, prune.outputs) == (4, 1)
    assert prune.tokens == counter("classes")(LONG)
    assert prune.before == views(found)[2] > views(found)[3]
    assert prune.after < prune.before


@pytest.mark.parametrize("moment", [1, 1_500, 9_000])
def test_an_output_whose_moment_is_not_known_or_came_last_is_hidden_after_all(moment: int):
    messages = (
        answer("m1", read("/pump/valve.py", LONG, pruned=moment), at=2_000),
        answer("m2", TextPart(text="Yes"), at=3_000),
    )
    (prune,) = grown(*messages).prunes
    assert prune.message is None
    assert prune.after == views(grown(*messages))[-1] < views(grown(*messages))[0]


def test_marks_in_sessions_without_times_and_marks_of_nonsense_do_no_harm():
    messages = (
        answer("m1", read("/pump/valve.py", LONG, pruned=-7), read("b.py", LONG, pruned=2**60)),
        answer("m2", TextPart(text="Yes")),
    )
    assert [prune.outputs for prune in grown(*messages).prunes] == [2]


# --- compactions ---------------------------------------------------------------------------


def test_a_compaction_tells_what_it_hid_and_how_much_smaller_the_view_became():
    found = grown(*session(), *pivot("k", DONE, tail="m3"), answer("m5", TextPart(text="Good")))
    (held,) = found.compactions
    assert (held.message, held.tail, held.summary) == (4, 3, counter("classes")(DONE.text))
    assert (held.before, held.after) == (views(found)[3], views(found)[4])
    assert (held.hidden.messages, held.hidden.outputs) == (2, 1)
    assert held.hidden.tokens == views(found)[1]


def test_files_and_requests_that_neither_summary_nor_tail_has_are_lost():
    (held,) = grown(*session(), *pivot("k", DONE)).compactions
    assert held.lost is not None
    assert (held.lost.files, held.lost.largest) == (1, ("/pump/valve.py",))
    assert held.lost.requests == 1


def test_a_file_that_the_summary_names_from_where_the_session_worked_is_not_lost():
    summary = TextPart(text="Mended valve.py, as asked: Mend the pump, please")
    (held,) = grown(*session(), *pivot("k", summary)).compactions
    assert held.lost is not None
    assert (held.lost.files, held.lost.requests) == (0, 0)


def test_what_the_program_says_again_before_the_next_answer_is_not_lost():
    again = asked("m6", "Mend the pump, please\n/pump/valve.py is open")
    (held,) = grown(*session(), *pivot("k", DONE), again, answer("m7", DONE)).compactions
    assert held.lost is not None
    assert (held.lost.files, held.lost.requests) == (0, 0)


def test_what_a_summary_lost_that_only_its_provider_can_read_is_not_known():
    sealed = TextPart(text="[sealed]", metadata={"openai": {"block": {"type": "compaction"}}})
    (held,) = grown(*session(), *pivot("k", sealed)).compactions
    assert held.lost is None


def test_each_compaction_is_told_with_what_it_hid_itself():
    first = (*session(), *pivot("k1", DONE))
    second = (asked("m6", "Now oil it"), answer("m7", ran("oil", LONG)), *pivot("k2", DONE))
    one, two = grown(*first, *second).compactions
    assert (one.message, two.message) == (4, 8)
    assert two.lost is not None
    assert (two.lost.files, two.lost.requests) == (0, 1)


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("/pump/src/valve.py", "see src/valve.py", True),
        ("/pump/a/b/valve.py", "see b/valve.py", True),
        ("/pump/a/b/valve.py", "see valve.py", False),
        ("/pump/valve.py", "see valve.py", True),
        ("/elsewhere/valve.py", "see valve.py", False),
        ("D:\\pump\\valve.py", "see D:/pump/valve.py", True),
    ],
)
def test_a_file_is_named_where_it_can_be_found_by_it(file: str, text: str, *, named: bool):
    assert is_named(file, text, "/pump") is named


# --- what is measured ----------------------------------------------------------------------


def test_measured_input_stands_beside_the_points_with_what_the_cache_held():
    found = grown(asked("m1", "Mend it"), answer("m2", DONE, measured=9_000))
    assert [point.measured for point in found.points] == [None, 9_000]
    assert found.unseen == 9_000 - found.points[0].view


def test_what_was_measured_around_a_compaction_is_told_with_it():
    before = (asked("m1", "Mend it"), answer("m2", DONE, measured=9_000))
    after = (asked("m5", "Oil it"), answer("m6", DONE, measured=2_000), answer("m7", DONE))
    (held,) = grown(*before, *pivot("k", DONE), *after).compactions
    assert (held.measured_before, held.measured_after) == (9_000, 2_000)


def test_what_a_compaction_cost_is_told_where_the_transcript_tells():
    tokens = Tokens(input=3, output=1_206, cache=Cache(write=12_072))
    wire = {"claude-code": {"preTokens": 167_081, "trigger": "auto", "more": {"a": 1, "b": [2]}}}
    (held,) = grown(*session(), *pivot("k", DONE, wire=wire, tokens=tokens, cost=0.5)).compactions
    assert (held.input, held.output, held.cost) == (12_075, 1_206, 0.5)
    assert held.told == {"preTokens": 167_081, "trigger": "auto", "more.a": 1}
    (held,) = grown(*session(), *pivot("k", DONE)).compactions
    assert (held.input, held.output, held.cost, held.told) == (None, None, None, {})


def test_what_a_summary_measured_is_not_the_input_of_an_answer():
    found = grown(*session(), *pivot("k", DONE, tokens=Tokens(input=5)), answer("m", measured=5))
    assert [point.measured for point in found.points[-2:]] == [None, 5]
