"""The page and the example of each adapter run, and a missing framework is named in one line."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.adapter_contract import FRAMEWORKS
from tests.support.markdown_pages import python_blocks, run_page

ROOT = Path(__file__).parents[2]


class Page(NamedTuple):
    """The page of an adapter, and what its page and example say."""

    name: str
    blocks: tuple[int, int]  # an agent before and with Foldmark
    marks: list[str]  # at the end of its changed lines
    claim: str  # how many lines change
    output: list[str]  # of the example
    needs: str  # the error without the framework


PAGES = {
    "langchain": Page(
        name="langchain.md",
        blocks=(1, 2),
        marks=["1", "2", "3"],
        claim="**Three lines change**",
        output=["202 messages in the agent's state", "ERROR timeout in billing"],
        needs="this adapter needs LangChain 1.4 or newer: pip install 'foldmark[langchain]'",
    ),
    "pydantic_ai": Page(
        name="pydantic-ai.md",
        blocks=(0, 1),
        marks=["1", "2", "3", "4"],
        claim="**Four lines change**",
        output=["Page 17 has the error.", "messages of the run: 82", "found again: True"],
        needs="this adapter needs pydantic-ai 2.66 or newer: pip install 'foldmark[pydantic-ai]'",
    ),
    "openai_agents": Page(
        name="openai-agents.md",
        blocks=(1, 3),
        marks=["1", "2", "3", "4"],
        claim="**four lines change**",
        output=["items are stored", "compaction: ", "the log of day 7 is folded"],
        needs="this adapter needs the OpenAI Agents SDK: pip install 'foldmark[openai-agents]'",
    ),
    "adk": Page(
        name="adk.md",
        blocks=(0, 1),
        marks=["1", "2", "3"],
        claim="**Three lines change**",
        output=["There were 100 files.", "events in ADK's session: 102", "in the store: True"],
        needs="this adapter needs Google's ADK: pip install 'foldmark[adk]'",
    ),
}
every_page = pytest.mark.parametrize("framework", PAGES)


def path_of(framework: str) -> Path:
    return ROOT / "docs" / PAGES[framework].name


def run_python(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, check=False, cwd=cwd
    )


@pytest.fixture
def loop() -> Iterator[None]:
    """An event loop for pydantic-ai's `run_sync`, which would create one and not close it."""
    new_loop = asyncio.new_event_loop()
    asyncio.set_event_loop(new_loop)
    yield
    asyncio.set_event_loop(None)
    new_loop.close()


@pytest.mark.usefixtures("loop")
@every_page
def test_the_page_runs_as_printed(tmp_path: Path, framework: str) -> None:
    pytest.importorskip(FRAMEWORKS[framework][0])
    run_page(path_of(framework), tmp_path)


@every_page
def test_the_page_counts_its_changed_lines(framework: str) -> None:
    page = PAGES[framework]
    blocks = [block.splitlines() for block in python_blocks(path_of(framework))]
    before, after = blocks[page.blocks[0]], blocks[page.blocks[1]]
    new = [line for line in after if line and line not in before and not line.startswith("print")]
    assert [line.rsplit("# ", 1)[-1] for line in new] == page.marks
    assert page.claim in path_of(framework).read_text()


@every_page
def test_the_example_prints_what_was_summarized(tmp_path: Path, framework: str) -> None:
    pytest.importorskip(FRAMEWORKS[framework][0])
    run = run_python(ROOT / "examples" / f"{framework}_agent.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert [text for text in PAGES[framework].output if text not in run.stdout] == []
    assert not list(tmp_path.iterdir())


@every_page
def test_without_the_framework_one_line_says_what_to_install(
    tmp_path: Path, framework: str
) -> None:
    package = FRAMEWORKS[framework][0]
    code = f"import sys; sys.modules[{package!r}] = None; import foldmark.adapters.{framework}"
    run = run_python("-c", code, cwd=tmp_path)
    assert run.stderr.strip().splitlines()[-1] == f"ImportError: {PAGES[framework].needs}"
