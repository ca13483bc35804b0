"""An agent of pydantic-ai that reads 120 pages of a log within a window of 4 000 tokens.

    pip install 'foldmark[pydantic-ai]'
    python examples/pydantic_ai_agent.py

It runs offline with a scripted model. For a real one, set its API key and pass its name:

    python examples/pydantic_ai_agent.py anthropic:claude-sonnet-4-5
"""

import sys
import tempfile
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel

import foldmark
from foldmark.adapters.pydantic_ai import Foldmark

PAGES = 120
TASK = f"The log has {PAGES} pages. Read them, three at a time, and say which has the error."


class Scripted:
    """Reads three pages per step, and records the size of the longest request."""

    def __init__(self) -> None:
        """Start with the first page."""
        self.steps = 0
        self.longest = 0

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        """The next step."""
        self.steps += 1
        self.longest = max(self.longest, len(str(messages)))
        if 3 * self.steps <= PAGES:
            pages = range(3 * self.steps - 2, 3 * self.steps + 1)
            calls = [ToolCallPart("read_page", {"number": page}) for page in pages]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("Page 17 has the error.")])


def read_page(number: int) -> str:
    """Read a page of the log."""
    status = "ERROR: disk full" if number == 17 else "ok"
    return "\n".join(f"page {number}, line {row}: {status}" for row in range(40))


def main(model: str | Model, store: Path) -> None:
    """Run the agent, and print what was summarized and hidden."""
    with Foldmark(store, window=4_000, output=500) as memory:
        agent = Agent(model, instructions="Be brief.", tools=[read_page], capabilities=[memory])
        result = agent.run_sync(TASK, conversation_id="log")
    print("the agent:", result.output)
    print("messages of the run:", len(result.all_messages()))
    with foldmark.open(store, session="log") as session:
        kinds = [operation.kind for operation in session.operations()]
        print(
            "in the session:", kinds.count("prune"), "prunes,", kinds.count("pivot"), "compactions"
        )
        print("found again:", len(session.search("disk full")) > 0)


if __name__ == "__main__":
    script = Scripted()
    model = sys.argv[1] if len(sys.argv) > 1 else FunctionModel(script.answer)
    with tempfile.TemporaryDirectory() as folder:
        main(model, Path(folder) / "agent.db")
    if script.steps:
        print("the longest request:", script.longest, "characters")
