"""Writes a session as Markdown for people.

Texts of messages are untrusted: they are put in fences longer than any fence in them, so that they
are shown literally and never become markup, a link or an image.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from foldmark.log.log import marker_part
from foldmark.log.render import is_summary, size_text
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    Transcript,
)
from foldmark.model.values import Json, encode

_TICKS = re.compile(r"`+")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_MAX_LABEL = 120
_SHORT = 80  # characters of JSON that are written on one line


def markdown(transcript: Transcript) -> str:
    """The session as Markdown, with one section per message."""
    return "\n".join(_lines(transcript)) + "\n"


def _lines(transcript: Transcript) -> Iterator[str]:
    info = transcript.info
    yield f"# {escaped(info.title or '') or f'Session {label(info.id)}'}"
    yield ""
    format = info.origin.format if info.origin else "opencode"
    facts = {"session": info.id, "folder": info.directory, "format": format}
    for name, value in facts.items():
        if value:
            yield f"- {name}: {label(value)}"
    yield f"- messages: {len(transcript.messages)}"
    if info.origin and info.origin.system:
        yield from ("", "## System prompt", "", *fenced(info.origin.system))
    for number, message in enumerate(transcript.messages, 1):
        yield ""
        yield from _message(number, message)


def _message(number: int, message: Message) -> Iterator[str]:
    yield f"## {number} · {_author(message)}{_time(message)}"
    for part in message.parts:
        lines = list(_part(part))
        if lines:
            yield ""
            yield from lines
    if isinstance(message.info, AssistantInfo) and message.info.error:
        yield from ("", "*failed:*", "", *fenced(_json(message.info.error), "json"))


def _author(message: Message) -> str:
    if message.is_user:
        return "compaction" if marker_part(message) is not None else "user"
    model = message.info.model_id if isinstance(message.info, AssistantInfo) else ""
    author = "summary" if is_summary(message) else "assistant"
    return f"{author}, {label(model)}" if model else author


def _time(message: Message) -> str:
    created = message.info.time.created if message.info.time else None
    if not created:
        return ""
    try:
        return f" · {datetime.fromtimestamp(created / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return ""


def _part(part: AnyPart) -> Iterator[str]:
    match part:
        case TextPart() if part.text.strip():
            if part.synthetic:
                yield from ("*by the program:*", "")
            yield from fenced(part.text)
        case ReasoningPart() if part.text.strip():
            yield from ("*thinking:*", "", *fenced(part.text))
        case FilePart():
            yield _file(part)
        case ToolPart():
            yield from _tool(part)
        case SubtaskPart() if part.prompt or part.description:
            yield from ("*task:*", "", *fenced(part.prompt or part.description or ""))
        case _:
            pass


def _file(part: FilePart) -> str:
    return f"- file: {label(part.filename or part.mime)}"


def _tool(part: ToolPart) -> Iterator[str]:
    yield f"*called* {label(part.tool)}"
    if part.state.input:
        yield from _input(part.state.input)
    match part.state:
        case Completed() as state:
            pruned = ", pruned" if state.time and state.time.compacted else ""
            yield from ("", f"*output, {size_text(state.output)}{pruned}:*")
            if state.output.strip():
                yield from ("", *fenced(state.output))
            if state.attachments:
                yield from ("", *map(_file, state.attachments))
        case Failed() as state:
            yield from ("", "*error:*", "", *fenced(state.error))
        case _:
            yield from ("", "*no result*")


def _input(arguments: Json) -> Iterator[str]:
    """The arguments of a call; texts of several lines, such as patches, get a fence each."""
    texts = {
        name: value for name, value in arguments.items() if isinstance(value, str) and "\n" in value
    }
    others = {name: value for name, value in arguments.items() if name not in texts}
    if others:
        yield from ("", *fenced(_json(others), "json"))
    for name, text in texts.items():
        yield from ("", f"{label(name)}:", "", *fenced(text))


def _json(value: object) -> str:
    data = encode(value)
    return (data if len(data) <= _SHORT else msgspec.json.format(data)).decode("utf-8", "replace")


def fenced(text: str, kind: str = "text") -> Iterator[str]:
    """The text between fences that it cannot close."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    yield f"{fence}{kind}"
    yield text.replace("\r\n", "\n").replace("\r", "\n")
    yield fence


def label(text: str) -> str:
    """A short text as inline code, shown literally."""
    line = _line(text)
    ticks = "`" * (_longest_ticks(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}" if line else "(no name)"


def escaped(text: str) -> str:
    """A short text in one line, with all markup escaped."""
    return _PUNCTUATION.sub(r"\\\1", _line(text))


def _line(text: str) -> str:
    line = "".join(ch for ch in " ".join(text.split()) if ch.isprintable())
    return line if len(line) <= _MAX_LABEL else f"{line[: _MAX_LABEL - 1]}…"


def _longest_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
