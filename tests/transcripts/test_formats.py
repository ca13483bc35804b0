"""Formats that other packages add."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_program import refusal

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[2] / "examples" / "tau_bench_format.py"
DOCS = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
(PLUGIN,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)


def run_program(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", "from foldmark.cli import main; main()", *arguments]
    session = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        program, cwd=folder, env=session, capture_output=True, text=True, check=False
    )


def install_package(folder: Path, code: str, target: str = "diary_format:Diary") -> Path:
    """A package with an entry point, as pip installs it."""
    (folder / "diary_format.py").write_text(code)
    facts = folder / "diary_format-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: diary-format\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[foldmark.formats]\ndiary = {target}\n")
    return folder


def test_a_plugin_adds_a_format(tmp_path: Path):
    folder = install_package(tmp_path, PLUGIN)
    (folder / "days.jsonl").write_text('{"diary": "It rained."}\n{"diary": "It snowed."}\n')
    assert "a diary" in run_program(folder, "formats").stdout
    inspection = run_program(folder, "inspect", "days.jsonl", "--json")
    assert '"format": "diary"' in inspection.stdout.replace('":"', '": "'), inspection.stderr
    assert run_program(folder, "import", "days.jsonl").returncode == 0
    assert "It snowed." in run_program(folder, "recall", "days", "h1").stdout


EPISODE: Json = {
    "task_id": 3,
    "trial": 0,
    "reward": 1.0,
    "info": {"task": {"instruction": "You want a ticket."}},
    "traj": [
        {"role": "system", "content": "Sell tickets."},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "name": "find", "content": "one"},
        {"role": "assistant", "content": "I found one."},
    ],
}


def install_example(folder: Path) -> Path:
    """The example plugin, installed."""
    return install_package(folder, EXAMPLE.read_text(), "diary_format:TauBench")


def test_the_example_plugin_reads_every_episode_as_a_session(tmp_path: Path):
    folder = install_example(tmp_path)
    (folder / "run.json").write_text(json.dumps([EPISODE, {**EPISODE, "trial": 1}, EPISODE]))
    result = run_program(folder, "import", "run.json", "--store", "runs.db", "--json")
    rest = json.loads(result.stdout)["imported"]
    assert [item["id"] for item in rest] == ["run-3-0", "run-3-1", "run-3-0-2"]
    assert {item["format"] for item in rest} == {"tau-bench"}
    assert {item["title"] for item in rest} == {"You want a ticket."}
    assert [item["messages"] for item in rest] == [3, 3, 3]
    again = run_program(folder, "export", "run-3-1", "--to", "openai-chat", "--store", "runs.db")
    assert json.loads(again.stdout) == EPISODE["traj"]


def test_the_example_plugin_names_a_malformed_message(tmp_path: Path):
    folder = install_example(tmp_path)
    broken = {**EPISODE, "traj": [*EPISODE["traj"], {"role": "user", "content": 5}]}
    (folder / "run.json").write_text(json.dumps([EPISODE, broken]))
    run = run_program(folder, "inspect", "run.json")
    assert (run.returncode, run.stdout) == (2, "")
    assert "run.json: episodes[1], message 6: " in run.stderr
    assert run.stderr.count("\n") == 1


def test_the_example_plugin_reads_a_real_run(tmp_path: Path, corpus: Path):
    path = corpus / "tau-bench" / "tau_gpt-4o-airline_first40.json"
    result = run_program(
        install_example(tmp_path), "import", str(path), "--store", "runs.db", "--json"
    )
    rest = json.loads(result.stdout)["imported"]
    assert len(rest) == len(json.loads(path.read_bytes())) == len({item["id"] for item in rest})


@pytest.mark.parametrize("format", ["tau-bench", "tau2-bench", "entire-compact"])
def test_a_real_file_of_another_format_is_refused_in_one_line(corpus: Path, format: str):
    (path,) = (corpus / format).iterdir()
    assert "not a known transcript format" in refusal("inspect", path)


@pytest.mark.parametrize(
    ("code", "target", "cause"),
    [
        ("FORMAT = 5", "diary_format:FORMAT", "is not a FormatReader"),
        ("1/0", "diary_format:Diary", "cannot load the format 'diary': division by zero"),
        (
            PLUGIN.replace('"diary"', '"codex"', 1),
            "diary_format:Diary",
            "has the name of another format",
        ),
        (PLUGIN, "diary_format:NOTHING", "cannot load the format"),
    ],
)
def test_a_broken_plugin_is_named_in_one_line(tmp_path: Path, code: str, target: str, cause: str):
    run = run_program(install_package(tmp_path, code, target), "formats")
    assert (run.returncode, run.stdout) == (2, "")
    assert cause in run.stderr
    assert "diary" in run.stderr
    assert run.stderr.count("\n") == 1


def test_an_error_of_a_plugin_names_the_line(tmp_path: Path):
    folder = install_package(tmp_path, PLUGIN)
    (folder / "days.jsonl").write_text('{"diary": "It rained."}\n{"dairy": "Milk."}\n')
    run = run_program(folder, "import", "days.jsonl")
    assert run.returncode == 2
    assert "days.jsonl: line 2: the format diary cannot read it: KeyError('diary')" in run.stderr
    assert run_program(folder, "import", "days.jsonl", "--lenient").returncode == 0
