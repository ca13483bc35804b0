"""Foldmark as a history processor of pydantic-ai; its page, and its example."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

import foldmark
from foldmark.adapters.pydantic_ai import Foldmark
from foldmark.messages import AssistantInfo, Completed, ToolPart

from .pages import run_page
from .pydantic_ai_script import WINDOW, Script, equipped, own_loop, texts_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    with own_loop():
        yield


def ran(
    folder: Path, script: Script, prompt: str, history: list[ModelMessage]
) -> list[ModelMessage]:
    """The messages of a run, by an agent made for it alone."""
    with Foldmark(folder / "agent.db", window=WINDOW, output=400, durable=False) as memory:
        agent = equipped(
            Agent(
                script.model(),
                system_prompt="You are careful.",
                capabilities=[ProcessHistory(memory.process)],
            )
        )
        result = agent.run_sync(prompt, message_history=history or None, conversation_id="one")
        return result.all_messages()


def check_session(folder: Path, calls: int) -> None:
    """The session has every call once, each with its whole output."""
    with foldmark.open(folder / "agent.db", session="one", window=WINDOW) as session:
        kept = session.export().messages
        states = [p.state for m in kept for p in m.parts if isinstance(p, ToolPart)]
        outputs = [state.output for state in states if isinstance(state, Completed)]
        answers = [m for m in kept if isinstance(m.info, AssistantInfo) and not m.info.summary]
        assert sum(act.kind == "pivot" for act in session.acts()) >= 2
        assert all(act.kind in ("prune", "pivot") for act in session.acts())
    assert len(outputs) == calls
    assert all(len(text) == 2_000 or "no such file" in text for text in outputs)
    assert len(answers) == 59  # the last one was not asked about


@pytest.mark.parametrize("way", ["at hand", "saved"])
def test_what_a_processor_folds_is_recognised_and_nothing_is_lost(tmp_path: Path, way: str) -> None:
    script, history = Script(steps=20), list[ModelMessage]()
    for run in range(3):
        history = ran(tmp_path, script, f"Request {run}.", history)
        if way == "saved":
            data = ModelMessagesTypeAdapter.dump_json(history)
            history = ModelMessagesTypeAdapter.validate_json(data)
    assert len(history) < 60  # pydantic-ai has kept what was sent
    for request in script.requests:
        assert texts_of(request).count("You are careful.") == 1
    told = texts_of(script.requests[-1])
    assert "Request 0." in told
    assert "Request 2." in told
    check_session(tmp_path, script.calls)


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    run_page(ROOT / "docs" / "pydantic-ai.md", tmp_path)


def test_the_example_runs_and_tells_what_was_folded() -> None:
    example = ROOT / "examples" / "pydantic_ai_agent.py"
    run = subprocess.run([sys.executable, example], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert lines[:2] == ["the agent: Page 17 has the error.", "messages of the run: 82"]
    assert " 0 pivots" not in lines[2]
    assert lines[3] == "found again: True"
