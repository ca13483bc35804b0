"""A LangChain agent that reads a hundred files through a window that holds a few of them.

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
REQUEST = f"Read part-0.txt to part-{FILES - 1}.txt, and tell me which one names the miller."


@tool
def read(name: str) -> str:
    """Read a file by its name."""
    miller = "The miller is called Ada.\n" if name == "part-7.txt" else ""
    return miller + f"{name}: the wheel turns and the grain is ground.\n" * 40


class Scripted(GenericFakeChatModel):
    """Stands for a model: it reads one file after the other, then answers."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Tools are known to the script."""
        return self


def script() -> Any:
    """What the scripted model says."""
    for number in range(FILES):
        call = {"name": "read", "args": {"name": f"part-{number}.txt"}, "id": f"call-{number}"}
        yield AIMessage("", tool_calls=[call])
    yield AIMessage("It is part-7.txt.")


def main() -> None:
    """Run the agent, and tell what was folded."""
    model = init_chat_model(sys.argv[1]) if sys.argv[1:] else Scripted(messages=script())
    store = Path(tempfile.mkdtemp()) / "agent.db"
    with FoldmarkMiddleware(store, window=6_000, output=500) as folding:
        agent = create_agent(model, [read], middleware=[folding])
        thread: Any = {"configurable": {"thread_id": "mill"}, "recursion_limit": 500}
        said = agent.invoke({"messages": [("user", REQUEST)]}, thread)["messages"]
        with folding.session("mill") as session:
            acts = [act.kind for act in session.acts()]
            view = session.view()
            found = session.search("miller called Ada")[0]
    print(f"{len(said)} messages in the agent's state, all of them whole")
    print(f"{view.tokens} tokens in the view that its model is shown, of 6000")
    print(
        f"{acts.count('prune')} prunes (outputs hidden), {acts.count('pivot')} pivots (all folded)"
    )
    print(f"still found, behind {found.handle}: {found.snippet[:60]!r}")
    print(f"answer: {said[-1].text}")


if __name__ == "__main__":
    main()
