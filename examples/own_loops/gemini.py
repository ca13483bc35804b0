"""An agent's loop with Gemini, kept by Foldmark however long it takes.

    GEMINI_API_KEY=… python gemini.py "Which of the files here is the longest?"

Asked again, it goes on with the same session.
"""

import sys
from pathlib import Path

from google.genai import Client, errors, types

import foldmark

MODEL = "gemini-2.5-flash"


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
        "function_declarations": [
            {"name": "read_file", "description": read_file.__doc__, "parameters": SCHEMA}
        ]
    }
]


def answered(session: foldmark.Session, client: Client) -> types.GenerateContentResponse:
    """The next answer; where the window is smaller than believed, the session is folded first."""
    while True:
        try:
            return client.models.generate_content(
                model=MODEL, contents=session.messages("gemini"), config={"tools": TOOLS}
            )
        except errors.ClientError as error:
            if not session.recover(error):
                raise


def main(question: str) -> None:
    """Ask until nothing is called any more."""
    opened = foldmark.open(
        "agent.db", session="files", model="google:gemini-2.5-flash", tools=TOOLS
    )
    with Client() as client, opened as session:
        session.user(question)
        while True:
            reply = answered(session, client)
            session.record(reply)
            if not reply.function_calls:
                print(reply.text)
                return
            # Calls may have no ids: their results go back in one content, in their order.
            parts = [
                types.Part(
                    function_response=types.FunctionResponse(
                        id=call.id, name=call.name, response={"output": read_file(**call.args)}
                    )
                )
                for call in reply.function_calls
            ]
            session.extend([types.Content(role="user", parts=parts)])


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Which of the files here is the longest?")
