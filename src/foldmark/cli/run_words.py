"""A model's words as they come, made harmless, and broken into lines where a terminal needs it.

A sequence that steers a terminal may come in two pieces: what could be the beginning of one is
held back until it is clear.
"""

import re

from rich.cells import cell_len, chop_cells

from .text import harmless_line

_LONGEST_HELD = 200  # characters of what may become a sequence
# At the end of what came so far: a sequence that has begun, and has not ended.
_BEGUN = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z|(?:\x1b[\]PX^_]|[\x90\x9d])[^\x07\x1b\x9c]*\x1b?\Z|\x1b[ -/]*\Z"
)


class Harmless:
    """Takes pieces of a text, and gives them without anything that steers a terminal."""

    def __init__(self) -> None:
        """Begin with nothing held back."""
        self._held = ""

    def take(self, piece: str) -> str:
        """What can be shown now; ends of lines and tabs stay."""
        text = self._held + piece.replace("\r\n", "\n")
        begun = _BEGUN.search(text, max(0, len(text) - _LONGEST_HELD))
        cut = len(text) if begun is None else begun.start()
        self._held = text[cut:]
        return harmless(text[:cut])

    def rest(self) -> str:
        """What was held back."""
        text, self._held = self._held, ""
        return harmless(text)


def harmless(text: str) -> str:
    """A text without anything that steers a terminal but ends of lines and tabs."""
    return "\n".join(_harmless_bits(line) for line in text.split("\n"))


def _harmless_bits(line: str) -> str:
    return "\t".join(harmless_line(bit) for bit in line.split("\t"))


class Lines:
    """Makes lines of pieces: those that are whole, and the one that is being written."""

    def __init__(self) -> None:
        """Begin with an empty line."""
        self._clean = Harmless()
        self.open = ""

    def take(self, piece: str, width: int) -> list[str]:
        """The lines that are whole now; one that is longer than the width is broken."""
        return self._broken(self._clean.take(piece), width)

    def end(self, width: int) -> list[str]:
        """The last lines: nothing more comes."""
        lines = self._broken(self._clean.rest(), width)
        if self.open:
            lines.append(self.open)
            self.open = ""
        return lines

    def _broken(self, text: str, width: int) -> list[str]:
        *whole, last = (self.open + text).split("\n")
        lines = [part for line in whole for part in wrapped(line, width)]
        *more, self.open = wrapped(last, width)
        return [*lines, *more]


def wrapped(line: str, width: int) -> list[str]:
    """A line as lines that fit, broken between words where that is possible."""
    line = line.expandtabs(4)
    lines: list[str] = []
    while cell_len(line) > width:
        head = chop_cells(line, max(width, 2))[0]
        space = head.rfind(" ")
        between = space > 0 and head[:space].strip() and line[len(head)] != " "
        cut = space if between else len(head)
        lines.append(line[:cut])
        line = line[cut:].removeprefix(" ")
    return [*lines, line]
