"""The loop against a small real model behind a real server: wire, usage, overflow and cache.

The model writes nonsense and calls no tools, so that a call is put behind each of its answers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import foldmark
from foldmark.agent.agent import Agent
from foldmark.model.messages import AssistantInfo, Pending, StepFinishPart, ToolPart
from foldmark.policy import FOLDMARK
from foldmark.providers.models import model_named
from foldmark.summary.protocol import (
    TextHandler,
    Model,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    StepReply,
    DeltaHandler,
)
from tests.support.local_model import model_server
from tests.support.view_rules import assert_valid

# The model cannot keep to headings: the prompt without them is what it can answer.
PLAIN = replace(
    FOLDMARK,
    compact=replace(FOLDMARK.compact, prompts="001", retries=0, calls=1),
    prune=replace(FOLDMARK.prune, on=False),
)
WINDOW = 1024  # the model reads slowly
STEPS, ANSWER = 21, 8
FIRST = "Make the wheels of the mill turn evenly. Never touch the dam."


class Driven:
    """A real model whose every answer is followed by a call of a tool, until the last."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        self.steps: list[tuple[ModelRequest, StepReply | ModelFailure]] = []
        self.asked: list[Outcome] = []

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply | ModelFailure:
        step = await self._model.step(replace(request, max_tokens=ANSWER), on_delta)
        self.steps.append((request, step))
        number = sum(isinstance(held, StepReply) for _, held in self.steps)
        if isinstance(step, ModelFailure) or number >= STEPS:
            return step
        state = Pending(input={"wheel": number})
        made = ToolPart(tool="look", call_id=f"call_{number}", state=state)
        return replace(step, parts=(*step.parts, made), finish="tool-calls")

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        self.asked.append(await self._model.ask(request, on_text))
        return self.asked[-1]


def look(wheel: int) -> str:
    """Look at a wheel."""
    return f"def turn_wheel_{wheel}(speed): return speed * {wheel}  # evenly\n" * 4


@pytest.fixture
def driven() -> Iterator[Driven]:
    with model_server(WINDOW) as address:
        yield Driven(model_named("openai:smollm2", base_url=address, api_key="none"))


def test_a_turn_of_many_steps_stays_within_a_small_real_window(
    tmp_path: Path, driven: Driven
) -> None:
    settings: dict[str, Any] = {"window": WINDOW, "output": 64, "policy": PLAIN}
    agent = Agent(driven, tools=[look], system="You mend a mill.", titles=False)
    pivots: list[int] = []  # how many steps there were before each
    with foldmark.open(tmp_path / "agent.db", **settings) as session:
        session.subscribe(lambda _: pivots.append(len(driven.steps)), ["session.compacted"])
        ended = agent.run(FIRST, session)
        messages = session.export().messages
        acts = session.operations()
        assert session.search("turn_wheel_2")
    assert ended.ending in {"stop", "length"}
    assert sum(act.kind == "pivot" and act.in_force for act in acts) >= 2
    finished = [p for m in messages for p in m.parts if isinstance(p, StepFinishPart)]
    assert len(finished) == STEPS
    for part in finished:  # as the server measured it
        assert part.tokens
        assert 0 < int(part.tokens.total or 0) <= WINDOW
    summaries = [m.info for m in messages if isinstance(m.info, AssistantInfo) and m.info.summary]
    assert len(summaries) >= 2
    assert any(isinstance(outcome, ModelReply) for outcome in driven.asked)
    check_requests(driven)
    check_cache(driven, pivots)


def check_requests(driven: Driven) -> None:
    for ask, step in driven.steps:
        assert isinstance(step, StepReply)  # the server never said that it is too long
        assert_valid(ask.messages)
        assert FIRST in str(ask.messages)


def check_cache(driven: Driven, pivots: list[int]) -> None:
    """Between two pivots, the server has read the whole of the request before."""
    before = 0
    for number, (_, step) in enumerate(driven.steps):
        assert isinstance(step, StepReply)
        assert step.tokens is not None
        assert step.tokens.cache
        # The last tokens of a request are how its end is told; they differ once it goes on.
        if number and number not in pivots:
            assert int(step.tokens.cache.read or 0) >= before - 16 > 0
        before = int(step.tokens.total or 0)
