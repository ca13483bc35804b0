"""Which files are remembered, of those that git finds to have changed.

Ignored files, large new ones and what was named to be left out are not; nor is what git cannot
hold, and what is Foldmark's own: to take a store of sessions or a home of snapshots back to an
earlier moment would be to lose what was kept since. Files that tools wrote are remembered in any
case; their names are kept in a file beside the snapshots, to which each process appends.
"""

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from foldmark.errors import StoreError
from foldmark.files import open_regular
from foldmark.store.sqlite import BESIDE, MAGIC, OURS

from .git import zero_ended

MOST_BYTES = 2 * 2**20  # of a new file that is remembered, and of a text that a diff shows
_SPECIAL = re.compile(rb"[\\*?[!# ]")  # in patterns of what is ignored
_BESIDE = tuple(map(os.fsencode, BESIDE))  # how the names of a database's other files end
_BORN, _FOUND = b"-", b"+"  # before the name of a file: it was not there, or was
# A store of sessions, by its first bytes.
_OURS = OURS.to_bytes(4, "big")
_ID = slice(68, 72)
_SECTOR = 512  # bytes; the size of a database is a multiple of it
Kind = Literal["file", "large", "missing", "other", "unknown"]  # other: git cannot hold it


class ScanResult(NamedTuple):
    """Paths from the folder on, by what is to be done with them."""

    put: list[bytes]
    gone: list[bytes]  # to be forgotten, though something may be there
    missing: list[bytes]  # of `put`, those that are not there any more
    nested: list[bytes]  # repositories inside the folder, ended by a slash


class Rules:
    """Which files of a folder are remembered."""

    def __init__(self, folder: Path, leave_out: Iterable[Path]) -> None:
        """Take the folder by its real path, and what is left out in any case."""
        self.folder = folder
        self.most_bytes = MOST_BYTES
        self._folder = os.fsencode(folder)
        self._told: set[Path] = set()
        self._left: set[bytes] = set()
        self.growth = 0  # how often there came more of what is left out
        self.leave_out(leave_out)

    def leave_out(self, paths: Iterable[Path]) -> None:
        """Leave these out, too: folders, or files with those of their database beside them."""
        new = set(paths) - self._told
        self._told |= new
        places = (place for path in new if (place := within(self.folder, path)))
        left = {place + more for place in places for more in (b"", *_BESIDE)}
        if not left <= self._left:
            self._left |= left
            self.growth += 1

    def is_store(self, path: bytes) -> bool:
        """Whether a file is a store of sessions, or lies beside one as a part of it."""
        for end in _BESIDE:
            if path.endswith(end) and self.is_store(path.removesuffix(end)):
                return True
        place = self._folder + b"/" + path
        try:
            if os.lstat(place).st_size % _SECTOR:
                return False
            with open_regular(place) as file:
                return is_store_data(file.read(_ID.stop))
        except OSError:
            return False

    def options(self) -> tuple[str, ...]:
        """How a scan is told of what is left out, so that it need not look there."""
        exact = (_SPECIAL.sub(rb"\\\g<0>", place) for place in self._left)
        patterns = sorted(b"--exclude=/" + place for place in exact)
        own = os.fsdecode(self._folder) + "/.git/info/exclude"  # what the project ignores here
        excluded = (f"--exclude-from={own}",) if os.path.isfile(own) else ()  # noqa: PTH113
        return (*(os.fsdecode(pattern) for pattern in patterns), *excluded)

    def may_hold(self, path: bytes) -> bool:
        """Whether a file of this name may be remembered at all."""
        parts = path.rstrip(b"/").split(b"/")
        if any(part.lower() == b".git" or part in {b"", b".", b".."} for part in parts):
            return False
        return all(b"/".join(parts[: n + 1]) not in self._left for n in range(len(parts)))

    def sort(self, listed: bytes, included: set[bytes]) -> ScanResult:
        """What a scan listed, by what is to be done with it."""
        result = ScanResult([], [], [], [])
        folders: dict[bytes, bool] = {b"": True}
        tracked = {line[2:]: not line.startswith(b"? ") for line in listed.split(b"\0") if line}
        for path, known in tracked.items():
            allowed = self.may_hold(path)
            if allowed and path.endswith(b"/"):
                result.nested.append(path)
                continue
            kind = self.kind(path, folders) if allowed else "other"
            if kind == "missing":
                result.missing.append(path)
            if kind in ("file", "missing") or (kind == "large" and (known or path in included)):
                result.put.append(path)
            elif kind == "other" and known:
                result.gone.append(path)
        return result

    def there(self, path: bytes) -> bool:
        """Whether a file that can be remembered is there, and not through a link."""
        return self.kind(path) in ("file", "large")

    def kind(self, path: bytes, folders: dict[bytes, bool] | None = None) -> Kind:
        """What stands at a path; of what may not be read, nothing is known."""
        known = {b"": True} if folders is None else folders
        if not self._is_folder(path.rpartition(b"/")[0], known):
            return "other"  # it would be reached through a link
        place = self._folder + b"/" + path
        try:
            status = os.lstat(place)
        except OSError as error:
            gone = isinstance(error, FileNotFoundError | NotADirectoryError)
            return "missing" if gone else "unknown"
        if stat.S_ISLNK(status.st_mode):  # git refuses one of this name
            return "other" if path.rpartition(b"/")[2].lower() == b".gitmodules" else "file"
        if not stat.S_ISREG(status.st_mode) or self.is_store(path):
            return "other"
        if not os.access(place, os.R_OK):
            return "unknown"
        return "large" if status.st_size > self.most_bytes else "file"

    def status(self, path: bytes) -> os.stat_result | None:
        """What stands at a path; links are not followed."""
        try:
            return os.lstat(self._folder + b"/" + path)
        except OSError:
            return None

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


def within(folder: Path, path: str | Path) -> bytes | None:
    """A path from the folder on, links on the way to it resolved; None where it is outside."""
    try:
        whole = Path(os.path.normpath(folder / path))
        real = Path(os.path.realpath(whole.parent)) / whole.name
        place = os.fsencode(real.relative_to(folder))
    except (ValueError, OSError):
        return None
    return None if place == b"." or b"\0" in place else place


def is_store_data(data: bytes) -> bool:
    """Whether these are the first bytes of a store of sessions."""
    return data.startswith(MAGIC) and data[_ID] == _OURS
