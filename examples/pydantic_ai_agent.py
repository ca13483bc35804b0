"""An agent of pydantic-ai that reads 120 pages of a log within a window of 4 000 tokens.

    pip install 'foldmark[pydantic-ai]'
    python examples/pydantic_ai_agent.py

It runs offline, with a model by a script. For a real one, set its key and say which:

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
    """Reads three pages in each step, and keeps the longest request that it was sent."""

    def __init__(self) -> None:
        """Nothing was read."""
        self.asked = 0
        self.longest = 0

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        """The next step."""
        self.asked += 1
        self.longest = max(self.longest, len(str(messages)))
        if 3 * self.asked <= PAGES:
            pages = range(3 * self.asked - 2, 3 * self.asked + 1)
            calls = [ToolCallPart("read_page", {"number": page}) for page in pages]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("Page 17 has the error.")])


def read_page(number: int) -> str:
    """Read a page of the log."""
    what = "ERROR: disk full" if number == 17 else "well"
    return "\n".join(f"page {number}, line {row}: {what}" for row in range(40))


def main(model: str | Model, store: Path) -> None:
    """Run the agent, and tell what was folded."""
    with Foldmark(store, window=4_000, output=500) as memory:
        agent = Agent(model, instructions="Be brief.", tools=[read_page], capabilities=[memory])
        result = agent.run_sync(TASK, conversation_id="log")
    print("the agent:", result.output)
    print("messages of the run:", len(result.all_messages()))
    with foldmark.open(store, session="log") as session:
        kinds = [act.kind for act in session.acts()]
        print("in the session:", kinds.count("prune"), "prunes,", kinds.count("pivot"), "pivots")
        print("found again:", len(session.search("disk full")) > 0)


if __name__ == "__main__":
    script = Scripted()
    given = sys.argv[1] if len(sys.argv) > 1 else FunctionModel(script.answer)
    with tempfile.TemporaryDirectory() as folder:
        main(given, Path(folder) / "agent.db")
    if script.asked:
        print("the longest request:", script.longest, "characters")
