"""The loop as the documents describe it, under their own presets."""

from pathlib import Path

import pytest

import foldmark
from foldmark.agent.agent import Agent
from foldmark.log.log import marker_part
from foldmark.model import events
from foldmark.model.messages import Cache, TextPart, Tokens
from foldmark.model.prompt_messages import UserMessage
from foldmark.summary.protocol import STEP, StepReply
from foldmark.testing import ScriptedModel, call

PRESETS = ("opencode-2025", "opencode-buffer", "opencode", "codelet", "codelet-usable", "foldmark")


def count_lines(file: int) -> str:
    """Weigh a file."""
    return f"file {file}: 25 kg"


def measured(file: int, tokens: int) -> StepReply:
    """An answer with a call, of which the provider says that the window holds so much."""
    counted = Tokens(input=tokens, output=10, cache=Cache(read=0, write=0), total=tokens + 10)
    text_part = TextPart(text=f"I count file {file}. " * 350)
    parts = (text_part, call("count_lines", file=file))
    return StepReply(parts=parts, finish="tool-calls", tokens=counted)


@pytest.mark.parametrize("preset", PRESETS)
def test_an_overflow_of_the_last_step_queues_a_marker_and_the_loop_goes_on(
    preset: str, tmp_path: Path
):
    model = ScriptedModel(
        *(measured(file, 5_000) for file in range(6)), measured(6, 39_500), "All weighed."
    )
    kinds: list[str] = []
    where = tmp_path / "agent.db"
    with foldmark.open(where, window=40_000, output=8_192, policy=preset) as session:
        session.subscribe(lambda event: kinds.append(event.kind))
        result = Agent(model, tools=[count_lines], titles=False).run("Count all files", session)
        markers = [part for m in session.export().messages if (part := marker_part(m))]
        assert result.text == "All weighed."
        assert [act.kind for act in session.operations() if act.in_force] == ["pivot"]
    assert [bool(part.auto) for part in markers] == [True]
    purposes = [ask.purpose for ask in model.requests]
    assert purposes == [*([STEP] * 7), "summary", STEP]
    compactions = [kind for kind in kinds if kind in (events.QUEUED, events.COMPACTED)]
    assert compactions == [events.QUEUED, events.COMPACTED]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_system_prompt_stays_in_front_whatever_was_folded(preset: str, tmp_path: Path):
    model = ScriptedModel(measured(1, 5_000), measured(2, 39_500), "Done.", "Yes.")
    where = tmp_path / "agent.db"
    with foldmark.open(where, window=40_000, output=8_192, policy=preset) as session:
        agent = Agent(model, tools=[count_lines], system="You count lines.", titles=False)
        agent.run("Count all files", session)
        agent.run("Done?", session)
    steps = [ask for ask in model.requests if ask.purpose == STEP]
    assert {ask.system for ask in steps} == {"You count lines."}
    assert {len(ask.tools) for ask in steps} == {3}
    assert all(isinstance(ask.messages[0], UserMessage) for ask in steps)


def test_a_compaction_that_is_stopped_ends_the_loop(tmp_path: Path):
    model = ScriptedModel("One.", "Two.", summaries="## Goal\nto count_lines", delay=0.3)
    with foldmark.open(tmp_path / "agent.db", window=64_000) as session:
        agent = Agent(model, titles=False)
        agent.run("word " * 4_000, session)
        session.queue()
        turn = agent.turn("And now?", session)
        session.subscribe(lambda _: turn.abort(), [events.DELTA])
        assert turn.run().ending == "aborted"
        assert session.pending() is None
        assert [act for act in session.operations() if act.in_force] == []
    assert [ask.purpose for ask in model.requests].count(STEP) == 1


def test_old_outputs_are_pruned_when_a_turn_ends(tmp_path: Path):
    def read_log() -> str:
        """Read a log."""
        return "error " * 6_000

    model = ScriptedModel(*([call("read_log")] * 12), "Ground.", "Yes.", "Sure.")
    with foldmark.open(tmp_path / "agent.db", window=1_000_000, policy="opencode-2025") as session:
        agent = Agent(model, tools=[read_log], titles=False)
        agent.run("Read twelve files", session)
        assert session.operations() == []  # the last two turns are spared
        agent.run("All of them?", session)
        agent.run("Really?", session)
        assert [act.kind for act in session.operations()] == ["prune"]
