"""An agent of OpenAI's Agents SDK that works for longer than its window.

pip install 'foldmark[openai-agents]'
python examples/openai_agents_agent.py                     # a scripted model, offline
OPENAI_API_KEY=… python examples/openai_agents_agent.py gpt-5-mini
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from foldmark.adapters.openai_agents import FoldmarkSession

STEPS = 60


@function_tool
def read_log(day: int) -> str:
    """Read the log of a day of the year."""
    return "\n".join(f"day {day}, {hour:02d}:00: all is well" for hour in range(24)) * 3


class Scripted(Model):
    """Reads the log of each day, then says that it is done."""

    def __init__(self) -> None:
        """Begin with the first day."""
        self.asked = 0

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """The next call, or the last word."""
        items = named["input"] if "input" in named else args[1]
        self.asked += 1
        if self.asked % 10 == 0:
            size = len(str(items))
            print(f"request {self.asked}: the model is shown {len(items)} items, {size} characters")
        day, name = self.asked, uuid4().hex
        said: Any = ResponseFunctionToolCall(
            type="function_call",
            id=f"fc_{name}",
            call_id=f"call_{name}",
            name="read_log",
            arguments=json.dumps({"day": day}),
        )
        if day == STEPS:
            text = ResponseOutputText(type="output_text", text="All is well.", annotations=[])
            said = ResponseOutputMessage(
                type="message",
                id=f"msg_{name}",
                role="assistant",
                status="completed",
                content=[text],
            )
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """Not needed here."""
        raise NotImplementedError


async def main(model: str | None, folder: Path) -> None:
    """Work, and tell what was folded."""
    async with FoldmarkSession("logs", folder / "agent.db", window=4_000, output=400) as session:
        agent = Agent(
            name="watch",
            instructions=f"Read the logs of the days 1 to {STEPS}, one by one. Then sum them up.",
            model=model or session.model(Scripted()),
            tools=[read_log],
        )
        result = await Runner.run(
            agent,
            "Was anything wrong this year?",
            session=session,
            run_config=session.run_config(),
            max_turns=STEPS + 10,
        )
        print(result.final_output)
        print(f"{len(await session.get_items())} items are kept")
        for act in session.session.acts():
            if act.kind == "pivot":
                print(f"folded: {act.before} tokens became {act.after}")
        found = session.session.search("day 7, 11:00")
        print(f"the log of day 7 is {found[0].state}, and recalled by {found[0].handle}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        set_tracing_disabled(disabled=True)
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None, Path(made)))
