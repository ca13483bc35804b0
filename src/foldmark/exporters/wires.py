"""A whole session on a wire: nothing folded, nothing pruned, what was reverted left out.

A session that came from a list of that wire goes back as it was, to the last field. Any other is
written so that the provider takes it.
"""

from collections.abc import Sequence
from typing import Any, cast

from foldmark.log import Log
from foldmark.marks import unmarked
from foldmark.messages import Message, SessionInfo, Transcript
from foldmark.presets import FOLDMARK
from foldmark.render import is_marker, is_summary
from foldmark.shown import AnyShown
from foldmark.values import Json
from foldmark.view import Viewer
from foldmark.wire import encode, request, wire_named

# Formats whose files are lists of a wire's messages.
_LISTS = {
    "openai-chat": "openai-chat",
    "tau-bench": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini-cli": "gemini",
}
# Where a request has its messages, and where its system prompt.
_BODIES = {
    "openai-chat": ("messages", None),
    "openai-responses": ("input", "instructions"),
    "anthropic": ("messages", "system"),
    "gemini": ("contents", "systemInstruction"),
}


def wire_messages(transcript: Transcript, wire: str) -> list[Json]:
    """All messages of a session on a wire."""
    name = wire_named(wire).name
    origin = transcript.info.origin or None
    if origin is not None and _LISTS.get(origin.format or "") == name:
        return encode(_said(transcript.messages), name, origin)
    return request(whole_view(transcript.messages), name, _system(transcript.info))


def wire_view(shown: Sequence[AnyShown], info: SessionInfo, wire: str) -> list[Json]:
    """What a view shows, on a wire."""
    return request(shown, wire, _system(info))


def request_body(messages: list[Json], info: SessionInfo, wire: str) -> Json:
    """Messages as they stand in a request, with the system prompt and the tools of the session."""
    name = wire_named(wire).name
    place, system = _BODIES[name]
    body: Json = {place: messages}
    if system is not None and _system(info):
        body = {system: _system_value(info, name), **body}
    if info.origin and info.origin.tools and _LISTS.get(info.origin.format or "") == name:
        body["tools"] = info.origin.tools
    return body


def whole_view(messages: Sequence[Message]) -> tuple[AnyShown, ...]:
    """The view of a session in which nothing was ever folded or pruned."""
    log = Log(len, [unmarked(message) for message in _said(messages)])
    return Viewer(log, FOLDMARK).view().messages


def _said(messages: Sequence[Message]) -> list[Message]:
    """Without the markers and summaries of pivots: what they fold is all there."""
    return [held for held in messages if not (is_marker(held) or is_summary(held))]


def _system(info: SessionInfo) -> str:
    return (info.origin.system or "") if info.origin else ""


def _system_value(info: SessionInfo, wire: str) -> Any:
    kept = (info.origin.wire or {}).get(wire) if info.origin else None
    if isinstance(kept, dict) and "system" in kept:
        return cast("Json", kept)["system"]
    text = _system(info)
    return {"parts": [{"text": text}]} if wire == "gemini" else text
