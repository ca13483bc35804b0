"""How a session goes on after a compaction: by itself only where a turn was cut, and unseen."""

import pytest

import foldmark
from foldmark.model.messages import FilePart, TextPart
from foldmark.model.prompt_messages import ToolMessage, UserMessage
from foldmark.policy import OPENCODE
from tests.support.compacted_sessions import NO_PRUNE, pivots, said_for_the_user
from tests.support.failing_models import prompt_texts
from tests.support.session_strategies import PNG
from tests.support.stored_sessions import opened, step

CONTINUE = OPENCODE.compact.resume


class MayNot:
    """A hook that lets no session go on by itself."""

    def before_continue(self, _: str) -> bool:
        return False


def mid_work(session: foldmark.Session) -> None:
    session.user("Fix the login")
    for number in range(30):
        step(session, f"c{number}", "check\n" * 300, f"w{number}.py")


@pytest.mark.parametrize(
    ("auto", "finished", "hooks", "said"),
    [
        (True, False, [], [CONTINUE]),
        (True, False, [MayNot()], []),
        (True, True, [], []),
        (False, False, [], []),
    ],
    ids=["cut", "vetoed", "answered", "by hand"],
)
def test_a_session_goes_on_by_itself_only_where_a_turn_was_cut(
    where: str, *, auto: bool, finished: bool, hooks: list[object], said: list[str]
) -> None:
    with opened(where, "s", policy="opencode", hooks=hooks, summarizer="digest") as session:
        mid_work(session)
        if finished:
            session.record("All is mended.")
        session.compact(auto=auto)
        assert said_for_the_user(session) == said


def test_our_own_policy_says_nothing_in_the_users_place_where_their_request_is_there(
    where: str,
) -> None:
    with opened(where, "s", policy=NO_PRUNE, summarizer="digest") as session:
        mid_work(session)
        session.messages()
        assert pivots(session)
        assert said_for_the_user(session) == []
        assert isinstance(session.view().messages[-1], UserMessage | ToolMessage)


def test_a_request_that_overflowed_is_said_again_with_its_files_named(where: str) -> None:
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
        assert said_for_the_user(session) == []
