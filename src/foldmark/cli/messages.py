"""Messages printed for people to read: as a model is shown them, or as the log holds them.

Long texts are cut, with a note of how much is left out, unless all is wanted.
"""

import re
from collections.abc import Container, Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foldmark.files import size_text
from foldmark.log.log import Entry, handle
from foldmark.model.messages import (
    AnyPart,
    Completed,
    Failed,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from foldmark.model.prompt_messages import (
    Call,
    Media,
    PromptMessage,
    Reasoning,
    Result,
)
from foldmark.model.prompt_messages import Text as Words
from foldmark.model.values import encode

from .layout import QUIET, words
from .text import harmless_line, number

MOST_LINES = 12
_LINE, _MOST_INPUT = 100, 300  # characters: of a usual line, and of what a tool is asked
_ROLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold blue"}
_STATES = {"shown": "", "pruned": "yellow", "folded": "magenta", "reverted": "red"}
_FIELD = re.compile(r"\\\{\w+\\\}")


class MessagePrinter:
    """Prints messages, whole or cut; knows by the policy how a placeholder looks."""

    def __init__(self, placeholder: str, lines: int | None) -> None:
        """Take the policy's placeholder, and how many lines of a text to print; None is all."""
        self._lines = lines
        self._placeholder = re.compile(_FIELD.sub(".*", re.escape(placeholder)), re.DOTALL)

    # --- a view ---

    def shown(self, message: PromptMessage, sign: str = "", style: str = "") -> RenderableType:
        """A message as a model is shown it; a sign and its style tell what became of it."""
        role = str(message.__struct_config__.tag)
        head = Text.assemble((sign, style), (role, _ROLES[role]))
        return _under(head, (piece for block in message.content for piece in self._block(block)))

    def _block(self, block: Words | Reasoning | Call | Media | Result) -> Iterator[RenderableType]:
        match block:
            case Words():
                yield from self._text(block.text)
            case Reasoning():
                yield from self._text(block.text, "dim italic")
            case Call():
                yield self._call(block.tool_name, block.input)
            case Media():
                yield _file(block.filename, block.media_type, block.data)
            case Result():
                yield Text.assemble(("← ", "blue"), words(block.tool_name, most=60))
                yield from self._text(block.output.value, self._style(block))
                for held in block.attachments:
                    yield _file(held.filename, held.media_type, held.data)

    def _style(self, result: Result) -> str:
        if result.output.type == "error-text":
            return "red"
        return QUIET if self._placeholder.fullmatch(result.output.value) else ""

    # --- the log ---

    def logged(self, held: Entry, state: str, marks: Container[int]) -> RenderableType:
        """A message of the log, with its place, its id, and the handles of its parts."""
        role = "user" if held.message.is_user else "assistant"
        head = Text.assemble(
            (role, _ROLES[role]),
            (f"  {held.index + 1:,}  ", QUIET),
            words(held.message.id, QUIET),
            (f"  {state}" if state != "shown" else "", _STATES[state]),
        )
        parts = Table.grid(padding=(0, 1))
        parts.add_column(no_wrap=True)
        parts.add_column(overflow="fold")
        for ordinal, part in enumerate(held.message.parts, held.ordinal):
            pieces = Group(*self._part(part, pruned=ordinal in marks))
            parts.add_row(Text(handle(ordinal), style="cyan"), pieces)
        return _under(head, [parts])

    def _part(self, part: AnyPart, *, pruned: bool) -> Iterator[RenderableType]:
        match part:
            case TextPart():
                yield from self._text(part.text)
            case ReasoningPart():
                yield from self._text(part.text, "dim italic")
            case FilePart():
                yield _file(part.filename or None, part.mime, part.url)
            case ToolPart():
                called = self._call(part.tool, part.state.input or {})
                yield called.append("  pruned", _STATES["pruned"]) if pruned else called
                if isinstance(part.state, Completed):
                    yield from self._text(part.state.output, QUIET if pruned else "")
                elif isinstance(part.state, Failed):
                    yield from self._text(part.state.error, "red")
            case _:
                yield words(str(part.__struct_config__.tag or "other"), QUIET, most=60)

    # --- texts ---

    def _call(self, tool: str, given: object) -> Text:
        said = encode(given).decode()
        asked = words(said, QUIET, most=len(said) if self._lines is None else _MOST_INPUT)
        return Text.assemble(("→ ", "blue"), words(tool, most=60), " ", asked)

    def _text(self, text: str, style: str = "") -> Iterator[Text]:
        """A text line by line, and a note of what is left out."""
        if not text:
            return
        head = text if self._lines is None else text[: self._lines * _LINE]
        lines = head.splitlines()
        kept = lines[: self._lines]
        yield Text("\n".join(harmless_line(line) for line in kept), style=style)
        if len(kept) == len(lines) and len(head) == len(text):
            return
        more = text.count("\n") + 1 - len(kept)
        left = number(more, "line") if more > 0 else number(len(text) - len(head), "character")
        yield Text(f"… {left} more; --full shows all", style="italic dim")


def _under(head: Text, pieces: Iterable[RenderableType]) -> Group:
    return Group(head, *(Padding(piece, (0, 0, 0, 2)) for piece in pieces))


def _file(name: str | None, kind: str, data: str) -> Text:
    size = f", {size_text(len(data))}" if data.startswith("data:") else f", {data}"
    return words(f"[{name or 'a file'}: {kind}{size}]", QUIET)
