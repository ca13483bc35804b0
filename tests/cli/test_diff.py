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
from tests.support.cli_program import FOLDMARK, STORE, output_of, refusal, run_cli

BEFORE, AFTER = "order = 0\r\n\tlines = 8\n", "order = 1\r\n\tlines = 8\nlast"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which two turns were taken; the session is in the user's own store."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "app.py").write_bytes(BEFORE.encode())
    model = ScriptedModel(
        call("write", path="app.py", content=AFTER),
        "Done.",
        call("write", path="new .txt", content="x\n"),
        "Done.",
        name="scripted:shop",
    )
    agent = Agent(model, tools=workspace_tools(folder), folder=folder, titles=False)
    with open_session(STORE, model="scripted:shop", window=20_000) as session:
        agent.run("Fix the order", session)
        agent.run("Make a file", session)
    return folder


def asks(folder: Path) -> list[str]:
    """The ids of what the user said."""
    assert folder.exists()
    transcript = json.loads(output_of("export", "latest"))
    return [item["info"]["id"] for item in transcript["messages"] if item["info"]["role"] == "user"]


def test_a_diff_can_be_applied_by_other_programs(project: Path):
    code, output, errors = run_cli("diff", "latest", "--dir", project)
    assert (code, errors) == (0, f"{LEFT_OUT}\n")
    (project / "new .txt").unlink()
    (project / "app.py").write_bytes(BEFORE.encode())
    subprocess.run(["git", "apply"], cwd=project, input=output.encode(), check=True)
    assert (project / "app.py").read_bytes() == AFTER.encode()
    assert (project / "new .txt").read_text() == "x\n"


def test_a_diff_of_one_message_has_only_its_files(project: Path):
    first, second = asks(project)
    where = ("--dir", project)
    only = json.loads(output_of("diff", "latest", "--message", second, "--json", *where))
    assert [item["file"] for item in only["files"]] == ["new .txt"]
    assert "app.py" in output_of("diff", "latest", "--message", first, *where)
    by_handle = output_of("diff", "latest", "--message", "h0", *where)
    assert by_handle == output_of("diff", "latest", "--message", first, *where)


def test_stat_counts_lines(project: Path):
    result = output_of("diff", "latest", "--stat", "--dir", project)
    assert "2 files: +3 -1 lines" in result
    whole = json.loads(output_of("diff", "latest", "--stat", "--json", "--dir", project))
    assert {item["file"]: item["additions"] for item in whole["files"]} == {
        "app.py": 2,
        "new .txt": 1,
    }
    assert all(item["after"] == "" for item in whole["files"])


def test_unknown_messages_and_folders_are_refused(project: Path):
    assert "no message 'nix'" in refusal("diff", "latest", "--message", "nix", "--dir", project)
    assert "no folder" in refusal("diff", "latest", "--dir", "nowhere")
    assert "--files" in refusal("revert", "latest", "h0", "--dir", project)


def test_revert_restores_files_with_the_view(project: Path):
    first, second = asks(project)
    code, output, _ = run_cli("revert", "latest", second, "--files", "--dir", project)
    assert code == 0
    assert "deleted: new .txt" in output
    assert not (project / "new .txt").exists()
    assert (project / "app.py").read_bytes() == AFTER.encode()
    run_cli("revert", "latest", first, "--files", "--dir", project)
    assert (project / "app.py").read_bytes() == BEFORE.encode()  # its answer is hidden
    assert second not in output_of("export", "latest", "--to", "markdown")
    result = json.loads(output_of("export", "latest"))
    assert result["info"]["revert"]["messageID"] == result["messages"][1]["info"]["id"]
    _, _, errors = run_cli("undo", "latest")
    assert "Files are unchanged" in errors


def test_reverting_to_a_reply_restores_the_files_after_it(project: Path):
    transcript = json.loads(output_of("export", "latest"))
    answers = [
        item["info"]["id"] for item in transcript["messages"] if item["info"]["role"] == "assistant"
    ]
    output_of("revert", "latest", answers[0], "--files", "--dir", project)
    assert (project / "app.py").read_bytes() == AFTER.encode()
    assert not (project / "new .txt").exists()


def test_a_patch_includes_modes_special_names_and_binary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    folder, copy = tmp_path / "shop", tmp_path / "copy"
    folder.mkdir()
    (folder / "run.sh").write_text("true\n")
    (folder / "gone").write_bytes(b"caf\xe9\n")
    shutil.copytree(folder, copy)
    script = (
        "chmod +x run.sh; rm gone; printf 'a\\0b' > image; printf 'x' > 'a\nb\t\"é'; "
        "printf 'caf\\351' > latin; printf 'new' > new.sh; chmod +x new.sh; ln -s run.sh link"
    )
    model = ScriptedModel(call("shell", command=script), "Done.", name="scripted:shop")
    agent = Agent(
        model,
        tools=workspace_tools(folder),
        folder=folder,
        titles=False,
        permissions={"shell": "allow"},
    )
    with open_session(STORE, model="scripted:shop", window=20_000) as session:
        agent.run("Do it", session)
    table = output_of("diff", "latest", "--stat")
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


def test_file_names_are_quoted_as_by_git():
    assert quote_file_name("a b/é.py") == "a b/é.py"
    assert quote_file_name('a"\\\n') == '"a\\"\\\\\\n"'
    assert quote_file_name("\x1b[2J\udcff") == '"\\033[2J\\377"'
