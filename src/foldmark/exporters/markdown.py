"""A session as Markdown for people.

What was said is somebody else's text: it stands in fences longer than any in it, so that it is
shown as it is and never becomes markup, a link or a picture.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from foldmark.log import marker_part
from foldmark.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    Transcript,
)
from foldmark.render import is_summary, size_text
from foldmark.values import encode

_TICKS = re.compile(r"`+")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&:@/])")
_LONGEST_LABEL = 120


def markdown(transcript: Transcript) -> str:
    """The whole of a session, one section for each message."""
    return "\n".join(_lines(transcript)) + "\n"


def _lines(transcript: Transcript) -> Iterator[str]:
    info = transcript.info
    yield f"# {label(info.title or info.id)}"
    yield ""
    for name, value in (
        ("session", info.id),
        ("folder", info.directory),
        ("format", _format(info)),
    ):
        if value:
            yield f"- {name}: {label(str(value))}"
    yield f"- messages: {len(transcript.messages)}"
    if info.origin and info.origin.system:
        yield from ("", "## System prompt", "", *fenced(info.origin.system))
    for number, message in enumerate(transcript.messages, 1):
        yield ""
        yield from _message(number, message)


def _format(info: object) -> str:
    origin = getattr(info, "origin", None)
    return (origin.format or "") if origin else "opencode"


def _message(number: int, message: Message) -> Iterator[str]:
    yield f"## {number} · {_who(message)}{_when(message)}"
    for part in message.parts:
        lines = list(_part(part))
        if lines:
            yield ""
            yield from lines


def _who(message: Message) -> str:
    if message.is_user:
        return "compaction" if marker_part(message) is not None else "user"
    model = message.info.model_id if isinstance(message.info, AssistantInfo) else ""
    who = "summary" if is_summary(message) else "assistant"
    return f"{who}, {label(model)}" if model else who


def _when(message: Message) -> str:
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
            name = part.filename or part.mime
            yield f"*file:* {label(name)}"
        case ToolPart():
            yield from _tool(part)
        case _:
            pass


def _tool(part: ToolPart) -> Iterator[str]:
    yield f"**{label(part.tool)}**"
    if part.state.input:
        yield from ("", *fenced(encode(part.state.input).decode(), "json"))
    match part.state:
        case Completed() as state:
            pruned = state.time and state.time.compacted
            yield from ("", f"output, {size_text(state.output)}{', pruned' if pruned else ''}:", "")
            yield from fenced(state.output)
            for held in state.attachments or ():
                yield f"*file:* {label(held.filename or held.mime)}"
        case Failed() as state:
            yield from ("", "error:", "", *fenced(state.error))
        case _:
            yield from ("", "no result")


def fenced(text: str, kind: str = "text") -> Iterator[str]:
    """A text between fences that it cannot close."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{kind}"
    yield text.replace("\r\n", "\n").replace("\r", "\n")
    yield fence


def label(text: str) -> str:
    """A short text on a line of its own, in which nothing is markup."""
    line = " ".join(text.split())
    line = "".join(ch for ch in line if ch.isprintable())
    if len(line) > _LONGEST_LABEL:
        line = f"{line[: _LONGEST_LABEL - 1]}…"
    return _MARKUP.sub(r"\\\1", line)
