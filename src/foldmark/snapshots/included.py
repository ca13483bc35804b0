"""Files that tools wrote, and that are remembered whatever else ignores them.

Their names are kept in a file beside the snapshots, to which each process appends. Whether they
are there, and are held, is told elsewhere.
"""

import os
from contextlib import suppress
from pathlib import Path

from foldmark.errors import StoreError

from .git import zero_ended
from .scanning import Rules

_BORN, _FOUND = b"-", b"+"  # before the name of a file: it was not there, or was


class Included:
    """The files of one folder that are to be remembered in any case."""

    def __init__(self, home: Path, rules: Rules) -> None:
        """Take where the names are kept, and which may be held at all."""
        self._list = home / "included"
        self._rules = rules
        self._size = 0
        self.paths: set[bytes] = set()
        self.born: set[bytes] = set()  # of these, what was not there when it was included

    def read(self) -> None:
        """Learn what other processes include."""
        with suppress(OSError):
            size = self._list.stat().st_size
            if size != self._size:
                names = self._list.read_bytes().rpartition(b"\0")[0].split(b"\0")
                held = [name for name in names if self._rules.may_hold(name[1:])]
                self.paths = {name[1:] for name in held}
                self.born = {name[1:] for name in held if name.startswith(_BORN)}
                self._size = size

    def add(self, places: set[bytes]) -> None:
        """Include files, and note which of them are not there yet."""
        new = sorted(place for place in places if self._rules.may_hold(place))
        if not new:
            return
        born = {place for place in new if self._rules.status(place) is None}
        # A zero before it, too: a process may have been killed within a name.
        marked = (_BORN + place if place in born else _FOUND + place for place in new)
        told = b"\0" + zero_ended(marked)
        if self._append(told) == self._size + len(told):
            self._size += len(told)  # nobody else wrote meanwhile: there is nothing to be learned
        self.paths.update(new)
        self.born.update(born)

    def _append(self, data: bytes) -> int:
        """Add to the file; how long it is then."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            number = os.open(self._list, flags, 0o600)
            with os.fdopen(number, "ab") as file:
                file.write(data)
                return file.tell()
        except OSError as error:
            raise StoreError(str(self._list), f"cannot be written: {error.strerror}") from None
