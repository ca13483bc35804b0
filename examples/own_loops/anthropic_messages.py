"""An agent's loop with Anthropic's Messages, kept by Foldmark however long it takes.

    ANTHROPIC_API_KEY=… python anthropic_messages.py "Which of the files here is the longest?"

Asked again, it goes on with the same session.
"""

import sys
from pathlib import Path

from anthropic import Anthropic, BadRequestError
from anthropic.types import Message

import foldmark

MODEL = "claude-sonnet-4-6"


def read_file(path: str) -> str:
    """Read a file below this folder, or list a folder."""
    place = (Path.cwd() / path).resolve()
    if not place.is_relative_to(Path.cwd()):
        return "outside of this folder"
    try:
        return "\n".join(sorted(map(str, place.iterdir()))) if place.is_dir() else place.read_text()
    except (OSError, UnicodeError) as error:
        return f"cannot be read: {error}"


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"name": "read_file", "description": read_file.__doc__, "input_schema": SCHEMA}]


def answered(session: foldmark.Session, client: Anthropic) -> Message:
    """The next answer; where the window is smaller than believed, the session is folded first."""
    while True:
        try:
            return client.messages.create(
                model=MODEL,
                max_tokens=4_000,
                messages=session.messages("anthropic"),
                tools=TOOLS,
            )
        except BadRequestError as error:
            if not session.recover(error):
                raise


def main(question: str) -> None:
    """Ask until nothing is called any more."""
    opened = foldmark.open(
        "agent.db", session="files", model="anthropic:claude-sonnet-4-6", tools=TOOLS
    )
    with Anthropic() as client, opened as session:
        session.user(question)
        while True:
            reply = answered(session, client)
            session.record(reply)
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                print("".join(block.text for block in reply.content if block.type == "text"))
                return
            for call in calls:
                session.result(call.id, read_file(**call.input))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Which of the files here is the longest?")
