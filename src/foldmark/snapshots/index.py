"""The tracked files: one git index file, shared by all processes.

A process holds a lock while it works on the index. The lock ends with the process and the git call
it made, so a killed process never blocks others.
"""

import os
import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

from foldmark.errors import StoreError

from .git import SCAN_SECONDS, Deadline, Git, GitEnded, GitFailed, nul_terminated

_POLL = 0.005  # seconds between attempts to lock
_BULK = 100  # after so many files at once, the index is settled
_SETTLE_INTERVAL = 64  # scans between two settlings, which avoid reading touched files again
_SETTLED = 2.0  # seconds after which no file has the index's own timestamp
_REFUSED = "fatal: Unable to process path "
_MAX_REFUSED = 100
# Git's errors for an index that was cut off or refers to missing objects.
_DAMAGED = re.compile(r"index file|bad signature|invalid object|error building trees|unknown index")
_EMPTY_BLOB = b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


class Index:
    """The index of a folder, used while it is locked."""

    def __init__(self, git: Git) -> None:
        """Use the index in git's repository."""
        self._git = git
        self._file = git.repository / "index"
        self._lock: int | None = None
        self._tree: str | None = None  # tree of the index, if known
        self._last_state: tuple[int, ...] | None = None  # the file's state after our last use
        self._scans = 0
        self._unsettled = False

    @contextmanager
    def hold_lock(self) -> Generator[None]:
        """Lock the index. Raises GitEnded if another process holds it for too long."""
        import fcntl  # noqa: PLC0415 - missing on some systems

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
                    raise GitEnded(str(file), "locked by another process; no snapshot was taken")
                time.sleep(_POLL)
            yield
            self._last_state = self._state()
        finally:
            os.close(lock)

    def prepare(self) -> bool:
        """Make the index ready; return whether another process may have changed it."""
        # Only the holder of our lock runs git here, so git's own lock is left from a dead process.
        self._file.with_name("index.lock").unlink(missing_ok=True)
        is_known, self._last_state = self._last_state == self._state(), None
        if not is_known:
            self._tree = None
        return not is_known

    def _state(self) -> tuple[int, ...]:
        """A value that differs whenever git has written the index."""
        try:
            status = self._file.stat()
        except OSError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def discard_if_damaged(self, error: GitFailed) -> None:
        """Delete the index if the error says it is damaged; all files are read again."""
        if _DAMAGED.search(error.stderr):
            self._file.unlink(missing_ok=True)

    def scan(self, *options: str) -> bytes:
        """The differences from the index: a letter, a space and a path each, NUL-terminated."""
        self._scans += 1
        if self._unsettled or self._scans % _SETTLE_INTERVAL == 0:
            self._settle()
        scan = ("ls-files", "-t", "-z", "-m", "-o", "-d", "--exclude-standard", *options)
        return self._git.output(*scan, lock=self._lock, seconds=SCAN_SECONDS)

    def tracked_paths(self) -> list[bytes]:
        """All files in the index."""
        if not self._file.exists():
            return []
        return self._git.output("ls-files", "-z", lock=self._lock).split(b"\0")[:-1]

    def _settle(self) -> None:
        """Refresh entries of files with the index's own timestamp, which every scan reads."""
        with suppress(OSError):
            if time.time() - self._file.stat().st_mtime < _SETTLED:
                return
            # It exits with 1 if files differ, which does not matter here.
            refresh = ("update-index", "-q", "--refresh", "--force-write-index")
            self._git.output(*refresh, lock=self._lock, ok_codes=(0, 1))
            self._unsettled = False

    def open_nested(self, folders: Iterable[bytes]) -> None:
        """Make git look into repositories inside the folder, as it does for tracked files.

        The file that is added for this does not exist; the next scan sees it as deleted.
        """
        entries = (b"100644 " + _EMPTY_BLOB + b"\t" + path + b".foldmark" for path in folders)
        self._update("-z", "--index-info", items=entries)

    def remove(self, paths: list[bytes]) -> None:
        """Remove files from the index."""
        self._update("-z", "--force-remove", "--stdin", items=paths)

    def put(self, paths: list[bytes]) -> None:
        """Add files as they are now; a file that git refuses to read is left as it was."""
        pending = dict.fromkeys(paths)
        self._unsettled = self._unsettled or len(pending) >= _BULK
        for tries in range(_MAX_REFUSED, 0, -1):
            try:
                self._update("--add", "--remove", "--replace", "-z", "--stdin", items=pending)
            except GitFailed as error:
                refused = os.fsencode(error.stderr.rpartition(_REFUSED)[2].removesuffix("\n"))
                if refused not in pending or tries == 1:
                    raise
                del pending[refused]
            else:
                return

    def tree(self) -> str:
        """The tree of the index."""
        if self._tree is None or not self._git.has_tree(self._tree):
            self._tree = self._git.output("write-tree", lock=self._lock).decode().strip()
        return self._tree

    def _update(self, *arguments: str, items: Iterable[bytes]) -> None:
        self._tree = None
        self._git.output("update-index", *arguments, payload=nul_terminated(items), lock=self._lock)
