"""The real program, and small sessions of our own to run it on."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from foldmark.cli.app import app
from foldmark.io.files import write_private
from foldmark.messages import (
    AssistantInfo,
    Completed,
    Message,
    SessionInfo,
    TextPart,
    ToolPart,
    Transcript,
    UserInfo,
    encode_transcript,
)

FOLDMARK = Path(sys.executable).with_name("foldmark")
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what decides on colours and widths."""
    dropped = {"COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM", "PY_COLORS"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "TERM": "xterm-256color", **changes}


def called(*arguments: object, data: bytes = b"", **changes: str) -> tuple[int, str, str]:
    """The exit code, output and complaints of the real program."""
    command = [str(FOLDMARK), *map(str, arguments)]
    done = subprocess.run(
        command,
        input=data,
        capture_output=True,
        check=False,
        env=environment(**changes),
        timeout=60,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def printed(*arguments: object, **changes: str) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "100", **changes})
    assert result.exception is None
    assert result.exit_code == 0
    return result.stdout


def answered(*arguments: object) -> dict[str, Any]:
    return json.loads(printed(*arguments, "--json"))


def call(number: int, tool: str, path: str, output: str) -> Message:
    part = ToolPart(
        id=f"prt_{number}", tool=tool, state=Completed(input={"filePath": path}, output=output)
    )
    info = AssistantInfo(
        id=f"msg_{number}", provider_id="anthropic", model_id="claude-sonnet-4-5", finish="stop"
    )
    return Message(info=info, parts=(part,))


def session(*more: Message, model: str = "claude-sonnet-4-5", calls: int = 12) -> Transcript:
    """A small session about a mill, with a request before every second call."""
    messages: list[Message] = []
    for number in range(calls):
        if number % 2 == 0:
            words = TextPart(text=f"Look at wheel {number}, then tell me how it turns")
            messages.append(Message(info=UserInfo(id=f"ask_{number}"), parts=(words,)))
        messages.append(call(number, "read", f"/mill/wheel_{number}.py", f"wheel {number}\n" * 800))
    info = AssistantInfo(id="end", provider_id="anthropic", model_id=model, finish="stop")
    ending = Message(info=info, parts=(TextPart(text="They all turn."),))
    about = SessionInfo(id="ses_mill", title="How the wheels turn", directory="/mill")
    return Transcript(info=about, messages=(*messages, *more, ending))


def stored(folder: Path, transcript: Transcript, name: str = "session.json") -> Path:
    path = folder / name
    write_private(path, encode_transcript(transcript))
    return path
