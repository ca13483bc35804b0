"""The agent loop with a small real model behind a real server: usage, overflow and cache.

The model writes nonsense and calls no tools, so the test adds a call to each of its replies.
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
    DeltaHandler,
    Model,
    ModelFailure,
    ModelReply,
    ModelRequest,
    Outcome,
    StepReply,
    TextHandler,
)
from tests.support.local_model import model_server
from tests.support.view_rules import assert_valid

# The model cannot write headings, so the prompt without them is used.
PLAIN = replace(
    FOLDMARK,
    compact=replace(FOLDMARK.compact, prompts="001", retries=0, calls=1),
    prune=replace(FOLDMARK.prune, on=False),
)
WINDOW = 1024  # the model reads slowly
STEPS, ANSWER = 21, 8
FIRST = "Make all parsers return tuples. Never touch the main branch."


class CallingModel:
    """A real model with a tool call added to each reply but the last."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name
        self.steps: list[tuple[ModelRequest, StepReply | ModelFailure]] = []
        self.summaries: list[Outcome] = []

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply | ModelFailure:
        step = await self._model.step(replace(request, max_tokens=ANSWER), on_delta)
        self.steps.append((request, step))
        number = sum(isinstance(outcome, StepReply) for _, outcome in self.steps)
        if isinstance(step, ModelFailure) or number >= STEPS:
            return step
        state = Pending(input={"number": number})
        call = ToolPart(tool="read_parser", call_id=f"call_{number}", state=state)
        return replace(step, parts=(*step.parts, call), finish="tool-calls")

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        self.summaries.append(await self._model.ask(request, on_text))
        return self.summaries[-1]


def read_parser(number: int) -> str:
    """Read the source of a parser."""
    return f"def parse_rows_{number}(lines): return lines * {number}  # tuples\n" * 4


@pytest.fixture
def model() -> Iterator[CallingModel]:
    with model_server(WINDOW) as address:
        yield CallingModel(model_named("openai:smollm2", base_url=address, api_key="none"))


def test_a_turn_of_many_steps_stays_within_a_small_real_window(
    tmp_path: Path, model: CallingModel
) -> None:
    settings: dict[str, Any] = {"window": WINDOW, "output": 64, "policy": PLAIN}
    agent = Agent(model, tools=[read_parser], system="You write parsers.", titles=False)
    pivots: list[int] = []  # number of steps before each
    with foldmark.open(tmp_path / "agent.db", **settings) as session:
        session.subscribe(lambda _: pivots.append(len(model.steps)), ["session.compacted"])
        result = agent.run(FIRST, session)
        messages = session.export().messages
        operations = session.operations()
        assert session.search("parse_rows_2")
    assert result.ending in {"stop", "length"}
    assert sum(each.kind == "pivot" and each.in_force for each in operations) >= 2
    finished = [p for m in messages for p in m.parts if isinstance(p, StepFinishPart)]
    assert len(finished) == STEPS
    for part in finished:  # measured by the server
        assert part.tokens
        assert 0 < int(part.tokens.total or 0) <= WINDOW
    summaries = [m.info for m in messages if isinstance(m.info, AssistantInfo) and m.info.summary]
    assert len(summaries) >= 2
    assert any(isinstance(outcome, ModelReply) for outcome in model.summaries)
    check_requests(model)
    check_cache(model, pivots)


def check_requests(model: CallingModel) -> None:
    for request, step in model.steps:
        assert isinstance(step, StepReply)  # no request was too long
        assert_valid(request.messages)
        assert FIRST in str(request.messages)


def check_cache(model: CallingModel, pivots: list[int]) -> None:
    """Between two pivots, the server finds the whole previous request in its cache."""
    before = 0
    for number, (_, step) in enumerate(model.steps):
        assert isinstance(step, StepReply)
        assert step.tokens is not None
        assert step.tokens.cache
        # The last tokens mark the end of a request; they differ when it is extended.
        if number and number not in pivots:
            assert int(step.tokens.cache.read or 0) >= before - 16 > 0
        before = int(step.tokens.total or 0)
