"""Names of files that a model gives, as real paths that stay inside the working folder.

What is wrong with a name is told as a ToolRefusal. A real path is opened folder by folder without
following links, so that a link that was put there after the check leads nowhere. What is in a
file is told elsewhere.
"""

import os
import unicodedata
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec.structs import replace

from foldmark.agent.tool import ToolRefusal
from foldmark.errors import BadInput
from foldmark.files import harmless, open_folder
from foldmark.model.values import Frozen
from foldmark.store.sqlite import BESIDE

from .grep import is_among

_GIT = ".git"
_LONGEST = 4_096  # characters of a path; the system has a limit of its own


class Places(Frozen):
    """The folder an agent works in, and what it may not touch there."""

    folder: Path
    guarded: tuple[Path, ...] = ()

    def inside(self, name: str, *, writing: bool = False) -> Path:
        """The real path of a name; ToolRefusal where it is not to be used."""
        _check_name(name)
        try:
            # Of a name that is not there, links in its parents count, and links to nowhere.
            root = Path(self.folder).resolve()
            found = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):  # a ring of links, or a name that is too long
            raise ToolRefusal(f"{printed(name)} leads nowhere: no path can be made of it") from None
        if not found.is_relative_to(root):
            raise ToolRefusal(
                f"{printed(name)} is outside the working folder; use a path inside it, such as ."
            )
        if writing and any(_is_git(part) for part in found.parts):
            raise ToolRefusal(f"{printed(name)} is in a .git folder, which is not written to")
        if is_among(str(found), self.guarded_paths()):
            raise ToolRefusal(f"{printed(name)} is the session's own; it is not for tools")
        return found

    def guarding(self, files: Iterable[Path]) -> "Places":
        """The same places, in which these are not touched either."""
        return replace(self, guarded=(*self.guarded, *files))

    def guarded_paths(self) -> list[str]:
        """The real paths of what is not touched."""
        real = dict.fromkeys(os.path.realpath(path) for path in self.guarded)
        return list(dict.fromkeys(path + end for path in real for end in ("", *BESIDE)))

    def shown(self, path: Path) -> str:
        """A path as the model is told it: from the working folder on, where it lies in it."""
        root = Path(os.path.realpath(self.folder))
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()

    def subject(self, name: object) -> str:
        """What permission rules are held against: one name for a file, however it is written."""
        if not isinstance(name, str):
            return ""
        try:
            return self.shown(self.inside(name))
        except ToolRefusal:
            return os.path.normpath(name)

    def parent(self, path: Path, *, make: bool = False) -> AbstractContextManager[int]:
        """The folder of a real path, opened without following any link on the way."""
        base = Path(os.path.realpath(self.folder))
        if not path.is_relative_to(base):
            raise ToolRefusal(f"{self.shown(path)} is outside the working folder")
        steps = path.relative_to(base).parts
        return open_folder(base if steps else base.parent, steps[:-1], make=make)


def working_folder(path: str | Path) -> Path:
    """The folder that an agent is to work in; BadInput where there is none."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise BadInput(f"there is no folder {harmless(str(folder))!r} to work in")
    return folder


def _check_name(name: str) -> None:
    if not name.strip():
        raise ToolRefusal("the path is empty; give one, such as . for the working folder")
    if any(unicodedata.category(ch) == "Cc" for ch in name):
        raise ToolRefusal(f"{printed(name)} has control characters in it; no path is made of these")
    if name.startswith("~"):
        raise ToolRefusal(
            f"{printed(name)}: ~ is not replaced; give a path from the working folder"
        )
    if len(name) > _LONGEST:
        raise ToolRefusal(f"a path of {len(name)} characters is too long")


def _is_git(part: str) -> bool:
    """Whether some system takes a name for .git, by ignoring case, marks, or dots at its end."""
    bare = "".join(ch for ch in part if unicodedata.category(ch) != "Cf")
    return bare.casefold().rstrip(". ") == _GIT or bare.casefold() == "git~1"


def printed(name: str) -> str:
    """A name as one short line that holds nothing but what can be printed."""
    return repr(harmless(name, 120))
