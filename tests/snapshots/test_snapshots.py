"""Snapshots of a folder: what they hold, what they tell, and how they bring it back. Real git."""

import logging
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from random import Random

import pytest

from foldmark.agent.recorder import FolderSnapshots
from foldmark.errors import BadInput, StoreError
from foldmark.model.operations import FileDiff
from foldmark.snapshots.snapshots import Snapshots
from tests.support.snapshot_folders import File, calls, changed, files_of, made
from tests.support.stored_sessions import opened

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def told(diffs: tuple[FileDiff, ...]) -> list[tuple[str, str, int, int]]:
    return [(diff.file, diff.change, diff.additions, diff.deletions) for diff in diffs]


# --- what a snapshot is ----------------------------------------------------------------------


def test_a_diff_tells_what_was_added_changed_and_deleted(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "b.txt").write_text("gone\n")
    old = shots.take()
    (folder / "a.txt").write_text("one\nzwei\ndrei\n")
    (folder / "b.txt").unlink()
    (folder / "c.txt").write_text("new\n")
    new = shots.take()
    assert told(shots.diff(old, new)) == [
        ("a.txt", "changed", 2, 1),
        ("b.txt", "deleted", 0, 1),
        ("c.txt", "added", 1, 0),
    ]
    first = shots.diff(old, new)[0]
    assert (first.before, first.after) == ("one\ntwo\n", "one\nzwei\ndrei\n")
    assert changed(shots, old, new) == ("a.txt", "b.txt", "c.txt")
    assert shots.diff(old, old) == changed(shots, new, new) == ()


def test_an_empty_folder_has_a_snapshot_too(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    empty = shots.take()
    assert shots.take() == empty
    (folder / "a").write_bytes(b"")
    assert told(shots.diff(empty, shots.take())) == [("a", "added", 0, 0)]
    assert shots.restore(empty).deleted == ("a",)
    assert list(folder.iterdir()) == []


def test_a_snapshot_of_what_did_not_change_is_the_same_and_costs_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("a\n")
    tree = shots.take()
    called = calls(monkeypatch)
    assert shots.take() == tree
    (folder / "a").write_text("other\n")
    other = shots.take()
    assert other != tree
    assert called == ["ls-files", "ls-files", "update-index", "write-tree"]


def test_an_edit_of_the_same_length_right_after_a_snapshot_is_seen(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("0000")
    trees = [shots.take()]
    for number in range(1, 60):
        (folder / "a").write_text(f"{number:04}")
        trees.append(shots.take())
    assert len(set(trees)) == 60
    # Another holder begins with the same index, and sees the next edit too.
    (folder / "a").write_text("abcd")
    again = Snapshots(folder, home=shots.home)
    assert shots.diff(trees[-1], again.take())[0].after == "abcd"


def test_files_with_the_time_of_the_index_are_read_until_it_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = made(tmp_path)
    for number in range(120):
        (folder / f"{number}").write_text("same")
    tree = shots.take()
    monkeypatch.setattr("foldmark.snapshots.index._SETTLED", -60.0)  # as if a minute had passed
    called = calls(monkeypatch)
    (folder / "7").write_text("diff")
    (folder / "new").write_text("new")  # so that git scans
    assert changed(shots, tree, shots.take()) == ("7", "new")
    assert called[:2] == ["update-index", "ls-files"]
    called.clear()
    (folder / "newer").write_text("new")
    shots.take()
    assert called[0] == "ls-files"


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """New files of more than 100 bytes are left out, and longer texts not shown."""
    monkeypatch.setattr("foldmark.snapshots.rules.MAX_BYTES", 100)


# --- what is left out ------------------------------------------------------------------------


@pytest.mark.usefixtures("small_limit")
def test_ignored_and_large_files_are_left_out_unless_a_tool_wrote_them(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    (folder / "build").mkdir()
    for name in ("a.log", "build/x", "b.log"):
        (folder / name).write_text("1\n")
    (folder / "large").write_text("x" * 101)
    old = shots.take()
    shots.include(["a.log", str(folder / "large"), "build/new", "../outside", "/etc/passwd"])
    (folder / "build/new").write_text("1\n")
    new = shots.take()
    assert changed(shots, old, new) == ("a.log", "build/new", "large")
    (folder / "a.log").write_text("2\n")
    (folder / "b.log").write_text("2\n")
    newer = shots.take()
    assert changed(shots, new, newer) == ("a.log",)
    # Another process knows of them too, and one that was deleted and comes back is seen again.
    (folder / "a.log").unlink()
    other = Snapshots(folder, home=shots.home)
    without = other.take()
    assert changed(other, newer, without) == ("a.log",)
    assert shots.take() == without
    (folder / "a.log").write_text("2\n")
    assert other.take() == shots.take() == newer


@pytest.mark.usefixtures("small_limit")
def test_a_tracked_file_that_grows_stays_and_its_long_text_is_not_shown(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("x\n")
    old = shots.take()
    (folder / "a").write_text("x\n" * 60)
    diff = shots.diff(old, shots.take())[0]
    assert (diff.before, diff.after, diff.additions, diff.binary) == ("x\n", "", 59, False)


def test_the_store_and_the_home_are_left_out_where_they_lie_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "work [1]"
    folder.mkdir()
    store = folder / "a*b.db"
    shots = Snapshots(folder, home=folder / ".shots", exclude=[store])
    for name in ("a*b.db", "a*b.db-wal", "a*b.db-shm", "axb.db"):
        (folder / name).write_text("x")
    old = shots.take()
    assert shots.take() == old
    for name in ("a*b.db", "a*b.db-wal", "axb.db", "z"):
        (folder / name).write_text("yy")
    assert changed(shots, old, shots.take()) == ("axb.db", "z")
    shots.include(["a*b.db"])
    shots.restore(old)
    assert store.read_text() == "yy"
    assert (folder / ".shots/.git/HEAD").exists()


def test_what_the_project_excludes_for_itself_is_left_out(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".git/info").mkdir(exist_ok=True)
    (folder / ".git/info/exclude").write_text("private\n")
    old = shots.take()
    (folder / "private").write_text("x")
    (folder / "public").write_text("x")
    assert changed(shots, old, shots.take()) == ("public",)


# --- going back ------------------------------------------------------------------------------


def test_a_restore_can_be_taken_back(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("a\n")
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/b").write_text("b\n")
    old = shots.take()
    before = files_of(folder)
    (folder / "a").write_text("changed, and in no snapshot yet\n")
    shutil.rmtree(folder / "deep")
    (folder / "new/er").mkdir(parents=True)
    (folder / "new/er/c").write_text("c\n")
    after = files_of(folder)
    restored = shots.restore(old)
    assert (restored.written, restored.deleted) == (("a", "deep/er/b"), ("new/er/c",))
    assert files_of(folder) == before
    assert not (folder / "new").exists()
    shots.restore(restored.before)
    assert files_of(folder) == after


def test_a_restore_writes_only_what_differs_and_keeps_permissions(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    for name in ("same", "private", "script"):
        (folder / name).write_text("1\n")
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
def test_a_restore_leaves_what_may_have_been_there_unseen(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / ".gitignore").write_text("*.env\n:odd\n")
    (folder / "my.env").write_text("key\n")
    (folder / "large").write_text("x" * 200)
    (folder / "plain").write_text("x")
    old = shots.take()
    shots.include(["my.env", "large", "new.env", "new large"])
    (folder / "new.env").write_text("a tool made it\n")
    (folder / "new large").write_text("x" * 200)
    (folder / ".gitignore").write_text("")
    (folder / "my.env").write_text("other key\n")
    (folder / ":odd").write_text("x")
    (folder / "new").write_text("x")
    restored = shots.restore(old)
    assert restored.skipped == (":odd", "large", "my.env")
    assert restored.deleted == ("new", "new large", "new.env")
    assert (folder / "my.env").read_text() == "other key\n"
    assert (folder / ".gitignore").read_text() == "*.env\n:odd\n"


def test_what_a_restore_overwrites_unseen_is_remembered_first(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("old\n")
    (folder / "dir").mkdir()
    (folder / "dir/b").write_text("old\n")
    old = shots.take()
    (folder / "a").unlink()
    shutil.rmtree(folder / "dir")
    shots.take()
    (folder / ".gitignore").write_text("a\ndir\n")
    (folder / "a").write_text("ignored now\n")
    (folder / "dir").write_text("a file in the way\n")
    now = files_of(folder)
    restored = shots.restore(old)
    assert (folder / "a").read_text() == (folder / "dir/b").read_text() == "old\n"
    shots.restore(restored.before)
    assert files_of(folder) == now


def test_what_a_restore_brought_back_is_deleted_when_it_is_taken_back(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "x.env").write_text("old\n")
    old = shots.take()
    (folder / "x.env").unlink()
    (folder / ".gitignore").write_text("*.env\n")
    now = files_of(folder)
    restored = shots.restore(old)
    assert restored.written == ("x.env",)
    # In another process, too: it is noted that the file was not there, though ignored.
    assert Snapshots(folder, home=shots.home).restore(restored.before).skipped == ()
    assert files_of(folder) == now


# --- errors and means ------------------------------------------------------------------------


def test_a_snapshot_of_another_machine_is_refused_in_one_line(tmp_path: Path) -> None:
    _, shots = made(tmp_path)
    tree = shots.take()
    for name in ("1" * 40, "--output=x", "HEAD", ""):
        with pytest.raises(BadInput, match="not on this machine") as error:
            shots.diff(tree, name)
        assert "\n" not in str(error.value)
        with pytest.raises(BadInput, match="not on this machine"):
            changed(shots, name, tree)
        with pytest.raises(BadInput, match="not on this machine"):
            shots.restore(name)


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    shots.take()
    folder.rmdir()
    with pytest.raises(StoreError, match="the working folder does not exist"):
        shots.take()


def test_without_git_there_are_no_snapshots_but_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\n")
    (tmp_path / "git").chmod(0o755)
    # One that lies in the project, or is found from wherever we are, is not run.
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}.{os.pathsep}")
    monkeypatch.chdir(tmp_path)
    store = str(tmp_path / "store.db")
    with caplog.at_level(logging.WARNING, "foldmark"), opened(store, "s") as session:
        changes = FolderSnapshots(tmp_path)
        assert changes.of(session) is None
        assert changes.of(session) is None
    told = [record.message for record in caplog.records if "no snapshots" in record.message]
    assert len(told) == 1
    assert f"{tmp_path}/git is not run" in told[0]
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(StoreError, match="git is not installed; install it"):
        Snapshots(tmp_path)


def test_all_that_is_kept_is_private_and_by_default_among_the_users_data(
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


# --- by chance -------------------------------------------------------------------------------


def edit(random: Random, folder: Path) -> None:
    """Change something: a text, bytes, a link, a mode, a name, a folder."""
    name = random.choice("abcdefgh")
    path = folder / random.choice(("", "p", "p/q", "r")) / name
    if any(above.is_symlink() or above.is_file() for above in path.parents if above != folder):
        return
    kind = random.randrange(8)
    if kind == 0 and os.path.lexists(path):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == 1:
        path.unlink(missing_ok=True)
        path.symlink_to(random.choice(("a", "p", "../r", "nowhere")))
    elif kind == 2 and path.is_file() and not path.is_symlink():
        path.chmod(random.choice((0o644, 0o755)))
    elif kind == 3:
        path.unlink(missing_ok=True)
        path.mkdir()
        (path / "inner").write_bytes(random.randbytes(4))
    else:
        path.unlink(missing_ok=True)
        lines = sorted(random.sample(range(40), random.randrange(12)))
        path.write_bytes(b"".join(b"line %d\n" % line for line in lines))


def common(old: list[bytes], new: list[bytes]) -> int:
    """How many lines two texts have in common, in order."""
    row = [0] * (len(new) + 1)
    for line in old:
        above = row[:]
        for n, other in enumerate(new):
            row[n + 1] = above[n] + 1 if line == other else max(above[n + 1], row[n])
    return row[-1]


def expected(old: dict[str, File], new: dict[str, File]) -> list[FileDiff]:
    """The diff of two folders, made without git."""
    diffs: list[FileDiff] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        texts = [b"" if held is None else held[1] for held in (before, after)]
        binary = any(b"\0" in text for text in texts)
        lines = [[] if binary else re.findall(rb"[^\n]*\n|[^\n]+", text) for text in texts]
        kinds = {held[0] == "link" for held in (before, after) if held is not None}
        same = 0 if len(kinds) == 2 else common(*lines)  # of a file that became a link, nothing is
        diffs.append(
            FileDiff(
                file=name,
                before="" if binary else texts[0].decode(errors="replace"),
                after="" if binary else texts[1].decode(errors="replace"),
                additions=len(lines[1]) - same,
                deletions=len(lines[0]) - same,
                change="added" if before is None else "deleted" if after is None else "changed",
                binary=binary,
            )
        )
    return diffs


def test_diffs_and_restores_are_right_whatever_was_edited(tmp_path: Path) -> None:
    random = Random(6)  # noqa: S311 - the same edits each time
    folder, shots = made(tmp_path)
    taken = [(shots.take(), files_of(folder))]
    for _ in range(60):
        for _ in range(random.randrange(1, 6)):
            edit(random, folder)
        taken.append((shots.take(), files_of(folder)))
        (old, was), (new, now) = random.choice(taken), taken[-1]
        assert list(shots.diff(old, new)) == expected(was, now)
    assert len({tree for tree, _ in taken}) > 50
    for _ in range(25):
        tree, was = random.choice(taken)
        for _ in range(random.randrange(3)):
            edit(random, folder)
        now = files_of(folder)
        restored = shots.restore(tree)
        assert files_of(folder) == was
        assert restored.skipped == ()
        if random.random() < 0.3:
            shots.restore(restored.before)
            assert files_of(folder) == now
