"""Snapshots of a working folder: trees in a git repository apart from the project's.

A snapshot is the hash of a tree. Any two can be compared, and the folder can be restored to each.
Ignored and large new files are left out unless a tool wrote them; only .gitignore files inside the
folder count. This module does not know to which step a snapshot belongs.
"""

import os
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import user_data
from foldmark.model.operations import FileDiff

from .diff import PATCH, blobs, check_trees, diff_trees, file_diff
from .git import Git, GitEnded, GitFailed, NoGit, git_program, shadow_repository, stop_on
from .index import Index
from .restore import Restore, RestoreResult, blocking_files
from .rules import MAX_BYTES, IncludeList, Rules, ScanResult, relative_path

_ATTEMPTS = 4  # files may change during a snapshot
__all__ = ["MAX_BYTES", "GitEnded", "NoGit", "RestoreResult", "Snapshots", "stop_on"]


class Snapshots:
    """Takes snapshots of one folder. Threads and processes may share it."""

    def __init__(
        self, folder: Path, *, home: Path | None = None, exclude: Iterable[Path] = ()
    ) -> None:
        """Use this folder, the home of its snapshots, and paths to exclude.

        An excluded path is a folder, or a file with its companion database files.
        """
        self.folder = Path(os.path.realpath(folder))
        data = user_data()
        name = sha256(os.fsencode(self.folder)).hexdigest()[:16]
        self.home = Path(os.path.realpath(home or data / "snapshots" / name))
        self._git = Git(git_program(self.folder), shadow_repository(self.home), self.folder)
        self._index = Index(self._git)
        self._rules = Rules(self.folder, (*exclude, self.home, data))
        self._included = IncludeList(self._git.repository, self._rules)
        self._lock = threading.RLock()
        self._tracked_includes: set[bytes] = set()  # included files that are in the index
        self._revision = -1  # revision of the excludes that the index was cleaned for

    # --- taking snapshots ---

    def take(self) -> str:
        """Take a snapshot of the folder and return the hash of its tree."""
        with self._lock, self._index.hold_lock():
            attempts = _ATTEMPTS
            while True:
                if not self.folder.is_dir():
                    raise StoreError(str(self.folder), "the working folder does not exist")
                try:
                    return self._take()
                except GitFailed as error:
                    attempts -= 1
                    if not attempts:
                        raise
                    self._index.discard_if_damaged(error)

    def exclude(self, paths: Iterable[Path]) -> None:
        """Exclude more paths from now on; repeating a path costs nothing."""
        with self._lock:
            self._rules.exclude(paths)

    def _take(self) -> str:
        if self._index.prepare():
            self._tracked_includes.clear()
            self._revision = -1
        self._included.read()
        self._clean()
        changes = self._changes()
        untracked = self._included.paths - self._tracked_includes
        new_includes = [path for path in untracked if self._rules.is_present(path)]
        if changes.remove:
            self._index.remove(changes.remove)
        if changes.update or new_includes:
            self._index.put([*changes.update, *new_includes])
        self._tracked_includes.update(new_includes)
        self._tracked_includes.difference_update(changes.missing, changes.remove)
        return self._index.tree()

    def _clean(self) -> None:
        """Remove files from the index that are excluded by now."""
        if self._revision != self._rules.revision:
            self._revision = self._rules.revision
            names = self._index.tracked_paths()
            if refused := [name for name in names if not self._rules.may_track(name)]:
                self._index.remove(refused)
                self._tracked_includes.difference_update(refused)

    def _changes(self) -> ScanResult:
        """The differences from the index, including repositories inside the folder."""
        options = self._rules.options()
        opened: set[bytes] = set()
        while True:
            result = self._rules.classify(self._index.scan(*options), self._included.paths)
            nested = [path for path in result.nested if path not in opened]
            if not nested:
                return result
            opened.update(nested)
            self._index.open_nested(nested)

    # --- included files ---

    def include(self, paths: Iterable[str]) -> bool:
        """Track these files even if they are ignored or large: a tool writes or wrote them.

        A file that is included before it exists is known to be new, so a restore may delete it.
        Returns whether a file exists that was not included before, so that the next snapshot may be
        its first.
        """
        with self._lock:
            self._included.read()
            relative_paths = (relative_path(self.folder, path) for path in paths)
            new = {each for each in relative_paths if each} - self._included.paths
            self._included.add(new)
            return any(map(self._rules.is_present, new))

    # --- comparing ---

    def diff(self, old: str, new: str, *, texts: bool = True) -> tuple[FileDiff, ...]:
        """The changed files between two snapshots, sorted by name.

        Texts above the size limit are left empty, or all texts without `texts`; lines are still
        counted.
        """
        file_changes = diff_trees(self._git, old, new)
        with_text = [change for change in file_changes if texts and change.lines is not None]
        names = [name for change in with_text for name in (change.old, change.new)]
        contents = blobs(self._git, names, self._rules.max_bytes)
        diffs = (file_diff(change, os.fsdecode(change.path), contents) for change in file_changes)
        return tuple(sorted(diffs, key=lambda diff: diff.file))

    def patch(self, old: str, new: str, *, readable: bool = False) -> bytes:
        """The patch from one snapshot to another, as `git apply` accepts it."""
        check_trees(self._git, old, new)
        # Binary content is for programs only.
        if readable:
            return self._git.output("-c", "core.quotePath=false", *PATCH, old, new)
        return self._git.output("-c", "core.quotePath=true", *PATCH, "--binary", old, new)

    # --- restoring ---

    def restore(self, tree: str) -> RestoreResult:
        """Restore the folder's files to a snapshot, after taking one.

        Untracked files are left alone, and so are files that may have existed untracked: ignored by
        the rules of that time, or large.
        """
        with self._lock:
            check_trees(self._git, tree)
            before = self.take()
            file_changes = diff_trees(self._git, before, tree)
            if blocking := blocking_files(self._rules, file_changes):
                # Include untracked files that would be overwritten.
                self._included.add(set(blocking.values()))
                before = self.take()
                file_changes = diff_trees(self._git, before, tree)
            restoring = Restore(self._git, self._rules, self._included.new_paths)
            return restoring.run(before, tree, file_changes)
