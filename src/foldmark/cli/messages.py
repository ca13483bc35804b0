"""Prints messages for people: as the model sees them, or as the log stores them.

Long texts are cut, with a note of how much is missing, unless everything is requested.
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
from foldmark.model.prompt_messages import Call, Media, PromptMessage, Reasoning, Result
from foldmark.model.prompt_messages import Text as PromptText
from foldmark.model.values import encode

from .layout import QUIET, USER_WORDS, safe_text
from .text import harmless_line, number

MOST_LINES = 12
_LINE, _MOST_INPUT = 100, 300  # characters: of a typical line, and of a tool call's arguments
_ROLES = {"user": "bold cyan", "assistant": "bold green", "tool": "bold blue"}
_STATES = {"shown": "", "pruned": "yellow", "folded": "magenta", "reverted": "red"}
_FIELD = re.compile(r"\\\{\w+\\\}")


class MessagePrinter:
    """Prints messages whole or cut, and recognizes the policy's placeholders."""

    def __init__(self, placeholder: str, lines: int | None) -> None:
        """Set the policy's placeholder and the lines printed of each text (None: all)."""
        self._lines = lines
        self._placeholder = re.compile(_FIELD.sub(".*", re.escape(placeholder)), re.DOTALL)

    # --- a view ---

    def prompt(self, message: PromptMessage, sign: str = "", style: str = "") -> RenderableType:
        """A message as the model sees it, with an optional sign for added or removed."""
        role = str(message.__struct_config__.tag)
        head = Text.assemble((sign, style), (role, _ROLES[role]))
        return _under(head, (piece for block in message.content for piece in self._block(block)))

    def _block(
        self, block: PromptText | Reasoning | Call | Media | Result
    ) -> Iterator[RenderableType]:
        match block:
            case PromptText():
                yield from self._text(block.text)
            case Reasoning():
                yield from self._text(block.text, "dim italic")
            case Call():
                yield self._call(block.tool_name, block.input)
            case Media():
                yield _file(block.filename, block.media_type, block.data)
            case Result():
                yield Text.assemble(("← ", "blue"), safe_text(block.tool_name, limit=60))
                yield from self._text(block.output.value, self._style(block))
                for media in block.attachments:
                    yield _file(media.filename, media.media_type, media.data)

    def _style(self, result: Result) -> str:
        if result.output.type == "error-text":
            return "red"
        return QUIET if self._placeholder.fullmatch(result.output.value) else ""

    # --- the log ---

    def log_entry(self, entry: Entry, state: str, marks: Container[int]) -> RenderableType:
        """A message of the log with its number, its id, and the handles of its parts."""
        role = "user" if entry.message.is_user else "assistant"
        head = Text.assemble(
            (role, _ROLES[role]),
            (f"  {entry.index + 1:,}  ", QUIET),
            safe_text(entry.message.id, QUIET),
            (f"  {USER_WORDS.get(state, state)}" if state != "shown" else "", _STATES[state]),
        )
        parts = Table.grid(padding=(0, 1))
        parts.add_column(no_wrap=True)
        parts.add_column(overflow="fold")
        for ordinal, part in enumerate(entry.message.parts, entry.ordinal):
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
                call = self._call(part.tool, part.state.input or {})
                yield call.append("  pruned", _STATES["pruned"]) if pruned else call
                if isinstance(part.state, Completed):
                    yield from self._text(part.state.output, QUIET if pruned else "")
                elif isinstance(part.state, Failed):
                    yield from self._text(part.state.error, "red")
            case _:
                yield safe_text(str(part.__struct_config__.tag or "other"), QUIET, limit=60)

    # --- texts ---

    def _call(self, tool: str, arguments: object) -> Text:
        text = encode(arguments).decode()
        visible = safe_text(text, QUIET, limit=len(text) if self._lines is None else _MOST_INPUT)
        return Text.assemble(("→ ", "blue"), safe_text(tool, limit=60), " ", visible)

    def _text(self, text: str, style: str = "") -> Iterator[Text]:
        """A text line by line, and a note of how much is missing."""
        if not text:
            return
        head = text if self._lines is None else text[: self._lines * _LINE]
        lines = head.splitlines()
        visible = lines[: self._lines]
        yield Text("\n".join(harmless_line(line) for line in visible), style=style)
        if len(visible) == len(lines) and len(head) == len(text):
            return
        more = text.count("\n") + 1 - len(visible)
        remainder = number(more, "line") if more > 0 else number(len(text) - len(head), "character")
        yield Text(f"… {remainder} more; --full shows all", style="italic dim")


def _under(head: Text, pieces: Iterable[RenderableType]) -> Group:
    return Group(head, *(Padding(piece, (0, 0, 0, 2)) for piece in pieces))


def _file(name: str | None, kind: str, data: str) -> Text:
    size = f", {size_text(len(data))}" if data.startswith("data:") else f", {data}"
    return safe_text(f"[{name or 'unnamed file'}: {kind}{size}]", QUIET)
