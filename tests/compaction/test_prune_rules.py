"""Our own rules of pruning, each switched on and off, and plans made again and again."""

from typing import Any

import pytest
from msgspec.structs import replace

from foldmark.compaction.prune import Decision, Prune, prune_plan
from foldmark.log.log import Log
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    CompactionPart,
    Completed,
    Message,
    Running,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
)
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import round4
from tests.support.stored_sessions import without_pivots

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def user() -> Message:
    return Message(info=UserInfo(id="u"), parts=(TextPart(text="go on"),))


def worked(*parts: AnyPart, **info: Any) -> Message:
    return Message(info=AssistantInfo(id="a", finish="stop", **info), parts=parts)


def did(tool: str, tokens: int, **given: Any) -> ToolPart:
    """A call with an output of its own; `said` and `metadata` belong to the output."""
    metadata = given.pop("metadata", {})
    output = given.pop("said", f"{tool} {given} ") * (4 * tokens)
    state = Completed(
        input=given, output=output[: 4 * tokens], metadata=metadata, time=Time(start=1, end=2)
    )
    return ToolPart(tool=tool, call_id="c", state=state)


def session(*old: Message) -> Log:
    """These messages as an old turn, then two turns, the last with an output not read yet."""
    recent = (user(), worked(TextPart(text="done")), user(), worked(did("bash", 1, command="ls")))
    return Log(round4, [user(), *old, *recent])


def planned(log: Log, *, usable: int = 0, **changes: Any) -> Prune:
    """What our own rules would do after these changes to them."""
    return prune_plan(log, replace(FOLDMARK.prune, **changes), usable=usable, explain=True)


def decision(plan: Prune, ordinal: int) -> Decision:
    return next(held for held in (*plan.prune, *plan.keep) if held.ordinal == ordinal)


# --- superseded -----------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["write", "edit", "str_replace", "apply_patch"])
def test_a_read_is_pruned_when_its_file_was_written_since(tool: str) -> None:
    read, write = did("read", 500, filePath="a.py"), did(tool, 20, filePath="a.py")
    log = session(worked(read), worked(write))
    assert planned(log, minimum=None).ordinals == [1]
    assert decision(planned(log, minimum=None), 1).reason == "a.py was written at h2"
    assert planned(log, minimum=None, superseded=False).ordinals == []


def test_a_patch_supersedes_every_file_that_it_names() -> None:
    reads = (did("read", 500, filePath="a.py"), did("read", 500, filePath="b.py"))
    text = "*** Begin Patch\n*** Update File: a.py\n*** Delete File: b.py\n*** End Patch"
    log = session(worked(*reads), worked(did("apply_patch", 20, patchText=text)))
    assert planned(log, minimum=None).ordinals == [2, 1]


def test_a_read_is_not_superseded_by_what_came_before_or_by_another_file() -> None:
    written = did("write", 20, filePath="a.py")
    log = session(worked(written), worked(did("read", 500, filePath="a.py")))
    assert planned(log, minimum=None).ordinals == []
    log = session(worked(did("read", 500, filePath="b.py")), worked(written))
    assert planned(log, minimum=None).ordinals == []


@pytest.mark.parametrize(
    ("first", "later", "replaced"),
    [
        ({}, {}, True),
        ({"offset": 10, "limit": 20}, {}, True),
        ({"offset": 10, "limit": 20}, {"offset": 10, "limit": 20}, True),
        ({"offset": 10, "limit": 20}, {"offset": 5, "limit": 100}, True),
        ({"offset": 10, "limit": 20}, {"offset": 10}, True),
        ({"start_line": 10, "end_line": 30}, {"start_line": 1, "end_line": 30}, True),
        ({}, {"offset": 10, "limit": 20}, False),
        ({"offset": 10}, {"offset": 10, "limit": 20}, False),
        ({"offset": 10, "limit": 20}, {"offset": 11, "limit": 100}, False),
        ({"offset": 10, "limit": 20}, {"offset": 10, "limit": 19}, False),
        ({"start_line": 10, "end_line": 30}, {"start_line": 10, "end_line": 29}, False),
    ],
)
def test_a_read_is_superseded_only_by_a_later_one_that_covers_it(
    first: dict[str, int], later: dict[str, int], *, replaced: bool
) -> None:
    log = session(
        worked(did("read", 500, filePath="a.py", said="1", **first)),
        worked(did("read", 500, filePath="a.py", said="2", **later)),
    )
    plan = planned(log, minimum=None)
    assert plan.ordinals == ([1] if replaced else [])
    assert ("read again at h2" in decision(plan, 1).reason) is replaced


def test_the_output_of_a_write_or_a_command_is_never_superseded() -> None:
    log = session(
        worked(did("write", 500, filePath="a.py", said="1")),
        worked(did("bash", 500, command="cat a.py")),
        worked(did("write", 500, filePath="a.py", said="2")),
    )
    assert planned(log, minimum=None).ordinals == []


# --- duplicates -----------------------------------------------------------------------------


def test_of_equal_outputs_of_a_tool_the_newest_stays() -> None:
    same = [worked(did("bash", 500, command=f"run {i}", said="x")) for i in range(3)]
    plan = planned(session(*same), minimum=None)
    assert plan.ordinals == [2, 1]
    assert decision(plan, 1).reason == decision(plan, 2).reason == "the same as h3"
    assert planned(session(*same), minimum=None, duplicated=False).ordinals == []


def test_an_output_in_the_last_turns_makes_an_older_one_a_duplicate() -> None:
    same = did("bash", 500, command="run", said="x")
    log = Log(round4, [user(), worked(same), user(), worked(same), user(), worked(did("ls", 9))])
    plan = planned(log, minimum=None)
    assert [(held.ordinal, held.reason) for held in plan.prune] == [(1, "the same as h3")]


def test_outputs_that_only_begin_and_end_alike_are_no_duplicates() -> None:
    texts = ["x" * 100 + middle + "x" * 100 for middle in "pq"]
    log = session(*(worked(did("bash", 51, command="run", said=text)) for text in texts))
    assert planned(log, minimum=None).ordinals == []


def test_the_same_output_of_another_tool_is_no_duplicate() -> None:
    log = session(worked(did("grep", 500, said="x")), worked(did("bash", 500, said="x")))
    assert planned(log, minimum=None).ordinals == []


# --- what is kept ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata", [{"exit": 1}, {"exit_code": 2}, {"isError": True}, {"is_error": True}]
)
def test_the_output_of_a_failure_is_kept_up_to_so_many_tokens(metadata: dict[str, Any]) -> None:
    def log(tokens: int) -> Log:
        failed = did("bash", tokens, command="make", metadata=metadata)
        return session(worked(failed), worked(did("bash", 40_000, command="new")))

    kept = planned(log(2_000), minimum=None)
    assert kept.ordinals == []
    assert decision(kept, 1).reason == "the output of a failure"
    assert planned(log(2_001), minimum=None).ordinals == [1]
    assert planned(log(2_000), minimum=None, keep_errors=0).ordinals == [1]


def test_the_output_of_a_success_is_not_kept_for_its_exit_code() -> None:
    done = did("bash", 2_000, command="make", metadata={"exit": 0, "isError": False})
    log = session(worked(done), worked(did("bash", 40_000, command="new")))
    assert planned(log, minimum=None).ordinals == [1]


def test_outputs_hardly_longer_than_a_placeholder_are_kept() -> None:
    small = [worked(did("bash", tokens, command=f"{tokens}")) for tokens in (61, 60)]
    log = session(*small, worked(did("bash", 40_000, command="new")))
    plan = planned(log, minimum=None)
    assert plan.ordinals == [1]
    assert decision(plan, 2).reason == "no longer than its placeholder"
    assert planned(log, minimum=None, keep_small=0).ordinals == [2, 1]


def test_outputs_that_the_model_has_not_read_are_kept() -> None:
    unread = worked(did("bash", 30_000, command="1"), did("bash", 30_000, command="2"))
    log = Log(round4, [user(), worked(did("bash", 30_000, command="0")), unread, user(), user()])
    plan = planned(log, minimum=None, protect=10_000)
    assert plan.ordinals == [1]
    assert decision(plan, 2).reason == decision(plan, 3).reason == "not shown to the model yet"
    assert planned(log, minimum=None, protect=10_000, keep_unread=False).ordinals == [3, 2, 1]


def test_protected_tools_are_kept_and_not_counted() -> None:
    skill = did("skill", 90_000, name="deploy")
    log = session(worked(did("bash", 30_000, command="old")), worked(skill))
    plan = planned(log, minimum=None)
    assert plan.ordinals == []
    assert "protected tool" in decision(plan, 2).reason
    assert planned(log, minimum=None, protected_tools=()).ordinals == [2, 1]


# --- long turns, small windows --------------------------------------------------------------


def test_inside_one_very_long_turn_old_outputs_are_pruned() -> None:
    calls = [worked(did("bash", 10_000, command=f"{i}", said=LETTERS[i])) for i in range(20)]
    log = Log(round4, [user(), *calls])
    plan = planned(log)
    assert plan.ordinals == list(range(12, 0, -1))  # twice four are spared
    assert plan.tokens == 120_000
    assert planned(log, inside_turns=False).ordinals == []


def test_in_a_small_window_less_is_protected_and_less_is_worth_it() -> None:
    calls = [worked(did("bash", 1_000, command=f"{i}", said=LETTERS[i])) for i in range(10)]
    log = session(*calls)
    assert planned(log).ordinals == []
    assert planned(log, usable=20_000).ordinals == [5, 4, 3, 2, 1]
    assert planned(log, usable=20_000, scale=None).ordinals == []
    assert planned(log, usable=10**6).ordinals == []


def test_the_minimum_of_a_small_window_is_half_of_what_it_protects() -> None:
    def log(tokens: int) -> Log:
        old = did("bash", tokens, command="old")
        return session(worked(old), worked(did("bash", 5_000, command="new")))

    assert planned(log(2_500), usable=20_000).ordinals == []
    assert planned(log(2_501), usable=20_000).ordinals == [1]


def test_an_earlier_prune_is_no_boundary() -> None:
    log = session(*(worked(did("bash", 60_000, command=f"{i}", said=LETTERS[i])) for i in range(3)))
    log.mark([2], at=5)
    assert planned(log).ordinals == [3, 1]
    assert planned(log, stop_at_pruned=True).ordinals == [3]


def test_what_lies_before_the_view_is_not_looked_at() -> None:
    log = session(*(worked(did("bash", 60_000, command=f"{i}", said=LETTERS[i])) for i in range(3)))
    plan = prune_plan(log, FOLDMARK.prune, start=3, explain=True)
    assert plan.ordinals == [3]
    assert not {1, 2} & {held.ordinal for held in plan.keep}


def test_every_output_is_decided_on_with_a_reason() -> None:
    log = session(
        worked(did("read", 500, filePath="a.py"), did("bash", 30_000, command="0")),
        worked(did("edit", 100, filePath="a.py"), did("bash", 30_000, command="1", said="x")),
        worked(did("bash", 900, command="make", metadata={"exit": 1}), did("skill", 400)),
        worked(did("bash", 30_000, command="2", said="x"), did("bash", 20_000, command="3")),
    )
    plan = planned(log)
    decided = [*plan.prune, *plan.keep]
    assert sorted(held.ordinal for held in decided) == list(log.calls)
    assert all(held.reason for held in decided)
    assert plan.tokens == sum(held.tokens for held in plan.prune)
    assert len({held.reason for held in decided}) >= 6


# --- plans made again and again -------------------------------------------------------------


def test_a_plan_made_again_is_the_plan_made_anew() -> None:
    log = session(*(worked(did("bash", 30_000, command=f"{i}")) for i in range(6)))
    for step in range(8):
        plan = prune_plan(log, FOLDMARK.prune, explain=False)
        assert plan.ordinals == planned(log).ordinals
        log.mark(plan.ordinals, at=step + 1)
        log.append(worked(did("bash", 15_000, command=f"later {step}")))
        log.append(user())
    assert len(log.marks) > 8


def test_a_plan_made_again_sees_what_is_shown_again_and_a_view_that_goes_back() -> None:
    log = session(*(worked(did("bash", 60_000, command=f"{i}")) for i in range(3)))
    assert prune_plan(log, FOLDMARK.prune, start=3, explain=False).ordinals == [3]
    assert prune_plan(log, FOLDMARK.prune, start=0, explain=False).ordinals == [3, 2, 1]
    log.mark([1, 2, 3], at=5)
    assert prune_plan(log, FOLDMARK.prune, explain=False).ordinals == []
    log.unmark([1])
    assert prune_plan(log, FOLDMARK.prune, explain=False).ordinals == [1]


def test_a_plan_made_again_sees_a_call_that_was_still_running_before() -> None:
    part = did("bash", 90_000, command="old")
    log = Log(round4, [user(), worked(replace(part, state=Running(input={})))])
    assert prune_plan(log, FOLDMARK.prune, explain=False).ordinals == []
    log.record_result(1, worked(part))
    for message in (worked(did("ls", 90)), user(), user(), worked(did("ls", 9))):
        log.append(message)
    assert planned(log).ordinals == [1]
    assert prune_plan(log, FOLDMARK.prune, explain=False).ordinals == [1]


# --- not so yet -----------------------------------------------------------------------------


def test_outputs_before_a_later_answer_have_been_read() -> None:
    read = (worked(did("bash", 90_000, command="old")), worked(TextPart(text="I see.")))
    log = Log(round4, [user(), *read, user(), worked(TextPart(text="ok")), user()])
    assert planned(log).ordinals == [1]


@pytest.mark.parametrize("fate", ["failed", "taken back"])
def test_a_summary_that_is_not_in_force_does_not_stop_the_scan(fate: str) -> None:
    marker = Message(info=UserInfo(id="m"), parts=(CompactionPart(auto=True),))
    error = {"error": {"name": "APIError"}} if fate == "failed" else {}
    summary = worked(TextPart(text="so far"), summary=True, parent_id="m", **error)
    log = session(worked(did("bash", 90_000, command="old")), marker, summary)
    if fate == "taken back":
        log = without_pivots(log)
    assert log.pivot is None
    assert planned(log).ordinals == [1]


def test_a_write_that_failed_supersedes_nothing() -> None:
    failed = did("edit", 100, filePath="a.py", metadata={"isError": True})
    log = session(worked(did("read", 500, filePath="a.py")), worked(failed))
    assert planned(log, minimum=None).ordinals == []
