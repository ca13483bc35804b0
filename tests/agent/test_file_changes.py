"""What steps did to files, told from the trees that a session's messages name."""

import shutil
from pathlib import Path

import pytest
from msgspec import UNSET

import foldmark
from foldmark.agent.file_changes import tree_after, tree_before, tree_span
from foldmark.errors import BadInput
from foldmark.model.messages import AnyPart, Message, StepFinishPart, StepStartPart, TextPart
from foldmark.model.operations import FileDiff
from foldmark.session.loop_support import LoopSupport
from foldmark.snapshots.snapshots import Snapshots
from tests.support.tool_calls import session_diff

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class Work:
    """A session whose steps write files."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "work"
        self.folder.mkdir()
        self.shots = Snapshots(self.folder, home=tmp_path / "home")
        self.session = foldmark.open(tmp_path / "s.db", window=8_000, output=1_000)

    def step(self, name: str, text: str, *, finished: bool = True) -> Message:
        start = StepStartPart(snapshot=self.shots.take())
        (self.folder / name).write_text(text)
        parts: list[AnyPart] = [start, TextPart(text=f"I write {name}")]
        if finished:
            parts.append(StepFinishPart(reason="stop", snapshot=self.shots.take()))
        return self.session.record(parts)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def told(diffs: tuple[FileDiff, ...]) -> list[tuple[str, int, int]]:
    return [(diff.file, diff.additions, diff.deletions) for diff in diffs]


def test_an_answer_has_the_diff_of_its_own_steps_and_a_request_that_of_all_its_answers(
    work: Work,
) -> None:
    with work.session as session:
        first = session.user("Write a and b")
        one = work.step("a", "1\n")
        two = work.step("b", "1\n2\n")
        second = session.user("And a again")
        three = work.step("a", "1\n2\n")
        waiting = session.user("And then?")
        diffs = [
            told(session_diff(work.shots, session, message.id))
            for message in (first, one, two, second, three, waiting)
        ]
    assert diffs == [
        [("a", 1, 0), ("b", 2, 0)],
        [("a", 1, 0)],
        [("b", 2, 0)],
        [("a", 1, 0)],
        [("a", 1, 0)],
        [],
    ]


def test_what_a_program_says_for_the_user_does_not_end_a_request(work: Work) -> None:
    with work.session as session:
        request = session.user("Write much")
        for number in range(30):
            work.step(f"f{number}", f"{number}\n" * 50)
        session.compact("Thirty files were written.")
        session.user([TextPart(text="Go on.", synthetic=True)])
        work.step("last", "x\n")
        assert len(session_diff(work.shots, session, request.id)) == 31
        # What was folded is told too, and nothing is told twice.
        assert session.view().pivot is not None
        assert sum(diff.additions for diff in session_diff(work.shots, session)) == 30 * 50 + 1


def test_a_session_without_snapshots_has_no_diff(work: Work) -> None:
    with work.session as session:
        request = session.user("Say something")
        session.record("Something.")
        assert session_diff(work.shots, session) == ()
        assert session_diff(work.shots, session, request.id) == ()
        with pytest.raises(BadInput, match="no snapshot was taken"):
            tree_before(session, request.id)
        with pytest.raises(BadInput, match="no snapshot was taken"):
            tree_after(session, request.id)


def test_files_go_back_to_before_and_after_any_message(work: Work) -> None:
    with work.session as session:
        first = session.user("Write a")
        one = work.step("a", "1\n")
        second = session.user("Write b")
        two = work.step("b", "2\n")
        third = session.user("Nothing yet")
        texts: list[list[str]] = []
        for message in (first, one, second, two, third):
            for tree in (tree_before(session, message.id), tree_after(session, message.id)):
                work.shots.restore(tree)
                texts.append(sorted(path.name for path in work.folder.iterdir()))
    assert texts == [[], ["a"], [], ["a"], *[["a"], ["a", "b"]] * 2, ["a", "b"], ["a", "b"]]


def test_what_a_revert_hides_is_in_no_diff(work: Work) -> None:
    with work.session as session:
        session.user("Write a")
        work.step("a", "1\n")
        second = session.user("Write b")
        before = tree_before(session, second.id)
        hidden = work.step("b", "2\n")
        session.revert(second.id)
        work.shots.restore(before)
        assert told(session_diff(work.shots, session)) == [("a", 1, 0)]
        with pytest.raises(BadInput, match="has no message"):
            session_diff(work.shots, session, hidden.id)


def test_a_step_that_was_cut_off_counts_with_its_start(work: Work) -> None:
    with work.session as session:
        request = session.user("Write a and b")
        work.step("a", "1\n")
        partial = work.step("b", "2\n", finished=False)
        assert session_diff(work.shots, session, partial.id) == ()
        assert told(session_diff(work.shots, session, request.id)) == [("a", 1, 0)]
        # The next step starts from what the cut one left.
        work.step("c", "3\n")
        changed = told(session_diff(work.shots, session, request.id))
        assert changed == [("a", 1, 0), ("b", 1, 0), ("c", 1, 0)]


def test_the_trees_of_steps_are_found_in_order_whatever_is_missing(work: Work) -> None:
    def message(*parts: AnyPart) -> Message:
        return LoopSupport(work.session).builder.assistant(parts, {}, "")

    several = message(
        StepStartPart(snapshot="a"),
        StepFinishPart(snapshot="b"),
        StepStartPart(snapshot="c"),
        StepStartPart(snapshot="d"),
        StepFinishPart(),
        StepStartPart(),
        StepFinishPart(snapshot="e"),
        StepStartPart(),
        StepFinishPart(),
    )
    with work.session:
        rest = (message(TextPart(text="x")), message(StepStartPart()))
        parts = several.parts
        for first, end, trees in (
            (0, 2, ("a", "b")),
            (2, 3, ("c", "c")),
            (2, 5, ("c", "d")),
            (3, 5, ("d", "d")),
            (5, 7, ("e", "e")),
            (4, 9, ("e", "e")),
        ):
            assert tree_span([message(*parts[first:end]), *rest]) == trees
        assert tree_span([several, several]) == ("a", "e")
        assert tree_span([message(StepStartPart(snapshot=UNSET))]) is None


def test_a_session_from_another_machine_is_told_in_one_line(work: Work, tmp_path: Path) -> None:
    with work.session as session:
        request = session.user("Write a")
        work.step("a", "1\n")
        elsewhere = Snapshots(work.folder, home=tmp_path / "elsewhere")
        with pytest.raises(BadInput, match="is not on this machine") as error:
            session_diff(elsewhere, session)
        assert "\n" not in str(error.value)
        with pytest.raises(BadInput, match="is not on this machine"):
            session_diff(elsewhere, session, request.id)
        with pytest.raises(BadInput, match="is not on this machine"):
            elsewhere.restore(tree_after(session, request.id))
