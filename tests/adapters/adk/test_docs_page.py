"""The page on ADK, the example, and what is said where ADK is not installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.markdown_pages import python_blocks, run_page

ROOT = Path(__file__).parents[3]


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("google.adk", reason="needs the extra `adk`")
    run_page(ROOT / "docs" / "adk.md", tmp_path)


def test_the_page_counts_its_changed_lines() -> None:
    page = ROOT / "docs" / "adk.md"
    before, after = python_blocks(page)[:2]
    made, shown = (block.split("print(", 1)[0].splitlines() for block in (before, after))
    changed = [line for line in shown if line not in made]
    assert [line.rsplit("# ", 1)[1] for line in changed] == ["1", "2", "3"]
    assert "Three lines change." in page.read_text()


def test_the_example_tells_what_was_folded() -> None:
    pytest.importorskip("google.adk", reason="needs the extra `adk`")
    command = [sys.executable, str(ROOT / "examples" / "adk_agent.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert told["the agent"] == "There were 100 files."
    assert told["events in ADK's session"] == "102"
    assert int(told["compactions"].split()[0]) >= 1
    assert told["file-1.txt is still found in the store"] == "True"
    assert int(told["longest request"].split()[0]) < 30_000


def test_without_adk_one_line_says_what_to_install() -> None:
    code = "import sys; sys.modules['google.adk'] = None; from foldmark.adapters import adk"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)  # noqa: PLW1510 - it shall fail
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: this adapter needs Google's ADK: pip install 'foldmark[adk]'"
