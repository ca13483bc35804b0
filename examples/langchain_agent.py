"""A LangChain agent that reads a hundred log files in a window that fits only a few of them.

python examples/langchain_agent.py                     # a scripted model, offline
python examples/langchain_agent.py openai:gpt-5-mini   # a real one; needs its package and key
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from foldmark.adapters.langchain import FoldmarkMiddleware

FILES = 100
REQUEST = f"Read day-0.log to day-{FILES - 1}.log, and tell me which one has the timeout."


@tool
def read(name: str) -> str:
    """Read a file by its name."""
    error = "ERROR timeout in billing\n" if name == "day-7.log" else ""
    return error + f"{name}: GET /orders 200, no errors in this hour\n" * 40


class Scripted(GenericFakeChatModel):
    """A scripted model that reads one file after the other, then answers."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Ignore the tools: the script calls them by name."""
        return self


def script() -> Any:
    """The replies of the scripted model."""
    for number in range(FILES):
        call = {"name": "read", "args": {"name": f"day-{number}.log"}, "id": f"call-{number}"}
        yield AIMessage("", tool_calls=[call])
    yield AIMessage("It is day-7.log.")


def main() -> None:
    """Run the agent, and print what was summarized and hidden."""
    model = init_chat_model(sys.argv[1]) if sys.argv[1:] else Scripted(messages=script())
    store = Path(tempfile.mkdtemp()) / "agent.db"
    with FoldmarkMiddleware(store, window=6_000, output=500) as middleware:
        agent = create_agent(model, [read], middleware=[middleware])
        thread: Any = {"configurable": {"thread_id": "logs"}, "recursion_limit": 500}
        messages = agent.invoke({"messages": [("user", REQUEST)]}, thread)["messages"]
        with middleware.session("logs") as session:
            kinds = [operation.kind for operation in session.operations()]
            view = session.view()
            hit = session.search("timeout billing")[0]
    print(f"{len(messages)} messages in the agent's state, all complete")
    print(f"{view.tokens} tokens in the view that its model receives, of 6000")
    print(f"{kinds.count('prune')} prunes, {kinds.count('pivot')} compactions")
    print(f"still found as {hit.handle}: {hit.snippet[:60]!r}")
    print(f"answer: {messages[-1].text}")


if __name__ == "__main__":
    main()
