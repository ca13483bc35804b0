"""Which files are remembered, and as what: an index file of git that only its holder writes.

Each holder works on an index of its own, which begins as the last one that anybody published. So
two processes never wait for each other, and one that is killed leaves nothing that others meet.
An index that is handed on keeps its time: git tells by it which files it must read again.
"""

import os
import re
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from shutil import copy2

from .git import SCAN_SECONDS, Git, GitFailed, remove_quietly, zero_ended

_HOUR = 3_600.0
_BULK = 100  # files written at once, after which the index is settled
_SETTLE_EACH = 64  # scans; files that were touched, not changed, are read by each until then
_SETTLED = 2.0  # seconds after which no file has the time of the index
_REFUSED = "fatal: Unable to process path "
_MOST_REFUSED = 100
# What git says of an index that was cut off, and of one that names what was never written.
_DAMAGED = re.compile(r"index file|bad signature|invalid object|error building trees|unknown index")
_EMPTY_BLOB = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


class Index:
    """The index of one holder."""

    def __init__(self, git: Git, home: Path) -> None:
        """Take git, and where indexes are kept."""
        self._git = git
        self._home = home
        self._shared = home / "index"
        self.tree: str | None = None  # of what the index holds, where it is known
        self._scans = 0
        self._unsettled = False
        self._renew()
        _remove_old(home)

    def _renew(self) -> None:
        self._process = os.getpid()
        self._own = self._home / f"index-{self._process}-{token_hex(4)}"
        weakref.finalize(self, _forget, self._own, self._process)

    def ready(self) -> bool:
        """Have an index to work on; whether it is another one than before."""
        if os.getpid() != self._process:  # a forked child must not write its parent's
            self._renew()
        if self.tree is not None and self._own.exists():
            return False
        self.tree = None
        remove_quietly(self._lock)
        if not self._own.exists() and self._shared.exists():
            _hand_on(self._shared, self._own)
        return True

    @property
    def _lock(self) -> Path:
        """Only our own calls take it, one at a time: between two of them it is stale."""
        return self._own.with_name(self._own.name + ".lock")

    def discard(self, error: GitFailed) -> None:
        """Begin from nothing where the index itself is damaged: every file is read again."""
        self.tree = None
        if not _DAMAGED.search(error.told):
            return
        remove_quietly(self._own)
        remove_quietly(self._lock)
        remove_quietly(self._shared)

    def listed(self, *options: str) -> bytes:
        """What differs from the index: a letter, a space and a path each, ended by zeros."""
        self._scans += 1
        if self._unsettled or self._scans % _SETTLE_EACH == 0:
            self._settle()
        scan = ("ls-files", "-t", "-z", "-m", "-o", "-d", "--exclude-standard", *options)
        return self._git.output(*scan, index=self._own, seconds=SCAN_SECONDS)

    def names(self) -> list[bytes]:
        """All files that it holds."""
        return self._git.output("ls-files", "-z", index=self._own).split(b"\0")[:-1]

    def size(self) -> int:
        """How many files it holds: the number stands in its head."""
        with suppress(OSError), self._own.open("rb") as file:
            return int.from_bytes(file.read(12)[8:], "big")
        return 0

    def _settle(self) -> None:
        """Note anew how files are that have the index's own time, so that they are not read."""
        with suppress(OSError):
            if time.time() - self._own.stat().st_mtime < _SETTLED:
                return
            # Files that differ make it fail, and are none of its business.
            self._update("-q", "--refresh", "--force-write-index", fine=(0, 1))
            self._unsettled = False

    def open_nested(self, folders: Iterable[bytes]) -> None:
        """Have git look into repositories inside the folder, as it does where it knows a file.

        The file that it is told of is not there, and is found to be deleted by the next scan.
        """
        entries = (b"100644 " + _EMPTY_BLOB + b"\t" + path + b".foldmark" for path in folders)
        self._update("-z", "--index-info", given=zero_ended(entries))

    def remove(self, paths: list[bytes]) -> None:
        """Forget files, there or not."""
        self._update("-z", "--force-remove", "--stdin", given=zero_ended(paths))

    def put(self, paths: list[bytes]) -> None:
        """Remember files as they are now; what git refuses to read is left as it was."""
        wanted = dict.fromkeys(paths)
        self._unsettled = self._unsettled or len(wanted) >= _BULK
        for tries in range(_MOST_REFUSED, 0, -1):
            given = zero_ended(wanted)
            try:
                self._update("--add", "--remove", "--replace", "-z", "--stdin", given=given)
            except GitFailed as error:
                refused = os.fsencode(error.told.rpartition(_REFUSED)[2].removesuffix("\n"))
                if refused not in wanted or tries == 1:
                    raise
                del wanted[refused]
            else:
                return

    def written(self) -> str:
        """The tree of what the index holds; it is where others will begin."""
        if self.tree is None:
            self.tree = self._git.output("write-tree", index=self._own).decode().strip()
            if self._own.exists():
                between = self._own.with_name(f"{self._own.name}.new")
                remove_quietly(between)
                _hand_on(self._own, between)
                with suppress(OSError):
                    between.replace(self._shared)
        return self.tree

    def _update(self, *arguments: str, given: bytes = b"", fine: tuple[int, ...] = (0,)) -> None:
        if "--refresh" not in arguments:
            self.tree = None
        self._git.output("update-index", *arguments, given=given, index=self._own, fine=fine)


def _hand_on(old: Path, new: Path) -> None:
    """The same index under another name; git never writes into one, but replaces it."""
    try:
        os.link(old, new)
    except OSError:  # a file system without links
        with suppress(OSError):
            between = new.with_name(f"{new.name}.copy")
            copy2(old, between)
            between.replace(new)


def _forget(own: Path, process: int) -> None:
    if os.getpid() == process:
        remove_quietly(own)


def _remove_old(home: Path) -> None:
    """Remove what holders left that were killed."""
    old = time.time() - _HOUR
    for path in home.glob("index-*"):
        with suppress(OSError, ValueError):
            if path.stat().st_mtime < old and not _lives(int(path.name.split("-")[1])):
                path.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
