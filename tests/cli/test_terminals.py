import json
import re
from pathlib import Path

import pytest

from foldmark.cli.text import escape_json, plain
from tests.support.cli_program import STEERING, run_cli
from tests.support.terminal import in_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][;0-9]*m")


def test_colours_are_for_terminals_that_want_them(transcript_file: Path):
    assert COLOUR.search(in_terminal("plan", transcript_file, COLUMNS="80"))
    assert not COLOUR.search(in_terminal("plan", transcript_file, COLUMNS="80", NO_COLOR="1"))
    assert "\x1b" not in run_cli("plan", transcript_file)[1]


def test_json_is_indented_for_a_person_and_compact_for_a_program(transcript_file: Path):
    for_person = in_terminal("inspect", transcript_file, "--json")
    _, for_program, _ = run_cli("inspect", transcript_file, "--json")
    assert for_person.startswith('{\n  "format"')
    assert for_program.startswith('{"format"')
    assert for_program.count("\n") == 1
    assert json.loads(for_person) == json.loads(for_program)


def test_a_terminal_that_knows_only_ascii_is_no_reason_to_fail(transcript_file: Path):
    code, _, errors = run_cli(
        "plan", transcript_file, "--window", "24000", PYTHONIOENCODING="ascii"
    )
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
def test_text_is_made_harmless_before_it_is_printed(text: str, line: str):
    assert plain(text) == line


def test_escaped_json_means_the_same():
    text = "a\x7f\x85\u200b\u202e\ufeffé漢"
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    assert not STEERING.search(escape_json(json.dumps(text, ensure_ascii=False)))
