"""Where a session may be cut: each provider's demand, and all of them together."""

from typing import Any

import pytest

from foldmark.compaction.tail import DEMANDS, batches, pairs, roles, safe_cuts, thinking
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    Message,
    Pending,
    ReasoningPart,
    Running,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
)
from foldmark.policy import FOLDMARK

ASKED = Message(info=UserInfo(id="u"), parts=(TextPart(text="go"),))


def agent(*parts: AnyPart) -> Message:
    return Message(info=AssistantInfo(id="a"), parts=parts)


def call(state: Any) -> ToolPart:
    return ToolPart(tool="bash", call_id="c", state=state)


def ran(start: int, end: int) -> ToolPart:
    """A call that ran for so long."""
    return call(Completed(input={}, output="ok", time=Time(start=start, end=end)))


SAID = agent(TextPart(text="done"))
DONE = agent(ran(1, 2))
OPEN = agent(call(Running(input={}, time=Time(start=1))))
THOUGHT = agent(StepStartPart(), ReasoningPart(text="hm"), StepFinishPart())


# --- pairs ----------------------------------------------------------------------------------


def test_finished_calls_may_be_cut_apart() -> None:
    failed = agent(call(Failed(input={}, error="no")))
    assert pairs([ASKED, DONE, failed, SAID]) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("state", [Running(input={}), Pending(input={}, raw="{")])
def test_nothing_is_cut_after_a_call_that_waits_for_its_result(state: Running | Pending) -> None:
    assert pairs([ASKED, DONE, agent(call(state)), SAID]) == {0, 1, 2}


def test_the_oldest_open_call_of_the_turn_decides() -> None:
    assert pairs([ASKED, DONE, OPEN, DONE, OPEN]) == {0, 1, 2}


def test_one_open_call_beside_a_finished_one_is_enough() -> None:
    both = agent(ran(1, 2), call(Running(input={})))
    assert pairs([ASKED, both]) == {0, 1}


def test_calls_left_open_before_a_newer_request_were_interrupted() -> None:
    assert pairs([ASKED, OPEN, ASKED, SAID]) == {0, 1, 2, 3, 4}
    assert pairs([ASKED, OPEN, ASKED, OPEN]) == {0, 1, 2, 3}


# --- batches --------------------------------------------------------------------------------


def test_calls_one_after_the_other_may_be_cut_apart() -> None:
    assert batches([ASKED, agent(ran(1, 2)), agent(ran(2, 3)), agent(ran(5, 6))]) == {0, 1, 2, 3, 4}


def test_calls_that_ran_at_the_same_time_stay_together() -> None:
    assert batches([ASKED, agent(ran(1, 9)), agent(ran(2, 5)), agent(ran(9, 10))]) == {0, 1, 3, 4}


def test_a_long_call_holds_all_that_ran_beside_it() -> None:
    long = [agent(ran(1, 100)), agent(ran(2, 3)), agent(ran(5, 6)), agent(ran(99, 120))]
    assert batches([ASKED, *long, agent(ran(110, 130)), agent(ran(130, 140))]) == {0, 1, 6, 7}


def test_a_batch_ends_with_its_turn() -> None:
    assert batches([ASKED, agent(ran(1, 100)), ASKED, agent(ran(50, 60))]) == {0, 1, 2, 3, 4}


def test_calls_in_one_message_are_one_message() -> None:
    assert batches([ASKED, agent(ran(1, 9), ran(2, 8)), SAID]) == {0, 1, 2, 3}


def test_a_call_without_times_is_no_batch() -> None:
    timeless = agent(call(Completed(input={}, output="ok")))
    assert batches([ASKED, agent(ran(1, 9)), timeless, timeless]) == {0, 1, 2, 3, 4}


# --- thinking -------------------------------------------------------------------------------


def test_thoughts_alone_stay_with_the_answer_after_them() -> None:
    assert thinking([ASKED, THOUGHT, SAID, DONE]) == {0, 1, 3, 4}


def test_several_thoughts_in_a_row_stay_together() -> None:
    assert thinking([ASKED, THOUGHT, THOUGHT, DONE]) == {0, 1, 4}


def test_thoughts_with_an_answer_or_a_call_beside_them_stand_alone() -> None:
    for part in (TextPart(text="so"), ran(1, 2)):
        assert thinking([ASKED, agent(ReasoningPart(text="hm"), part), SAID]) == {0, 1, 2, 3}


def test_blank_text_beside_thoughts_is_no_answer() -> None:
    blank = agent(ReasoningPart(text="hm"), TextPart(text=" \n"))
    assert thinking([ASKED, blank, SAID]) == {0, 1, 3}


def test_thoughts_before_a_newer_request_or_at_the_end_hold_nothing() -> None:
    assert thinking([ASKED, THOUGHT, ASKED]) == {0, 1, 2, 3}
    assert thinking([ASKED, THOUGHT]) == {0, 1, 2}


def test_a_message_of_nothing_thinks_nothing() -> None:
    assert thinking([ASKED, agent(), SAID]) == {0, 1, 2, 3}


# --- roles ----------------------------------------------------------------------------------


def test_a_request_begins_with_the_user_or_is_not_there() -> None:
    assert roles([ASKED, SAID, DONE, ASKED, SAID]) == {0, 3, 5}
    assert roles([SAID, DONE]) == {2}


# --- together -------------------------------------------------------------------------------

TURNS = [
    *(ASKED, agent(ran(1, 9)), agent(ran(2, 3)), THOUGHT, SAID),
    *(ASKED, THOUGHT, DONE, OPEN, SAID),
]


def test_each_demand_has_its_own_cuts() -> None:
    everywhere = set(range(11))
    assert pairs(TURNS) == everywhere - {9, 10}
    assert batches(TURNS) == everywhere - {2, 8}  # the open call began before the one before it
    assert thinking(TURNS) == everywhere - {4, 7}
    assert roles(TURNS) == {0, 5, 10}


def test_a_cut_is_safe_where_all_demands_agree() -> None:
    assert safe_cuts(TURNS, ("pairs", "batches", "thinking")) == {0, 1, 3, 5, 6}
    assert safe_cuts(TURNS, DEMANDS) == {0, 5}
    assert safe_cuts(TURNS, ("thinking",)) == thinking(TURNS)


def test_without_demands_every_cut_is_safe() -> None:
    assert safe_cuts(TURNS, ()) == set(range(11))


def test_our_own_policy_demands_pairs_batches_and_thinking() -> None:
    assert safe_cuts(TURNS, FOLDMARK.tail.cuts) == {0, 1, 3, 5, 6}


@pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS)
def test_an_empty_session_may_be_cut_at_its_only_place(demand: Any) -> None:
    assert demand([]) == {0}


# --- not so yet -----------------------------------------------------------------------------


def test_a_message_between_two_calls_of_a_batch_does_not_part_them() -> None:
    assert batches([ASKED, agent(ran(1, 9)), SAID, agent(ran(2, 5))]) == {0, 1, 4}
