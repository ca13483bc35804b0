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
from time import monotonic, sleep

from foldmark.errors import StoreError
from foldmark.files import UNFINISHED, harmless

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
HEAD = "ref: refs/heads/none\n"  # by which a repository of ours is known
_FILES = {
    "HEAD": HEAD,
    "config": _CONFIG,
    "info/attributes": _ATTRIBUTES,
    "info/exclude": f"{UNFINISHED}*\n",
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
_LOCK_LOOK = 0.005  # seconds after which a lock is tried again
_STOP: ContextVar[Event | None] = ContextVar("foldmark_git_stop", default=None)


@contextmanager
def stopped_by(event: Event) -> Generator[None]:
    """End calls of git that are made inside, by this thread, soon after the event is set."""
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


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


class _Deadline:
    """How long something is waited for: until its time is up, or it is to stop."""

    def __init__(self, seconds: float) -> None:
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
        index: tuple[Path, int] | None = None,
        folder: Path | None = None,
        fine: tuple[int, ...] = (0,),
        seconds: float = SECONDS,
    ) -> bytes:
        """What git prints; GitFailed, with git's first line, where it fails.

        An index comes with the lock on it: who dies leaves it to the call that is under way.
        """
        place = folder or self.folder
        environment = {**self._environment, "GIT_WORK_TREE": str(place)}
        inherited: tuple[int, ...] = ()
        if index is not None:
            environment["GIT_INDEX_FILE"], inherited = str(index[0]), (index[1],)
        try:
            with tempfile.TemporaryFile() if given else Path(os.devnull).open("r+b") as stdin:
                # Into a pipe, Python 3.11 sends no more once `communicate` has timed out: git
                # would wait for ever for a list of more than 64 kB that it does not read at once.
                stdin.write(given)
                stdin.seek(0)
                process = subprocess.Popen(  # noqa: S603 - a program found by its full path
                    [self._program, *arguments],
                    cwd=place,
                    env=environment,
                    pass_fds=inherited,
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
            except BaseException:
                _end(process)
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
        deadline = _Deadline(seconds)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=_LOOK)
            if cause := deadline.cause():
                raise GitEnded(str(self.repository), f"git {cause}; no snapshot of {self.folder}")

    @contextmanager
    def locked(self, file: Path) -> Generator[int]:
        """Hold a lock that is free when its holder is gone, and every call that was given it.

        Raises GitEnded if another process holds it for too long.
        """
        import fcntl  # noqa: PLC0415 - some systems have none, and import this all the same

        deadline = _Deadline(SECONDS)
        try:
            lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(str(file), f"cannot be locked: {error.strerror}") from None
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if deadline.cause():
                    raise GitEnded(str(file), "another process takes a snapshot; none is taken")
                sleep(_LOCK_LOOK)
            yield lock
        finally:
            os.close(lock)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a call, with what it has started itself."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


def why_no_git(folder: Path) -> str | None:
    """Why there is no git to use for a folder, and what to do; None where there is one."""
    folder = Path(os.path.realpath(folder))
    if git_program(folder) is not None:
        return None
    if found := shutil.which("git"):
        return (
            f"{harmless(found)} is not run, as it lies in the working folder, or is found from "
            "wherever one is; give a folder that does not hold it"
        )
    return "git is not installed; install it"


def git_program(folder: Path) -> str | None:
    """Where git is installed, if it is; never one that lies in the working folder."""
    return shutil.which("git", path=_trusted_path(folder))


def _trusted_path(folder: Path) -> str:
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if _is_trusted(entry, folder))


def _is_trusted(entry: str, folder: Path) -> bool:
    """A place in which programs are looked for must not be the project's."""
    if not os.path.isabs(entry):  # noqa: PTH117 - an entry may be empty
        return False
    return not Path(os.path.realpath(entry)).is_relative_to(folder)


def shadow_repository(home: Path) -> Path:
    """The repository in a home of snapshots, made if there is none: whole, or not at all."""
    repository = home / "git"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (repository / "HEAD").is_file():
            _make(home, repository)
    except OSError as error:
        cause = f"snapshots cannot be kept here: {error.strerror}"
        raise StoreError(str(home), cause) from None
    return repository


def _make(home: Path, repository: Path) -> None:
    made = Path(tempfile.mkdtemp(dir=home, prefix="new-"))
    for name in ("objects", "refs", "info"):
        (made / name).mkdir(mode=0o700)
    for name, text in _FILES.items():
        number = os.open(made / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(text)
    try:
        made.rename(repository)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not (repository / "HEAD").is_file():  # else another process was quicker
            raise


def zero_ended(paths: Iterable[bytes]) -> bytes:
    """Paths as git's `-z --stdin` takes them."""
    return b"".join(path + b"\0" for path in paths)
