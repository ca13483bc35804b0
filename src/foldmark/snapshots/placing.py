"""Files written and deleted below one folder, and nowhere else.

Every folder on the way is opened by itself and never through a link. A file is written beside its
place and then put there, so that it is whole at any moment.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from .git import UNFINISHED
from .reading import EXECUTABLE, LINK

# A system without these can import this, but restores nothing: the first call fails.
_UNLINKED: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _UNLINKED
_NEW: int = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _UNLINKED


def place_file(folder: Path, path: bytes, mode: str, data: bytes) -> None:
    """Put a file or a link in its place; OSError where something stands there that is not ours."""
    with _opened(folder, path.rpartition(b"/")[0], make=True) as parent:
        name = path.rpartition(b"/")[2]
        between = os.fsencode(UNFINISHED + token_hex(8))
        try:
            if mode == LINK:
                os.symlink(data, between, dir_fd=parent)
            else:
                _write(parent, between, data, mode, _permissions(parent, name, mode))
            _put(parent, between, name)
        except BaseException:
            with suppress(OSError):
                os.unlink(between, dir_fd=parent)
            raise


def _permissions(parent: int, name: bytes, mode: str) -> int | None:
    """The permissions of the file that is replaced, but for who may run it; None for a new one."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    kept = stat.S_IMODE(status.st_mode) & 0o666
    return kept | (kept & 0o444) >> 2 if mode == EXECUTABLE else kept


def _write(parent: int, name: bytes, data: bytes, mode: str, permissions: int | None) -> None:
    usual = 0o777 if mode == EXECUTABLE else 0o666  # less what the umask takes
    number = os.open(name, _NEW, usual if permissions is None else 0o600, dir_fd=parent)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        if permissions is not None:
            os.fchmod(number, permissions)


def _put(parent: int, between: bytes, name: bytes) -> None:
    try:
        os.rename(between, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError:
        _remove_empty(parent, name)
        os.rename(between, name, src_dir_fd=parent, dst_dir_fd=parent)


def _remove_empty(parent: int, name: bytes) -> None:
    """Remove a folder that holds nothing but such folders; the rest of it stays."""
    number = os.open(name, _FOLDER, dir_fd=parent)
    try:
        for inner in os.listdir(number):  # noqa: PTH208 - of a folder that is open
            with suppress(OSError):
                _remove_empty(number, os.fsencode(inner))
    finally:
        os.close(number)
    os.rmdir(name, dir_fd=parent)


def delete_file(folder: Path, path: bytes) -> None:
    """Delete a file or a link."""
    with _opened(folder, path.rpartition(b"/")[0]) as parent:
        os.unlink(path.rpartition(b"/")[2], dir_fd=parent)


def remove_empty_folders(folder: Path, path: bytes) -> None:
    """Remove the folders above a path that are empty now, but never the first of them."""
    above = path.rpartition(b"/")[0]
    with suppress(OSError):
        while above:
            with _opened(folder, above.rpartition(b"/")[0]) as parent:
                os.rmdir(above.rpartition(b"/")[2], dir_fd=parent)
            above = above.rpartition(b"/")[0]


@contextmanager
def _opened(folder: Path, path: bytes, *, make: bool = False) -> Generator[int]:
    number = os.open(folder, _FOLDER)
    try:
        for name in path.split(b"/") if path else ():
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=number)
            inner = os.open(name, _FOLDER, dir_fd=number)
            os.close(number)
            number = inner
        yield number
    finally:
        os.close(number)
