"""A tool's output that a wire gave in several pieces: one text for us, the pieces on the way back.

Pieces of text are joined by line breaks, files are put beside them; an outline remembers how they
stood, by lengths, so that no text is kept twice. It no longer fits where the text has changed (a
pruned output has), and then the text goes back in one piece.
"""

from collections.abc import Sequence
from typing import cast

from foldmark.model.messages import FilePart
from foldmark.model.values import Json

from .model import options

CHARS, FILE, KEPT = "chars", "file", "kept"


class Pieces:
    """Collects the pieces of an output."""

    def __init__(self) -> None:
        """Begin with none."""
        self.outline: list[Json] = []
        self.files: list[FilePart] = []
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """All texts."""
        return "\n".join(self._texts)

    def add_text(self, text: str, rest: Json) -> None:
        """A piece of text, and what else its block says."""
        self._texts.append(text)
        self.outline.append({CHARS: len(text), **({KEPT: rest} if rest else {})})

    def add_file(self, file: FilePart, rest: Json) -> None:
        """A file."""
        self.outline.append({FILE: len(self.files), **({KEPT: rest} if rest else {})})
        self.files.append(file)

    def add_other(self, block: Json) -> None:
        """A block that is neither."""
        self.outline.append({KEPT: block})


def texts_of(text: str, outline: object) -> list[str] | None:
    """The pieces of text that an outline tells of; None where it is none, or does not fit."""
    if not isinstance(outline, list):
        return None
    pieces = cast("list[object]", outline)
    if not all(isinstance(piece, dict) and _is_piece(cast("Json", piece)) for piece in pieces):
        return None
    lengths: list[int] = [piece[CHARS] for piece in cast("list[Json]", pieces) if CHARS in piece]
    if not lengths:
        return [] if not text else None
    found: list[str] = []
    start = 0
    for length in lengths:
        if start and text[start - 1 : start] != "\n":
            return None
        found.append(text[start : start + length])
        start += length + 1
    return found if start == len(text) + 1 else None


def outlined(
    outline: Sequence[Json], texts: Sequence[str], files: Sequence[Json], kind: str
) -> list[Json]:
    """The blocks that an outline tells of, of its texts and of files that are written already."""
    rest = iter(texts)
    blocks: list[Json] = []
    for piece in outline:
        if CHARS in piece:
            blocks.append({"type": kind, "text": next(rest), **options(piece, KEPT)})
        elif FILE not in piece:
            blocks.append(dict(options(piece, KEPT)))
        elif (number := int(piece[FILE])) < len(files):
            blocks.append(files[number])
    return blocks


def _is_piece(piece: Json) -> bool:
    """Whether it is as we write it: what is kept in a session may have come from elsewhere."""
    numbers = [piece[name] for name in (CHARS, FILE) if name in piece]
    return all(type(number) is int and number >= 0 for number in numbers)
