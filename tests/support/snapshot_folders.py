"""Folders for snapshot tests, and the changes between snapshots."""

import os
from pathlib import Path
from typing import Any

import pytest

from foldmark.snapshots.git import Git
from foldmark.snapshots.snapshots import Snapshots

File = tuple[str, bytes]  # what it is (link, plain, executable), and what is in it


def made(tmp_path: Path, **more: Any) -> tuple[Path, Snapshots]:
    """A new folder, and its snapshots."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return folder, Snapshots(folder, home=tmp_path / "home", **more)


def files_of(folder: Path) -> dict[str, File]:
    """Every file below a folder as it is, .git folders apart; found without git."""
    found: dict[str, File] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in (*names, *links):
            path = Path(root) / name
            place = str(path.relative_to(folder))
            if path.is_symlink():
                found[place] = ("link", os.fsencode(path.readlink()))
            elif path.is_file() and name != ".git":
                runs = path.stat().st_mode & 0o100
                found[place] = ("executable" if runs else "plain", path.read_bytes())
    return found


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands of git, as they are called from now on."""
    called: list[str] = []
    real = Git.output

    def output(self: Git, *arguments: str, **more: Any) -> bytes:
        called.append(arguments[0])
        return real(self, *arguments, **more)

    monkeypatch.setattr(Git, "output", output)
    return called


def changed(shots: Snapshots, old: str, new: str) -> tuple[str, ...]:
    """The files that differ between two snapshots."""
    return tuple(diff.file for diff in shots.diff(old, new, texts=False))
