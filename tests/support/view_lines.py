"""A view as lines of text, for tests that compare it."""

from collections.abc import Iterable

from foldmark.log.log import Log
from foldmark.log.view import Viewer
from foldmark.model.messages import AnyPart, Message, TextPart, ToolPart
from foldmark.model.prompt_messages import Call, Media, Reasoning, Result, Text
from foldmark.policy import FOLDMARK, Policy
from foldmark.tokens.counters import counter
from foldmark.wire.codec import subobject


def lines_of(viewer: Viewer) -> list[str]:
    """The view with one line per block."""
    return [
        line(str(message.__struct_config__.tag), block)
        for message in viewer.view().messages
        for block in message.content
    ]


def line(role: str, block: Text | Reasoning | Media | Call | Result) -> str:
    match block:
        case Text():
            return f"{role}: {block.text}"
        case Reasoning():
            return f"thought: {block.text}"
        case Media():
            return f"{role}: <{block.media_type}>"
        case Call():
            return f"call {block.tool_call_id}"
        case Result():
            return f"{block.output.type} {block.tool_call_id}: {block.output.value}"


def view_of(*messages: Message, policy: Policy = FOLDMARK, model: str = "") -> list[str]:
    log = Log(counter(policy.estimate), messages)
    return lines_of(Viewer(log, policy, model=model))


def joined(parts: Iterable[AnyPart], key: str) -> str:
    """The text from which these parts were parsed."""
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, TextPart):
            pieces.append(part.text)
        elif isinstance(part, ToolPart):
            own = subobject(part.metadata, key)
            if "before" in own:
                pieces += (own["before"], (part.state.input or {})["command"], own["after"])
    return "".join(pieces)
