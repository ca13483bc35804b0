"""All tools for working in a folder, and the rules that they start with."""

from collections.abc import Iterable
from pathlib import Path

from foldmark.errors import BadInput

from .files import file_tools
from .finding import finding_tools
from .memory import memory_tools
from .paths import Places
from .permissions import Rule
from .shell import shell_tool
from .skills import skill_tool
from .todo import todo_tool
from .tool import Tool

# Paths outside the folder need no rule: the tools refuse them, whatever is permitted.
DEFAULT_RULES: tuple[Rule, ...] = (
    ("read", "allow"),
    ("glob", "allow"),
    ("grep", "allow"),
    ("todo", "allow"),
    ("recall", "allow"),
    ("search", "allow"),
    ("skill", "allow"),
    ("write", "allow"),
    ("edit", "allow"),
    ("shell", "ask"),
)


def workspace_tools(
    folder: str | Path,
    *,
    allowed: Iterable[str | Path] = (),
    guarded: Iterable[str | Path] = (),
    skills: Iterable[str | Path] = (),
    shell: bool = True,
) -> tuple[Tool, ...]:
    """The tools for a folder; `allowed` are others it may use, `guarded` what it may not touch."""
    root = Path(folder).resolve()
    if not root.is_dir():
        raise BadInput(f"there is no folder {str(root)!r} to work in")
    places = Places(
        folder=root, allowed=tuple(map(Path, allowed)), guarded=tuple(map(Path, guarded))
    )
    skill = skill_tool(root, map(Path, skills))
    return (
        *file_tools(places),
        *finding_tools(places),
        *((shell_tool(root),) if shell else ()),
        todo_tool(),
        *memory_tools(),
        *((skill,) if skill else ()),
    )
