"""What a snapshot must look at: files that changed, and which of them are to be remembered.

Ignored files, large new ones and what was named to be left out are not; nor are Foldmark's own, and
what git cannot hold. Files that tools wrote are, whatever they are. Nothing is written here.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from foldmark.store.sqlite import BESIDE

from .stores import HOME_MARK, is_home_mark, is_store

_SPECIAL = b"\\*?[!# "
_BESIDE = (b"", *map(os.fsencode, BESIDE))  # the files of one database


class Found(NamedTuple):
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
        left = {place + more for place in places for more in _BESIDE}
        if not left <= self._left:
            self._left |= left
            self.growth += 1

    def leave_homes(self, paths: Iterable[bytes]) -> None:
        """Leave out the homes of snapshots of which these paths are a part."""
        marks = (path for path in paths if path.endswith(HOME_MARK) and self.may_hold(path))
        homes = (mark for mark in marks if is_home_mark(self._folder + b"/" + mark))
        self._leave([home.removesuffix(HOME_MARK) for home in homes])

    def refused(self, paths: Iterable[bytes]) -> list[bytes]:
        """Those that must not be held, of files that are."""
        paths = list(paths)
        self.leave_homes(paths)
        return [path for path in paths if not self.may_hold(path) or self.is_store(path)]

    def is_store(self, path: bytes) -> bool:
        """Whether a path is, or belongs to, a store of sessions."""
        return is_store(self._folder + b"/" + path)

    def options(self) -> tuple[str, ...]:
        """How a scan is told of what is left out, so that it need not look there."""
        patterns = sorted(b"--exclude=/" + _escaped(place) for place in self._left)
        own = self.excluding
        excluded = (f"--exclude-from={own}",) if os.path.isfile(own) else ()  # noqa: PTH113
        return (*(os.fsdecode(pattern) for pattern in patterns), *excluded)

    @property
    def excluding(self) -> str:
        """The file in which the project tells what is ignored here alone, if it is there."""
        return os.fsdecode(self._folder) + "/.git/info/exclude"

    def may_hold(self, path: bytes) -> bool:
        """Whether a file of this name may be remembered at all."""
        parts = path.rstrip(b"/").split(b"/")
        if any(part.lower() == b".git" or part in {b"", b".", b".."} for part in parts):
            return False
        if not self._left:
            return True
        return all(b"/".join(parts[: n + 1]) not in self._left for n in range(len(parts)))

    def found(self, listed: bytes, included: frozenset[bytes] | set[bytes]) -> Found:
        """What a scan listed, sorted out."""
        found = Found([], [], [], [])
        folders: dict[bytes, bool] = {b"": True}
        tracked = {line[2:]: not line.startswith(b"? ") for line in listed.split(b"\0") if line}
        self.leave_homes(tracked)
        for path, known in tracked.items():
            if not self.may_hold(path):
                if known:
                    found.gone.append(path)
            elif path.endswith(b"/"):
                found.nested.append(path)
            else:
                self._sort(path, found, known=known, wanted=path in included, folders=folders)
        return found

    def _sort(
        self,
        path: bytes,
        found: Found,
        *,
        known: bool,
        wanted: bool,
        folders: dict[bytes, bool],
    ) -> None:
        if known and not self._is_folder(path.rpartition(b"/")[0], folders):
            found.gone.append(path)  # it would be reached through a link
            return
        try:
            status = os.lstat(self._folder + b"/" + path)
        except (FileNotFoundError, NotADirectoryError):
            found.put.append(path)
            found.missing.append(path)
            return
        except OSError:  # a folder that must not be read any more: nothing is known of it
            return
        if not self._can_hold(path, status):
            if known:
                found.gone.append(path)
        elif self._is_readable(path, status) and (
            known or wanted or status.st_size <= self.most_bytes
        ):
            found.put.append(path)

    def there(self, path: bytes) -> bool:
        """Whether a file that can be remembered is there, and not through a link."""
        status = self.status(path)
        return (
            status is not None
            and self._can_hold(path, status)
            and self._is_readable(path, status)
            and self._is_folder(path.rpartition(b"/")[0], {b"": True})
        )

    def is_holdable(self, path: bytes, status: os.stat_result) -> bool:
        """Whether a new file like this is remembered, if nothing ignores it."""
        return (
            status.st_size <= self.most_bytes
            and self._can_hold(path, status)
            and self._is_readable(path, status)
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
