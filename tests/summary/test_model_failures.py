"""Models that fail in every way, alone and mixed: each compaction ends, and the invariants hold.

The numbers are those of the invariants in docs/design.md. FOLDMARK_EXAMPLES=2000 tries harder.
"""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import foldmark
from foldmark.compaction.pivot import MessageIds, marker_message, summary_message
from foldmark.compaction.situation import CompactionRequest, prepare
from foldmark.digest.digest import situation_digest
from foldmark.errors import CompactionStopped, FoldmarkError, WindowTooSmall
from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model import events
from foldmark.model.messages import Message, TextPart
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.session.in_memory import fit_view
from foldmark.summary.fallback import SummarizerLimits, Summary, summarize
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import by_classes
from foldmark.tokens.limits import Limit
from tests.support.compaction_dialogue import user, work_session
from tests.support.effort import examples
from tests.support.failing_models import (
    NAMES,
    DialogueDriver,
    FaultyModel,
    outcome,
    window_tokens,
)
from tests.support.session_strategies import sessions
from tests.support.stored_sessions import bytes_of, fill, opened, step, without_pivots
from tests.support.view_rules import MARKER, assert_valid, limits, texts

EXAMPLES = examples(60, 300)
RULES = FOLDMARK.compact
IMPATIENT = replace(FOLDMARK, compact=replace(RULES, retries=0))  # a driver really waits
WORK = MessageIds(session="s", message="marker", part="p", at=1)
REQUEST = "Fix the login; never touch the schema"


class Case(NamedTuple):
    """A session to compact, and all that goes wrong meanwhile."""

    messages: list[Message]
    limit: Limit
    fixed: int
    faults: list[str]
    late: int  # messages that arrive while a model is asked
    is_own: bool
    overflow: bool

    def request(self, viewer: Viewer, marker: int | None = None) -> CompactionRequest:
        return CompactionRequest(
            viewer=viewer,
            limit=self.limit,
            fixed=self.fixed,
            marker=marker,
            overflow=self.overflow,
        )

    def late_messages(self) -> Iterator[Message]:
        return (user(f"And also this, number {n}.", 1_000 + n) for n in range(self.late))


@st.composite
def grown_sessions(draw: st.DrawFn) -> list[Message]:
    """A session of any kind with many steps of work somewhere in it."""
    messages = draw(sessions(max_size=12))
    index = draw(st.integers(0, len(messages)))
    steps, lines = draw(st.integers(3, 25)), draw(st.sampled_from((10, 40, 150)))
    return [*messages[:index], *work_session(steps, lines)[1:], *messages[index:]]


cases = st.builds(
    Case,
    messages=grown_sessions(),
    limit=limits,
    fixed=st.integers(0, 300),
    faults=st.lists(st.sampled_from((*NAMES, *("good",) * 6)), min_size=1, max_size=8),
    late=st.integers(0, 2),
    is_own=st.booleans(),
    overflow=st.booleans(),
)


class Compaction:
    """A session before and after a compaction, made as `session` makes it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.budget = usable(FOLDMARK, case.limit)
        self.log = Log(by_classes, case.messages)
        self.viewer = Viewer(self.log, FOLDMARK, usable=self.budget)
        self.before = self.viewer.view()
        self.driver = DialogueDriver()

    def run(self) -> Summary | FoldmarkError:
        """The summary, or the error if nothing can be gained."""
        case = self.case
        try:
            prepare(case.request(self.viewer))
            self.log.append(marker_message(WORK, auto=True))
            assert self.viewer.view().messages == self.before.messages  # 7: it only waits
            ready = prepare(case.request(self.viewer, len(self.log) - 1))
        except (WindowTooSmall, CompactionStopped) as error:
            return error
        model = SummarizerLimits(
            digest=situation_digest, rules=RULES, limit=case.limit, is_own_model=case.is_own
        )
        faults = cycle(case.faults)
        dialogue = summarize(ready, model)
        return self.driver.run(dialogue, lambda request: outcome(next(faults), request))

    def result(self, summary: Summary) -> tuple[Log, Viewer]:
        """The log and the view with the summary."""
        marker = marker_message(WORK, auto=True, tail_start=summary.fold.tail_start)
        done = summary_message(replace(WORK, message="summary"), summary.text, marker="marker")
        log = Log(by_classes, [*self.case.messages, marker, *self.case.late_messages(), done])
        return log, Viewer(log, FOLDMARK, usable=self.budget)


@settings(max_examples=EXAMPLES)
@given(cases)
def test_every_compaction_ends_in_a_smaller_valid_view_or_a_typed_error(case: Case) -> None:
    compaction = Compaction(case)
    summary = compaction.run()
    if isinstance(summary, FoldmarkError):
        assert compaction.driver.requests == []
        assert compaction.viewer.view().messages == compaction.before.messages
        assert str(summary)
        return
    assert len(compaction.driver.requests) == summary.usage.calls <= RULES.calls  # 5
    for request in compaction.driver.requests:
        assert window_tokens(request, by_classes) <= case.limit.context
    assert summary.text.strip()
    log, viewer = compaction.result(summary)
    view = viewer.view()
    assert_valid(view.messages)  # 1
    if not case.late:
        assert view.tokens + case.fixed <= compaction.budget  # 2
        assert view.tokens < compaction.before.tokens  # 5
    logged = [entry.message for entry in log.entries.values()]
    assert encode(logged[: len(case.messages)]) == encode(case.messages)  # 3
    visible = texts(view)
    for late in case.late_messages():
        assert any(part.text in visible for part in late.parts if isinstance(part, TextPart))  # 7
    assert sum(text.endswith(MARKER) for text in visible) == 1
    assert_requests_survive(log, "\n\n".join(visible), log.pivots[-1].marker)
    undone = Viewer(without_pivots(log), FOLDMARK, usable=compaction.budget)
    plain = Log(by_classes, [*case.messages, *case.late_messages()])
    original = Viewer(plain, FOLDMARK, usable=compaction.budget)
    assert undone.view().messages == original.view().messages


def assert_requests_survive(log: Log, visible: str, marker: int) -> None:
    """6: the open request is complete; the first one as far as the budget allows."""
    requests = [request for request in log.requests.all if request.index < marker]
    if requests and not log.requests.is_answered(requests[-1], marker):
        assert requests[-1].text in visible
    if requests:
        assert requests[0].text in visible or "characters left out; recall" in visible


# --- the same in a store ------------------------------------------------------------------------


class StoredCase:
    """A generated session in a store, and its state before the compaction."""

    def __init__(self, path: str, case: Case) -> None:
        fill(path, case.messages, "s")
        self.count = len(case.messages)
        self.model = FaultyModel(seed=len(case.faults) + case.fixed)
        self.session = opened(
            path,
            "s",
            window=case.limit.context,
            output=case.limit.output,
            policy=IMPATIENT,
            summarizer=self.model,
            fixed_tokens=case.fixed,
        )
        self.view = bytes_of(self.session.view())
        self.tokens = self.session.view().tokens
        self.log = self.logged()

    def logged(self) -> bytes:
        return encode(self.session.export().messages[: self.count])

    def check_failed(self) -> None:
        """Nothing has changed, and nothing is pending."""
        pending = [each for each in self.session.operations() if each.state != "done"]
        assert bytes_of(self.session.view()) == self.view  # 7
        assert all(operation.failed for operation in pending if not operation.undone)
        assert self.logged() == self.log  # 3
        assert len(self.model.requests) == 0

    def check_done(self) -> None:
        session, view = self.session, self.session.view()
        assert len(self.model.requests) <= RULES.calls  # 5
        assert view.tokens < self.tokens
        assert view.tokens + session.fixed_tokens <= session.usable  # 2
        assert_valid(view.messages)  # 1
        assert self.logged() == self.log  # 3
        assert session.pending() is None
        kinds = [event.kind for event in session.events()]
        assert kinds[-3:] == [events.QUEUED, events.STARTED, events.COMPACTED]
        session.undo()
        assert bytes_of(session.view()) == self.view  # 3
        session.redo()
        assert bytes_of(session.view()) == bytes_of(view)


@settings(max_examples=EXAMPLES // 4)
@given(st.data())
def test_in_a_store_it_is_a_pivot_or_nothing_and_undo_gives_the_very_view(
    data: st.DataObject,
) -> None:
    with TemporaryDirectory() as folder:
        stored = StoredCase(str(Path(folder) / "s.db"), data.draw(cases))
        with stored.session as session:
            pending = session.pending()
            try:
                operation = session.compact()
            except (WindowTooSmall, CompactionStopped):
                stored.check_failed()
                return
            assert operation is not None
            assert operation.in_force
            if pending is None:
                stored.check_done()


@settings(max_examples=EXAMPLES // 3)
@given(cases)
def test_a_list_in_memory_fits_or_an_error_says_why(case: Case) -> None:
    budget = usable(IMPATIENT, case.limit)
    viewer = Viewer(Log(by_classes, case.messages), IMPATIENT, usable=budget)
    model = FaultyModel(*case.faults)
    before = viewer.view()
    try:
        fitted = fit_view(case.request(viewer), model)
    except (WindowTooSmall, CompactionStopped):
        return
    assert len(model.requests) <= RULES.calls * len(fitted.summaries)
    assert fitted.after.tokens == viewer.tokens <= budget - case.fixed
    assert_valid(viewer.view().messages)
    if not fitted.summaries and not fitted.pruned:
        assert viewer.view().messages == before.messages


# --- a whole loop -------------------------------------------------------------------------------


def work_on(session: foldmark.Session, steps: int) -> int:
    """Work as an agent does; return how many requests were made before the window was too small."""
    previous, operations = b"", 0
    session.user(REQUEST)
    for number in range(steps):
        try:
            messages = session.messages()
        except (CompactionStopped, WindowTooSmall):
            return number
        assert_valid(messages)  # 1
        assert session.view().tokens + session.fixed_tokens <= session.usable  # 2
        data = b"".join(encode(message) for message in messages)
        assert data.startswith(previous) or len(session.operations()) > operations  # 9
        previous, operations = data, len(session.operations())
        visible = "\n\n".join(texts(session.view()))
        assert REQUEST in visible  # 6
        assert visible.count(MARKER) <= 1  # 7
        step(session, f"c{number}", f"test {number} fails\n" * 60, f"t{number}.py")
        session.record("That is fixed, and so the next one may be. " * 12)
    return steps


@pytest.mark.parametrize("seed", range(6))
def test_a_loop_with_a_faulty_model_goes_on_and_its_requests_extend_each_other(
    tmp_path: Path, seed: int
) -> None:
    model = FaultyModel(seed=seed)
    with opened(str(tmp_path / "s.db"), "s", policy=IMPATIENT, summarizer=model) as session:
        assert work_on(session, 60) == 60
        pivots = [each for each in session.operations() if each.kind == "pivot"]
        assert len(model.requests) <= RULES.calls * len(pivots)
        assert pivots
        assert all(pivot.in_force and (pivot.after or 0) < (pivot.before or 0) for pivot in pivots)


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_goes_on_with_a_model_that_always_fails_in_one_way(
    tmp_path: Path, name: str
) -> None:
    model = FaultyModel(name)
    with opened(str(tmp_path / "s.db"), "s", policy=IMPATIENT, summarizer=model) as session:
        assert work_on(session, 25) == 25
        how = [event.data["how"] for event in session.events() if event.kind == events.COMPACTED]
        assert how
        assert (set(how) == {"digest"}) == (name != "good")
