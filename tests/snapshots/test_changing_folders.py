"""A reused index gives the same snapshots as a new one, whatever was changed."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from foldmark.model.operations import FileDiff
from foldmark.snapshots.snapshots import Snapshots
from tests.support.snapshot_folders import File, changed, files_of, snapshot_folder, write_files

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

NAMES = ("a", "b", "c.log", "p/a", "p/b.log", "p/q/a", "build/a", "build/deep/a", "r/s/t", "n/a")
RULES = ("", "*.log\n", "build/\n", "*.log\nbuild\n!c.log\n", "/p/q\n", "r/s\n", "a\n", "n/\n")


# --- random edits ----------------------------------------------------------------------------


def clear_path(folder: Path, name: str) -> Path:
    """A path where a file can be write: whatever is there, or in the way, is remove."""
    path = folder / name
    for above in reversed(path.parents):
        if above.is_relative_to(folder) and (above.is_symlink() or not above.is_dir()):
            above.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(path)
    return path


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def write(random: Random, folder: Path) -> None:
    clear_path(folder, random.choice(NAMES)).write_bytes(random.randbytes(random.choice((0, 4, 4))))


def write_lines(random: Random, folder: Path) -> None:
    lines = sorted(random.sample(range(40), random.randrange(12)))
    text = "".join(f"line {line}\n" for line in lines)
    clear_path(folder, random.choice(NAMES)).write_text(text)


def rewrite(random: Random, folder: Path) -> None:
    """Rewrite a file with the same length."""
    path = folder / random.choice(NAMES)
    if path.is_file() and not path.is_symlink():
        path.write_bytes(random.randbytes(path.stat().st_size))


def replace(random: Random, folder: Path) -> None:
    """Replace a file by another with the same size and times."""
    path = folder / random.choice(NAMES)
    if path.is_file() and not path.is_symlink():
        was = path.stat()
        new = path.with_name("between")
        new.write_bytes(random.randbytes(was.st_size))
        os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
        new.rename(path)


def resize(random: Random, folder: Path) -> None:
    """Write a file above or below the limit for new files."""
    clear_path(folder, random.choice(NAMES)).write_bytes(bytes(random.choice((5, 150))))


def change_mode(random: Random, folder: Path) -> None:
    path = folder / random.choice(NAMES)
    if path.is_file() and not path.is_symlink():
        path.chmod(random.choice((0o644, 0o755, 0o600)))


def link(random: Random, folder: Path) -> None:
    target = random.choice(("a", "p", "../r", "nowhere"))
    clear_path(folder, random.choice(("a", "p", "p/q", "r/s", "build"))).symlink_to(target)


def delete(random: Random, folder: Path) -> None:
    remove(folder / random.choice((*NAMES, "p", "p/q", "build", "r", "n", ".gitignore")))


def replace_folder_by_file(random: Random, folder: Path) -> None:
    clear_path(folder, random.choice(("p", "p/q", "build", "r/s"))).write_text("no folder\n")


def replace_file_by_folder(random: Random, folder: Path) -> None:
    path = clear_path(folder, random.choice(("a", "c.log", "p/a", "build", "empty/er")))
    path.mkdir()
    if random.random() < 0.5:
        (path / random.choice(("in", "in.log"))).write_bytes(random.randbytes(3))


def fill_folder(random: Random, folder: Path) -> None:
    """Write a file into a folder without tracked files."""
    path = folder / random.choice(("empty/er", "empty", "build", "r")) / "late"
    if path.parent.is_dir() and not path.parent.is_symlink():
        remove(path)
        path.write_bytes(random.randbytes(3))


def change_rules(random: Random, folder: Path) -> None:
    name = random.choice((".gitignore", ".gitignore", "p/.gitignore", "build/.gitignore"))
    clear_path(folder, name).write_text(random.choice(RULES))


def change_excludes(random: Random, folder: Path) -> None:
    write_files(folder, {".git/info/exclude": random.choice(RULES)})


def toggle_repository(random: Random, folder: Path) -> None:
    """Create a repository within the folder, or remove its .git folder."""
    path = folder / random.choice(("n", "p", "hollow"))
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        return
    if (path / ".git").exists():
        shutil.rmtree(path / ".git")
    else:
        subprocess.run(["git", "init", "-q", path], check=True)


def make_pipe(random: Random, folder: Path) -> None:
    os.mkfifo(clear_path(folder, random.choice(("a", "pipe", "p/b.log"))))


COMMON = (rewrite, rewrite, replace, change_mode, write, delete)
RARE = (
    *(resize, link, replace_folder_by_file, replace_file_by_folder, fill_folder),
    *(change_rules, change_excludes, toggle_repository, make_pipe),
)
Edit = Callable[[Random, Path], None]
# Edits after which no file is ignored or too large.
UNIGNORED: tuple[Edit, ...] = (
    *(write, write_lines, rewrite, replace, change_mode, delete, link),
    *(replace_folder_by_file, replace_file_by_folder),
)


@pytest.mark.parametrize("seed", range(4))
def test_a_reused_index_always_gives_the_tree_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("foldmark.snapshots.rules.MAX_BYTES", 100)
    random = Random(seed)  # noqa: S311 - the same edits each time
    folder, shots = snapshot_folder(tmp_path)
    for name in NAMES:
        clear_path(folder, name).write_text("1234")
    other = Snapshots(folder, home=shots.home)  # as another process would
    for number in range(50):
        edits: list[Edit] = [random.choice(COMMON) for _ in range(random.choice((0, 1, 1, 2)))]
        if random.random() < 0.3:
            edits.append(random.choice(RARE))
        for edit in edits:
            edit(random, folder)
        new = Snapshots(folder, home=tmp_path / "other")
        if random.random() < 0.15:
            name = random.choice(NAMES)
            assert shots.include([name]) == new.include([name])
        tree = (other if random.random() < 0.2 else shots).take()
        assert tree == new.take(), (number, [edit.__name__ for edit in edits])


def common(old: list[bytes], new: list[bytes]) -> int:
    """The length of the longest common subsequence of lines."""
    row = [0] * (len(new) + 1)
    for line in old:
        above = row[:]
        for n, other in enumerate(new):
            row[n + 1] = above[n] + 1 if line == other else max(above[n + 1], row[n])
    return row[-1]


def expected(old: dict[str, File], new: dict[str, File]) -> list[FileDiff]:
    """The diff of two folders, computed without git."""
    diffs: list[FileDiff] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        texts = [b"" if file is None else file[1] for file in (before, after)]
        binary = any(b"\0" in text for text in texts)
        lines = [[] if binary else re.findall(rb"[^\n]*\n|[^\n]+", text) for text in texts]
        kinds = {file[0] == "link" for file in (before, after) if file is not None}
        same = 0 if len(kinds) == 2 else common(*lines)  # nothing is common if a file became a link
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


def test_diffs_and_restores_are_right_after_random_edits(tmp_path: Path) -> None:
    random = Random(6)  # noqa: S311 - the same edits each time
    folder, shots = snapshot_folder(tmp_path, dict.fromkeys(NAMES, "1234\n"))
    snapshots = [(shots.take(), files_of(folder))]
    for _ in range(60):
        for _ in range(random.randrange(1, 6)):
            random.choice(UNIGNORED)(random, folder)
        snapshots.append((shots.take(), files_of(folder)))
        (old, was), (new, now) = random.choice(snapshots), snapshots[-1]
        assert list(shots.diff(old, new)) == expected(was, now)
    assert len({tree for tree, _ in snapshots}) > 50
    for _ in range(25):
        tree, was = random.choice(snapshots)
        for _ in range(random.randrange(3)):
            random.choice(UNIGNORED)(random, folder)
        now = files_of(folder)
        restored = shots.restore(tree)
        assert files_of(folder) == was
        assert restored.skipped == ()
        if random.random() < 0.3:
            shots.restore(restored.before)
            assert files_of(folder) == now


# --- single cases ----------------------------------------------------------------------------


def test_a_deleted_file_that_comes_back_ignored_is_not_tracked(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, dict.fromkeys(("a.log", "b"), "1\n"))
    tree = shots.take()
    (folder / ".gitignore").write_text("*.log\n")
    assert changed(shots, tree, shots.take()) == (".gitignore",)
    (folder / "a.log").unlink()
    without = shots.take()
    (folder / "a.log").write_text("1\n")
    assert shots.take() == without


def test_a_new_file_in_an_empty_folder_is_tracked(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "1\n"})
    (folder / "empty/er").mkdir(parents=True)
    tree = shots.take()
    (folder / "empty/er/b").write_text("1\n")
    assert changed(shots, tree, shots.take()) == ("empty/er/b",)


def test_an_included_file_that_another_process_removed_from_the_index_comes_back(
    tmp_path: Path,
) -> None:
    folder, shots = snapshot_folder(tmp_path, {".gitignore": "*.log\n"})
    shots.include(["a.log"])
    (folder / "a.log").write_text("1\n")
    tree = shots.take()
    (folder / "a.log").unlink()
    Snapshots(folder, home=shots.home).take()
    (folder / "a.log").write_text("1\n")
    assert shots.take() == tree


def test_excludes_of_one_process_do_not_affect_another(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "1\n"})
    other = Snapshots(folder, home=shots.home, exclude=[folder / "b"])
    tree = other.take()
    (folder / "b").write_text("1\n")
    whole = shots.take()
    assert changed(shots, tree, whole) == ("b",)
    assert (other.take(), shots.take()) == (tree, whole)
