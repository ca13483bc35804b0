"""The tools that find files by their names and lines by a pattern."""

import heapq
import json
import os
import stat
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Context, Tool, ToolOutput, ToolRefusal

from .grep import (
    MOST_SEEN,
    FoundFile,
    Rules,
    SearchRequest,
    closed_note,
    fits,
    is_among,
    is_closed,
    walked,
)
from .paths import Places
from .shell import ran

MOST_FOUND = 200
SECONDS = 30.0
_PROGRAM = (sys.executable, "-I", "-S", "-W", "ignore", str(Path(__file__).with_name("grep.py")))


def finding_tools(places: Places, *, seconds: float = SECONDS) -> tuple[Tool, Tool]:
    """The tools `glob` and `grep` for a folder."""

    @tool(name="glob", seconds=seconds, changes=False, subject=lambda given: _about(places, given))
    def glob_(
        pattern: Annotated[str, "Such as *.py (in any folder), src/**/*.ts or docs/*.{md,txt}."],
        context: Context,
        path: Annotated[str, "The folder to look in."] = ".",
    ) -> ToolOutput:
        """List files whose names fit a pattern, the newest first."""
        here = places.guarding(context.session.files)
        return _listed(here, _folder(here, path), pattern, _rules(context, "glob"))

    @tool(
        name="grep",
        seconds=seconds + 10,
        changes=False,
        subject=lambda given: _about(places, given),
    )
    async def grep(
        pattern: Annotated[str, "A regular expression, as Python has them."],
        context: Context,
        path: Annotated[str, "The folder or file to look in."] = ".",
        glob: Annotated[str, "Only files whose names fit this pattern."] = "",
        limit: Annotated[int, "Lines that are told at most."] = MOST_FOUND,
    ) -> ToolOutput:
        """Find lines in text files by a regular expression; told as path:line: text."""
        if limit < 1:
            raise ToolRefusal("limit: at least 1")
        here = places.guarding(context.session.files)
        wanted = _wanted(here, path, pattern, glob, limit)
        return await _found(wanted._replace(rules=_rules(context, "grep")), seconds)

    return glob_, grep


def _about(places: Places, given: dict[str, object]) -> str:
    return places.subject(given.get("path", "."))


def _rules(context: Context, search: str) -> Rules:
    """The rules by which files are left out; none where none of them closes anything."""
    found = context.gate.permissions.closed(search) if context.gate else ()
    return [rules for rules in found if any(closes for _, closes in rules)]


def _folder(places: Places, name: str) -> Path:
    top = places.inside(name)
    if not top.is_dir():
        raise ToolRefusal(f"there is no folder {places.shown(top)}")
    return top


def _prefix(places: Places, top: Path) -> str:
    shown = places.shown(top)
    return "" if shown == "." else f"{shown.rstrip('/')}/"


# --- glob ----------------------------------------------------------------------------------


def _listed(places: Places, top: Path, pattern: str, rules: Rules) -> ToolOutput:
    suits, seen, closed = fits(pattern), count(), count()
    prefix, without = _prefix(places, top), places.guarded_paths()

    def dated() -> Iterator[tuple[float, str]]:
        for entry, _ in zip(islice(walked(str(top)), MOST_SEEN), seen, strict=False):
            if not suits(entry.name) or is_among(str(top / entry.name), without):
                continue
            if is_closed(prefix + entry.name, rules):
                next(closed)
            elif (at := _modified(entry)) is not None:
                yield at, entry.name

    found = heapq.nlargest(MOST_FOUND + 1, dated())
    lines = [f"{prefix}{name}" for _, name in found[:MOST_FOUND]] or ["no files fit"]
    if left_out := next(closed):
        lines.append(closed_note(left_out))
    if len(found) > MOST_FOUND:
        lines.append(f"[there are more; only the newest {MOST_FOUND} are told]")
    if next(seen) >= MOST_SEEN:
        lines.append(f"[stopped after {MOST_SEEN} files; look in a folder of this one]")
    return ToolOutput(text="\n".join(lines), title=pattern[:80])


def _modified(entry: FoundFile) -> float | None:
    """When a file was changed; None for a link or a special file."""
    try:
        about = os.stat(entry.last, dir_fd=entry.folder, follow_symlinks=False)
    except OSError:
        return None
    return about.st_mtime if stat.S_ISREG(about.st_mode) else None


# --- grep ----------------------------------------------------------------------------------


def _wanted(places: Places, path: str, pattern: str, glob: str, limit: int) -> SearchRequest:
    top = places.inside(path)
    if top.is_dir():
        folder, file, prefix = top, "", _prefix(places, top)
    elif top.is_file():
        folder, file, prefix = top.parent, top.name, _prefix(places, top.parent)
    else:
        raise ToolRefusal(f"there is no file or folder {places.shown(top)}")
    without = places.guarded_paths()
    return SearchRequest(pattern, str(folder), file, prefix, glob, limit, without)


async def _found(wanted: SearchRequest, seconds: float) -> ToolOutput:
    given = json.dumps(wanted._asdict()).encode()
    ended = await ran(_PROGRAM, Path(wanted.folder), seconds=seconds, given=given)
    text = ended.output.decode("utf-8", "replace").rstrip("\n")
    if ended.late:
        raise ToolRefusal(
            f"timed out after {seconds:g} s; try a simpler pattern or a smaller folder"
        )
    if ended.code:
        raise ToolRefusal(text[-500:] or f"the search ended with code {ended.code}")
    return ToolOutput(text=text, title=wanted.pattern[:80])
