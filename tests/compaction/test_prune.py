"""Which outputs the presets of the spec hide (spec 000, 002, 003), and that a plan changes nothing.

Sizes are tokens: an output of n tokens has 4 n characters.
"""

import pytest
from msgspec.structs import replace

from foldmark.compaction.prune import Prune, prune_plan
from foldmark.log.log import Log
from foldmark.log.marks import marked_messages
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    Pending,
    Running,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
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

SINCE_2025 = pytest.mark.parametrize("policy", [OPENCODE_2025, OPENCODE], ids=lambda p: p.name)
OF_SPEC = (OPENCODE_2025, OPENCODE, OPENCODE_BUFFER)
NOTHING = Prune(prune=(), keep=(), tokens=0)


def user() -> Message:
    return Message(info=UserInfo(id="u"), parts=(TextPart(text="go on"),))


def worked(*parts: AnyPart, summary: bool = False) -> Message:
    return Message(info=AssistantInfo(id="a", finish="stop", summary=summary), parts=parts)


def ran(name: str, tokens: int, *, tool: str = "bash", pruned: bool = False) -> ToolPart:
    time = Time(start=1, end=2, compacted=3) if pruned else Time(start=1, end=2)
    state = Completed(input={"command": name}, output="x" * (4 * tokens), time=time)
    return ToolPart(id=name, tool=tool, call_id=name, state=state)


def session(*old: Message) -> Log:
    """These messages as an old turn, then the two turns that are never touched."""
    recent = (user(), worked(TextPart(text="done")), user(), worked(TextPart(text="done")))
    return Log(round4, [user(), *old, *recent])


def pruned(log: Log, policy: Policy) -> list[str]:
    return [decision.part for decision in prune_plan(log, policy.prune).prune]


# --- the edge cases of spec 003 -------------------------------------------------------------


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_an_empty_session_has_nothing_to_prune(policy: Policy) -> None:
    assert prune_plan(Log(round4, []), policy.prune, explain=True) == NOTHING


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_a_session_without_tool_outputs_has_nothing_to_prune(policy: Policy) -> None:
    log = session(worked(TextPart(text="x" * 400_000)))
    assert prune_plan(log, policy.prune, explain=True) == NOTHING


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_protected_tools_are_never_pruned(policy: Policy) -> None:
    log = session(worked(*(ran(f"s{i}", 50_000, tool="skill") for i in range(3))))
    assert pruned(log, policy) == []


@SINCE_2025
def test_protected_tools_do_not_use_up_the_protected_tokens(policy: Policy) -> None:
    log = session(
        worked(ran("old", 30_000), ran("new", 40_000), ran("skill", 90_000, tool="skill"))
    )
    assert pruned(log, policy) == ["old"]


@SINCE_2025
def test_nothing_is_pruned_beyond_an_earlier_prune(policy: Policy) -> None:
    oldest, newest = ran("oldest", 60_000), ran("newest", 60_000)
    log = session(worked(oldest, ran("between", 10_000, pruned=True), newest))
    assert pruned(log, policy) == ["newest"]
    log = session(worked(oldest, ran("between", 10_000), newest))
    assert pruned(log, policy) == ["newest", "between", "oldest"]


@SINCE_2025
def test_the_newest_of_several_earlier_prunes_is_the_boundary(policy: Policy) -> None:
    parts = [
        *(ran("1", 60_000), ran("2", 9, pruned=True), ran("3", 60_000)),
        *(ran("4", 9, pruned=True), ran("5", 60_000)),
    ]
    assert pruned(session(worked(*parts)), policy) == ["5"]


@SINCE_2025
def test_an_earlier_prune_of_a_protected_tool_is_no_boundary(policy: Policy) -> None:
    skill = ran("skill", 10, tool="skill", pruned=True)
    log = session(worked(ran("oldest", 60_000), skill, ran("newest", 40_000)))
    assert pruned(log, policy) == ["oldest"]


@SINCE_2025
@pytest.mark.parametrize("beyond", [1, 19_999, 20_000])
def test_up_to_the_minimum_nothing_is_pruned(policy: Policy, beyond: int) -> None:
    log = session(worked(ran("old", beyond), ran("new", 40_000)))
    plan = prune_plan(log, policy.prune, explain=True)
    assert plan.prune == ()
    assert plan.tokens == 0
    assert [held.part for held in plan.keep] == ["new", "old"]
    assert "minimum" in plan.keep[1].reason
    assert "minimum" not in plan.keep[0].reason


@SINCE_2025
def test_above_the_minimum_all_that_is_unprotected_is_pruned(policy: Policy) -> None:
    plan = prune_plan(session(worked(ran("old", 20_001), ran("new", 40_000))), policy.prune)
    assert [held.part for held in plan.prune] == ["old"]
    assert plan.tokens == 20_001


@SINCE_2025
def test_small_outputs_add_up_to_the_minimum(policy: Policy) -> None:
    many = [ran(f"p{i}", 1_000) for i in range(61)]
    plan = prune_plan(session(worked(*many)), policy.prune)
    assert [held.part for held in plan.prune] == [f"p{i}" for i in range(20, -1, -1)]
    assert plan.tokens == 21_000


@SINCE_2025
def test_an_output_that_just_fills_the_protected_tokens_is_kept(policy: Policy) -> None:
    assert pruned(session(worked(ran("old", 30_000), ran("new", 40_000))), policy) == ["old"]


@SINCE_2025
def test_an_output_that_exceeds_the_protected_tokens_is_pruned_itself(policy: Policy) -> None:
    assert pruned(session(worked(ran("old", 9), ran("new", 40_001))), policy) == ["new", "old"]


# --- what is looked at, and in which order --------------------------------------------------


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_the_last_two_turns_are_skipped_and_do_not_count(policy: Policy) -> None:
    turns = [
        *(user(), worked(ran("two back", 40_000))),
        *(user(), worked(ran("last", 90_000))),
        *(user(), worked(ran("current", 90_000))),
    ]
    assert pruned(Log(round4, turns), policy) == []
    assert pruned(Log(round4, [*turns, user()]), policy) == ["last", "two back"]


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_a_session_of_one_turn_is_left_alone(policy: Policy) -> None:
    log = Log(round4, [user(), *(worked(ran(f"p{i}", 50_000)) for i in range(5))])
    assert pruned(log, policy) == []


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_the_scan_stops_at_a_summary(policy: Policy) -> None:
    before, after = worked(ran("before", 90_000)), worked(ran("after", 90_000))
    log = session(before, worked(TextPart(text="so far"), summary=True), after)
    assert pruned(log, policy) == ["after"]
    log = session(before, worked(TextPart(text="so far")), after)
    assert pruned(log, policy) == ["after", "before"]


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_the_scan_stops_at_the_newest_of_several_summaries(policy: Policy) -> None:
    summary = worked(TextPart(text="so far"), summary=True)
    work = [worked(ran(name, 90_000)) for name in ("1", "2", "3")]
    log = session(work[0], summary, work[1], summary, work[2])
    assert pruned(log, policy) == ["3"]


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_work_before_the_first_request_may_go(policy: Policy) -> None:
    log = Log(round4, [worked(ran("early", 90_000)), user(), user()])
    assert pruned(log, policy) == ["early"]


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_a_summary_within_the_last_two_turns_does_not_stop_the_scan(policy: Policy) -> None:
    summary = worked(TextPart(text="so far"), summary=True)
    log = Log(round4, [user(), worked(ran("old", 90_000)), user(), summary, user()])
    assert pruned(log, policy) == ["old"]


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
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
    log = session(worked(ran("old", 90_000), call, ran("new", 40_000)))
    assert pruned(log, policy) == ["old"]
    assert pruned(session(worked(call, call)), policy) == []


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_outputs_are_decided_newest_first_across_and_within_messages(policy: Policy) -> None:
    log = session(
        worked(ran("1", 50_000), ran("2", 50_000)),
        worked(TextPart(text="next"), ran("3", 50_000)),
        worked(ran("4", 50_000), ran("5", 10_000)),
    )
    plan = prune_plan(log, policy.prune, explain=True)
    assert [held.part for held in plan.prune] == ["4", "3", "2", "1"]
    assert [held.part for held in plan.keep] == ["5"]


@pytest.mark.parametrize("policy", [*OF_SPEC, CODELET, CODELET_USABLE], ids=lambda p: p.name)
def test_nothing_is_pruned_where_pruning_is_off(policy: Policy) -> None:
    log = session(worked(ran("old", 90_000), ran("new", 90_000)))
    off = policy.adjusted(prune=False).prune
    assert prune_plan(log, off, explain=False) == NOTHING
    kept = prune_plan(log, off, explain=True).keep
    assert [(held.part, held.reason) for held in kept] == [
        ("new", "pruning is off"),
        ("old", "pruning is off"),
    ]


def test_codelet_does_not_prune_and_opencode_does() -> None:
    log = session(worked(ran("old", 90_000)))
    assert pruned(log, CODELET) == pruned(log, CODELET_USABLE) == []
    assert pruned(log, OPENCODE_2025) == ["old"]


# --- the buffer version, spec 002 -----------------------------------------------------------


def test_the_buffer_version_has_no_minimum() -> None:
    log = session(worked(ran("old", 1), ran("new", 40_000)))
    assert pruned(log, OPENCODE_BUFFER) == ["old"]
    assert pruned(log, OPENCODE_2025) == []


def test_the_buffer_version_goes_on_beyond_an_earlier_prune() -> None:
    between = ran("between", 10_000, pruned=True)
    log = session(worked(ran("oldest", 60_000), between, ran("newest", 60_000)))
    assert pruned(log, OPENCODE_BUFFER) == ["newest", "oldest"]


def test_the_buffer_version_protects_as_many_tokens() -> None:
    log = session(worked(ran("old", 50_000), ran("new", 40_000)))
    assert pruned(log, OPENCODE_BUFFER) == ["old"]
    log = session(worked(ran("old", 50_000), ran("new", 40_001)))
    assert pruned(log, OPENCODE_BUFFER) == ["new", "old"]


# --- figures are settings, and a plan is only a plan ----------------------------------------


def test_protect_minimum_turns_and_protected_tools_can_be_set() -> None:
    log = session(worked(ran("old", 300), ran("new", 200), ran("note", 900, tool="note")))
    rules = replace(OPENCODE_2025.prune, protect=250, minimum=100, protected_tools=("note",))
    assert [held.part for held in prune_plan(log, rules).prune] == ["old"]
    unlimited = replace(rules, protect=0, turns=0, protected_tools=())
    assert [held.part for held in prune_plan(log, unlimited).prune] == ["note", "new", "old"]


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_a_plan_changes_nothing(policy: Policy) -> None:
    log = session(worked(ran("old", 90_000), ran("new", 90_000)))
    before, changes = marked_messages(log), list(log.changes)
    plan = prune_plan(log, policy.prune)
    assert plan.ordinals == [2, 1]
    assert prune_plan(log, policy.prune) == plan
    assert marked_messages(log) == before
    assert (log.marks, log.changes) == ({}, changes)


@pytest.mark.parametrize("policy", OF_SPEC, ids=lambda p: p.name)
def test_pruning_keeps_the_output_and_adds_a_timestamp(policy: Policy) -> None:
    log = session(worked(TextPart(text="so"), ran("old", 90_000), ran("new", 40_000)))
    log.mark(prune_plan(log, policy.prune).ordinals, at=1_705_512_345_678)
    _, old, new = marked_messages(log)[1].parts
    assert old == replace(
        ran("old", 90_000),
        state=replace(
            ran("old", 90_000).state, time=Time(start=1, end=2, compacted=1_705_512_345_678)
        ),
    )
    assert new == ran("new", 40_000)
    assert log.entries[1].message.parts[1] == ran("old", 90_000)


def test_a_prune_is_taken_back_even_where_it_came_with_the_message() -> None:
    before = ran("before", 9, pruned=True)
    log = session(worked(before, ran("old", 9)), worked(ran("new", 9)))
    assert marked_messages(log) == tuple(entry.message for entry in log.entries.values())
    log.mark([2], at=7)
    log.unmark([1, 2])
    assert marked_messages(log)[1].parts == (ran("before", 9), ran("old", 9))
    assert marked_messages(log)[2] is log.entries[2].message


@SINCE_2025
def test_pruning_again_finds_nothing(policy: Policy) -> None:
    log = session(worked(ran("old", 90_000), ran("new", 40_000)))
    log.mark(prune_plan(log, policy.prune).ordinals, at=5)
    assert pruned(log, policy) == []


# --- not so yet -----------------------------------------------------------------------------


@SINCE_2025
def test_only_the_text_of_an_output_is_estimated(policy: Policy) -> None:
    shot = FilePart(mime="image/png", url="data:image/png;base64,AAAA")
    new = ran("new", 40_000)
    new = replace(new, state=replace(new.state, attachments=(shot,)))
    log = session(worked(ran("old", 30_000), new))
    assert pruned(log, policy) == ["old"]
