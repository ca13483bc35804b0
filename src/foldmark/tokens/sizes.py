"""How many tokens each part of a message costs when it is shown in full."""

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

# Providers wrap every message in a few tokens of their own, and a call in its name and ids.
MESSAGE_OVERHEAD = 4
CALL_OVERHEAD = 16
# OpenAI's own thoughts come back in base64 of about as many bytes as they had letters.
SEALED, _PER_SEALED = ("encrypted_content", "reasoningEncryptedContent"), 0.19


# OpenCode expands files of these kinds into text parts of their own when they are attached.
EXPANDED = frozenset({"text/plain", "application/x-directory"})


class Size(Frozen, gc=False):
    """The tokens of a part: what always stays, and what pruning would hide: text and files."""

    fixed: int = 0
    body: int = 0
    attached: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.fixed + self.body + self.attached


NOTHING = Size()


def part_size(part: AnyPart, count: Counter) -> Size:
    """The tokens of one part, shown in full."""
    # The most frequent first: this is asked of every part of every message.
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
    """The tokens of thoughts that only their provider can read, and charges for."""
    if depth > 3 or not isinstance(metadata, dict):
        return 0
    tokens = 0
    for name, held in cast("Json", metadata).items():
        if name in SEALED and isinstance(held, str):
            tokens += int(len(held) * _PER_SEALED)
        else:
            tokens += _sealed_tokens(cast("object", held), depth + 1)
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
                attached = sum(media_tokens(held.url, held.mime) for held in state.attachments)
            return Size(fixed=call, body=count(state.output), attached=attached)
        case Failed():
            return Size(fixed=call + count(state.error))
        case _:
            return Size(fixed=call + CALL_OVERHEAD)


def message_sizes(message: Message, count: Counter) -> tuple[Size, ...]:
    """The tokens of every part of a message."""
    return tuple([part_size(part, count) for part in message.parts])
