"""A log that starts in the middle or skips messages has the same view as the whole log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.analysis.plan import session_plan
from foldmark.compaction.fold import tokens_used
from foldmark.log.log import Log, LogCheckpoint
from foldmark.log.view import View, Viewer, view_start
from foldmark.model.messages import Completed, Message, Pending
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK, OPENCODE, PRESETS, Policy
from foldmark.tokens.counters import by_classes, counter
from foldmark.tokens.limits import Limit
from tests.support.messages import call, reply, user
from tests.support.session_strategies import sessions
from tests.support.stored_sessions import without_pivots

LIMIT = Limit(context=20_000, output=1_000)
policies = st.sampled_from(list(PRESETS.values()))


def second_half(whole: Log, policy: Policy, changed: int) -> Log:
    """The same log as a store loads it, from the start of its view."""
    start = view_start(whole, policy.view)
    checkpoint = LogCheckpoint(
        index=start,
        ordinal=whole.ordinal_at(start),
        memory=whole.requests.memory(start),
        pivots=tuple(pivot for pivot in whole.pivots if pivot.summary >= start),
        undone=frozenset(whole.undone),
        marks=whole.marks,
    )
    half = Log(whole.count, checkpoint=checkpoint)
    for entry in whole.entries.values():
        if entry.index >= start:
            half.append(entry.message, entry.sizes)
    half.forget_measured(max(changed, half.pivot.summary if half.pivot else 0))
    return half


def plan_of(viewer: Viewer) -> tuple[object, ...]:
    """The plan of a view in a form that can be compared."""
    plan = session_plan(viewer, LIMIT)
    fold = plan.fold
    assert fold is not None
    return (
        (plan.tokens, plan.overflow, plan.prune.tokens, plan.prune.prune),
        [decision.ordinal for decision in plan.prune.keep],
        (list(fold.history), fold.start, fold.tail_start, fold.replay, fold.previous),
    )


def bytes_of(view: View) -> tuple[bytes, tuple[int, ...], int]:
    return encode(view.messages), view.indexes, view.tokens


@given(sessions(), policies, st.integers(0, 2))
def test_the_second_half_has_the_view_of_the_whole(
    messages: list[Message], policy: Policy, undone: int
) -> None:
    whole = Log(counter(policy.estimate), messages)
    has_changed = bool(undone and whole.pivots)
    whole = without_pivots(whole, undone)
    half = second_half(whole, policy, changed=len(whole) if has_changed else 0)
    viewers = [Viewer(log, policy, usable=18_000) for log in (whole, half)]
    assert bytes_of(viewers[0].view()) == bytes_of(viewers[1].view())
    assert plan_of(viewers[0]) == plan_of(viewers[1])
    ordinals = session_plan(viewers[0], LIMIT).prune.ordinals
    for log in (whole, half):
        log.mark(ordinals, at=7)
        log.append(user("Always go on.", name="more"))
    assert bytes_of(viewers[0].view()) == bytes_of(viewers[1].view())
    assert len(whole) == len(half)
    assert whole.parts == half.parts


@given(sessions(), policies)
def test_an_undone_pivot_is_not_shown(messages: list[Message], policy: Policy) -> None:
    log = Log(counter(policy.estimate), messages)
    pivot = log.pivot
    if pivot is None:
        return
    indexes = Viewer(without_pivots(log), policy).view().indexes
    assert not {pivot.marker, pivot.summary} & set(indexes)


def ask(number: int, text: str = "Go on") -> Message:
    return user(text, name=f"ask_{number}")


def called(number: int, *states: Pending | Completed) -> Message:
    calls = (call(state, f"call_{number}_{offset}") for offset, state in enumerate(states))
    return reply(*calls, name=f"did_{number}", finish="tool-calls")


def read(name: str, output: str = "") -> Completed:
    return Completed(input={"filePath": name}, output=output or f"content of {name}\n" * 200)


@pytest.mark.parametrize("policy", [FOLDMARK, OPENCODE])
def test_skipped_messages_are_not_shown_and_handles_stay(policy: Policy) -> None:
    log = Log(by_classes, [ask(0), called(1, read("a.py"), read("b.py"))])
    log.skip(7, 20)
    log.append(called(7, read("c.py", "the third")))
    log.append(ask(8))
    assert Viewer(log, policy).view().indexes == (0, 1, 7, 8)
    ordinals = (1, 2, 3, 0x13, 0x14, 0x15)
    assert [ordinal for ordinal in ordinals if log.part_at(ordinal)] == [1, 2, 0x14, 0x15]
    assert log.part_at(0x14) == (log.entries[7], 0)
    assert (log.ordinal_at(4), log.ordinal_at(8), log.ordinal_at(9)) == (20, 21, 22)
    with pytest.raises(ValueError, match="before the end"):
        log.skip(3, 30)


def test_a_late_result_gives_the_same_plan_and_view() -> None:
    early, late = called(1, Pending(input={}), read("a.py")), ask(2, "Never mind")
    done = called(1, read("b.py", "b\n" * 30_000), read("a.py"))
    after = [late, called(3, read("a.py")), ask(4), ask(5)]
    log = Log(by_classes, [ask(0), early, *after])
    viewer = Viewer(log, FOLDMARK, usable=18_000)
    session_plan(viewer, LIMIT)
    log.record_result(1, done)
    fresh = Log(by_classes, [ask(0), done, *after])
    other = Viewer(fresh, FOLDMARK, usable=18_000)
    assert bytes_of(viewer.view()) == bytes_of(other.view())
    assert plan_of(viewer) == plan_of(other)
    assert list(log.calls) == list(fresh.calls)
    with pytest.raises(ValueError, match="already"):
        log.record_result(1, done)
    with pytest.raises(ValueError, match="not a tool call"):
        log.record_result(0, ask(0))


def test_usage_measured_before_a_change_is_discarded() -> None:
    log = Log(by_classes, [ask(0), called(1, read("a.py"))])
    viewer = Viewer(log, FOLDMARK)
    log.measured = 1
    log.forget_measured(before=1)
    assert log.measured == 1
    log.forget_measured(before=2)
    assert log.measured is None
    assert tokens_used(viewer) == viewer.tokens
