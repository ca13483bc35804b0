"""The program as a whole: its help, its version, and what it prints on terminals."""

import json
import re
from pathlib import Path

import pytest

from foldmark.cli.options import parse_size
from foldmark.cli.text import escape_json, plain
from tests.support.cli_program import STEERING, output_of, run_cli
from tests.support.terminal import in_terminal

COLOR = re.compile(r"\x1b\[[0-9;]*3[0-9][;0-9]*m")


# --- help and version ----------------------------------------------------------------------


def test_the_program_alone_shows_its_commands():
    code, output, errors = run_cli()
    assert (code, errors) == (0, "")
    for command in ("inspect", "plan", "compact", "demo"):
        assert command in output


def test_the_version_is_printed():
    assert re.fullmatch(r"foldmark \d+\.\d+\.\d+\S*\n", output_of("--version"))


@pytest.mark.parametrize(
    ("text", "size"), [("10", 10), ("1kB", 1024), ("512MB", 2**29), ("1.5 GiB", 3 * 2**29)]
)
def test_a_size_may_have_a_unit(text: str, size: int):
    assert parse_size(text) == size


# --- terminals -----------------------------------------------------------------------------


def test_colors_are_for_terminals_that_want_them(file: Path):
    assert COLOR.search(in_terminal("plan", file, COLUMNS="80"))
    assert not COLOR.search(in_terminal("plan", file, COLUMNS="80", NO_COLOR="1"))
    assert "\x1b" not in run_cli("plan", file)[1]


def test_json_is_indented_for_a_person_and_compact_for_a_program(file: Path):
    for_person = in_terminal("inspect", file, "--json")
    _, for_program, _ = run_cli("inspect", file, "--json")
    assert for_person.startswith('{\n  "format"')
    assert for_program.startswith('{"format"')
    assert for_program.count("\n") == 1
    assert json.loads(for_person) == json.loads(for_program)


def test_a_terminal_with_ascii_only_is_supported(file: Path):
    code, _, errors = run_cli("plan", file, "--window", "24000", PYTHONIOENCODING="ascii")
    assert (code, errors) == (0, "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07", "link"),
        ("\x1b]0;never ended", "0;never ended"),
        ("a\tb\r\n  c\u202ed\x00", "a b c d"),
        ("\x9b31mc1", "c1"),
        ("x" * 500, "x" * 199 + "…"),
    ],
)
def test_untrusted_text_loses_its_control_sequences(text: str, line: str):
    assert plain(text) == line


def test_escaped_json_is_equivalent():
    text = "a\x7f\x85\u200b\u202e\ufeffé漢"
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    assert not STEERING.search(escape_json(json.dumps(text, ensure_ascii=False)))
