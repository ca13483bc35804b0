"""A file inside a folder, opened so that no link leads out of it.

Each folder on the way is opened from the one before, and links are refused: whoever swaps one in
while we look changes nothing, as what is read is what was opened. The folder itself may be a link;
it is what was pointed at. What is in the file is told elsewhere.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from foldmark.errors import BadInput

_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
# Opening a pipe waits for its other end; O_NONBLOCK makes it return, to be refused.
_FILE = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CAN_WALK = bool(_NO_LINK) and os.open in os.supports_dir_fd


@contextmanager
def opened_within(folder: Path, path: Path) -> Generator[BinaryIO]:
    """A regular file of a folder; BadInput where it is none, or a link is on the way."""
    try:
        number = _walked(folder, path) if _CAN_WALK else _compared(folder, path)
    except (OSError, ValueError) as error:
        cause = error.strerror if isinstance(error, OSError) else None
        raise BadInput(f"cannot be read: {cause or error}") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BadInput("cannot be read: not a regular file")
    with os.fdopen(number, "rb") as file:
        yield file


def _walked(folder: Path, path: Path) -> int:
    *folders, name = _names(folder, path)
    at = os.open(folder, _FOLDER)
    try:
        for part in folders:
            before, at = at, os.open(part, _FOLDER | _NO_LINK, dir_fd=at)
            os.close(before)
        return os.open(name, _FILE, dir_fd=at)
    finally:
        os.close(at)


def _names(folder: Path, path: Path) -> tuple[str, ...]:
    names = path.relative_to(folder).parts
    if not names or os.pardir in names:
        raise ValueError("not a file of this folder")
    return names


def _compared(folder: Path, path: Path) -> int:
    """Where a system has no such way: what was opened must be what lies at a path without links."""
    real = folder.resolve().joinpath(*_names(folder, path))
    number = os.open(path, _FILE)
    try:
        if real.resolve() != real or not os.path.samestat(os.fstat(number), real.lstat()):
            raise ValueError("a link is on the way")  # noqa: TRY301 - the file is closed below
    except BaseException:
        os.close(number)
        raise
    return number
