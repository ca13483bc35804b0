"""The growth of a session, with its recorded prunes and compactions."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.analysis.history import (
    MAX_POINTS,
    Growth,
    Point,
    RecordedCompaction,
    growth,
    is_named,
    sample_points,
)
from foldmark.analysis.inspection import inspection
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import Cache, Message, TextPart, Tokens
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.tokens.counters import counter
from foldmark.transcripts.read import read_transcript
from tests.support.sample_sessions import (
    answer,
    bash_call,
    logged,
    pivot,
    read,
    session,
    user_text,
)
from tests.support.session_strategies import sessions

LONG = "def login(): ...\n" * 90
DONE = TextPart(text="The login was fixed.")
YES = TextPart(text="Yes")


def session_growth(*messages: Message) -> Growth:
    return growth(logged(*messages), FOLDMARK, folder="/app")


def views(history: Growth) -> list[int]:
    return [point.view for point in history.points]


def compaction(*later: Message, summary: TextPart = DONE, **fields: Any) -> RecordedCompaction:
    """The compaction of the sample session, with messages after it."""
    (entry,) = session_growth(*session(), *pivot("k", summary, **fields), *later).compactions
    return entry


# --- points --------------------------------------------------------------------------------


@given(sessions(), st.sampled_from(sorted(PRESETS)))
def test_growth_ends_with_the_current_view_and_log(messages: list[Message], name: str):
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
def test_real_sessions_grow_to_their_view(corpus: Path, folder: str):
    for path in sorted((corpus / folder).iterdir()):
        log = Log(counter("classes"), read_transcript(path).messages)
        history = growth(log, FOLDMARK)
        assert history.points[-1].view == Viewer(log, FOLDMARK).tokens
        assert len(history.compactions) == len(log.pivots)
        assert sum(prune.outputs for prune in history.prunes) == len(log.marks)
        assert all(each.after < each.before for each in history.compactions)


def test_before_anything_is_hidden_the_view_is_the_log():
    points = session_growth(*session()).points
    assert [point.view for point in points] == [point.log for point in points]
    assert session_growth().points == ()


def test_a_sample_of_many_points_has_the_peaks_and_the_last():
    points = [Point(message=n + 1, log=n, view=n % 97) for n in range(5_000)]
    points[3_333] = Point(message=3_334, log=3_333, view=10_000)
    sample = sample_points(points)
    assert MAX_POINTS // 2 <= len(sample) <= MAX_POINTS
    assert max(point.view for point in sample) == 10_000
    assert sample[-1] == points[-1]
    assert [point.message for point in sample] == sorted({point.message for point in sample})
    assert sample_points(points[:MAX_POINTS]) == tuple(points[:MAX_POINTS])


# --- prunes --------------------------------------------------------------------------------


def test_an_output_is_hidden_before_the_first_message_after_its_mark():
    history = session_growth(
        user_text("m1", "Fix it", at=1_000),
        answer("m2", read("/app/login.py", LONG, pruned=3_500), at=2_000),
        answer("m3", YES, at=3_000),
        answer("m4", TextPart(text="No"), at=4_000),
    )
    (prune,) = history.prunes
    assert (prune.message, prune.outputs) == (4, 1)
    assert prune.tokens == counter("classes")(LONG)
    assert prune.before == views(history)[2] > views(history)[3]
    assert prune.after < prune.before


@pytest.mark.parametrize("mark", [-7, 1, 1_500, 9_000, 2**60])
@pytest.mark.parametrize("times", [(2_000, 3_000), (0, 0)])
def test_an_output_with_a_wrong_or_late_mark_is_hidden_after_all_messages(
    mark: int, times: tuple[int, int]
):
    login = read("/app/login.py", LONG, pruned=mark)
    history = session_growth(answer("m1", login, at=times[0]), answer("m2", YES, at=times[1]))
    (prune,) = history.prunes
    assert prune.message is None
    assert prune.after == views(history)[-1] < views(history)[0]


# --- compactions ---------------------------------------------------------------------------


def test_a_compaction_reports_what_it_hid_and_the_size_of_the_view():
    messages = (*session(), *pivot("k", DONE, tail="m3"), answer("m5", TextPart(text="Good")))
    history = session_growth(*messages)
    (entry,) = history.compactions
    assert (entry.message, entry.tail, entry.summary) == (4, 3, counter("classes")(DONE.text))
    assert (entry.before, entry.after) == (views(history)[3], views(history)[4])
    assert (entry.hidden.messages, entry.hidden.outputs) == (2, 1)
    assert entry.hidden.tokens == views(history)[1]


NAMED = TextPart(text="Fixed login.py, as asked: Fix the login, please")
REPEATED = user_text("m6", "Fix the login, please\n/app/login.py is open")


@pytest.mark.parametrize(
    ("summary", "later", "files", "requests"),
    [
        (DONE, (), ("/app/login.py",), 1),
        (NAMED, (), (), 0),
        (DONE, (REPEATED, answer("m7", DONE)), (), 0),
    ],
    ids=["lost", "named by the summary", "repeated before the next reply"],
)
def test_files_and_requests_that_are_no_longer_mentioned_are_lost(
    summary: TextPart, later: tuple[Message, ...], files: tuple[str, ...], requests: int
):
    lost = compaction(*later, summary=summary).lost
    assert lost is not None
    assert (lost.files, lost.largest, lost.requests) == (len(files), files, requests)


def test_the_loss_of_an_opaque_summary_is_unknown():
    sealed = TextPart(text="[sealed]", metadata={"openai": {"block": {"type": "compaction"}}})
    assert compaction(summary=sealed).lost is None


def test_each_compaction_reports_what_it_hid_itself():
    first = (*session(), *pivot("k1", DONE))
    work = (user_text("m6", "Now test it"), answer("m7", bash_call("test", LONG)))
    one, two = session_growth(*first, *work, *pivot("k2", DONE)).compactions
    assert (one.message, two.message) == (4, 8)
    assert two.lost is not None
    assert (two.lost.files, two.lost.requests) == (0, 1)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("/app/src/login.py", "see src/login.py", True),
        ("/app/a/b/login.py", "see b/login.py", True),
        ("/app/a/b/login.py", "see login.py", False),
        ("/app/login.py", "see login.py", True),
        ("/elsewhere/login.py", "see login.py", False),
        ("D:\\app\\login.py", "see D:/app/login.py", True),
    ],
)
def test_a_file_is_named_by_its_relative_path_or_with_its_folder(
    file: str, text: str, *, expected: bool
):
    assert is_named(file, text, "/app") is expected


# --- measured tokens -----------------------------------------------------------------------


def test_points_and_compactions_have_the_measured_input_of_replies():
    history = session_growth(
        *(user_text("m1", "Fix it"), answer("m2", DONE, measured=9_000)),
        *pivot("k", DONE, tokens=Tokens(input=5)),
        *(user_text("m5", "Test it"), answer("m6", DONE, measured=2_000), answer("m7", DONE)),
    )
    (entry,) = history.compactions
    assert [point.measured for point in history.points if point.measured] == [9_000, 2_000]
    assert (entry.measured_before, entry.measured_after) == (9_000, 2_000)
    assert history.unseen == 9_000 - history.points[0].view


def test_a_compaction_has_its_recorded_cost():
    tokens = Tokens(input=3, output=1_206, cache=Cache(write=12_072))
    wire = {"claude-code": {"preTokens": 167_081, "trigger": "auto", "more": {"a": 1, "b": [2]}}}
    entry = compaction(wire=wire, tokens=tokens, cost=0.5)
    assert (entry.input, entry.output, entry.cost) == (12_075, 1_206, 0.5)
    assert entry.told == {"preTokens": 167_081, "trigger": "auto", "more.a": 1}
    entry = compaction()
    assert (entry.input, entry.output, entry.cost, entry.told) == (None, None, None, {})
