"""Files of a folder by their names, and lines in them by a pattern.

Run as a program, it searches: one that takes for ever is ended with its process. So it needs
nothing but Python itself, and knows nothing of the package it lies in. No link is followed.
"""

import heapq
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from itertools import islice
from typing import NamedTuple

# What is in these is made by programs; few look for anything in them, and they are vast.
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", ".venv", "__pycache__"})
MOST_SEEN = 200_000  # files that are looked at
MOST_BYTES = 32 * 2**20  # of a file that is searched
_MOST_FORMS = 500  # that {a,b} in a pattern may stand for
_LONGEST_LINE = 500
_HEAD = 8_192  # bytes in which a zero says that a file is no text
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

Fits = Callable[[str], bool]
Seeks = Callable[[str], re.Match[str] | None]
# Patterns of names, each with whether it closes or opens what it fits; the last one counts.
Rules = Sequence[Sequence[tuple[str, bool]]]


class FoundFile(NamedTuple):
    """A file that was met: its name from the folder on, and the open folder that it lies in."""

    name: str
    folder: int
    last: str


def walked(top: str) -> Iterator[FoundFile]:
    """The files of a folder, in the order of their names; links and special files are none."""
    for where, folders, files, number in os.fwalk(top, follow_symlinks=False):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        prefix = os.path.relpath(where, top)
        for name in sorted(files):
            full = name if prefix == "." else f"{prefix}/{name}"
            yield FoundFile(full, number, name)


def fits(pattern: str) -> Fits:
    """Whether a name fits a pattern with *, ?, [a-z], ** and {a,b}.

    One without a slash is held against the last part of a name, wherever it lies.
    """
    patterns = islice(_expanded(pattern.removeprefix("./")), _MOST_FORMS)
    forms = [_form(form) for form in patterns]
    return lambda name: any(form(name) for form in forms)


def _expanded(pattern: str) -> Iterator[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for middle in braces[1].split(","):
        yield from _expanded(f"{pattern[: braces.start()]}{middle}{pattern[braces.end() :]}")


def _form(pattern: str) -> Fits:
    steps = [None if step == "**" else re.compile(translate(step)) for step in pattern.split("/")]
    if len(steps) == 1:
        steps.insert(0, None)
    return lambda name: _agree(steps, name.split("/"))


def _agree(steps: list[re.Pattern[str] | None], parts: list[str]) -> bool:
    """Whether a path's parts agree with steps, of which None stands for any number of folders."""
    reached = {0}  # parts that may have been taken so far: no way is tried twice
    for index, step in enumerate(steps):
        if step is None:
            last = index == len(steps) - 1
            reached = {len(parts)} if last else set(range(min(reached), len(parts)))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and step.match(parts[at])}
        if not reached:
            return False
    return len(parts) in reached


def is_among(path: str, others: Iterable[str]) -> bool:
    """Whether a path is one of others, or lies in one."""
    return any(path == other or path.startswith(f"{other}/") for other in others)


def _is_closed(name: str, rules: Rules) -> bool:
    """Whether one of several lists of rules closes what has this name."""
    for patterns in rules:
        fitting = (closes for pattern, closes in reversed(patterns) if fnmatchcase(name, pattern))
        if next(fitting, False):
            return True
    return False


# --- searching -----------------------------------------------------------------------------


class SearchRequest(NamedTuple):
    """What is searched for, and where."""

    folder: str
    file: str  # in it, or all where this is empty
    prefix: str  # of the names that are told
    without: Sequence[str] = ()  # full paths that are left out, with all that is in them
    rules: Rules = ()
    limit: int = 0
    glob: str | None = None  # only files whose names fit it
    pattern: str | None = None  # of lines; without one, files are told


class _Files:
    """The files that a search is to look at; what was left out of them is told at its end."""

    def __init__(self, wanted: SearchRequest) -> None:
        self._wanted = wanted
        self._seen, self._closed = 0, 0

    def __iter__(self) -> Iterator[FoundFile]:
        for entry in islice(self._fitting(), MOST_SEEN):
            self._seen += 1
            if _is_closed(self._wanted.prefix + entry.name, self._wanted.rules):
                self._closed += 1
            else:
                yield entry

    def _fitting(self) -> Iterator[FoundFile]:
        wanted = self._wanted
        if wanted.file:
            number = os.open(wanted.folder, os.O_RDONLY | os.O_DIRECTORY)
            yield FoundFile(wanted.file, number, wanted.file)
            os.close(number)
            return
        suits = None if wanted.glob is None else fits(wanted.glob)
        for entry in walked(wanted.folder):
            path = f"{wanted.folder.rstrip('/')}/{entry.name}"
            if (suits is None or suits(entry.name)) and not is_among(path, wanted.without):
                yield entry

    def notes(self) -> Iterator[str]:
        if count := self._closed:
            files = "file" if count == 1 else "files"
            yield f"[left out, as a rule is against it: {count} {files}]"
        if self._seen == MOST_SEEN:
            yield f"[stopped after {MOST_SEEN} files; look in a folder of this one]"


def found(wanted: SearchRequest) -> Iterator[str]:
    """What was found, a line each; then what was left out."""
    files = _Files(wanted)
    if wanted.pattern is None:
        return _found_files(wanted, files)
    return _found_lines(wanted, files, re.compile(wanted.pattern).search)


def _found_files(wanted: SearchRequest, files: _Files) -> Iterator[str]:
    """The names of files, the newest first."""
    dated = ((at, entry.name) for entry in files if (at := _modified(entry)) is not None)
    newest = heapq.nlargest(wanted.limit + 1, dated)
    names = [f"{wanted.prefix}{name}" for _, name in newest[: wanted.limit]]
    yield from names or ["no files fit"]
    yield from files.notes()
    if len(newest) > wanted.limit:
        yield f"[there are more; only the newest {wanted.limit} are told]"


def _modified(entry: FoundFile) -> float | None:
    """When a file was changed; None for a link or a special file."""
    try:
        about = os.stat(entry.last, dir_fd=entry.folder, follow_symlinks=False)
    except OSError:
        return None
    return about.st_mtime if stat.S_ISREG(about.st_mode) else None


def _found_lines(wanted: SearchRequest, files: _Files, seeks: Seeks) -> Iterator[str]:
    """Lines that hold the pattern, as `path:line: text`."""
    told, large = 0, 0
    for entry in files:
        data = _read(entry)
        if data is None:
            large += 1
            continue
        for number, line in _hits(data, seeks):
            if told == wanted.limit:
                yield f"[there are more; only the first {told} are told]"
                return
            told += 1
            yield f"{wanted.prefix}{entry.name}:{number}: {line}"
    if not told:
        yield "no lines found"
    yield from files.notes()
    if large:
        yield f"[not searched, as they are larger than {MOST_BYTES // 2**20} MB: {large} files]"


def _read(entry: FoundFile) -> bytes | None:
    """The bytes of a text; none of what is no text, or cannot be read; None if it is too large."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        number = os.open(entry.last, flags, dir_fd=entry.folder)
    except OSError:
        return b""
    with os.fdopen(number, "rb") as file:
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode):
            return b""
        if about.st_size > MOST_BYTES:
            return None
        try:
            head = file.read(_HEAD)
            return b"" if b"\0" in head else head + file.read(MOST_BYTES)
        except OSError:
            return b""


def _hits(data: bytes, seeks: Seeks) -> Iterator[tuple[int, str]]:
    if not data:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        if match := seeks(line):
            yield number, _cut(line.rstrip("\r"), match.start())


def _cut(line: str, at: int) -> str:
    """A line that is not too long, with the place of what was found in it."""
    if len(line) <= _LONGEST_LINE:
        return line
    start = min(max(0, at - _LONGEST_LINE // 4), len(line) - _LONGEST_LINE)
    end = start + _LONGEST_LINE
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def main() -> int:
    """Search for what is told on standard input, and print what was found."""
    wanted = SearchRequest(**json.load(sys.stdin.buffer))
    write = sys.stdout.buffer.write
    try:
        for line in found(wanted):
            write(f"{line}\n".encode("utf-8", "replace"))
    except (re.error, RecursionError, OverflowError) as error:
        write(f"the pattern is no regular expression: {error}\n".encode("utf-8", "replace"))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
