"""Snapshots of a folder with real git: taking, comparing and restoring."""

import logging
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from foldmark.agent.recorder import FolderSnapshots
from foldmark.errors import BadInput, StoreError
from foldmark.model.operations import FileDiff
from foldmark.snapshots.snapshots import Snapshots
from tests.support.snapshot_folders import (
    changed,
    files_of,
    git_calls,
    snapshot_folder,
    write_files,
)
from tests.support.stored_sessions import opened

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def listing(diffs: tuple[FileDiff, ...]) -> list[tuple[str, str, int, int]]:
    return [(diff.file, diff.change, diff.additions, diff.deletions) for diff in diffs]


# --- taking and comparing --------------------------------------------------------------------


def test_a_diff_lists_added_changed_and_deleted_files(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a.txt": "one\ntwo\n", "b.txt": "gone\n"})
    old = shots.take()
    write_files(folder, {"a.txt": "one\nzwei\ndrei\n", "b.txt": None, "c.txt": "new\n"})
    new = shots.take()
    assert listing(shots.diff(old, new)) == [
        ("a.txt", "changed", 2, 1),
        ("b.txt", "deleted", 0, 1),
        ("c.txt", "added", 1, 0),
    ]
    first = shots.diff(old, new)[0]
    assert (first.before, first.after) == ("one\ntwo\n", "one\nzwei\ndrei\n")
    assert changed(shots, old, new) == ("a.txt", "b.txt", "c.txt")
    assert shots.diff(old, old) == changed(shots, new, new) == ()


def test_an_empty_folder_has_a_snapshot_too(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    empty = shots.take()
    assert shots.take() == empty
    (folder / "a").write_bytes(b"")
    assert listing(shots.diff(empty, shots.take())) == [("a", "added", 0, 0)]
    assert shots.restore(empty).deleted == ("a",)
    assert list(folder.iterdir()) == []


def test_a_snapshot_of_an_unchanged_folder_is_the_same_and_costs_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "a\n"})
    tree = shots.take()
    commands = git_calls(monkeypatch)
    assert shots.take() == tree
    (folder / "a").write_text("other\n")
    other = shots.take()
    assert other != tree
    assert commands == ["ls-files", "ls-files", "update-index", "write-tree"]


def test_an_edit_of_the_same_length_right_after_a_snapshot_is_seen(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "0000"})
    trees = [shots.take()]
    for number in range(1, 60):
        (folder / "a").write_text(f"{number:04}")
        trees.append(shots.take())
    assert len(set(trees)) == 60
    # Another process starts with the same index and sees the next edit, too.
    (folder / "a").write_text("abcd")
    again = Snapshots(folder, home=shots.home)
    assert shots.diff(trees[-1], again.take())[0].after == "abcd"


def test_files_with_the_indexs_timestamp_are_read_until_it_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = snapshot_folder(tmp_path)
    for number in range(120):
        (folder / f"{number}").write_text("same")
    tree = shots.take()
    monkeypatch.setattr("foldmark.snapshots.index._SETTLED", -60.0)  # as if a minute had passed
    commands = git_calls(monkeypatch)
    (folder / "7").write_text("diff")
    (folder / "new").write_text("new")  # so that git scans
    assert changed(shots, tree, shots.take()) == ("7", "new")
    assert commands[:2] == ["update-index", "ls-files"]
    commands.clear()
    (folder / "newer").write_text("new")
    shots.take()
    assert commands[0] == "ls-files"


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out new files of more than 100 bytes, and longer texts in diffs."""
    monkeypatch.setattr("foldmark.snapshots.rules.MAX_BYTES", 100)


# --- files that are left out -----------------------------------------------------------------


@pytest.mark.usefixtures("small_limit")
def test_ignored_and_large_files_are_left_out_unless_a_tool_wrote_them(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {".gitignore": "*.log\nbuild/\n"})
    (folder / "build").mkdir()
    write_files(folder, dict.fromkeys(("a.log", "build/x", "b.log"), "1\n"))
    (folder / "large").write_text("x" * 101)
    old = shots.take()
    shots.include(["a.log", str(folder / "large"), "build/new", "../outside", "/etc/passwd"])
    (folder / "build/new").write_text("1\n")
    new = shots.take()
    assert changed(shots, old, new) == ("a.log", "build/new", "large")
    write_files(folder, {"a.log": "2\n", "b.log": "2\n"})
    newer = shots.take()
    assert changed(shots, new, newer) == ("a.log",)
    # Another process tracks them, too, and sees a deleted one that comes back.
    (folder / "a.log").unlink()
    other = Snapshots(folder, home=shots.home)
    without = other.take()
    assert changed(other, newer, without) == ("a.log",)
    assert shots.take() == without
    (folder / "a.log").write_text("2\n")
    assert other.take() == shots.take() == newer


@pytest.mark.usefixtures("small_limit")
def test_a_tracked_file_that_grows_stays_tracked_without_its_long_text(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "x\n"})
    old = shots.take()
    (folder / "a").write_text("x\n" * 60)
    diff = shots.diff(old, shots.take())[0]
    assert (diff.before, diff.after, diff.additions, diff.binary) == ("x\n", "", 59, False)


def test_the_store_and_the_snapshot_home_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "work [1]"
    folder.mkdir()
    store = folder / "a*b.db"
    shots = Snapshots(folder, home=folder / ".shots", exclude=[store])
    write_files(folder, dict.fromkeys(("a*b.db", "a*b.db-wal", "a*b.db-shm", "axb.db"), "x"))
    old = shots.take()
    assert shots.take() == old
    write_files(folder, dict.fromkeys(("a*b.db", "a*b.db-wal", "axb.db", "z"), "yy"))
    assert changed(shots, old, shots.take()) == ("axb.db", "z")
    shots.include(["a*b.db"])
    shots.restore(old)
    assert store.read_text() == "yy"
    assert (folder / ".shots/.git/HEAD").exists()


def test_the_projects_own_excludes_are_left_out(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".git/info").mkdir(exist_ok=True)
    (folder / ".git/info/exclude").write_text("private\n")
    old = shots.take()
    write_files(folder, {"private": "x", "public": "x"})
    assert changed(shots, old, shots.take()) == ("public",)


# --- restoring -------------------------------------------------------------------------------


def test_a_restore_can_be_undone(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "a\n", "deep/er/b": "b\n"})
    old = shots.take()
    before = files_of(folder)
    write_files(folder, {"a": "changed, and in no snapshot yet\n", "deep": None, "new/er/c": "c\n"})
    after = files_of(folder)
    restored = shots.restore(old)
    assert (restored.written, restored.deleted) == (("a", "deep/er/b"), ("new/er/c",))
    assert files_of(folder) == before
    assert not (folder / "new").exists()
    shots.restore(restored.before)
    assert files_of(folder) == after


def test_a_restore_writes_only_differing_files_and_keeps_permissions(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, dict.fromkeys(("same", "private", "script"), "1\n"))
    (folder / "script").chmod(0o750)
    (folder / "private").chmod(0o600)
    old = shots.take()
    untouched = (folder / "same").stat()
    (folder / "private").write_text("2\n")
    (folder / "script").chmod(0o640)
    assert shots.restore(old).written == ("private", "script")
    assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "script").stat().st_mode) == 0o750
    now = (folder / "same").stat()
    assert (now.st_ino, now.st_mtime_ns) == (untouched.st_ino, untouched.st_mtime_ns)


@pytest.mark.usefixtures("small_limit")
def test_a_restore_keeps_files_that_may_have_existed_untracked(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    files = {".gitignore": "*.env\n:odd\n", "my.env": "key\n", "large": "x" * 200, "plain": "x"}
    write_files(folder, files)
    old = shots.take()
    shots.include(["my.env", "large", "new.env", "new large"])
    (folder / "new.env").write_text("a tool made it\n")
    (folder / "new large").write_text("x" * 200)
    write_files(folder, {".gitignore": "", "my.env": "other key\n", ":odd": "x", "new": "x"})
    restored = shots.restore(old)
    assert restored.skipped == (":odd", "large", "my.env")
    assert restored.deleted == ("new", "new large", "new.env")
    assert (folder / "my.env").read_text() == "other key\n"
    assert (folder / ".gitignore").read_text() == "*.env\n:odd\n"


def test_untracked_files_that_a_restore_overwrites_are_saved_first(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "old\n", "dir/b": "old\n"})
    old = shots.take()
    write_files(folder, {"a": None, "dir": None})
    shots.take()
    files = {".gitignore": "a\ndir\n", "a": "ignored now\n", "dir": "a file in the way\n"}
    write_files(folder, files)
    now = files_of(folder)
    restored = shots.restore(old)
    assert (folder / "a").read_text() == (folder / "dir/b").read_text() == "old\n"
    shots.restore(restored.before)
    assert files_of(folder) == now


def test_files_that_a_restore_brought_back_are_deleted_by_its_undo(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"x.env": "old\n"})
    old = shots.take()
    write_files(folder, {"x.env": None, ".gitignore": "*.env\n"})
    now = files_of(folder)
    restored = shots.restore(old)
    assert restored.written == ("x.env",)
    # In another process, too: it is recorded that the ignored file did not exist.
    assert Snapshots(folder, home=shots.home).restore(restored.before).skipped == ()
    assert files_of(folder) == now


# --- errors ----------------------------------------------------------------------------------


def test_a_snapshot_of_another_machine_is_refused_in_one_line(tmp_path: Path) -> None:
    _, shots = snapshot_folder(tmp_path)
    tree = shots.take()
    for name in ("1" * 40, "--output=x", "HEAD", ""):
        with pytest.raises(BadInput, match="not on this machine") as error:
            shots.diff(tree, name)
        assert "\n" not in str(error.value)
        with pytest.raises(BadInput, match="not on this machine"):
            changed(shots, name, tree)
        with pytest.raises(BadInput, match="not on this machine"):
            shots.restore(name)


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    shots.take()
    folder.rmdir()
    with pytest.raises(StoreError, match="the working folder does not exist"):
        shots.take()


def test_without_git_there_are_no_snapshots_but_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\n")
    (tmp_path / "git").chmod(0o755)
    # A git in the project or on a relative PATH is not run.
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}.{os.pathsep}")
    monkeypatch.chdir(tmp_path)
    store = str(tmp_path / "store.db")
    with caplog.at_level(logging.WARNING, "foldmark"), opened(store, "s") as session:
        changes = FolderSnapshots(tmp_path)
        assert changes.of(session) is None
        assert changes.of(session) is None
    (warning,) = [text for text in caplog.messages if "no snapshots" in text]
    assert f"{tmp_path}/git is not run" in warning
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match="git is not installed; install it"):
        Snapshots(tmp_path)


def test_snapshots_are_private_and_by_default_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a").write_text("x")
    shots = Snapshots(folder)
    shots.include(["a"])
    shots.take()
    assert shots.home.parent == tmp_path / "data/foldmark/snapshots"
    for path in (shots.home, *shots.home.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
