"""The target of a tool call: the file that it read or wrote, its command, or its search query.

Tools are classified by their names and argument names, which agents have in common. The target
of an unknown tool is its first text argument.
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
_MAX_LABEL = 80
_MAX_LINE = 2**31  # no file has more lines; the comparison also excludes NaN


class Span(Frozen, gc=False):
    """The lines of a file that were read; `last` is None up to the end of the file."""

    first: int = 0
    last: int | None = None

    def covers(self, other: "Span") -> bool:
        """Whether this span contains all lines of the other."""
        if self.first > other.first:
            return False
        return self.last is None or (other.last is not None and other.last <= self.last)


WHOLE = Span()


class Target(Frozen, gc=False):
    """What a tool call accessed or searched."""

    access: FileAccess
    files: tuple[str, ...]
    about: str
    span: Span = WHOLE

    @property
    def label(self) -> str:
        """One short line that is safe to print."""
        start = self.about[: _MAX_LABEL * 2]
        line = "".join(ch if ch.isprintable() else " " for ch in start).strip()
        return line if len(line) <= _MAX_LABEL else line[: _MAX_LABEL - 1] + "…"


def target(tool: str, arguments: Json) -> Target:
    """The target of a call of this tool with these arguments."""
    access = _access(tool, arguments)
    path = _first_text(arguments, _PATH_KEYS)
    if path and access == "read":
        return Target(access=access, files=(path,), about=path, span=_span(arguments))
    if path and access == "write":
        return Target(access=access, files=(path,), about=path)
    if access == "write":
        patch = arguments.get("patchText") or arguments.get("patch") or arguments.get("input")
        if isinstance(patch, str) and (files := tuple(_PATCHED.findall(patch))):
            return Target(access=access, files=files, about=", ".join(files))
    about = _first_text(arguments, _OTHER_KEYS) or path or _any_text(arguments)
    return Target(access="other", files=(), about=about)


def _access(tool: str, arguments: Json) -> FileAccess:
    """How a call accesses files; an editor tool with the command `view` only reads."""
    access = _tool_access(tool)
    return "read" if access == "write" and arguments.get("command") == "view" else access


@lru_cache(maxsize=1024)
def _tool_access(tool: str) -> FileAccess:
    if _WRITES.search(tool):
        return "write"
    return "read" if _READS.search(tool) else "other"


def _first_text(arguments: Json, keys: tuple[str, ...]) -> str:
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _any_text(arguments: Json) -> str:
    return next((value for value in arguments.values() if isinstance(value, str)), "")


def _span(arguments: Json) -> Span:
    lines = arguments.get("view_range")
    if isinstance(lines, list) and len(cast("list[object]", lines)) == 2:
        start, stop = (_line_number(value) for value in cast("list[object]", lines))
        return Span(first=start, last=stop if stop >= start else None)  # -1 means to the end
    first = _line_number(arguments.get("offset") or arguments.get("start_line"))
    limit = arguments.get("limit")
    end = arguments.get("end_line")
    if limit is not None:
        return Span(first=first, last=first + _line_number(limit))
    return Span(first=first, last=None if end is None else _line_number(end))


def _line_number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < _MAX_LINE else 0
