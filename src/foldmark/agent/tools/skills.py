"""The tool `skill`, which reads instructions for a kind of task from a folder of skills.

The list of skills is read when the tool is created, the text of a skill when it is requested.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Tool, ToolOutput, ToolRefusal
from foldmark.files import open_regular

from .paths import WorkingFolder, quote_path

HOME = Path(".foldmark", "skills")  # in the working folder
FILE = "SKILL.md"
_NAME = re.compile(r"[\w.-]{1,64}")
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^description:[ \t]*(?:[>|][+-]?[ \t]*$)?(.*(?:\r?\n[ \t]+.*)*)", re.MULTILINE)
_MAX_BYTES = 256 * 2**10
_MAX_SKILLS, _MAX_FILES = 100, 50
_MAX_LENGTH = 200  # characters of a description


def skill_tool(folder: Path, others: Iterable[Path] = ()) -> Tool | None:
    """The tool `skill` for a working folder and more folders; None if there are no skills."""
    homes: dict[str, Path] = {}
    about: dict[str, str] = {}
    for home in (*others, folder / HOME):
        for home_folder, text in _skills_in(home):
            homes[home_folder.name], about[home_folder.name] = home_folder, _about(text)
    if not homes:
        return None
    descriptions = "\n".join(f"- {name}: {about[name]}" for name in sorted(homes))

    description = f"Read how a kind of task is done here. There are:\n{descriptions}"

    @tool(changes_files=False, description=description)
    def skill(name: Annotated[str, "The name of the skill."]) -> ToolOutput:
        home_folder = homes.get(name)
        if home_folder is None:
            raise ToolRefusal(f"there is no skill {quote_path(name)}; there are {', '.join(homes)}")
        text = _FRONT.sub("", _text(home_folder), count=1).strip()
        return ToolOutput(text=f"{text}{_beside(home_folder, folder)}", title=name)

    return skill


def _skills_in(home: Path) -> Iterator[tuple[Path, str]]:
    """Each skill's folder and text, in the order of their names."""
    try:
        names = sorted(entry.name for entry in os.scandir(home))
    except OSError:
        return
    for name in names[:_MAX_SKILLS]:
        if _NAME.fullmatch(name):
            with suppress(ToolRefusal):
                yield home / name, _text(home / name)


def _text(folder: Path) -> str:
    """The text of a skill. Raises ToolRefusal if its file is outside the folder of skills."""
    path = WorkingFolder(folder=folder.parent).inside(f"{folder.name}/{FILE}")
    try:
        with open_regular(path) as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        raise ToolRefusal(f"the skill {quote_path(folder.name)} is not there any more") from None
    except OSError as error:
        raise ToolRefusal(
            f"the skill {quote_path(folder.name)} cannot be read: {error.strerror}"
        ) from None


def _about(text: str) -> str:
    """The description of a skill, or its first line."""
    front = _FRONT.match(text)
    match = _FIELD.search(front[1]) if front else None
    rest = text[front.end() :] if front else text
    first = next((line for line in rest.splitlines() if line.strip(" #\t")), "")
    description = " ".join((match[1] if match else first).split()).strip("\"'# ")
    line = "".join(ch for ch in description if ch.isprintable())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"


def _beside(skill: Path, folder: Path) -> str:
    """A list of the skill's other files, if they are inside the working folder."""
    real, root = Path(os.path.realpath(skill)), Path(os.path.realpath(folder))
    if not real.is_relative_to(root):
        return ""
    files = sorted(path for path in real.rglob("*") if path.is_file() and path.name != FILE)
    names = [path.relative_to(root).as_posix() for path in files[:_MAX_FILES]]
    return "\n\nFiles beside it:\n" + "\n".join(names) if names else ""
