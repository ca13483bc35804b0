"""The lines of folded history, each with who said it, where it stands and what it refers to.

Lines are verbatim, without the numbers that readers put before them; long ones come in pieces
that end where words end. Which of them are worth showing is decided elsewhere (`coverage`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from foldmark.log.log import Entry
from foldmark.log.tool_targets import Span, Target, target
from foldmark.model.messages import AnyPart, Completed, Failed, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Frozen
from foldmark.tokens.counters import Counter as TokenCounter

from .references import references, values
from .selection import Candidate

# --- What a simple shell command reads or writes ---

_FILE = r"['\"]?(?P<file>[^\s|;&<>'\"*?$`(){}]+)['\"]?"
_LINES = r"sed +-n +['\"]?(?P<{0}>\d+),(?P<{1}>\d+)p['\"]?"
_CUT = rf"(?: *\| *(?:{_LINES.format('a', 'b')}|(?:head|tail|cat|nl)(?: +-\w+)*(?: +\d+)?))*"
_READ = re.compile(
    rf"(?:{_LINES.format('first', 'last')}|(?:cat|nl|bat|less|head|tail)(?: +-\w+)*(?: +\d+(?= ))?)"
    rf" +{_FILE}(?: +2>\S+)?{_CUT} *"
)
_WRITE = re.compile(
    rf"(?:cat|tee)(?: +-a)? *(?:>>?)? *{_FILE} *<<"
    rf"|(?:cat|tee) *<<-? *['\"]?\w+['\"]? *>>? *{_FILE.replace('file', 'other')} *(?:\n|$)"
)
_IN_PLACE = re.compile(rf"sed +-i\S*(?: +-e)? +(?:'[^']*'|\"[^\"]*\") +{_FILE} *")
_FOLDER_FIRST = re.compile(r"^cd [^\s;&|]+ *(?:&&|;) *")
_LONGEST = 400  # characters of a command that can be plain


def without_folder(command: str) -> str:
    """A command without the folder it runs in, which is the same in most of them."""
    return _FOLDER_FIRST.sub("", command.strip())


@lru_cache(maxsize=4096)
def shell_target(command: str) -> Target | None:
    """The file that a command reads or writes; None where that is not plain."""
    bare = without_folder(command)
    if found := _WRITE.match(bare):
        return _target("write", found["file"] or found["other"])
    if len(bare) > _LONGEST:
        return None
    if found := _IN_PLACE.fullmatch(bare):
        return _target("write", found["file"])
    if not (found := _READ.fullmatch(bare)):
        return None
    first, last = found["first"] or found["a"], found["last"] or found["b"]
    span = Span(first=int(first), last=int(last)) if first else Span()
    return _target("read", found["file"], span)


def _target(act: str, file: str, span: Span = Span()) -> Target:  # noqa: B008 - it is frozen
    return Target(act="write" if act == "write" else "read", files=(file,), about=file, span=span)


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


# --- Lines that refer to nothing: talk, letters, reports ---

_WORD = re.compile(r"[^\W\d_]{4,}")
# Lines of code and data have few words. Where no spaces part words, a run of letters says enough.
_SHORT_WORD = re.compile(r"[^\W\d_]{3,}")
_UNSPACED = re.compile(r"[^\W\d_\x00-\u02ff]{6,}")
_WORDS_THAT_SAY = 3
_MOST_LINES = 20_000  # the newest of them
_LATELY = 20_000  # characters after which a word is worth half
_WORTH = 0.0005
_BEGINS, _ANY = 2.0, 0.2  # words that the first line of what was said is worth, and any line


def plain_passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """The lines without references of what was said and given back; requests are told anyway."""
    at = 0
    for entry in entries:
        for ordinal, source, group, text in texts(entry):
            if source not in ("said", "output"):
                continue
            for line in lines(text):
                at += len(line)
                if _says(line) and not references(line):
                    yield Passage(
                        text=line, names=(), group=group, source=source, ordinal=ordinal, at=at
                    )


def prose(
    entries: Sequence[Entry], count: TokenCounter
) -> tuple[list[tuple[Passage, Candidate]], dict[str, float]]:
    """Candidates that cover words, each with its passage, and what the words are worth."""
    newest = {passage.text: passage for passage in plain_passages(entries)}
    held = list(newest.values())[-_MOST_LINES:]
    words = [_words(passage.text) for passage in held]
    often = Counter(word for found in words for word in found)
    end = held[-1].at if held else 0
    weights: dict[str, float] = {}
    candidates: list[tuple[Passage, Candidate]] = []
    first = -1
    for passage, found in zip(held, words, strict=True):
        lately = _LATELY / (_LATELY + end - passage.at)
        for word in found:
            rare = math.log1p(len(held) / often[word])
            weights[word] = max(weights.get(word, 0.0), _WORTH * rare * lately)
        # The first line of what was said tells best what it is about.
        bonus = (_BEGINS if passage.ordinal != first else _ANY) * _WORTH * lately
        first = passage.ordinal
        tokens = count(passage.text) + 2.0
        made = Candidate(text=passage.text, tokens=tokens, names=found, bonus=bonus)
        candidates.append((passage, made))
    return candidates, weights


def _says(line: str) -> bool:
    """Whether a line has words enough to say something."""
    return len(_SHORT_WORD.findall(line)) >= _WORDS_THAT_SAY or bool(_UNSPACED.search(line))


def _words(line: str) -> tuple[str, ...]:
    """The words of a line, marked so that none is taken for a reference."""
    return tuple(dict.fromkeys(f"\0{word.lower()}" for word in _WORD.findall(line)))
