"""Folders for snapshot tests, and the changes between snapshots."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from foldmark.snapshots.git import Git
from foldmark.snapshots.snapshots import Snapshots

File = tuple[str, bytes]  # kind (link, plain or executable) and content
Files = Mapping[str, str | bytes | Path | None]  # content, link target, or None to delete


def snapshot_folder(tmp_path: Path, files: Files | None = None) -> tuple[Path, Snapshots]:
    """A new folder with these files, and its snapshots."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    write_files(folder, files or {})
    return folder, Snapshots(folder, home=tmp_path / "home")


def write_files(folder: Path, files: Files) -> None:
    """Write or delete files below a folder; missing folders are created."""
    for name, content in files.items():
        path = folder / name
        if content is None:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            path.symlink_to(content)
            continue
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def files_of(folder: Path) -> dict[str, File]:
    """Every file below a folder, except in .git folders; found without git."""
    files: dict[str, File] = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        for name in (*names, *links):
            path = Path(root) / name
            relative = str(path.relative_to(folder))
            if path.is_symlink():
                files[relative] = ("link", os.fsencode(path.readlink()))
            elif path.is_file() and name != ".git":
                is_executable = path.stat().st_mode & 0o100
                files[relative] = ("executable" if is_executable else "plain", path.read_bytes())
    return files


def git_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The git commands called from now on."""
    commands: list[str] = []
    original = Git.output

    def output(self: Git, *arguments: str, **options: Any) -> bytes:
        commands.append(arguments[0])
        return original(self, *arguments, **options)

    monkeypatch.setattr(Git, "output", output)
    return commands


def changed(shots: Snapshots, old: str, new: str) -> tuple[str, ...]:
    """The files that differ between two snapshots."""
    return tuple(diff.file for diff in shots.diff(old, new, texts=False))
