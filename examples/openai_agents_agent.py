"""An agent of OpenAI's Agents SDK whose run outgrows its context window.

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
    """Reads the log of each day, then answers."""

    def __init__(self) -> None:
        """Start with the first day."""
        self.calls = 0

    async def get_response(self, *args: Any, **keywords: Any) -> ModelResponse:
        """The next tool call, or the final answer."""
        items = keywords["input"] if "input" in keywords else args[1]
        self.calls += 1
        if self.calls % 10 == 0:
            size = len(str(items))
            print(f"request {self.calls}: the model receives {len(items)} items, {size} characters")
        day, name = self.calls, uuid4().hex
        output: Any = ResponseFunctionToolCall(
            type="function_call",
            id=f"fc_{name}",
            call_id=f"call_{name}",
            name="read_log",
            arguments=json.dumps({"day": day}),
        )
        if day == STEPS:
            text = ResponseOutputText(type="output_text", text="All is well.", annotations=[])
            output = ResponseOutputMessage(
                type="message",
                id=f"msg_{name}",
                role="assistant",
                status="completed",
                content=[text],
            )
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **keywords: Any) -> AsyncIterator[Any]:
        """Not needed here."""
        raise NotImplementedError


async def main(model: str | None, folder: Path) -> None:
    """Run the agent, and print what was summarized."""
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
        print(f"{len(await session.get_items())} items are stored")
        for operation in session.session.operations():
            if operation.kind == "pivot":
                print(f"compaction: {operation.before} tokens became {operation.after}")
        hit = session.session.search("day 7, 11:00")[0]
        print(f"the log of day 7 is {hit.state}; recall it as {hit.handle}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        set_tracing_disabled(disabled=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None, Path(folder)))
