"""The tools `glob` and `grep`, run in a process of their own."""

import json
import sys
from pathlib import Path
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Context, Tool, ToolOutput, ToolRefusal
from foldmark.model.values import Json

from .grep import SearchRequest
from .paths import WorkingFolder
from .shell import run_process

MAX_RESULTS = 200
SECONDS = 30.0
_GRACE = 10.0  # extra seconds before the call itself times out
_PROGRAM = (sys.executable, "-I", "-S", "-W", "ignore", str(Path(__file__).with_name("grep.py")))


def search_tools(working: WorkingFolder, *, seconds: float = SECONDS) -> tuple[Tool, Tool]:
    """The tools `glob` and `grep` for a folder."""

    def about(arguments: Json) -> str:
        return working.subject(arguments.get("path", "."))

    @tool(seconds=seconds + _GRACE, changes_files=False, subject=about)
    async def glob(
        pattern: Annotated[str, "Such as *.py (in any folder), src/**/*.ts or docs/*.{md,txt}."],
        context: Context,
        path: Annotated[str, "The folder to look in."] = ".",
    ) -> ToolOutput:
        """List files whose names fit a pattern, the newest first."""
        request = _request(working, context, "glob", path)
        if request.file:
            raise ToolRefusal(f"there is no folder {request.prefix}{request.file}")
        return await _search(request._replace(glob=pattern, limit=MAX_RESULTS), pattern, seconds)

    @tool(seconds=seconds + _GRACE, changes_files=False, subject=about)
    async def grep(
        pattern: Annotated[str, "A regular expression, as Python has them."],
        context: Context,
        path: Annotated[str, "The folder or file to look in."] = ".",
        glob: Annotated[str, "Only files whose names fit this pattern."] = "",
        limit: Annotated[int, "Lines that are told at most."] = MAX_RESULTS,
    ) -> ToolOutput:
        """Find lines in text files by a regular expression; told as path:line: text."""
        if limit < 1:
            raise ToolRefusal("limit: at least 1")
        request = _request(working, context, "grep", path)
        request = request._replace(pattern=pattern, glob=glob or None, limit=limit)
        return await _search(request, pattern, seconds)

    return glob, grep


def _request(working: WorkingFolder, context: Context, search: str, path: str) -> SearchRequest:
    """The folder or file that a search covers, and what it hides there."""
    here = working.with_guarded(context.session.files)
    top = here.inside(path)
    folder = top if top.is_dir() else top.parent
    if folder != top and not top.is_file():
        raise ToolRefusal(f"there is no file or folder {here.display(top)}")
    name = here.display(folder)
    hidden = context.gate.permissions.hidden_patterns(search) if context.gate else ()
    return SearchRequest(
        folder=str(folder),
        file="" if folder == top else top.name,
        prefix="" if name == "." else f"{name.rstrip('/')}/",
        without=here.guarded_paths(),
        rules=[rules for rules in hidden if any(hides for _, hides in rules)],
    )


async def _search(request: SearchRequest, pattern: str, seconds: float) -> ToolOutput:
    data = json.dumps(request._asdict()).encode()
    result = await run_process(_PROGRAM, Path(request.folder), seconds=seconds, stdin=data)
    text = result.output.decode("utf-8", "replace").rstrip("\n")
    if result.timed_out:
        raise ToolRefusal(
            f"timed out after {seconds:g} s; try a simpler pattern or a smaller folder"
        )
    if result.code:
        raise ToolRefusal(text[-500:] or f"the search ended with code {result.code}")
    return ToolOutput(text=text, title=pattern[:80])
