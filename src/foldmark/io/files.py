"""Files to read, and files that only their owner may read.

Whatever is wrong with a file is said as BadInput: which file, where in it, and why. Only regular
files and standard input are read, and never more than a limit: the rest could hang or fill the
memory. What is in them is told elsewhere.
"""

import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from foldmark.errors import BadInput

MOST_BYTES = 512 * 2**20
STANDARD_INPUT = "-"

# What a parser says of JSON types, in plain words.
_TYPES = {
    "object": "an object",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}
_MISSING = re.compile(r"Object missing required field `(.+)`")
_MISTYPED = re.compile(r"Expected `(.+)`, got `(.+)`")
_UNKNOWN = re.compile(r"Invalid value (.+)", re.DOTALL)
_MALFORMED = "JSON is malformed: "


def write_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that only its owner may read: the whole of it, or nothing."""
    final = Path(path)
    number, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name[:32]}.")
    try:
        with os.fdopen(number, "wb") as file:  # mkstemp made it with mode 0600
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(final)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def harmless(name: str) -> str:
    """A file's name as it can be printed: what steers a terminal is shown as U+FFFD."""
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in name)


def size_text(size: int) -> str:
    """A size in the largest unit that fits, as `--max-size` takes it."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + unit
    return f"{size} bytes"


# --- reading -------------------------------------------------------------------------------


@contextmanager
def opened_input(name: str) -> Generator[BinaryIO]:
    """A regular file, or standard input, to be read."""
    if name != STANDARD_INPUT:
        with _opened(name) as file:
            yield file
        return
    # None where a program was started without it.
    standard: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if standard is None:
        raise BadInput("there is no standard input to read")
    yield standard


def _opened(name: str) -> BinaryIO:
    # Opening a pipe waits for its other end; O_NONBLOCK makes it return, to be refused.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        number = os.open(name, flags)
    except FileNotFoundError:
        raise BadInput("there is no such file") from None
    except PermissionError:
        raise BadInput("no permission to read it") from None
    except ValueError as error:
        raise BadInput(f"not a file name: {error}") from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise BadInput("not a regular file") from None
        raise BadInput(f"cannot be opened: {error.strerror}") from None
    refusal = _refusal(os.fstat(number).st_mode)
    if refusal:
        os.close(number)
        raise BadInput(refusal)
    return os.fdopen(number, "rb")


def _refusal(mode: int) -> str | None:
    """Why a thing that is no regular file is not read."""
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return "this is a folder, not a file"
    if stat.S_ISFIFO(mode):
        return "this is a pipe, not a regular file; give - to read standard input"
    return "this is a device, not a regular file"


def too_large(what: str, most_bytes: int) -> BadInput:
    """That there is more than the limit."""
    return BadInput(
        f"{what}, but the limit is {size_text(most_bytes)}; "
        "raise it: --max-size on the command line, most_bytes=… in Python"
    )


# --- what is wrong with the JSON -----------------------------------------------------------


def text_problem(data: bytes) -> BadInput | None:
    """What is wrong with bytes that are no text at all; a parser tells it as bad JSON."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return BadInput("not UTF-8 text", place=f"line {line}, byte {error.start}")
    return None


def in_plain_words(error: BadInput) -> BadInput:
    """What a parser says of JSON, as people say it."""
    cause, place = error.cause, error.place
    if cause == "Input data was truncated":
        return BadInput("the JSON ends too early; the file was cut off", place=place)
    if cause.startswith(_MALFORMED):
        return BadInput(_malformed(cause.removeprefix(_MALFORMED)), place=place)
    if unknown := _UNKNOWN.fullmatch(cause):
        return BadInput(f"the value {unknown[1]} is not known here", place=place)
    if missing := _MISSING.fullmatch(cause):
        cause = f"the field '{missing[1]}' is missing"
    elif mistyped := _MISTYPED.fullmatch(cause):
        cause = f"expected {_type_words(mistyped[1])}, got {_type_words(mistyped[2])}"
    else:
        return error
    return BadInput(cause, place=place)


def _malformed(problem: str) -> str:
    if problem.startswith("trailing characters"):
        return "more follows after the first JSON value; a transcript is one object"
    return f"not valid JSON: {problem}"


def _type_words(names: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in names.split(" | "))
