"""Aider: `.aider.chat.history.md`, Markdown to which each message is appended.

Facts of this format: a line `# aider chat started at …` opens a session. Each line of the user
starts with `#### ` and ends with two spaces. An output of aider itself starts with `> ` and ends
with two spaces, perhaps several lines later. All other lines are replies; without the two spaces at
its end, a heading or quote is part of a reply.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import UNSET

from foldmark.errors import BadInput
from foldmark.model.messages import SessionInfo, TextPart

from ..build import ConversationBuilder, FormatReader, milliseconds, session_time, synthetic_text
from ..source import Head, Record

Kind = Literal["start", "header", "user", "output", "reply", "blank", "open output"]

_NAME = "aider"
_HEADER = re.compile(r"# (aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d))\s*")
_MODEL = re.compile(r"(?:Models?|Main model): (\S+)")
_USER, _OUTPUT, _END = "#### ", "> ", "  "


class Aider(FormatReader):
    """Reads a file of Aider."""

    name = _NAME
    about = "Aider, .aider.chat.history.md"
    key = _NAME

    @classmethod
    def recognizes(cls, head: Head) -> bool:
        """Whether a file with this beginning is of this format."""
        if head.shape != "text":
            return False
        lines = head.text.splitlines(keepends=True)
        if any(_HEADER.fullmatch(line) for line in lines):
            return True
        kinds = {_kind_by_prefix(line) for line in lines if _has_end_mark(line)}
        return {"user", "output"} <= kinds

    def __init__(self, name: str) -> None:
        """Start reading a file; its name and a number become the ids of its sessions."""
        super().__init__(name)
        self.stem = self.stem.lstrip(".")
        self._session: ConversationBuilder | None = None
        self._sessions = 0
        self._count = 0
        self._model = ""
        self._has_marks: bool | None = None  # whether lines end with two spaces; None: not known
        self._open: list[str] = []  # lines of an output without an end yet, or of a quote
        self._kind: Kind = "start"
        self._lines: list[str] = []  # of the current message
        self._blank: list[str] = []  # lines after it

    def decode(self, record: Record) -> str:
        """Return the line with its line end."""
        try:
            return record.data.decode()
        except UnicodeDecodeError as error:
            raise BadInput("not UTF-8 text", location=f"byte {error.start}") from None

    def read(self, record: str) -> None:
        """Add a line; a message is emitted once the next one starts."""
        if record.startswith(_USER):
            # The corpus counts a prompt and a reply for each line of the user.
            self.tally.messages += 2
        for kind, text in self._blocks(record):
            self._add(kind, text)

    def finish(self) -> None:
        """Add the last message."""
        for kind, text in self._drain_quote():
            self._add(kind, text)
        self._close()

    # --- lines ---

    def _blocks(self, line: str) -> Iterator[tuple[Kind, str]]:
        """The texts that a line completes and their kinds; an output may have several lines."""
        kind = self._kind_of(line)
        if self._open and kind in ("header", "user", "output"):
            yield from self._drain_quote()
        if not self._open and kind != "open output":
            yield kind, line
            return
        self._open.append(line)
        if kind == "reply" and _has_end_mark(line):
            yield "output", "".join(self._open)
            self._open = []

    def _drain_quote(self) -> Iterator[tuple[Kind, str]]:
        """The open lines as parts of a reply: an output that never ends is a quote."""
        lines, self._open = self._open, []
        for line in lines:
            yield "blank" if line.isspace() else "reply", line

    def _kind_of(self, line: str) -> Kind:
        if line.isspace():
            return "blank"
        kind = _kind_by_prefix(line)
        if kind == "reply":
            return "header" if line.startswith("# ") and _HEADER.fullmatch(line) else kind
        ends = _has_end_mark(line)
        if self._has_marks is None:
            self._has_marks = ends  # an editor may have removed the spaces from the whole file
        if ends or not self._has_marks:
            return kind
        return "open output" if kind == "output" else "reply"

    # --- messages ---

    def _add(self, kind: Kind, text: str) -> None:
        if kind == "blank":
            self._blank.append(text)
        elif kind == self._kind and (kind == "reply" or (kind != "header" and not self._blank)):
            self._lines += [*self._blank, text]
            self._blank = []
        else:
            self._close()
            self._kind, self._lines = kind, [text]

    def _close(self) -> None:
        self._blank = []
        if self._kind == "header":
            self._open_session(self._lines[0])
        elif self._kind != "start":
            self._add_message(self._session or self._open_session(""))

    def _open_session(self, header: str) -> ConversationBuilder:
        """Open a session; messages before the first header are a session of their own."""
        self._sessions += bool(header)
        self._count, self._model = 0, ""
        match = _HEADER.fullmatch(header)
        title, at = (match[1], milliseconds(match[2])) if match else ("", None)
        id = f"{self.stem}-{self._sessions}"
        info = SessionInfo(id=id, title=title or UNSET, time=session_time(at))
        self._session = ConversationBuilder(self, info)
        self._session.open()
        return self._session

    def _add_message(self, conversation: ConversationBuilder) -> None:
        self._count += 1
        id = f"{conversation.info.id}-{self._count}"
        if self._kind == "reply":
            part = TextPart(text="".join(self._lines).removesuffix("\n"))
            conversation.add_assistant(id, (part,), None, model=("", self._model))
        elif self._kind == "user":
            text = "\n".join(_without_marks(line, _USER) for line in self._lines)
            conversation.add_user(id, (TextPart(text=text),), None)
        else:
            text = "\n".join(_without_marks(line, _OUTPUT) for line in self._lines)
            if match := _MODEL.search(text):
                self._model = match[1]
            conversation.add_user(id, (synthetic_text(text),), None)
        conversation.flush()


def _kind_by_prefix(line: str) -> Kind:
    if line.startswith((_USER, "####\n")):
        return "user"
    return "output" if line.startswith((_OUTPUT, ">\n")) else "reply"


def _has_end_mark(line: str) -> bool:
    return line.rstrip("\r\n").endswith(_END)


def _without_marks(line: str, mark: str) -> str:
    text = line.removesuffix("\n").removesuffix(_END)
    return "" if text == mark.rstrip() else text.removeprefix(mark)
