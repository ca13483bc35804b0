"""What a folder looked like, so that the next look at it needs no process.

It tells which known files changed or are gone. A name that is new, a change of what is ignored,
or anything else that is odd, it leaves to a scan by git. A file that was changed at the moment of
a look may change again without a sign: it is read again. What is in files is told elsewhere.
"""

import os
import time
from collections.abc import Iterable
from operator import attrgetter
from typing import Literal, NamedTuple

from .scanning import Rules

Signature = tuple[int, int, int, int, int]
# Of an untracked name: a folder that is looked into, one that is not, a file that is ignored, and
# one that is not held for what it is, and would be if it were otherwise.
Kind = Literal["open", "shut", "ignored", "unfit"]
RULES = b".gitignore"
_NEAR = 25_000_000  # nanoseconds within which a file may change twice and show one time
_COARSE, _NEAR_COARSE = 10_000_000, 2_500_000_000  # where a disk keeps no finer times than these
_TIMES = slice(2, 4)
signature_of = attrgetter("st_mode", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")


def is_settled(signature: Signature, moment: int) -> bool:
    """Whether a file with such times was the same for a while before a moment."""
    modified, changed = signature[_TIMES]
    near = _NEAR if changed % _COARSE else _NEAR_COARSE
    return max(modified, changed) < moment - near


def signed(place: bytes) -> Signature | None:
    """How something is that stands at a place; None where there is nothing."""
    try:
        return signature_of(os.lstat(place))
    except OSError:
        return None


class Odd(Exception):
    """What is seen is not for us to judge; git must look."""


class Seen(NamedTuple):
    """What a look found."""

    changed: dict[bytes, Signature]  # files that are to be read again, and how they are
    gone: list[bytes]
    moment: int  # when it began, in nanoseconds


class Memory:
    """A folder as it was at the last look; it stands for one tree."""

    def __init__(self, rules: Rules, tree: str) -> None:
        """Take which files are held, and the tree that it stands for."""
        self._rules = rules
        self._folder = os.fsencode(rules.folder)
        self.tree = tree
        self.process = os.getpid()
        self.growth = rules.growth
        self.looks = 0
        self.files: dict[bytes, Signature | None] = {}  # None: to be read again
        self.folders: dict[bytes, dict[bytes, Kind]] = {}  # each after the one in which it lies
        self.watched: dict[bytes, Signature | None] = {}  # what says which files are ignored

    def seen(self) -> Seen:
        """Look; Odd where that is not enough."""
        self.looks += 1
        moment = time.time_ns()
        if any(signed(place) != known for place, known in self.watched.items()):
            raise Odd
        changed: dict[bytes, Signature] = {}
        there = 0
        for folder, names in self.folders.items():
            there += self._look_into(folder, names, changed)
        gone = self._gone() if there != len(self.files) else []
        if any(path.rpartition(b"/")[2] == RULES for path in (*changed, *gone)):
            raise Odd
        return Seen(changed, gone, moment)

    def _look_into(
        self, folder: bytes, names: dict[bytes, Kind], changed: dict[bytes, Signature]
    ) -> int:
        """Look into one folder; how many files of it are there."""
        files, count = self.files, 0
        prefix = folder + b"/" if folder else b""
        place = self._folder + b"/" + prefix
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    name = entry.name
                    path = prefix + name
                    if path in files:
                        count += 1
                        now = signature_of(os.lstat(place + name))  # quicker than the entry's own
                        if now != files[path]:
                            changed[path] = now
                    else:
                        self._check(path, entry, names.get(name))
        except FileNotFoundError:
            if folder:
                return 0  # with all that was in it
            raise Odd from None
        except OSError:
            raise Odd from None
        return count

    def _check(self, path: bytes, entry: os.DirEntry[bytes], kind: Kind | None) -> None:
        """Odd where a file that is not held has come, or might be held now."""
        if kind is None:
            is_odd = entry.name == b".git" or self._rules.may_hold(path)
        elif kind == "unfit":
            is_odd = self._rules.is_holdable(path, entry.stat(follow_symlinks=False))
            is_odd = is_odd or entry.is_dir(follow_symlinks=False)
        else:
            is_odd = entry.is_dir(follow_symlinks=False) == (kind == "ignored")
        if is_odd:
            raise Odd

    def _gone(self) -> list[bytes]:
        found = [path for path in self.files if signed(self._folder + b"/" + path) is None]
        if not found:
            raise Odd  # it came back while we looked
        return found

    # --- keeping up ---

    def note(self, seen: Seen, tree: str) -> None:
        """Remember what was seen, of which this is the tree."""
        for path, signature in seen.changed.items():
            self.files[path] = signature if is_settled(signature, seen.moment) else None
        self.forget(seen.gone)
        self.tree = tree

    def forget(self, paths: Iterable[bytes]) -> None:
        """Forget files that are gone, and the folders that went with them."""
        for path in paths:
            self.files.pop(path, None)
            above = path.rpartition(b"/")[0]
            while above and signed(self._folder + b"/" + above) is None:
                self.folders.pop(above, None)
                above, _, name = above.rpartition(b"/")
                self.folders.get(above, {}).pop(name, None)

    def add(self, path: bytes) -> None:
        """Remember a file that is held from now on; what else lies beside it is new to us."""
        self.files[path] = None
        new: list[bytes] = []
        above = path.rpartition(b"/")[0]
        while above and above not in self.folders:
            new.append(above)
            above = above.rpartition(b"/")[0]
        for folder in reversed(new):
            above, _, name = folder.rpartition(b"/")
            self.folders[above][name] = "open"
            self.folders[folder] = {}
