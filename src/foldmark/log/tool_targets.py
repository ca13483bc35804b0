"""What a tool call was about: the file it read or wrote, the command it ran, the words it sought.

Tools are told apart by their names and by the names of their arguments, as agents have them in
common. An unknown tool is simply about its first short argument.
"""

import re
from functools import lru_cache
from typing import Literal, cast

from foldmark.model.values import Frozen, Json

FileAccess = Literal["read", "write", "other"]

_PATH_KEYS = ("filePath", "file_path", "path", "file", "filename", "notebook_path", "target_file")
_OTHER_KEYS = ("command", "cmd", "pattern", "query", "url", "description", "name", "prompt")
_READS = re.compile(r"read|view|open_file|cat_file|get_file", re.IGNORECASE)
_WRITES = re.compile(r"write|edit|patch|replace|create_file|insert|update_file", re.IGNORECASE)
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_LONGEST = 80
_FARTHEST = 2**31  # no file has a line beyond it; NaN is not below it either


class Span(Frozen, gc=False):
    """The lines of a file that were read; an open end is None."""

    first: int = 0
    last: int | None = None

    def covers(self, other: "Span") -> bool:
        """Whether all of the other's lines are among these."""
        if self.first > other.first:
            return False
        return self.last is None or (other.last is not None and other.last <= self.last)


WHOLE = Span()


class Target(Frozen, gc=False):
    """What a call was about."""

    access: FileAccess
    files: tuple[str, ...]
    about: str
    span: Span = WHOLE

    @property
    def label(self) -> str:
        """One line that is safe to print and cheap to show."""
        start = self.about[: _LONGEST * 2]
        line = "".join(ch if ch.isprintable() else " " for ch in start).strip()
        return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def target(tool: str, arguments: Json) -> Target:
    """What a call of this tool with these arguments is about."""
    act = _deed(tool, arguments)
    path = _first_text(arguments, _PATH_KEYS)
    if path and act == "read":
        return Target(access=act, files=(path,), about=path, span=_span(arguments))
    if path and act == "write":
        return Target(access=act, files=(path,), about=path)
    if act == "write":
        patch = arguments.get("patchText") or arguments.get("patch") or arguments.get("input")
        if isinstance(patch, str) and (files := tuple(_PATCHED.findall(patch))):
            return Target(access=act, files=files, about=", ".join(files))
    about = _first_text(arguments, _OTHER_KEYS) or path or _any_text(arguments)
    return Target(access="other", files=(), about=about)


def _deed(tool: str, arguments: Json) -> FileAccess:
    """Editors that do everything say in a command what they do: the first of these only looks."""
    act = _act(tool)
    return "read" if act == "write" and arguments.get("command") == "view" else act


@lru_cache(maxsize=1024)
def _act(tool: str) -> FileAccess:
    if _WRITES.search(tool):
        return "write"
    return "read" if _READS.search(tool) else "other"


def _first_text(arguments: Json, keys: tuple[str, ...]) -> str:
    for key in keys:
        held = arguments.get(key)
        if isinstance(held, str) and held:
            return held
    return ""


def _any_text(arguments: Json) -> str:
    return next((held for held in arguments.values() if isinstance(held, str)), "")


def _span(arguments: Json) -> Span:
    lines = arguments.get("view_range")
    if isinstance(lines, list) and len(cast("list[object]", lines)) == 2:
        start, stop = (_whole(held) for held in cast("list[object]", lines))
        return Span(first=start, last=stop if stop >= start else None)  # -1: to the end
    first = _whole(arguments.get("offset") or arguments.get("start_line"))
    limit = arguments.get("limit")
    end = arguments.get("end_line")
    if limit is not None:
        return Span(first=first, last=first + _whole(limit))
    return Span(first=first, last=None if end is None else _whole(end))


def _whole(held: object) -> int:
    return int(held) if isinstance(held, int | float) and abs(held) < _FARTHEST else 0
