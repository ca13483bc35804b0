"""Foldmark's own files stay out of snapshots; git calls are stopped; diffs count lines."""

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
from tests.support.snapshot_folders import changed, snapshot_folder, write_files

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def tracked(shots: Snapshots, empty: str) -> tuple[str, ...]:
    return changed(shots, empty, shots.take())


# --- stores ----------------------------------------------------------------------------------


def test_stores_are_neither_tracked_nor_restored(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    empty = shots.take()
    (folder / "a").write_text("1\n")
    with foldmark.open(folder / "other.db", window=8_000) as session:
        session.user("first")  # a new store: its header is in the log only
        assert tracked(shots, empty) == ("a",)
        session.user("second")
        shots.include(["other.db", "other.db-wal"])
        assert tracked(shots, empty) == ("a",)
        name = session.id
    assert tracked(shots, empty) == ("a",)
    shots.restore(empty)
    with foldmark.open(folder / "other.db", session=name) as session:
        assert len(session.export().messages) == 2


def test_a_file_that_becomes_a_store_is_untracked_and_not_restored(
    tmp_path: Path,
) -> None:
    folder, shots = snapshot_folder(tmp_path)
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


def test_a_database_of_another_program_is_an_ordinary_file(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    empty = shots.take()
    with sqlite3.connect(folder / "theirs.db") as theirs:
        theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    assert tracked(shots, empty) == ("theirs.db",)


def test_paths_may_be_excluded_later(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    empty = shots.take()
    write_files(folder, dict.fromkeys(("a", "keep/b", "keep/c"), "1\n"))
    old = shots.take()
    shots.exclude([folder / "keep"])
    shots.exclude([folder / "keep"])
    assert tracked(shots, empty) == ("a",)
    write_files(folder, {"keep/b": "2\n", "a": "2\n"})
    assert shots.restore(old).written == ("a",)
    assert (folder / "keep/b").read_text() == "2\n"
    # Another process starts with an index that contains excluded files.
    other = Snapshots(folder, home=shots.home, exclude=[folder / "a"])
    assert tracked(other, empty) == ("keep/b", "keep/c")


# --- homes of snapshots ----------------------------------------------------------------------


def test_a_folder_around_the_users_data_leaves_out_other_snapshots(
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


# --- git calls -------------------------------------------------------------------------------


def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make git slow from now on."""
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nsleep 30\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_a_git_call_ends_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_git(tmp_path, monkeypatch)
    _, shots = snapshot_folder(tmp_path)
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    with stop_on(stop), pytest.raises(GitEnded, match="git was stopped"):
        shots.take()
    timer.join()


def test_a_quick_call_finishes_in_spite_of_a_stop(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "1\n"})
    tree = shots.take()
    stop = threading.Event()
    stop.set()
    with stop_on(stop):
        (folder / "b").write_text("1\n")
        assert changed(shots, tree, shots.take()) == ("b",)


def test_a_hanging_scan_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foldmark.snapshots.index.SCAN_SECONDS", 0.3)
    folder, shots = snapshot_folder(tmp_path)
    os.mkfifo(folder / ".gitignore")
    with pytest.raises(GitEnded, match="took longer"):
        shots.take()


def test_the_first_snapshot_of_many_files_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = snapshot_folder(tmp_path)
    for number in range(200):
        (folder / f"{number:03}").mkdir()
        for name in range(100):
            (folder / f"{number:03}/a file with a long name {name:03}").write_text(f"{number}\n")
    original = Git.output

    def output(self: Git, *arguments: str, **options: Any) -> bytes:
        """The same with a shorter limit, so that a hanging call fails."""
        options["seconds"] = 30.0
        return original(self, *arguments, **options)

    monkeypatch.setattr(Git, "output", output)
    tree = shots.take()
    (folder / "007/a file with a long name 042").write_text("changed\n")
    assert changed(shots, tree, shots.take()) == ("007/a file with a long name 042",)


def test_a_git_inside_the_folder_is_reported() -> None:
    with pytest.raises(StoreError, match="is in the working folder"):
        Snapshots(Path("/"))


# --- counts ----------------------------------------------------------------------------------


def test_a_diff_without_texts_counts_the_same_lines(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "1\n2\n", "gone": "1\n"})
    old = shots.take()
    write_files(folder, {"a": "1\n3\n4\n", "b": b"\0\1", "gone": None})
    new = shots.take()
    bare: dict[str, Any] = {"before": "", "after": ""}
    expected = tuple(
        type(diff)(**{**{name: getattr(diff, name) for name in diff.__struct_fields__}, **bare})
        for diff in shots.diff(old, new)
    )
    assert shots.diff(old, new, texts=False) == expected
    assert [diff.additions for diff in expected] == [2, 0, 0]


def test_a_turn_with_many_changed_files_lists_the_first_and_counts_the_rest(
    tmp_path: Path,
) -> None:
    folder, _ = snapshot_folder(tmp_path)

    def write() -> None:
        for number in range(MAX_LISTED_FILES + 7):
            (folder / f"{number:04}").write_text("1\n")

    with foldmark.open(tmp_path / "s.db", window=8_000) as session:
        agent = Agent(ScriptedModel(call("write"), "Done."), tools=[write], folder=folder)
        files = agent.run("Write much", session).files
        recorded: Any = session.export().messages[0].info.summary
    assert len(files) == MAX_LISTED_FILES + 7
    assert len(recorded["diffs"]) == MAX_LISTED_FILES
    assert recorded["more"] == 7
