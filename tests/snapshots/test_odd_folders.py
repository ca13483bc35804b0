"""Snapshots of unusual folders: odd names, links, nested repositories, concurrency, kills."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from foldmark.model.operations import FileDiff
from foldmark.model.values import encode
from foldmark.snapshots.restore import delete_file, place_file
from foldmark.snapshots.snapshots import Snapshots
from tests.support.snapshot_folders import (
    changed,
    files_of,
    git_calls,
    snapshot_folder,
    write_files,
)

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

KILLS = 15
ODD = (
    *(b" a b ", b'"quoted"', b"it's", b"new\nline", b"tab\tbed", b"\xff\xfe not utf-8"),
    *("gr\u00fc\u00df dich \u2603".encode(), b"-rf", b"--help", b"*", b"[ab]?", b"back\\slash"),
    *(b":colon", b"#hash", b"!bang", b"Case", b"case", b"trailing.", b"\x1b[31mred", b"git~1"),
)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    """A repository with one commit of the file `f`."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    (folder / "f").write_text("first\n")
    git(folder, "add", "f")
    git(folder, "commit", "-qm", "first")
    return folder


# --- names and kinds -------------------------------------------------------------------------


def test_odd_names_are_listed_and_restored(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    empty = shots.take()
    root = os.fsencode(folder)
    for name in ODD:
        Path(os.fsdecode(root + b"/" + name)).write_bytes(name)
        Path(os.fsdecode(root + b"/dir" + name)).mkdir()
        Path(os.fsdecode(root + b"/dir" + name + b"/" + name)).write_bytes(name)
    full, there = shots.take(), files_of(folder)
    assert len(there) == 2 * len(ODD)
    diffs = shots.diff(empty, full)
    assert {diff.file for diff in diffs} == set(there)
    assert all(diff.after == there[diff.file][1].decode(errors="replace") for diff in diffs)
    assert b"not utf-8" in encode(diffs)
    shots.restore(empty)
    assert list(folder.iterdir()) == []
    shots.restore(full)
    assert files_of(folder) == there


def test_bytes_are_stored_unchanged_whatever_attributes_say(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    git(folder, "init", "-q")
    for name in ("clean", "smudge"):
        git(folder, "config", f"filter.evil.{name}", f"touch {tmp_path}/ran; cat")
    git(folder, "config", "core.autocrlf", "true")
    (folder / ".gitattributes").write_text(
        "* text=auto eol=crlf ident filter=evil diff=evil\n*.u16 working-tree-encoding=UTF-16\n"
        "*.txt -diff binary\n"
    )
    write_files(folder, {"a.txt": b"one\r\ntwo\n$Id$\n", "b.u16": "h\u00e9llo".encode("utf-16")})
    tree, there = shots.take(), files_of(folder)
    write_files(folder, {"a.txt": b"one\ntwo\n$Id: x$\n", "b.u16": None})
    text, wide = shots.diff(tree, shots.take())
    assert (text.before, text.additions, text.binary) == ("one\r\ntwo\n$Id$\n", 2, False)
    assert (wide.before, wide.additions, wide.deletions, wide.binary) == ("", 0, 0, True)
    shots.restore(tree)
    assert files_of(folder) == there
    assert not (tmp_path / "ran").exists()


def test_settings_of_the_project_and_the_user_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    repository(folder)
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(evil))
    hooks = folder / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    shutil.copy(evil, hooks / "post-index-change")
    config = f"fsmonitor = {evil}\n\thooksPath = {hooks}\n\texcludesFile = {tmp_path}/all\n"
    write_files(tmp_path, {".gitconfig": f"[core]\n\t{config}", "all": "*\n", "git/ignore": "*\n"})
    for name, value in {
        "HOME": tmp_path,
        "XDG_CONFIG_HOME": tmp_path,
        "GIT_EXTERNAL_DIFF": evil,
        "GIT_DIR": folder / ".git",
        "GIT_INDEX_FILE": folder / ".git/index",
        "GIT_CONFIG_COUNT": 1,
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": evil,
    }.items():
        monkeypatch.setenv(name, str(value))
    index = (folder / ".git/index").read_bytes()
    shots = Snapshots(folder, home=tmp_path / "home")
    old = shots.take()
    (folder / "g").write_text("new\n")
    assert [diff.file for diff in shots.diff(old, shots.take())] == ["g"]
    shots.restore(old)
    assert not (tmp_path / "ran").exists()
    assert (folder / ".git/index").read_bytes() == index


def test_links_are_stored_as_links_and_never_followed(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"dir/b": "inside\n", "link": Path("dir/b")})
    outside = tmp_path / "outside"
    write_files(outside, {"b": "outside\n"})
    tree, there = shots.take(), files_of(folder)
    assert there["link"] == ("link", b"dir/b")
    # The folder becomes a link to another one with a file of the same name.
    write_files(folder, {"dir": None, "link": None})
    write_files(folder, {"dir": outside, "link": "no link\n"})
    linked = shots.take()
    assert changed(shots, tree, linked) == ("dir", "dir/b", "link")
    write_files(outside, {"b": "other\n", "c": "more\n"})
    assert shots.take() == linked
    shots.include(["dir/c", str(outside / "c")])
    assert shots.take() == linked
    restored = shots.restore(tree)
    assert files_of(folder) == there
    assert files_of(outside) == {"b": ("plain", b"other\n"), "c": ("plain", b"more\n")}
    shots.restore(restored.before)
    assert (folder / "dir").is_symlink()
    assert (outside / "b").read_text() == "other\n"


def test_an_ignored_link_is_not_written_through(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"dir/b": "inside\n"})
    outside = tmp_path / "outside"
    outside.mkdir()
    tree = shots.take()
    write_files(folder, {"dir": None, ".gitignore": "dir\n"})
    write_files(folder, {"dir": outside})
    shots.restore(tree)
    assert files_of(folder) == {"dir/b": ("plain", b"inside\n")}
    assert list(outside.iterdir()) == []


def test_files_are_not_written_or_deleted_through_a_link(tmp_path: Path) -> None:
    folder, outside = tmp_path / "work", tmp_path / "outside"
    write_files(tmp_path, {"outside/a": "outside\n", "work/dir": outside})
    for path in (b"dir/a", b"dir/b", b"dir/c/d"):
        with pytest.raises(OSError, match="dir"):
            place_file(folder, path, "100644", b"x")
        with pytest.raises(OSError, match="dir"):
            delete_file(folder, path)
    assert files_of(outside) == {"a": ("plain", b"outside\n")}


def test_files_and_folders_may_replace_each_other(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "file\n", "b/c": "inner\n"})
    tree, there = shots.take(), files_of(folder)
    write_files(folder, {"a": None, "b": None})
    write_files(folder, {"a/deep/x": "x\n", "b": "file\n"})
    other, now = shots.take(), files_of(folder)
    assert changed(shots, tree, other) == ("a", "a/deep/x", "b", "b/c")
    (folder / "a/empty/er").mkdir(parents=True)
    shots.restore(tree)
    assert files_of(folder) == there
    shots.restore(other)
    assert files_of(folder) == now


def test_a_folder_with_untracked_files_is_not_replaced(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "file\n"})
    tree = shots.take()
    write_files(folder, {"a": None, ".gitignore": "unseen\n", "a/unseen": "precious\n"})
    restored = shots.restore(tree)
    assert restored.skipped == ("a",)
    assert (folder / "a/unseen").read_text() == "precious\n"


def test_files_that_git_cannot_store_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("pipe", "was", "mods/.gitmodules")
    folder, shots = snapshot_folder(tmp_path, dict.fromkeys(names, "file\n"))
    tree = shots.take()
    write_files(folder, dict.fromkeys(names))
    write_files(folder, {"mods/.gitmodules": Path("elsewhere"), ".GIT/config": "x"})
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        home = Path.cwd()
        os.chdir(folder)  # the address of a socket must be short
        try:
            server.bind("was")
        finally:
            os.chdir(home)
        without = shots.take()
        assert changed(shots, tree, without) == ("mods/.gitmodules", "pipe", "was")
        commands = git_calls(monkeypatch)
        assert shots.take() == without
        assert commands == ["ls-files"]


def test_a_path_that_git_refuses_does_not_stop_the_others(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"b": "b\n"})
    (folder / "a folder").mkdir()
    tree = shots.take()
    (folder / "b").write_text("c\n")
    index = shots._index  # pyright: ignore[reportPrivateUsage]
    with index.hold_lock():
        index.put([b"a folder", b"b"])
        now = index.tree()
    assert changed(shots, tree, now) == ("b",)


UNREADABLE = """
import os, sys
from pathlib import Path
from foldmark.snapshots.snapshots import Snapshots
if os.geteuid() == 0:  # root may read everything
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
os.chdir("/")
folder = Path(sys.argv[1]) / "work"
folder.mkdir()
for name in ("open", "closed", "later"):
    (folder / name).write_text("1\\n")
(folder / "closed").chmod(0)
(folder / "shut").mkdir(0)
(folder / "dir").mkdir()
(folder / "dir/kept").write_text("1\\n")
shots = Snapshots(folder, home=folder.parent / "home")
old = shots.take()
(folder / "later").write_text("22\\n")
(folder / "later").chmod(0)
(folder / "open").write_text("22\\n")
(folder / "dir").chmod(0)
print(*(diff.file for diff in shots.diff(old, shots.take())))
(folder / "later").chmod(0o600)
(folder / "closed").chmod(0o600)
(folder / "dir").chmod(0o700)
print(*(diff.file for diff in shots.diff(old, shots.take())))
"""


def test_unreadable_files_are_left_out_until_they_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o777)
        command = [sys.executable, "-c", UNREADABLE, parent]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        shut = Path(parent) / "work/shut"
        if shut.exists():
            shut.chmod(0o700)
    assert run.stdout.splitlines() == ["open", "closed later open"], run.stderr


# --- repositories ----------------------------------------------------------------------------


def test_files_of_nested_repositories_are_ordinary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shots = snapshot_folder(tmp_path)
    nothing = shots.take()
    repository(folder)
    other = repository(tmp_path / "other")
    git(folder, "clone", "-q", str(other), "cloned")
    git(folder, "submodule", "add", "-q", str(other), "libs/module")
    git(other, "worktree", "add", "-q", str(folder / "tree"))
    repository(folder / "cloned/inner")
    (folder / "cloned/.gitignore").write_text("*.o\n")
    (folder / "cloned/x.o").write_text("object\n")
    (folder / "hollow").mkdir()
    git(folder / "hollow", "init", "-q")
    tree, there = shots.take(), files_of(folder)
    del there["cloned/x.o"]
    assert set(changed(shots, nothing, tree)) == set(there)
    nested = ("cloned/f", "cloned/inner/f", "libs/module/f", "tree/f")
    for name in nested:
        (folder / name).write_text("second\n")
    write_files(folder, {"hollow/new": "new\n", "cloned/new": "new\n"})
    newer = shots.take()
    assert changed(shots, tree, newer) == tuple(sorted((*nested, "hollow/new", "cloned/new")))
    commands = git_calls(monkeypatch)
    assert shots.take() == newer
    assert commands == ["ls-files"]
    restored = shots.restore(tree)
    del (now := files_of(folder))["cloned/x.o"]
    assert now == there
    assert (folder / "cloned/.git").is_dir()
    assert shots.restore(restored.before).skipped == ()
    assert shots.take() == newer


def test_a_worktree_and_a_folder_in_a_repository_are_ordinary_folders(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    (main / "sub").mkdir()
    for number, folder in enumerate((tmp_path / "tree", main / "sub")):
        shots = Snapshots(folder, home=tmp_path / f"home{number}")
        old = shots.take()
        (folder / "g").write_text("new\n")
        diff = FileDiff(
            file="g", before="", after="new\n", additions=1, deletions=0, change="added"
        )
        assert shots.diff(old, shots.take()) == (diff,)
        shots.restore(old)
        assert not (folder / "g").exists()


def test_many_files_are_restored(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    for number in range(600):
        (folder / f"{number}").write_text(f"{number}\n")
    tree, there = shots.take(), files_of(folder)
    shutil.rmtree(folder)
    folder.mkdir()
    assert len(shots.restore(tree).written) == 600
    assert files_of(folder) == there


def test_a_forked_child_and_its_parent_share_the_index(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "a\n"})
    tree = shots.take()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (folder / "a").write_text("b\n")
            code = 0 if shots.take() != tree else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert changed(shots, tree, shots.take()) == ("a",)


# --- concurrency and kills -------------------------------------------------------------------

LOOP = """
import sys
from pathlib import Path
from foldmark.snapshots.snapshots import Snapshots
folder, home = Path(sys.argv[1]), Path(sys.argv[2])
for number in range(100_000):
    for name in "abc":
        (folder / sys.argv[3] / f"{name}{number % 7}").write_text(f"{name} {number}\\n")
    if number % 5 == 0:
        shots = Snapshots(folder, home=home)
    print(shots.take(), flush=True)
"""


def start_loop(
    folder: Path, home: Path, name: str, path: str = os.environ["PATH"]
) -> subprocess.Popen[bytes]:
    (folder / name).mkdir(exist_ok=True)
    command = [sys.executable, "-c", LOOP, str(folder), str(home), name]
    environment = {**os.environ, "PATH": path}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, start_new_session=True, env=environment
    )


def test_snapshots_are_right_after_a_kill_at_any_moment(tmp_path: Path) -> None:
    random = Random(15)  # noqa: S311 - test data
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    for _ in range(KILLS):
        with start_loop(folder, home, "v") as victim:
            assert victim.stdout is not None
            victim.stdout.readline()
            time.sleep(random.random() * 0.08)
            os.killpg(victim.pid, signal.SIGKILL)  # with the git that it may have started
            acknowledged = victim.stdout.read().split()
        shots = Snapshots(folder, home=home)
        tree = shots.take()
        empty = tmp_path / "empty"
        shutil.copytree(folder, empty)
        fresh = Snapshots(empty, home=tmp_path / f"fresh-{random.random()}")
        assert fresh.take() == tree
        shutil.rmtree(empty)
        for old in acknowledged[-1:]:
            whole = old.decode()
            if len(whole) == 40:
                shots.diff(whole, tree)


def test_processes_and_threads_take_snapshots_at_the_same_time(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    with start_loop(folder, shots.home, "one") as one, start_loop(folder, shots.home, "two") as two:
        try:
            with ThreadPoolExecutor(4) as pool:
                trees = [pool.submit(shots.take) for _ in range(40)]
            assert all(len(tree.result()) == 40 for tree in trees)
            for process in (one, two):
                assert process.stdout is not None
                assert len(process.stdout.readline()) == 41
                assert process.poll() is None
        finally:
            one.kill()
            two.kill()
    assert Snapshots(folder, home=shots.home).take() == shots.take()


SLOW_GIT = """#!/bin/sh
case "$1" in
  update-index) touch "{folder}/started"; sleep 2; touch "{folder}/ended";;
esac
exec {git} "$@"
"""


def test_a_git_call_of_a_dead_process_is_waited_for(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path)
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text(SLOW_GIT.format(folder=tmp_path, git=shutil.which("git")))
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    with start_loop(folder, shots.home, "v", path) as victim:
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        victim.kill()  # but not the git that it has started
    tree = shots.take()
    assert (tmp_path / "ended").exists()
    assert Snapshots(folder, home=tmp_path / "fresh").take() == tree


def test_a_locked_or_damaged_index_of_a_dead_git_is_repaired(tmp_path: Path) -> None:
    folder, shots = snapshot_folder(tmp_path, {"a": "x"})
    tree = shots.take()
    index = shots.home / ".git/index"
    for damage in (
        lambda: index.with_name("index.lock").write_bytes(b""),
        lambda: index.write_bytes(b"DIRC"),
        index.unlink,
        lambda: index.write_bytes(b"nonsense" * 20),
        lambda: shutil.rmtree(shots.home / ".git/objects" / tree[:2]),
    ):
        damage()
        (folder / "a").write_text("y")
        assert shots.take() != tree
        (folder / "a").write_text("x")
        assert shots.take() == tree
