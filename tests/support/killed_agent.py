"""A program that lets an agent work in a folder until it is killed, and goes on where it was left.

What its model says is a function of what it is shown, so that whoever starts it again needs to
know nothing: it looks which of the numbered tasks have a result, and gives the next ones. Each
task changes files in a way that can be done twice with the same end.
"""

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.tools.workspace import workspace_tools
from foldmark.log.render import is_summary
from foldmark.model import events
from foldmark.model.messages import TextPart
from foldmark.model.prompt_messages import ToolMessage
from foldmark.model.values import encode
from foldmark.session.loop_support import LoopSupport
from foldmark.session.session import Session
from foldmark.summary.protocol import ModelRequest
from foldmark.testing import ReplyPart, ReplyValue, ScriptedModel, call, plausible_reply

WINDOW = 8_000
SESSION = "agentwork"
REQUEST = "Do all tasks, one after the other. Never do one before those before it."
DONE = "All tasks are done."
CUT_OFF = "[Cut off:"  # how the result of a call begins that has no other
_TASK = re.compile(r"Task (\d+) begins")


def opened(where: str, **more: Any) -> Session:
    """The session that everything here is about."""
    return foldmark.open(where, session=SESSION, window=WINDOW, output=1_000, **more)


def tell(**fields: Any) -> None:
    """Write a line that is there whole, or not at all, and at once."""
    os.write(1, json.dumps(fields).encode() + b"\n")


def text_of(number: int) -> str:
    """What a task writes."""
    return "".join(f"task {number}, line {line}\n" for line in range(number % 17 + 1))


def calls_of(number: int) -> list[ReplyPart]:
    """The calls of a task; in each folder of ten files some are changed and some deleted."""
    name = f"files/{number // 10}/{number}.txt"
    before = f"files/{(number - 1) // 10}/{number - 1}.txt"
    match number % 5:
        case 0:
            return [call("write", path=name, content=text_of(number)), call("read", path="dam.txt")]
        case 1:
            command = f"mkdir -p files; printf 'by task {number}' > files/{number}.sh.txt"
            return [call("shell", command=command), call("write", path=name, content="short")]
        case 2:
            return [call("edit", path=before, old="short", new="longer than before")]
        case 3:
            return [call("shell", command=f"rm -f log.{number % 4}.txt; yes error | head -300")]
        case _:
            return [call("write", path="dam.txt", content=text_of(number))]


def expected(tasks: Iterable[int], beginning: dict[str, str]) -> dict[str, str]:
    """The files after these tasks."""
    files = dict(beginning)
    for number in tasks:
        name = f"files/{number // 10}/{number}.txt"
        match number % 5:
            case 0:
                files[name] = text_of(number)
            case 1:
                files[f"files/{number}.sh.txt"] = f"by task {number}"
                files[name] = "short"
            case 2:
                files[f"files/{(number - 1) // 10}/{number - 1}.txt"] = "longer than before"
            case 3:
                files.pop(f"log.{number % 4}.txt", None)
            case _:
                files["dam.txt"] = text_of(number)
    return files


def begun(folder: Path) -> dict[str, str]:
    """Make the folder as it is in the beginning."""
    files = {f"log.{number}.txt": text_of(number) for number in range(6)} | {"dam.txt": "dry\n"}
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return files


def told(value: object) -> str:
    """Anything as text."""
    return encode(value).decode()


def begun_tasks(session: Session) -> list[int]:
    """The tasks of a session in the order in which they were begun; some are begun twice."""
    texts = (
        part.text
        for message in session.export().messages
        if not message.is_user and not is_summary(message)
        for part in message.parts
        if isinstance(part, TextPart)
    )
    return [int(number) for text in texts for number in _TASK.findall(text)]


# --- the model -----------------------------------------------------------------------------------


def newest_task(ask: ModelRequest) -> int | None:
    """The last task that was begun, as far as it is shown; a summary tells it too."""
    numbers = [int(number) for number in _TASK.findall(told(ask.messages))]
    return max(numbers, default=None)


def next_task(ask: ModelRequest) -> int:
    """The next task, or the last once more where nothing shows that it was done."""
    newest = newest_task(ask)
    if newest is None:
        return 0
    places = [
        n for n, message in enumerate(ask.messages) if f"Task {newest} begins" in told(message)
    ]
    after = [message for message in ask.messages[places[-1] :] if isinstance(message, ToolMessage)]
    outputs = [block.output.value for message in after for block in message.content]
    return newest + 1 if outputs and not any(CUT_OFF in text for text in outputs) else newest


def model_of(stop: Path) -> ScriptedModel:
    """A model that gives task after task, until there is a file that says stop."""

    def reply(ask: ModelRequest) -> ReplyValue:
        number = next_task(ask)
        if stop.exists() and number == (newest_task(ask) or 0) + 1:
            return DONE
        return [f"Task {number} begins. " + "I take care. " * 20, *calls_of(number)]

    def summary(ask: ModelRequest) -> ReplyValue:
        newest = newest_task(ask)
        note = "" if newest is None else f"\n- Task {newest} begins"
        return plausible_reply(ask) + note

    return ScriptedModel(reply, summaries=summary, measured=True, window=WINDOW, delay=0.004)


def agent_of(folder: Path, model: ScriptedModel) -> Agent:
    """The agent of the folder."""
    tools = workspace_tools(folder)
    return Agent(model, tools=tools, folder=folder, permissions={"shell": "allow"})


def work(where: str, folder: Path, stop: Path) -> None:
    """Work to the end, from a word on the input on: what comes before takes Python's time."""
    agent = agent_of(folder, model_of(stop))
    tell(ready=os.getpid())
    sys.stdin.readline()
    with opened(where) as session:
        session.subscribe(lambda event: tell(step=event.data["message"]), [events.STEP_FINISHED])
        session.subscribe(lambda event: tell(call=event.data["call"]), [events.TOOL_FINISHED])
        result = agent.run(None if LoopSupport(session).newest() else REQUEST, session)
    tell(ended=result.ending, text=result.text)


if __name__ == "__main__":
    work(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
