"""Resuming after a compaction: automatically only in the middle of a turn."""

import pytest

import foldmark
from foldmark.model.messages import FilePart, TextPart
from foldmark.model.prompt_messages import ToolMessage, UserMessage
from foldmark.policy import OPENCODE
from tests.support.compacted_sessions import NO_PRUNE, pivots, synthetic_texts
from tests.support.failing_models import prompt_texts
from tests.support.session_strategies import PNG
from tests.support.stored_sessions import opened, step

CONTINUE = OPENCODE.compact.resume


class NoResume:
    """A hook that forbids resuming."""

    def before_continue(self, _: str) -> bool:
        return False


def mid_work(session: foldmark.Session) -> None:
    session.user("Fix the login")
    for number in range(30):
        step(session, f"c{number}", "check\n" * 300, f"w{number}.py")


@pytest.mark.parametrize(
    ("auto", "finished", "hooks", "expected"),
    [
        (True, False, [], [CONTINUE]),
        (True, False, [NoResume()], []),
        (True, True, [], []),
        (False, False, [], []),
    ],
    ids=["cut", "vetoed", "answered", "by hand"],
)
def test_a_session_resumes_by_itself_only_in_the_middle_of_a_turn(
    where: str, *, auto: bool, finished: bool, hooks: list[object], expected: list[str]
) -> None:
    with opened(where, "s", policy="opencode", hooks=hooks, summarizer="digest") as session:
        mid_work(session)
        if finished:
            session.record("All is fixed.")
        session.compact(auto=auto)
        assert synthetic_texts(session) == expected


def test_our_own_policy_adds_no_user_message_if_the_request_is_visible(
    where: str,
) -> None:
    with opened(where, "s", policy=NO_PRUNE, summarizer="digest") as session:
        mid_work(session)
        session.messages()
        assert pivots(session)
        assert synthetic_texts(session) == []
        assert isinstance(session.view().messages[-1], UserMessage | ToolMessage)


def test_a_request_that_overflowed_is_repeated_with_the_names_of_its_files(where: str) -> None:
    with opened(where, "s", policy="opencode", summarizer="digest") as session:
        mid_work(session)
        session.record("Done.")
        shot = FilePart(mime="image/png", url=PNG, filename="shot.png")
        session.user([TextPart(text="And what is this?"), shot])
        session.compact(auto=True, overflow=True)
        last = session.export().messages[-1]
        texts = [part.text for part in last.parts if isinstance(part, TextPart)]
        assert texts == ["And what is this?", "[Attached image/png: shot.png]"]
        assert prompt_texts(session.view().messages[-1:]) == texts
        assert synthetic_texts(session) == []
