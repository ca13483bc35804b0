"""Pages of Markdown as the tests read them: their blocks of code, and how these are run.

All Python of a page runs in one namespace, block after block; its lines of `foldmark …` run between
them, in the same folder. It knows no page by its name, and nothing of what a page is about.
"""

import re
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from fnmatch import fnmatchcase
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple, cast

import typer

from foldmark.cli.app import app, main

_BLOCK = re.compile(
    r"^(?P<indent>[ ]*)```(?P<language>[\w-]*)[^\n`]*\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_TOLD = re.compile(r"# -> (.*)$", re.MULTILINE)
_ENDS = {"|", ">", "&&", ";", "||"}
# These wait for somebody: a model, a client, an event.
_WAIT = {"run", "mcp"}
_FOLLOWS = "--follow"


class Block(NamedTuple):
    """A block of code, where it begins, and what it is written in."""

    language: str
    code: str
    line: int


def blocks(path: Path) -> list[Block]:
    """All blocks of a page, in their order."""
    text = path.read_text()
    return [
        Block(
            language=found["language"],
            code=dedent(found["code"]),
            line=text.count("\n", 0, found.start("code")) + 1,
        )
        for found in _BLOCK.finditer(text)
    ]


def python_blocks(path: Path) -> list[str]:
    """The code of the ```python blocks of a page."""
    return [block.code for block in blocks(path) if block.language == "python"]


def run_page(path: Path, folder: Path, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a page in a folder, and give back its namespace.

    What a block says that it prints (`# -> …`) must be printed, in that order; `…` stands for
    anything.
    """
    namespace = {"__name__": "__main__"} if namespace is None else namespace
    with chdir(folder):
        for block in blocks(path):
            if block.language == "python":
                check_told(block, printed(path, block, namespace), path)
            elif block.language == "sh":
                for arguments in commands(block.code):
                    run_command(arguments, path)
    return namespace


def printed(path: Path, block: Block, namespace: dict[str, Any]) -> str:
    """What a block prints; an error tells the page and the line."""
    code = "\n" * (block.line - 1) + block.code
    with redirect_stdout(StringIO()) as out:
        exec(compile(code, str(path), "exec"), namespace)  # noqa: S102 - our own page
    return out.getvalue()


def check_told(block: Block, out: str, path: Path) -> None:
    """Whether a block prints what it says, in that order."""
    lines = iter(out.splitlines())
    for told in _TOLD.findall(block.code):
        pattern = re.sub(r"([\[\]*?])", r"[\1]", told.strip()).replace("…", "*")
        found = any(fnmatchcase(line.strip(), pattern) for line in lines)
        assert found, f"{path.name}: line {block.line} on: {told!r} is not printed in {out!r}"


# --- the command line ------------------------------------------------------------------------


def commands(code: str) -> list[list[str]]:
    """The arguments of each `foldmark …` in a block of shell lines, also behind a `--`."""
    found: list[list[str]] = []
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and "=" in words[0] and not words[0].startswith("-"):
            del words[0]
        if words[:1] != ["foldmark"] and "foldmark" in words and "--" in words:
            words = words[words.index("--") + 1 :]
        if words[:1] == ["foldmark"]:
            end = next((place for place, word in enumerate(words) if word in _ENDS), len(words))
            found.append(words[1:end])
    return found


def run_command(arguments: list[str], path: Path) -> None:
    """Run a command; of one that would wait for somebody, look at its arguments alone."""
    if arguments[:1] and (arguments[0] in _WAIT or _FOLLOWS in arguments):
        check_arguments(arguments)
        return
    out = TextIOWrapper(BytesIO(), encoding="utf-8")  # some commands write bytes
    with redirect_stdout(out), redirect_stderr(StringIO()) as problems:
        code = main(arguments)
    assert code == 0, f"{path.name}: foldmark {shlex.join(arguments)}: {problems.getvalue()}"
    assert out.tell(), f"{path.name}: foldmark {shlex.join(arguments)} says nothing"


def check_arguments(arguments: list[str]) -> None:
    """Raise where the command, an option or a value is not there; nothing is run."""
    group = cast("Any", typer.main.get_command(app))
    if arguments and arguments[0] not in {"--help", "--version"}:
        command = group.commands[arguments[0]]
        command.make_context(f"foldmark {arguments[0]}", list(arguments[1:]))
