"""Snapshots of a working folder: its files as trees in a git repository apart from the project's.

A snapshot is the hash of a tree. Between any two of them there is a diff, and the folder can be
taken back to any. Ignored files and large new ones are left out, unless a tool wrote them; of
.gitignore files, those inside the folder count. Whose step a snapshot belongs to is told elsewhere.
"""

import os
import threading
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.files import user_data
from foldmark.model.operations import FileDiff

from .diff import PATCH, blobs, changes, check_trees, file_diff
from .git import Git, GitEnded, GitFailed, NoGit, git_program, shadow_repository, stopped_by
from .index import Index
from .restore import Restored, Restoring, in_the_way
from .rules import MOST_BYTES, Included, Rules, ScanResult, within

_TRIES = 4  # of a snapshot; files may change while it is taken
__all__ = ["MOST_BYTES", "GitEnded", "NoGit", "Restored", "Snapshots", "stopped_by"]


class Snapshots:
    """Remembers the files of one folder. Threads and processes may use it at the same time."""

    def __init__(
        self, folder: Path, *, home: Path | None = None, leave_out: Iterable[Path] = ()
    ) -> None:
        """Take the folder, where snapshots of it are kept, and what is not to be seen of it.

        A path that is left out is a folder, or a file with those of its database beside it.
        """
        self.folder = Path(os.path.realpath(folder))
        data = user_data()
        name = sha256(os.fsencode(self.folder)).hexdigest()[:16]
        self.home = Path(os.path.realpath(home or data / "snapshots" / name))
        self._git = Git(git_program(self.folder), shadow_repository(self.home), self.folder)
        self._index = Index(self._git)
        self._rules = Rules(self.folder, (*leave_out, self.home, data))
        self._included = Included(self._git.repository, self._rules)
        self._lock = threading.RLock()
        self._held: set[bytes] = set()  # of what is included, what the index has
        self._growth = -1  # of what is left out, when the index was looked through for it

    # --- taking ---

    def take(self) -> str:
        """The folder as it is now, by the hash of its tree."""
        with self._lock, self._index.locked():
            tries = _TRIES
            while True:
                if not self.folder.is_dir():
                    raise StoreError(str(self.folder), "the working folder is gone; make it again")
                try:
                    return self._take()
                except GitFailed as error:
                    tries -= 1
                    if not tries:
                        raise
                    self._index.discard(error)

    def leave_out(self, paths: Iterable[Path]) -> None:
        """Leave out more from now on; to be told again what is left out costs nothing."""
        with self._lock:
            self._rules.leave_out(paths)

    def _take(self) -> str:
        if self._index.begin():
            self._held.clear()
            self._growth = -1
        self._included.read()
        self._clean()
        changes = self._changes()
        included = self._included.paths
        wanted = [path for path in included - self._held if self._rules.there(path)]
        if changes.gone:
            self._index.remove(changes.gone)
        if changes.put or wanted:
            self._index.put([*changes.put, *wanted])
        self._held.update(wanted)
        self._held.difference_update(changes.missing, changes.gone)
        return self._index.tree()

    def _clean(self) -> None:
        """Have the index forget what must not be held, though it was when less was left out."""
        if self._growth != self._rules.growth:
            self._growth = self._rules.growth
            names = self._index.names()
            if refused := [name for name in names if not self._rules.may_hold(name)]:
                self._index.remove(refused)
                self._held.difference_update(refused)

    def _changes(self) -> ScanResult:
        """What differs from the index, also in repositories inside the folder."""
        options = self._rules.options()
        seen: set[bytes] = set()
        while True:
            result = self._rules.sort(self._index.listed(*options), self._included.paths)
            nested = [path for path in result.nested if path not in seen]
            if not nested:
                return result
            seen.update(nested)
            self._index.open_nested(nested)

    # --- what is included ---

    def include(self, paths: Iterable[str]) -> bool:
        """Remember these files, ignored, large or not: a tool writes them, or has written them.

        Told before it is written, a file that is not there yet is known to be new: a restore may
        delete it, whatever else ignores it. Whether one of them is there, and was not known to
        be wanted: then the next snapshot may be the first to hold it.
        """
        with self._lock:
            self._included.read()
            places = (within(self.folder, path) for path in paths)
            new = {place for place in places if place} - self._included.paths
            self._included.add(new)
            return any(self._rules.there(place) for place in new)

    # --- comparing ---

    def diff(self, old: str, new: str, *, texts: bool = True) -> tuple[FileDiff, ...]:
        """How files differ between two snapshots, sorted by their names.

        A text of more bytes than new files may have is left empty, or every one without `texts`;
        lines are counted all the same.
        """
        found = changes(self._git, old, new)
        shown = [change for change in found if texts and change.lines is not None]
        names = [name for change in shown for name in (change.old, change.new)]
        held = blobs(self._git, names, self._rules.most_bytes)
        diffs = (file_diff(change, os.fsdecode(change.path), held) for change in found)
        return tuple(sorted(diffs, key=lambda diff: diff.file))

    def patch(self, old: str, new: str, *, for_people: bool = False) -> bytes:
        """How one snapshot becomes another, as `git apply` takes it."""
        check_trees(self._git, old, new)
        # A program needs all of a file that is no text; a person would only see signs.
        if for_people:
            return self._git.output("-c", "core.quotePath=false", *PATCH, old, new)
        return self._git.output("-c", "core.quotePath=true", *PATCH, "--binary", old, new)

    # --- going back ---

    def restore(self, tree: str) -> Restored:
        """Make the folder's files as they were; a snapshot is taken first.

        Files that are not in snapshots are left alone, and so are those that may have been there
        without being seen: ignored by the rules of that time, or large.
        """
        with self._lock:
            check_trees(self._git, tree)
            before = self.take()
            found = changes(self._git, before, tree)
            if hidden := in_the_way(self._rules, found):
                # What is there unseen would be lost: it is remembered first.
                self._included.add(set(hidden.values()))
                before = self.take()
                found = changes(self._git, before, tree)
            restoring = Restoring(self._git, self._rules, self._included.born)
            return restoring.done(before, tree, found)
