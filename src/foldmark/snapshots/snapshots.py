"""Snapshots of a working folder: its files as trees in a git repository apart from the project's.

A snapshot is the hash of a tree. Between any two of them there is a diff, and the folder can be
taken back to any. Ignored files and large new ones are left out, unless a tool wrote them; of
.gitignore files, those inside the folder count. Whose step a snapshot belongs to is told elsewhere.
"""

import logging
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.model.file_diffs import FileDiff

from .git import Git, GitEnded, GitFailed, git_program, shadow_repository, stopped_by, why_no_git
from .included import Included
from .index import Index
from .looking import RULES, Memory, Odd
from .reading import blobs, changed_paths, changes, checked_tree, file_diff, patch
from .remembering import MOST_FILES, Earlier, listed_before, remembered
from .restoring import Restored, Restoring, in_the_way
from .scanning import Found, Rules, within
from .trees import Entry, NotSo, Trees

MOST_BYTES = 2 * 2**20
_TRIES = 4  # of a snapshot; files may change while it is taken
_FEW = 100  # files that are read once more rather than a tree
_SCAN_EACH = 256  # looks; then git scans, whatever we believe to know
__all__ = [
    "MOST_BYTES",
    "GitEnded",
    "Restored",
    "Snapshots",
    "snapshots",
    "stopped_by",
    "why_no_git",
]
_log = logging.getLogger("foldmark")


class Snapshots:
    """Remembers the files of one folder. Threads and processes may use it at the same time."""

    def __init__(
        self,
        folder: Path,
        *,
        home: Path | None = None,
        most_bytes: int = MOST_BYTES,
        leave_out: Iterable[Path] = (),
    ) -> None:
        """Take the folder, where snapshots of it are kept, and what is not to be seen of it.

        New files of more than `most_bytes` are left out, and texts of more are not shown in diffs.
        A path that is left out is a folder, or a file with those of its database beside it.
        """
        self.folder = Path(os.path.realpath(folder))
        data = _data_home()
        self.home = Path(os.path.realpath(home or _default_home(data, self.folder)))
        program = git_program(self.folder)
        if program is None:
            raise StoreError(str(self.folder), f"snapshots need git: {why_no_git(self.folder)}")
        self._most_bytes = most_bytes
        self._git = Git(program, shadow_repository(self.home), self.folder)
        self._index = Index(self._git, self.home)
        self._rules = Rules(self.folder, most_bytes, (*leave_out, self.home, data))
        self._included = Included(self.home, self._rules)
        self._trees = Trees(self._git)
        self._memory: Memory | None = None
        self._latest: str | None = None  # the newest snapshot
        self._lock = threading.RLock()
        self._held: set[bytes] = set()  # of what is included, what the index has
        self._lost: set[bytes] = set()  # what is gone, and what the index has still
        self._growth = -1  # of what is left out, when the index was looked through for it

    # --- taking ---

    def take(self) -> str:
        """The folder as it is now, by the hash of its tree.

        Where only files changed that are known, no process is needed; else git scans the folder.
        """
        with self._lock:
            self._latest = self._looked() or self._scanned()
            return self._latest

    def leave_out(self, paths: Iterable[Path]) -> None:
        """Leave out more from now on; to be told again what is left out costs nothing."""
        with self._lock:
            self._rules.leave_out(paths)

    def take_files(self, paths: Iterable[str]) -> str:
        """The folder as it was, with these files as they are now: nothing else is looked at.

        That needs no process. What others changed meanwhile is seen by the next `take`.
        """
        with self._lock:
            if self._latest is None:
                return self.take()
            places = (within(self.folder, path) for path in paths)
            held = [place for place in places if place and self._rules.may_hold(place)]
            try:
                files = {path: self._file(path) for path in held}
                tree = self._changed(self._latest, files)
            except (NotSo, OSError):
                return self.take()
            self._follow(files, tree)
            self._latest = tree
            return tree

    def _file(self, path: bytes) -> Entry | None:
        if not self._rules.there(path) and self._rules.status(path) is not None:
            raise NotSo  # through a link, or no file: how such things are held, a scan decides
        return self._trees.file(path)

    def _changed(self, tree: str, files: dict[bytes, Entry | None]) -> str:
        self._trees.load(tree)
        self._lost.update(path for path, entry in files.items() if entry is None)
        return self._trees.changed(files)

    def _follow(self, files: dict[bytes, Entry | None], tree: str) -> None:
        """Have the memory stand for a tree in which somebody told of files."""
        memory = self._memory
        if memory is None or memory.tree != self._latest:
            return
        known = memory.files.keys() | self._included.paths
        if any(path.rpartition(b"/")[2] == RULES or path not in known for path in files):
            self._memory = None  # what is ignored by now, git must say
            return
        memory.forget(path for path, entry in files.items() if entry is None)
        for path, entry in files.items():
            if entry is not None:
                memory.add(path)
        memory.tree = tree

    # --- a look, without a process ---

    def _looked(self) -> str | None:
        """The folder as it is now, where that can be told from what is remembered."""
        memory = self._memory
        if memory is None or not self._is_fresh(memory):
            return None
        try:
            seen = memory.seen()
            if not seen.changed and not seen.gone:
                return memory.tree
            files = {path: self._file(path) for path in seen.changed}
            files.update(dict.fromkeys(seen.gone))
            tree = self._changed(memory.tree, files)
        except (Odd, NotSo, OSError):
            return None
        if None in (files[path] for path in seen.changed):
            return None  # it went while we looked
        memory.note(seen, tree)
        return tree

    def _is_fresh(self, memory: Memory) -> bool:
        """Whether what is remembered is of this process, and of all that it should look at."""
        self._included.read()
        return (
            memory.tree == self._latest == self._trees.name
            and memory.process == os.getpid()
            and memory.growth == self._rules.growth
            and memory.looks < _SCAN_EACH
            and self._trees.is_kept()
            and not any(map(self._rules.there, self._included.paths - memory.files.keys()))
        )

    # --- a scan, by git ---

    def _scanned(self) -> str:
        """The folder as it is now, whatever changed; it is remembered for the next look."""
        memory, self._memory = self._memory, None
        if memory is not None and memory.process != os.getpid():
            memory = None
        for tries in range(_TRIES, 0, -1):
            if not self.folder.is_dir():
                raise StoreError(str(self.folder), "the working folder is gone; make it again")
            moment = time.time_ns()
            earlier = Earlier(moment, listed_before(self._rules, memory), memory)
            try:
                return self._taken(earlier)
            except GitFailed as error:
                if tries == 1:
                    raise
                self._index.discard(error)
        raise AssertionError("the last try returns or raises")

    def _taken(self, earlier: Earlier) -> str:
        if self._index.ready():
            self._held.clear()
            self._growth = -1
        self._included.read()
        self._clean()
        found = self._found()
        included = self._included.paths
        wanted = [path for path in included - self._held if self._rules.there(path)]
        if found.gone:
            self._index.remove(found.gone)
        if found.put or wanted:
            self._index.put([*found.put, *wanted])
        tree = self._index.written()
        self._held.update(wanted)
        self._held.difference_update(found.missing, found.gone)
        if self._growth != self._rules.growth:  # a home of snapshots was found
            self._clean()
            tree = self._index.written()
        self._remember(tree, [*found.put, *wanted], found, earlier)
        return tree

    def _clean(self) -> None:
        """Have the index forget what is gone, and what must not be held though it was."""
        refused: list[bytes] = []
        while self._growth != self._rules.growth:
            self._growth = self._rules.growth
            refused = self._rules.refused(self._index.names())
        if refused or self._lost:
            self._index.remove([*refused, *self._lost])
            self._held.difference_update(refused, self._lost)
            self._lost.clear()

    def _found(self) -> Found:
        options = self._rules.options()
        found = self._rules.found(self._index.listed(*options), self._included.paths)
        seen: set[bytes] = set()
        while nested := [path for path in found.nested if path not in seen]:
            seen.update(nested)
            self._index.open_nested(nested)
            found = self._rules.found(self._index.listed(*options), self._included.paths)
        return found

    def _remember(self, tree: str, put: list[bytes], found: Found, earlier: Earlier) -> None:
        """Remember the folder for the next look, where that will be quicker than a scan."""
        if self._index.size() > MOST_FILES:
            return
        if self._trees.name != tree:
            self._learn(tree, {*put, *found.gone})
        held = set(self._trees.paths())
        if held.issuperset(set(put) - set(found.missing)):  # else git refused to read some of it
            self._memory = remembered(self._git, self._rules, self._trees, earlier)

    def _learn(self, tree: str, touched: set[bytes]) -> None:
        """Hold a tree: most often it is the one that we have, with what git has just put there."""
        if self._trees.name is not None and len(touched) <= _FEW:
            with suppress(NotSo, OSError):
                self._trees.changed({path: self._file(path) for path in touched})
        self._trees.load(tree)

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

    def changed(self, old: str, new: str) -> tuple[str, ...]:
        """The files that differ between two snapshots."""
        return tuple(sorted(map(os.fsdecode, changed_paths(self._git, old, new))))

    def diff(self, old: str, new: str) -> tuple[FileDiff, ...]:
        """How files differ between two snapshots, sorted by their names.

        A text of more bytes than new files may have is left empty; its lines are counted.
        """
        found = changes(self._git, old, new)
        texts = [change for change in found if change.lines is not None]
        names = [name for change in texts for name in (change.old, change.new)]
        held = blobs(self._git, names, self._most_bytes)
        diffs = (file_diff(change, os.fsdecode(change.path), held) for change in found)
        return tuple(sorted(diffs, key=lambda diff: diff.file))

    def counted(self, old: str, new: str) -> tuple[FileDiff, ...]:
        """`diff` without the texts: which files differ, and by how many lines."""
        found = changes(self._git, old, new)
        diffs = (file_diff(change, os.fsdecode(change.path), {}) for change in found)
        return tuple(sorted(diffs, key=lambda diff: diff.file))

    def patch(self, old: str, new: str, *, for_people: bool = False) -> bytes:
        """How one snapshot becomes another; for people, files that are no text are only named."""
        return patch(self._git, old, new, for_people=for_people)

    # --- going back ---

    def restore(self, tree: str) -> Restored:
        """Make the folder's files as they were; a snapshot is taken first.

        Files that are not in snapshots are left alone, and so are those that may have been there
        without being seen: ignored by the rules of that time, or large.
        """
        with self._lock:
            checked_tree(self._git, tree)
            self._memory = None  # git scans: what is written over must have been seen
            before = self.take()
            found = changes(self._git, before, tree)
            if hidden := in_the_way(self._rules, found):
                # What is there unseen would be lost: it is remembered first.
                self._included.add(set(hidden.values()))
                self._memory = None
                before = self.take()
                found = changes(self._git, before, tree)
            restoring = Restoring(self._git, self.home, self._rules, self._included.born)
            self._memory = None
            return restoring.done(before, tree, found)


def _data_home() -> Path:
    """Where all is kept of which the user need not know."""
    told = os.environ.get("XDG_DATA_HOME", "")
    data = Path(told) if Path(told).is_absolute() else Path.home() / ".local" / "share"
    return data / "foldmark"


def _default_home(data: Path, folder: Path) -> Path:
    """Where the snapshots of a folder are kept, unless it is said."""
    return data / "snapshots" / sha256(os.fsencode(folder)).hexdigest()[:16]


def snapshots(
    folder: Path,
    *,
    home: Path | None = None,
    most_bytes: int = MOST_BYTES,
    leave_out: Iterable[Path] = (),
) -> Snapshots | None:
    """The snapshots of a folder; None, with a warning, where there is no git for it."""
    if (cause := why_no_git(folder)) is not None:
        _log.warning("no snapshots are taken, files cannot be taken back: %s", cause)
        return None
    return Snapshots(folder, home=home, most_bytes=most_bytes, leave_out=leave_out)
