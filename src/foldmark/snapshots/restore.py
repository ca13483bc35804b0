"""Restore a folder to a tree: which files are written, deleted and left alone.

A file that is not in the tree may still have existed then, ignored or too large. Such a file stays.
The caller takes a snapshot first.
"""

import os
import stat
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from foldmark.files import open_folder, replace_atomically, write_file, write_private
from foldmark.model.values import Frozen

from .diff import EMPTY_TREE, EXECUTABLE, LINK, FileChange, blobs, diff_trees
from .git import Git, nul_terminated
from .rules import Rules, is_store_data

_BATCH = 64  # files in memory at once


class RestoreResult(Frozen):
    """The files that a restore changed; `before` is the snapshot that undoes it."""

    before: str
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    skipped: tuple[str, ...] = ()  # left alone: possibly untracked then, or not writable


class Restore:
    """One restore of a folder."""

    def __init__(self, git: Git, rules: Rules, new_paths: set[bytes]) -> None:
        """Use git, the tracking rules and the files that tools created."""
        self._git = git
        self._new_paths = new_paths
        self._rules = rules
        self._written: list[bytes] = []
        self._deleted: list[bytes] = []
        self._skipped: list[bytes] = []

    def run(self, before: str, tree: str, changes: list[FileChange]) -> RestoreResult:
        """Make the folder equal to the tree; `changes` leads there from `before`."""
        blocked = blocking_files(self._rules, changes)
        written = [change for change in changes if change.change != "deleted"]
        deleted = [change.path for change in changes if change.change == "deleted"]
        unseen = self._possibly_unseen(tree, deleted, [change.path for change in written])
        self._record_absent(before, [change.path for change in written if change.change == "added"])
        for path in deleted:
            self._skipped.append(path) if path in unseen else self._touch(path)
        self._skipped += [change.path for change in written if change.path in blocked]
        self._write_all([change for change in written if change.path not in blocked])
        for path in self._deleted:
            remove_empty_folders(self._rules.folder, path)
        return RestoreResult(
            before=before,
            written=_names(self._written),
            deleted=_names(self._deleted),
            skipped=_names(self._skipped),
        )

    def _write_all(self, changes: list[FileChange]) -> None:
        for start in range(0, len(changes), _BATCH):
            batch = changes[start : start + _BATCH]
            contents = blobs(self._git, [change.new for change in batch])
            for change in batch:
                self._touch(change.path, change.mode, contents[change.new or ""])

    def _touch(self, path: bytes, mode: str = "", data: bytes | None = None) -> None:
        """Write or delete a file, unless it is a store: sessions are never restored."""
        rules = self._rules
        if not rules.may_track(path) or rules.is_store(path) or is_store_data(data or b""):
            return
        try:
            if data is None:
                delete_file(rules.folder, path)
            else:
                place_file(rules.folder, path, mode, data)
        except OSError:
            self._skipped.append(path)
        else:
            (self._deleted if data is None else self._written).append(path)

    # --- files that may have existed ---

    def _possibly_unseen(self, tree: str, deleted: list[bytes], written: list[bytes]) -> set[bytes]:
        """Deleted files that the tree would not contain even if they had existed then."""
        sure = self._absent(tree).union(self._new_paths, *(_parents(path) for path in written))
        files, unsure = set(written), (path for path in deleted if path not in sure)
        doubtful = [path for path in unsure if files.isdisjoint(_parents(path))]
        if not doubtful:
            return set()
        large = {path for path in doubtful if self._rules.kind(path) == "large"}
        return large | self._ignored(tree, doubtful)

    def _ignored(self, tree: str, paths: list[bytes]) -> set[bytes]:
        """The paths that a tree's .gitignore files ignore."""
        ignore_files = diff_trees(self._git, EMPTY_TREE, tree, ":(glob)**/.gitignore")
        rules = [(change.new or "", change.path) for change in ignore_files if change.mode != LINK]
        contents = blobs(self._git, [blob for blob, _ in rules])
        with tempfile.TemporaryDirectory(prefix="foldmark-rules-") as temporary:
            folder = Path(temporary)
            for blob, path in rules:
                place_file(folder, path, "100644", contents[blob])
            command = ("check-ignore", "--no-index", "-z", "--stdin")
            # A name that starts with a colon would be read as a pattern.
            payload = nul_terminated(b"./" + path for path in paths)
            output = self._git.output(*command, payload=payload, folder=folder, ok_codes=(0, 1))
        return {path.removeprefix(b"./") for path in output.split(b"\0")}

    def _record_absent(self, before: str, paths: list[bytes]) -> None:
        """Record files that a restore brings back, so that undoing it deletes them."""
        if paths:
            paths_data = nul_terminated(sorted(self._absent(before).union(paths)))
            write_private(self._git.repository / "absent" / before, paths_data)

    def _absent(self, tree: str) -> set[bytes]:
        """Files known not to have existed when a tree was taken."""
        with suppress(OSError):
            return set((self._git.repository / "absent" / tree).read_bytes().split(b"\0"))
        return set()


def blocking_files(rules: Rules, changes: list[FileChange]) -> dict[bytes, bytes]:
    """Paths to restore, each with the untracked file at or above it that is in the way."""
    tracked = {change.path for change in changes if change.change != "added"}
    blocked: dict[bytes, bytes] = {}
    for change in changes:
        if change.change == "added":
            paths = ((path, rules.status(path)) for path in (*_parents(change.path), change.path))
            files = (path for path, entry in paths if entry and not stat.S_ISDIR(entry.st_mode))
            file = next(files, None)
            if file is not None and file not in tracked:
                blocked[change.path] = file
    return blocked


def _parents(path: bytes) -> list[bytes]:
    """The folders above a path, outermost first."""
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]


def _names(paths: list[bytes]) -> tuple[str, ...]:
    return tuple(sorted(map(os.fsdecode, paths)))


# --- files below the folder: links are not followed, writes are atomic ---


def place_file(folder: Path, path: bytes, mode: str, data: bytes) -> None:
    """Write a file or link. Raises OSError if something untracked is in the way."""
    name = path.rpartition(b"/")[2]
    with _parent(folder, path, make=True) as parent:
        mode_before = None
        with suppress(OSError):
            mode_before = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if mode_before is not None and stat.S_ISDIR(mode_before):
            _remove_empty(parent, name)
        if mode == LINK:
            with replace_atomically(parent, name) as temporary:
                os.symlink(data, temporary, dir_fd=parent)
            return
        is_executable, permissions = mode == EXECUTABLE, None
        if mode_before is not None and stat.S_ISREG(mode_before):  # but the executable bits
            permissions = mode_before & 0o666 | ((mode_before & 0o444) >> 2 if is_executable else 0)
        write_file(parent, name, data, permissions, default=0o777 if is_executable else 0o666)


def _remove_empty(parent: int, name: bytes) -> None:
    """Remove a folder that contains only empty folders."""
    for _, folders, _, number in os.fwalk(name, topdown=False, dir_fd=parent):
        for folder in folders:
            with suppress(OSError):
                os.rmdir(folder, dir_fd=number)
    os.rmdir(name, dir_fd=parent)


def delete_file(folder: Path, path: bytes) -> None:
    """Delete a file or link."""
    with _parent(folder, path) as parent:
        os.unlink(path.rpartition(b"/")[2], dir_fd=parent)


def remove_empty_folders(folder: Path, path: bytes) -> None:
    """Remove the folders above a path that are now empty, up to the working folder."""
    above = path.rpartition(b"/")[0]
    with suppress(OSError):
        while above:
            with _parent(folder, above) as parent:
                os.rmdir(above.rpartition(b"/")[2], dir_fd=parent)
            above = above.rpartition(b"/")[0]


def _parent(folder: Path, path: bytes, *, make: bool = False) -> AbstractContextManager[int]:
    """The folder of a path, opened without following links."""
    return open_folder(folder, path.split(b"/")[:-1], make=make)
