"""What is Foldmark's own and lies in a working folder: stores of sessions, homes of snapshots.

To take such a thing back to an earlier moment would be to lose what was said or kept since. It is
known by what is in it, whoever made it.
"""

import os
import stat

from foldmark.store.sqlite import BESIDE, MAGIC, OURS

from .git import HEAD

_OURS = OURS.to_bytes(4, "big")
_ID = slice(68, 72)
_HEAD, _SECTOR = 100, 512  # bytes; the size of a database is a multiple of the latter
_LOG_HEAD, _FRAME_HEAD = 32, 24  # bytes, of a write-ahead log and of each page in it
_LOG = 2**18  # bytes of a log that are looked at: a new store says in its first pages what it is
_BESIDE = tuple(map(os.fsencode, BESIDE))
_HOME_HEAD = HEAD.encode()
HOME_MARK = b"/git/HEAD"  # where a home of snapshots says what it is


def is_store(place: bytes) -> bool:
    """Whether a file is a store of sessions, or lies beside one as a part of it."""
    for end in _BESIDE:
        if place.endswith(end) and is_store(place.removesuffix(end)):
            return True
    try:
        status = os.lstat(place)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode) or not status.st_size or status.st_size % _SECTOR:
        return False
    head = _opening(place, _HEAD)
    if not head.startswith(MAGIC):
        return False
    return head[_ID] == _OURS or (not any(head[_ID]) and _log_says(_opening(place + b"-wal", _LOG)))


def is_store_data(data: bytes) -> bool:
    """Whether these are the bytes of a store."""
    return data.startswith(MAGIC) and data[_ID] == _OURS


def is_home_mark(place: bytes) -> bool:
    """Whether a file says that the folder two above it is a home of snapshots."""
    return _opening(place, len(_HOME_HEAD) + 1) == _HOME_HEAD


def _log_says(log: bytes) -> bool:
    """Whether the first page, as it is in the log of a store that was never tidied, is ours."""
    page = int.from_bytes(log[8:12], "big")
    if page < _SECTOR:
        return False
    for start in range(_LOG_HEAD, len(log) - _HEAD, _FRAME_HEAD + page):
        if log[start : start + 4] != b"\0\0\0\1":
            continue
        head = start + _FRAME_HEAD
        if is_store_data(log[head : head + _HEAD]):
            return True
    return False


def _opening(place: bytes, size: int) -> bytes:
    """The first bytes of a file; none where it is no plain file, or cannot be read."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        number = os.open(place, flags | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return b""
    try:
        return os.read(number, size) if stat.S_ISREG(os.fstat(number).st_mode) else b""
    except OSError:
        return b""
    finally:
        os.close(number)
