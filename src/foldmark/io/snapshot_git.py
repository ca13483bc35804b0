"""The git that snapshots are kept with: a repository of its own, and how it is called.

Nothing of the project's or the user's own settings is read or run: no hook, no filter, no pager.
The repository is written by hand, as few files suffice. What is kept in it is told elsewhere.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError

from .files import harmless

SECONDS = 600.0  # that one call may take; a pipe named .gitignore would hang git for ever
UNFINISHED = ".foldmark-restore-"  # how the names of files begin that are not yet in their place

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
    "HEAD": "ref: refs/heads/none\n",
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


class GitFailed(StoreError):
    """A call of git that failed, with all that git said."""

    def __init__(self, store: str, told: str) -> None:
        """Take what git said; its first line is what people are told."""
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        grave = [line for line in lines if _GRAVE.match(line)]
        first = next(iter(grave or lines), "it gave no reason")
        super().__init__(store, f"git failed: {harmless(_GRAVE.sub('', first))}")
        self.told = told


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
        index: Path | None = None,
        folder: Path | None = None,
        fine: tuple[int, ...] = (0,),
    ) -> bytes:
        """What git prints; GitFailed, with git's first line, where it fails."""
        place = folder or self.folder
        environment = {**self._environment, "GIT_WORK_TREE": str(place)}
        if index is not None:
            environment["GIT_INDEX_FILE"] = str(index)
        try:
            run = subprocess.run(  # noqa: S603 - a program that was found by its full path
                [self._program, *arguments],
                cwd=place,
                env=environment,
                input=given,
                capture_output=True,
                timeout=SECONDS,
                umask=0o077,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GitFailed(str(self.repository), f"no answer in {SECONDS:.0f} s") from None
        except OSError as error:
            raise GitFailed(str(self.repository), error.strerror or repr(error)) from None
        if run.returncode not in fine:
            raise GitFailed(str(self.repository), os.fsdecode(run.stderr))
        return run.stdout


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


def remove_quietly(path: Path) -> None:
    """Remove a file, if it is there."""
    with suppress(OSError):
        path.unlink()
