"""Write docs/cli.md: every command with its arguments and options, as `--help` tells them.

    .venv/bin/python scripts/cli_docs.py

It reads the commands themselves, so nothing is told twice. A test says whether the page is up to
date; what a command does is told where the command is.
"""

import re
from pathlib import Path
from typing import Any, cast

import typer

from foldmark.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
_HEAD = """\
# The command line

<!-- Written by scripts/cli_docs.py; change the commands, and run it again. -->

`pip install 'foldmark[cli]'` gives the command `foldmark`. Each command tells the same with
`--help`. Whatever is wrong is one line, and exit code 2. With `--json`, a program can read the
answer.
"""
_NOTHING: tuple[Any, ...] = (None, "", (), [])
_EXAMPLE = re.compile(r"^Example: (foldmark .*)$")


def cli_page() -> str:
    """The page as it must be now."""
    group = cast("Any", typer.main.get_command(app))
    panels: dict[str, list[Any]] = {}
    for command in group.commands.values():
        panels.setdefault(str(command.rich_help_panel), []).append(command)
    parts = [_HEAD, _overview(panels)]
    for panel, held in panels.items():
        parts += [f"## {panel}\n", *map(_section, held)]
    return "\n".join(parts).rstrip() + "\n"


def _overview(panels: dict[str, list[Any]]) -> str:
    rows = [
        f"| {panel} | {', '.join(f'[`{one.name}`](#{one.name})' for one in held)} |"
        for panel, held in panels.items()
    ]
    return "\n".join(["| for | commands |", "|---|---|", *rows, ""])


def _section(command: Any) -> str:
    params = [param for param in command.params if not param.hidden]
    arguments = [param for param in params if not param.opts[0].startswith("-")]
    options = [param for param in params if param.opts[0].startswith("-")]
    usage = " ".join(["foldmark", command.name, *map(_usage, arguments), "[OPTIONS]"])
    parts = [f"### {command.name} {{ #{command.name} }}\n", f"`{usage}`\n"]
    parts += [f"{' '.join(text.split())}\n" for text in command.help.split("\n\n")]
    if params:
        rows = [f"| {_name(param)} | {_told(param)} |" for param in (*arguments, *options)]
        parts.append("\n".join(["| | |", "|---|---|", *rows, ""]))
    parts += map(_epilog, (command.epilog or "").split("\n\n"))
    return "\n".join(parts)


def _usage(param: Any) -> str:
    name = f"{_metavar(param)}{'…' if param.nargs != 1 else ''}"
    return name if param.required else f"[{name}]"


def _name(param: Any) -> str:
    if not param.opts[0].startswith("-"):
        return f"`{_usage(param)}`"
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    return names if param.is_flag else f"{names} `{_metavar(param)}`"


def _metavar(param: Any) -> str:
    return str(param.metavar or "N")


def _told(param: Any) -> str:
    text = " ".join((param.help or "").split()).replace("|", "\\|")
    if isinstance(param.show_default, str):
        return f"{text} Default: {param.show_default}."
    usual = param.default
    if (
        usual is False
        or param.required
        or not param.show_default
        or usual in _NOTHING
        or callable(usual)
    ):
        return text
    return f"{text} Default: `{usual}`."


def _epilog(text: str) -> str:
    found = _EXAMPLE.match(text)
    return f"```sh\n{found[1]}\n```\n" if found else f"{text}\n"


if __name__ == "__main__":
    PAGE.write_text(cli_page())
    print(f"wrote {PAGE.name}")
