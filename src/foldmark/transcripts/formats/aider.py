"""Aider: `.aider.chat.history.md`, Markdown to which all that is said is appended.

Facts of this format: a line `# aider chat started at …` opens a session; each line of the user
begins with `#### ` and ends with two spaces; an output of aider itself begins with `> ` and ends,
lines later perhaps, with two spaces; answers stand as they are. By the two spaces a heading or a
quote in an answer is told from them.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET

from foldmark.errors import BadInput
from foldmark.model.messages import SessionInfo, TextPart
from foldmark.transcripts.build import (
    ConversationBuilder,
    FormatReader,
    milliseconds,
    session_time,
    synthetic_text,
)
from foldmark.transcripts.source import Head, Record

Kind = Literal["start", "header", "user", "output", "answer", "blank", "begun"]

_NAME = "aider"
_HEADER = re.compile(r"# (aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d))\s*")
_MODEL = re.compile(r"(?:Models?|Main model): (\S+)")
_USER, _OUTPUT, _END = "#### ", "> ", "  "


class Aider(FormatReader):
    """Reads one file."""

    name = _NAME
    about = "Aider, .aider.chat.history.md"
    key = _NAME

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file is of this format."""
        if head.shape != "text":
            return False
        lines = head.text.splitlines(keepends=True)
        if any(_HEADER.fullmatch(line) for line in lines):
            return True
        kinds = {_marked(line) for line in lines if _ends(line)}
        return {"user", "output"} <= kinds

    def __init__(self, name: str) -> None:
        """Take the file's name, which names the sessions."""
        super().__init__(name)
        self.stem = self.stem.lstrip(".")
        self._session: ConversationBuilder | None = None
        self._sessions = 0
        self._count = 0
        self._model = ""
        self._is_marked: bool | None = None  # whether the two spaces are there
        self._open: list[str] = []  # an output that goes on, or a quote in an answer
        self._kind: Kind = "start"
        self._lines: list[str] = []  # of what is being said
        self._blank: list[str] = []  # lines after it

    def decode(self, record: Record) -> str:
        """A line, with its end."""
        try:
            return record.data.decode()
        except UnicodeDecodeError as error:
            raise BadInput("not UTF-8 text", location=f"byte {error.start}") from None

    def read(self, record: str) -> None:
        """Tell what a line ends: all is told once the next thing begins."""
        if record.startswith(_USER):
            # As such files are counted: a prompt and its answer for each line of the user.
            self.tally.messages += 2
        for kind, text in self._kinds(record):
            self._add(kind, text)

    def finish(self) -> None:
        """Tell what was said last."""
        for kind, text in self._quoted():
            self._add(kind, text)
        self._close()

    # --- lines ---

    def _kinds(self, line: str) -> Iterator[tuple[Kind, str]]:
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
        lines, self._open = self._open, []
        for line in lines:
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

    def _add(self, kind: Kind, text: str) -> None:
        if kind == "blank":
            self._blank.append(text)
        elif kind == self._kind and (kind == "answer" or (kind != "header" and not self._blank)):
            self._lines += [*self._blank, text]
            self._blank = []
        else:
            self._close()
            self._kind, self._lines = kind, [text]

    def _close(self) -> None:
        self._blank = []
        if self._kind == "header":
            self._begin(self._lines[0])
        elif self._kind != "start":
            self._say(self._session or self._begin(""))

    def _begin(self, header: str) -> ConversationBuilder:
        """A session; what stands before the first header is one of its own."""
        self._sessions += bool(header)
        self._count, self._model = 0, ""
        match = _HEADER.fullmatch(header)
        title, at = (match[1], milliseconds(match[2])) if match else ("", None)
        name = f"{self.stem}-{self._sessions}"
        self._session = ConversationBuilder(
            self, SessionInfo(id=name, title=title or UNSET, time=session_time(at))
        )
        self._session.open()
        return self._session

    def _say(self, conversation: ConversationBuilder) -> None:
        self._count += 1
        name = f"{conversation.info.id}-{self._count}"
        if self._kind == "answer":
            part = TextPart(text="".join(self._lines).removesuffix("\n"))
            conversation.add_assistant(name, (part,), None, model=("", self._model))
        elif self._kind == "user":
            text = "\n".join(_bare(line, _USER) for line in self._lines)
            conversation.add_user(name, (TextPart(text=text),), None)
        else:
            text = "\n".join(_bare(line, _OUTPUT) for line in self._lines)
            if match := _MODEL.search(text):
                self._model = match[1]
            conversation.add_user(name, (synthetic_text(text),), None)
        conversation.flush()


def _marked(line: str) -> Kind:
    if line.startswith((_USER, "####\n")):
        return "user"
    return "output" if line.startswith((_OUTPUT, ">\n")) else "answer"


def _ends(line: str) -> bool:
    return line.rstrip("\r\n").endswith(_END)


def _bare(line: str, mark: str) -> str:
    text = line.removesuffix("\n").removesuffix(_END)
    return "" if text == mark.rstrip() else text.removeprefix(mark)
