"""The page on LangChain and its example run as they stand."""

import subprocess
import sys
from pathlib import Path

from tests.support.markdown_pages import python_blocks, run_page

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "langchain.md"


def test_every_block_of_the_page_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    assert len(python_blocks(PAGE)) >= 6
    run_page(PAGE, tmp_path)


def test_as_many_lines_of_an_agent_change_as_the_page_says() -> None:
    before, after = (block.splitlines() for block in python_blocks(PAGE)[1:3])
    new = [line for line in after if line and line not in before and not line.startswith("print")]
    assert [line[-3:] for line in new] == ["# 1", "# 2", "# 3"]
    assert "**Three lines** change" in PAGE.read_text()


def test_the_example_tells_what_was_folded(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "langchain_agent.py")],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "202 messages in the agent's state" in run.stdout
    assert "ERROR timeout in billing" in run.stdout
    assert not run.stderr
