"""Which of the files that git reports as changed are tracked.

Ignored, large new and excluded files are not, nor what git cannot store, nor Foldmark's own files:
restoring a session store or a snapshot home would lose everything written since. Files that tools
wrote are always tracked; their names are in a file to which each process appends.
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
from foldmark.store.sqlite import APPLICATION_ID, COMPANION_SUFFIXES, MAGIC

from .git import nul_terminated

MAX_BYTES = 2 * 2**20  # limit for a new file, and for a text in a diff
_PATTERN_CHARACTERS = re.compile(rb"[\\*?[!# ]")  # special characters of ignore patterns
_SUFFIXES = tuple(map(os.fsencode, COMPANION_SUFFIXES))
_NEW, _EXISTING = b"-", b"+"  # prefix of a listed path: did the file exist?
# A session store, recognized by its first bytes.
_APPLICATION_ID = APPLICATION_ID.to_bytes(4, "big")
_APPLICATION_ID_BYTES = slice(68, 72)
_SECTOR = 512  # bytes; a database's size is a multiple
Kind = Literal["file", "large", "missing", "other", "unknown"]  # other: git cannot store it


class ScanResult(NamedTuple):
    """Paths relative to the folder, by what to do with them."""

    update: list[bytes]
    remove: list[bytes]  # to remove from the index, though something may exist
    missing: list[bytes]  # those of `update` that no longer exist
    nested: list[bytes]  # repositories inside the folder, with a trailing slash


class Rules:
    """Which files of a folder are tracked."""

    def __init__(self, folder: Path, exclude: Iterable[Path]) -> None:
        """Use the folder's real path and the paths to exclude."""
        self.folder = folder
        self.max_bytes = MAX_BYTES
        self._folder = os.fsencode(folder)
        self._excluded_paths: set[Path] = set()
        self._excluded: set[bytes] = set()
        self.revision = 0  # incremented when more is excluded
        self.exclude(exclude)

    def exclude(self, paths: Iterable[Path]) -> None:
        """Exclude more paths: folders, or files with their companion database files."""
        new = set(paths) - self._excluded_paths
        self._excluded_paths |= new
        locations = (location for path in new if (location := relative_path(self.folder, path)))
        excluded = {location + suffix for location in locations for suffix in (b"", *_SUFFIXES)}
        if not excluded <= self._excluded:
            self._excluded |= excluded
            self.revision += 1

    def is_store(self, path: bytes) -> bool:
        """Whether a file is a session store or one of its companion files."""
        for suffix in _SUFFIXES:
            if path.endswith(suffix) and self.is_store(path.removesuffix(suffix)):
                return True
        location = self._folder + b"/" + path
        try:
            if os.lstat(location).st_size % _SECTOR:
                return False
            with open_regular(location) as file:
                return is_store_data(file.read(_APPLICATION_ID_BYTES.stop))
        except OSError:
            return False

    def options(self) -> tuple[str, ...]:
        """The scan options that exclude paths, so that git does not look there."""
        exact = (_PATTERN_CHARACTERS.sub(rb"\\\g<0>", path) for path in self._excluded)
        patterns = sorted(b"--exclude=/" + path for path in exact)
        exclude_file = os.fsdecode(self._folder) + "/.git/info/exclude"  # of the project
        from_file = (f"--exclude-from={exclude_file}",) if os.path.isfile(exclude_file) else ()  # noqa: PTH113
        return (*(os.fsdecode(pattern) for pattern in patterns), *from_file)

    def may_track(self, path: bytes) -> bool:
        """Whether a path may be tracked at all."""
        parts = path.rstrip(b"/").split(b"/")
        if any(part.lower() == b".git" or part in {b"", b".", b".."} for part in parts):
            return False
        return all(b"/".join(parts[: n + 1]) not in self._excluded for n in range(len(parts)))

    def classify(self, listing: bytes, included: set[bytes]) -> ScanResult:
        """Sort the paths of a scan by what to do with them."""
        result = ScanResult([], [], [], [])
        folders: dict[bytes, bool] = {b"": True}
        entries = {line[2:]: not line.startswith(b"? ") for line in listing.split(b"\0") if line}
        for path, is_tracked in entries.items():
            allowed = self.may_track(path)
            if allowed and path.endswith(b"/"):
                result.nested.append(path)
                continue
            kind = self.kind(path, folders) if allowed else "other"
            if kind == "missing":
                result.missing.append(path)
            is_large = kind == "large" and (is_tracked or path in included)
            if is_large or kind in ("file", "missing"):
                result.update.append(path)
            elif kind == "other" and is_tracked:
                result.remove.append(path)
        return result

    def is_present(self, path: bytes) -> bool:
        """Whether a trackable file exists, not reached through a link."""
        return self.kind(path) in ("file", "large")

    def kind(self, path: bytes, folders: dict[bytes, bool] | None = None) -> Kind:
        """The kind of what is at a path; `unknown` if it cannot be read."""
        known_folders = {b"": True} if folders is None else folders
        if not self._is_folder(path.rpartition(b"/")[0], known_folders):
            return "other"  # reached through a link
        location = self._folder + b"/" + path
        try:
            status = os.lstat(location)
        except OSError as error:
            remove = isinstance(error, FileNotFoundError | NotADirectoryError)
            return "missing" if remove else "unknown"
        if stat.S_ISLNK(status.st_mode):  # git refuses a link of this name
            return "other" if path.rpartition(b"/")[2].lower() == b".gitmodules" else "file"
        if not stat.S_ISREG(status.st_mode) or self.is_store(path):
            return "other"
        if not os.access(location, os.R_OK):
            return "unknown"
        return "large" if status.st_size > self.max_bytes else "file"

    def status(self, path: bytes) -> os.stat_result | None:
        """The status of a path without following links, or None."""
        try:
            return os.lstat(self._folder + b"/" + path)
        except OSError:
            return None

    def _is_folder(self, path: bytes, folders: dict[bytes, bool]) -> bool:
        """Whether no link leads to a path; also true if it does not exist."""
        if path not in folders:
            status = self.status(path)
            is_real = status is None or not stat.S_ISLNK(status.st_mode)
            folders[path] = is_real and self._is_folder(path.rpartition(b"/")[0], folders)
        return folders[path]


# --- files that tools wrote ---


class IncludeList:
    """The files of one folder that are always tracked."""

    def __init__(self, home: Path, rules: Rules) -> None:
        """Use the list in this folder and the tracking rules."""
        self._list = home / "included"
        self._rules = rules
        self._size = 0
        self.paths: set[bytes] = set()
        self.new_paths: set[bytes] = set()  # those that did not exist when they were included

    def read(self) -> None:
        """Read what other processes have included."""
        with suppress(OSError):
            size = self._list.stat().st_size
            if size != self._size:
                names = self._list.read_bytes().rpartition(b"\0")[0].split(b"\0")
                tracked = [name for name in names if self._rules.may_track(name[1:])]
                self.paths = {name[1:] for name in tracked}
                self.new_paths = {name[1:] for name in tracked if name.startswith(_NEW)}
                self._size = size

    def add(self, paths: set[bytes]) -> None:
        """Include files, and record which of them do not exist yet."""
        new = sorted(path for path in paths if self._rules.may_track(path))
        if not new:
            return
        new_paths = {path for path in new if self._rules.status(path) is None}
        # A leading NUL: a process may have been killed while writing a name.
        lines = (_NEW + path if path in new_paths else _EXISTING + path for path in new)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            with os.fdopen(os.open(self._list, flags, 0o600), "ab") as file:
                file.write(b"\0" + nul_terminated(lines))
        except OSError as error:
            raise StoreError(str(self._list), f"cannot be written: {error.strerror}") from None
        self.read()


def relative_path(folder: Path, path: str | Path) -> bytes | None:
    """The path relative to the folder with its links resolved, or None if it is outside."""
    try:
        absolute = Path(os.path.normpath(folder / path))
        real = Path(os.path.realpath(absolute.parent)) / absolute.name
        relative = os.fsencode(real.relative_to(folder))
    except (ValueError, OSError):
        return None
    return None if relative == b"." or b"\0" in relative else relative


def is_store_data(data: bytes) -> bool:
    """Whether these are the first bytes of a session store."""
    return data.startswith(MAGIC) and data[_APPLICATION_ID_BYTES] == _APPLICATION_ID
