"""A whole session on a wire: nothing folded, nothing pruned, what was reverted left out.

A session that came from a list of that wire goes back as it was, to the last field. Any other, and
every request, is written so that the provider takes it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from foldmark.log.log import Log
from foldmark.log.marks import unmarked
from foldmark.log.render import is_marker, is_summary
from foldmark.log.view import Viewer
from foldmark.model.messages import CompactionPart, Message, Origin, SessionInfo, Transcript
from foldmark.model.prompt_messages import PromptMessage
from foldmark.model.values import Json
from foldmark.policy import FOLDMARK
from foldmark.providers.models import limits_name
from foldmark.wire.codec import WIRES, codec_named, load_codec
from foldmark.wire.formats import encode, request

# Where a request has its messages, and where its system prompt, if that is no message.
_BODIES = {
    "openai-chat": ("messages", None),
    "openai-responses": ("input", "instructions"),
    "anthropic": ("messages", "system"),
    "gemini": ("contents", "systemInstruction"),
}
# The fields by which the definition of a tool is known to be of a wire.
_TOOLS = {
    "function": "openai-chat",
    "custom": "openai-chat",
    "input_schema": "anthropic",
    "functionDeclarations": "gemini",
    "function_declarations": "gemini",
    "type": "openai-responses",
}
_BY_FORMAT = {
    "swe-agent": "openai-chat",
    "mini-swe-agent": "openai-chat",
    "openhands": "openai-chat",
    "gemini-cli": "gemini",
}
_USUAL = "anthropic"


def wire_messages(transcript: Transcript, wire: str) -> list[Json]:
    """All messages of a session on a wire."""
    name = codec_named(wire).name
    said, origin = _said(transcript.messages), transcript.info.origin or Origin()
    # What was said since has its times.
    is_list = not any(message.info.time for message in said)
    # Files of a format that is named like a wire are lists of its messages.
    if is_list and {"gemini-cli": "gemini"}.get(origin.format or "", origin.format) == name:
        return encode(said, name, origin)
    return wire_view(whole_view(transcript.messages), transcript.info, name)


def wire_view(shown: Sequence[PromptMessage], info: SessionInfo, wire: str) -> list[Json]:
    """What a view shows, on a wire."""
    return request(shown, wire, _system(info))


def request_body(shown: Sequence[PromptMessage], info: SessionInfo, wire: str) -> Json:
    """What a view shows as the body of a request, with the system prompt and the tools if known."""
    name = codec_named(wire).name
    place, beside = _BODIES[name]
    body: Json = {}
    if beside is not None and _system(info):
        body[beside] = _system_value(info, name)
    tools = _tools(info, name)
    if tools:
        body["tools"] = tools
    return {**body, place: wire_view(shown, info, name)}


def whole_view(messages: Sequence[Message]) -> tuple[PromptMessage, ...]:
    """The view of a session in which nothing was ever folded or pruned."""
    log = Log(len, [unmarked(message) for message in _said(messages)])
    return Viewer(log, FOLDMARK).view().messages


def _said(messages: Sequence[Message]) -> list[Message]:
    """Without the markers and summaries of pivots: what they fold is all there."""
    said = [_without_marker(message) for message in messages if not is_summary(message)]
    return [message for message in said if message is not None]


def _without_marker(message: Message) -> Message | None:
    """A message without the task of compacting; None where that is all it is."""
    if not is_marker(message):
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, CompactionPart))
    return replace(message, parts=parts) if parts else None


def _system(info: SessionInfo) -> str:
    return (info.origin.system or "") if info.origin else ""


def _system_value(info: SessionInfo, wire: str) -> Any:
    """The system prompt as its own wire wrote it, else its text."""
    kept: Any = (info.origin.wire or {}).get(wire) if info.origin else None
    if isinstance(kept, dict) and "system" in kept:
        return cast("Json", kept)["system"]
    text = _system(info)
    return {"parts": [{"text": text}]} if wire == "gemini" else text


def _tools(info: SessionInfo, wire: str) -> list[Json]:
    """The definitions of tools, if they are of this wire."""
    given: Any = info.origin.tools if info.origin else None
    if not isinstance(given, list):
        return []
    tools = cast("list[Json]", given)
    wires = {_wire_of(tool) for tool in tools}
    if "anthropic" in wires:
        wires.discard("openai-responses")  # its own tools have a type and no schema, too
    return tools if wires == {wire} else []


def _wire_of(tool: object) -> str:
    """The wire of which a tool's definition is."""
    fields = cast("Json", tool) if isinstance(tool, dict) else {}
    return next((wire for name, wire in _TOOLS.items() if name in fields), "")


def own_wire(transcript: Transcript, model: str = "") -> str:
    """The wire that a transcript speaks itself, else that of its model's provider."""
    codecs = [
        load_codec(name) for name in reversed(WIRES)
    ]  # of a provider's two the usual one last
    by_key = {codec.key: codec.name for codec in codecs}
    found: Counter[str] = Counter()
    for message in transcript.messages:
        found.update(by_key.keys() & (message.info.wire or {}).keys())
        for part in message.parts:
            metadata: Any = getattr(part, "metadata", None)
            if isinstance(metadata, Mapping):
                found.update(by_key.keys() & cast("Json", metadata).keys())
    if found:
        return by_key[found.most_common(1)[0][0]]
    format = (transcript.info.origin.format or "") if transcript.info.origin else ""
    provider = limits_name(model).partition(":")[0]
    by_provider = {codec.provider: codec.name for codec in codecs}
    wire = _BY_FORMAT.get(format) or by_key.get(format) or by_provider.get(provider)
    return wire or _USUAL
