"""Snapshots of a few files that are known to have changed are those that a scan would give."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from foldmark.snapshots.snapshots import Snapshots

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "a").write_text("a\n")
    return made


def test_any_row_of_changes_gives_the_tree_that_a_scan_gives(folder: Path, tmp_path: Path):
    chance = random.Random(7)  # noqa: S311 - no secret
    names = ["a", "b", "d/a", "d/e/f", "d.x", "d/e.y", "dé", "x y", "z/-q", "z/*"]
    quick = Snapshots(folder, home=tmp_path / "quick")
    quick.take()
    for _ in range(120):
        changed = chance.sample(names, chance.randint(1, 4))
        for name in changed:
            _change(folder / name, chance)
        scan = Snapshots(folder, home=tmp_path / "scan").take()
        assert quick.take_files(changed) == scan
        if chance.random() < 0.1:
            assert quick.take() == scan


def _change(place: Path, chance: random.Random) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    deed = chance.random()
    if deed < 0.25:
        place.unlink(missing_ok=True)
        return
    for above in reversed(place.parents):
        if above.is_symlink() or above.is_file():
            above.unlink()
    place.parent.mkdir(parents=True, exist_ok=True)
    if deed < 0.35:
        place.unlink(missing_ok=True)
        place.symlink_to("a")
        return
    if place.is_symlink():
        place.unlink()
    place.write_bytes(chance.randbytes(chance.randint(0, 50)))
    place.chmod(chance.choice([0o644, 0o755, 0o600]))


def test_the_repository_is_whole_by_gits_own_check(folder: Path, tmp_path: Path):
    shots = Snapshots(folder, home=tmp_path / "home")
    shots.take()
    (folder / "new").mkdir()
    (folder / "new" / "b").write_text("b\n")
    tree = shots.take_files(["new/b"])
    repository = tmp_path / "home" / "git"
    told = subprocess.run(
        ["git", f"--git-dir={repository}", "fsck", "--full", "--strict"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "error" not in told.stderr
    assert tree in told.stdout or not told.stdout  # dangling is all that it may be
    (folder / "new" / "b").unlink()
    (folder / "a").unlink()
    gone = shots.take_files(["new/b", "a"])
    assert {diff.file for diff in shots.diff(tree, gone)} == {"a", "new/b"}


def test_what_lies_behind_a_link_is_left_to_a_scan(folder: Path, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret\n")
    (folder / "link").symlink_to(tmp_path / "outside")
    shots = Snapshots(folder, home=tmp_path / "home")
    first = shots.take()
    assert shots.take_files(["link/key", "../outside/key", "/etc/passwd", ".git/config"]) == first


def test_a_file_that_is_no_file_is_left_to_a_scan(folder: Path, tmp_path: Path):
    shots = Snapshots(folder, home=tmp_path / "home")
    first = shots.take()
    os.mkfifo(folder / "pipe")
    assert shots.take_files(["pipe"]) == first


def test_what_others_changed_is_seen_by_the_next_scan(folder: Path, tmp_path: Path):
    shots = Snapshots(folder, home=tmp_path / "home")
    first = shots.take()
    (folder / "b").write_text("b\n")
    (folder / "a").write_text("other\n")
    second = shots.take_files(["b"])
    assert shots.changed(first, second) == ("b",)
    assert shots.changed(second, shots.take()) == ("a",)
