"""The view of sessions with markers, pivots and tails (spec 000, 001)."""

import pytest

from foldmark.log.log import Log
from foldmark.log.view import BEGINNING, CONTINUE, NO_REPLY, NOTE_TOKENS, Viewer
from foldmark.model.messages import CompactionPart, Message, ReasoningPart, TextPart, UserInfo
from foldmark.policy import FOLDMARK, OPENCODE, OPENCODE_2025, PRESETS, Policy
from foldmark.tokens.counters import counter
from tests.support.messages import marker, ran, reply, said, summary, user
from tests.support.view_lines import lines_of, view_of

ASKED = "What did we do so far?"
THOUGHT = reply(ReasoningPart(text="hm"))
FAILED = said("", error={"name": "APIError"})


def last_lines(lines: list[str]) -> list[str]:
    return [text.split("\n")[-1] for text in lines]


# --- markers and summaries ------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "foldmark"])
def test_a_complete_marker_shows_its_question_and_hides_all_before_it(name: str) -> None:
    pivot = (user("look"), said("I looked."), marker(), summary("All is well."))
    lines = view_of(*pivot, user("thanks"), said("welcome"), policy=PRESETS[name])
    assert lines[:2] == [f"user: {ASKED}", "assistant: All is well."]
    assert lines[2:] == ["user: thanks", "assistant: welcome"]


INCOMPLETE = {
    "queued": [],
    "failed": [summary("All is", error={"name": "APIError"})],
    "half written": [summary("All is", finish="")],
    "of another marker": [summary("All is", of="other")],
}


@pytest.mark.parametrize("rest", INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_marker_without_a_complete_summary_is_never_shown(rest: list[Message]) -> None:
    turns = (user("look"), said("I looked."), marker(), *rest)
    assert view_of(*turns, user("thanks")) == ["user: look", "assistant: I looked.", "user: thanks"]
    lines = view_of(*turns, marker("m2"), summary("All is well.", "m2"), user("thanks"))
    assert last_lines(lines) == [ASKED, "assistant: All is well.", "user: thanks"]


def test_a_summary_that_becomes_complete_makes_the_pivot() -> None:
    log = Log(counter(FOLDMARK.estimate), [user("look"), said("I looked."), marker()])
    viewer = Viewer(log, FOLDMARK)
    log.append(summary("All is", finish=""))
    assert lines_of(viewer) == ["user: look", "assistant: I looked."]
    log.append(summary("All is well."))
    assert lines_of(viewer)[-1] == "assistant: All is well."
    assert lines_of(viewer) == lines_of(Viewer(log, FOLDMARK))


@pytest.mark.parametrize("policy", PRESETS.values(), ids=lambda p: p.name)
def test_prompts_between_a_marker_and_its_summary_are_shown(policy: Policy) -> None:
    messages = (user("look"), said("ok"), marker(), user("wait, also this"), summary("All."))
    assert "user: wait, also this" in view_of(*messages, policy=policy)


def test_a_failed_summary_is_no_answer_between_two_requests() -> None:
    failed = summary("All is", error={"name": "APIError"})
    assert view_of(user("one"), marker(), failed, user("two")) == ["user: one", "user: two"]


# --- tails ----------------------------------------------------------------------------------

TURNS = (user("one"), said("1"), user("two", name="u2"), said("2"))


@pytest.mark.parametrize("policy", [OPENCODE, FOLDMARK], ids=lambda p: p.name)
def test_the_order_is_marker_summary_tail_and_the_rest(policy: Policy) -> None:
    rest = (user("three"), said("3"))
    lines = view_of(*TURNS, marker(tail_start_id="u2"), summary("All."), *rest, policy=policy)
    replies = [line.removeprefix("user: ") for line in last_lines(lines)]
    assert replies == [ASKED, "assistant: All.", "two", "assistant: 2", "three", "assistant: 3"]


@pytest.mark.parametrize("tail", ["gone", "m", "later"])
def test_a_missing_tail_brings_everything_back_in_opencode_only(tail: str) -> None:
    messages = (*TURNS, marker(tail_start_id=tail), summary("All."), user("on", name="later"))
    assert "assistant: 1" in view_of(*messages, policy=OPENCODE)
    lines = view_of(*messages)
    assert lines[1:] == ["assistant: All.", "user: on"]
    assert "assistant: 1" not in lines


def test_earlier_pivots_in_a_tail_are_hidden_by_foldmark_and_shown_by_opencode() -> None:
    old = (marker("m1"), summary("Earlier.", "m1"), user("three"))
    messages = (*TURNS, *old, marker("m2", tail_start_id="u2"), summary("All.", "m2"))
    lines = last_lines(view_of(*messages))
    assert lines[:2] == [ASKED, "assistant: All."]
    assert lines[2:] == ["user: two", "assistant: 2", "user: three"]
    assert "assistant: Earlier." in view_of(*messages, policy=OPENCODE)


def test_the_latest_pivot_is_shown() -> None:
    first = (*TURNS, marker("m1"), summary("First.", "m1"))
    second = (user("three"), said("3"), marker("m2"), summary("Second.", "m2"))
    assert view_of(*first, *second, policy=OPENCODE_2025) == [
        f"user: {ASKED}",
        "assistant: Second.",
    ]


# --- corrections of what providers refuse, by foldmark alone --------------------------------


def test_a_repeated_call_id_is_renamed() -> None:
    twice = (reply(ran("1"), ran("2")), reply(ran("3", "c2"), ran("4")))
    lines = view_of(user("look"), *twice)
    calls = [text.split()[1] for text in lines if text.startswith("call")]
    results = [text.split()[1].rstrip(":") for text in lines if text.startswith("text")]
    assert calls == results == ["c1", "c1_h2", "c2", "c1_h4"]
    assert "call c1_h2" not in view_of(user("look"), *twice, policy=OPENCODE)


def test_a_call_without_an_id_gets_one() -> None:
    assert view_of(user("look"), reply(ran("1", "")))[1:] == ["call call_h1", "text call_h1: 1"]


def test_consecutive_user_messages_are_merged() -> None:
    log = Log(counter(FOLDMARK.estimate), [user("one"), user("two")])
    assert len(Viewer(log, FOLDMARK).view().messages) == 1
    assert len(Viewer(log, OPENCODE).view().messages) == 2


def test_notes_separate_two_messages_of_the_same_role() -> None:
    assert view_of(user("one"), FAILED, user("two"))[1] == f"assistant: {NO_REPLY}"
    assert view_of(user("one"), said("1"), said("2"))[2] == f"user: {CONTINUE}"
    assert view_of(said("hello"), user("one"))[0] == f"user: {BEGINNING}"
    assert view_of(user("one"), FAILED, user("two"), policy=OPENCODE) == ["user: one", "user: two"]
    assert view_of(said("1"), said("2"), policy=OPENCODE) == ["assistant: 1", "assistant: 2"]


@pytest.mark.parametrize(
    ("messages", "notes"),
    [
        ((user("one"), said("1")), 0),
        ((user("one"), FAILED, user("two")), 1),
        ((user("one"), said("1"), said("2"), said("3")), 2),
        ((said("1"), user("one")), 1),
        ((user("one"), THOUGHT, user("two")), 1),
    ],
)
def test_notes_are_counted(messages: tuple[Message, ...], notes: int) -> None:
    viewer = Viewer(Log(counter(FOLDMARK.estimate), messages), FOLDMARK)
    cells = sum(cell.tokens for cell in viewer.cells.values())
    assert viewer.view().tokens == cells + notes * NOTE_TOKENS


def test_tokens_after_an_index_are_counted() -> None:
    log = Log(counter(FOLDMARK.estimate), [*TURNS, marker(tail_start_id="u2"), summary("All.")])
    viewer = Viewer(log, FOLDMARK)
    assert viewer.tokens_after(5) == 0
    log.append(user("three"))
    log.append(said("3"))
    cells = viewer.cells
    assert viewer.tokens_after(5) == cells[6].tokens + cells[7].tokens > 0
    assert viewer.tokens_after(6) == cells[7].tokens
    assert viewer.tokens_after(7) == 0


def test_reasoning_alone_joins_the_next_reply_or_is_replaced_by_a_note() -> None:
    assert view_of(user("one"), THOUGHT, said("1"))[1:] == ["thought: hm", "assistant: 1"]
    assert view_of(user("one"), THOUGHT, user("two"))[1:] == [f"assistant: {NO_REPLY}", "user: two"]
    assert view_of(user("one"), THOUGHT) == ["user: one"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_blank_text_is_not_shown(blank: str) -> None:
    lines = view_of(user("one"), reply(TextPart(text=blank), ran("1")), user(blank))
    assert lines == ["user: one", "call c1", "text c1: 1"]


def test_text_beside_a_marker_is_shown() -> None:
    both = Message(info=UserInfo(id="m"), parts=(CompactionPart(), TextPart(text="And this.")))
    assert view_of(*TURNS, both)[-1] == "user: And this."
