"""Other agents as a tool: each works in a session of its own, and only its last words come back."""

from collections.abc import Mapping
from typing import Protocol

from foldmark.errors import FoldmarkError
from foldmark.model.values import Json
from foldmark.providers.background import uncut
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session

from .titles import first_words
from .tool import Context, Tool, ToolOutput, ToolRefusal
from .tool_calls import Toolbox
from .turn import DELEGATE, Turn

_SECONDS = 3_600.0
_SHOWN = 2_000


class Delegate(Protocol):
    """An agent to which tasks are handed."""

    name: str
    description: str
    toolbox: Toolbox

    def turn(self, said: str, session: Session) -> Turn:
        """A turn in a session that is not begun yet."""
        ...


def delegate(agents: Mapping[str, Delegate]) -> Tool:
    """The tool by which an agent hands a task to one of these."""
    listed = "\n".join(f"- {name}: {held.description}" for name, held in agents.items())

    async def call(given: Json, context: Context) -> ToolOutput:
        name, task = given.get("agent"), given.get("task")
        if not isinstance(task, str) or not task.strip():
            raise ToolRefusal("`task` must say what is to be done")
        if not isinstance(name, str) or name not in agents:
            raise ToolRefusal(f"there is no agent {name!r}; these are there: {', '.join(agents)}")
        return await _worked(agents[name], task, context)

    return Tool(
        name=DELEGATE,
        description=(
            "Hand a task to another agent. It knows nothing of this conversation, so say all that "
            f"it needs; it gives back its last words only.\n{listed}"
        ),
        schema={
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": list(agents)},
                "task": {"type": "string", "description": "What it shall do, with all it needs."},
            },
            "required": ["agent", "task"],
            "additionalProperties": False,
        },
        call=call,
        seconds=_SECONDS,
        shown=_SHOWN,
        changes=any(held.toolbox.changes for held in agents.values()),
        subject=_named,
    )


def _named(given: Json) -> str:
    return str(given.get("agent", ""))


async def _worked(agent: Delegate, task: str, context: Context) -> ToolOutput:
    session = await uncut(LoopSupport(context.session).child, first_words(task))
    turn = agent.turn(task, session)
    told: Json = {"session": session.id}
    try:
        ended = await turn.arun()
    except FoldmarkError as error:  # what it cost until then counts all the same
        return ToolOutput(text=str(error), metadata={**told, "cost": turn.cost}, error=True)
    finally:
        await uncut(session.close)
    return ToolOutput(
        text=ended.text or f"[It ended without a word: {ended.ended}]",
        title=f"{agent.name}: {first_words(task)}",
        metadata={**told, "ended": ended.ended, "steps": ended.steps, "cost": ended.cost},
        error=ended.ended != "stop",
    )
