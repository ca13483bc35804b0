"""The tokens of each part of a message when it is shown in full."""

from typing import cast

from msgspec import UNSET

from foldmark.model.messages import (
    AnyPart,
    Completed,
    Failed,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    is_opaque,
)
from foldmark.model.values import Frozen, Json, encode

from .counters import Counter
from .media import media_tokens

# Providers add a few tokens to every message, and the name and ids to every tool call.
MESSAGE_OVERHEAD = 4
CALL_OVERHEAD = 16
# OpenAI returns encrypted reasoning in base64, about one byte per character of the text.
SEALED, _TOKENS_PER_CHAR = ("encrypted_content", "reasoningEncryptedContent"), 0.19


# OpenCode expands attached files of these types into separate text parts.
EXPANDED = frozenset({"text/plain", "application/x-directory"})


class Size(Frozen, gc=False):
    """The tokens of a part: what always stays, and the text and files that pruning hides."""

    fixed: int = 0
    body: int = 0
    attached: int = 0

    @property
    def total(self) -> int:
        """Token count of the whole part."""
        return self.fixed + self.body + self.attached


NOTHING = Size()


def part_size(part: AnyPart, count: Counter) -> Size:
    """The tokens of one part, shown in full."""
    # Most frequent types first: this runs for every part of every message.
    if isinstance(part, ToolPart):
        return _tool_size(part, count)
    if is_opaque(part):
        return Size(fixed=count(encode(part.metadata).decode()))
    if isinstance(part, ReasoningPart):
        return Size(fixed=count(part.text) + _sealed_tokens(part.metadata))
    if isinstance(part, TextPart):
        return NOTHING if part.ignored else Size(fixed=count(part.text))
    if isinstance(part, FilePart) and part.mime not in EXPANDED:
        return Size(fixed=media_tokens(part.url, part.mime))
    return NOTHING


def _sealed_tokens(metadata: object, depth: int = 0) -> int:
    """The tokens of encrypted reasoning, which its provider reads and charges for."""
    if depth > 3 or not isinstance(metadata, dict):
        return 0
    tokens = 0
    for name, value in cast("Json", metadata).items():
        if name in SEALED and isinstance(value, str):
            tokens += int(len(value) * _TOKENS_PER_CHAR)
        else:
            tokens += _sealed_tokens(cast("object", value), depth + 1)
    return tokens


def _tool_size(part: ToolPart, count: Counter) -> Size:
    state = part.state
    call = CALL_OVERHEAD
    if state.input:
        call += count(encode(state.input).decode())
    match state:
        case Completed():
            attached = 0
            if state.attachments is not UNSET:
                attached = sum(media_tokens(file.url, file.mime) for file in state.attachments)
            return Size(fixed=call, body=count(state.output), attached=attached)
        case Failed():
            return Size(fixed=call + count(state.error))
        case _:
            return Size(fixed=call + CALL_OVERHEAD)


def message_sizes(message: Message, count: Counter) -> tuple[Size, ...]:
    """The tokens of every part of a message."""
    return tuple([part_size(part, count) for part in message.parts])
