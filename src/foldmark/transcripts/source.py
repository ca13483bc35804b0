"""The records of a transcript file: lines of JSON, one JSON document, or lines of text.

Files are streamed: only one line is in memory, beside those read ahead to recognize the format.
Another program may be writing the file, so a last line that is cut off counts as not yet written.
Only regular files and standard input are read. The formats interpret the JSON.
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
    MAX_BYTES,
    STANDARD_INPUT,
    encoding_error,
    explain_json_error,
    open_input,
    printable,
    too_large_error,
)
from foldmark.model.values import HALF_PAIR, Frozen, Json, parse_json

Shape = Literal["lines", "document", "text"]
Document = dict[str, msgspec.Raw] | list[msgspec.Raw]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NUL = b"\0"
_PIECE = 2**20
_PEEKED_LINES, _PEEKED_BYTES = 40, 2**18
_document = msgspec.json.Decoder(Document)
_items = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)


class UnrecognizedFormat(BadInput):
    """Raised for a file of no known format."""


class Record(msgspec.Struct):
    """One line, or a whole document, and the number of its first line."""

    line: int
    data: bytes
    cached_value: Any = msgspec.UNSET

    def value(self) -> Any:
        """The record as plain JSON data, decoded once; raises BadInput if it is not JSON."""
        if self.cached_value is msgspec.UNSET:
            self.cached_value = parse_json(self.data)
        return self.cached_value


class Head(Frozen):
    """The beginning of a file, by which its format is recognized."""

    shape: Shape
    lines: tuple[Json, ...] = ()  # the first lines that are objects
    document: Any = None  # a document or only line: its fields or items, not yet decoded
    text: str = ""  # the beginning of a file that is not JSON

    @property
    def fields(self) -> dict[str, msgspec.Raw]:
        """The fields of a document that is an object, else {}."""
        return cast(
            "dict[str, msgspec.Raw]", self.document if isinstance(self.document, dict) else {}
        )

    @property
    def items(self) -> list[msgspec.Raw]:
        """The items of a document that is a list, else []."""
        return cast("list[msgspec.Raw]", self.document if isinstance(self.document, list) else [])

    def field(self, name: str) -> Any:
        """The value of a document's field, or None if it is absent."""
        return _decode(self.fields.get(name))

    def first_items(self, name: str, count: int) -> list[Any]:
        """The first items of the list in this field, or of the document itself if name is ""."""
        items: Any = self.fields.get(name) if name else self.items
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            items = _items.decode(items) if isinstance(items, msgspec.Raw) else items
            if isinstance(items, list):
                return [_decode(item) for item in cast("list[Any]", items)[:count]]
        return []


class Source:
    """A file being read."""

    def __init__(self, file: BinaryIO, name: str, max_bytes: int) -> None:
        """Read the head of an open file; raises BadInput if it cannot be a transcript."""
        self.name = name
        self.position = 0  # bytes read so far
        self.unfinished: int | None = None  # number of a last line that is not fully written
        self._file = file
        self._limit = max_bytes  # of a line or document
        self._line = 0
        self._is_text = False
        self._leading_blanks: deque[Record] = deque(maxlen=_PEEKED_LINES)
        self._peeked: list[Record] = []
        self.head = self._read_head()

    def records(self) -> Iterator[Record]:
        """All records, from the first one."""
        peeked, self._peeked = self._peeked, []
        if self.head.shape == "document":
            yield from peeked
            return
        for record in chain(peeked, self._lines()):
            if self.head.shape == "lines" and _is_cut_off(record.data):
                self.unfinished = record.line
            else:
                yield record

    # --- head ---

    def _read_head(self) -> Head:
        first = next(self._lines(), None)
        if first is None:
            raise UnrecognizedFormat("the file is empty")
        self._peeked.append(first)
        if first.data.lstrip()[:1] not in (b"{", b"["):
            return self._text_head()
        if _is_json(first):
            return self._lines_head()
        second = next(self._lines(), None)
        if second is not None:
            self._peeked.append(second)
            # The second line of a document over several lines is never a whole object.
            if second.data.lstrip()[:1] == b"{" and _is_json(second):
                return self._lines_head()
        return self._document_head()

    def _text_head(self) -> Head:
        self._is_text = True  # from now on, blank lines are records
        self._peeked[:0] = self._leading_blanks
        self._peek()
        for record in self._peeked:
            if problem := encoding_error(record.data):
                raise BadInput(problem.cause, location=f"line {record.line}")
        text = b"".join(record.data for record in self._peeked)
        return Head(shape="text", text=text.decode())

    def _lines_head(self) -> Head:
        self._peek()
        lines: list[Json] = []
        problem: BadInput | None = None
        for record in self._peeked:
            try:
                value = record.value()
            except BadInput as error:
                cause = (encoding_error(record.data) or explain_json_error(error)).cause
                problem = problem or BadInput(cause, location=f"line {record.line}")
                continue
            if isinstance(value, dict):
                lines.append(cast("Json", value))
        if problem is not None and not lines:
            raise problem
        document = self._peeked[0].value() if len(self._peeked) == 1 else None
        return Head(shape="lines", lines=tuple(lines), document=document)

    def _document_head(self) -> Head:
        data = b"".join([*(record.data for record in self._peeked), *self._remaining()])
        self._peeked = [Record(line=1, data=data)]
        if problem := encoding_error(data):
            raise problem
        return Head(shape="document", document=_fields(data))

    def _peek(self) -> None:
        size = sum(len(record.data) for record in self._peeked)
        for record in self._lines():
            self._peeked.append(record)
            size += len(record.data)
            # The marks that identify a text format may come late in the file.
            is_json = not self._is_text and record.data.lstrip()[:1] in (b"{", b"[")
            if size >= _PEEKED_BYTES or (is_json and len(self._peeked) >= _PEEKED_LINES):
                break

    # --- reading ---

    def _lines(self) -> Iterator[Record]:
        """The lines that are not blank, or all lines of a text; raises BadInput for a long one."""
        readline = self._file.readline
        while line := self._read(readline):
            if len(line) == _PIECE or len(line) > self._limit:
                line = self._whole_line(line)
            self._line += 1
            if self._line == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            record = Record(line=self._line, data=line)
            if self._is_text or (line and not line.isspace()):
                yield record
            elif line:
                self._leading_blanks.append(record)

    def _whole_line(self, piece: bytes) -> bytes:
        pieces = [piece]
        size = len(piece)
        while len(piece) == _PIECE and not piece.endswith(b"\n"):
            if size > self._limit:
                break
            piece = self._read(self._file.readline)
            pieces.append(piece)
            size += len(piece)
        if size > self._limit:
            raise too_large_error(f"line {self._line + 1} is longer", self._limit)
        return b"".join(pieces)

    def _remaining(self) -> Iterator[bytes]:
        while piece := self._read(self._file.read):
            if self.position > self._limit:
                raise too_large_error("there is more", self._limit)
            yield piece

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        try:
            piece = read(_PIECE)
        except OSError as error:
            raise BadInput(f"cannot be read: {error.strerror}") from None
        offset = piece.find(_NUL)
        if offset >= 0:
            location = f"byte {self.position + offset}"
            raise UnrecognizedFormat("a binary file, not JSON text", location=location)
        self.position += len(piece)
        return piece


@contextmanager
def open_source(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Generator[Source]:
    """Open a file for reading; any BadInput names the file."""
    name = os.fspath(path)
    label = "standard input" if name == STANDARD_INPUT else printable(name)
    try:
        with open_input(name) as file:
            yield Source(file, label, max_bytes)
    except BadInput as error:
        if error.source is not None:
            raise
        raise type(error)(error.cause, source=label, location=error.location) from None


def _is_json(record: Record) -> bool:
    with suppress(BadInput):
        record.value()
        return True
    return False


def _is_cut_off(data: bytes) -> bool:
    """Whether a line ends before its JSON does, as it does while another program writes it."""
    if data.endswith(b"\n"):
        return False
    try:
        _value.decode(HALF_PAIR.sub(rb"\\u00", data))
    except msgspec.DecodeError as error:
        # A number that is cut off is reported as invalid at its end.
        ends_early = str(error).endswith(("truncated", f"(byte {len(data)})"))
        return ends_early and "trailing" not in str(error)
    except (UnicodeDecodeError, RecursionError):
        pass
    return False


def _fields(data: bytes) -> Document:
    """The fields or items of a document, not decoded if possible."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _document.decode(data)
    try:
        value = parse_json(data)
    except BadInput as error:
        raise encoding_error(data) or explain_json_error(error) from None
    return cast("Document", value) if isinstance(value, dict | list) else []


def _decode(value: object) -> Any:
    return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
