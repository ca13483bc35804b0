"""A log that begins in the middle, and one with places left out, show what the whole one shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldmark.analysis.plan import session_plan
from foldmark.compaction.fold import tokens_used
from foldmark.log.log import Log, LogCheckpoint
from foldmark.log.view import View, Viewer, view_start
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    Pending,
    TextPart,
    ToolPart,
    UserInfo,
)
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK, OPENCODE, PRESETS, Policy
from foldmark.tokens.counters import by_classes, counter
from foldmark.tokens.limits import Limit
from tests.support.session_strategies import sessions
from tests.support.stored_sessions import without_pivots

LIMIT = Limit(context=20_000, output=1_000)
policies = st.sampled_from(list(PRESETS.values()))


def second_half(whole: Log, policy: Policy, settled: int) -> Log:
    """The same log as a store would load it: from where its view begins."""
    start = view_start(whole, policy.view)
    past = LogCheckpoint(
        index=start,
        ordinal=whole.ordinal_at(start),
        memory=whole.requests.memory(start),
        pivots=tuple(pivot for pivot in whole.pivots if pivot.summary >= start),
        undone=frozenset(whole.undone),
        marks=whole.marks,
    )
    half = Log(whole.count, checkpoint=past)
    for entry in whole.entries.values():
        if entry.index >= start:
            half.append(entry.message, entry.sizes)
    half.forget_measured(max(settled, half.pivot.summary if half.pivot else 0))
    return half


def told_plan(viewer: Viewer) -> tuple[object, ...]:
    """A plan as it can be compared."""
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
def test_the_second_half_shows_what_the_whole_shows(
    messages: list[Message], policy: Policy, undone: int
) -> None:
    whole = Log(counter(policy.estimate), messages)
    changed = whole.pivots[-undone:] if undone else []
    whole = without_pivots(whole, undone)
    half = second_half(whole, policy, settled=len(whole) if changed else 0)
    viewers = [Viewer(log, policy, usable=18_000) for log in (whole, half)]
    assert bytes_of(viewers[0].view()) == bytes_of(viewers[1].view())
    assert told_plan(viewers[0]) == told_plan(viewers[1])
    ordinals = session_plan(viewers[0], LIMIT).prune.ordinals
    for log in (whole, half):
        log.mark(ordinals, at=7)
        log.append(Message(info=UserInfo(id="more"), parts=(TextPart(text="Always go on."),)))
    assert bytes_of(viewers[0].view()) == bytes_of(viewers[1].view())
    assert len(whole) == len(half)
    assert whole.parts == half.parts


@given(sessions(), policies)
def test_a_pivot_taken_back_leaves_no_trace(messages: list[Message], policy: Policy) -> None:
    """Marker and summary of a pivot that was taken back are shown under no policy."""
    log = Log(counter(policy.estimate), messages)
    pivot = log.pivot
    if pivot is None:
        return
    places = Viewer(without_pivots(log), policy).view().indexes
    assert pivot.marker not in places
    assert pivot.summary not in places


def asked(number: int, text: str = "Go on") -> Message:
    return Message(info=UserInfo(id=f"ask_{number}"), parts=(TextPart(text=text),))


def called(number: int, *states: Pending | Completed) -> Message:
    parts = [
        ToolPart(tool="read", call_id=f"call_{number}_{place}", state=state)
        for place, state in enumerate(states)
    ]
    return Message(info=AssistantInfo(id=f"did_{number}", finish="tool-calls"), parts=tuple(parts))


def read(name: str, output: str = "") -> Completed:
    return Completed(input={"filePath": name}, output=output or f"content of {name}\n" * 200)


@pytest.mark.parametrize("policy", [FOLDMARK, OPENCODE])
def test_places_left_out_are_not_shown_and_handles_stay(policy: Policy) -> None:
    log = Log(by_classes, [asked(0), called(1, read("a.py"), read("b.py"))])
    log.skip(7, 20)
    log.append(called(7, read("c.py", "the third")))
    log.append(asked(8))
    assert Viewer(log, policy).view().indexes == (0, 1, 7, 8)
    places = (1, 2, 3, 0x13, 0x14, 0x15)
    assert [ordinal for ordinal in places if log.part_at(ordinal)] == [1, 2, 0x14, 0x15]
    assert log.part_at(0x14) == (log.entries[7], 0)
    assert (log.ordinal_at(4), log.ordinal_at(8), log.ordinal_at(9)) == (20, 21, 22)
    with pytest.raises(ValueError, match="before the end"):
        log.skip(3, 30)


def test_a_result_may_come_after_a_newer_message() -> None:
    """As if it had been there from the start: plans, sizes and the view are the same."""
    early, late = called(1, Pending(input={}), read("a.py")), asked(2, "Never mind")
    done = called(1, read("b.py", "b\n" * 30_000), read("a.py"))
    after = [late, called(3, read("a.py")), asked(4), asked(5)]
    log = Log(by_classes, [asked(0), early, *after])
    viewer = Viewer(log, FOLDMARK, usable=18_000)
    session_plan(viewer, LIMIT)
    log.record_result(1, done)
    fresh = Log(by_classes, [asked(0), done, *after])
    other = Viewer(fresh, FOLDMARK, usable=18_000)
    assert bytes_of(viewer.view()) == bytes_of(other.view())
    assert told_plan(viewer) == told_plan(other)
    assert list(log.calls) == list(fresh.calls)
    with pytest.raises(ValueError, match="already"):
        log.record_result(1, done)
    with pytest.raises(ValueError, match="not a tool call"):
        log.record_result(0, asked(0))


def test_what_was_measured_before_a_change_tells_nothing_after_it() -> None:
    log = Log(by_classes, [asked(0), called(1, read("a.py"))])
    viewer = Viewer(log, FOLDMARK)
    log.measured = 1
    log.forget_measured(before=1)
    assert log.measured == 1
    log.forget_measured(before=2)
    assert log.measured is None
    assert tokens_used(viewer) == viewer.tokens
