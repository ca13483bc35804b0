"""`foldmark diff` and `revert --files`: what a session did to files, and back again."""

import json
import subprocess
from pathlib import Path

import pytest

from foldmark.agent.agent import Agent
from foldmark.agent.workspace import workspace_tools
from foldmark.cli.run_changes import unified
from foldmark.filediffs import FileDiff
from foldmark.session.opening import open as open_session
from foldmark.testing import ScriptedModel, call

from .program import called, ended, printed, refused

BEFORE, AFTER = "wheel = 0\r\n\tteeth = 8\n", "wheel = 1\r\n\tteeth = 8\nlast"


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which two turns were taken; the session is in foldmark.db beside it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mill"
    folder.mkdir()
    (folder / "mill.py").write_bytes(BEFORE.encode())
    model = ScriptedModel(
        call("write", path="mill.py", content=AFTER),
        "Done.",
        call("write", path="new .txt", content="x\n"),
        "Done.",
        name="scripted:mill",
    )
    agent = Agent(model, tools=workspace_tools(folder), folder=folder, titles=False)
    with open_session("foldmark.db", model="scripted:mill", window=20_000) as session:
        agent.run("Mend the wheel", session)
        agent.run("Make a file", session)
    return folder


def asks(folder: Path) -> list[str]:
    """The ids of what the user said."""
    assert folder.exists()
    transcript = json.loads(printed("export", "latest"))
    return [held["info"]["id"] for held in transcript["messages"] if held["info"]["role"] == "user"]


def test_a_diff_can_be_applied_by_other_programs(mill: Path):
    code, output, errors = called("diff", "latest", "--folder", mill)
    assert (code, errors) == (0, "")
    (mill / "new .txt").unlink()
    (mill / "mill.py").write_bytes(BEFORE.encode())
    subprocess.run(["git", "apply"], cwd=mill, input=output.encode(), check=True)
    assert (mill / "mill.py").read_bytes() == AFTER.encode()
    assert (mill / "new .txt").read_text() == "x\n"


def test_a_diff_of_one_message_has_its_files_alone(mill: Path):
    first, second = asks(mill)
    where = ("--folder", mill)
    only = json.loads(printed("diff", "latest", "--message", second, "--json", *where))
    assert [held["file"] for held in only["files"]] == ["new .txt"]
    assert "mill.py" in printed("diff", "latest", "--message", first, *where)
    by_handle = printed("diff", "latest", "--message", "h0", *where)
    assert by_handle == printed("diff", "latest", "--message", first, *where)


def test_a_table_tells_how_many_lines(mill: Path):
    told = printed("diff", "latest", "--stat", "--folder", mill)
    assert "2 files: +3 -1 lines" in told
    whole = json.loads(printed("diff", "latest", "--stat", "--json", "--folder", mill))
    assert {held["file"]: held["additions"] for held in whole["files"]} == {
        "mill.py": 2,
        "new .txt": 1,
    }
    assert all(held["after"] == "" for held in whole["files"])


def test_what_is_not_there_is_told_in_one_line(mill: Path, capsys: pytest.CaptureFixture[str]):
    assert "no message 'nix'" in refused(
        capsys, "diff", "latest", "--message", "nix", "--folder", mill
    )
    assert "no folder" in refused(capsys, "diff", "latest", "--folder", "nowhere")
    assert "--files" in refused(capsys, "revert", "latest", "h0", "--folder", mill)


def test_files_go_back_with_the_view(mill: Path, capsys: pytest.CaptureFixture[str]):
    first, second = asks(mill)
    code, output, _ = ended(capsys, "revert", "latest", first, "--files", "--folder", mill)
    assert code == 0
    assert "deleted: new .txt" in output
    assert not (mill / "new .txt").exists()
    assert (mill / "mill.py").read_bytes() == AFTER.encode()
    assert second not in asks(mill)


def test_odd_files_do_not_break_a_diff():
    same = FileDiff(file="run.sh", before="x\n", after="x\n", additions=0, deletions=0)
    long = FileDiff(file="long", before="", after="", additions=9_000_000, deletions=1)
    image = FileDiff(
        file="a\nb.png", before="", after="", additions=0, deletions=0, change="added", binary=True
    )
    told = "".join(unified((same, long, image)))
    assert "only the mode changed" in told
    assert "too long to show: +9,000,000 -1 lines" in told
    assert 'Binary files /dev/null and "b/a\\nb.png" differ' in told
