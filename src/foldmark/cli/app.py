"""Registers the commands, runs one, and turns every error into one line and an exit code."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any, cast

import typer

from foldmark.errors import FoldmarkError

from .commands import (
    compact,
    demo,
    diff,
    export,
    import_,
    inspect,
    maintain,
    mcp,
    plan,
    run,
    search,
    sessions,
    show,
    undo,
)
from .groups import Command, help_and_example, typer_command
from .text import error_line, plain

FAILED = 2
BROKEN_PIPE = 1
INTERRUPTED = 130

# ClickException: newer versions of typer define their own, older ones import it from click.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[2])

app = typer.Typer(
    name="foldmark",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
_COMMANDS: dict[str, tuple[Command, ...]] = {
    "Run an agent": (run.run,),
    "Work on one transcript": (
        inspect.inspect,
        plan.plan,
        compact.compact,
        export.convert,
        inspect.formats,
        demo.demo,
    ),
    "Work with stored sessions": (
        import_.import_,
        sessions.sessions,
        show.show,
        search.search,
        search.recall,
        diff.diff,
        sessions.events,
        export.export,
    ),
    "Serve other agents": (mcp.mcp,),
    "Go back": (undo.undo, undo.revert, undo.fork),
    "Maintain a store": (maintain.gc, maintain.backup),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        _, _example = help_and_example(_command)
        _name = _command.__name__.rstrip("_")
        app.command(_name, epilog=_example, rich_help_panel=_panel)(typer_command(_command))


def _print_version(requested: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if requested:
        sys.stdout.write(f"foldmark {version('foldmark')}\n")
        raise typer.Exit


@app.callback(epilog="Start with: foldmark demo")
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", is_eager=True, callback=_print_version, help="Version."
        ),
    ] = False,
) -> None:
    """Keep every message of an agent's session, and show the model a view that fits."""


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character prints a question mark instead.
            stream.reconfigure(errors="replace")
    try:
        code = _run(arguments or ["--help"])
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison] - closed by a shell
            sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:
        _discard_output()
        return _fail(f"{error.strerror}: {error.filename}" if error.filename else str(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    return code


def _run(arguments: Sequence[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code: object = command.main(list(arguments), prog_name="foldmark", standalone_mode=False)
    except FoldmarkError as error:
        return _fail(error_line(error))
    except _UsageError as error:
        usage: Any = error
        path = usage.ctx.command_path if getattr(usage, "ctx", None) else "foldmark"
        return _fail(f"{usage.format_message().rstrip('.')} (see {path} --help)")
    return code if isinstance(code, int) else 0


def _fail(problem: str) -> int:
    sys.stderr.write(f"foldmark: {plain(problem, limit=1_000)}\n")
    return FAILED


def _discard_output() -> None:
    """Send buffered output nowhere; otherwise Python reports the error again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
