"""What a pivot keeps verbatim: budgets, whole turns, splits, replays; and its two messages."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from foldmark.compaction.fold import session_fold
from foldmark.compaction.pivot import MessageIds, marker_message, summary_message
from foldmark.compaction.tail import (
    Fold,
    replay_index,
    suffix_measure,
    tail_budget,
    tail_start,
    turn_starts,
)
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import (
    AssistantInfo,
    Cache,
    CompactionPart,
    Message,
    ModelRef,
    Path,
    ReasoningPart,
    Running,
    TextPart,
    Tokens,
    ToolPart,
    UserInfo,
)
from foldmark.model.values import to_plain
from foldmark.policy import (
    CODELET,
    CODELET_USABLE,
    FOLDMARK,
    OPENCODE,
    OPENCODE_2025,
    Policy,
    TailRules,
)
from foldmark.policy import OPENCODE_BUFFER as BUFFER
from foldmark.tokens.counters import counter

PLAIN = TailRules()
WITH_TAIL = pytest.mark.parametrize("policy", [OPENCODE, BUFFER, FOLDMARK], ids=lambda p: p.name)


def user(name: str = "u", text: str = "go") -> Message:
    return Message(info=UserInfo(id=name), parts=(TextPart(text=text),))


def said(name: str = "a", text: str = "ok") -> Message:
    return Message(info=AssistantInfo(id=name, finish="stop"), parts=(TextPart(text=text),))


def thought() -> Message:
    return Message(info=AssistantInfo(id="t"), parts=(ReasoningPart(text="hm"),))


def running() -> Message:
    part = ToolPart(tool="bash", call_id="c", state=Running(input={}))
    return Message(info=AssistantInfo(id="r"), parts=(part,))


def marker(name: str = "m", tail: str | None = None) -> Message:
    part = CompactionPart(auto=True, tail_start_id=tail or UNSET)
    return Message(info=UserInfo(id=name), parts=(part,))


def summary(of: str = "m", **info: Any) -> Message:
    made = AssistantInfo(id=f"s-{of}", parent_id=of, summary=True, finish="stop", **info)
    return Message(info=made, parts=(TextPart(text="so far"),))


def start(sizes: list[int], turns: str, budget: int, rules: TailRules = PLAIN) -> int | None:
    """Where the tail begins among messages of these sizes; `u` is the user, `a` the agent."""
    messages = [user() if role == "u" else said() for role in turns]
    measure = suffix_measure(lambda index: sizes[index], len(messages))
    return tail_start(messages, rules, budget, measure)


def folded(*messages: Message, policy: Policy, room: int = 0, overflow: bool = False) -> Fold:
    log = Log(counter(policy.estimate), messages)
    return session_fold(Viewer(log, policy, usable=room), room, overflow=overflow)


# --- the budget -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usable", "budget"),
    [
        (0, 2_000),
        (7_999, 2_000),
        (8_000, 2_000),
        (8_004, 2_001),
        (40_000, 10_000),
        (60_000, 15_000),
        (60_004, 15_000),
        (10**6, 15_000),
    ],
)
def test_the_budget_is_a_quarter_of_usable_within_its_bounds(usable: int, budget: int) -> None:
    assert tail_budget(PLAIN, usable) == budget


def test_the_users_own_figure_is_the_budget() -> None:
    assert tail_budget(OPENCODE.adjusted(tail_tokens=123).tail, 10**6) == 123
    assert tail_budget(OPENCODE.adjusted(tail_tokens=99_999).tail, 0) == 99_999


# --- whole turns, and the split of one ------------------------------------------------------


def test_whole_turns_are_kept_newest_first() -> None:
    sizes = [10, 10, 10, 10, 10, 10]
    assert start(sizes, "uauaua", 20) == 4
    assert start(sizes, "uauaua", 40) == 2
    assert start(sizes, "uauaua", 49) == 2


def test_the_first_turn_that_does_not_fit_is_split_at_the_earliest_place_that_fits() -> None:
    sizes = [10, 10, 10, 10, 10, 10, 10]
    assert start(sizes, "uaaauaa", 30) == 4
    assert start(sizes, "uaaauaa", 40) == 3
    assert start(sizes, "uaaauaa", 59) == 2
    assert start(sizes, "uaaauaa", 25) == 5


def test_a_turn_whose_last_message_does_not_fit_is_left_out() -> None:
    assert start([10, 50, 10, 10], "uaua", 60) == 2
    assert start([10, 10, 10, 50], "uaua", 40) is None


def test_an_older_turn_that_would_fit_is_not_kept_across_one_that_does_not() -> None:
    assert start([1, 1, 1, 90, 1, 1], "uauaua", 10) == 4


def test_a_tail_of_everything_is_no_tail() -> None:
    assert start([10, 10, 10, 10], "uaua", 40) is None
    assert start([10, 10, 10, 10], "uaua", 10**6) is None
    assert start([10, 10, 10, 10], "uaua", 39) == 1


def test_what_comes_before_the_first_request_belongs_to_no_turn() -> None:
    assert start([10, 10, 10], "aua", 10**6) == 1
    assert start([10, 10, 10], "aaa", 10**6) is None


def test_an_empty_session_has_no_tail() -> None:
    assert start([], "", 10**6) is None


@pytest.mark.parametrize("rules", [TailRules(on=False), TailRules(on=False, tokens=50)])
def test_where_tails_are_off_nothing_is_kept(rules: TailRules) -> None:
    assert start([10, 10, 10, 10], "uaua", 30, rules) is None


def test_where_the_budget_is_nothing_nothing_is_kept() -> None:
    assert start([10, 10, 10, 10], "uaua", tail_budget(TailRules(tokens=0), 10**6)) is None


def test_a_budget_below_nothing_keeps_nothing_either() -> None:
    assert start([0, 10, 0, 0], "uaua", -1) is None


# --- our own: something stays, and cuts are safe --------------------------------------------

NEWEST = replace(PLAIN, keep_newest=True)


def test_where_everything_fits_the_newer_half_stays() -> None:
    sizes = [10, 10, 10, 10, 10, 10, 10, 10]
    assert start(sizes, "uauauaua", 10**6, NEWEST) == 4
    assert start(sizes, "uauauaua", 10**6, PLAIN) is None
    assert start(sizes, "uaaaaaaa", 10**6, NEWEST) == 4
    assert start([10, 10], "ua", 10**6, NEWEST) == 1
    assert start([10], "u", 10**6, NEWEST) is None


def test_where_not_everything_fits_the_newer_half_has_no_say() -> None:
    assert start([10, 10, 10, 10, 10, 10], "uauaua", 59, NEWEST) == 1
    assert start([10, 10, 10, 10, 10, 10], "uauaua", 20, NEWEST) == 4


def test_a_turn_is_split_only_where_it_is_safe() -> None:
    messages = [user(), said(), thought(), said(), said()]
    measure = suffix_measure(lambda _: 10, 5)
    assert tail_start(messages, replace(PLAIN, cuts=("thinking",)), 20, measure) == 4
    assert tail_start(messages, PLAIN, 20, measure) == 3
    assert tail_start(messages, replace(PLAIN, cuts=("roles",)), 20, measure) is None


def test_an_unfinished_call_is_not_cut_off() -> None:
    messages = [user(), said(), running(), said()]
    measure = suffix_measure(lambda _: 10, 4)
    assert tail_start(messages, replace(PLAIN, cuts=("pairs",)), 10, measure) is None
    assert tail_start(messages, replace(PLAIN, cuts=("pairs",)), 20, measure) == 2


def test_a_measure_adds_up_from_the_end_and_looks_no_farther_than_asked() -> None:
    asked: list[int] = []

    def weight(index: int) -> int:
        asked.append(index)
        return index

    measure = suffix_measure(weight, 5)
    assert measure(3, 5) == 7
    assert measure(3, 4) == 3
    assert measure(5, 5) == 0
    assert asked == [4, 3]
    assert measure(0, 5) == 10
    assert sorted(asked) == [0, 1, 2, 3, 4]


# --- turns and replays ----------------------------------------------------------------------


def test_a_turn_begins_at_a_message_of_the_user_that_is_no_marker() -> None:
    messages = [said(), user(), said(), marker(), summary(), user(), user()]
    assert list(turn_starts(messages)) == [6, 5, 1]


def test_the_newest_request_is_sent_again_if_another_one_is_before_it() -> None:
    assert replay_index([user(), said(), user(), said()]) == 2
    assert replay_index([user(), said(), user(), said(), marker()]) == 2
    assert replay_index([user(), said()]) is None
    assert replay_index([marker(), summary(), user()]) is None
    assert replay_index([]) is None


@pytest.mark.parametrize("policy", [OPENCODE, BUFFER], ids=lambda p: p.name)
def test_after_an_overflow_the_history_ends_before_the_request_that_is_sent_again(
    policy: Policy,
) -> None:
    messages = (user("u1"), said("a1"), user("u2"), said("a2"), user("u3"), said("a3"))
    fold = folded(*messages, policy=policy, room=50_000, overflow=True)
    assert fold.replay == messages[4]
    assert list(fold.history) == list(messages[:4])


def test_where_words_are_carried_across_a_pivot_work_on_the_open_request_is_folded_too() -> None:
    messages = (user("u1"), said("a1"), user("u2"), said("a2"), user("u3"), said("a3"))
    fold = folded(*messages, policy=FOLDMARK, room=50_000, overflow=True)
    assert fold.replay is None
    assert list(fold.history) == list(messages)


@WITH_TAIL
def test_without_overflow_nothing_is_sent_again(policy: Policy) -> None:
    messages = (user("u1"), said("a1"), user("u2"), said("a2"))
    fold = folded(*messages, policy=policy, room=50_000)
    assert fold.replay is None
    assert list(fold.history) == list(messages)


@WITH_TAIL
def test_the_only_request_is_not_sent_again(policy: Policy) -> None:
    fold = folded(user("u1"), said("a1"), policy=policy, room=50_000, overflow=True)
    assert fold.replay is None
    assert len(fold.history) == 2


# --- a session's fold under the presets -----------------------------------------------------

LONG = "word " * 20_000


@WITH_TAIL
def test_a_newer_preset_keeps_recent_turns_and_folds_the_rest(policy: Policy) -> None:
    messages = (user("u1"), said("a1", LONG), user("u2"), said("a2"), user("u3"), said("a3"))
    fold = folded(*messages, policy=policy, room=50_000)
    assert fold.tail_start == "u2"
    assert [message.id for message in fold.head] == ["u1", "a1"]


@pytest.mark.parametrize("policy", [OPENCODE_2025, CODELET, CODELET_USABLE], ids=lambda p: p.name)
def test_an_older_preset_keeps_the_summary_alone(policy: Policy) -> None:
    messages = (user("u1"), said("a1", LONG), user("u2"), said("a2"))
    fold = folded(*messages, policy=policy, room=50_000)
    assert fold.tail_start is None
    assert list(fold.head) == list(messages)


def test_opencode_keeps_nothing_where_everything_fits_and_foldmark_does() -> None:
    messages = (user("u1"), said("a1"), user("u2"), said("a2"))
    assert folded(*messages, policy=OPENCODE, room=50_000).tail_start is None
    assert folded(*messages, policy=FOLDMARK, room=50_000).tail_start == "u2"


@WITH_TAIL
def test_an_earlier_pivot_is_neither_folded_nor_kept_but_its_summary_is_known(
    policy: Policy,
) -> None:
    messages = (
        user("u1"),
        said("a1", LONG),
        marker("m", "u1"),
        summary("m"),
        user("u2"),
        said("a2"),
    )
    fold = folded(*messages, policy=policy, room=50_000)
    assert fold.previous == messages[3]
    assert [message.id for message in fold.history] == ["u1", "a1", "u2", "a2"]
    assert folded(*messages[:2], policy=policy, room=50_000).previous is None


def test_foldmark_leaves_room_for_the_summary_the_words_and_the_system_prompt() -> None:
    turns = [
        message for i in range(40) for message in (user(f"u{i}"), said(f"a{i}", "word " * 200))
    ]
    log = Log(counter(FOLDMARK.estimate), turns)
    viewer = Viewer(log, FOLDMARK, usable=8_000)
    free, crowded = session_fold(viewer, 8_000), session_fold(viewer, 8_000, fixed=4_000)
    assert free.start is not None
    assert crowded.start is not None
    assert free.start < crowded.start
    assert session_fold(viewer, 8_000, fixed=7_900).tail_start is None


# --- the two messages of a pivot ------------------------------------------------------------

MADE = MessageIds(
    session="ses_1", message="msg_1", part="prt_1", at=1_700, path=Path(cwd="/w", root="/")
)
MODEL = ModelRef(provider_id="anthropic", model_id="claude")
IDS = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}


@pytest.mark.parametrize("auto", [True, False])
def test_a_marker_is_a_message_of_the_user_with_a_compaction_part(*, auto: bool) -> None:
    message = marker_message(MADE, auto=auto, agent="build", model=MODEL)
    assert to_plain(message) == {
        "info": {
            "role": "user",
            "id": "msg_1",
            "sessionID": "ses_1",
            "time": {"created": 1_700},
            "agent": "build",
            "model": {"providerID": "anthropic", "modelID": "claude"},
        },
        "parts": [{"type": "compaction", **IDS, "auto": auto}],
    }


def test_a_marker_tells_of_an_overflow_and_of_its_tail() -> None:
    message = marker_message(MADE, auto=True, overflow=True, tail_start="msg_0")
    assert to_plain(message)["parts"] == [
        {"type": "compaction", **IDS, "auto": True, "overflow": True, "tail_start_id": "msg_0"}
    ]


def test_a_summary_is_an_answer_of_the_compaction_agent_to_its_marker() -> None:
    tokens = Tokens(input=9, output=1, reasoning=0, cache=Cache(read=0, write=0))
    message = summary_message(MADE, "All.", marker="msg_0", model=MODEL, tokens=tokens, cost=0.5)
    assert to_plain(message) == {
        "info": {
            "role": "assistant",
            "id": "msg_1",
            "sessionID": "ses_1",
            "parentID": "msg_0",
            "mode": "compaction",
            "agent": "compaction",
            "summary": True,
            "path": {"cwd": "/w", "root": "/"},
            "cost": 0.5,
            "tokens": to_plain(tokens),
            "providerID": "anthropic",
            "modelID": "claude",
            "finish": "stop",
            "time": {"created": 1_700, "completed": 1_700},
        },
        "parts": [{"type": "text", **IDS, "text": "All."}],
    }
