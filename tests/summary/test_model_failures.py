"""Models that fail in every way, alone and mixed: each compaction ends, and what must hold does.

The numbers are those of the invariants in docs/design.md. FOLDMARK_EXAMPLES=2000 looks harder.
"""

from collections.abc import Iterator, Sequence
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
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    TextPart,
    Time,
    ToolPart,
    UserInfo,
)
from foldmark.model.values import encode
from foldmark.policy import FOLDMARK
from foldmark.session.in_memory import fit_view
from foldmark.summary.fallback import SummarizerLimits, Summary, summarize
from foldmark.summary.protocol import ModelRequest, Outcome
from foldmark.tokens.budget import usable
from foldmark.tokens.counters import by_classes
from foldmark.tokens.limits import Limit
from tests.support.effort import examples
from tests.support.failing_models import NAMES, FaultyModel, ask_tokens, driven, outcome
from tests.support.session_strategies import sessions
from tests.support.stored_sessions import bytes_of, fill, opened, step, without_pivots
from tests.support.view_rules import MARKER, assert_valid, limits, texts

EXAMPLES = examples(60, 300)
RULES = FOLDMARK.compact
# A driver really waits before it asks again; here nobody is to wait.
AT_ONCE = replace(FOLDMARK, compact=replace(RULES, retries=0))
WORK = MessageIds(session="s", message="marker", part="p", at=1)
faults = st.lists(st.sampled_from((*NAMES, *("good",) * 6)), min_size=1, max_size=8)


class Case(NamedTuple):
    """A session that is to be compacted, and all that goes wrong meanwhile."""

    messages: list[Message]
    limit: Limit
    fixed: int
    names: list[str]
    said: int  # messages that come while a model is waited for
    own: bool
    overflowed: bool

    def chosen(self) -> "Choice":
        return Choice(self.names)


class Choice:
    """Faults in their order, again and again."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._asked = 0

    def __call__(self, ask: ModelRequest) -> Outcome:
        self._asked += 1
        return outcome(self._names[(self._asked - 1) % len(self._names)], ask)


def bulk(steps: int, lines: int) -> list[Message]:
    """Steps of work, so that there is something to fold."""
    made: list[Message] = []
    for number in range(steps):
        output = f"line {number} of wheel_{number}.py turns\n" * lines
        state = Completed(input={"filePath": f"wheel_{number}.py"}, output=output, time=Time())
        call = ToolPart(id=f"b{number}", tool="read", call_id=f"b{number}", state=state)
        info = AssistantInfo(id=f"bulk_{number}", parent_id="msg_0", finish="tool-calls")
        made.append(Message(info=info, parts=(TextPart(text=f"I look at {number}"), call)))
    return made


@st.composite
def grown(draw: st.DrawFn) -> list[Message]:
    """A session of any kind with much work somewhere in it."""
    messages = draw(sessions(most=12))
    place = draw(st.integers(0, len(messages)))
    work = bulk(draw(st.integers(3, 25)), draw(st.sampled_from((10, 40, 150))))
    return [*messages[:place], *work, *messages[place:]]


cases = st.builds(
    Case,
    messages=grown(),
    limit=limits,
    fixed=st.integers(0, 300),
    names=faults,
    said=st.integers(0, 2),
    own=st.booleans(),
    overflowed=st.booleans(),
)


def meanwhile(many: int) -> Iterator[Message]:
    for number in range(many):
        text = TextPart(text=f"And also this, number {number}.")
        yield Message(info=UserInfo(id=f"late_{number}"), parts=(text,))


class Compacted:
    """A session before and after a compaction, made as `session` makes it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.room = usable(FOLDMARK, case.limit)
        self.log = Log(by_classes, case.messages)
        self.viewer = Viewer(self.log, FOLDMARK, usable=self.room)
        self.before = self.viewer.view()
        self.driven = driven()

    def job(self, marker: int | None) -> CompactionRequest:
        case = self.case
        return CompactionRequest(
            viewer=self.viewer,
            limit=case.limit,
            fixed=case.fixed,
            marker=marker,
            overflow=case.overflowed,
        )

    def summary(self) -> Summary | WindowTooSmall | CompactionStopped:
        """The summary, or the error where nothing can be gained."""
        try:
            return self._summary()
        except WindowTooSmall as error:
            return error
        except CompactionStopped as error:
            return error

    def _summary(self) -> Summary:
        prepare(self.job(None))
        self.log.append(marker_message(WORK, auto=True))
        assert self.viewer.view().messages == self.before.messages  # 7: it only waits
        ready = prepare(self.job(len(self.log) - 1))
        case = self.case
        means = SummarizerLimits(
            digest=situation_digest,
            rules=RULES,
            limit=case.limit,
            is_own_model=case.own,
        )
        return self.driven.run(summarize(ready, means), case.chosen())

    def after(self, made: Summary) -> tuple[Log, Viewer]:
        marker = marker_message(WORK, auto=True, tail_start=made.fold.tail_start)
        done = summary_message(replace(WORK, message="summary"), made.text, marker="marker")
        late = list(meanwhile(self.case.said))
        log = Log(by_classes, [*self.case.messages, marker, *late, done])
        return log, Viewer(log, FOLDMARK, usable=self.room)


@settings(max_examples=EXAMPLES)
@given(cases)
def test_every_compaction_ends_in_a_smaller_valid_view_or_a_typed_error(case: Case) -> None:
    tried = Compacted(case)
    made = tried.summary()
    if isinstance(made, FoldmarkError):
        assert tried.driven.requests == []
        assert tried.viewer.view().messages == tried.before.messages
        assert str(made)
        return
    assert len(tried.driven.requests) == made.usage.calls <= RULES.calls  # 5
    for ask in tried.driven.requests:
        assert ask_tokens(ask, by_classes) <= case.limit.context
    assert made.text.strip()
    log, viewer = tried.after(made)
    view = viewer.view()
    assert_valid(view.messages)  # 1
    if not case.said:
        assert view.tokens + case.fixed <= tried.room  # 2
        assert view.tokens < tried.before.tokens  # 5
    held = [entry.message for entry in log.entries.values()]
    assert encode(held[: len(case.messages)]) == encode(case.messages)  # 3
    said = texts(view)
    for late in meanwhile(case.said):
        assert any(part.text in said for part in late.parts if isinstance(part, TextPart))  # 7
    assert sum(text.endswith(MARKER) for text in said) == 1
    assert_words_survive(log, "\n\n".join(said), log.pivots[-1].marker)
    undone = Viewer(without_pivots(log), FOLDMARK, usable=tried.room)
    plain = Log(by_classes, [*case.messages, *meanwhile(case.said)])
    assert undone.view().messages == Viewer(plain, FOLDMARK, usable=tried.room).view().messages


def assert_words_survive(log: Log, said: str, marker: int) -> None:
    """6: the open request is there whole; the first and the rules, as far as there is room."""
    requests = [request for request in log.requests.all if request.index < marker]
    if requests and not log.requests.answered(requests[-1], marker):
        assert requests[-1].text in said
    if requests:
        assert requests[0].text in said or "characters left out; recall" in said


# --- the same in a store ------------------------------------------------------------------------


class Stored:
    """A generated session in a store, and what is known of it."""

    def __init__(self, where: str, name: str, case: Case) -> None:
        fill(where, case.messages, name)
        self.model = FaultyModel(seed=len(case.names) + case.fixed)
        self.session = opened(
            where,
            name,
            window=case.limit.context,
            output=case.limit.output,
            policy=AT_ONCE,
            summarizer=self.model,
            fixed_tokens=case.fixed,
        )
        self.room = self.session.usable
        self.view = bytes_of(self.session.view())
        self.tokens = self.session.view().tokens
        self.log = self.told_log(len(case.messages))

    def told_log(self, many: int) -> bytes:
        return encode(self.session.export().messages[:many])

    def check_failed(self, many: int) -> None:
        """Nothing is different, and nothing waits."""
        session = self.session
        assert bytes_of(session.view()) == self.view  # 7
        assert all(act.failed for act in session.operations() if act.state != "done" and not act.undone)
        assert self.told_log(many) == self.log  # 3
        assert len(self.model.requests) == 0

    def check_done(self, many: int) -> None:
        session = self.session
        view = session.view()
        assert len(self.model.requests) <= RULES.calls  # 5
        assert view.tokens < self.tokens
        assert view.tokens + session.fixed_tokens <= self.room  # 2
        assert_valid(view.messages)  # 1
        assert self.told_log(many) == self.log  # 3
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
        case = data.draw(cases)
        stored = Stored(str(Path(folder) / "s.db"), "s", case)
        many = len(case.messages)
        with stored.session as session:
            waits = session.pending()
            try:
                act = session.compact()
            except (WindowTooSmall, CompactionStopped):
                stored.check_failed(many)
                return
            assert act is not None
            assert act.in_force
            if waits is None:
                stored.check_done(many)


@settings(max_examples=EXAMPLES // 3)
@given(cases)
def test_a_list_that_is_made_to_fit_once_fits_or_an_error_says_why(case: Case) -> None:
    room = usable(AT_ONCE, case.limit)
    viewer = Viewer(Log(by_classes, case.messages), AT_ONCE, usable=room)
    job = CompactionRequest(
        viewer=viewer, limit=case.limit, fixed=case.fixed, overflow=case.overflowed
    )
    model = FaultyModel(*case.names)
    before = viewer.view()
    try:
        made = fit_view(job, model)
    except (WindowTooSmall, CompactionStopped):
        return
    assert len(model.requests) <= RULES.calls * len(made.summaries)
    assert made.after.tokens == viewer.tokens <= room - case.fixed
    assert_valid(viewer.view().messages)
    if not made.summaries and not made.pruned:
        assert viewer.view().messages == before.messages


# --- a whole loop -------------------------------------------------------------------------------


def work_on(session: foldmark.Session, steps: int) -> int:
    """Work as an agent does; how many requests were made before the window could not be kept."""
    sent, acts = b"", 0
    session.user("Mend the mill; never drain the pond")
    for number in range(steps):
        try:
            shown = session.messages()
        except (CompactionStopped, WindowTooSmall):
            return number
        assert_valid(shown)  # 1
        assert session.view().tokens + session.fixed_tokens <= session.usable  # 2
        now = b"".join(encode(message) for message in shown)
        assert now.startswith(sent) or len(session.operations()) > acts  # 9
        sent, acts = now, len(session.operations())
        said = "\n\n".join(texts(session.view()))
        assert "Mend the mill; never drain the pond" in said  # 6
        assert said.count(MARKER) <= 1  # 7
        step(session, f"c{number}", f"wheel {number} turns\n" * 60, f"w{number}.py")
        session.record("So it turns, and so the next one may. " * 12)
    return steps


@pytest.mark.parametrize("seed", range(6))
def test_a_loop_with_a_faulty_model_goes_on_and_its_requests_extend_each_other(
    tmp_path: Path, seed: int
) -> None:
    model = FaultyModel(seed=seed)
    with opened(str(tmp_path / "s.db"), "s", policy=AT_ONCE, summarizer=model) as session:
        assert work_on(session, 60) == 60
        pivots = [act for act in session.operations() if act.kind == "pivot"]
        assert len(model.requests) <= RULES.calls * len(pivots)
        assert pivots
        assert all(act.in_force and (act.after or 0) < (act.before or 0) for act in pivots)


@pytest.mark.parametrize("name", NAMES)
def test_a_loop_goes_on_with_a_model_that_always_fails_in_one_way(
    tmp_path: Path, name: str
) -> None:
    model = FaultyModel(name)
    with opened(str(tmp_path / "s.db"), "s", policy=AT_ONCE, summarizer=model) as session:
        assert work_on(session, 25) == 25
        how = [event.data["how"] for event in session.events() if event.kind == events.COMPACTED]
        assert how
        assert (set(how) == {"digest"}) == (name != "good")
