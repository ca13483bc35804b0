"""An agent's loop with OpenAI's Responses, kept by Foldmark however long it takes.

    OPENAI_API_KEY=… python openai_responses.py "Which of the files here is the longest?"

Asked again, it goes on with the same session.
"""

import json
import sys
from pathlib import Path

from openai import BadRequestError, OpenAI
from openai.types.responses import Response

import foldmark

MODEL = "gpt-5.1"


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
TOOLS = [
    {
        "type": "function",
        "name": "read_file",
        "description": read_file.__doc__,
        "parameters": SCHEMA,
        "strict": False,
    }
]


def answered(session: foldmark.Session, client: OpenAI) -> Response:
    """The next answer; where the window is smaller than believed, the session is folded first."""
    while True:
        try:
            return client.responses.create(
                model=MODEL,
                input=session.messages("openai-responses"),
                tools=TOOLS,
                store=False,
                include=["reasoning.encrypted_content"],
            )
        except BadRequestError as error:
            if not session.recover(error):
                raise


def main(question: str) -> None:
    """Ask until nothing is called any more."""
    opened = foldmark.open("agent.db", session="files", model="openai:gpt-5.1", tools=TOOLS)
    with OpenAI() as client, opened as session:
        session.user(question)
        while True:
            reply = answered(session, client)
            session.record(reply)
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                print(reply.output_text)
                return
            for call in calls:
                session.result(call.call_id, read_file(**json.loads(call.arguments)))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Which of the files here is the longest?")
