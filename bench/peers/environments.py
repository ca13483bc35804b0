"""An environment for each peer, of its own: made once, kept in the user's cache for the next run.

Knows how to find a Python that is new enough, and what pip says; nothing of what is measured.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

READY = ".ready"
Version = tuple[int, int]


class Requirement(NamedTuple):
    """A package at one version, and the oldest Python that it takes."""

    package: str
    version: str
    python: Version = (3, 11)


class NotInstalled(Exception):
    """Why there is no environment, in one line."""


def environment(wanted: Requirement) -> Path:
    """The Python of a peer's environment; it is made where there is none."""
    folder = _cache() / f"{wanted.package}-{wanted.version}"
    python = folder / "bin" / "python"
    if not (folder / READY).exists():
        _run([str(_python(wanted.python)), "-m", "venv", "--clear", str(folder)])
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, f"{wanted.package}=={wanted.version}"])
        (folder / READY).touch()
    return python


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "foldmark-bench"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled((said or done.stderr.splitlines() or ["pip failed"])[-1][:160])


def _python(least: Version) -> Path:
    """A Python that is new enough: ours, one on the path, or one of pyenv's."""
    if sys.version_info[:2] >= least:
        return Path(sys.executable)
    for found in _pythons(least):
        ask = [str(found), "-c", "import sys; print(*sys.version_info[:2])"]
        told = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
        if told and tuple(map(int, told)) >= least:
            return found
    raise NotInstalled(f"it needs Python {least[0]}.{least[1]}, and none was found")


def _pythons(least: Version) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in range(least[1], least[1] + 4):
        name = f"python{least[0]}.{minor}"
        yield from sorted(pyenv.glob(f"{least[0]}.{minor}.*/bin/{name}"))
        if found := shutil.which(name):
            yield Path(found)
