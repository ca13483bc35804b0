"""The page of the pydantic-ai adapter, and its example."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.markdown_pages import run_page
from tests.support.scripted_pydantic_ai import own_loop

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    with own_loop():
        yield


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    run_page(ROOT / "docs" / "pydantic-ai.md", tmp_path)


def test_the_example_runs_and_tells_what_was_folded() -> None:
    example = ROOT / "examples" / "pydantic_ai_agent.py"
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert lines[:2] == ["the agent: Page 17 has the error.", "messages of the run: 82"]
    assert " 0 compactions" not in lines[2]
    assert lines[3] == "found again: True"
