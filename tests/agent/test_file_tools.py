"""The tools that read, write, edit and find files, in a real folder."""

import base64
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldmark
from foldmark.agent.function_tools import toolset
from foldmark.agent.permissions import PermissionGate, Permissions, Rule
from foldmark.agent.tool import ToolOutput
from foldmark.agent.tools.files import file_tools
from foldmark.agent.tools.find import search_tools
from foldmark.agent.tools.grep import name_matcher
from foldmark.agent.tools.paths import WorkingFolder
from foldmark.agent.tools.workspace import DEFAULT_RULES, todo_tool, workspace_tools
from foldmark.errors import BadInput
from tests.support.stored_sessions import opened
from tests.support.tool_calls import context_of, run

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Desk:
    """A folder with its tools, which are called as a loop calls them."""

    def __init__(self, session: foldmark.Session, folder: Path, **more: Any) -> None:
        places = WorkingFolder(folder=folder)
        self.folder = folder
        self.tools = toolset((*file_tools(places), *search_tools(places, **more), todo_tool()))
        self.context = context_of(session, folder)

    def call(self, name: str, /, **arguments: Any) -> ToolOutput:
        return run(self.tools[name], self.context, **arguments)

    def told(self, name: str, /, **arguments: Any) -> str:
        output = self.call(name, **arguments)
        assert not output.error, output.text
        return output.text

    def refused(self, name: str, /, **arguments: Any) -> str:
        output = self.call(name, **arguments)
        assert output.error, output.text
        assert "\n" not in output.text
        return output.text


@pytest.fixture
def session(tmp_path: Path) -> Iterator[foldmark.Session]:
    with opened(str(tmp_path / "store.db"), "s") as opened_session:
        yield opened_session


@pytest.fixture
def desk(session: foldmark.Session, tmp_path: Path) -> Desk:
    (tmp_path / "work").mkdir()
    return Desk(session, tmp_path / "work")


# --- read ----------------------------------------------------------------------------------


def test_lines_are_read_with_their_numbers(desk: Desk) -> None:
    (desk.folder / "a.txt").write_bytes("one\r\ntwo\n\nfour ü".encode())
    assert desk.told("read", path="a.txt") == "1\tone\n2\ttwo\n3\t\n4\tfour ü"
    assert desk.told("read", path="a.txt", offset=2, limit=1) == (
        "2\ttwo\n[4 lines in all; read on with offset=3]"
    )
    assert desk.told("read", path="a.txt", offset="4") == "4\tfour ü"
    assert "only 4 lines" in desk.refused("read", path="a.txt", offset=5)
    assert "at least 1" in desk.refused("read", path="a.txt", offset=0)
    assert "at least 1" in desk.refused("read", path="a.txt", limit=-1)


def test_a_long_file_is_read_page_by_page_and_nothing_is_missed(desk: Desk) -> None:
    lines = [f"line {number} {'x' * (number % 90)}" for number in range(7_000)]
    (desk.folder / "long").write_text("\n".join(lines) + "\n")
    pages: list[str] = []
    offset = 1
    while offset:
        text = desk.told("read", path="long", offset=offset)
        *rows, last = text.split("\n")
        more = last.startswith("[")
        pages += rows if more else [*rows, last]
        offset = int(last.rpartition("=")[2].rstrip("]")) if more else 0
    assert [row.partition("\t")[2] for row in pages] == lines


def test_long_lines_are_cut_and_that_is_said(desk: Desk) -> None:
    (desk.folder / "long").write_text("x" * 5_000 + "\nshort")
    first, second = desk.told("read", path="long").split("\n")
    assert first == "1\t" + "x" * 2_000 + " [3000 characters more in this line]"
    assert second == "2\tshort"


def test_empty_files_and_folders_say_so(desk: Desk) -> None:
    (desk.folder / "empty").touch()
    (desk.folder / "sub").mkdir()
    assert desk.told("read", path="empty") == "[the file is empty]"
    assert desk.told("read", path="sub") == "[the folder is empty]"
    (desk.folder / "link").symlink_to("/etc")
    assert desk.told("read", path=".") == "empty\nlink@\nsub/"


def test_what_is_no_text_is_refused_with_its_size_and_kind(desk: Desk) -> None:
    (desk.folder / "a.zip").write_bytes(b"PK\0\0" * 1_000)
    assert desk.refused("read", path="a.zip").endswith("3.9kB of kind application/zip")
    (desk.folder / "latin.txt").write_bytes(b"caf\xe9\n")
    assert desk.told("read", path="latin.txt") == "1\tcaf�"


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 9, "image/jpeg"),
        (b"GIF89a\0\0", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 \0", "image/webp"),
    ],
)
def test_images_are_attached(desk: Desk, data: bytes, mime: str) -> None:
    (desk.folder / "picture.txt").write_bytes(data)  # its bytes count, not its name
    output = desk.call("read", path="picture.txt")
    (file,) = output.files
    assert (file.mime, file.filename) == (mime, "picture.txt")
    assert file.url == f"data:{mime};base64,{base64.b64encode(data).decode()}"


def test_an_image_that_is_too_large_is_refused(desk: Desk) -> None:
    (desk.folder / "a.png").write_bytes(PNG + b"\0" * 5 * 2**20)
    assert "more than 5MB" in desk.refused("read", path="a.png")


def test_a_missing_file_names_near_ones(desk: Desk) -> None:
    (desk.folder / "README.md").touch()
    assert "'README.md'" in desk.refused("read", path="readme.md")
    assert desk.refused("read", path="sub/x") == "there is no file 'sub/x'"
    assert "no file" in desk.refused("read", path="README.md/x")


def test_pipes_and_devices_are_never_opened_for_long(desk: Desk) -> None:
    os.mkfifo(desk.folder / "pipe")
    assert "no regular file" in desk.refused("read", path="pipe")
    assert "no regular file" in desk.refused("write", path="pipe", content="x")
    assert "no regular file" in desk.refused("edit", path="pipe", old="x", new="y")
    assert desk.told("grep", pattern="x") == "no lines found"
    assert desk.told("glob", pattern="*") == "no files fit"


def test_a_file_that_is_vast_is_not_read_as_a_whole(desk: Desk) -> None:
    with (desk.folder / "vast").open("wb") as file:
        file.truncate(10 * 2**30)
    assert "10GB" in desk.refused("read", path="vast")
    assert "larger than 32 MB: 1 files" in desk.told("grep", pattern="x")


# --- write and edit ------------------------------------------------------------------------


def test_a_file_is_written_with_the_folders_on_its_way(desk: Desk) -> None:
    output = desk.call("write", path="a/b/c.txt", content="one\ntwo")
    assert output.text == "made a/b/c.txt: 2 lines"
    assert output.metadata["files"] == ["a/b/c.txt"]
    assert (desk.folder / "a/b/c.txt").read_bytes() == b"one\ntwo"
    assert desk.told("write", path="a/b/c.txt", content="") == "replaced a/b/c.txt: 0 lines"
    assert sorted(path.name for path in (desk.folder / "a/b").iterdir()) == ["c.txt"]


def test_writing_keeps_the_mode_and_goes_through_a_link_inside(desk: Desk) -> None:
    script = desk.folder / "run.sh"
    script.write_text("old")
    script.chmod(0o754)
    (desk.folder / "link").symlink_to("run.sh")
    desk.told("write", path="link", content="new\n")
    desk.told("edit", path="link", old="new", new="newer")
    assert script.read_text() == "newer\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o754
    assert (desk.folder / "link").is_symlink()


def test_a_new_file_has_the_mode_of_any_new_file(desk: Desk) -> None:
    (desk.folder / "usual").touch()
    desk.told("write", path="new", content="x")
    assert (desk.folder / "new").stat().st_mode == (desk.folder / "usual").stat().st_mode


def test_what_cannot_be_written_is_told(desk: Desk) -> None:
    (desk.folder / "sub").mkdir()
    (desk.folder / "file").touch()
    assert "no regular file" in desk.refused("write", path="sub", content="x")
    assert "cannot be written" in desk.refused("write", path="file/x", content="x")
    assert "half of a character" in desk.refused("write", path="x", content="\ud800")
    assert "cannot be written" in desk.refused("write", path="x" * 300, content="x")
    assert "no regular file" in desk.refused("write", path=".", content="x")
    assert not (desk.folder / "x").exists()


def test_an_edit_replaces_what_stands_there_once(desk: Desk) -> None:
    file = desk.folder / "a.py"
    file.write_text("one\ntwo\none\n")
    assert desk.told("edit", path="a.py", old="two", new="2") == "edited a.py: replaced once"
    refused = desk.refused("edit", path="a.py", old="one", new="1")
    assert "2 times in the file, in lines 1, 3" in refused
    assert file.read_text() == "one\n2\none\n"
    assert "2 times" in desk.told("edit", path="a.py", old="one", new="1", all=True)
    assert file.read_text() == "1\n2\n1\n"


def test_an_edit_that_finds_nothing_names_the_nearest_line(desk: Desk) -> None:
    (desk.folder / "a.py").write_text("def load_user(name):\n    return name\n")
    refused = desk.refused("edit", path="a.py", old="def load_users(name):\n", new="")
    assert "line 1 is like it: 'def load_user(name):'" in refused
    assert "read it again" in desk.refused("edit", path="a.py", old="zzzzzz", new="")
    assert "use write" in desk.refused("edit", path="a.py", old="", new="x")
    assert "the same" in desk.refused("edit", path="a.py", old="x", new="x")
    assert "no file" in desk.refused("edit", path="b.py", old="x", new="y")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\n", "a", "x\ny", b"x\r\ny\r\nb\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n"),
        (b"a\nb\n", "a", "x\ny", b"x\ny\nb\n"),
        (b"a\r\nb\nc\n", "b\nc", "x\ny", b"a\r\nx\ny\n"),
        (b"a\r\nb\nc\n", "a\nb", "x\ny", b"x\r\ny\nc\n"),
        (b"\xef\xbb\xbfa\n", "a", "b", b"\xef\xbb\xbfb\n"),
        (b"caf\xe9 a\n", "a\n", "b\n", b"caf\xe9 b\n"),
        (b"a\rb\x0cc\x1b", "c", "d", b"a\rb\x0cd\x1b"),
    ],
)
def test_an_edit_leaves_endings_marks_and_odd_bytes_alone(
    desk: Desk, before: bytes, old: str, new: str, after: bytes
) -> None:
    (desk.folder / "a").write_bytes(before)
    desk.told("edit", path="a", old=old, new=new)
    assert (desk.folder / "a").read_bytes() == after


def test_what_is_no_text_is_not_edited(desk: Desk) -> None:
    (desk.folder / "a").write_bytes(b"a" * 9_000 + b"\0b")
    assert "no text" in desk.refused("edit", path="a", old="b", new="c")


# --- glob and grep -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/b.py", "src/deep/c.py"]),
        ("**/c.py", ["src/deep/c.py"]),
        ("**", ["a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        ("src/**", ["src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        ("**/*.{py,ts}", ["a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts"]),
        ("{a,{b,c}}.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("?.py", ["a.py", "src/b.py", "src/deep/c.py"]),
        ("[ab].py", ["a.py", "src/b.py"]),
        ("./a.py", ["a.py"]),
        ("A.PY", []),
        ("src", []),
        ("[", []),
        ("", []),
        ("../*", []),
        ("/etc/*", []),
        ("{" * 500 + "a,b" + "}" * 500, []),
        ("{a,b}" * 60, []),
    ],
)
def test_names_fit_patterns(desk: Desk, pattern: str, names: list[str]) -> None:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts"):
        desk.told("write", path=name, content="x")
    for name in (".git", "node_modules"):
        (desk.folder / name).mkdir()
        (desk.folder / name / "x.py").touch()
    (desk.folder / "out").symlink_to("/")
    output = desk.told("glob", pattern=pattern)
    assert sorted(output.split("\n")) == (names or ["no files fit"])


def test_a_pattern_of_many_stars_is_no_trap() -> None:
    assert not name_matcher("*a" * 40 + "b")("a" * 200)
    assert not name_matcher("**/" * 40 + "b")("a/" * 100 + "c")


def test_the_newest_files_come_first_and_not_too_many(desk: Desk) -> None:
    for number in range(210):
        file = desk.folder / f"f{number:03}"
        file.touch()
        os.utime(file, (number, number))
    lines = desk.told("glob", pattern="f*").split("\n")
    assert lines[:2] == ["f209", "f208"]
    assert lines[200:] == ["[there are more; only the newest 200 are told]"]
    assert "no folder" in desk.refused("glob", pattern="*", path="f001")


def test_lines_are_found_by_a_pattern(desk: Desk) -> None:
    (desk.folder / "src").mkdir()
    (desk.folder / "src" / "a.py").write_text("import os\nimport re\r\nx = 1\n")
    (desk.folder / "b.txt").write_text("we import tea")
    (desk.folder / "c.bin").write_bytes(b"import\0")
    output = desk.told("grep", pattern=r"^import \w+|tea$")
    assert output == "b.txt:1: we import tea\nsrc/a.py:1: import os\nsrc/a.py:2: import re"
    assert desk.told("grep", pattern="import", glob="*.txt") == "b.txt:1: we import tea"
    assert desk.told("grep", pattern="import", path="src", limit=1) == (
        "src/a.py:1: import os\n[there are more; only the first 1 are told]"
    )
    assert desk.told("grep", pattern="x", path="src/a.py") == "src/a.py:3: x = 1"
    assert desk.told("grep", pattern="nothing such") == "no lines found"


def test_long_lines_are_cut_around_what_was_found(desk: Desk) -> None:
    (desk.folder / "a").write_text("x" * 9_000 + "needle" + "y" * 9_000)
    output = desk.told("grep", pattern="needle")
    assert "needle" in output
    assert len(output) < 600


def test_a_pattern_that_is_none_is_told(desk: Desk) -> None:
    assert "no regular expression" in desk.refused("grep", pattern="(")
    assert "no file or folder" in desk.refused("grep", pattern="x", path="none")
    assert "at least 1" in desk.refused("grep", pattern="x", limit=0)


def test_a_pattern_that_takes_for_ever_is_ended(session: foldmark.Session, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text("a" * 60)
    desk = Desk(session, tmp_path / "work", seconds=0.5)
    assert "timed out after 0.5 s" in desk.refused("grep", pattern="(a+)+b")


# --- what is closed ---


def test_searches_leave_out_what_a_rule_is_against(desk: Desk) -> None:
    (desk.folder / "keys").mkdir()
    for name in (".env", "keys/own.pem", "keys/public.pem", "notes"):
        (desk.folder / name).write_text(f"token of {name}\n")
    rules: tuple[Rule, ...] = (
        *DEFAULT_RULES,
        ("read:*.env", "deny"),
        ("read:keys/*", "ask"),
        ("read:*/public.pem", "allow"),
    )
    gate = PermissionGate(Permissions(rules))
    grep, glob = desk.tools["grep"], desk.tools["glob"]
    output = run(grep, desk.context, gate, pattern="token").text
    assert output == (
        "notes:1: token of notes\nkeys/public.pem:1: token of keys/public.pem\n"
        "[left out, as a rule is against it: 2 files]"
    )
    for path, expected in ((".env", ""), ("keys/own.pem", ""), ("keys", "public")):
        output = run(grep, desk.context, gate, pattern="token", path=path).text
        assert (expected or "no lines found") in output
        assert "[left out, as a rule is against it: 1 file]" in output
        assert "of .env" not in output
        assert "of keys/own" not in output
    output = run(glob, desk.context, gate, pattern="**").text
    assert set(output.split("\n")[:-1]) == {"keys/public.pem", "notes"}
    assert run(glob, desk.context, gate, pattern="*.env").text.startswith("no files fit\n[left out")


@pytest.mark.parametrize(
    ("rules", "is_found"),
    [
        ((("grep:a", "deny"),), False),
        ((("*:a", "deny"),), False),
        ((("read", "deny"),), False),
        ((("read", "deny"), ("read:a", "allow")), True),
        ((("read:a", "deny"), ("read", "allow")), True),
        ((("read", "ask"),), True),
        ((("*", "deny"), ("grep", "allow")), True),
        ((("grep:s*", "ask"),), True),
        ((("glob:a", "deny"),), True),
        ((("edit:a", "deny"),), True),
    ],
)
def test_rules_for_reading_and_for_the_search_itself_count(
    desk: Desk, rules: tuple[Rule, ...], *, is_found: bool
) -> None:
    (desk.folder / "a").write_text("tea")
    gate = PermissionGate(Permissions((*DEFAULT_RULES, *rules)))
    output = run(desk.tools["grep"], desk.context, gate, pattern="tea").text
    assert ("a:1: tea" in output) == is_found
    assert ("left out" in output) != is_found


def test_an_edit_and_a_write_at_the_same_time_come_one_after_the_other(desk: Desk) -> None:
    file = desk.folder / "a"
    for _ in range(4):
        file.write_text("old line\n" + "x" * 20_000_000)
        editing = threading.Thread(
            target=desk.call, args=("edit",), kwargs={"path": "a", "old": "old", "new": "new"}
        )
        editing.start()
        time.sleep(0.01)  # it reads now
        desk.told("write", path="a", content="written, old\n")
        editing.join()
        # The edit came before, and was written over; or after, and changed what was written.
        assert file.read_text() in ("written, old\n", "written, new\n")


# --- todo, and all of them -----------------------------------------------------------------


def test_a_list_of_things_to_do_is_shown_back(desk: Desk) -> None:
    items = [
        {"content": "look", "status": "completed"},
        {"content": "think\nhard", "status": "in_progress"},
        {"content": "act"},
    ]
    output = desk.call("todo", items=items)
    assert output.text == "[x] look\n[~] think hard\n[ ] act"
    assert output.title == "1 of 3 done"
    assert output.metadata["todos"] == [*items[:2], {"content": "act", "status": "pending"}]
    assert desk.told("todo", items=[]) == "the list is empty"
    assert "later" in desk.refused("todo", items=[{"content": "x", "status": "later"}])


def test_a_workspace_has_all_tools(tmp_path: Path) -> None:
    names = [tool.name for tool in workspace_tools(tmp_path)]
    every = ["read", "write", "edit", "glob", "grep", "shell", "todo", "recall", "search"]
    assert names == every
    assert "shell" not in toolset(workspace_tools(tmp_path, shell=False))
    changing = {tool.name for tool in workspace_tools(tmp_path) if tool.changes_files}
    assert changing == {"write", "edit", "shell"}
    with pytest.raises(BadInput, match="does not exist"):
        workspace_tools(tmp_path / "none")


def test_descriptions_are_short_and_every_parameter_has_one(tmp_path: Path) -> None:
    for tool in workspace_tools(tmp_path):
        assert 20 < len(tool.description) < 300
        for name, schema in tool.schema["properties"].items():
            assert schema.get("description"), f"{tool.name}.{name}"
