"""Which files are remembered, and as what: one index file of git, which all processes share.

Whoever works on it holds a lock, which ends with its process and the call of git that this made:
one that is killed leaves nothing for which others wait.
"""

import os
import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

from foldmark.errors import StoreError

from .git import SCAN_SECONDS, Deadline, Git, GitEnded, GitFailed, zero_ended

_LOOK = 0.005  # seconds after which the lock is tried again
_BULK = 100  # files written at once, after which the index is settled
_SETTLE_EACH = 64  # scans; files that were touched, not changed, are read by each until then
_SETTLED = 2.0  # seconds after which no file has the time of the index
_REFUSED = "fatal: Unable to process path "
_MOST_REFUSED = 100
# What git says of an index that was cut off, and of one that names what was never written.
_DAMAGED = re.compile(r"index file|bad signature|invalid object|error building trees|unknown index")
_EMPTY_BLOB = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


class Index:
    """The index of a folder; it is used while it is locked."""

    def __init__(self, git: Git) -> None:
        """Take git, in whose repository the index is."""
        self._git = git
        self._file = git.repository / "index"
        self._lock: int | None = None
        self._tree: str | None = None  # of what the index holds, where it is known
        self._left: tuple[int, ...] | None = None  # how the file was when we were done with it
        self._scans = 0
        self._unsettled = False

    @contextmanager
    def locked(self) -> Generator[None]:
        """Have the index to oneself; GitEnded if another process has it for too long."""
        import fcntl  # noqa: PLC0415 - some systems have none, and import this all the same

        deadline, file = Deadline(), self._git.repository / "lock"
        try:
            self._lock = lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(str(file), f"cannot be locked: {error.strerror}") from None
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if deadline.cause():
                    raise GitEnded(str(file), "another process takes a snapshot; none is taken")
                time.sleep(_LOOK)
            yield
            self._left = self._state()
        finally:
            os.close(lock)

    def begin(self) -> bool:
        """Make it ready; whether it may hold something else than what we left in it."""
        # Only who holds our lock calls git with it: what is locked still is so by a dead one.
        self._file.with_name("index.lock").unlink(missing_ok=True)
        is_known, self._left = self._left == self._state(), None
        if not is_known:
            self._tree = None
        return not is_known

    def _state(self) -> tuple[int, ...]:
        """What differs whenever git has written the index."""
        try:
            status = self._file.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def discard(self, error: GitFailed) -> None:
        """Begin from nothing where the index itself is damaged: every file is read again."""
        if _DAMAGED.search(error.told):
            self._file.unlink(missing_ok=True)

    def listed(self, *options: str) -> bytes:
        """What differs from the index: a letter, a space and a path each, ended by zeros."""
        self._scans += 1
        if self._unsettled or self._scans % _SETTLE_EACH == 0:
            self._settle()
        scan = ("ls-files", "-t", "-z", "-m", "-o", "-d", "--exclude-standard", *options)
        return self._git.output(*scan, lock=self._lock, seconds=SCAN_SECONDS)

    def names(self) -> list[bytes]:
        """All files that it holds."""
        if not self._file.exists():
            return []
        return self._git.output("ls-files", "-z", lock=self._lock).split(b"\0")[:-1]

    def _settle(self) -> None:
        """Note anew how files are that have the index's own time, so that they are not read."""
        with suppress(OSError):
            if time.time() - self._file.stat().st_mtime < _SETTLED:
                return
            # Files that differ make it fail, and are none of its business.
            refresh = ("update-index", "-q", "--refresh", "--force-write-index")
            self._git.output(*refresh, lock=self._lock, fine=(0, 1))
            self._unsettled = False

    def open_nested(self, folders: Iterable[bytes]) -> None:
        """Have git look into repositories inside the folder, as it does where it knows a file.

        The file that it is told of is not there, and is found to be deleted by the next scan.
        """
        entries = (b"100644 " + _EMPTY_BLOB + b"\t" + path + b".foldmark" for path in folders)
        self._update("-z", "--index-info", given=entries)

    def remove(self, paths: list[bytes]) -> None:
        """Forget files, there or not."""
        self._update("-z", "--force-remove", "--stdin", given=paths)

    def put(self, paths: list[bytes]) -> None:
        """Remember files as they are now; what git refuses to read is left as it was."""
        wanted = dict.fromkeys(paths)
        self._unsettled = self._unsettled or len(wanted) >= _BULK
        for tries in range(_MOST_REFUSED, 0, -1):
            try:
                self._update("--add", "--remove", "--replace", "-z", "--stdin", given=wanted)
            except GitFailed as error:
                refused = os.fsencode(error.told.rpartition(_REFUSED)[2].removesuffix("\n"))
                if refused not in wanted or tries == 1:
                    raise
                del wanted[refused]
            else:
                return

    def tree(self) -> str:
        """The tree of what the index holds."""
        if self._tree is None or not self._git.has_tree(self._tree):
            self._tree = self._git.output("write-tree", lock=self._lock).decode().strip()
        return self._tree

    def _update(self, *arguments: str, given: Iterable[bytes]) -> None:
        self._tree = None
        self._git.output("update-index", *arguments, given=zero_ended(given), lock=self._lock)
