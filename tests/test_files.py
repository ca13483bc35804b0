"""Reading and writing files safely, and the errors for files that cannot be read."""

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foldmark.errors import BadInput
from foldmark.files import (
    NotRegular,
    open_folder,
    open_regular,
    printable,
    size_text,
    write_private,
)
from foldmark.model.messages import Message, SessionInfo, TextPart, Transcript, UserInfo
from foldmark.model.values import encode as encoded
from foldmark.transcripts.read import read_transcript

SMALL = Transcript(
    info=SessionInfo(id="ses_1", title="Fix the login"),
    messages=(Message(info=UserInfo(id="msg_1"), parts=(TextPart(text="Which file first?"),)),),
)


def refused(path: Path | str, **options: Any) -> BadInput:
    """The error for a file that cannot be read; it always names the file."""
    with pytest.raises(BadInput) as caught:
        read_transcript(path, **options)
    assert caught.value.source == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    return caught.value


def holding(folder: Path, data: bytes) -> Path:
    path = folder / "session.json"
    path.write_bytes(data)
    return path


def output_for(data: bytes, code: str) -> str:
    """The output of a program that reads these bytes from standard input."""
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, input=data, capture_output=True, check=True, timeout=60)
    return run.stdout.decode().strip()


def test_a_transcript_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "session.json"
    write_private(path, encoded(SMALL))
    assert read_transcript(path) == read_transcript(str(path)) == SMALL
    assert read_transcript(holding(tmp_path, b"\xef\xbb\xbf" + encoded(SMALL))) == SMALL


def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path):
    assert refused(tmp_path / "nowhere.json").cause == "there is no such file"
    assert "folder" in refused(tmp_path).cause
    assert refused(tmp_path / ("x" * 5000)).cause.startswith("cannot be opened: ")
    with pytest.raises(BadInput, match="not a file name"):
        read_transcript("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path):
    path = holding(tmp_path, encoded(SMALL))
    path.chmod(0)
    assert "permission" in refused(path).cause


def with_message(info: object, parts: object) -> bytes:
    message = {"info": info, "parts": parts}
    return json.dumps({"info": {"id": "a"}, "messages": [message]}).encode()


USER = {"id": "m", "role": "user"}


BOM, EMPTY = b"\xef\xbb\xbf", "the file is empty"
ROBOT, TOOL = {"id": "m", "role": "robot"}, {"type": "tool", "tool": "x"}
UNKNOWN = "not a known transcript format"


@pytest.mark.parametrize(
    ("data", "location", "cause"),
    [
        (b"", None, EMPTY),
        (b"   \n\t\n", None, EMPTY),
        (BOM, None, EMPTY),
        (b"\x7fELF\x02\x01\0\0", "byte 6", "a binary file, not JSON text"),
        (b'{\n"info": "caf\xe9"}', "line 2, byte 14", "not UTF-8 text"),
        (b'{"info": {"id": "a"},\n"messages": [\n{"in', "line 3", "the JSON ends too early"),
        (b'{\n"info": nonsense}', "line 2", "not valid JSON: "),
        (b"[" * 200_000, None, "nested too deeply"),
        *((data, None, UNKNOWN) for data in (b"[1, 2]", b"5", b'"words"', b"{}")),
        (b'{"info": {"id": "a"}}', None, UNKNOWN),
        (b'{"info": {"id": 5}, "messages": []}', "$.info.id", "expected a text"),
        (b'{"info": {"id": "a"}, "messages": {}}', "$.messages", "expected a list, got an object"),
        (with_message(USER, 7), "$.messages[0].parts", "expected a list"),
        (
            with_message(USER, [{"type": "text", "text": 5}]),
            "$.messages[0].parts[0].text",
            "expected a text, got a whole number",
        ),
        (with_message(ROBOT, []), "$.messages[0].info.role", "the value 'robot' is not known here"),
        (
            with_message(USER, [{**TOOL, "state": {"status": "completed"}}]),
            "$.messages[0].parts[0].state",
            "the field 'output' is missing",
        ),
    ],
)
def test_an_unreadable_file_is_refused_with_location_and_cause(
    tmp_path: Path, data: bytes, location: str | None, cause: str
):
    error = refused(holding(tmp_path, data))
    assert error.location == location
    assert error.cause.startswith(cause)


def test_lines_of_an_unknown_format_are_refused_with_the_known_formats(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"a": 1}\n{"b": 2}\n'))
    for name in ("opencode", "claude-code", "--format NAME"):
        assert name in error.cause


def test_half_a_character_as_javascript_writes_it_is_read(tmp_path: Path):
    file = holding(tmp_path, rb'{"info": {"id": "\ud83d and more"}, "messages": []}')
    assert read_transcript(file).info.id == "\ud83d and more"


def test_a_requested_format_is_used(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"info": {"id": "a"}}'), format="opencode")
    assert error.cause == "the field 'messages' is missing"
    with pytest.raises(BadInput, match="unknown format 'cobol'"):
        read_transcript(holding(tmp_path, b"{}"), format="cobol")


def test_a_gigabyte_of_zeros_is_refused_at_its_first_byte(tmp_path: Path):
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    assert "binary" in refused(path).cause


def test_a_line_over_the_limit_is_refused_with_the_option(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"a": "' + b"x" * 3_000_000 + b'"}\n'), max_bytes=2**21)
    assert error.cause.startswith("line 1 is longer, but the limit is 2MB")
    assert "--max-size" in error.cause


def test_the_caller_sets_the_size_limit(tmp_path: Path):
    path = holding(tmp_path, encoded(SMALL))
    size = path.stat().st_size
    assert read_transcript(path, max_bytes=size) == SMALL
    assert f"the limit is {size - 1} bytes" in refused(path, max_bytes=size - 1).cause


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
def test_a_device_is_refused_and_a_pipe_without_waiting_for_its_other_end(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert "give - to read standard input" in refused(tmp_path / "pipe").cause
    assert "device" in refused("/dev/zero").cause


def test_control_characters_in_a_name_are_replaced(tmp_path: Path):
    with pytest.raises(BadInput) as caught:
        read_transcript(tmp_path / "a\x1b[31m\n\udcffb")
    assert str(caught.value).isprintable()
    assert printable("a\x1b[31mb\u202e") == "a\ufffd[31mb\ufffd"


READ = """
from foldmark.transcripts.read import read_transcript
from foldmark.errors import BadInput
try:
    print(read_transcript("-", max_bytes=3 * 2**20).info.title)
except BadInput as error:
    print(error)
"""


def test_a_dash_is_standard_input_with_the_same_limit():
    assert output_for(encoded(SMALL), READ) == "Fix the login"

    error = output_for(b" " * (3 * 2**20 + 1), READ)
    assert error.startswith("standard input: line 1 is longer, but the limit is 3MB")


def test_a_program_without_standard_input_gets_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="no standard input"):
        read_transcript("-")


def test_a_written_file_is_private_and_replaces_the_old_one(tmp_path: Path):
    path = tmp_path / "session.json"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is checked below
        write_private(tmp_path / "folder", b"a folder cannot be replaced by a file")
    assert caught.value.errno in {errno.EISDIR, errno.EACCES, errno.EPERM}
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_sizes_have_units_that_the_command_line_accepts():
    sizes = {12: "12 bytes", 2**10: "1kB", 3 * 2**19: "1.5MB", 2**30: "1GB"}
    assert {size: size_text(size) for size in sizes} == sizes


# --- below a folder that others can write to -----------------------------------------------


def test_only_regular_files_are_opened_and_no_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    with open_regular(tmp_path / "a") as file:
        assert file.read() == b"text"
    with open_regular(tmp_path / "link", links=True) as file:
        assert file.read() == b"text"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link")
    for name in (tmp_path / "pipe", tmp_path, "/dev/null"):
        with pytest.raises(NotRegular, match="no regular file"):
            open_regular(name)


def test_a_folder_below_another_is_opened_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "in" / "out").symlink_to(outside)
    (tmp_path / "linked").symlink_to(root)
    with open_folder(tmp_path / "linked", ("in",)) as folder:
        assert os.listdir(folder) == ["out"]  # noqa: PTH208 - of an open folder
    for names, make in (
        (("in", "out"), False),
        (("in", "none"), False),
        (("in", "out", "x"), True),
    ):
        with pytest.raises(OSError), open_folder(root, names, make=make):  # noqa: PT011 - kinds vary
            pass
    assert not (outside / "x").exists()
    missing = pytest.raises(FileNotFoundError)
    with open_folder(root, (b"made", b"here"), make=True) as folder, missing:
        open_regular("file", folder=folder)
    assert (root / "made" / "here").is_dir()
