"""The lines of folded messages, each with its source, its position and its references.

Lines are verbatim, without the line numbers that tools add; long lines are split between words.
`selection` decides which of them are shown.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal

from msgspec.structs import replace

from foldmark.log.log import Entry
from foldmark.log.tool_targets import FileAccess, Span, Target, target
from foldmark.model.messages import AnyPart, Completed, Failed, ReasoningPart, TextPart, ToolPart
from foldmark.model.values import Frozen
from foldmark.tokens.counters import Counter as TokenCounter

from .references import references, values
from .selection import Candidate

# --- files that a simple shell command reads or writes ---

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
_LONGEST = 400  # characters; a longer command is not simple


def without_folder(command: str) -> str:
    """A command without the `cd` to its folder, which most commands share."""
    return _FOLDER_FIRST.sub("", command.strip())


@lru_cache(maxsize=4096)
def shell_target(command: str) -> Target | None:
    """The file that a simple command reads or writes, or None."""
    bare = without_folder(command)
    if match := _WRITE.match(bare):
        return _target("write", match["file"] or match["other"])
    if len(bare) > _LONGEST:
        return None
    if match := _IN_PLACE.fullmatch(bare):
        return _target("write", match["file"])
    if not (match := _READ.fullmatch(bare)):
        return None
    first, last = match["first"] or match["a"], match["last"] or match["b"]
    span = Span(first=int(first), last=int(last)) if first else Span()
    return _target("read", match["file"], span)


def _target(access: FileAccess, file: str, span: Span = Span()) -> Target:  # noqa: B008 - frozen
    return Target(access=access, files=(file,), about=file, span=span)


Source = Literal["user", "said", "thought", "input", "output", "previous"]
Group = tuple[Literal["file", "run", "said"], str]

NOWHERE = -1
LONGEST_LINE, LONGEST_PATH, LONGEST_COMMAND = 160, 200, 120
# Only the start and the end of a longer text are read: a text of this size is data.
_MAX_TEXT = 120_000
_NUMBERED = re.compile(r"\s*\d{1,6}\s*(?:→|\||:(?=\s|$)|\t)\s?")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]+")
_COLORS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COMMANDS = ("command", "cmd", "script", "code")
_BULLETS = re.compile(r"^(?:[-*•] +)+")
_ENDS_PIECE = " ,;\t"
_SENTENCE_END = re.compile(r"([.!?][)\"'`*]*)(?= |$)")


class Passage(Frozen, gc=False):
    """A line of a message, or a piece of a long line."""

    text: str
    names: tuple[str, ...]
    group: Group  # its file, command or speaker
    source: Source
    ordinal: int  # of its part; NOWHERE if unknown
    at: int  # position in characters


def passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """The lines of these messages that have references."""
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
    """The non-empty lines of a text, cleaned; long lines are split."""
    for line in clean(_bounded(text, _MAX_TEXT)).split("\n"):
        bare = _without_number(line).strip()
        if len(bare) <= longest:
            if bare:
                yield bare
        else:
            yield from pieces(bare, longest)


def pieces(line: str, longest: int = LONGEST_LINE) -> Iterator[str]:
    """A long line in pieces, split between words if possible."""
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
    """A text without terminal colors, control characters and surrogates."""
    if "\x1b" in text:
        text = _COLORS.sub("", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(" ", text)


def one_line(text: str, longest: int) -> str:
    """The start of a text on one line."""
    line = " ".join(clean(text[: longest * 4]).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def without_bullet(line: str) -> str:
    """A line without its list bullet, as the digest adds its own."""
    return _BULLETS.sub("", line)


def about(part: ToolPart) -> Target:
    """The target of a call, whether or not it completed."""
    subject = target(part.tool, part.state.input or {})
    return subject if subject.files else shell_target(command_text(part)) or subject


def whole_sentences(text: str, longest: int) -> str:
    """The start of a text on one line, cut after a sentence if one ends late enough."""
    line = one_line(text, longest * 3)
    if len(line) <= longest:
        return line
    ends = [match.end(1) for match in _SENTENCE_END.finditer(line, 0, longest)]
    if ends and ends[-1] >= longest // 3:
        return line[: ends[-1]]
    cut = line.rfind(" ", longest // 2, longest)
    return line[: cut if cut > 0 else longest - 1].rstrip(" ,;:") + "…"


def shortened(entry: Entry, limit: int) -> Entry:
    """The message with only the start and the end of long outputs."""
    if all(len(outcome_text(part)) <= limit for part in entry.message.parts):
        return entry
    parts = tuple(_shortened_part(part, limit) for part in entry.message.parts)
    return replace(entry, message=replace(entry.message, parts=parts))


def _shortened_part(part: AnyPart, limit: int) -> AnyPart:
    match part:
        case ToolPart(state=Completed() as state):
            return replace(part, state=replace(state, output=_bounded(state.output, limit)))
        case ToolPart(state=Failed() as state):
            return replace(part, state=replace(state, error=_bounded(state.error, limit)))
        case _:
            return part


def _bounded(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]}\n{text[-limit // 2 :]}"


def _without_number(line: str) -> str:
    match = _NUMBERED.match(line)
    return line[match.end() :] if match else line


def texts(entry: Entry) -> Iterator[tuple[int, Source, Group, str]]:
    """The texts of a message: ordinal, source, group and text."""
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
                yield ordinal, "output", group, outcome_text(part)
            case _:
                pass


def outcome_text(part: AnyPart) -> str:
    """The output or error of a call; empty while it runs."""
    match part:
        case ToolPart(state=Completed(output=output)):
            return output
        case ToolPart(state=Failed(error=error)):
            return error
        case _:
            return ""


def group_of(part: ToolPart) -> Group:
    """The file of a call, or its command."""
    files = about(part).files
    return ("file", one_line(files[0], LONGEST_PATH)) if files else ("run", command_of(part))


def command_of(part: ToolPart) -> str:
    """The command or search of a call, on one line."""
    if not (text := command_text(part)):
        return one_line(f"{part.tool} {about(part).about}", LONGEST_COMMAND)
    return one_line(without_folder(text), LONGEST_COMMAND) or part.tool


def is_command(part: ToolPart) -> bool:
    """Whether a call ran a command."""
    return bool(command_text(part))


def command_text(part: ToolPart) -> str:
    """The unchanged command of a call; empty if it ran none."""
    fields = part.state.input or {}
    texts = (fields[key] for key in _COMMANDS if isinstance(fields.get(key), str | list))
    text = next(texts, "")
    return text if isinstance(text, str) else " ".join(values(text)).removeprefix("bash -lc ")


# --- prose: lines without references ---

_WORD = re.compile(r"[^\W\d_]{4,}")
# Lines of code and data have few words. In scripts without spaces, a run of letters suffices.
_SHORT_WORD = re.compile(r"[^\W\d_]{3,}")
_UNSPACED = re.compile(r"[^\W\d_\x00-\u02ff]{6,}")
_MIN_WORDS = 3
_MAX_LINES = 20_000  # the newest ones
_HALF_AGE = 20_000  # characters; the age at which a word is worth half
_WORTH = 0.0005
_FIRST_LINE, _OTHER_LINE = 2.0, 0.2  # bonus, in words, of the first line of a text and of any other


def plain_passages(entries: Iterable[Entry]) -> Iterator[Passage]:
    """The lines without references of replies and outputs; requests have their own section."""
    at = 0
    for entry in entries:
        for ordinal, source, group, text in texts(entry):
            if source not in ("said", "output"):
                continue
            for line in lines(text):
                at += len(line)
                if _is_prose(line) and not references(line):
                    yield Passage(
                        text=line, names=(), group=group, source=source, ordinal=ordinal, at=at
                    )


def prose(
    entries: Sequence[Entry], count: TokenCounter
) -> tuple[list[tuple[Passage, Candidate]], dict[str, float]]:
    """Candidates that cover words, each with its passage, and the weights of the words."""
    newest = {passage.text: passage for passage in plain_passages(entries)}
    newest_lines = list(newest.values())[-_MAX_LINES:]
    words = [_words(passage.text) for passage in newest_lines]
    frequency = Counter(word for line_words in words for word in line_words)
    end = newest_lines[-1].at if newest_lines else 0
    weights: dict[str, float] = {}
    candidates: list[tuple[Passage, Candidate]] = []
    first = -1
    for passage, line_words in zip(newest_lines, words, strict=True):
        freshness = _HALF_AGE / (_HALF_AGE + end - passage.at)
        for word in line_words:
            rare = math.log1p(len(newest_lines) / frequency[word])
            weights[word] = max(weights.get(word, 0.0), _WORTH * rare * freshness)
        # The first line of a text shows its subject best.
        bonus = (_FIRST_LINE if passage.ordinal != first else _OTHER_LINE) * _WORTH * freshness
        first = passage.ordinal
        tokens = count(passage.text) + 2.0
        candidate = Candidate(text=passage.text, tokens=tokens, names=line_words, bonus=bonus)
        candidates.append((passage, candidate))
    return candidates, weights


def _is_prose(line: str) -> bool:
    """Whether a line has enough words to be prose."""
    return len(_SHORT_WORD.findall(line)) >= _MIN_WORDS or bool(_UNSPACED.search(line))


def _words(line: str) -> tuple[str, ...]:
    """The words of a line, marked to distinguish them from references."""
    return tuple(dict.fromkeys(f"\0{word.lower()}" for word in _WORD.findall(line)))
