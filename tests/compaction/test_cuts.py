"""Safe cuts of a session: the demand of each provider, and all demands together."""

from typing import Any

import pytest

from foldmark.compaction.tail import DEMANDS, batches, pairs, roles, safe_cuts, thinking
from foldmark.model.messages import (
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
)
from foldmark.policy import FOLDMARK
from tests.support.messages import call, reply, said, user


def timed(*spans: tuple[int, int]) -> Message:
    """A reply whose calls ran at these times."""
    times = (Time(start=start, end=end) for start, end in spans)
    return reply(*(call(Completed(input={}, output="ok", time=time)) for time in times))


ASK, SAID, DONE, EMPTY = user(), said(), timed((1, 2)), reply()
OPEN = reply(call(Running(input={}, time=Time(start=1))))
REQUESTED = reply(call(Pending(input={}, raw="{")))
FAILED = reply(call(Failed(input={}, error="no")))
BOTH = reply(*DONE.parts, *OPEN.parts)
LONG, LATE = timed((1, 9)), timed((2, 5))
UNTIMED = reply(call(Completed(input={}, output="ok")))
THOUGHT = reply(StepStartPart(), ReasoningPart(text="hm"), StepFinishPart())
BLANK = reply(ReasoningPart(text="hm"), TextPart(text=" \n"))
ANSWERED = reply(ReasoningPart(text="hm"), TextPart(text="so"))
CALLED = reply(ReasoningPart(text="hm"), *DONE.parts)
HOUR = [timed((1, 100)), timed((2, 3)), timed((5, 6)), timed((99, 120))]

CUTS: dict[str, tuple[Any, list[Message], set[int]]] = {
    "finished calls may be separated": (pairs, [ASK, DONE, FAILED, SAID], {0, 1, 2, 3, 4}),
    "nothing is cut after a running call": (pairs, [ASK, DONE, OPEN, SAID], {0, 1, 2}),
    "nothing is cut after a requested call": (pairs, [ASK, DONE, REQUESTED, SAID], {0, 1, 2}),
    "the oldest open call of a turn decides": (pairs, [ASK, DONE, OPEN, DONE, OPEN], {0, 1, 2}),
    "an open call beside a finished one": (pairs, [ASK, BOTH], {0, 1}),
    "calls before a newer request are closed": (pairs, [ASK, OPEN, ASK, SAID], {0, 1, 2, 3, 4}),
    "open calls of the last turn": (pairs, [ASK, OPEN, ASK, OPEN], {0, 1, 2, 3}),
    "sequential calls may be separated": (
        batches,
        [ASK, DONE, timed((2, 3)), timed((5, 6))],
        {0, 1, 2, 3, 4},
    ),
    "parallel calls stay together": (batches, [ASK, LONG, LATE, timed((9, 10))], {0, 1, 3, 4}),
    "a long call keeps all parallel ones": (
        batches,
        [ASK, *HOUR, timed((110, 130)), timed((130, 140))],
        {0, 1, 6, 7},
    ),
    "a batch ends with its turn": (batches, [ASK, HOUR[0], ASK, timed((50, 60))], {0, 1, 2, 3, 4}),
    "calls of one message": (batches, [ASK, timed((1, 9), (2, 8)), SAID], {0, 1, 2, 3}),
    "calls without times are no batch": (batches, [ASK, LONG, UNTIMED, UNTIMED], {0, 1, 2, 3, 4}),
    "a message between parallel calls": (batches, [ASK, LONG, SAID, LATE], {0, 1, 4}),
    "reasoning stays with the next reply": (thinking, [ASK, THOUGHT, SAID, DONE], {0, 1, 3, 4}),
    "several reasonings stay together": (thinking, [ASK, THOUGHT, THOUGHT, DONE], {0, 1, 4}),
    "reasoning with an answer": (thinking, [ASK, ANSWERED, SAID], {0, 1, 2, 3}),
    "reasoning with a call": (thinking, [ASK, CALLED, SAID], {0, 1, 2, 3}),
    "reasoning with blank text": (thinking, [ASK, BLANK, SAID], {0, 1, 3}),
    "reasoning before a newer request": (thinking, [ASK, THOUGHT, ASK], {0, 1, 2, 3}),
    "reasoning at the end": (thinking, [ASK, THOUGHT], {0, 1, 2}),
    "an empty message has no reasoning": (thinking, [ASK, EMPTY, SAID], {0, 1, 2, 3}),
    "a request starts with the user": (roles, [ASK, SAID, DONE, ASK, SAID], {0, 3, 5}),
    "without a user message": (roles, [SAID, DONE], {2}),
}


@pytest.mark.parametrize(("demand", "messages", "cuts"), CUTS.values(), ids=CUTS)
def test_each_demand_allows_its_own_cuts(
    demand: Any, messages: list[Message], cuts: set[int]
) -> None:
    assert demand(messages) == cuts


TURNS = [ASK, LONG, timed((2, 3)), THOUGHT, SAID, ASK, THOUGHT, DONE, OPEN, SAID]


def test_each_demand_has_its_own_cuts_in_a_session() -> None:
    everywhere = set(range(11))
    assert pairs(TURNS) == everywhere - {9, 10}
    assert batches(TURNS) == everywhere - {2, 8}  # the open call started before the previous one
    assert thinking(TURNS) == everywhere - {4, 7}
    assert roles(TURNS) == {0, 5, 10}


def test_a_cut_is_safe_if_all_demands_allow_it() -> None:
    assert safe_cuts(TURNS, ("pairs", "batches", "thinking")) == {0, 1, 3, 5, 6}
    assert safe_cuts(TURNS, FOLDMARK.tail.cuts) == {0, 1, 3, 5, 6}
    assert safe_cuts(TURNS, DEMANDS) == {0, 5}
    assert safe_cuts(TURNS, ("thinking",)) == thinking(TURNS)
    assert safe_cuts(TURNS, ()) == set(range(11))


@pytest.mark.parametrize("demand", DEMANDS.values(), ids=DEMANDS)
def test_an_empty_session_may_be_cut_at_its_only_position(demand: Any) -> None:
    assert demand([]) == {0}
