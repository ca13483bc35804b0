"""An agent in a folder: what it changed is known, by step, by turn and in all; and taken back."""

import shutil
from pathlib import Path

import pytest

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.file_changes import tree_before
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.errors import BadPolicy
from foldmark.model.messages import StepFinishPart, StepStartPart, SubtaskPart, ToolPart, UserInfo
from foldmark.session.session import Session
from foldmark.testing import ScriptedModel, call
from tests.support.tool_calls import session_diff

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "work"
    work.mkdir()
    (work / "app.py").write_text("speed = 1\n")
    return work


@pytest.fixture
def session(tmp_path: Path):
    with foldmark.open(tmp_path / "agent.db", window=64_000) as opened_session:
        yield opened_session


def worker(folder: Path, *replies: object, **more: object) -> Agent:
    model = ScriptedModel(*replies)  # pyright: ignore[reportArgumentType] - replies of any kind
    return Agent(model, tools=workspace_tools(folder), folder=folder, titles=False, **more)  # pyright: ignore[reportArgumentType]


def trees(session: Session) -> list[tuple[object, object]]:
    pairs: list[tuple[object, object]] = []
    for message in session.export().messages:
        starts = [part.snapshot for part in message.parts if isinstance(part, StepStartPart)]
        ends = [part.snapshot for part in message.parts if isinstance(part, StepFinishPart)]
        pairs += zip(starts, ends, strict=True)
    return pairs


def test_what_a_turn_changed_is_told_and_noted(folder: Path, session: Session):
    agent = worker(
        folder,
        call("read", path="app.py"),
        [
            call("edit", path="app.py", old="1", new="2"),
            call("write", path="a/b.txt", content="b\n"),
        ],
        "Done.",
    )
    result = agent.run("Faster!", session)
    assert result.files == ("a/b.txt", "app.py")
    recorded = trees(session)
    assert recorded[0][0] == recorded[0][1] == recorded[1][0]
    assert recorded[1][0] != recorded[1][1] == recorded[2][0] == recorded[2][1]
    snapshots = agent.snapshots.of(session)
    assert snapshots is not None
    first = session.export().messages[0]
    diffs = session_diff(snapshots, session, first.id)
    assert diffs == session_diff(snapshots, session)
    assert [(diff.file, diff.additions, diff.deletions) for diff in diffs] == [
        ("a/b.txt", 1, 0),
        ("app.py", 1, 1),
    ]
    assert (diffs[1].before, diffs[1].after) == ("speed = 1\n", "speed = 2\n")
    assert isinstance(first.info, UserInfo)
    assert [diff["file"] for diff in first.info.summary["diffs"]] == ["a/b.txt", "app.py"]
    noted = session.info.info.summary
    assert noted
    assert (noted["additions"], noted["deletions"], noted["files"]) == (2, 1, 2)


def test_files_go_back_to_how_they_were_before_a_message(folder: Path, session: Session):
    agent = worker(folder, call("write", path="app.py", content="speed = 9\n"), "Done.")
    agent.run("Nine.", session)
    snapshots = agent.snapshots.of(session)
    assert snapshots is not None
    snapshots.restore(tree_before(session, session.export().messages[0].id))
    assert (folder / "app.py").read_text() == "speed = 1\n"


def test_what_a_tool_wrote_is_in_the_diff_though_git_would_ignore_it(
    folder: Path, session: Session
):
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "old.log").write_text("old\n")
    calls = [
        call("write", path="run.log", content="ran\n"),
        call("write", path="old.log", content="new\n"),
    ]
    agent = worker(folder, calls, "Done.")
    agent.run("Log.", session)
    snapshots = agent.snapshots.of(session)
    assert snapshots is not None
    diffs = [(diff.file, diff.before, diff.after) for diff in session_diff(snapshots, session)]
    assert diffs == [("old.log", "old\n", "new\n"), ("run.log", "", "ran\n")]


def test_the_store_inside_the_folder_is_no_part_of_its_changes(folder: Path):
    with foldmark.open(folder / "agent.db", window=64_000) as session:
        result = worker(folder, call("todo", items=[]), "Done.").run("Plan.", session)
    assert result.files == ()


def test_two_edits_of_one_file_at_the_same_time_both_hold(folder: Path, session: Session):
    lines = [f"line {number}\n" for number in range(8)]
    (folder / "app.py").write_text("".join(lines))
    edits = [
        call("edit", path="app.py", old=f"line {number}\n", new=f"LINE {number}\n")
        for number in range(8)
    ]
    worker(folder, edits, "Done.").run("Shout.", session)
    assert (folder / "app.py").read_text() == "".join(lines).upper()


def test_a_step_that_died_is_ended_with_what_it_left_in_the_folder(folder: Path, session: Session):
    agent = worker(folder, "I see.")
    snapshots = agent.snapshots.of(session)
    assert snapshots is not None
    tree = snapshots.take()
    session.user("Work")
    running = call("write", path="app.py", content="speed = 5\n")
    session.record((StepStartPart(snapshot=tree), running, StepFinishPart(reason="tool-calls")))
    (folder / "app.py").write_text("speed = 5\n")  # and then the process died
    agent.run(session=session)
    assert [diff.file for diff in session_diff(snapshots, session)] == ["app.py"]
    assert session.open_calls() == []


def test_another_agent_does_a_task_in_a_session_of_its_own(folder: Path, session: Session):
    clerk = Agent(
        ScriptedModel(call("read", path="app.py"), "The speed is 1. " * 3),
        tools=workspace_tools(folder),
        folder=folder,
        name="clerk",
        description="reads files",
    )
    boss = worker(
        folder,
        call("delegate", agent="clerk", task="What is the speed?"),
        "It is 1.",
        agents=[clerk],
    )
    assert boss.run("How fast?", session).text == "It is 1."
    (part,) = [p for p in session.export().messages[1].parts if isinstance(p, ToolPart)]
    assert getattr(part.state, "output", "") == "The speed is 1. " * 3
    assert part.state.metadata
    with foldmark.open(session.files[0], session=part.state.metadata["session"]) as child:
        assert child.info.info.parent_id == session.id
        assert len(child.export().messages) == 3


def test_what_the_user_hands_on_is_done_before_the_model_is_asked(folder: Path, session: Session):
    clerk = Agent(ScriptedModel("Counted: 3."), name="clerk")
    model = ScriptedModel("The clerk says 3.")
    boss = Agent(model, agents=[clerk], titles=False)
    task = (SubtaskPart(agent="clerk", prompt="Count the files"),)
    assert boss.run(task, session).text == "The clerk says 3."
    prompt = str(model.requests[0].messages)
    assert "Counted: 3." in prompt


def test_the_agent_of_the_name_compaction_writes_the_summaries_and_has_no_tools(session: Session):
    scribe = ScriptedModel("x", name="scripted:scribe", summaries="## Goal\nmill")
    model = ScriptedModel("One.", "Two.")
    compactor = Agent(scribe, name="compaction", system="Look at the figures.")
    agent = Agent(model, agents=[compactor], titles=False)
    agent.run("word " * 4_000, session)
    session.queue()
    agent.run("Go on", session)
    assert scribe.requests
    assert "Look at the figures." in str(scribe.requests[0])
    assert all(ask.purpose == "step" for ask in model.requests)
    assert "delegate" not in agent.toolbox.tools
    with pytest.raises(BadPolicy, match="no tools"):
        Agent(model, agents=[Agent(scribe, name="compaction", tools=[print_it])])


def print_it(text: str) -> str:
    """Give a text back."""
    return text
