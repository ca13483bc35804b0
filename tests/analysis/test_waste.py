"""Outputs that repeat, and reads that later calls superseded."""

from foldmark.analysis.inspection import repeats, superseded
from foldmark.compaction.prune import prune_plan
from foldmark.log.log import handle
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import counter
from tests.support.sample_sessions import answer, bash_call, logged, read, user_text, write_call

LISTING = "login.py user.py order.py\n" * 30


def test_an_output_that_came_three_times_is_two_repeats():
    log = logged(*(answer(f"m{n}", bash_call("ls", LISTING)) for n in range(3)))
    waste = repeats(log)
    assert (waste.outputs, waste.tokens) == (2, 2 * counter("classes")(LISTING))
    (group,) = waste.largest
    assert (group.tool, group.target, group.times, group.handle) == ("bash", "ls", 3, handle(2))


def test_outputs_of_other_tools_similar_or_empty_outputs_are_not_repeats():
    similar = bash_call("ls", LISTING), read("/listing", LISTING), bash_call("ls", LISTING + "x")
    empty = bash_call("true", ""), bash_call("true", "")
    assert repeats(logged(answer("m1", *similar, *empty))).outputs == 0


def test_the_largest_repeats_come_first():
    small, large = bash_call("pwd", "/app/src/by/the/docs"), bash_call("ls", LISTING)
    waste = repeats(logged(answer("m1", small, large, small, large)))
    assert [group.target for group in waste.largest] == ["ls", "pwd"]


def test_a_read_is_superseded_once_its_file_is_written():
    reads = answer("m1", read("a.py", LISTING), read("b.py", LISTING))
    waste = superseded(logged(reads, answer("m2", write_call("a.py"))))
    (stale,) = waste.largest
    assert (waste.outputs, stale.handle, stale.by) == (1, handle(0), handle(2))
    assert stale.reason == f"a.py was written at {handle(2)}"
    assert waste.tokens == stale.tokens == counter("classes")(LISTING)


def test_a_read_is_superseded_once_all_of_it_is_read_again():
    part, whole = read("a.py", LISTING, offset=10, limit=20), read("a.py", LISTING * 2)
    assert superseded(logged(answer("m1", part), answer("m2", whole))).outputs == 1
    assert superseded(logged(answer("m1", whole), answer("m2", part))).outputs == 0


def test_outputs_that_pruning_calls_stale_or_repeated_are_reported_as_waste():
    reads = [read("a.py", f"{n} " + LISTING * 40) for n in range(4)]
    lists = [bash_call("ls", LISTING * 40) for _ in range(4)]
    turns = [user_text(f"u{n}", "go on") for n in range(3)]
    work = [answer(f"m{n}", part) for n, part in enumerate((*reads, *lists))]
    log = logged(*turns[:1], *work, *turns[1:], answer("end", write_call("b.py")))
    reasons = {each.ordinal: each.why for each in prune_plan(log, FOLDMARK.prune).prune}
    stale = {handle(ordinal) for ordinal, why in reasons.items() if "{about} was" in why}
    same = [ordinal for ordinal, why in reasons.items() if why.startswith("the same")]
    assert stale == {output.handle for output in superseded(log).largest}
    assert len(same) == repeats(log).outputs == 3
