"""The lines of folded history, each with who said it, where it stands and what it refers to.

Lines are verbatim, without the numbers that readers put before them; long ones come in pieces
that end where words end. Which of them are worth showing is decided elsewhere (`coverage`).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec.structs import replace

from foldmark.analysis.needs import values
from foldmark.log.log import Entry
from foldmark.log.tool_targets import Target, target
from foldmark.model.messages import AnyPart, Completed, Failed, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Frozen

from .references import references
from .shells import shell_target, without_folder

Source = Literal["user", "said", "thought", "input", "output", "previous"]
Group = tuple[Literal["file", "run", "said"], str]

NOWHERE = -1
LONGEST_LINE, LONGEST_PATH, LONGEST_COMMAND = 160, 200, 120
# Of a longer text the beginning and the end are looked at: what is a megabyte is data.
_MOST = 120_000
_NUMBERED = re.compile(r"\s*\d{1,6}\s*(?:→|\||:(?=\s|$)|\t)\s?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COMMANDS = ("command", "cmd", "script", "code")
_BULLETS = re.compile(r"^(?:[-*•] +)+")
_ENDS_PIECE = " ,;\t"
_SENTENCE_END = re.compile(r"([.!?][)\"'`*]*)(?= |$)")


class Passage(Frozen, gc=False):
    """A line of the history, or a piece of a long one."""

    text: str
    names: tuple[str, ...]
    group: Group  # the file, the command or the speaker it belongs to
    source: Source
    ordinal: int  # of the part it is in; NOWHERE if that is not known
    at: int  # characters before it


def passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """The lines with references of these messages."""
    at = 0
    for entry in entries:
        for ordinal, source, group, text in texts(entry):
            for line in lines(text):
                at += len(line)
                if names := tuple(dict.fromkeys(references(line))):
                    yield Passage(
                        text=line, names=names, group=group, source=source, ordinal=ordinal, at=at
                    )


def lines(text: str, longest: int = LONGEST_LINE) -> Iterator[str]:
    """The lines of a text that say something, clean, and none longer than a passage may be."""
    for line in clean(_bounded(text, _MOST)).split("\n"):
        bare = _without_number(line).strip()
        if len(bare) <= longest:
            if bare:
                yield bare
        else:
            yield from pieces(bare, longest)


def pieces(line: str, longest: int = LONGEST_LINE) -> Iterator[str]:
    """A long line in pieces, parted where a word ends if there is such a place."""
    start = 0
    while start < len(line):
        end = start + longest
        if end < len(line):
            cut = max(line.rfind(mark, start + longest // 2, end) for mark in _ENDS_PIECE)
            end = cut + 1 if cut > 0 else end
        if piece := line[start:end].strip():
            yield ("… " if start else "") + piece + (" …" if end < len(line) else "")
        start = end


def clean(text: str) -> str:
    """A text without colours, control characters and halves of characters."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(" ", text)


def one_line(text: str, longest: int) -> str:
    """The beginning of a text on one line."""
    line = " ".join(clean(text[: longest * 4]).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def without_bullet(line: str) -> str:
    """A line without the mark that it had as an item of a list: it gets one of ours."""
    return _BULLETS.sub("", line)


def about(part: ToolPart) -> Target:
    """What a call is about, whether or not it came to its end."""
    held = target(part.tool, part.state.input or {})
    return held if held.files else shell_target(command_text(part)) or held


def whole_sentences(text: str, longest: int) -> str:
    """The beginning of a text on one line, cut after a sentence if one ends late enough."""
    line = one_line(text, longest * 3)
    if len(line) <= longest:
        return line
    ends = [found.end(1) for found in _SENTENCE_END.finditer(line, 0, longest)]
    if ends and ends[-1] >= longest // 3:
        return line[: ends[-1]]
    cut = line.rfind(" ", longest // 2, longest)
    return line[: cut if cut > 0 else longest - 1].rstrip(" ,;:") + "…"


def shortened(entry: Entry, most: int) -> Entry:
    """The same message with only the beginnings and ends of long outputs."""
    if all(len(ended(part)) <= most for part in entry.message.parts):
        return entry
    parts = tuple(_shortened_part(part, most) for part in entry.message.parts)
    return replace(entry, message=replace(entry.message, parts=parts))


def _shortened_part(part: AnyPart, most: int) -> AnyPart:
    match part:
        case ToolPart(state=Completed() as state):
            return replace(part, state=replace(state, output=_bounded(state.output, most)))
        case ToolPart(state=Failed() as state):
            return replace(part, state=replace(state, error=_bounded(state.error, most)))
        case _:
            return part


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n{text[-most // 2 :]}"


def _without_number(line: str) -> str:
    found = _NUMBERED.match(line)
    return line[found.end() :] if found else line


def texts(entry: Entry) -> Iterator[tuple[int, Source, Group, str]]:
    """What the parts of a message say: by whom, and about what."""
    speaker: Source = "user" if entry.message.is_user else "said"
    for offset, part in enumerate(entry.message.parts):
        ordinal = entry.ordinal + offset
        match part:
            case TextPart() if not part.ignored:
                yield ordinal, speaker, ("said", speaker), part.text
            case ReasoningPart():
                yield ordinal, "thought", ("said", "said"), part.text
            case ToolPart():
                group = group_of(part)
                for text in values(part.state.input or {}):
                    yield ordinal, "input", group, text
                yield ordinal, "output", group, ended(part)
            case _:
                pass


def ended(part: AnyPart) -> str:
    """What a call gave, or why it failed; nothing while it runs."""
    match part:
        case ToolPart(state=Completed(output=output)):
            return output
        case ToolPart(state=Failed(error=error)):
            return error
        case _:
            return ""


def group_of(part: ToolPart) -> Group:
    """The file that a call read or wrote, or the command that it ran."""
    files = about(part).files
    return ("file", one_line(files[0], LONGEST_PATH)) if files else ("run", command_of(part))


def command_of(part: ToolPart) -> str:
    """What a call ran or sought, on one line."""
    if not (text := command_text(part)):
        return one_line(f"{part.tool} {about(part).about}", LONGEST_COMMAND)
    return one_line(without_folder(text), LONGEST_COMMAND) or part.tool


def is_command(part: ToolPart) -> bool:
    """Whether a call ran a command, whatever that was about."""
    return bool(command_text(part))


def command_text(part: ToolPart) -> str:
    """The command that a call ran, as it was given; nothing where it ran none."""
    given = part.state.input or {}
    held = next((given[key] for key in _COMMANDS if isinstance(given.get(key), str | list)), "")
    return held if isinstance(held, str) else " ".join(values(held)).removeprefix("bash -lc ")
