"""Resolves file names given by a model to real paths inside the working folder.

Raises ToolRefusal for a name that is not allowed. A real path is opened folder by folder without
following links, so that a link created after the check is not followed.
"""

import os
import unicodedata
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec.structs import replace

from foldmark.agent.tool import ToolRefusal
from foldmark.errors import BadInput
from foldmark.files import open_folder, printable
from foldmark.model.values import Frozen
from foldmark.store.sqlite import COMPANION_SUFFIXES

from .grep import is_among

_GIT = ".git"
_MAX_LENGTH = 4_096  # characters of a path


class WorkingFolder(Frozen):
    """The folder an agent works in, with the paths that its tools must not touch."""

    folder: Path
    guarded: tuple[Path, ...] = ()

    def inside(self, name: str, *, writing: bool = False) -> Path:
        """The real path of a name. Raises ToolRefusal if it is not allowed."""
        _check_name(name)
        try:
            # resolve() also follows links in the parents of a missing file.
            root = Path(self.folder).resolve()
            path = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a name that is too long
            raise ToolRefusal(
                f"{quote_path(name)} leads nowhere: no path can be made of it"
            ) from None
        if not path.is_relative_to(root):
            raise ToolRefusal(
                f"{quote_path(name)} is outside the working folder; use a path inside it, such as ."
            )
        if writing and any(_is_git(part) for part in path.parts):
            raise ToolRefusal(f"{quote_path(name)} is in a .git folder, which is not written to")
        if is_among(str(path), self.guarded_paths()):
            raise ToolRefusal(f"{quote_path(name)} is the session's own; it is not for tools")
        return path

    def with_guarded(self, files: Iterable[Path]) -> "WorkingFolder":
        """The same folder with more guarded files."""
        return replace(self, guarded=(*self.guarded, *files))

    def guarded_paths(self) -> list[str]:
        """The real paths of guarded files and the files beside them."""
        real = dict.fromkeys(os.path.realpath(path) for path in self.guarded)
        return list(dict.fromkeys(path + end for path in real for end in ("", *COMPANION_SUFFIXES)))

    def display(self, path: Path) -> str:
        """A path as the model sees it: relative to the working folder if inside it."""
        root = Path(os.path.realpath(self.folder))
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()

    def subject(self, name: object) -> str:
        """The text that permission rules match: the same for every spelling of a path."""
        if not isinstance(name, str):
            return ""
        try:
            return self.display(self.inside(name))
        except ToolRefusal:
            return os.path.normpath(name)

    def parent(self, path: Path, *, make: bool = False) -> AbstractContextManager[int]:
        """The parent folder of a real path, opened without following links."""
        base = Path(os.path.realpath(self.folder))
        if not path.is_relative_to(base):
            raise ToolRefusal(f"{self.display(path)} is outside the working folder")
        steps = path.relative_to(base).parts
        return open_folder(base if steps else base.parent, steps[:-1], make=make)


def working_folder(path: str | Path) -> Path:
    """The real path of a working folder. Raises BadInput if it does not exist."""
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise BadInput(f"the working folder {printable(str(folder))!r} does not exist")
    return folder


def _check_name(name: str) -> None:
    if not name.strip():
        raise ToolRefusal("the path is empty; give one, such as . for the working folder")
    if any(unicodedata.category(ch) == "Cc" for ch in name):
        raise ToolRefusal(
            f"{quote_path(name)} has control characters in it; no path is made of these"
        )
    if name.startswith("~"):
        raise ToolRefusal(
            f"{quote_path(name)}: ~ is not replaced; give a path from the working folder"
        )
    if len(name) > _MAX_LENGTH:
        raise ToolRefusal(f"a path of {len(name)} characters is too long")


def _is_git(part: str) -> bool:
    """Whether some file system treats a name as .git: ignoring case, marks or trailing dots."""
    bare = "".join(ch for ch in part if unicodedata.category(ch) != "Cf")
    return bare.casefold().rstrip(". ") == _GIT or bare.casefold() == "git~1"


def quote_path(name: str) -> str:
    """Quote a name for display: one line, printable characters, shortened if long."""
    return repr(printable(name, 120))
