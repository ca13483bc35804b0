"""Names that a model gives, and the real paths that are made of them."""

import os
from pathlib import Path

import pytest

from foldmark.agent.tool import ToolRefusal
from foldmark.agent.tools.paths import WorkingFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with links of every kind, and something outside to lead to."""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret.txt").write_text("secret")
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "src" / "a.py").write_text("a")
    (tmp_path / "work-not").mkdir()
    (tmp_path / "work-not" / "x").write_text("")
    for name, target in {
        "out": "../outside",
        "file-out": "../outside/secret.txt",
        "dangling-out": "../outside/nothing/yet",
        "dangling-in": "src/nothing",
        "in": "src",
        "chain1": "chain2",
        "chain2": "src/chain3",
        "src/chain3": "../out",
        "absolute": str(outside),
        "ring1": "ring2",
        "ring2": "ring1",
        "root": "/",
    }.items():
        (work / name).symlink_to(target)
    return work


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//a.py", "src/a.py"),
        ("src/../src/a.py", "src/a.py"),
        ("src/deep/../a.py", "src/a.py"),
        ("in/a.py", "src/a.py"),
        ("dangling-in", "src/nothing"),
        ("new/folders/file", "new/folders/file"),
        (".", "."),
        ("-rf", "-rf"),
        ("a b'c\"d", "a b'c\"d"),
        ("ünï/日本", "ünï/日本"),
        ("*", "*"),
        ("$HOME", "$HOME"),
        ("file:///etc/passwd", "file:/etc/passwd"),
        ("src/~x", "src/~x"),
        ("caf\udce9", "caf\udce9"),
        (".gitignore", ".gitignore"),
    ],
)
def test_what_lies_inside_is_found_by_its_real_path(folder: Path, name: str, real: str) -> None:
    for writing in (False, True):
        found = WorkingFolder(folder=folder).inside(name, writing=writing)
        assert found == folder / real
        assert WorkingFolder(folder=folder).display(found) == real
    assert (
        WorkingFolder(folder=folder).inside(str(folder / "src" / "a.py")) == folder / "src" / "a.py"
    )


ESCAPES = (
    *("..", "../outside/secret.txt", "src/../../outside", "a/../../x", "src/deep/../../../x"),
    *("/etc/passwd", "/", "//etc/passwd", "/proc/self/environ", "../work-not/x", "../work/../x"),
    *("out", "out/secret.txt", "out/new", "file-out", "dangling-out", "dangling-out/more"),
    *("chain1", "chain1/secret.txt", "absolute/secret.txt", "root/etc/passwd", "in/../out"),
    *("in/../../outside/secret.txt", "src/chain3/deep/../../x", "nothing/../../outside"),
)
NONSENSE = (
    *("", " ", "\n", "\t", "a\0b", "\0", "a\nb", "a\x1b[31m", "a\x7f", "a\x9b1m", "a\rb"),
    *("~", "~/x", "~root/x", "ring1", "ring1/x", "x" * 5_000, "\ud800", "a\ud83dz"),
)


@pytest.mark.parametrize("name", [*ESCAPES, *NONSENSE])
def test_what_leads_outside_or_nowhere_is_refused_in_one_line(folder: Path, name: str) -> None:
    for writing in (False, True):
        with pytest.raises(ToolRefusal) as caught:
            WorkingFolder(folder=folder).inside(name, writing=writing)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


def test_the_folder_itself_may_be_reached_by_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("work")
    assert WorkingFolder(folder=tmp_path / "link").inside("src/a.py") == folder / "src" / "a.py"
    assert WorkingFolder(folder=tmp_path / "link").display(folder / "src") == "src"
    secret = tmp_path / "outside" / "secret.txt"
    assert WorkingFolder(folder=folder).display(secret) == str(secret)


@pytest.mark.parametrize(
    "name",
    [
        *(".git", ".git/config", ".GIT/hooks/x", "sub/.git/config", "sub/.Git", "src/../.git/x"),
        *(".git./config", ".git /config", ".g\u200cit/config", "GIT~1/config"),
    ],
)
def test_nothing_is_written_in_a_git_folder(folder: Path, name: str) -> None:
    assert WorkingFolder(folder=folder).inside(name)
    with pytest.raises(ToolRefusal, match="not written to"):
        WorkingFolder(folder=folder).inside(name, writing=True)


def test_a_link_into_a_git_folder_is_no_way_around(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / "innocent").symlink_to(".git")
    with pytest.raises(ToolRefusal, match="not written to"):
        WorkingFolder(folder=folder).inside("innocent/config", writing=True)


@pytest.mark.parametrize(
    "name", ["s.db", "s.db-wal", "s.db-shm", "in/../s.db", "to-store", "own/x"]
)
def test_what_is_guarded_is_not_touched(folder: Path, name: str) -> None:
    (folder / "to-store").symlink_to("s.db")
    places = WorkingFolder(folder=folder, guarded=(folder / "s.db", folder / "own"))
    for writing in (False, True):
        with pytest.raises(ToolRefusal, match="session's own"):
            places.inside(name, writing=writing)
    assert places.inside("s.dbx")


def test_a_file_has_one_subject_however_it_is_named(folder: Path) -> None:
    places = WorkingFolder(folder=folder)
    names = ("src/a.py", "./src/a.py", "in/a.py", str(folder / "src/a.py"), "src/deep/../a.py")
    assert {places.subject(name) for name in names} == {"src/a.py"}
    assert places.subject("src/../../x") == "../x"
    assert places.subject(None) == ""


def test_a_link_that_is_put_there_after_the_check_leads_nowhere(
    folder: Path, tmp_path: Path
) -> None:
    places = WorkingFolder(folder=folder)
    found = places.inside("src/deep/new.txt", writing=True)
    (folder / "src" / "deep").rmdir()
    (folder / "src" / "deep").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"(?i)not a directory|symbolic"), places.parent(found):
        pytest.fail("the link was followed")
    assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == ["deep", "secret.txt"]


def test_folders_on_the_way_are_made_when_they_are_wanted(folder: Path) -> None:
    places = WorkingFolder(folder=folder)
    found = places.inside("one/two/three.txt", writing=True)
    with pytest.raises(FileNotFoundError), places.parent(found):
        pytest.fail("there is no such folder")
    with places.parent(found, make=True) as number:
        assert os.path.samestat(os.fstat(number), (folder / "one" / "two").stat())
