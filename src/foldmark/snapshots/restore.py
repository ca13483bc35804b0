"""A folder taken back to a tree: what is written, what is deleted, and what is left alone.

Of a file that the tree does not hold it is not known that it was not there: it may have been
ignored then, or large. Such a file stays. Who takes the snapshot before this is told elsewhere.
"""

import os
import stat
import tempfile
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from foldmark.files import open_folder, placed, write_file, write_private
from foldmark.model.values import Frozen

from .diff import EMPTY_TREE, EXECUTABLE, LINK, Changed, blobs, changes
from .git import Git, zero_ended
from .rules import Rules, is_store_data

_AT_ONCE = 64  # files that are held in memory while they are written


class Restored(Frozen):
    """What a restore did, by paths; `before` is the snapshot by which it is taken back."""

    before: str
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    skipped: tuple[str, ...] = ()  # left as they are: maybe there unseen, or not to be written


class Restoring:
    """One restore of a folder."""

    def __init__(self, git: Git, rules: Rules, born: set[bytes]) -> None:
        """Take git, which files snapshots hold, and which of them tools made."""
        self._git = git
        self._born = born
        self._rules = rules
        self._written: list[bytes] = []
        self._deleted: list[bytes] = []
        self._skipped: list[bytes] = []

    def done(self, before: str, tree: str, found: list[Changed]) -> Restored:
        """Make the folder as the tree is; `found` is how that differs from the one before."""
        blocked = in_the_way(self._rules, found)
        back = [change for change in found if change.change != "deleted"]
        gone = [change.path for change in found if change.change == "deleted"]
        kept = self._maybe_unseen(tree, gone, [change.path for change in back])
        self._note_absent(before, [change.path for change in back if change.change == "added"])
        for path in gone:
            self._skipped.append(path) if path in kept else self._touch(path)
        self._skipped += [change.path for change in back if change.path in blocked]
        self._write_all([change for change in back if change.path not in blocked])
        for path in self._deleted:
            remove_empty_folders(self._rules.folder, path)
        return Restored(
            before=before,
            written=_names(self._written),
            deleted=_names(self._deleted),
            skipped=_names(self._skipped),
        )

    def _write_all(self, wanted: list[Changed]) -> None:
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            held = blobs(self._git, [change.new for change in some])
            for change in some:
                self._touch(change.path, change.mode, held[change.new or ""])

    def _touch(self, path: bytes, mode: str = "", data: bytes | None = None) -> None:
        """Write a file, or delete it; what people said is not taken back: no store is touched."""
        rules = self._rules
        if not rules.may_hold(path) or rules.is_store(path) or is_store_data(data or b""):
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

    # --- what may have been there ---

    def _maybe_unseen(self, tree: str, gone: list[bytes], back: list[bytes]) -> set[bytes]:
        """Files that the tree would not hold, had they been there when it was taken."""
        sure = self._absent(tree).union(self._born, *(_above(path) for path in back))
        files = set(back)
        doubtful = [path for path in gone if path not in sure and files.isdisjoint(_above(path))]
        if not doubtful:
            return set()
        large = {path for path in doubtful if self._rules.kind(path) == "large"}
        return large | self._ignored(tree, doubtful)

    def _ignored(self, tree: str, paths: list[bytes]) -> set[bytes]:
        """Paths that the .gitignore files of a tree ignore."""
        found = changes(self._git, EMPTY_TREE, tree, ":(glob)**/.gitignore")
        rules = [(change.new or "", change.path) for change in found if change.mode != LINK]
        held = blobs(self._git, [blob for blob, _ in rules])
        with tempfile.TemporaryDirectory(prefix="foldmark-rules-") as made:
            folder = Path(made)
            for blob, path in rules:
                place_file(folder, path, "100644", held[blob])
            ask = ("check-ignore", "--no-index", "-z", "--stdin")
            # A name that begins with a colon would be taken for more than a name.
            given = zero_ended(b"./" + path for path in paths)
            told = self._git.output(*ask, given=given, folder=folder, fine=(0, 1))
        return {path.removeprefix(b"./") for path in told.split(b"\0")}

    def _note_absent(self, before: str, paths: list[bytes]) -> None:
        """Note what a restore brings back, so that to take it back is to delete that."""
        if paths:
            noted = zero_ended(sorted(self._absent(before).union(paths)))
            write_private(self._git.repository / "absent" / before, noted)

    def _absent(self, tree: str) -> set[bytes]:
        """What is known not to have been there when a tree was taken."""
        with suppress(OSError):
            return set((self._git.repository / "absent" / tree).read_bytes().split(b"\0"))
        return set()


def in_the_way(rules: Rules, found: list[Changed]) -> dict[bytes, bytes]:
    """Paths that come back, each with the file there or above it that no snapshot holds."""
    known = {change.path for change in found if change.change != "added"}
    blocked: dict[bytes, bytes] = {}
    for change in found:
        if change.change == "added":
            places = ((place, rules.status(place)) for place in (*_above(change.path), change.path))
            files = (place for place, has in places if has and not stat.S_ISDIR(has.st_mode))
            file = next(files, None)
            if file is not None and file not in known:
                blocked[change.path] = file
    return blocked


def _above(path: bytes) -> list[bytes]:
    """The folders above a path, the outermost first."""
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]


def _names(paths: list[bytes]) -> tuple[str, ...]:
    return tuple(sorted(map(os.fsdecode, paths)))


# --- files below the folder, never through a link; each is whole at any moment ---


def place_file(folder: Path, path: bytes, mode: str, data: bytes) -> None:
    """Put a file or a link in its place; OSError where something stands there that is not ours."""
    name = path.rpartition(b"/")[2]
    with _parent(folder, path, make=True) as parent:
        there = None
        with suppress(OSError):
            there = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if there is not None and stat.S_ISDIR(there):
            _remove_empty(parent, name)
        if mode == LINK:
            with placed(parent, name) as between:
                os.symlink(data, between, dir_fd=parent)
            return
        runs, kept = mode == EXECUTABLE, None
        if there is not None and stat.S_ISREG(there):  # its permissions, but for who may run it
            kept = there & 0o666 | ((there & 0o444) >> 2 if runs else 0)
        write_file(parent, name, data, kept, usual=0o777 if runs else 0o666)


def _remove_empty(parent: int, name: bytes) -> None:
    """Remove a folder that holds nothing but such folders; the rest of it stays."""
    for _, folders, _, number in os.fwalk(name, topdown=False, dir_fd=parent):
        for folder in folders:
            with suppress(OSError):
                os.rmdir(folder, dir_fd=number)
    os.rmdir(name, dir_fd=parent)


def delete_file(folder: Path, path: bytes) -> None:
    """Delete a file or a link."""
    with _parent(folder, path) as parent:
        os.unlink(path.rpartition(b"/")[2], dir_fd=parent)


def remove_empty_folders(folder: Path, path: bytes) -> None:
    """Remove the folders above a path that are empty now, but never the first of them."""
    above = path.rpartition(b"/")[0]
    with suppress(OSError):
        while above:
            with _parent(folder, above) as parent:
                os.rmdir(above.rpartition(b"/")[2], dir_fd=parent)
            above = above.rpartition(b"/")[0]


def _parent(folder: Path, path: bytes, *, make: bool = False) -> AbstractContextManager[int]:
    """The folder in which a path lies, opened without following links."""
    return open_folder(folder, path.split(b"/")[:-1], make=make)
