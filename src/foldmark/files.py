"""Files to read, files that only their owner may read, and files below a folder without links.

`opened_input` reads what a user names: whatever is wrong is BadInput, with the reason. Everything
else that opens a file for us uses `open_regular`, and below a folder that others can write to
`open_folder` first; both raise OSError, which the caller puts into its own words.
"""

import errno
import os
import re
import stat
import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from .errors import BadInput

MOST_BYTES = 512 * 2**20
STANDARD_INPUT = "-"
UNFINISHED = ".foldmark-restore-"  # how the names of files begin that are not yet in their place

# Absent on some systems, where a link cannot be refused.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
# Opening a pipe waits for its other end; O_NONBLOCK makes it return, to be refused.
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_CLOEXEC", 0)

# What a parser says of JSON types, in plain words.
_TYPES = {
    "object": "an object",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "int | float": "a number",
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


def user_data() -> Path:
    """The folder of the user's own data: sessions and snapshots, outside of any project."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    data = given if given.is_absolute() else Path.home() / ".local" / "share"
    return data / "foldmark"


def harmless(name: str, most: int | None = None) -> str:
    """A file's name as it can be printed: what steers a terminal is shown as U+FFFD."""
    short = name if most is None or len(name) <= most else f"{name[: most - 1]}…"
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in short)


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
    try:
        return open_regular(name, links=True)
    except FileNotFoundError:
        raise BadInput("there is no such file") from None
    except PermissionError:
        raise BadInput("no permission to read it") from None
    except ValueError as error:
        raise BadInput(f"not a file name: {error}") from None
    except NotRegular as error:
        raise BadInput(_refusal(error.mode)) from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise BadInput("not a regular file") from None
        raise BadInput(f"cannot be opened: {error.strerror}") from None


def _refusal(mode: int) -> str:
    """Why a thing that is no regular file is not read."""
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


# --- without links -------------------------------------------------------------------------


class NotRegular(OSError):
    """Something that is no regular file; its mode says what it is."""

    def __init__(self, mode: int) -> None:
        """Take the mode of what was opened."""
        super().__init__(errno.EINVAL, "this is no regular file")
        self.mode = mode


def open_regular(
    name: str | bytes | os.PathLike[str], *, folder: int | None = None, links: bool = False
) -> BinaryIO:
    """Open a regular file to be read, below an open folder if one is given.

    A pipe, device or folder raises NotRegular; a link as the last name raises OSError, unless
    `links` are followed.
    """
    number = os.open(name, _FILE if links else _FILE | _NO_LINK, dir_fd=folder)
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        raise NotRegular(mode)
    return os.fdopen(number, "rb")


@contextmanager
def open_folder(
    root: str | bytes | os.PathLike[str], names: Iterable[str | bytes], *, make: bool = False
) -> Generator[int]:
    """The descriptor of a folder below a root, for `dir_fd` of what is done inside it.

    Each folder on the way is opened from the one before, and never through a link: whoever swaps
    one in meanwhile changes nothing. The root itself may be a link. With `make`, folders that are
    missing are made. Raises OSError.
    """
    number = os.open(root, _FOLDER)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=number)
            inner = os.open(name, _FOLDER | _NO_LINK, dir_fd=number)
            os.close(number)
            number = inner
        yield number
    finally:
        os.close(number)


@contextmanager
def placed(folder: int, name: str | bytes) -> Generator[bytes]:
    """A new name in an open folder; what was made under it takes the place of `name` at the end.

    So it is there whole, or not at all. Raises OSError.
    """
    between = os.fsencode(UNFINISHED + token_hex(8))
    try:
        yield between
        os.rename(between, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(between, dir_fd=folder)
        raise


def write_file(
    folder: int, name: str | bytes, data: bytes, mode: int | None, *, usual: int = 0o666
) -> None:
    """Write a file in an open folder, with this mode; None: the usual one, less the umask."""
    with placed(folder, name) as between:
        number = os.open(between, _NEW, usual if mode is None else 0o600, dir_fd=folder)
        with os.fdopen(number, "wb") as file:
            if mode is not None:
                os.fchmod(number, mode)
            file.write(data)


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
    return _TYPES.get(names) or " or ".join(_TYPES.get(one, one) for one in names.split(" | "))
