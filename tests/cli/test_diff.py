"""`foldmark diff` and `revert --files`: what a session did to files, and back again."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from foldmark.agent.agent import Agent
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.cli.commands.diff import LEFT_OUT
from foldmark.cli.text import quote_file_name
from foldmark.session.opening import open as open_session
from foldmark.testing import ScriptedModel, call
from tests.support.cli_program import FOLDMARK, STORE, called, ended, printed, refused

BEFORE, AFTER = "wheel = 0\r\n\tteeth = 8\n", "wheel = 1\r\n\tteeth = 8\nlast"


@pytest.fixture
def mill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which two turns were taken; the session is in the user's own store."""
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
    with open_session(STORE, model="scripted:mill", window=20_000) as session:
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
    assert (code, errors) == (0, f"{LEFT_OUT}\n")
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
    code, output, _ = ended(capsys, "revert", "latest", second, "--files", "--folder", mill)
    assert code == 0
    assert "deleted: new .txt" in output
    assert not (mill / "new .txt").exists()
    assert (mill / "mill.py").read_bytes() == AFTER.encode()
    ended(capsys, "revert", "latest", first, "--files", "--folder", mill)
    assert (mill / "mill.py").read_bytes() == BEFORE.encode()  # its answer is hidden
    assert second not in printed("export", "latest", "--to", "markdown")
    told = json.loads(printed("export", "latest"))
    assert told["info"]["revert"]["messageID"] == told["messages"][1]["info"]["id"]
    _, _, errors = ended(capsys, "undo", "latest")
    assert "Files stay as they are" in errors


def test_after_an_answer_files_are_as_it_left_them(mill: Path):
    transcript = json.loads(printed("export", "latest"))
    answers = [
        held["info"]["id"] for held in transcript["messages"] if held["info"]["role"] == "assistant"
    ]
    printed("revert", "latest", answers[0], "--files", "--folder", mill)
    assert (mill / "mill.py").read_bytes() == AFTER.encode()
    assert not (mill / "new .txt").exists()


def test_a_patch_has_modes_odd_names_and_files_that_are_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder, copy = tmp_path / "mill", tmp_path / "copy"
    folder.mkdir()
    (folder / "run.sh").write_text("true\n")
    (folder / "gone").write_bytes(b"caf\xe9\n")
    shutil.copytree(folder, copy)
    script = (
        "chmod +x run.sh; rm gone; printf 'a\\0b' > image; printf 'x' > 'a\nb\t\"é'; "
        "printf 'caf\\351' > latin; printf 'new' > new.sh; chmod +x new.sh; ln -s run.sh link"
    )
    model = ScriptedModel(call("shell", command=script), "Done.", name="scripted:mill")
    agent = Agent(
        model,
        tools=workspace_tools(folder),
        folder=folder,
        titles=False,
        permissions={"shell": "allow"},
    )
    with open_session(STORE, model="scripted:mill", window=20_000) as session:
        agent.run("Do it", session)
    table = printed("diff", "latest", "--stat")
    assert '"a\\nb\\t\\"é"' in table
    (tmp_path / "x.patch").write_bytes(run_for_bytes("diff", "latest"))
    subprocess.run(["git", "apply", str(tmp_path / "x.patch")], cwd=copy, check=True)
    assert told_files(copy) == told_files(folder)
    assert os.access(copy / "run.sh", os.X_OK)


def run_for_bytes(*arguments: str) -> bytes:
    return subprocess.run([FOLDMARK, *arguments], check=True, capture_output=True).stdout


def told_files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The files of a folder: what kind each is, and what it holds."""
    return {
        path.name: (
            path.lstat().st_mode & 0o170100,
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes(),
        )
        for path in folder.iterdir()
    }


def test_names_are_shown_as_git_writes_them():
    assert quote_file_name("a b/é.py") == "a b/é.py"
    assert quote_file_name('a"\\\n') == '"a\\"\\\\\\n"'
    assert quote_file_name("\x1b[2J\udcff") == '"\\033[2J\\377"'
