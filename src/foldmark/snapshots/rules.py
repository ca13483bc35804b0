"""Which files are remembered, of those that git finds to have changed.

Ignored files, large new ones and what was named to be left out are not; nor is what git cannot
hold, and what is Foldmark's own: to take a store of sessions or a home of snapshots back to an
earlier moment would be to lose what was kept since. Files that tools wrote are remembered in any
case; their names are kept in a file beside the snapshots, to which each process appends.
"""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from foldmark.errors import StoreError
from foldmark.files import open_regular
from foldmark.store.sqlite import BESIDE, MAGIC, OURS

from .git import HEAD, zero_ended

_SPECIAL = b"\\*?[!# "
_BESIDE = tuple(map(os.fsencode, BESIDE))  # how the names of a database's other files end
_HOME_MARK = b"/git/HEAD"  # where a home of snapshots says what it is
_BORN, _FOUND = b"-", b"+"  # before the name of a file: it was not there, or was
# A store of sessions, by its first bytes and those of its write-ahead log.
_OURS = OURS.to_bytes(4, "big")
_ID = slice(68, 72)
_HEAD, _SECTOR = 100, 512  # bytes; the size of a database is a multiple of the latter
_LOG_HEAD, _FRAME_HEAD = 32, 24  # bytes, of a write-ahead log and of each page in it
_LOG = 2**18  # bytes of a log that are looked at: a new store says in its first pages what it is


class ScanResult(NamedTuple):
    """Paths from the folder on, by what is to be done with them."""

    put: list[bytes]
    gone: list[bytes]  # to be forgotten, though something may be there
    missing: list[bytes]  # of `put`, those that are not there any more
    nested: list[bytes]  # repositories inside the folder, ended by a slash


class Rules:
    """Which files of a folder are remembered."""

    def __init__(self, folder: Path, most_bytes: int, leave_out: Iterable[Path]) -> None:
        """Take the folder by its real path, and what is left out in any case."""
        self.folder = folder
        self.most_bytes = most_bytes
        self._folder = os.fsencode(folder)
        self._told: set[Path] = set()
        self._left: set[bytes] = set()
        self.growth = 0  # how often there came more of what is left out
        self.leave_out(leave_out)

    def leave_out(self, paths: Iterable[Path]) -> None:
        """Leave these out, too: folders, or files with those of their database beside them."""
        new = set(paths) - self._told
        if new:
            self._told |= new
            self._leave(place for path in new if (place := within(self.folder, path)))

    def _leave(self, places: Iterable[bytes]) -> None:
        left = {place + more for place in places for more in (b"", *_BESIDE)}
        if not left <= self._left:
            self._left |= left
            self.growth += 1

    def _leave_homes(self, paths: Iterable[bytes]) -> None:
        """Leave out the homes of snapshots of which these paths are a part."""
        marks = (path for path in paths if path.endswith(_HOME_MARK) and self.may_hold(path))
        homes = (mark for mark in marks if _is_home_mark(self._folder + b"/" + mark))
        self._leave([home.removesuffix(_HOME_MARK) for home in homes])

    def refused(self, paths: Iterable[bytes]) -> list[bytes]:
        """Those that must not be held, of files that are."""
        paths = list(paths)
        self._leave_homes(paths)
        return [path for path in paths if not self.may_hold(path)]

    def is_store(self, path: bytes) -> bool:
        """Whether a path is, or belongs to, a store of sessions."""
        return is_store(self._folder + b"/" + path)

    def options(self) -> tuple[str, ...]:
        """How a scan is told of what is left out, so that it need not look there."""
        patterns = sorted(b"--exclude=/" + _escaped(place) for place in self._left)
        own = os.fsdecode(self._folder) + "/.git/info/exclude"  # what the project ignores here
        excluded = (f"--exclude-from={own}",) if os.path.isfile(own) else ()  # noqa: PTH113
        return (*(os.fsdecode(pattern) for pattern in patterns), *excluded)

    def may_hold(self, path: bytes) -> bool:
        """Whether a file of this name may be remembered at all."""
        parts = path.rstrip(b"/").split(b"/")
        if any(part.lower() == b".git" or part in {b"", b".", b".."} for part in parts):
            return False
        if not self._left:
            return True
        return all(b"/".join(parts[: n + 1]) not in self._left for n in range(len(parts)))

    def sort(self, listed: bytes, included: set[bytes]) -> ScanResult:
        """What a scan listed, by what is to be done with it."""
        result = ScanResult([], [], [], [])
        folders: dict[bytes, bool] = {b"": True}
        tracked = {line[2:]: not line.startswith(b"? ") for line in listed.split(b"\0") if line}
        self._leave_homes(tracked)
        for path, known in tracked.items():
            if not self.may_hold(path):
                if known:
                    result.gone.append(path)
            elif path.endswith(b"/"):
                result.nested.append(path)
            elif known and not self._is_folder(path.rpartition(b"/")[0], folders):
                result.gone.append(path)  # it would be reached through a link
            else:
                self._sort_file(path, result, known=known, wanted=path in included)
        return result

    def _sort_file(self, path: bytes, result: ScanResult, *, known: bool, wanted: bool) -> None:
        try:
            status = os.lstat(self._folder + b"/" + path)
        except (FileNotFoundError, NotADirectoryError):
            result.put.append(path)
            result.missing.append(path)
            return
        except OSError:  # a folder that must not be read any more: nothing is known of it
            return
        if not self._can_hold(path, status):
            if known:
                result.gone.append(path)
        elif self._is_readable(path, status) and (
            known or wanted or status.st_size <= self.most_bytes
        ):
            result.put.append(path)

    def there(self, path: bytes) -> bool:
        """Whether a file that can be remembered is there, and not through a link."""
        status = self.status(path)
        return (
            status is not None
            and self._can_hold(path, status)
            and self._is_readable(path, status)
            and self._is_folder(path.rpartition(b"/")[0], {b"": True})
        )

    def _can_hold(self, path: bytes, status: os.stat_result) -> bool:
        if stat.S_ISLNK(status.st_mode):
            return path.rpartition(b"/")[2].lower() != b".gitmodules"  # git refuses such a link
        return stat.S_ISREG(status.st_mode) and not self.is_store(path)

    def status(self, path: bytes) -> os.stat_result | None:
        """What stands at a path; links are not followed."""
        try:
            return os.lstat(self._folder + b"/" + path)
        except OSError:
            return None

    def _is_readable(self, path: bytes, status: os.stat_result) -> bool:
        return stat.S_ISLNK(status.st_mode) or os.access(self._folder + b"/" + path, os.R_OK)

    def _is_folder(self, path: bytes, known: dict[bytes, bool]) -> bool:
        """Whether no link leads to a path; true where nothing is there any more."""
        if path not in known:
            status = self.status(path)
            solid = status is None or not stat.S_ISLNK(status.st_mode)
            known[path] = solid and self._is_folder(path.rpartition(b"/")[0], known)
        return known[path]


# --- files that tools wrote ---


class Included:
    """The files of one folder that are to be remembered in any case."""

    def __init__(self, home: Path, rules: Rules) -> None:
        """Take where the names are kept, and which may be held at all."""
        self._list = home / "included"
        self._rules = rules
        self._size = 0
        self.paths: set[bytes] = set()
        self.born: set[bytes] = set()  # of these, what was not there when it was included

    def read(self) -> None:
        """Learn what other processes include."""
        with suppress(OSError):
            size = self._list.stat().st_size
            if size != self._size:
                names = self._list.read_bytes().rpartition(b"\0")[0].split(b"\0")
                held = [name for name in names if self._rules.may_hold(name[1:])]
                self.paths = {name[1:] for name in held}
                self.born = {name[1:] for name in held if name.startswith(_BORN)}
                self._size = size

    def add(self, places: set[bytes]) -> None:
        """Include files, and note which of them are not there yet."""
        new = sorted(place for place in places if self._rules.may_hold(place))
        if not new:
            return
        born = {place for place in new if self._rules.status(place) is None}
        # A zero before it, too: a process may have been killed within a name.
        marked = (_BORN + place if place in born else _FOUND + place for place in new)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            with os.fdopen(os.open(self._list, flags, 0o600), "ab") as file:
                file.write(b"\0" + zero_ended(marked))
        except OSError as error:
            raise StoreError(str(self._list), f"cannot be written: {error.strerror}") from None
        self.read()


def _escaped(path: bytes) -> bytes:
    """A path as a pattern that matches it alone."""
    return b"".join(b"\\" + bytes([c]) if c in _SPECIAL else bytes([c]) for c in path)


def within(folder: Path, path: str | Path) -> bytes | None:
    """A path from the folder on, links on the way to it resolved; None where it is outside."""
    try:
        whole = Path(os.path.normpath(folder / path))
        real = Path(os.path.realpath(whole.parent)) / whole.name
        place = os.fsencode(real.relative_to(folder))
    except (ValueError, OSError):
        return None
    return None if place == b"." or b"\0" in place else place


# --- what is Foldmark's own ---


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


def _is_home_mark(place: bytes) -> bool:
    """Whether a file says that the folder two above it is a home of snapshots."""
    return _opening(place, len(HEAD) + 1) == HEAD.encode()


def _log_says(log: bytes) -> bool:
    """Whether the first page, as it is in the log of a store that was never tidied, is ours."""
    page = int.from_bytes(log[8:12], "big")
    if page < _SECTOR:
        return False
    frames = range(_LOG_HEAD, len(log) - _HEAD, _FRAME_HEAD + page)
    firsts = (start + _FRAME_HEAD for start in frames if log[start : start + 4] == b"\0\0\0\1")
    return any(is_store_data(log[start : start + _HEAD]) for start in firsts)


def _opening(place: bytes, size: int) -> bytes:
    """The first bytes of a file; none where it is no plain file, or cannot be read."""
    try:
        with open_regular(place) as file:
            return file.read(size)
    except OSError:
        return b""
