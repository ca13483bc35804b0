"""Which format a file is of, and formats that others add."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from foldmark.errors import BadInput
from foldmark.transcripts.format import format_named, formats, recognised
from foldmark.transcripts.source import Head

DOCS = (Path(__file__).parents[1] / "docs" / "formats.md").read_text()
(PLUGIN,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)


def ran(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", "from foldmark.cli import main; main()", *arguments]
    found = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        program, cwd=folder, env=found, capture_output=True, text=True, check=False
    )


def installed(folder: Path, code: str, target: str = "diary_format:FORMAT") -> Path:
    """A package with an entry point, as pip would leave it."""
    (folder / "diary_format.py").write_text(code)
    told = folder / "diary_format-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: diary-format\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[foldmark.formats]\ndiary = {target}\n")
    return folder


def test_a_plugin_adds_a_format(tmp_path: Path):
    folder = installed(tmp_path, PLUGIN)
    (folder / "days.jsonl").write_text('{"diary": "It rained."}\n{"diary": "It snowed."}\n')
    assert "a diary" in ran(folder, "formats").stdout
    shown = ran(folder, "inspect", "days.jsonl", "--json")
    assert '"format": "diary"' in shown.stdout.replace('":"', '": "'), shown.stderr
    assert ran(folder, "import", "days.jsonl").returncode == 0
    assert "It snowed." in ran(folder, "recall", "diary", "h1").stdout


@pytest.mark.parametrize(
    ("code", "target", "cause"),
    [
        ("FORMAT = 5", "diary_format:FORMAT", "is no new format"),
        ("1/0", "diary_format:FORMAT", "cannot be loaded: division by zero"),
        (PLUGIN.replace('"diary",', '"codex",', 1), "diary_format:FORMAT", "is no new format"),
        (PLUGIN, "diary_format:NOTHING", "cannot be loaded"),
    ],
)
def test_a_plugin_that_is_broken_is_named_in_one_line(
    tmp_path: Path, code: str, target: str, cause: str
):
    run = ran(installed(tmp_path, code, target), "formats")
    assert (run.returncode, run.stdout) == (2, "")
    assert cause in run.stderr
    assert "diary" in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_plugin_that_stumbles_over_a_line_names_it(tmp_path: Path):
    folder = installed(tmp_path, PLUGIN)
    (folder / "days.jsonl").write_text('{"diary": "It rained."}\n{"dairy": "Milk."}\n')
    run = ran(folder, "import", "days.jsonl")
    assert run.returncode == 2
    assert "days.jsonl: line 2: the format diary cannot read it: KeyError('diary')" in run.stderr
    assert ran(folder, "import", "days.jsonl", "--lenient").returncode == 0


def test_every_format_has_a_name_of_its_own_and_says_who_writes_it():
    names = [held.name for held in formats()]
    assert len(set(names)) == len(names) >= 17
    assert all(held.about for held in formats())
    assert format_named("pi").name == "pi"


def test_two_candidates_are_an_error_that_names_both():
    lines = ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"})
    with pytest.raises(BadInput, match="--format NAME") as refused:
        recognised(Head(shape="lines", lines=lines))
    assert "anthropic or openai-chat" in str(refused.value)


def test_no_candidate_is_an_error_that_names_all_that_were_tried():
    with pytest.raises(BadInput, match="--format NAME") as refused:
        recognised(Head(shape="lines", lines=({"weather": "fine"},)))
    for held in formats():
        assert held.name in str(refused.value)
