"""Writes JSONL transcripts in tests, and picks out parts of the sessions that are read."""

import json
from pathlib import Path
from typing import Any

from foldmark.log.log import Log
from foldmark.model.messages import (
    AssistantInfo,
    Completed,
    Message,
    TextPart,
    ToolPart,
    Transcript,
)
from foldmark.transcripts.read import read_sessions


def written(folder: Path, *lines: Any) -> Path:
    """The path of a new file `kept.jsonl` with these lines."""
    path = folder / "kept.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(folder: Path, *lines: Any) -> Transcript:
    """The only session of a file with these lines."""
    (session,) = read_sessions(written(folder, *lines))
    return session


def texts(session: Transcript) -> list[str]:
    """All texts of a session."""
    parts = [part for message in session.messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, TextPart)]


def calls(session: Transcript) -> list[ToolPart]:
    """All calls of a session."""
    parts = [part for message in session.messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolPart)]


def completed(call: ToolPart) -> Completed:
    """The state of a completed call."""
    assert isinstance(call.state, Completed)
    return call.state


def output(call: ToolPart) -> str:
    """The output of a completed call."""
    return completed(call).output


def replies(session: Transcript) -> list[AssistantInfo]:
    """The infos of all replies but summaries."""
    infos = [message.info for message in session.messages]
    return [info for info in infos if isinstance(info, AssistantInfo) and not info.summary]


def first_reply(session: Transcript) -> tuple[Message, AssistantInfo]:
    """The first reply, and its info."""
    message = next(message for message in session.messages if not message.is_user)
    assert isinstance(message.info, AssistantInfo)
    return message, message.info


def requests(session: Transcript) -> list[str]:
    """The texts of the user's requests."""
    return [request.text for request in Log(len, session.messages).requests.all]
