"""The record of a session as text, for the model that summarizes it.

Each message is one block in OpenCode's form. Long texts are truncated with a note. This module
does not know the model's window: `fallback` chooses how much is truncated.
"""

from collections.abc import Iterable, Iterator, Sequence

from foldmark.log.log import Entry, Log, handle
from foldmark.model.messages import (
    AnyPart,
    AssistantInfo,
    Completed,
    Failed,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    file_placeholder,
    is_error_output,
)
from foldmark.model.values import Frozen, encode
from foldmark.tokens.counters import Counter, without_middle
from foldmark.tokens.sizes import EXPANDED

PRUNED = "[Old tool result content cleared]"
TRUNCATED = "\n[truncated]"


class TextLimits(Frozen):
    """How many characters of each kind of text are kept."""

    output: int = 2_000
    text: int | None = None  # of the user's and the model's text; None: all
    both_ends: bool = False

    def tighter(self) -> "TextLimits | None":
        """Return tighter limits, a quarter of these, or None if nothing is left to truncate."""
        if self.output <= 100 and self.text is not None and self.text <= 200:
            return None
        text = 8_000 if self.text is None else max(200, self.text // 4)
        return TextLimits(output=max(100, self.output // 4), text=text, both_ends=self.both_ends)


def transcript_blocks(log: Log, indexes: Iterable[int], limits: TextLimits) -> list[str]:
    """The text blocks of the messages at these indexes, without empty ones."""
    blocks = (_block(log, log.entries[index], limits) for index in indexes)
    return [block for block in blocks if block]


def _block(log: Log, entry: Entry, limits: TextLimits) -> str:
    lines: list[str] = []
    for offset, part in enumerate(entry.message.parts):
        ordinal = entry.ordinal + offset
        if isinstance(part, ToolPart):
            lines += _lines(part, ordinal, limits, is_pruned=ordinal in log.marks)
        elif labeled := _labeled_text(entry.message, part):
            label, text = labeled
            lines.append(f"[{label}]: {_truncate(text, limits.text, limits, ordinal)}")
    # Our own prompts indent continuation lines, so that no text can imitate another speaker.
    return "\n".join(line.replace("\n", "\n  ") if limits.both_ends else line for line in lines)


def _labeled_text(message: Message, part: AnyPart) -> tuple[str, str] | None:
    is_user = not isinstance(message.info, AssistantInfo)
    match part:
        case TextPart() if not part.ignored and part.text.strip():
            return ("User" if is_user else "Assistant"), part.text
        case ReasoningPart() if part.text.strip():
            return "Assistant reasoning", part.text
        case FilePart() if part.mime not in EXPANDED:
            return ("User" if is_user else "Assistant"), file_placeholder(part)
        case _:
            return None


def _lines(part: ToolPart, ordinal: int, limits: TextLimits, *, is_pruned: bool) -> Iterator[str]:
    arguments = encode(part.state.input or {}).decode("utf-8", "replace")
    limit = limits.output if limits.text is None else limits.text
    yield f"[Assistant tool call]: {part.tool}({_truncate(arguments, limit, limits, ordinal)})"
    match part.state:
        case Completed() if is_pruned:
            yield f"[Tool result]: {PRUNED}"
        case Completed():
            label = "Tool error" if is_error_output(part.state) else "Tool result"
            yield f"[{label}]: {_truncate(part.state.output, limits.output, limits, ordinal)}"
        case Failed():
            # Keep more of an error, so that the failed attempt is not repeated.
            yield f"[Tool error]: {_truncate(part.state.error, 2 * limits.output, limits, ordinal)}"
        case _:
            pass


def _truncate(text: str, limit: int | None, limits: TextLimits, ordinal: int) -> str:
    if limit is None or len(text) <= limit:
        return text
    if not limits.both_ends:
        return text[:limit] + TRUNCATED
    # The start of an output shows its subject, and the end shows errors.
    return without_middle(text, limit - limit * 2 // 5, limit * 2 // 5, handle(ordinal))


def chunks(blocks: Sequence[str], budget: int, count: Counter) -> list[list[str]]:
    """The blocks in order, in groups of at most `budget` tokens."""
    groups: list[list[str]] = [[]]
    used = 0
    for block in blocks:
        for piece in _pieces(block, budget, count):
            tokens = count(piece) + 1
            if used + tokens > budget and groups[-1]:
                groups.append([])
                used = 0
            groups[-1].append(piece)
            used += tokens
    return groups if groups[-1] else []


def _pieces(block: str, budget: int, count: Counter) -> Iterator[str]:
    """A block, split in halves recursively until each piece fits into a group."""
    if count(block) + 1 <= budget or len(block) < 2:
        yield block
        return
    middle = block.rfind("\n", 1, len(block) // 2 + 1)
    middle = middle if middle > 0 else len(block) // 2
    yield from _pieces(block[:middle], budget, count)
    yield from _pieces(block[middle:], budget, count)
