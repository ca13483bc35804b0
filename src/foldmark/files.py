"""Open and write files safely: regular files only, private modes, no symbolic links.

`open_input` opens a file that a user names, and raises BadInput with the reason if it cannot.
All other code opens files with `open_regular`, and opens folders that others can write to with
`open_folder` first. Both raise OSError, which the caller turns into a message of its own.
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

MAX_BYTES = 512 * 2**20
STANDARD_INPUT = "-"
UNFINISHED = ".foldmark-restore-"  # prefix of the names of files that are not complete yet

# Not defined on every system; without it, links cannot be refused.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
# Opening a pipe blocks until its other end is opened; with O_NONBLOCK it returns at once.
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_CLOEXEC", 0)

# Readable names for the JSON types in a parser's messages.
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
_UNEXPECTED = re.compile(r"Invalid value (.+)", re.DOTALL)
_MALFORMED = "JSON is malformed: "


def write_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that only its owner may read, atomically."""
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
    """The folder of the user's own data (sessions and snapshots), outside of any project."""
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    data = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    return data / "foldmark"


def printable(name: str, limit: int | None = None) -> str:
    """A file name that is safe to print: control characters become U+FFFD."""
    short = name if limit is None or len(name) <= limit else f"{name[: limit - 1]}…"
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in short)


def size_text(size: int) -> str:
    """A size in the largest unit that fits, in the form that `--max-size` accepts."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("kB", 2**10)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + unit
    return f"{size} bytes"


# --- reading -------------------------------------------------------------------------------


@contextmanager
def open_input(name: str) -> Generator[BinaryIO]:
    """Open a regular file, or standard input for "-"; raises BadInput."""
    if name != STANDARD_INPUT:
        with _open_named(name) as file:
            yield file
        return
    # None if the program was started without standard input.
    standard: BinaryIO | None = getattr(sys.stdin, "buffer", None)
    if standard is None:
        raise BadInput("there is no standard input to read; name a file instead")
    yield standard


def _open_named(name: str) -> BinaryIO:
    try:
        return open_regular(name, links=True)
    except FileNotFoundError:
        raise BadInput("there is no such file") from None
    except PermissionError:
        raise BadInput("no permission to read this file") from None
    except ValueError as error:
        raise BadInput(f"not a file name: {error}") from None
    except NotRegular as error:
        raise BadInput(_refusal(error.mode)) from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise BadInput("not a regular file") from None
        raise BadInput(f"cannot be opened: {error.strerror}") from None


def _refusal(mode: int) -> str:
    """Why something other than a regular file is not read."""
    if stat.S_ISDIR(mode):
        return "this is a folder, not a file"
    if stat.S_ISFIFO(mode):
        return "this is a pipe, not a regular file; give - to read standard input"
    return "this is a device, not a regular file"


def too_large_error(what: str, max_bytes: int) -> BadInput:
    """The error for input above the size limit."""
    return BadInput(
        f"{what}, but the limit is {size_text(max_bytes)}; "
        "raise it with --max-size on the command line, or max_bytes=… in Python"
    )


# --- without links -------------------------------------------------------------------------


class NotRegular(OSError):
    """A path is not a regular file; `mode` says what it is."""

    def __init__(self, mode: int) -> None:
        """Keep the mode of the opened path."""
        super().__init__(errno.EINVAL, "this is no regular file")
        self.mode = mode


def open_regular(
    name: str | bytes | os.PathLike[str], *, folder: int | None = None, links: bool = False
) -> BinaryIO:
    """Open a regular file for reading, relative to the open `folder` if there is one.

    Raises NotRegular for a pipe, device or folder, and OSError if the last component is a link,
    unless `links` is true.
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
    """Open a folder below a root, and yield its descriptor for use as `dir_fd`.

    Each folder on the path is opened relative to its parent and never through a link, so that a
    link swapped in meanwhile has no effect. The root itself may be a link. With `make`, missing
    folders are created. Raises OSError.
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
def replace_atomically(folder: int, name: str | bytes) -> Generator[bytes]:
    """Yield a temporary name in an open folder, and rename it to `name` at the end.

    The file `name` is replaced completely or not at all. Raises OSError.
    """
    temporary = os.fsencode(UNFINISHED + token_hex(8))
    try:
        yield temporary
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def write_file(
    folder: int, name: str | bytes, data: bytes, mode: int | None, *, default: int = 0o666
) -> None:
    """Write a file in an open folder with this mode, or with `default` less the umask if None."""
    with replace_atomically(folder, name) as temporary:
        number = os.open(temporary, _NEW, default if mode is None else 0o600, dir_fd=folder)
        with os.fdopen(number, "wb") as file:
            if mode is not None:
                os.fchmod(number, mode)
            file.write(data)


# --- readable errors for malformed JSON ----------------------------------------------------


def encoding_error(data: bytes) -> BadInput | None:
    """The error for bytes that are not UTF-8, which a parser reports as bad JSON; else None."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return BadInput("not UTF-8 text", location=f"line {line}, byte {error.start}")
    return None


def explain_json_error(error: BadInput) -> BadInput:
    """The same error, with the JSON parser's message in plain words."""
    cause, location = error.cause, error.location
    if cause == "Input data was truncated":
        return BadInput("the JSON ends too early; the file is incomplete", location=location)
    if cause.startswith(_MALFORMED):
        return BadInput(_malformed(cause.removeprefix(_MALFORMED)), location=location)
    if unknown := _UNEXPECTED.fullmatch(cause):
        return BadInput(f"the value {unknown[1]} is not known here", location=location)
    if missing := _MISSING.fullmatch(cause):
        cause = f"the field '{missing[1]}' is missing"
    elif mistyped := _MISTYPED.fullmatch(cause):
        cause = f"expected {_type_name(mistyped[1])}, got {_type_name(mistyped[2])}"
    else:
        return error
    return BadInput(cause, location=location)


def _malformed(problem: str) -> str:
    if problem.startswith("trailing characters"):
        return "there is more data after the first JSON value; a transcript is one object"
    return f"not valid JSON: {problem}"


def _type_name(names: str) -> str:
    return _TYPES.get(names) or " or ".join(_TYPES.get(one, one) for one in names.split(" | "))
