"""Aider: `.aider.chat.history.md`, Markdown to which all that is said is appended.

Facts of this format: a line `# aider chat started at …` opens a session; each line of the user
begins with `#### ` and ends with two spaces; an output of aider itself begins with `> ` and ends,
lines later perhaps, with two spaces; answers stand as they are. By the two spaces a heading or a
quote in an answer is told from them. From the messages the file can be put together again.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

from msgspec import UNSET

from foldmark.errors import BadInput
from foldmark.model.messages import Message, SessionInfo, TextPart, Time
from foldmark.model.values import Extra, Json
from foldmark.transcripts.build import (
    Opened,
    Step,
    Tally,
    assistant_message,
    moment,
    note,
    user_message,
    with_info,
)
from foldmark.transcripts.format import Format
from foldmark.transcripts.source import Head

Kind = Literal["start", "header", "user", "output", "answer", "blank", "begun", "end"]

_NAME = "aider"
_HEADER = re.compile(r"# (aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d))\s*")
_MODEL = re.compile(r"(?:Models?|Main model): (\S+)")
_USER, _OUTPUT, _END = "#### ", "> ", "  "
# How many blank lines aider writes before a thing, and after it.
_BEFORE = {"header": 1, "user": 1, "output": 0, "answer": 1, "end": 0}
_AFTER = {"start": 0, "header": 1, "user": 0, "output": 0, "answer": 1}


class Aider:
    """Reads one file."""

    def __init__(self, name: str) -> None:
        """Take the file's name, which names the sessions."""
        self.tally = Tally()
        self._stem = Path(name).stem.lstrip(".")
        self._sessions = 0
        self._session = ""
        self._count = 0
        self._model = ""
        self._is_marked: bool | None = None  # whether the two spaces are there
        self._open: list[str] = []  # an output that goes on, or a quote in an answer
        self._kind: Kind = "start"
        self._lines: list[str] = []  # of what is being said
        self._blank: list[str] = []  # lines after it
        self._before: Json = {}

    def decode(self, data: bytes) -> str:
        """A line, with its end."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise BadInput("not UTF-8 text", place=f"byte {error.start}") from None

    def take(self, record: str, line: int) -> Iterator[Step]:
        """What a line ends: all is told once the next thing begins."""
        del line
        if record.startswith(_USER):
            # As such files are counted: a prompt and its answer for each line of the user.
            self.tally.messages += 2
        for kind, text in self._told(record):
            yield from self._add(kind, text)

    def end(self) -> Iterator[Step]:
        """What was said last."""
        for kind, text in self._quoted():
            yield from self._add(kind, text)
        yield from self._close("end")

    # --- lines ---

    def _told(self, line: str) -> Iterator[tuple[Kind, str]]:
        """Of what kind a line is; an output of several lines comes as one."""
        kind = self._kind_of(line)
        if self._open and kind in ("header", "user", "output"):
            yield from self._quoted()
        if not self._open and kind != "begun":
            yield kind, line
            return
        self._open.append(line)
        if kind == "answer" and _ends(line):
            yield "output", "".join(self._open)
            self._open = []

    def _quoted(self) -> Iterator[tuple[Kind, str]]:
        """What looked like an output and never ended: a quote in an answer."""
        held, self._open = self._open, []
        for line in held:
            yield "blank" if line.isspace() else "answer", line

    def _kind_of(self, line: str) -> Kind:
        if line.isspace():
            return "blank"
        kind = _marked(line)
        if kind == "answer":
            return "header" if line.startswith("# ") and _HEADER.fullmatch(line) else kind
        ends = _ends(line)
        if self._is_marked is None:
            self._is_marked = ends  # an editor may have taken the spaces away
        if ends or not self._is_marked:
            return kind
        return "begun" if kind == "output" else "answer"

    # --- what is said ---

    def _add(self, kind: Kind, text: str) -> Iterator[Step]:
        if kind == "blank":
            self._blank.append(text)
        elif kind == self._kind and (kind == "answer" or (kind != "header" and not self._blank)):
            self._lines += [*self._blank, text]
            self._blank = []
        else:
            yield from self._close(kind)
            self._kind, self._lines = kind, [text]

    def _close(self, following: Kind) -> Iterator[Step]:
        blank, self._blank = "".join(self._blank), []
        is_usual = blank == gap(self._kind, following, {})
        notes: Json = {} if is_usual else {"after": blank}
        if self._kind == "start":
            self._before = {} if is_usual else {"before": blank}
        elif self._kind == "header":
            yield self._opened(self._lines[0], notes)
        else:
            if not self._session:
                yield self._opened("", {})
            yield self._message(notes)

    def _opened(self, header: str, notes: Json) -> Opened:
        """A session; what stands before the first header is one of its own."""
        if header:
            self._sessions += 1
        self._session = f"{self._stem}-{self._sessions}"
        self._count, self._model = 0, ""
        found = _HEADER.fullmatch(header)
        title, at = (found[1], moment(found[2])) if found else ("", None)
        if header != written("header", title, {}) and header:
            notes = {"raw": header, **notes}
        notes, self._before = {**self._before, **notes}, {}
        info = SessionInfo(
            id=self._session,
            title=title or UNSET,
            time=UNSET if at is None else Time(created=at, updated=at),
        )
        return Opened(info=info, extra=Extra({_NAME: notes}) if notes else UNSET)

    def _message(self, notes: Json) -> Message:
        raw = "".join(self._lines)
        text = raw.removesuffix("\n")
        if self._kind != "answer":
            mark = _USER if self._kind == "user" else _OUTPUT
            text = "\n".join(_bare(line, mark) for line in self._lines)
        sizes = [line.count("\n") for line in self._lines]
        if self._kind == "output" and any(size > 1 for size in sizes):
            notes = {"lines": sizes, **notes}
        if written(self._kind, text, notes) != raw:
            notes = {"raw": raw, **notes}
        self._count += 1
        name, wire = f"{self._session}-{self._count}", {_NAME: notes} if notes else None
        if self._kind == "answer":
            answer = assistant_message(name, (TextPart(text=text),), None, model=("", self._model))
            return with_info(answer, wire=wire or UNSET)
        if self._kind == "user":
            return user_message(name, (TextPart(text=text),), None, wire=wire)
        if found := _MODEL.search(text):
            self._model = found[1]
        return user_message(name, (note(text),), None, wire=wire)


# --- the file again -------------------------------------------------------------------------


def written(kind: Kind, text: str, notes: Json) -> str:
    """What was said as it stands in the file, the blank lines around it left out."""
    if "raw" in notes and kind != "start":
        return str(notes["raw"])
    lines = text.split("\n")
    match kind:
        case "answer":
            return f"{text}\n"
        case "header":
            return f"# {text}\n"
        case "user":
            return "".join(f"{_USER}{line}{_END}\n" for line in lines)
        case "output":
            rest = iter(lines)
            sizes = cast("list[int]", notes.get("lines") or [1] * len(lines))
            said = ("\n".join(next(rest, "") for _ in range(size)) for size in sizes)
            return "".join(f"{f'{_OUTPUT}{output}' if output else '>'}{_END}\n" for output in said)
        case _:
            return ""


def gap(kind: Kind, following: Kind, notes: Json) -> str:
    """The blank lines between two things."""
    usual = "\n" * (_AFTER[kind] + _BEFORE[following])
    return str(notes.get("before" if kind == "start" else "after", usual))


# --- lines ---------------------------------------------------------------------------------


def _marked(line: str) -> Kind:
    if line.startswith((_USER, "####\n")):
        return "user"
    return "output" if line.startswith((_OUTPUT, ">\n")) else "answer"


def _ends(line: str) -> bool:
    return line.rstrip("\r\n").endswith(_END)


def _bare(line: str, mark: str) -> str:
    text = line.removesuffix("\n").removesuffix(_END)
    return "" if text == mark.rstrip() else text.removeprefix(mark)


def _recognises(head: Head) -> bool:
    if head.shape != "text":
        return False
    lines = head.text.splitlines(keepends=True)
    if any(_HEADER.fullmatch(line) for line in lines):
        return True
    kinds = {_marked(line) for line in lines if _ends(line)}
    return {"user", "output"} <= kinds


FORMAT = Format(
    name=_NAME,
    about="Aider, .aider.chat.history.md",
    recognises=_recognises,
    importer=Aider,
)
