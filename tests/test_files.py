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
    info=SessionInfo(id="ses_1", title="Sharpen the saw"),
    messages=(Message(info=UserInfo(id="msg_1"), parts=(TextPart(text="Which file first?"),)),),
)


def refused(path: Path | str, **options: Any) -> BadInput:
    """Why a file is not read; it is always named."""
    with pytest.raises(BadInput) as caught:
        read_transcript(path, **options)
    assert caught.value.source == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    return caught.value


def holding(folder: Path, data: bytes) -> Path:
    path = folder / "session.json"
    path.write_bytes(data)
    return path


def sent(data: bytes, code: str) -> str:
    """What a program prints that is sent these bytes."""
    run = subprocess.run(
        [sys.executable, "-c", code], input=data, capture_output=True, check=True, timeout=60
    )
    return run.stdout.decode().strip()


def test_a_transcript_comes_back_as_it_was_written(tmp_path: Path):
    path = tmp_path / "session.json"
    write_private(path, encoded(SMALL))
    assert read_transcript(path) == SMALL
    assert read_transcript(str(path)) == SMALL


def test_a_byte_order_mark_is_no_part_of_the_transcript(tmp_path: Path):
    path = holding(tmp_path, b"\xef\xbb\xbf" + encoded(SMALL))
    assert read_transcript(path) == SMALL


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path):
    assert refused(tmp_path / "nowhere.json").cause == "there is no such file"


def test_a_folder_is_not_read(tmp_path: Path):
    assert "folder" in refused(tmp_path).cause


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="not a file name"):
        read_transcript("a\0b")
    assert refused(tmp_path / ("x" * 5000)).cause.startswith("cannot be opened: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_said_to_be_so(tmp_path: Path):
    path = holding(tmp_path, encoded(SMALL))
    path.chmod(0)
    assert "permission" in refused(path).cause


@pytest.mark.parametrize("data", [b"", b"   \n\t\n", b"\xef\xbb\xbf"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, data: bytes):
    assert refused(holding(tmp_path, data)).cause == "the file is empty"


def test_a_binary_file_is_refused_at_its_first_nul(tmp_path: Path):
    error = refused(holding(tmp_path, b"\x7fELF\x02\x01\0\0"))
    assert error.cause == "a binary file, not JSON text"
    assert error.location == "byte 6"


def test_bytes_that_are_no_utf8_are_told_from_bad_json(tmp_path: Path):
    error = refused(holding(tmp_path, b'{\n"info": "caf\xe9"}'))
    assert error.cause == "not UTF-8 text"
    assert error.location == "line 2, byte 14"


def test_truncated_json_is_said_to_be_cut_off_at_its_last_line(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"info": {"id": "a"},\n"messages": [\n{"in'))
    assert "cut off" in error.cause
    assert error.location == "line 3"


def test_bad_json_is_told_with_its_line(tmp_path: Path):
    error = refused(holding(tmp_path, b'{\n"info": nonsense}'))
    assert error.cause.startswith("not valid JSON: ")
    assert error.location == "line 2"


def test_lines_of_no_known_format_are_told_which_formats_were_tried(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"a": 1}\n{"b": 2}\n'))
    for name in ("opencode", "claude-code", "--format NAME"):
        assert name in error.cause


def test_json_that_is_nested_too_deeply_is_refused(tmp_path: Path):
    assert "nested" in refused(holding(tmp_path, b"[" * 200_000)).cause


def test_half_a_character_as_javascript_leaves_it_is_read(tmp_path: Path):
    file = holding(tmp_path, rb'{"info": {"id": "\ud83d and more"}, "messages": []}')
    assert read_transcript(file).info.id == "\ud83d and more"


@pytest.mark.parametrize("data", [b"[1, 2]", b"5", b'"words"', b"{}", b'{"info": {"id": "a"}}'])
def test_json_that_is_no_transcript_is_told_so(tmp_path: Path, data: bytes):
    error = refused(holding(tmp_path, data))
    assert error.cause.startswith("not a transcript of a format that is known")


def test_a_format_that_is_given_is_held_to(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"info": {"id": "a"}}'), format="opencode")
    assert error.cause == "the field 'messages' is missing"
    with pytest.raises(BadInput, match="there is no format 'cobol'"):
        read_transcript(holding(tmp_path, b"{}"), format="cobol")


def with_message(info: object, parts: object) -> bytes:
    message = {"info": info, "parts": parts}
    return json.dumps({"info": {"id": "a"}, "messages": [message]}).encode()


USER = {"id": "m", "role": "user"}


@pytest.mark.parametrize(
    ("data", "place", "cause"),
    [
        (b'{"info": {"id": 5}, "messages": []}', "$.info.id", "expected a text"),
        (b'{"info": {"id": "a"}, "messages": {}}', "$.messages", "expected a list, got an object"),
        (with_message(USER, 7), "$.messages[0].parts", "expected a list"),
        (
            with_message(USER, [{"type": "text", "text": 5}]),
            "$.messages[0].parts[0].text",
            "expected a text, got a whole number",
        ),
        (
            with_message({"id": "m", "role": "robot"}, []),
            "$.messages[0].info.role",
            "the value 'robot' is not known here",
        ),
        (
            with_message(USER, [{"type": "tool", "tool": "x", "state": {"status": "completed"}}]),
            "$.messages[0].parts[0].state",
            "the field 'output' is missing",
        ),
    ],
)
def test_a_wrong_field_is_told_by_its_path(tmp_path: Path, data: bytes, place: str, cause: str):
    error = refused(holding(tmp_path, data))
    assert error.location == place
    assert error.cause.startswith(cause)


def test_a_gigabyte_of_nothing_is_refused_at_its_first_byte(tmp_path: Path):
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    assert "binary" in refused(path).cause


def test_a_line_over_the_limit_is_refused_with_the_option(tmp_path: Path):
    error = refused(holding(tmp_path, b'{"a": "' + b"x" * 3_000_000 + b'"}\n'), max_bytes=2**21)
    assert error.cause.startswith("line 1 is longer, but the limit is 2MB")
    assert "--max-size" in error.cause


def test_the_limit_is_the_callers_to_set(tmp_path: Path):
    path = holding(tmp_path, encoded(SMALL))
    size = path.stat().st_size
    assert read_transcript(path, max_bytes=size) == SMALL
    assert f"the limit is {size - 1} bytes" in refused(path, max_bytes=size - 1).cause


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert "give - to read standard input" in refused(path).cause


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
def test_a_device_is_refused():
    assert "device" in refused("/dev/zero").cause


def test_control_characters_in_a_name_are_made_harmless(tmp_path: Path):
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


def test_a_dash_is_standard_input():
    assert sent(encoded(SMALL), READ) == "Sharpen the saw"


def test_standard_input_has_the_same_limit():
    answer = sent(b" " * (3 * 2**20 + 1), READ)
    assert answer.startswith("standard input: line 1 is longer, but the limit is 3MB")


def test_a_program_without_standard_input_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadInput, match="no standard input"):
        read_transcript("-")


def test_what_is_written_is_private_and_replaces_what_was_there(tmp_path: Path):
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


def test_sizes_are_told_in_units_that_the_command_line_takes():
    assert [size_text(size) for size in (12, 2**10, 3 * 2**19, 2**30)] == [
        "12 bytes",
        "1kB",
        "1.5MB",
        "1GB",
    ]


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
    for names in (("in", "out"), ("in", "missing")):
        with pytest.raises(OSError), open_folder(root, names):  # noqa: PT011 - kinds differ
            pass
    with pytest.raises(OSError), open_folder(root, ("in", "out", "new"), make=True):  # noqa: PT011
        pass
    assert not (outside / "new").exists()
    with (
        open_folder(root, (b"made", b"here"), make=True) as folder,
        pytest.raises(FileNotFoundError),
    ):
        open_regular("file", folder=folder)
    assert (root / "made" / "here").is_dir()
