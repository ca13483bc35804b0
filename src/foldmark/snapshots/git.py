"""Call git on a private repository that holds the snapshots.

The settings of the project and the user are neither read nor run: no hooks, filters or pagers. The
repository's few files are written directly. This module does not know what the repository holds.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Event
from time import monotonic

from foldmark.errors import StoreError
from foldmark.files import UNFINISHED, printable, write_private

SECONDS = 600.0  # limit for one call
SCAN_SECONDS = 60.0  # limit for a scan of the folder; a pipe can block git forever
STOP_SECONDS = 1.0  # seconds that a call may still take after a stop; most need less

_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tfilemode = true
\tsymlinks = true
\tignorecase = false
\tprecomposeunicode = false
\tautocrlf = false
\tsafecrlf = false
\tquotepath = false
\tfsmonitor = false
\tuntrackedcache = false
\thooksPath = /dev/null
\texcludesFile = /dev/null
\tattributesFile = /dev/null
\tprotectHFS = false
\tprotectNTFS = false
\tloosecompression = 1
[gc]
\tauto = 0
[maintenance]
\tauto = false
[diff]
\trenames = false
"""
# Blobs are the exact bytes of files, whatever .gitattributes says.
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -whitespace !diff !merge\n"
_FILES = {
    "config": _CONFIG,
    "info/attributes": _ATTRIBUTES,
    "info/exclude": f"{UNFINISHED}*\n",
    "HEAD": "ref: refs/heads/none\n",  # written last: if it exists, the others do too
}
_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
_ERROR_PREFIX = re.compile(r"^(fatal|error): ")
_POLL = 0.1  # seconds between checks for a stop
_STOP: ContextVar[Event | None] = ContextVar("foldmark_git_stop", default=None)


@contextmanager
def stop_on(event: Event) -> Generator[None]:
    """Stop git calls made inside by this thread soon after the event is set."""
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


class NoGit(StoreError):
    """No git to take snapshots with; the message says what to do."""


class GitEnded(StoreError):
    """A git call that was stopped before it finished; a retry would take as long."""


class GitFailed(StoreError):
    """A git call that failed, with git's error output."""

    def __init__(self, store: str, stderr: str) -> None:
        """Use the first error line of git's output as the message."""
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        errors = [line for line in lines if _ERROR_PREFIX.match(line)]
        first = next(iter(errors or lines), "no reason given")
        super().__init__(store, f"git failed: {printable(_ERROR_PREFIX.sub('', first))}")
        self.stderr = stderr


class Deadline:
    """The end of a wait: its time limit, or soon after a stop."""

    def __init__(self, seconds: float = SECONDS) -> None:
        """Start the wait."""
        self._stop, self._stopping = _STOP.get(), False
        self._seconds, self._end = seconds, monotonic() + seconds

    def cause(self) -> str | None:
        """Why the wait is over, or None if there is time left."""
        if not self._stopping and self._stop is not None and self._stop.is_set():
            self._stopping, self._end = True, min(self._end, monotonic() + STOP_SECONDS)
        if monotonic() <= self._end:
            return None
        return "was stopped" if self._stopping else f"took longer than {self._seconds:.0f} s"


class Git:
    """Git calls on one repository and one working folder."""

    def __init__(self, program: str, repository: Path, folder: Path) -> None:
        """Use this git program, repository and folder."""
        self.repository = repository
        self.folder = folder
        self._program = program
        own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        own["PATH"] = _trusted_path(folder)
        self._environment = {**own, **_ENVIRONMENT, "GIT_DIR": str(repository)}

    def output(
        self,
        *arguments: str,
        payload: bytes = b"",
        lock: int | None = None,
        folder: Path | None = None,
        ok_codes: tuple[int, ...] = (0,),
        seconds: float = SECONDS,
    ) -> bytes:
        """The output of a git call. Raises GitFailed with git's first error line.

        The call inherits the lock on its index, so that the lock lasts if our process dies.
        """
        work_tree = folder or self.folder
        try:
            with tempfile.TemporaryFile() if payload else Path(os.devnull).open("r+b") as stdin:
                # Not a pipe: after a timeout in `communicate`, Python 3.11 stops writing to it, and
                # git would wait forever for input of more than 64 kB.
                stdin.write(payload)
                stdin.seek(0)
                process = subprocess.Popen(  # noqa: S603 - an absolute path
                    [self._program, *arguments],
                    cwd=work_tree,
                    env={**self._environment, "GIT_WORK_TREE": str(work_tree)},
                    pass_fds=() if lock is None else (lock,),
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    umask=0o077,
                    process_group=0,  # Ctrl-C must reach only us: a call ends whole or not at all
                )
        except OSError as error:
            raise GitFailed(str(self.repository), error.strerror or repr(error)) from None
        with process:
            try:
                out, err = self._wait_for_output(process, seconds)
            except BaseException:  # kill it with its child processes
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode not in ok_codes:
            raise GitFailed(str(self.repository), os.fsdecode(err))
        return out

    def has_tree(self, tree: str) -> bool:
        """Whether a tree is stored; most are loose files, which need no process to check."""
        if (self.repository / "objects" / tree[:2] / tree[2:]).exists():
            return True
        with suppress(GitFailed):
            return self.output("cat-file", "-t", tree).strip() == b"tree"
        return False

    def _wait_for_output(
        self, process: subprocess.Popen[bytes], seconds: float
    ) -> tuple[bytes, bytes]:
        """The output of a call. Raises GitEnded if it takes too long or is stopped."""
        deadline = Deadline(seconds)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=_POLL)
            if cause := deadline.cause():
                raise GitEnded(str(self.repository), f"git {cause}; no snapshot of {self.folder}")


def git_program(folder: Path) -> str:
    """The path of git. Raises NoGit if it is missing or lies in the working folder."""
    if program := shutil.which("git", path=_trusted_path(folder)):
        return program
    cause = "git is not installed; install it"
    if untrusted := shutil.which("git"):
        cause = (
            f"{printable(untrusted)} is not run: it is in the working folder or on a "
            "relative PATH; use a working folder without it"
        )
    raise NoGit(str(folder), f"snapshots need git: {cause}")


def _trusted_path(folder: Path) -> str:
    """PATH without relative entries and folders of the project; it may be empty."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    absolute = (entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117
    real = ((entry, Path(os.path.realpath(entry))) for entry in absolute)
    return os.pathsep.join(entry for entry, path in real if not path.is_relative_to(folder))


def shadow_repository(home: Path) -> Path:
    """The repository in a snapshot home, created if it is missing.

    Snapshots of an outer folder see it as an empty repository.
    """
    repository = home / ".git"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (repository / "HEAD").is_file():
            for name in ("", "objects", "refs", "info", "absent"):
                (repository / name).mkdir(mode=0o700, exist_ok=True)
            for name, text in _FILES.items():
                write_private(repository / name, text.encode())
    except OSError as error:
        cause = f"snapshots cannot be stored here: {error.strerror}"
        raise StoreError(str(home), cause) from None
    return repository


def nul_terminated(paths: Iterable[bytes]) -> bytes:
    """Paths in the form of git's `-z --stdin`."""
    return b"".join(path + b"\0" for path in paths)
