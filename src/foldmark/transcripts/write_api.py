"""Writes a whole session in an API format, without compactions, prunes or reverted messages.

A session that was read from a list in that API format is written back unchanged, to the last field.
Other sessions, and all requests, are written so that the provider accepts them.
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

# The field of a request for its messages, and that for its system prompt if it is not a message.
_BODIES = {
    "openai-chat": ("messages", None),
    "openai-responses": ("input", "instructions"),
    "anthropic": ("messages", "system"),
    "gemini": ("contents", "systemInstruction"),
}
# Fields of tool definitions that identify their API format; the first match counts.
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
_DEFAULT = "anthropic"


def wire_messages(transcript: Transcript, wire: str) -> list[Json]:
    """All messages of a session in an API format."""
    name = codec_named(wire).name
    messages, origin = _without_pivots(transcript.messages), transcript.info.origin or Origin()
    # Messages of a list have no times; messages that were added later do.
    is_list = not any(message.info.time for message in messages)
    # Files of a format that has the name of an API format are lists of its messages.
    if is_list and {"gemini-cli": "gemini"}.get(origin.format or "", origin.format) == name:
        return encode(messages, name, origin)
    return wire_view(whole_view(transcript.messages), transcript.info, name)


def wire_view(visible: Sequence[PromptMessage], info: SessionInfo, wire: str) -> list[Json]:
    """The messages of a view in an API format, with the session's system prompt."""
    return request(visible, wire, _system(info))


def request_body(visible: Sequence[PromptMessage], info: SessionInfo, wire: str) -> Json:
    """The messages of a view as a request body, with system prompt and tools if known."""
    name = codec_named(wire).name
    field, system_field = _BODIES[name]
    body: Json = {}
    if system_field is not None and _system(info):
        body[system_field] = _system_value(info, name)
    tools = _tools(info, name)
    if tools:
        body["tools"] = tools
    return {**body, field: wire_view(visible, info, name)}


def whole_view(messages: Sequence[Message]) -> tuple[PromptMessage, ...]:
    """The view of a session as if nothing was ever compacted or pruned."""
    log = Log(len, [unmarked(message) for message in _without_pivots(messages)])
    return Viewer(log, FOLDMARK).view().messages


def _without_pivots(messages: Sequence[Message]) -> list[Message]:
    """The messages without markers and summaries; all that these summarize is in the log."""
    remaining = [_without_marker(message) for message in messages if not is_summary(message)]
    return [message for message in remaining if message is not None]


def _without_marker(message: Message) -> Message | None:
    """The message without its compaction part, or None if it has no other part."""
    if not is_marker(message):
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, CompactionPart))
    return replace(message, parts=parts) if parts else None


def _system(info: SessionInfo) -> str:
    return (info.origin.system or "") if info.origin else ""


def _system_value(info: SessionInfo, wire: str) -> Any:
    """The system prompt as it was read from this API format, or its text."""
    original: Any = (info.origin.wire or {}).get(wire) if info.origin else None
    if isinstance(original, dict) and "system" in original:
        return cast("Json", original)["system"]
    text = _system(info)
    return {"parts": [{"text": text}]} if wire == "gemini" else text


def _tools(info: SessionInfo, wire: str) -> list[Json]:
    """The tool definitions if they are in this API format, else []."""
    value: Any = info.origin.tools if info.origin else None
    if not isinstance(value, list):
        return []
    tools = cast("list[Json]", value)
    wires = {_wire_of(tool) for tool in tools}
    if "anthropic" in wires:
        wires.discard("openai-responses")  # Anthropic's own tools have a type and no schema, too
    return tools if wires == {wire} else []


def _wire_of(tool: object) -> str:
    """The API format of a tool definition, or ""."""
    fields = cast("Json", tool) if isinstance(tool, dict) else {}
    return next((wire for name, wire in _TOOLS.items() if name in fields), "")


def own_wire(transcript: Transcript, model: str = "") -> str:
    """The API format that a transcript was read from, or that of the model's provider."""
    # Reversed, so that a provider's more common API format comes last and wins in `by_provider`.
    codecs = [load_codec(name) for name in reversed(WIRES)]
    by_key = {codec.key: codec.name for codec in codecs}
    counts: Counter[str] = Counter()
    for message in transcript.messages:
        counts.update(by_key.keys() & (message.info.wire or {}).keys())
        for part in message.parts:
            metadata: Any = getattr(part, "metadata", None)
            if isinstance(metadata, Mapping):
                counts.update(by_key.keys() & cast("Json", metadata).keys())
    if counts:
        return by_key[counts.most_common(1)[0][0]]
    format = (transcript.info.origin.format or "") if transcript.info.origin else ""
    provider = limits_name(model).partition(":")[0]
    by_provider = {codec.provider: codec.name for codec in codecs}
    wire = _BY_FORMAT.get(format) or by_key.get(format) or by_provider.get(provider)
    return wire or _DEFAULT
