"""A tree of git in memory, and the next one made of it without a process: a step costs little.

It knows blobs, links and folders, and writes them as git's own loose objects. Which files have
changed it is told; how the folder is looked through is told elsewhere.
"""

import os
import stat
import zlib
from binascii import unhexlify
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha1
from pathlib import Path
from secrets import token_hex

from .git import Git

MOST_BYTES = 16 * 2**20  # of a file; larger ones are left to git
_FOLDER, _LINK = b"40000", b"120000"
_PLAIN, _PROGRAM = b"100644", b"100755"
_BETWEEN = "tmp_obj_"  # as git names what is not whole yet, and cleans away
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
Entry = tuple[bytes, bytes]  # its mode, and the name of its object in hexadecimal
Folder = dict[bytes, Entry]


class NotSo(Exception):
    """What is to be changed is not what the tree has there; git must look for itself."""


class Trees:
    """One tree with all its folders."""

    def __init__(self, git: Git) -> None:
        """Take the repository."""
        self._git = git
        self._objects = f"{git.repository}/objects"
        self._folders: dict[bytes, Folder] = {}
        self.name: str | None = None  # of the tree that is held

    def load(self, tree: str) -> None:
        """Hold another tree."""
        if tree == self.name:
            return
        self.name = None
        told = self._git.output("ls-tree", "-r", "-t", "-z", "--full-tree", tree)
        self._folders = {b"": {}}
        for line in told.split(b"\0")[:-1]:
            about, _, path = line.partition(b"\t")
            mode, kind, name = about.split(b" ")
            above, _, own = path.rpartition(b"/")
            self._folders[above][own] = (mode.lstrip(b"0"), name)
            if kind == b"tree":
                self._folders[path] = {}
        self.name = tree

    def paths(self) -> Iterator[bytes]:
        """Every file of it."""
        for folder, held in self._folders.items():
            prefix = folder + b"/" if folder else b""
            yield from (prefix + own for own, entry in held.items() if entry[0] != _FOLDER)

    def has_folder(self, path: bytes) -> bool:
        """Whether it has files below a path."""
        return path in self._folders

    def is_kept(self) -> bool:
        """Whether it is still there on the disk."""
        return os.path.exists(self._place(self.name or ""))  # noqa: PTH110 - asked for each look

    def changed(self, files: Mapping[bytes, Entry | None]) -> str:
        """The tree with these files as they are told; None is a file that is gone."""
        name, self.name = self.name, None  # half changed, it is none
        touched: set[bytes] = set()
        for path, entry in files.items():
            touched |= self._put(path, entry)
        for folder in sorted(touched, key=lambda held: -held.count(b"/") if held else 1):
            self._write_folder(folder)
        if touched:
            name = self._stored(b"tree", _packed(self._folders[b""])).decode()
        self.name = name
        return name or ""

    def _put(self, path: bytes, entry: Entry | None) -> set[bytes]:
        """Note one file; the folders that are to be written anew."""
        above, _, own = path.rpartition(b"/")
        if path in self._folders:
            raise NotSo
        if entry is None:
            folder = self._folders.get(above, {})
            return _above(path) if folder.pop(own, None) else set()
        for folder in _above(path) - {b""}:
            beyond, _, name = folder.rpartition(b"/")
            if folder not in self._folders and name in self._folders.get(beyond, {}):
                raise NotSo  # a file stands where there is a folder now
            self._folders.setdefault(folder, {})
        if self._folders[above].get(own) == entry:
            return set()
        self._folders[above][own] = entry
        return _above(path)

    def _write_folder(self, folder: bytes) -> None:
        """Write a folder into the one above it; an empty one is no entry."""
        if not folder:
            return
        above, _, own = folder.rpartition(b"/")
        held = self._folders[folder]
        outer = self._folders[above]
        if held:
            outer[own] = (_FOLDER, self._stored(b"tree", _packed(held)))
        else:
            outer.pop(own, None)
            del self._folders[folder]

    def file(self, path: bytes) -> Entry | None:
        """A file of the working folder as it is now, stored; None where there is none."""
        place = os.path.join(os.fsencode(self._git.folder), path)  # noqa: PTH118 - names are bytes
        try:
            about = os.lstat(place)
            if stat.S_ISLNK(about.st_mode):
                return _LINK, self._stored(b"blob", os.readlink(place))  # noqa: PTH115 - bytes
            if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
                raise NotSo
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(place, flags), "rb") as file:
                data = file.read(about.st_size + 1)
            if len(data) > about.st_size:
                raise NotSo  # it grows while it is read
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            raise NotSo from None
        mode = _PROGRAM if about.st_mode & stat.S_IXUSR else _PLAIN
        return mode, self._stored(b"blob", data)

    def _stored(self, kind: bytes, data: bytes) -> bytes:
        """The name of an object, which is written if it is not there."""
        whole = b"%b %d\0%b" % (kind, len(data), data)
        name = sha1(whole, usedforsecurity=False).hexdigest()
        place = self._place(name)
        if not os.path.exists(place):  # noqa: PTH110 - asked for each file
            _write(place, zlib.compress(whole, 1))
        return name.encode()

    def _place(self, name: str) -> str:
        return f"{self._objects}/{name[:2]}/{name[2:]}"


def _above(path: bytes) -> set[bytes]:
    """The folders in which a path lies."""
    parts = path.split(b"/")[:-1]
    return {b"/".join(parts[:end]) for end in range(len(parts) + 1)}


def _packed(folder: Folder) -> bytes:
    """A folder as git keeps it: in its order, in which folders end with a slash."""
    order = sorted(folder, key=lambda own: own + b"/" if folder[own][0] == _FOLDER else own)
    return b"".join(
        b"%b %b\0%b" % (folder[own][0], own, unhexlify(folder[own][1])) for own in order
    )


def _write(place: str, data: bytes) -> None:
    """Write a file whole or not at all, private to its user."""
    folder = place.rpartition("/")[0]
    made = f"{folder}/{_BETWEEN}{token_hex(6)}"
    try:
        number = os.open(made, _NEW, 0o400)
    except FileNotFoundError:
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        number = os.open(made, _NEW, 0o400)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        os.rename(made, place)  # noqa: PTH104 - of two texts
    except BaseException:
        with suppress(OSError):
            Path(made).unlink()
        raise
