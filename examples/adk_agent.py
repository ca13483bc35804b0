"""An agent of Google's ADK that reads a hundred files within a window of 6 000 tokens.

    pip install 'foldmark[adk]'
    python examples/adk_agent.py

It runs offline, with a model by a script. For a real one, set GOOGLE_API_KEY and say which:

    python examples/adk_agent.py gemini-2.5-flash
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from foldmark.adapters.adk import FoldmarkPlugin

FILES = 100
TASK = f"Read file-1.txt to file-{FILES}.txt, two at a time, and say how many there were."


class Scripted(BaseLlm):
    """Reads two files in each step, and keeps the longest request that it was sent."""

    model: str = "scripted"
    asked: int = 0
    longest: int = 0

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - ADK's own
    ) -> AsyncGenerator[LlmResponse, None]:
        """The next step."""
        sent = sum(len(held.model_dump_json(exclude_none=True)) for held in llm_request.contents)
        self.longest = max(self.longest, sent)
        first = 2 * self.asked + 1
        self.asked += 1
        if first > FILES:
            parts = [types.Part(text=f"There were {FILES} files.")]
        else:
            calls = [{"path": f"file-{number}.txt"} for number in (first, first + 1)]
            parts = [types.Part.from_function_call(name="read", args=args) for args in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def read(path: str) -> str:
    """The text of a file."""
    return f"{path} has many lines, and this is one.\n" * 40


async def main(model: str | BaseLlm, folder: Path) -> None:
    """Run the agent, and tell what was folded."""
    agent = LlmAgent(name="reader", model=model, tools=[read], instruction="Be brief.")
    plugin = FoldmarkPlugin(folder / "agent.db", window=6_000, output=500)
    app = App(name="files", root_agent=agent, plugins=[plugin])
    async with InMemoryRunner(app=app) as runner:
        talk = await runner.session_service.create_session(app_name="files", user_id="ada")
        task = types.Content(role="user", parts=[types.Part(text=TASK)])
        said = ""
        async for event in runner.run_async(user_id="ada", session_id=talk.id, new_message=task):
            for part in (event.content and event.content.parts) or ():
                said = part.text or said
        kept = await runner.session_service.get_session(
            app_name="files", user_id="ada", session_id=talk.id
        )
        (session,) = plugin.sessions.values()
        kinds = [act.kind for act in session.acts()]
        found = len(session.search("file-1.txt"))
    print("the agent:", said)
    print("events in ADK's session:", len(kept.events) if kept else 0)
    print("pivots:", kinds.count("pivot"), "· prunes:", kinds.count("prune"))
    print("file-1.txt is still found in the store:", found > 0)
    if isinstance(model, Scripted):
        print("longest request:", model.longest, "characters")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else Scripted(), Path(made)))
