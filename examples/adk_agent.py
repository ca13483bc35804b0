"""An agent of Google's ADK that reads a hundred files within a window of 6 000 tokens.

    pip install 'foldmark[adk]'
    python examples/adk_agent.py

It runs offline with a scripted model. For a real one, set GOOGLE_API_KEY and pass its name:

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
    """Reads two files per step, and records the size of the longest request."""

    model: str = "scripted"
    steps: int = 0
    longest: int = 0

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - ADK's signature
    ) -> AsyncGenerator[LlmResponse, None]:
        """The next step."""
        size = sum(len(one.model_dump_json(exclude_none=True)) for one in llm_request.contents)
        self.longest = max(self.longest, size)
        first = 2 * self.steps + 1
        self.steps += 1
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
    """Run the agent, and print what was summarized and hidden."""
    agent = LlmAgent(name="reader", model=model, tools=[read], instruction="Be brief.")
    plugin = FoldmarkPlugin(folder / "agent.db", window=6_000, output=500)
    app = App(name="files", root_agent=agent, plugins=[plugin])
    async with InMemoryRunner(app=app) as runner:
        adk_session = await runner.session_service.create_session(app_name="files", user_id="ada")
        task = types.Content(role="user", parts=[types.Part(text=TASK)])
        answer = ""
        async for event in runner.run_async(
            user_id="ada", session_id=adk_session.id, new_message=task
        ):
            for part in (event.content and event.content.parts) or ():
                answer = part.text or answer
        final = await runner.session_service.get_session(
            app_name="files", user_id="ada", session_id=adk_session.id
        )
        (session,) = plugin.sessions.values()
        kinds = [operation.kind for operation in session.operations()]
        hits = session.search("file-1.txt")
    print("the agent:", answer)
    print("events in ADK's session:", len(final.events) if final else 0)
    print("compactions:", kinds.count("pivot"), "· prunes:", kinds.count("prune"))
    print("file-1.txt is still found in the store:", len(hits) > 0)
    if isinstance(model, Scripted):
        print("longest request:", model.longest, "characters")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else Scripted(), Path(name)))
