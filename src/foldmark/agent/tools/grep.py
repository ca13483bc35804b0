"""Files of a folder by their names, and lines in them by a pattern.

Run as a program, it searches: a pattern that takes for ever is ended with its process. So it needs
nothing but Python itself, and knows nothing of the package it lies in. No link is followed.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase, translate
from typing import NamedTuple

# What is in these is made by programs; few look for anything in them, and they are vast.
SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", ".venv", "__pycache__"})
MOST_SEEN = 200_000  # files that are looked at
MOST_BYTES = 32 * 2**20  # of a file that is searched
_MOST_FORMS = 64  # that {a,b} in a pattern may stand for
_LONGEST_LINE = 500
_HEAD = 8_192  # bytes in which a zero says that a file is no text
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")

Fits = Callable[[str], bool]
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
    forms = [_form(form) for form in _expanded(pattern.removeprefix("./"))]
    return lambda name: any(form(name) for form in forms)


def _expanded(pattern: str) -> list[str]:
    forms = [pattern]
    while len(forms) <= _MOST_FORMS and any(_BRACES.search(form) for form in forms):
        forms = [more for form in forms for more in _alternatives(form)]
    return forms


def _alternatives(form: str) -> list[str]:
    found = _BRACES.search(form)
    if found is None:
        return [form]
    before, after = form[: found.start()], form[found.end() :]
    return [f"{before}{middle}{after}" for middle in found[1].split(",")]


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


def is_closed(name: str, rules: Rules) -> bool:
    """Whether one of several lists of rules closes what has this name."""
    return any(_last(name, patterns) for patterns in rules)


def _last(name: str, patterns: Sequence[tuple[str, bool]]) -> bool:
    fitting = (closes for pattern, closes in reversed(patterns) if fnmatchcase(name, pattern))
    return next(fitting, False)


def closed_note(count: int) -> str:
    """That files were left out, as rules close them."""
    return f"[left out, as a rule is against it: {count} {'file' if count == 1 else 'files'}]"


# --- searching -----------------------------------------------------------------------------


class SearchRequest(NamedTuple):
    """What is searched for, and where."""

    pattern: str
    folder: str
    file: str  # in it, or all where this is empty
    prefix: str  # of the names that are told
    glob: str
    limit: int
    without: Sequence[str] = ()  # full paths that are left out, with all that is in them
    rules: Rules = ()


def found_lines(wanted: SearchRequest) -> Iterator[str]:
    """Lines that hold the pattern, as `path:line: text`; then what was left out."""
    seeks = re.compile(wanted.pattern).search
    told, seen, large, closed = 0, 0, 0, 0
    for entry in _entries(wanted):
        seen += 1
        if is_closed(wanted.prefix + entry.name, wanted.rules):
            closed += 1
            continue
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
        if seen == MOST_SEEN:
            yield f"[stopped after {seen} files; search in a folder of this one]"
            return
    if not told:
        yield "no lines found"
    if closed:
        yield closed_note(closed)
    if large:
        yield f"[not searched, as they are larger than {MOST_BYTES // 2**20} MB: {large} files]"


def _entries(wanted: SearchRequest) -> Iterator[FoundFile]:
    if wanted.file:
        number = os.open(wanted.folder, os.O_RDONLY | os.O_DIRECTORY)
        yield FoundFile(wanted.file, number, wanted.file)
        os.close(number)
        return
    suits = fits(wanted.glob) if wanted.glob else None
    for entry in walked(wanted.folder):
        if suits is not None and not suits(entry.name):
            continue
        if not is_among(f"{wanted.folder.rstrip('/')}/{entry.name}", wanted.without):
            yield entry


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


def _hits(data: bytes, seeks: Callable[[str], re.Match[str] | None]) -> Iterator[tuple[int, str]]:
    if not data:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        found = seeks(line)
        if found:
            yield number, _cut(line.rstrip("\r"), found.start())


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
        for line in found_lines(wanted):
            write(f"{line}\n".encode("utf-8", "replace"))
    except (re.error, RecursionError, OverflowError) as error:
        write(f"the pattern is no regular expression: {error}\n".encode("utf-8", "replace"))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
