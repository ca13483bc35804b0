"""The outputs that the presets of the spec prune (spec 000, 002, 003); a plan changes nothing.

Sizes are tokens: an output of n tokens has 4 n characters.
"""

import pytest
from msgspec.structs import replace

from foldmark.compaction.prune import Prune, prune_plan
from foldmark.log.log import Log
from foldmark.log.marks import marked_messages
from foldmark.model.messages import (
    Completed,
    Failed,
    FilePart,
    Message,
    Pending,
    Running,
    TextPart,
    Time,
    ToolPart,
)
from foldmark.policy import (
    CODELET,
    CODELET_USABLE,
    OPENCODE,
    OPENCODE_2025,
    OPENCODE_BUFFER,
    Policy,
)
from foldmark.tokens.counters import round4
from tests.support.messages import reply, said, user

SINCE_2025 = pytest.mark.parametrize("policy", [OPENCODE_2025, OPENCODE], ids=lambda p: p.name)
SPEC_PRESETS = (OPENCODE_2025, OPENCODE, OPENCODE_BUFFER)
EACH_PRESET = pytest.mark.parametrize("policy", SPEC_PRESETS, ids=lambda p: p.name)
NOTHING = Prune(prune=(), keep=(), tokens=0)
SUMMARY = said("so far", summary=True)


def ran(name: str, tokens: int, *, tool: str = "bash", pruned: bool = False) -> ToolPart:
    time = Time(start=1, end=2, compacted=3) if pruned else Time(start=1, end=2)
    state = Completed(input={"command": name}, output="x" * (4 * tokens), time=time)
    return ToolPart(id=name, tool=tool, call_id=name, state=state)


def session(*old: Message) -> Log:
    """These messages as an old turn, then the two turns that are never pruned."""
    return Log(round4, [user(), *old, user(), said(), user(), said()])


def turn_of(*calls: ToolPart) -> Log:
    """One reply with these calls as an old turn."""
    return session(reply(*calls))


def pruned(log: Log, policy: Policy) -> list[str]:
    return [decision.part for decision in prune_plan(log, policy.prune).prune]


# --- the edge cases of spec 003 -------------------------------------------------------------


@EACH_PRESET
def test_an_empty_session_has_nothing_to_prune(policy: Policy) -> None:
    assert prune_plan(Log(round4, []), policy.prune, explain=True) == NOTHING


@EACH_PRESET
def test_a_session_without_tool_outputs_has_nothing_to_prune(policy: Policy) -> None:
    log = session(reply(TextPart(text="x" * 400_000)))
    assert prune_plan(log, policy.prune, explain=True) == NOTHING


@EACH_PRESET
def test_protected_tools_are_never_pruned(policy: Policy) -> None:
    log = session(reply(*(ran(f"s{i}", 50_000, tool="skill") for i in range(3))))
    assert pruned(log, policy) == []


@SINCE_2025
def test_protected_tools_do_not_use_up_the_protected_tokens(policy: Policy) -> None:
    log = turn_of(ran("old", 30_000), ran("new", 40_000), ran("s", 90_000, tool="skill"))
    assert pruned(log, policy) == ["old"]


@SINCE_2025
def test_nothing_is_pruned_beyond_an_earlier_prune(policy: Policy) -> None:
    oldest, newest = ran("oldest", 60_000), ran("newest", 60_000)
    log = session(reply(oldest, ran("between", 10_000, pruned=True), newest))
    assert pruned(log, policy) == ["newest"]
    log = session(reply(oldest, ran("between", 10_000), newest))
    assert pruned(log, policy) == ["newest", "between", "oldest"]
    earlier = ran("earlier", 9, pruned=True)
    assert pruned(session(reply(oldest, earlier, oldest, earlier, newest)), policy) == ["newest"]


@SINCE_2025
def test_an_earlier_prune_of_a_protected_tool_is_no_boundary(policy: Policy) -> None:
    skill = ran("skill", 10, tool="skill", pruned=True)
    log = session(reply(ran("oldest", 60_000), skill, ran("newest", 40_000)))
    assert pruned(log, policy) == ["oldest"]


@SINCE_2025
@pytest.mark.parametrize("beyond", [1, 19_999, 20_000])
def test_up_to_the_minimum_nothing_is_pruned(policy: Policy, beyond: int) -> None:
    log = turn_of(ran("old", beyond), ran("new", 40_000))
    plan = prune_plan(log, policy.prune, explain=True)
    assert plan.prune == ()
    assert plan.tokens == 0
    assert [one.part for one in plan.keep] == ["new", "old"]
    assert "minimum" in plan.keep[1].reason
    assert "minimum" not in plan.keep[0].reason


@SINCE_2025
def test_above_the_minimum_all_unprotected_outputs_are_pruned(policy: Policy) -> None:
    plan = prune_plan(turn_of(ran("old", 20_001), ran("new", 40_000)), policy.prune)
    assert [one.part for one in plan.prune] == ["old"]
    assert plan.tokens == 20_001


@SINCE_2025
def test_small_outputs_add_up_to_the_minimum(policy: Policy) -> None:
    many = [ran(f"p{i}", 1_000) for i in range(61)]
    plan = prune_plan(session(reply(*many)), policy.prune)
    assert [one.part for one in plan.prune] == [f"p{i}" for i in range(20, -1, -1)]
    assert plan.tokens == 21_000


@SINCE_2025
def test_an_output_that_just_fills_the_protected_tokens_is_kept(policy: Policy) -> None:
    assert pruned(turn_of(ran("old", 30_000), ran("new", 40_000)), policy) == ["old"]


@SINCE_2025
def test_an_output_that_exceeds_the_protected_tokens_is_pruned_itself(policy: Policy) -> None:
    assert pruned(turn_of(ran("old", 9), ran("new", 40_001)), policy) == ["new", "old"]


# --- which outputs are scanned, and in which order ------------------------------------------


@EACH_PRESET
def test_the_last_two_turns_are_skipped_and_do_not_count(policy: Policy) -> None:
    turns = [
        *(user(), reply(ran("two back", 40_000))),
        *(user(), reply(ran("last", 90_000))),
        *(user(), reply(ran("current", 90_000))),
    ]
    assert pruned(Log(round4, turns), policy) == []
    assert pruned(Log(round4, [*turns, user()]), policy) == ["last", "two back"]


@EACH_PRESET
def test_a_session_of_one_turn_is_left_alone(policy: Policy) -> None:
    log = Log(round4, [user(), *(reply(ran(f"p{i}", 50_000)) for i in range(5))])
    assert pruned(log, policy) == []


@EACH_PRESET
def test_the_scan_stops_at_a_summary(policy: Policy) -> None:
    before, after = reply(ran("before", 90_000)), reply(ran("after", 90_000))
    assert pruned(session(before, SUMMARY, after), policy) == ["after"]
    assert pruned(session(before, said("so far"), after), policy) == ["after", "before"]
    assert pruned(session(before, SUMMARY, before, SUMMARY, after), policy) == ["after"]


@EACH_PRESET
def test_outputs_before_the_first_request_may_be_pruned(policy: Policy) -> None:
    assert pruned(Log(round4, [reply(ran("early", 90_000)), user(), user()]), policy) == ["early"]


@EACH_PRESET
def test_a_summary_within_the_last_two_turns_does_not_stop_the_scan(policy: Policy) -> None:
    log = Log(round4, [user(), reply(ran("old", 90_000)), user(), SUMMARY, user()])
    assert pruned(log, policy) == ["old"]


@EACH_PRESET
@pytest.mark.parametrize(
    "state",
    [
        Failed(input={}, error="x" * 400_000, time=Time(start=1, end=2)),
        Running(input={}, time=Time(start=1)),
        Pending(input={}, raw="x" * 400_000),
    ],
    ids=["error", "running", "pending"],
)
def test_only_completed_calls_are_pruned(policy: Policy, state: Failed | Running | Pending) -> None:
    call = ToolPart(id="odd", tool="bash", call_id="odd", state=state)
    assert pruned(session(reply(ran("old", 90_000), call, ran("new", 40_000))), policy) == ["old"]
    assert pruned(session(reply(call, call)), policy) == []


@EACH_PRESET
def test_outputs_are_decided_newest_first_across_and_within_messages(policy: Policy) -> None:
    log = session(
        reply(ran("1", 50_000), ran("2", 50_000)),
        reply(TextPart(text="next"), ran("3", 50_000)),
        reply(ran("4", 50_000), ran("5", 10_000)),
    )
    plan = prune_plan(log, policy.prune, explain=True)
    assert [one.part for one in plan.prune] == ["4", "3", "2", "1"]
    assert [one.part for one in plan.keep] == ["5"]


@pytest.mark.parametrize("policy", [*SPEC_PRESETS, CODELET, CODELET_USABLE], ids=lambda p: p.name)
def test_nothing_is_pruned_if_pruning_is_off(policy: Policy) -> None:
    log = turn_of(ran("old", 90_000), ran("new", 90_000))
    off = policy.adjusted(prune=False).prune
    assert prune_plan(log, off, explain=False) == NOTHING
    keep = prune_plan(log, off, explain=True).keep
    assert [decision.part for decision in keep] == ["new", "old"]
    assert {decision.reason for decision in keep} == {"pruning is off"}


def test_codelet_does_not_prune_and_opencode_does() -> None:
    log = turn_of(ran("old", 90_000))
    assert pruned(log, CODELET) == pruned(log, CODELET_USABLE) == []
    assert pruned(log, OPENCODE_2025) == ["old"]


# --- the buffer version, spec 002 -----------------------------------------------------------


def test_the_buffer_version_has_no_minimum() -> None:
    log = turn_of(ran("old", 1), ran("new", 40_000))
    assert pruned(log, OPENCODE_BUFFER) == ["old"]
    assert pruned(log, OPENCODE_2025) == []


def test_the_buffer_version_continues_beyond_an_earlier_prune() -> None:
    between = ran("between", 10_000, pruned=True)
    log = session(reply(ran("oldest", 60_000), between, ran("newest", 60_000)))
    assert pruned(log, OPENCODE_BUFFER) == ["newest", "oldest"]


def test_the_buffer_version_protects_as_many_tokens() -> None:
    assert pruned(turn_of(ran("old", 50_000), ran("new", 40_000)), OPENCODE_BUFFER) == ["old"]
    log = turn_of(ran("old", 50_000), ran("new", 40_001))
    assert pruned(log, OPENCODE_BUFFER) == ["new", "old"]


# --- the rules are settings, and a plan changes nothing -------------------------------------


def test_protect_minimum_turns_and_protected_tools_can_be_set() -> None:
    log = turn_of(ran("old", 300), ran("new", 200), ran("note", 900, tool="note"))
    rules = replace(OPENCODE_2025.prune, protect=250, minimum=100, protected_tools=("note",))
    assert [one.part for one in prune_plan(log, rules).prune] == ["old"]
    unlimited = replace(rules, protect=0, turns=0, protected_tools=())
    assert [one.part for one in prune_plan(log, unlimited).prune] == ["note", "new", "old"]


@EACH_PRESET
def test_a_plan_changes_nothing(policy: Policy) -> None:
    log = turn_of(ran("old", 90_000), ran("new", 90_000))
    before, changes = marked_messages(log), list(log.changes)
    plan = prune_plan(log, policy.prune)
    assert plan.ordinals == [2, 1]
    assert prune_plan(log, policy.prune) == plan
    assert marked_messages(log) == before
    assert (log.marks, log.changes) == ({}, changes)


@EACH_PRESET
def test_pruning_keeps_the_output_and_adds_a_timestamp(policy: Policy) -> None:
    log = session(reply(TextPart(text="so"), ran("old", 90_000), ran("new", 40_000)))
    log.mark(prune_plan(log, policy.prune).ordinals, at=1_705_512_345_678)
    _, old, new = marked_messages(log)[1].parts
    unpruned = ran("old", 90_000)
    time = Time(start=1, end=2, compacted=1_705_512_345_678)
    assert old == replace(unpruned, state=replace(unpruned.state, time=time))
    assert new == ran("new", 40_000)
    assert log.entries[1].message.parts[1] == unpruned


def test_a_prune_is_undone_even_if_the_message_was_imported_with_it() -> None:
    before = ran("before", 9, pruned=True)
    log = session(reply(before, ran("old", 9)), reply(ran("new", 9)))
    assert marked_messages(log) == tuple(entry.message for entry in log.entries.values())
    log.mark([2], at=7)
    log.unmark([1, 2])
    assert marked_messages(log)[1].parts == (ran("before", 9), ran("old", 9))
    assert marked_messages(log)[2] is log.entries[2].message


@SINCE_2025
def test_a_second_prune_finds_nothing(policy: Policy) -> None:
    log = turn_of(ran("old", 90_000), ran("new", 40_000))
    log.mark(prune_plan(log, policy.prune).ordinals, at=5)
    assert pruned(log, policy) == []


@SINCE_2025
def test_only_the_text_of_an_output_is_estimated(policy: Policy) -> None:
    shot = FilePart(mime="image/png", url="data:image/png;base64,AAAA")
    new = ran("new", 40_000)
    new = replace(new, state=replace(new.state, attachments=(shot,)))
    assert pruned(session(reply(ran("old", 30_000), new)), policy) == ["old"]
