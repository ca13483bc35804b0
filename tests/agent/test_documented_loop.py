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


def weigh(sack: int) -> str:
    """Weigh a sack."""
    return f"sack {sack}: 25 kg"


def measured(sack: int, tokens: int) -> StepReply:
    """An answer with a call, of which the provider says that the window holds so much."""
    counted = Tokens(input=tokens, output=10, cache=Cache(read=0, write=0), total=tokens + 10)
    said = TextPart(text=f"I weigh sack {sack}. " * 350)
    parts = (said, call("weigh", sack=sack))
    return StepReply(parts=parts, finish="tool-calls", tokens=counted)


@pytest.mark.parametrize("preset", PRESETS)
def test_an_overflow_of_the_last_step_queues_a_marker_and_the_loop_goes_on(
    preset: str, tmp_path: Path
):
    model = ScriptedModel(
        *(measured(sack, 5_000) for sack in range(6)), measured(6, 39_500), "All weighed."
    )
    told: list[str] = []
    where = tmp_path / "agent.db"
    with foldmark.open(where, window=40_000, output=8_192, policy=preset) as session:
        session.subscribe(lambda event: told.append(event.kind))
        ended = Agent(model, tools=[weigh], titles=False).run("Weigh all sacks", session)
        markers = [part for m in session.export().messages if (part := marker_part(m))]
        assert ended.text == "All weighed."
        assert [act.kind for act in session.operations() if act.in_force] == ["pivot"]
    assert [bool(part.auto) for part in markers] == [True]
    asked = [ask.purpose for ask in model.requests]
    assert asked == [*([STEP] * 7), "summary", STEP]
    heard = [kind for kind in told if kind in (events.QUEUED, events.COMPACTED)]
    assert heard == [events.QUEUED, events.COMPACTED]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_system_prompt_stays_in_front_whatever_was_folded(preset: str, tmp_path: Path):
    model = ScriptedModel(measured(1, 5_000), measured(2, 39_500), "Done.", "Yes.")
    where = tmp_path / "agent.db"
    with foldmark.open(where, window=40_000, output=8_192, policy=preset) as session:
        agent = Agent(model, tools=[weigh], system="You weigh sacks.", titles=False)
        agent.run("Weigh all sacks", session)
        agent.run("Done?", session)
    steps = [ask for ask in model.requests if ask.purpose == STEP]
    assert {ask.system for ask in steps} == {"You weigh sacks."}
    assert {len(ask.tools) for ask in steps} == {3}
    assert all(isinstance(ask.messages[0], UserMessage) for ask in steps)


def test_a_compaction_that_is_stopped_ends_the_loop(tmp_path: Path):
    model = ScriptedModel("One.", "Two.", summaries="## Goal\nto weigh", delay=0.3)
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
    def grind() -> str:
        """Grind."""
        return "flour " * 6_000

    model = ScriptedModel(*([call("grind")] * 12), "Ground.", "Yes.", "Sure.")
    with foldmark.open(tmp_path / "agent.db", window=1_000_000, policy="opencode-2025") as session:
        agent = Agent(model, tools=[grind], titles=False)
        agent.run("Grind twelve sacks", session)
        assert session.operations() == []  # the last two turns are spared
        agent.run("All of them?", session)
        agent.run("Really?", session)
        assert [act.kind for act in session.operations()] == ["prune"]
