from foldmark.analysis.inspection import repeats, superseded
from foldmark.compaction.prune import prune_plan
from foldmark.log.log import handle
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from tests.support.sample_sessions import answer, asked, logged, ran, read, wrote

LISTING = "valve.py pump.py handle.py\n" * 30


def test_an_output_that_came_three_times_is_two_repeats():
    log = logged(*(answer(f"m{n}", ran("ls", LISTING)) for n in range(3)))
    found = repeats(log)
    assert (found.outputs, found.tokens) == (2, 2 * counter("classes")(LISTING))
    (group,) = found.largest
    assert (group.tool, group.target, group.times, group.handle) == ("bash", "ls", 3, handle(2))


def test_the_same_words_from_another_tool_or_hardly_the_same_are_no_repeat():
    log = logged(
        answer("m1", ran("ls", LISTING), read("/listing", LISTING), ran("ls", LISTING + "x"))
    )
    assert repeats(log).outputs == 0


def test_nothing_is_no_repeat_of_nothing():
    log = logged(answer("m1", ran("true", ""), ran("true", "")))
    assert repeats(log).outputs == 0


def test_the_largest_repeats_come_first():
    small, large = ran("pwd", "/pump/house/by/the/river"), ran("ls", LISTING)
    found = repeats(logged(answer("m1", small, large, small, large)))
    assert [group.target for group in found.largest] == ["ls", "pwd"]


def test_a_read_is_stale_once_its_file_is_written():
    log = logged(
        answer("m1", read("a.py", LISTING), read("b.py", LISTING)), answer("m2", wrote("a.py"))
    )
    found = superseded(log)
    (stale,) = found.largest
    assert (found.outputs, stale.handle, stale.by) == (1, handle(0), handle(2))
    assert stale.reason == f"a.py was written at {handle(2)}"
    assert found.tokens == stale.tokens == counter("classes")(LISTING)


def test_a_read_is_stale_once_all_of_it_is_read_again():
    part, whole = read("a.py", LISTING, offset=10, limit=20), read("a.py", LISTING * 2)
    assert superseded(logged(answer("m1", part), answer("m2", whole))).outputs == 1
    assert superseded(logged(answer("m1", whole), answer("m2", part))).outputs == 0


def test_what_pruning_calls_stale_or_repeated_is_told_here_too():
    reads = [read("a.py", f"{n} " + LISTING * 40) for n in range(4)]
    lists = [ran("ls", LISTING * 40) for _ in range(4)]
    turns = [asked(f"u{n}", "go on") for n in range(3)]
    work = [answer(f"m{n}", part) for n, part in enumerate((*reads, *lists))]
    log = logged(*turns[:1], *work, *turns[1:], answer("end", wrote("b.py")))
    reasons = {held.ordinal: held.why for held in prune_plan(log, FOLDMARK.prune).prune}
    stale = {handle(ordinal) for ordinal, why in reasons.items() if "{about} was" in why}
    same = [ordinal for ordinal, why in reasons.items() if why.startswith("the same")]
    assert stale == {held.handle for held in superseded(log).largest}
    assert len(same) == repeats(log).outputs == 3
