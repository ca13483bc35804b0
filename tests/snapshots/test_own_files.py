"""What is Foldmark's own stays out of snapshots; calls of git end when they are to; counts."""

import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.recorder import MAX_LISTED_FILES
from foldmark.errors import StoreError
from foldmark.snapshots.git import Git
from foldmark.snapshots.snapshots import GitEnded, Snapshots, stop_on
from foldmark.testing import ScriptedModel, call
from tests.support.snapshot_folders import changed, made

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def held(shots: Snapshots, empty: str) -> tuple[str, ...]:
    return changed(shots, empty, shots.take())


# --- stores ----------------------------------------------------------------------------------


def test_no_store_is_held_or_taken_back_whoever_made_it(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    empty = shots.take()
    (folder / "a").write_text("1\n")
    with foldmark.open(folder / "other.db", window=8_000) as session:
        session.user("first")  # it is new: what it is stands in its log alone
        assert held(shots, empty) == ("a",)
        session.user("second")
        shots.include(["other.db", "other.db-wal"])
        assert held(shots, empty) == ("a",)
        name = session.id
    assert held(shots, empty) == ("a",)
    shots.restore(empty)
    with foldmark.open(folder / "other.db", session=name) as session:
        assert len(session.export().messages) == 2


def test_a_file_that_becomes_a_store_is_held_no_more_and_a_restore_leaves_it(
    tmp_path: Path,
) -> None:
    folder, shots = made(tmp_path)
    empty = shots.take()
    (folder / "s.db").write_bytes(b"")
    before = shots.take()
    assert changed(shots, empty, before) == ("s.db",)
    with foldmark.open(folder / "s.db", window=8_000) as session:
        session.user("words")
        name = session.id
    assert shots.take() == empty
    assert shots.restore(before).written == ()
    with foldmark.open(folder / "s.db", session=name) as session:
        assert len(session.export().messages) == 1


def test_a_database_of_another_program_is_a_file_like_others(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    empty = shots.take()
    with sqlite3.connect(folder / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    assert held(shots, empty) == ("theirs.db",)


def test_what_is_to_be_left_out_may_be_told_later(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    empty = shots.take()
    for name in ("a", "keep/b", "keep/c"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("1\n")
    old = shots.take()
    shots.exclude([folder / "keep"])
    shots.exclude([folder / "keep"])
    assert held(shots, empty) == ("a",)
    (folder / "keep/b").write_text("2\n")
    (folder / "a").write_text("2\n")
    assert shots.restore(old).written == ("a",)
    assert (folder / "keep/b").read_text() == "2\n"
    # Another holder begins with an index that knew no better.
    other = Snapshots(folder, home=shots.home, exclude=[folder / "a"])
    assert held(other, empty) == ("keep/b", "keep/c")


# --- homes of snapshots ----------------------------------------------------------------------


def test_a_folder_around_the_users_data_holds_no_snapshots_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("1\n")
    around = Snapshots(tmp_path)
    start = around.take()
    inner = Snapshots(project)
    odd = Snapshots(project, home=tmp_path / "elsewhere/home")
    trees = inner.take(), odd.take()
    (project / "a").write_text("2\n")
    assert changed(around, start, around.take()) == ("project/a",)
    around.restore(start)
    (project / "a").write_text("3\n")
    for shots, tree in zip((inner, odd), trees, strict=True):
        assert shots.restore(tree).written == ("a",)
        (project / "a").write_text("3\n")


# --- calls of git ----------------------------------------------------------------------------


def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on git takes its time."""
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nsleep 30\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_a_call_of_git_ends_when_it_is_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_git(tmp_path, monkeypatch)
    _, shots = made(tmp_path)
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    with stop_on(stop), pytest.raises(GitEnded, match="git was stopped"):
        shots.take()
    timer.join()


def test_what_is_quick_is_done_though_it_is_to_stop(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("1\n")
    tree = shots.take()
    stop = threading.Event()
    stop.set()
    with stop_on(stop):
        (folder / "b").write_text("1\n")
        assert changed(shots, tree, shots.take()) == ("b",)


def test_a_scan_that_hangs_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldmark.snapshots.index.SCAN_SECONDS", 0.3)
    folder, shots = made(tmp_path)
    os.mkfifo(folder / ".gitignore")
    with pytest.raises(GitEnded, match="took longer"):
        shots.take()


def test_a_folder_of_many_files_is_taken_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = made(tmp_path)
    for number in range(200):
        (folder / f"{number:03}").mkdir()
        for name in range(100):
            (folder / f"{number:03}/a file with a long name {name:03}").write_text(f"{number}\n")
    real = Git.output

    def output(self: Git, *arguments: str, **more: Any) -> bytes:
        """The same with a shorter limit, so that a call that hangs fails."""
        more["seconds"] = 30.0
        return real(self, *arguments, **more)

    monkeypatch.setattr(Git, "output", output)
    tree = shots.take()
    (folder / "007/a file with a long name 042").write_text("changed\n")
    assert changed(shots, tree, shots.take()) == ("007/a file with a long name 042",)


def test_a_git_that_lies_in_the_folder_is_told_as_that() -> None:
    with pytest.raises(StoreError, match="is in the working folder"):
        Snapshots(Path("/"))


# --- counts ----------------------------------------------------------------------------------


def test_what_is_counted_is_the_diff_without_its_texts(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("1\n2\n")
    (folder / "gone").write_text("1\n")
    old = shots.take()
    (folder / "a").write_text("1\n3\n4\n")
    (folder / "b").write_bytes(b"\0\1")
    (folder / "gone").unlink()
    new = shots.take()
    bare: dict[str, Any] = {"before": "", "after": ""}
    wanted = tuple(
        type(diff)(**{**{name: getattr(diff, name) for name in diff.__struct_fields__}, **bare})
        for diff in shots.diff(old, new)
    )
    assert shots.diff(old, new, texts=False) == wanted
    assert [diff.additions for diff in wanted] == [2, 0, 0]


def test_a_turn_that_changes_very_many_files_notes_the_first_and_how_many_more(
    tmp_path: Path,
) -> None:
    folder, _ = made(tmp_path)

    def write() -> None:
        for number in range(MAX_LISTED_FILES + 7):
            (folder / f"{number:04}").write_text("1\n")

    with foldmark.open(tmp_path / "s.db", window=8_000) as session:
        agent = Agent(ScriptedModel(call("write"), "Done."), tools=[write], folder=folder)
        files = agent.run("Write much", session).files
        noted: Any = session.export().messages[0].info.summary
    assert len(files) == MAX_LISTED_FILES + 7
    assert len(noted["diffs"]) == MAX_LISTED_FILES
    assert noted["more"] == 7
