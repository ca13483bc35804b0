"""The record of a session as text, for a model that summarises it.

One block for each message, in OpenCode's form; what is long is cut, and says so. It does not know
how large the model's window is: `ladder` chooses how much is cut.
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
    file_name,
    told_error,
)
from foldmark.model.values import Frozen, encode
from foldmark.tokens.counters import Counter, without_middle
from foldmark.tokens.sizes import EXPANDED

PRUNED = "[Old tool result content cleared]"
TRUNCATED = "\n[truncated]"


class Cutting(Frozen):
    """How many characters are left of texts of each kind."""

    output: int = 2_000
    said: int | None = None  # of what the user and the model said; None: all
    both_ends: bool = False

    def tighter(self) -> "Cutting | None":
        """A quarter of the outputs, and at most so much of what was said; None: all is cut."""
        if self.output <= 100 and self.said is not None and self.said <= 200:
            return None
        said = 8_000 if self.said is None else max(200, self.said // 4)
        return Cutting(output=max(100, self.output // 4), said=said, both_ends=self.both_ends)


def record(log: Log, places: Iterable[int], cutting: Cutting) -> list[str]:
    """The messages at these places as text; those that say nothing are left out."""
    blocks = (_block(log, log.entries[place], cutting) for place in places)
    return [block for block in blocks if block]


def _block(log: Log, entry: Entry, cutting: Cutting) -> str:
    lines: list[str] = []
    for offset, part in enumerate(entry.message.parts):
        ordinal = entry.ordinal + offset
        if isinstance(part, ToolPart):
            lines += _tool(part, ordinal, cutting, pruned=ordinal in log.marks)
        elif said := _said(entry.message, part):
            label, text = said
            lines.append(f"[{label}]: {_cut(text, cutting.said, cutting, ordinal)}")
    # Under our own prompts what follows a first line is indented: no text can pass for another's.
    return "\n".join(line.replace("\n", "\n  ") if cutting.both_ends else line for line in lines)


def _said(message: Message, part: AnyPart) -> tuple[str, str] | None:
    user = not isinstance(message.info, AssistantInfo)
    match part:
        case TextPart() if not part.ignored and part.text.strip():
            return ("User" if user else "Assistant"), part.text
        case ReasoningPart() if part.text.strip():
            return "Assistant reasoning", part.text
        case FilePart() if part.mime not in EXPANDED:
            return ("User" if user else "Assistant"), file_name(part)
        case _:
            return None


def _tool(part: ToolPart, ordinal: int, cutting: Cutting, *, pruned: bool) -> Iterator[str]:
    arguments = encode(part.state.input or {}).decode("utf-8", "replace")
    said = cutting.output if cutting.said is None else cutting.said
    yield f"[Assistant tool call]: {part.tool}({_cut(arguments, said, cutting, ordinal)})"
    match part.state:
        case Completed() if pruned:
            yield f"[Tool result]: {PRUNED}"
        case Completed():
            label = "Tool error" if told_error(part.state) else "Tool result"
            yield f"[{label}]: {_cut(part.state.output, cutting.output, cutting, ordinal)}"
        case Failed():
            # What went wrong is what must not be tried again: more of it stays.
            yield f"[Tool error]: {_cut(part.state.error, 2 * cutting.output, cutting, ordinal)}"
        case _:
            pass


def _cut(text: str, most: int | None, cutting: Cutting, ordinal: int) -> str:
    if most is None or len(text) <= most:
        return text
    if not cutting.both_ends:
        return text[:most] + TRUNCATED
    # Errors stand at the end of an output, and what it is about at its beginning.
    return without_middle(text, most - most * 2 // 5, most * 2 // 5, handle(ordinal))


def chunks(blocks: Sequence[str], room: int, count: Counter) -> list[list[str]]:
    """Blocks in their order, in groups of at most so many tokens."""
    groups: list[list[str]] = [[]]
    used = 0
    for block in blocks:
        for piece in _pieces(block, room, count):
            tokens = count(piece) + 1
            if used + tokens > room and groups[-1]:
                groups.append([])
                used = 0
            groups[-1].append(piece)
            used += tokens
    return groups if groups[-1] else []


def _pieces(block: str, room: int, count: Counter) -> Iterator[str]:
    """A block, or its halves and their halves where it is too large for any group."""
    if count(block) + 1 <= room or len(block) < 2:
        yield block
        return
    middle = block.rfind("\n", 1, len(block) // 2 + 1)
    middle = middle if middle > 0 else len(block) // 2
    yield from _pieces(block[:middle], room, count)
    yield from _pieces(block[middle:], room, count)
