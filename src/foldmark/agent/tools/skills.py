"""The tool that reads a skill: instructions for a kind of task, kept in a folder with others.

Which skills there are is found when the tool is made; what one says is read when it is asked for.
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

from .paths import Places, printed

HOME = Path(".foldmark", "skills")  # in the working folder
FILE = "SKILL.md"
_NAME = re.compile(r"[\w.-]{1,64}")
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^description:[ \t]*(?:[>|][+-]?[ \t]*$)?(.*(?:\r?\n[ \t]+.*)*)", re.MULTILINE)
_MOST_BYTES = 256 * 2**10
_MOST_SKILLS, _MOST_FILES = 100, 50
_LONGEST = 200  # characters of a description


def skill_tool(folder: Path, others: Iterable[Path] = ()) -> Tool | None:
    """The tool `skill` for a working folder and other folders of skills; None if there are none."""
    known: dict[str, Path] = {}
    about: dict[str, str] = {}
    for home in (*others, folder / HOME):
        for place, text in _skills_in(home):
            known[place.name], about[place.name] = place, _about(text)
    if not known:
        return None
    listed = "\n".join(f"- {name}: {about[name]}" for name in sorted(known))

    @tool(changes=False, description=f"Read how a kind of task is done here. There are:\n{listed}")
    def skill(name: Annotated[str, "The name of the skill."]) -> ToolOutput:
        place = known.get(name)
        if place is None:
            raise ToolRefusal(f"there is no skill {printed(name)}; there are {', '.join(known)}")
        text = _FRONT.sub("", _text(place), count=1).strip()
        return ToolOutput(text=f"{text}{_beside(place, folder)}", title=name)

    return skill


def _skills_in(home: Path) -> Iterator[tuple[Path, str]]:
    """The folders of the skills in a folder, by their names, and what each says."""
    try:
        names = sorted(entry.name for entry in os.scandir(home))
    except OSError:
        return
    for name in names[:_MOST_SKILLS]:
        if _NAME.fullmatch(name):
            with suppress(ToolRefusal):
                yield home / name, _text(home / name)


def _text(folder: Path) -> str:
    """What a skill says; a file that leads out of the folder of skills is none."""
    path = Places(folder=folder.parent).inside(f"{folder.name}/{FILE}")
    try:
        with open_regular(path) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        raise ToolRefusal(f"the skill {printed(folder.name)} is not there any more") from None
    except OSError as error:
        raise ToolRefusal(
            f"the skill {printed(folder.name)} cannot be read: {error.strerror}"
        ) from None


def _about(text: str) -> str:
    """What a skill is for: as it describes itself, or its first line."""
    front = _FRONT.match(text)
    told = _FIELD.search(front[1]) if front else None
    rest = text[front.end() :] if front else text
    first = next((line for line in rest.splitlines() if line.strip(" #\t")), "")
    words = " ".join((told[1] if told else first).split()).strip("\"'# ")
    line = "".join(ch for ch in words if ch.isprintable())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _beside(skill: Path, folder: Path) -> str:
    """The other files of a skill, where tools can read them."""
    real, root = Path(os.path.realpath(skill)), Path(os.path.realpath(folder))
    if not real.is_relative_to(root):
        return ""
    files = sorted(path for path in real.rglob("*") if path.is_file() and path.name != FILE)
    names = [path.relative_to(root).as_posix() for path in files[:_MOST_FILES]]
    return "\n\nFiles beside it:\n" + "\n".join(names) if names else ""
