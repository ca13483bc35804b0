"""Foldmark's own pruning rules, each enabled and disabled, and repeated plans."""

from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from foldmark.compaction.prune import Decision, Prune, prune_plan
from foldmark.log.log import Log
from foldmark.model.messages import Completed, Running, Time, ToolPart
from foldmark.policy import FOLDMARK
from foldmark.tokens.counters import round4
from tests.support.messages import marker, reply, said, summary, user
from tests.support.stored_sessions import without_pivots

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PATCH = "*** Begin Patch\n*** Update File: a.py\n*** Delete File: b.py\n*** End Patch"
HALF_EQUAL = ["x" * 100 + middle + "x" * 100 for middle in "pq"]
SUCCESS = {"exit": 0, "isError": False}


def did(tool: str, tokens: int, **arguments: Any) -> ToolPart:
    """A call with an output of its own; `text` and `metadata` belong to the output."""
    metadata = arguments.pop("metadata", {})
    output = arguments.pop("text", f"{tool} {arguments} ") * (4 * tokens)
    time = Time(start=1, end=2)
    state = Completed(input=arguments, output=output[: 4 * tokens], metadata=metadata, time=time)
    return ToolPart(tool=tool, call_id="c", state=state)


def bash(tokens: int, command: object = "run", **more: Any) -> ToolPart:
    return did("bash", tokens, command=str(command), **more)


def read(name: str, **more: Any) -> ToolPart:
    return did("read", 500, filePath=name, **more)


def session(*calls: ToolPart) -> Log:
    """Replies with these calls as an old turn, then two turns, the last with an unread output."""
    recent = (user(), said("done"), user(), reply(bash(1, "ls")))
    return Log(round4, [user(), *map(reply, calls), *recent])


def distinct(tokens: int, count: int) -> list[ToolPart]:
    return [bash(tokens, number, text=LETTERS[number]) for number in range(count)]


def planned(log: Log, *, usable: int = 0, **changes: Any) -> Prune:
    """The plan of Foldmark's own rules with these changes."""
    return prune_plan(log, replace(FOLDMARK.prune, **changes), usable=usable, explain=True)


def quick(log: Log, start: int = 0) -> list[int]:
    return prune_plan(log, FOLDMARK.prune, start=start, explain=False).ordinals


def decision(plan: Prune, ordinal: int) -> Decision:
    return next(one for one in (*plan.prune, *plan.keep) if one.ordinal == ordinal)


class Case(NamedTuple):
    """Calls of an old turn, changes of the rules, and the expected ordinals and reasons."""

    calls: tuple[ToolPart, ...]
    changes: dict[str, Any]
    pruned: list[int]
    reasons: dict[int, str]


def case(*calls: ToolPart, pruned: tuple[int, ...] = (), reason: str = "", **changes: Any) -> Case:
    """A case; the reason is that of all pruned outputs, or of the first one kept."""
    return Case(calls, changes, list(pruned), dict.fromkeys(pruned or (1,), reason))


READ, EDIT = read("a.py"), did("edit", 100, filePath="a.py")
WRITES = [did("write", 500, filePath="a.py", text=text) for text in "12"]
PATCHED = did("apply_patch", 20, patchText=PATCH)
EQUAL, BIG = [bash(500, number, text="x") for number in range(3)], bash(40_000, "new")
FAILED = bash(2_000, "make", metadata={"exit": 1})
SMALL = (bash(60, 60), bash(61, 61), BIG)
SKILL = did("skill", 90_000, name="deploy")
FAILURES = ({"exit": 1}, {"exit_code": 2}, {"isError": True}, {"is_error": True})
EDITORS = ("write", "edit", "str_replace", "apply_patch")
IS_WRITTEN, IS_EQUAL = "a.py was written at h2", "the same as h3"
RULES = {
    **{
        f"a read before {tool}": case(
            READ, did(tool, 20, filePath="a.py"), pruned=(1,), reason=IS_WRITTEN
        )
        for tool in EDITORS
    },
    "a read before an edit, disabled": case(READ, EDIT, superseded=False),
    "a patch of two files": case(READ, read("b.py"), PATCHED, pruned=(2, 1)),
    "a read after an edit": case(EDIT, READ),
    "a read of another file": case(read("b.py"), EDIT),
    "a failed edit": case(READ, did("edit", 100, filePath="a.py", metadata={"isError": True})),
    "writes and commands": case(WRITES[0], bash(500, "cat a.py"), WRITES[1]),
    "equal outputs": case(*EQUAL, pruned=(2, 1), reason=IS_EQUAL),
    "equal outputs, disabled": case(*EQUAL, duplicated=False),
    "outputs equal at both ends": case(*(bash(51, text=text) for text in HALF_EQUAL)),
    "equal outputs of two tools": case(did("grep", 500, text="x"), EQUAL[0]),
    **{
        f"a failure: {metadata}": case(
            bash(2_000, "make", metadata=metadata), BIG, reason="the output of a failure"
        )
        for metadata in FAILURES
    },
    "a long failure": case(bash(2_001, "make", metadata={"exit": 1}), BIG, pruned=(1,)),
    "a failure, disabled": case(FAILED, BIG, pruned=(1,), keep_errors=0),
    "a success": case(bash(2_000, "make", metadata=SUCCESS), BIG, pruned=(1,)),
    "a small output": case(SMALL[0], BIG, reason="no longer than its placeholder"),
    "an output that is not small": case(*SMALL, pruned=(2,)),
    "a small output, disabled": case(*SMALL, pruned=(2, 1), keep_small=0),
    "a protected tool": case(SKILL, BIG, reason="of a protected tool"),
    "a protected tool is not counted": case(bash(30_000, "old"), SKILL),
    "a protected tool, disabled": case(
        bash(30_000, "old"), SKILL, pruned=(2, 1), protected_tools=()
    ),
}


@pytest.mark.parametrize("case", RULES.values(), ids=RULES)
def test_each_rule_prunes_or_keeps_an_output_with_its_reason(case: Case) -> None:
    plan = planned(session(*case.calls), minimum=None, **case.changes)
    assert plan.ordinals == case.pruned
    for ordinal, reason in case.reasons.items():
        assert reason in {"", decision(plan, ordinal).reason}


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
    log = session(read("a.py", text="1", **first), read("a.py", text="2", **later))
    plan = planned(log, minimum=None)
    assert plan.ordinals == ([1] if replaced else [])
    assert ("read again at h2" in decision(plan, 1).reason) is replaced


def test_an_output_in_the_last_turns_makes_an_older_one_a_duplicate() -> None:
    same = reply(bash(500, text="x"))
    log = Log(round4, [user(), same, user(), same, user(), reply(did("ls", 9))])
    plan = planned(log, minimum=None)
    assert [(one.ordinal, one.reason) for one in plan.prune] == [(1, "the same as h3")]


def test_outputs_that_the_model_has_not_read_are_kept() -> None:
    unread = reply(bash(30_000, 1), bash(30_000, 2))
    log = Log(round4, [user(), reply(bash(30_000, 0)), unread, user(), user()])
    plan = planned(log, minimum=None, protect=10_000)
    assert plan.ordinals == [1]
    assert decision(plan, 2).reason == decision(plan, 3).reason == "not shown to the model yet"
    assert planned(log, minimum=None, protect=10_000, keep_unread=False).ordinals == [3, 2, 1]


def test_outputs_before_a_later_reply_have_been_read() -> None:
    turns = [user(), reply(bash(90_000, "old")), said("I see."), user(), said(), user()]
    assert planned(Log(round4, turns)).ordinals == [1]


# --- long turns, small windows --------------------------------------------------------------


def test_inside_one_very_long_turn_old_outputs_are_pruned() -> None:
    log = Log(round4, [user(), *map(reply, distinct(10_000, 20))])
    plan = planned(log)
    assert plan.ordinals == list(range(12, 0, -1))  # twice four are protected
    assert plan.tokens == 120_000
    assert planned(log, inside_turns=False).ordinals == []


def test_in_a_small_window_less_is_protected_and_the_minimum_is_smaller() -> None:
    log = session(*distinct(1_000, 10))
    assert planned(log).ordinals == []
    assert planned(log, usable=20_000).ordinals == [5, 4, 3, 2, 1]
    assert planned(log, usable=20_000, scale=None).ordinals == []
    assert planned(log, usable=10**6).ordinals == []


@pytest.mark.parametrize(("tokens", "ordinals"), [(2_500, []), (2_501, [1])])
def test_the_minimum_of_a_small_window_is_half_of_what_it_protects(
    tokens: int, ordinals: list[int]
) -> None:
    log = session(bash(tokens, "old"), bash(5_000, "new"))
    assert planned(log, usable=20_000).ordinals == ordinals


def test_an_earlier_prune_is_no_boundary() -> None:
    log = session(*distinct(60_000, 3))
    log.mark([2], at=5)
    assert planned(log).ordinals == [3, 1]
    assert planned(log, stop_at_pruned=True).ordinals == [3]


def test_outputs_before_the_view_are_ignored() -> None:
    plan = prune_plan(session(*distinct(60_000, 3)), FOLDMARK.prune, start=3, explain=True)
    assert plan.ordinals == [3]
    assert not {1, 2} & {one.ordinal for one in plan.keep}


def test_every_output_gets_a_decision_with_a_reason() -> None:
    log = session(
        *(READ, bash(30_000, 0), EDIT, bash(30_000, 1, text="x")),
        *(bash(900, "make", metadata={"exit": 1}), did("skill", 400)),
        *(bash(30_000, 2, text="x"), bash(20_000, 3)),
    )
    plan = planned(log)
    decisions = [*plan.prune, *plan.keep]
    assert sorted(one.ordinal for one in decisions) == list(log.calls)
    assert all(one.reason for one in decisions)
    assert plan.tokens == sum(one.tokens for one in plan.prune)
    assert len({one.reason for one in decisions}) >= 6


@pytest.mark.parametrize("state", ["failed", "undone"])
def test_a_summary_that_is_not_in_force_does_not_stop_the_scan(state: str) -> None:
    error: dict[str, Any] = {"error": {"name": "APIError"}} if state == "failed" else {}
    turns = [reply(bash(90_000, "old")), marker(), summary(**error), user(), said(), user()]
    log = Log(round4, [user(), *turns, reply(bash(1, "ls"))])
    log = without_pivots(log) if state == "undone" else log
    assert log.pivot is None
    assert planned(log).ordinals == [1]


# --- repeated plans -------------------------------------------------------------------------


def test_a_repeated_plan_equals_a_new_one() -> None:
    log = session(*(bash(30_000, number) for number in range(6)))
    for step in range(8):
        ordinals = quick(log)
        assert ordinals == planned(log).ordinals
        log.mark(ordinals, at=step + 1)
        log.append(reply(bash(15_000, f"later {step}")))
        log.append(user())
    assert len(log.marks) > 8


def test_a_repeated_plan_sees_unmarked_outputs_and_an_earlier_start_of_the_view() -> None:
    log = session(*(bash(60_000, number) for number in range(3)))
    assert quick(log, start=3) == [3]
    assert quick(log) == [3, 2, 1]
    log.mark([1, 2, 3], at=5)
    assert quick(log) == []
    log.unmark([1])
    assert quick(log) == [1]


def test_a_repeated_plan_sees_a_call_that_was_running_before() -> None:
    part = bash(90_000, "old")
    log = Log(round4, [user(), reply(replace(part, state=Running(input={})))])
    assert quick(log) == []
    log.record_result(1, reply(part))
    for message in (reply(did("ls", 90)), user(), user(), reply(did("ls", 9))):
        log.append(message)
    assert planned(log).ordinals == quick(log) == [1]
