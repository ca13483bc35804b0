"""Invariants over sessions of every kind (the numbers are those of docs/design.md)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from foldmark.analysis.plan import session_plan
from foldmark.compaction.fold import check_window, min_view_tokens, session_fold, tokens_used
from foldmark.compaction.pivot import append_pivot
from foldmark.compaction.prune import prune_plan
from foldmark.errors import WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.marks import marked_messages
from foldmark.log.view import Viewer, view_start
from foldmark.model.messages import AssistantInfo, Message, TextPart
from foldmark.model.prompt_messages import AssistantMessage, Call, Text, ToolMessage
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK, PRESETS
from foldmark.tokens.budget import is_overflow, usable, used
from foldmark.tokens.counters import by_classes, counter
from foldmark.tokens.limits import Limit
from tests.support.session_strategies import sessions
from tests.support.stored_sessions import without_pivots
from tests.support.view_rules import MARKER, assert_valid, limits, texts


def opened(messages: list[Message], usable_tokens: int = 0) -> tuple[Log, Viewer]:
    log = Log(by_classes, messages)
    return log, Viewer(log, FOLDMARK, usable=usable_tokens)


def compact(viewer: Viewer, budget: int, fixed: int = 0) -> None:
    """Append a pivot as a session does, with a summary of the largest size."""
    check_window(viewer, budget, fixed=fixed)
    start = session_fold(viewer, budget, fixed=fixed).tail_start
    available = budget - fixed - min_view_tokens(viewer, budget)
    limit = min(viewer.policy.view.summary, budget // 4, available)
    text = "done " * int(limit / 0.83)
    assert by_classes(text) <= limit
    append_pivot(viewer.log, text or "done", tail_start=start)


@given(sessions())
def test_1_every_view_is_one_that_providers_accept(messages: list[Message]) -> None:
    for model in ("", "test:small", "another:model"):
        log = Log(by_classes, messages)
        assert_valid(Viewer(log, FOLDMARK, model=model).view().messages)


@given(sessions())
def test_1_calls_and_results_are_paired_under_every_preset(messages: list[Message]) -> None:
    for policy in PRESETS.values():
        log = Log(counter(policy.estimate), messages)
        view = Viewer(log, policy).view().messages
        for index, message in enumerate(view):
            if isinstance(message, ToolMessage):
                calls = [block for block in view[index - 1].content if isinstance(block, Call)]
                results = [result.tool_call_id for result in message.content]
                assert [call.tool_call_id for call in calls] == results


@given(sessions(), limits, st.integers(0, 400))
def test_2_a_pivot_makes_the_view_fit_or_raises_an_error(
    messages: list[Message], limit: Limit, fixed: int
) -> None:
    budget = usable(FOLDMARK, limit)
    _, viewer = opened(messages, budget)
    try:
        compact(viewer, budget, fixed)
    except WindowTooSmall as error:
        assert error.fixed > error.usable == budget  # noqa: PT017 - not every window is too small
        return
    assert viewer.view().tokens + fixed <= budget
    assert_valid(viewer.view().messages)
    tokens = tokens_used(viewer, fixed=fixed)
    assert not is_overflow(FOLDMARK, tokens, limit) or tokens == budget


@given(sessions(), limits)
def test_3_undoing_a_prune_restores_the_log_and_the_view(
    messages: list[Message], limit: Limit
) -> None:
    budget = usable(FOLDMARK, limit)
    log, viewer = opened(messages, budget)
    before, view = encode(marked_messages(log)), viewer.view()
    plan = prune_plan(log, FOLDMARK.prune, usable=budget)
    log.mark(plan.ordinals, at=5)
    assert [entry.message for entry in log.entries.values()] == messages
    assert viewer.view() == Viewer(log, FOLDMARK, usable=budget).view()
    assert set(plan.ordinals) <= set(log.marks)
    log.unmark(plan.ordinals)
    assert encode(marked_messages(log)) == before
    assert viewer.view() == view


@given(sessions(), limits)
def test_3_pruning_twice_is_pruning_once(messages: list[Message], limit: Limit) -> None:
    budget = usable(FOLDMARK, limit)
    log, viewer = opened(messages, budget)
    start = view_start(log, FOLDMARK.view)
    log.mark(prune_plan(log, FOLDMARK.prune, start=start, usable=budget).ordinals, at=5)
    view = viewer.view()
    assert prune_plan(log, FOLDMARK.prune, start=start, usable=budget).prune == ()
    assert viewer.view() == view


@given(sessions())
def test_3_undoing_a_pivot_restores_the_view(messages: list[Message]) -> None:
    log, viewer = opened(messages, 50_000)
    before = viewer.view()
    compact(viewer, 50_000)
    assert viewer.view() != before
    undone = Viewer(without_pivots(log), FOLDMARK, usable=50_000)
    assert undone.view().messages == before.messages


@given(sessions(), st.sampled_from(sorted(PRESETS)))
def test_3_an_extended_view_equals_a_rebuilt_one(messages: list[Message], name: str) -> None:
    log = Log(by_classes)
    viewer = Viewer(log, PRESETS[name])
    for message in messages:
        log.append(message)
        assert viewer.view() == Viewer(log, PRESETS[name]).view()


@given(sessions())
def test_6_the_users_text_is_kept_across_every_pivot(messages: list[Message]) -> None:
    log, viewer = opened(messages, 50_000)
    for _ in range(2):
        compact(viewer, 50_000)
        text = "\n\n".join(texts(viewer.view()))
        requests = log.requests.all
        if requests:
            first, newest = requests[0], requests[-1]
            assert first.text in text
            if not log.requests.is_answered(newest, len(log)):
                assert newest.text in text
            if f"First request (answered):\n{first.text}" in text:
                assert log.requests.is_answered(first, len(log))
        assert all(rule.text in text for rule in log.requests.rules)


@given(sessions())
def test_7_only_a_complete_marker_is_shown_and_no_prompt_is_lost(messages: list[Message]) -> None:
    view = opened(messages)[1].view()
    visible = texts(view)
    assert sum(text.endswith(MARKER) for text in visible) == (1 if view.pivot else 0)
    later = messages[view.pivot.marker + 1 :] if view.pivot else messages
    for part in (part for message in later if message.is_user for part in message.parts):
        if isinstance(part, TextPart) and part.text.strip() and not part.ignored:
            assert part.text in visible
    replies = [message for message in view.messages if isinstance(message, AssistantMessage)]
    blocks = [block for reply in replies for block in reply.content if isinstance(block, Text)]
    summaries = sum(block.text.startswith("Summary ") for block in blocks)
    assert summaries == (1 if view.pivot else 0)


@given(sessions(), limits, st.integers(0, 10**6))
def test_8_auto_false_is_obeyed_and_tokens_are_the_larger_of_measured_and_estimated(
    messages: list[Message], limit: Limit, fixed: int
) -> None:
    log, viewer = opened(messages)
    assert not is_overflow(FOLDMARK.adjusted(auto=False), 10**9, limit)
    count = tokens_used(viewer, fixed=fixed)
    assert count >= viewer.view().tokens + fixed
    if log.measured is not None:
        info = log.entries[log.measured].message.info
        assert isinstance(info, AssistantInfo)
        assert info.tokens
        assert count >= used(info.tokens, FOLDMARK.window)
    roomy = Limit(context=limit.context + 10**7)
    plan = session_plan(viewer, roomy, fixed=fixed)
    assert plan.overflow == (plan.tokens >= plan.usable)


@given(sessions())
def test_9_a_request_starts_with_the_bytes_of_the_previous_one(messages: list[Message]) -> None:
    log, viewer = opened([])
    sent, pivot = b"", None
    for message in messages:
        # Before each reply, the view was sent as a request; summaries have requests of their own.
        if isinstance(message.info, AssistantInfo) and not message.info.summary:
            view = viewer.view()
            request = b"".join(map(msgspec.json.encode, view.messages))
            assert request.startswith(sent) or view.pivot != pivot
            sent, pivot = request, view.pivot
        log.append(message)
