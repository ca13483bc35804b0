"""The tools that find files by their names and lines by a pattern."""

import json
import sys
from pathlib import Path
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Context, Tool, ToolOutput, ToolRefusal
from foldmark.model.values import Json

from .grep import SearchRequest
from .paths import Places
from .shell import ran

MOST_FOUND = 200
SECONDS = 30.0
_GRACE = 10.0  # seconds more until a call is given up
_PROGRAM = (sys.executable, "-I", "-S", "-W", "ignore", str(Path(__file__).with_name("grep.py")))


def finding_tools(places: Places, *, seconds: float = SECONDS) -> tuple[Tool, Tool]:
    """The tools `glob` and `grep` for a folder."""

    def about(given: Json) -> str:
        return places.subject(given.get("path", "."))

    @tool(seconds=seconds + _GRACE, changes=False, subject=about)
    async def glob(
        pattern: Annotated[str, "Such as *.py (in any folder), src/**/*.ts or docs/*.{md,txt}."],
        context: Context,
        path: Annotated[str, "The folder to look in."] = ".",
    ) -> ToolOutput:
        """List files whose names fit a pattern, the newest first."""
        wanted = _wanted(places, context, "glob", path)
        if wanted.file:
            raise ToolRefusal(f"there is no folder {wanted.prefix}{wanted.file}")
        return await _found(wanted._replace(glob=pattern, limit=MOST_FOUND), pattern, seconds)

    @tool(seconds=seconds + _GRACE, changes=False, subject=about)
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
        wanted = _wanted(places, context, "grep", path)
        wanted = wanted._replace(pattern=pattern, glob=glob or None, limit=limit)
        return await _found(wanted, pattern, seconds)

    return glob, grep


def _wanted(places: Places, context: Context, search: str, path: str) -> SearchRequest:
    """Where a search looks, and what it leaves out there."""
    here = places.guarding(context.session.files)
    top = here.inside(path)
    folder = top if top.is_dir() else top.parent
    if folder != top and not top.is_file():
        raise ToolRefusal(f"there is no file or folder {here.shown(top)}")
    shown = here.shown(folder)
    closed = context.gate.permissions.closed(search) if context.gate else ()
    return SearchRequest(
        folder=str(folder),
        file="" if folder == top else top.name,
        prefix="" if shown == "." else f"{shown.rstrip('/')}/",
        without=here.guarded_paths(),
        rules=[rules for rules in closed if any(closes for _, closes in rules)],
    )


async def _found(wanted: SearchRequest, pattern: str, seconds: float) -> ToolOutput:
    given = json.dumps(wanted._asdict()).encode()
    ended = await ran(_PROGRAM, Path(wanted.folder), seconds=seconds, given=given)
    text = ended.output.decode("utf-8", "replace").rstrip("\n")
    if ended.late:
        raise ToolRefusal(
            f"timed out after {seconds:g} s; try a simpler pattern or a smaller folder"
        )
    if ended.code:
        raise ToolRefusal(text[-500:] or f"the search ended with code {ended.code}")
    return ToolOutput(text=text, title=pattern[:80])
