"""A transcript as it lies in a file: lines of JSON, one JSON document, or lines of text.

Read piece by piece: of lines, never more than one is held beside those that were looked at to
recognise the format. A file may be written to while it is read: a last line that is cut off, and
has no end, is not there yet. Only regular files and standard input are read. What the JSON means
is told by the importers.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, BinaryIO, Literal, cast

import msgspec

from foldmark.errors import BadInput
from foldmark.files import (
    MOST_BYTES,
    STANDARD_INPUT,
    harmless,
    in_plain_words,
    opened_input,
    text_problem,
    too_large,
)
from foldmark.model.values import HALF_PAIR, Frozen, Json, parsed

Shape = Literal["lines", "document", "text"]
Document = dict[str, msgspec.Raw] | list[msgspec.Raw]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NUL = b"\0"
_PIECE = 2**20
_PEEKED_LINES, _PEEKED_BYTES = 40, 2**18
_document = msgspec.json.Decoder(Document)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)


class Unrecognised(BadInput):
    """A file of no format that is known."""


class Record(msgspec.Struct):
    """One line, or a whole document, and where it begins."""

    line: int
    data: bytes
    known: Any = msgspec.UNSET  # what it says, if that was looked at

    def value(self) -> Any:
        """What it says as plain JSON data, decoded once; BadInput where that is none."""
        if self.known is msgspec.UNSET:
            self.known = parsed(self.data)
        return self.known


class Head(Frozen):
    """What is looked at to recognise a format."""

    shape: Shape
    lines: tuple[Json, ...] = ()  # the first that are objects
    document: Any = None  # a document, or a first line alone: its fields or items, undecoded
    text: str = ""  # the beginning of what is no JSON

    @property
    def fields(self) -> dict[str, msgspec.Raw]:
        """The fields of a document that is an object."""
        return cast(
            "dict[str, msgspec.Raw]", self.document if isinstance(self.document, dict) else {}
        )

    @property
    def items(self) -> list[msgspec.Raw]:
        """The items of a document that is a list."""
        return cast("list[msgspec.Raw]", self.document if isinstance(self.document, list) else [])

    def field(self, name: str) -> Any:
        """A field of a document, decoded."""
        return _decoded(self.fields.get(name))

    def beginning(self, name: str, count: int) -> list[Any]:
        """The first items of a list: of this field, or without a name of the whole document."""
        items: Any = self.fields.get(name) if name else self.items
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            items = _items.decode(items) if isinstance(items, msgspec.Raw) else items
            if isinstance(items, list):
                return [_decoded(item) for item in cast("list[Any]", items)[:count]]
        return []


class Source:
    """A file being read."""

    def __init__(self, file: BinaryIO, name: str, most_bytes: int) -> None:
        """Look at the beginning of an open file."""
        self.name = name
        self.position = 0  # bytes read so far
        self.unfinished: int | None = None  # the number of a last line that is not there yet
        self._file = file
        self._most = most_bytes
        self._line = 0
        self._is_text = False
        self._passed: deque[Record] = deque(maxlen=_PEEKED_LINES)  # lines that are blank
        self._peeked: list[Record] = []
        self.head = self._looked()

    def records(self) -> Iterator[Record]:
        """All records, from the first."""
        peeked, self._peeked = self._peeked, []
        if self.head.shape == "document":
            yield from peeked
            return
        for record in chain(peeked, self._lines()):
            if self.head.shape == "lines" and _is_cut_off(record.data):
                self.unfinished = record.line
            else:
                yield record

    # --- the beginning ---

    def _looked(self) -> Head:
        first = next(self._lines(), None)
        if first is None:
            raise Unrecognised("it is empty")
        self._peeked.append(first)
        if first.data.lstrip()[:1] not in (b"{", b"["):
            return self._looked_at_text()
        if _is_json(first):
            return self._looked_at_lines()
        second = next(self._lines(), None)
        if second is not None:
            self._peeked.append(second)
            # A line of another document's middle is no object, or is not alone on it.
            if second.data.lstrip()[:1] == b"{" and _is_json(second):
                return self._looked_at_lines()
        return self._looked_at_document()

    def _looked_at_text(self) -> Head:
        self._is_text = True  # of which blank lines are a part
        self._peeked[:0] = self._passed
        self._peek()
        for record in self._peeked:
            if problem := text_problem(record.data):
                raise BadInput(problem.cause, place=f"line {record.line}")
        text = b"".join(record.data for record in self._peeked)
        return Head(shape="text", text=text.decode())

    def _looked_at_lines(self) -> Head:
        self._peek()
        found: list[Json] = []
        problem: BadInput | None = None
        for record in self._peeked:
            try:
                value = record.value()
            except BadInput as error:
                told = text_problem(record.data) or in_plain_words(error)
                problem = problem or BadInput(told.cause, place=f"line {record.line}")
                continue
            if isinstance(value, dict):
                found.append(cast("Json", value))
        if problem is not None and not found:
            raise problem
        document = self._peeked[0].value() if len(self._peeked) == 1 else None
        return Head(shape="lines", lines=tuple(found), document=document)

    def _looked_at_document(self) -> Head:
        data = b"".join([*(record.data for record in self._peeked), *self._rest()])
        self._peeked = [Record(line=1, data=data)]
        if problem := text_problem(data):
            raise problem
        return Head(shape="document", document=_fields(data))

    def _peek(self) -> None:
        size = sum(len(record.data) for record in self._peeked)
        for record in self._lines():
            self._peeked.append(record)
            size += len(record.data)
            # Text is looked at for as long as it may take to tell what it is.
            is_json = not self._is_text and record.data.lstrip()[:1] in (b"{", b"[")
            if size >= _PEEKED_BYTES or (is_json and len(self._peeked) >= _PEEKED_LINES):
                break

    # --- reading ---

    def _lines(self) -> Iterator[Record]:
        """Lines that say something, and all of a text; each refused where it is too long."""
        readline = self._file.readline
        while line := self._read(readline):
            if len(line) == _PIECE or len(line) > self._most:
                line = self._whole_line(line)
            self._line += 1
            if self._line == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            record = Record(line=self._line, data=line)
            if self._is_text or (line and not line.isspace()):
                yield record
            elif line:
                self._passed.append(record)

    def _whole_line(self, piece: bytes) -> bytes:
        pieces = [piece]
        size = len(piece)
        while len(piece) == _PIECE and not piece.endswith(b"\n"):
            if size > self._most:
                break
            piece = self._read(self._file.readline)
            pieces.append(piece)
            size += len(piece)
        if size > self._most:
            raise too_large(f"line {self._line + 1} is longer", self._most)
        return b"".join(pieces)

    def _rest(self) -> Iterator[bytes]:
        while piece := self._read(self._file.read):
            if self.position > self._most:
                raise too_large("there is more", self._most)
            yield piece

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        try:
            piece = read(_PIECE)
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}") from None
        found = piece.find(_NUL)
        if found >= 0:
            place = f"byte {self.position + found}"
            raise Unrecognised("a binary file, not JSON text", place=place)
        self.position += len(piece)
        return piece


@contextmanager
def opened_source(
    path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES
) -> Generator[Source]:
    """A file to be read; BadInput names it."""
    name = os.fspath(path)
    told = "standard input" if name == STANDARD_INPUT else harmless(name)
    try:
        with opened_input(name) as file:
            yield Source(file, told, most_bytes)
    except BadInput as error:
        if error.source is not None:
            raise
        raise type(error)(error.cause, source=told, place=error.place) from None


def _is_json(record: Record) -> bool:
    with suppress(BadInput):
        record.value()
        return True
    return False


def _is_cut_off(data: bytes) -> bool:
    """Whether a line ends where its JSON does not: the one that is being written."""
    if data.endswith(b"\n"):
        return False
    try:
        _value.decode(HALF_PAIR.sub(rb"\\u00", data))
    except msgspec.DecodeError as error:
        # Of a number it is said that it is none, at its end.
        ends = str(error).endswith(("truncated", f"(byte {len(data)})"))
        return ends and "trailing" not in str(error)
    except (UnicodeDecodeError, RecursionError):
        pass
    return False


def _fields(data: bytes) -> Document:
    """What a document is made of, decoded no further than it must be."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _document.decode(data)
    try:
        found = parsed(data)
    except BadInput as error:
        raise text_problem(data) or in_plain_words(error) from None
    return cast("Document", found) if isinstance(found, dict | list) else []


def _decoded(held: object) -> Any:
    return msgspec.json.decode(held) if isinstance(held, msgspec.Raw) else held
