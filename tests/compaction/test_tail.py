"""The tail of a pivot: budgets, whole turns, splits and replays; and the messages of a pivot."""

import pytest
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
    Cache,
    Message,
    ModelRef,
    Path,
    ReasoningPart,
    Running,
    Tokens,
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
from tests.support.messages import call, marker, reply, said, summary, user

PLAIN = TailRules()
NEWEST = replace(PLAIN, keep_newest=True)
WITH_TAIL = pytest.mark.parametrize("policy", [OPENCODE, BUFFER, FOLDMARK], ids=lambda p: p.name)
LONG = "word " * 20_000


def turn(number: int, text: str = "ok") -> list[Message]:
    return [user(name=f"u{number}"), said(text, f"a{number}")]


FIRST, LONG_FIRST, SECOND, THIRD = turn(1), turn(1, LONG), turn(2), turn(3)


def fold_of(messages: list[Message], policy: Policy, *, overflow: bool = False) -> Fold:
    log = Log(counter(policy.estimate), messages)
    return session_fold(Viewer(log, policy, usable=50_000), 50_000, overflow=overflow)


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
def test_the_budget_is_a_quarter_of_usable_within_its_limits(usable: int, budget: int) -> None:
    assert tail_budget(PLAIN, usable) == budget


def test_the_users_own_value_is_the_budget() -> None:
    assert tail_budget(OPENCODE.adjusted(tail_tokens=123).tail, 10**6) == 123
    assert tail_budget(OPENCODE.adjusted(tail_tokens=99_999).tail, 0) == 99_999


# --- whole turns, and the split of one ------------------------------------------------------

# Roles and sizes of messages, the budget, the rules, and the expected start of the tail.
TAILS: dict[str, list[tuple[str, list[int], int, TailRules, int | None]]] = {
    "whole turns are kept, newest first": [
        ("uauaua", [10] * 6, 20, PLAIN, 4),
        ("uauaua", [10] * 6, 40, PLAIN, 2),
        ("uauaua", [10] * 6, 49, PLAIN, 2),
    ],
    "a turn that does not fit is split at the earliest cut that fits": [
        ("uaaauaa", [10] * 7, 30, PLAIN, 4),
        ("uaaauaa", [10] * 7, 40, PLAIN, 3),
        ("uaaauaa", [10] * 7, 59, PLAIN, 2),
        ("uaaauaa", [10] * 7, 25, PLAIN, 5),
    ],
    "a turn whose last message does not fit is left out": [
        ("uaua", [10, 50, 10, 10], 60, PLAIN, 2),
        ("uaua", [10, 10, 10, 50], 40, PLAIN, None),
    ],
    "an older turn is not kept across one that does not fit": [
        ("uauaua", [1, 1, 1, 90, 1, 1], 10, PLAIN, 4)
    ],
    "a tail of everything is no tail": [
        ("uaua", [10] * 4, 40, PLAIN, None),
        ("uaua", [10] * 4, 10**6, PLAIN, None),
        ("uaua", [10] * 4, 39, PLAIN, 1),
    ],
    "messages before the first request belong to no turn": [
        ("aua", [10] * 3, 10**6, PLAIN, 1),
        ("aaa", [10] * 3, 10**6, PLAIN, None),
    ],
    "an empty session has no tail": [("", [], 10**6, PLAIN, None)],
    "nothing is kept if tails are off": [
        ("uaua", [10] * 4, 30, TailRules(on=False), None),
        ("uaua", [10] * 4, 30, TailRules(on=False, tokens=50), None),
    ],
    "nothing is kept without a budget": [
        ("uaua", [10] * 4, tail_budget(TailRules(tokens=0), 10**6), PLAIN, None),
        ("uaua", [0, 10, 0, 0], -1, PLAIN, None),
    ],
    "if everything fits, the newer half is kept": [
        ("uauauaua", [10] * 8, 10**6, NEWEST, 4),
        ("uauauaua", [10] * 8, 10**6, PLAIN, None),
        ("uaaaaaaa", [10] * 8, 10**6, NEWEST, 4),
        ("ua", [10, 10], 10**6, NEWEST, 1),
        ("u", [10], 10**6, NEWEST, None),
    ],
    "if not everything fits, the budget decides": [
        ("uauaua", [10] * 6, 59, NEWEST, 1),
        ("uauaua", [10] * 6, 20, NEWEST, 4),
    ],
}


@pytest.mark.parametrize("cases", TAILS.values(), ids=TAILS)
def test_a_tail_has_the_newest_turns_that_fit(
    cases: list[tuple[str, list[int], int, TailRules, int | None]],
) -> None:
    for roles, sizes, budget, rules, start in cases:
        messages = [user() if role == "u" else said() for role in roles]
        measure = suffix_measure(sizes.__getitem__, len(messages))
        assert tail_start(messages, rules, budget, measure) == start, (roles, budget)


def test_a_turn_is_split_only_at_a_safe_cut() -> None:
    messages = [user(), said(), reply(ReasoningPart(text="hm")), said(), said()]
    measure = suffix_measure(lambda _: 10, 5)
    assert tail_start(messages, replace(PLAIN, cuts=("thinking",)), 20, measure) == 4
    assert tail_start(messages, PLAIN, 20, measure) == 3
    assert tail_start(messages, replace(PLAIN, cuts=("roles",)), 20, measure) is None
    messages = [user(), said(), reply(call(Running(input={}))), said()]
    measure = suffix_measure(lambda _: 10, 4)
    assert tail_start(messages, replace(PLAIN, cuts=("pairs",)), 10, measure) is None
    assert tail_start(messages, replace(PLAIN, cuts=("pairs",)), 20, measure) == 2


def test_a_measure_adds_up_from_the_end_only_as_far_as_necessary() -> None:
    calls: list[int] = []

    def weight(index: int) -> int:
        calls.append(index)
        return index

    measure = suffix_measure(weight, 5)
    assert measure(3, 5) == 7
    assert measure(3, 4) == 3
    assert measure(5, 5) == 0
    assert calls == [4, 3]
    assert measure(0, 5) == 10
    assert sorted(calls) == [0, 1, 2, 3, 4]


# --- turns and replays ----------------------------------------------------------------------


def test_a_turn_starts_at_a_user_message_that_is_not_a_marker() -> None:
    messages = [said(), user(), said(), marker(), summary(), user(), user()]
    assert list(turn_starts(messages)) == [6, 5, 1]


def test_the_newest_request_is_sent_again_if_there_is_an_earlier_one() -> None:
    assert replay_index([user(), said(), user(), said()]) == 2
    assert replay_index([user(), said(), user(), said(), marker()]) == 2
    for messages in ([user(), said()], [marker(), summary(), user()], []):
        assert replay_index(messages) is None


@pytest.mark.parametrize("policy", [OPENCODE, BUFFER], ids=lambda p: p.name)
def test_after_an_overflow_the_history_ends_before_the_request_that_is_sent_again(
    policy: Policy,
) -> None:
    fold = fold_of([*FIRST, *SECOND, *THIRD], policy, overflow=True)
    assert fold.replay == THIRD[0]
    assert list(fold.history) == [*FIRST, *SECOND]


@WITH_TAIL
def test_nothing_is_sent_again_without_overflow_or_for_the_only_request(policy: Policy) -> None:
    for messages, overflow in (([*FIRST, *SECOND], False), (FIRST, True)):
        fold = fold_of(messages, policy, overflow=overflow)
        assert fold.replay is None
        assert list(fold.history) == messages


def test_if_the_users_text_is_carried_across_a_pivot_no_request_is_sent_again() -> None:
    fold = fold_of([*FIRST, *SECOND, *THIRD], FOLDMARK, overflow=True)
    assert fold.replay is None
    assert list(fold.history) == [*FIRST, *SECOND, *THIRD]


# --- a session's fold under the presets -----------------------------------------------------


@WITH_TAIL
def test_a_newer_preset_keeps_recent_turns_and_folds_the_rest(policy: Policy) -> None:
    fold = fold_of([*LONG_FIRST, *SECOND, *THIRD], policy)
    assert fold.tail_start == "u2"
    assert list(fold.head) == LONG_FIRST


@pytest.mark.parametrize("policy", [OPENCODE_2025, CODELET, CODELET_USABLE], ids=lambda p: p.name)
def test_an_older_preset_keeps_the_summary_alone(policy: Policy) -> None:
    fold = fold_of([*LONG_FIRST, *SECOND], policy)
    assert fold.tail_start is None
    assert list(fold.head) == [*LONG_FIRST, *SECOND]


def test_if_everything_fits_opencode_keeps_nothing_and_foldmark_does() -> None:
    assert fold_of([*FIRST, *SECOND], OPENCODE).tail_start is None
    assert fold_of([*FIRST, *SECOND], FOLDMARK).tail_start == "u2"


@WITH_TAIL
def test_an_earlier_pivot_is_neither_folded_nor_kept_but_its_summary_is_known(
    policy: Policy,
) -> None:
    earlier = summary()
    fold = fold_of([*LONG_FIRST, marker(tail_start_id="u1"), earlier, *SECOND], policy)
    assert fold.previous == earlier
    assert list(fold.history) == [*LONG_FIRST, *SECOND]
    assert fold_of(LONG_FIRST, policy).previous is None


def test_foldmark_leaves_space_for_the_summary_the_users_text_and_the_system_prompt() -> None:
    turns = [message for number in range(40) for message in turn(number, "word " * 200)]
    viewer = Viewer(Log(counter(FOLDMARK.estimate), turns), FOLDMARK, usable=8_000)
    free, crowded = session_fold(viewer, 8_000), session_fold(viewer, 8_000, fixed=4_000)
    assert free.start is not None
    assert crowded.start is not None
    assert free.start < crowded.start
    assert session_fold(viewer, 8_000, fixed=7_900).tail_start is None


# --- the two messages of a pivot ------------------------------------------------------------

FOLDERS = Path(cwd="/w", root="/")
NEW = MessageIds(session="ses_1", message="msg_1", part="prt_1", at=1_700, path=FOLDERS)
MODEL = ModelRef(provider_id="anthropic", model_id="claude")
NAMES = {"providerID": "anthropic", "modelID": "claude"}
INFO = {"id": "msg_1", "sessionID": "ses_1"}
PART = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}


@pytest.mark.parametrize("auto", [True, False])
def test_a_marker_is_a_user_message_with_a_compaction_part(*, auto: bool) -> None:
    message = to_plain(marker_message(NEW, auto=auto, agent="build", model=MODEL))
    fields = {"role": "user", "agent": "build", "model": NAMES}
    assert message["info"] == {**INFO, **fields, "time": {"created": 1_700}}
    assert message["parts"] == [{"type": "compaction", **PART, "auto": auto}]


def test_a_marker_states_an_overflow_and_its_tail() -> None:
    message = to_plain(marker_message(NEW, auto=True, overflow=True, tail_start="msg_0"))
    fields = {"auto": True, "overflow": True, "tail_start_id": "msg_0"}
    assert message["parts"] == [{"type": "compaction", **PART, **fields}]


def test_a_summary_is_a_reply_of_the_compaction_agent_to_its_marker() -> None:
    tokens = Tokens(input=9, output=1, reasoning=0, cache=Cache(read=0, write=0))
    summary = summary_message(NEW, "All.", marker="msg_0", model=MODEL, tokens=tokens, cost=0.5)
    message = to_plain(summary)
    assert message["info"] == {
        **INFO,
        "role": "assistant",
        "parentID": "msg_0",
        "mode": "compaction",
        "agent": "compaction",
        "summary": True,
        "finish": "stop",
        "cost": 0.5,
        "tokens": to_plain(tokens),
        "providerID": "anthropic",
        "modelID": "claude",
        "path": {"cwd": "/w", "root": "/"},
        "time": {"created": 1_700, "completed": 1_700},
    }
    assert message["parts"] == [{"type": "text", **PART, "text": "All."}]
