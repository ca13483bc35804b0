"""Snapshots of a working folder: its files as trees in a git repository apart from the project's.

A snapshot is the hash of a tree. Between any two of them there is a diff, and the folder can be
taken back to any. Ignored files and large new ones are left out, unless a tool wrote them; of
.gitignore files, those inside the folder count. Whose step a snapshot belongs to is told elsewhere.
"""

import logging
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from foldmark.errors import StoreError
from foldmark.filediffs import FileDiff

from .snapshot_git import Git, GitFailed, git_program, shadow_repository, zero_ended
from .snapshot_index import Index
from .snapshot_reading import blobs, changed_paths, changes, checked_tree, file_diff
from .snapshot_restoring import Restored, Restoring, in_the_way
from .snapshot_scanning import Found, Rules, within
from .snapshot_trees import Entry, NotSo, Trees

MOST_BYTES = 2 * 2**20
_BORN, _FOUND = b"-", b"+"  # before the name of an included file: it was not there, or was
_TRIES = 4  # of a snapshot; files may change while it is taken
__all__ = ["MOST_BYTES", "Restored", "Snapshots", "snapshots"]
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
        self.home = Path(os.path.realpath(home or _default_home(self.folder)))
        program = git_program(self.folder)
        if program is None:
            raise StoreError(str(self.folder), "snapshots need git; install it")
        self._most_bytes = most_bytes
        self._git = Git(program, shadow_repository(self.home), self.folder)
        self._index = Index(self._git, self.home)
        self._rules = Rules(self.folder, most_bytes, (*leave_out, self.home))
        self._trees = Trees(self._git)
        self._latest: str | None = None  # the newest snapshot
        self._lock = threading.RLock()
        self._list = self.home / "included"
        self._list_size = 0
        self._included: set[bytes] = set()
        self._born: set[bytes] = set()  # of these, what was not there when it was included
        self._held: set[bytes] = set()  # of these, what the index has

    # --- taking ---

    def take(self) -> str:
        """The folder as it is now, by the hash of its tree."""
        with self._lock:
            for tries in range(_TRIES, 0, -1):
                if not self.folder.is_dir():
                    raise StoreError(str(self.folder), "the working folder is gone; make it again")
                try:
                    self._latest = self._taken()
                except GitFailed as error:
                    if tries == 1:
                        raise
                    self._index.discard(error)
                else:
                    return self._latest
            raise AssertionError("the last try returns or raises")

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
                self._trees.load(self._latest)
                self._latest = self._trees.changed({path: self._file(path) for path in held})
            except (NotSo, OSError):
                return self.take()
            return self._latest

    def _file(self, path: bytes) -> Entry | None:
        if self._rules.status(path) is not None and not self._rules.there(path):
            raise NotSo  # through a link, or no file: how such things are held, a scan decides
        return self._trees.file(path)

    def _taken(self) -> str:
        if self._index.ready():
            self._held.clear()
        self._read_included()
        found = self._found()
        wanted = [path for path in self._included - self._held if self._rules.there(path)]
        if found.gone:
            self._index.remove(found.gone)
        if found.put or wanted:
            self._index.put([*found.put, *wanted])
        tree = self._index.written()
        self._held.update(wanted)
        self._held.difference_update(found.missing, found.gone)
        return tree

    def _found(self) -> Found:
        options = self._rules.options()
        found = self._rules.found(self._index.listed(*options), self._included)
        seen: set[bytes] = set()
        while nested := [path for path in found.nested if path not in seen]:
            seen.update(nested)
            self._index.open_nested(nested)
            found = self._rules.found(self._index.listed(*options), self._included)
        return found

    def include(self, paths: Iterable[str]) -> bool:
        """Remember these files, ignored, large or not: a tool writes them, or has written them.

        Told before it is written, a file that is not there yet is known to be new: a restore may
        delete it, whatever else ignores it. Whether one of them is there, and was not known to
        be wanted: then the next snapshot may be the first to hold it.
        """
        with self._lock:
            self._read_included()
            places = (within(self.folder, path) for path in paths)
            new = {place for place in places if place} - self._included
            self._include(new)
            return any(self._rules.there(place) for place in new)

    def _include(self, places: set[bytes]) -> None:
        new = sorted(place for place in places if self._rules.may_hold(place))
        if not new:
            return
        born = {place for place in new if self._rules.status(place) is None}
        # A zero before it, too: a process may have been killed within a name.
        marked = (_BORN + place if place in born else _FOUND + place for place in new)
        self._append(b"\0" + zero_ended(marked))
        self._included.update(new)
        self._born.update(born)

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            number = os.open(self._list, flags, 0o600)
            with os.fdopen(number, "ab") as file:
                file.write(data)
        except OSError as error:
            raise StoreError(str(self._list), f"cannot be written: {error.strerror}") from None

    def _read_included(self) -> None:
        """Other processes include files, too."""
        with suppress(OSError):
            size = self._list.stat().st_size
            if size != self._list_size:
                names = self._list.read_bytes().rpartition(b"\0")[0].split(b"\0")
                held = [name for name in names if self._rules.may_hold(name[1:])]
                self._included = {name[1:] for name in held}
                self._born = {name[1:] for name in held if name.startswith(_BORN)}
                self._list_size = size

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

    # --- going back ---

    def restore(self, tree: str) -> Restored:
        """Make the folder's files as they were; a snapshot is taken first.

        Files that are not in snapshots are left alone, and so are those that may have been there
        without being seen: ignored by the rules of that time, or large.
        """
        with self._lock:
            checked_tree(self._git, tree)
            before = self.take()
            found = changes(self._git, before, tree)
            if hidden := in_the_way(self._rules, found):
                # What is there unseen would be lost: it is remembered first.
                self._include(set(hidden.values()))
                before = self.take()
                found = changes(self._git, before, tree)
            restoring = Restoring(self._git, self.home, self._rules, self._born)
            return restoring.done(before, tree, found)


def _default_home(folder: Path) -> Path:
    """Where the snapshots of a folder are kept, unless it is said."""
    told = os.environ.get("XDG_DATA_HOME", "")
    data = Path(told) if Path(told).is_absolute() else Path.home() / ".local" / "share"
    return data / "foldmark" / "snapshots" / sha256(os.fsencode(folder)).hexdigest()[:16]


def snapshots(
    folder: Path,
    *,
    home: Path | None = None,
    most_bytes: int = MOST_BYTES,
    leave_out: Iterable[Path] = (),
) -> Snapshots | None:
    """The snapshots of a folder; None, with a warning, where git is not installed."""
    if git_program(Path(os.path.realpath(folder))) is None:
        _log.warning("git is not installed: no snapshots are taken, files cannot be taken back")
        return None
    return Snapshots(folder, home=home, most_bytes=most_bytes, leave_out=leave_out)
