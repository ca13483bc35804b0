"""Snapshots by an index that is kept are those that a new index gives, whatever was changed."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from foldmark.snapshots.snapshots import Snapshots
from tests.support.snapshot_folders import changed, made

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

NAMES = ("a", "b", "c.log", "p/a", "p/b.log", "p/q/a", "build/a", "build/deep/a", "r/s/t", "n/a")
RULES = ("", "*.log\n", "build/\n", "*.log\nbuild\n!c.log\n", "/p/q\n", "r/s\n", "a\n", "n/\n")


# --- by chance -------------------------------------------------------------------------------


def cleared(folder: Path, name: str) -> Path:
    """A place where a file can be written: what stands there, or on the way, is removed."""
    path = folder / name
    for above in reversed(path.parents):
        if above.is_relative_to(folder) and (above.is_symlink() or not above.is_dir()):
            above.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    removed(path)
    return path


def removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def written(chance: Random, folder: Path) -> None:
    cleared(folder, chance.choice(NAMES)).write_bytes(chance.randbytes(chance.choice((0, 4, 4))))


def rewritten(chance: Random, folder: Path) -> None:
    """The same file, as long as before."""
    path = folder / chance.choice(NAMES)
    if path.is_file() and not path.is_symlink():
        path.write_bytes(chance.randbytes(path.stat().st_size))


def replaced(chance: Random, folder: Path) -> None:
    """Another file, with the size and the times of the one before."""
    path = folder / chance.choice(NAMES)
    if path.is_file() and not path.is_symlink():
        was = path.stat()
        new = path.with_name("between")
        new.write_bytes(chance.randbytes(was.st_size))
        os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
        new.rename(path)


def grown(chance: Random, folder: Path) -> None:
    """Too large for a new file, or so no more."""
    cleared(folder, chance.choice(NAMES)).write_bytes(bytes(chance.choice((5, 150))))


def run_by_all(chance: Random, folder: Path) -> None:
    path = folder / chance.choice(NAMES)
    if path.is_file() and not path.is_symlink():
        path.chmod(chance.choice((0o644, 0o755, 0o600)))


def linked(chance: Random, folder: Path) -> None:
    target = chance.choice(("a", "p", "../r", "nowhere"))
    cleared(folder, chance.choice(("a", "p", "p/q", "r/s", "build"))).symlink_to(target)


def deleted(chance: Random, folder: Path) -> None:
    removed(folder / chance.choice((*NAMES, "p", "p/q", "build", "r", "n", ".gitignore")))


def file_for_folder(chance: Random, folder: Path) -> None:
    cleared(folder, chance.choice(("p", "p/q", "build", "r/s"))).write_text("no folder\n")


def folder_for_file(chance: Random, folder: Path) -> None:
    path = cleared(folder, chance.choice(("a", "c.log", "p/a", "build", "empty/er")))
    path.mkdir()
    if chance.random() < 0.5:
        (path / chance.choice(("in", "in.log"))).write_bytes(chance.randbytes(3))


def filled(chance: Random, folder: Path) -> None:
    """Something in a folder that held nothing, or nothing to be held."""
    path = folder / chance.choice(("empty/er", "empty", "build", "r")) / "late"
    if path.parent.is_dir() and not path.parent.is_symlink():
        removed(path)
        path.write_bytes(chance.randbytes(3))


def ruled(chance: Random, folder: Path) -> None:
    name = chance.choice((".gitignore", ".gitignore", "p/.gitignore", "build/.gitignore"))
    cleared(folder, name).write_text(chance.choice(RULES))


def excluded(chance: Random, folder: Path) -> None:
    place = folder / ".git/info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "exclude").write_text(chance.choice(RULES))


def nested(chance: Random, folder: Path) -> None:
    """A repository within the folder, or one that is no more."""
    path = folder / chance.choice(("n", "p", "hollow"))
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        return
    if (path / ".git").exists():
        shutil.rmtree(path / ".git")
    else:
        subprocess.run(["git", "init", "-q", path], check=True)


def odd(chance: Random, folder: Path) -> None:
    os.mkfifo(cleared(folder, chance.choice(("a", "pipe", "p/b.log"))))


COMMON = (rewritten, rewritten, replaced, run_by_all, written, deleted)
RARE = (grown, linked, file_for_folder, folder_for_file, filled, ruled, excluded, nested, odd)
Deed = Callable[[Random, Path], None]


@pytest.mark.parametrize("seed", range(4))
def test_at_any_moment_a_kept_index_gives_the_tree_that_a_new_one_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("foldmark.snapshots.rules.MAX_BYTES", 100)
    chance = Random(seed)  # noqa: S311 - the same edits each time
    folder, shots = made(tmp_path)
    for name in NAMES:
        cleared(folder, name).write_text("1234")
    other = Snapshots(folder, home=shots.home)  # as another process would
    for number in range(50):
        deeds: list[Deed] = [chance.choice(COMMON) for _ in range(chance.choice((0, 1, 1, 2)))]
        if chance.random() < 0.3:
            deeds.append(chance.choice(RARE))
        for deed in deeds:
            deed(chance, folder)
        new = Snapshots(folder, home=tmp_path / "other")
        if chance.random() < 0.15:
            name = chance.choice(NAMES)
            assert shots.include([name]) == new.include([name])
        tree = (other if chance.random() < 0.2 else shots).take()
        assert tree == new.take(), (number, [deed.__name__ for deed in deeds])


# --- one by one ------------------------------------------------------------------------------


def test_what_is_gone_and_comes_back_ignored_is_not_held(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    for name in ("a.log", "b"):
        (folder / name).write_text("1\n")
    tree = shots.take()
    (folder / ".gitignore").write_text("*.log\n")
    assert changed(shots, tree, shots.take()) == (".gitignore",)
    (folder / "a.log").unlink()
    without = shots.take()
    (folder / "a.log").write_text("1\n")
    assert shots.take() == without


def test_a_new_file_in_a_folder_that_held_nothing_is_seen(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("1\n")
    (folder / "empty/er").mkdir(parents=True)
    tree = shots.take()
    (folder / "empty/er/b").write_text("1\n")
    assert changed(shots, tree, shots.take()) == ("empty/er/b",)


def test_what_another_process_took_out_of_the_index_comes_back_with_its_file(
    tmp_path: Path,
) -> None:
    folder, shots = made(tmp_path)
    (folder / ".gitignore").write_text("*.log\n")
    shots.include(["a.log"])
    (folder / "a.log").write_text("1\n")
    tree = shots.take()
    (folder / "a.log").unlink()
    Snapshots(folder, home=shots.home).take()
    (folder / "a.log").write_text("1\n")
    assert shots.take() == tree


def test_what_one_leaves_out_is_not_in_the_snapshots_of_another(tmp_path: Path) -> None:
    folder, shots = made(tmp_path)
    (folder / "a").write_text("1\n")
    other = Snapshots(folder, home=shots.home, exclude=[folder / "b"])
    tree = other.take()
    (folder / "b").write_text("1\n")
    whole = shots.take()
    assert changed(shots, tree, whole) == ("b",)
    assert (other.take(), shots.take()) == (tree, whole)
