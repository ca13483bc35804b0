"""The records of files: lines, documents and texts, complete and unfinished."""

import json
from io import BytesIO
from pathlib import Path

import pytest

from foldmark.errors import BadInput
from foldmark.transcripts.read import read_file, read_sessions
from foldmark.transcripts.source import Record, Source, UnrecognizedFormat, open_source
from tests.support.stored_transcripts import Lines

MARK = b"\xef\xbb\xbf"


def source(data: bytes, most: int = 2**24) -> Source:
    return Source(BytesIO(data), "a file", most)


def records(data: bytes) -> list[tuple[int, bytes]]:
    return [(item.line, item.data.strip()) for item in source(data).records()]


def three_lines() -> bytes:
    """A conversation of three lines."""
    lines = Lines()
    for text in ("One", "Two", "Three"):
        lines.user(text)
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines.all)


# --- shapes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (b'{"a": 1}\n{"b": 2}\n', "lines"),
        (b'{"a": 1}', "lines"),
        (b'\n\n {"a": 1}\n\n', "lines"),
        (MARK + b'{"a": 1}\r\n{"b": 2}\r\n', "lines"),
        (b'{"a": 1}\n{"b": ', "lines"),
        (b'{"a": \n{"b": 2}\n', "lines"),
        (b'{\n  "a": 1\n}\n', "document"),
        (b"[\n  1,\n  2\n]\n", "document"),
        (MARK + b'{\r\n"a": 1}', "document"),
        (b"# a heading\n", "text"),
        (b"7", "text"),
    ],
)
def test_the_shape_of_a_file_is_recognized_by_its_beginning(data: bytes, shape: str) -> None:
    assert source(data).head.shape == shape


def test_blank_lines_and_marks_do_not_move_numbers() -> None:
    data = MARK + b'\r\n{"a": 1}\r\n\r\n   \n{"b": 2}\n\n{"c": 3}'
    assert records(data) == [(2, b'{"a": 1}'), (5, b'{"b": 2}'), (7, b'{"c": 3}')]


def test_a_text_keeps_its_blank_lines() -> None:
    item = list(source(b"\n\nOne\n\nTwo").records())
    assert [(record.line, record.data) for record in item] == [
        *((1, b"\n"), (2, b"\n"), (3, b"One\n"), (4, b"\n"), (5, b"Two"))
    ]


def test_a_document_is_one_record_from_its_first_line_on() -> None:
    data = b'{\n"a": [1,\n2]}\n'
    assert list(source(data).records()) == [Record(line=1, data=data)]
    head = source(b'{\n"a": [1,\n2], "b": {"c": null}}\n').head
    assert (head.field("a"), head.field("b"), head.field("none")) == ([1, 2], {"c": None}, None)
    items = source(b'[\n1,\n{"a": 2}\n]').head
    assert (items.first_items("", 2)[1:], items.fields) == ([{"a": 2}], {})


def test_lines_longer_than_the_read_size_are_complete() -> None:
    lines = [json.dumps({"text": "x" * size}).encode() for size in (10, 2**20 - 12, 2**21, 5)]
    for end in (b"", b"\n"):
        data = b"\n".join(lines) + end
        assert records(data) == list(enumerate(lines, 1))
        assert source(data).head.lines[0] == {"text": "x" * 10}
        item = source(data)
        assert len(list(item.records())) == 4
        assert item.position == len(data)


def test_a_line_or_document_over_the_limit_is_refused() -> None:
    data = b'{"a": 1}\n' * 60 + json.dumps({"text": "x" * 3_000_000}).encode() + b"\n"
    with pytest.raises(BadInput, match="line 61 is longer, but the limit is 2MB"):
        list(source(data, 2**21).records())
    assert len(list(source(data, 2**22).records())) == 61
    with pytest.raises(BadInput, match="limit is 1kB"):
        source(b"[\n" + b"1,\n" * 3_000, 2**10)


# --- unfinished files ----------------------------------------------------------------------


def test_a_last_line_is_read_once_it_is_complete() -> None:
    data = three_lines()
    start = data.rstrip().rindex(b"\n") + 1
    for end in range(start + 1, len(data) - 1):
        item = source(data[:end])
        assert [record.line for record in item.records()] == [1, 2]
        assert item.unfinished == 3
    for end in (start, len(data) - 1, len(data)):
        item = source(data[:end])
        assert len(list(item.records())) == (2 if end == start else 3)
        assert item.unfinished is None


def test_a_last_line_may_end_anywhere() -> None:
    whole = '{"a": "日本 \\u65e5 \\ud83d\\ude00 \\ud83d", "b": [-1.5e+7, true, null, {}]}'.encode()
    for end in range(1, len(whole)):
        item = source(b'{"a": 1}\n' + whole[:end])
        assert [record.line for record in item.records()] == [1]
        assert item.unfinished == 2


@pytest.mark.parametrize("bad", [b"}", b"no JSON", b'{"a": 1}x', b'{"a" 1', b'{"a": 1,, "b": 2'])
def test_a_malformed_last_line_is_refused(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(three_lines() + bad)
    with pytest.raises(BadInput, match="line 4"):
        read_sessions(path)


def test_an_incomplete_line_with_a_line_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for truncate in (b'{"a": \n', b'{"a": "x\r\n' + three_lines()):
        path.write_bytes(three_lines() + truncate)
        with pytest.raises(BadInput, match="line 4: "):
            read_sessions(path)


def test_an_unfinished_line_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(three_lines()[:-9])
    session = read_file(path)
    assert [(item.line, "import it again once" in item.cause) for item in session.skipped] == [
        (3, True)
    ]
    assert len(session.sessions[0].messages) == 2


def test_an_incomplete_first_line_or_document_is_refused(tmp_path: Path) -> None:
    for data in (three_lines()[:40], b'{\n"info": {"id": "s"},\n"messages": [', b"[1"):
        with pytest.raises(BadInput, match="ends too early"):
            source(data)


# --- other files ---------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n \r\n", MARK, b"ab\0cd", b"x" * 3_000_000 + b"\0"])
def test_empty_and_binary_files_are_not_recognized(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    with pytest.raises(UnrecognizedFormat, match=r"a\.jsonl: "), open_source(path):
        pass


def test_another_encoding_is_refused_with_its_line() -> None:
    with pytest.raises(BadInput, match="line 2: not UTF-8 text"):
        source(b"One\nTw\xff\n")


@pytest.mark.parametrize("lines", ["\r\n", "\n", "\n\n\r\n"])
def test_an_error_names_its_line_for_all_line_ends(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    item = three_lines().decode().splitlines()
    text = lines.join([*item, '{"type": "user"}', *item]) + lines
    path.write_bytes(MARK + text.encode())
    number = 3 * lines.count("\n") + 1
    with pytest.raises(BadInput, match=f"line {number}: the field 'message' is missing"):
        read_sessions(path)
    session = read_file(path, lenient=True)
    assert [item.line for item in session.skipped] == [number]
    assert len(session.sessions[0].messages) == 6
