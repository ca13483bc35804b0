"""The git that snapshots are kept with: a repository of its own, and how it is called.

Nothing of the project's or the user's own settings is read or run: no hook, no filter, no pager.
The repository is written by hand, as few files suffice. What is kept in it is told elsewhere.
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
from foldmark.files import UNFINISHED, harmless, write_private

SECONDS = 600.0  # that one call may take
SCAN_SECONDS = 60.0  # that a look through the folder may take; a pipe can hang git for ever
GRACE = 1.0  # seconds that a call still has when it is to stop: most need less

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
# Blobs are the files' very bytes, whatever .gitattributes says.
_ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding -whitespace !diff !merge\n"
_FILES = {
    "config": _CONFIG,
    "info/attributes": _ATTRIBUTES,
    "info/exclude": f"{UNFINISHED}*\n",
    "HEAD": "ref: refs/heads/none\n",  # the last: where it is, all of them are
}
_OURS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
_GRAVE = re.compile(r"^(fatal|error): ")
_LOOK = 0.1  # seconds after which a call looks whether it is to stop
_STOP: ContextVar[Event | None] = ContextVar("foldmark_git_stop", default=None)


@contextmanager
def stopped_by(event: Event) -> Generator[None]:
    """End calls of git that are made inside, by this thread, soon after the event is set."""
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


class NoGit(StoreError):
    """There is no git to take snapshots with; the cause says what to do."""


class GitEnded(StoreError):
    """A call of git that was ended before it was done: to try again would take as long."""


class GitFailed(StoreError):
    """A call of git that failed, with all that git said."""

    def __init__(self, store: str, told: str) -> None:
        """Take what git said; its first line is what people are told."""
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        grave = [line for line in lines if _GRAVE.match(line)]
        first = next(iter(grave or lines), "it gave no reason")
        super().__init__(store, f"git failed: {harmless(_GRAVE.sub('', first))}")
        self.told = told


class Deadline:
    """How long something is waited for: until its time is up, or it is to stop."""

    def __init__(self, seconds: float = SECONDS) -> None:
        """Begin to wait."""
        self._stop, self._stopping = _STOP.get(), False
        self._seconds, self._end = seconds, monotonic() + seconds

    def cause(self) -> str | None:
        """Why to wait no longer; None where there is time left."""
        if not self._stopping and self._stop is not None and self._stop.is_set():
            self._stopping, self._end = True, min(self._end, monotonic() + GRACE)
        if monotonic() <= self._end:
            return None
        return "was stopped" if self._stopping else f"gave no answer in {self._seconds:.0f} s"


class Git:
    """Calls of git on one repository and one working folder."""

    def __init__(self, program: str, repository: Path, folder: Path) -> None:
        """Take where git, the repository and the folder are."""
        self.repository = repository
        self.folder = folder
        self._program = program
        kept = {name: held for name, held in os.environ.items() if not name.startswith("GIT_")}
        kept["PATH"] = _trusted_path(folder)
        self._environment = {**kept, **_OURS, "GIT_DIR": str(repository)}

    def output(
        self,
        *arguments: str,
        given: bytes = b"",
        lock: int | None = None,
        folder: Path | None = None,
        fine: tuple[int, ...] = (0,),
        seconds: float = SECONDS,
    ) -> bytes:
        """What git prints; GitFailed, with git's first line, where it fails.

        It is given the lock that is held on its index: who dies leaves that to the call.
        """
        place = folder or self.folder
        try:
            with tempfile.TemporaryFile() if given else Path(os.devnull).open("r+b") as stdin:
                # Into a pipe, Python 3.11 sends no more once `communicate` has timed out: git
                # would wait for ever for a list of more than 64 kB that it does not read at once.
                stdin.write(given)
                stdin.seek(0)
                process = subprocess.Popen(  # noqa: S603 - a program found by its full path
                    [self._program, *arguments],
                    cwd=place,
                    env={**self._environment, "GIT_WORK_TREE": str(place)},
                    pass_fds=() if lock is None else (lock,),
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    umask=0o077,
                    process_group=0,  # a Ctrl-C is for us: a call is ended whole, or not at all
                )
        except OSError as error:
            raise GitFailed(str(self.repository), error.strerror or repr(error)) from None
        with process:
            try:
                out, err = self._communicated(process, seconds)
            except BaseException:  # it is killed, with what it has started itself
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode not in fine:
            raise GitFailed(str(self.repository), os.fsdecode(err))
        return out

    def has_tree(self, tree: str) -> bool:
        """Whether a tree is kept; most are files of their own, which is seen without a process."""
        if (self.repository / "objects" / tree[:2] / tree[2:]).exists():
            return True
        with suppress(GitFailed):
            return self.output("cat-file", "-t", tree).strip() == b"tree"
        return False

    def _communicated(
        self, process: subprocess.Popen[bytes], seconds: float
    ) -> tuple[bytes, bytes]:
        """What a call prints; GitEnded where it takes too long, or is to stop."""
        deadline = Deadline(seconds)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=_LOOK)
            if cause := deadline.cause():
                raise GitEnded(str(self.repository), f"git {cause}; no snapshot of {self.folder}")


def git_program(folder: Path) -> str:
    """Where git is installed; NoGit where it is not, or lies in the working folder itself."""
    if program := shutil.which("git", path=_trusted_path(folder)):
        return program
    cause = "git is not installed; install it"
    if found := shutil.which("git"):
        cause = (
            f"{harmless(found)} is not run, as it lies in the working folder, or is found from "
            "wherever one is; give a folder that does not hold it"
        )
    raise NoGit(str(folder), f"snapshots need git: {cause}")


def _trusted_path(folder: Path) -> str:
    """The places in which programs are looked for, but for the project's; one may be empty."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = (entry for entry in entries if os.path.isabs(entry))  # noqa: PTH117
    real = ((entry, Path(os.path.realpath(entry))) for entry in own)
    return os.pathsep.join(entry for entry, place in real if not place.is_relative_to(folder))


def shadow_repository(home: Path) -> Path:
    """The repository in a home of snapshots, made if there is none.

    Another folder's snapshots see a repository in which there are no files.
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
        cause = f"snapshots cannot be kept here: {error.strerror}"
        raise StoreError(str(home), cause) from None
    return repository


def zero_ended(paths: Iterable[bytes]) -> bytes:
    """Paths as git's `-z --stdin` takes them."""
    return b"".join(path + b"\0" for path in paths)
