"""What the data of Copilot CLI's events says, as parts of messages."""

from collections.abc import Iterator

from msgspec import UNSET

from foldmark.model.messages import (
    AnyPart,
    FilePart,
    Pending,
    ReasoningPart,
    SessionInfo,
    TextPart,
    Time,
    ToolPart,
)
from foldmark.model.values import Json
from foldmark.transcripts.build import moment, note
from foldmark.wire.codec import data_url, kept, objects, options, text_at

NAME = "copilot-cli"
_OPAQUE = ("reasoningOpaque", "encryptedContent")


def text(data: Json, name: str) -> str:
    """The text of a field that may be absent."""
    return "" if data.get(name) is None else text_at(data, name)


def session_info(name: str, data: Json, at: int | None) -> SessionInfo:
    """A session as it is started; the name is for one that has none."""
    at = moment(data.get("startTime")) or at
    return SessionInfo(
        id=text(data, "sessionId") or name,
        directory=text(options(data, "context"), "cwd") or UNSET,
        version=text(data, "copilotVersion") or UNSET,
        time=UNSET if at is None else Time(created=at, updated=at),
    )


def words(typed: str, sent: str) -> Iterator[TextPart]:
    """What the model was sent; what the user typed of it stands apart from the rest."""
    before, found, after = sent.partition(typed) if typed else (sent, "", "")
    if before:
        yield note(before)
    if typed:
        # Where it was sent in other words, the user's own are kept beside them.
        yield TextPart(text=typed) if found else TextPart(text=typed, ignored=True)
    if after:
        yield note(after)


def files(held: object) -> Iterator[FilePart]:
    """What is attached inline; the rest is named in what the model was sent."""
    for item in objects(held or [], "what is attached"):
        mime, data = item.get("mimeType"), item.get("data")
        if isinstance(mime, str) and isinstance(data, str):
            yield FilePart(mime=mime, url=data_url(mime, data))


def answer_parts(data: Json) -> Iterator[AnyPart]:
    """What the model thought, said and called."""
    thought, said = text(data, "reasoningText"), text(data, "content")
    opaque = {name: data[name] for name in _OPAQUE if data.get(name)}
    if thought or opaque:
        yield ReasoningPart(text=thought, metadata=kept(NAME, opaque))
    if said:
        yield TextPart(text=said)
    for request in objects(data.get("toolRequests") or [], "'toolRequests'"):
        yield _call(request)


def _call(request: Json) -> ToolPart:
    given = options(request, "arguments")
    if not given and request.get("arguments"):
        given = {"input": request["arguments"]}  # a tool with a grammar of its own takes a text
    state = Pending(input=given, title=text(request, "intentionSummary") or UNSET)
    return ToolPart(
        tool=text_at(request, "name"), call_id=text_at(request, "toolCallId"), state=state
    )
