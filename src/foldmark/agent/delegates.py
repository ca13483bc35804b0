"""Other agents as a tool: each works in a session of its own, and only its last words come back."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from foldmark.errors import FoldmarkError
from foldmark.model.messages import Message, Pending, SubtaskPart, ToolPart
from foldmark.model.values import Json
from foldmark.providers.background import uncut
from foldmark.summary.steps import Stepped

from .titles import first_words
from .tool import Context, Output, Refusal, Tool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .agent import Agent

NAME = "delegate"
_SECONDS = 3_600.0
_SHOWN = 2_000


def delegate(agents: "Mapping[str, Agent]") -> Tool:
    """The tool by which an agent hands a task to one of these."""
    listed = "\n".join(f"- {name}: {held.description}" for name, held in agents.items())

    async def call(given: Json, context: Context) -> Output:
        name, task = given.get("agent"), given.get("task")
        if not isinstance(task, str) or not task.strip():
            raise Refusal("`task` must say what is to be done")
        if not isinstance(name, str) or name not in agents:
            raise Refusal(f"there is no agent {name!r}; these are there: {', '.join(agents)}")
        return await _worked(agents[name], task, context)

    return Tool(
        name=NAME,
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
        changes=any(held.hands.changes for held in agents.values()),
        subject=_named,
    )


def _named(given: Json) -> str:
    return str(given.get("agent", ""))


async def _worked(agent: "Agent", task: str, context: Context) -> Output:
    session = await uncut(context.session.child, first_words(task))
    turn = agent.turn(task, session)
    told: Json = {"session": session.id}
    try:
        ended = await turn.arun()
    except FoldmarkError as error:  # what it cost until then counts all the same
        return Output(text=str(error), metadata={**told, "cost": turn.cost}, error=True)
    finally:
        await uncut(session.close)
    return Output(
        text=ended.text or f"[It ended without a word: {ended.ended}]",
        title=f"{agent.name}: {first_words(task)}",
        metadata={**told, "ended": ended.ended, "steps": ended.steps, "cost": ended.cost},
        error=ended.ended != "stop",
    )


def handed_on(messages: Iterable[Message]) -> Stepped | None:
    """The calls for what messages of the user hand to other agents; None where they do not."""
    parts = tuple(
        ToolPart(
            tool=NAME,
            state=Pending(input={"agent": part.agent or "", "task": part.prompt or ""}),
        )
        for message in messages
        for part in message.parts
        if message.is_user and isinstance(part, SubtaskPart)
    )
    return Stepped(parts=parts, finish="tool-calls") if parts else None
