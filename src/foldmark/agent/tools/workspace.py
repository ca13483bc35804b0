"""All tools for working in a folder, and their default rules."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from foldmark.agent.function_tools import tool
from foldmark.agent.permissions import Rule
from foldmark.agent.tool import Tool, ToolOutput

from .files import file_tools
from .find import search_tools
from .memory import memory_tools
from .paths import WorkingFolder, working_folder
from .shell import shell_tool
from .skills import skill_tool

_SIGNS = {"pending": "[ ]", "in_progress": "[~]", "completed": "[x]"}
# Paths outside the folder need no rule: the tools always refuse them.
_ALLOWED = ("read", "glob", "grep", "todo", "recall", "search", "skill", "write", "edit")
DEFAULT_RULES: tuple[Rule, ...] = (*((name, "allow") for name in _ALLOWED), ("shell", "ask"))


def workspace_tools(
    folder: str | Path,
    *,
    guarded: Iterable[str | Path] = (),
    skills: Iterable[str | Path] = (),
    shell: bool = True,
) -> tuple[Tool, ...]:
    """The tools for a folder, without access to `guarded` paths; `skills` adds skill folders."""
    root = working_folder(folder)
    working = WorkingFolder(folder=root, guarded=tuple(map(Path, guarded)))
    skill = skill_tool(root, map(Path, skills))
    return (
        *file_tools(working),
        *search_tools(working),
        *((shell_tool(root),) if shell else ()),
        todo_tool(),
        *memory_tools(),
        *((skill,) if skill else ()),
    )


class TodoItem(msgspec.Struct, frozen=True):
    """One item of the list."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


def todo_tool() -> Tool:
    """The tool `todo`."""

    @tool(changes_files=False, subject=lambda _: "")
    def todo(items: Annotated[list[TodoItem], "The whole list, also what is done."]) -> ToolOutput:
        """Keep a list of what is to be done, for long work; give the whole list each time."""
        lines = [f"{_SIGNS[item.status]} {' '.join(item.content.split())}" for item in items]
        done = sum(item.status == "completed" for item in items)
        return ToolOutput(
            text="\n".join(lines) or "the list is empty",
            title=f"{done} of {len(items)} done",
            metadata={"todos": msgspec.to_builtins(items)},
        )

    return todo
