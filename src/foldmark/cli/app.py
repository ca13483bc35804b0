"""The commands put together, and how each of them ends: with its output, or with one line."""

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
from .groups import Command, expanded, help_and_example
from .text import error_line, plain

FAILED = 2
BROKEN_PIPE = 1
INTERRUPTED = 130

# ClickException: newer versions of typer carry their own, older ones take it from click.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[2])

app = typer.Typer(
    name="foldmark",
    help="Keeps an agent's session whole, and shows the model a view of it that fits.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS: dict[str, tuple[Command, ...]] = {
    "An agent": (run.run,),
    "One transcript": (
        inspect.inspect,
        plan.plan,
        compact.compact,
        export.convert,
        inspect.formats,
        demo.demo,
    ),
    "Sessions in a store": (
        import_.import_,
        sessions.sessions,
        show.show,
        search.search,
        search.recall,
        diff.diff,
        sessions.events,
        export.export,
    ),
    "For other agents": (mcp.mcp,),
    "Going back": (undo.undo, undo.revert, undo.fork),
    "Keeping a store": (maintain.gc, maintain.backup),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        _, _example = help_and_example(_command)
        _name = _command.__name__.rstrip("_")
        app.command(_name, epilog=_example, rich_help_panel=_panel)(expanded(_command))


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        sys.stdout.write(f"foldmark {version('foldmark')}\n")
        raise typer.Exit


@app.callback(epilog="Begin with: foldmark demo")
def options(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None:
    """Keeps an agent's session whole, and shows the model a view of it that fits."""


def main(arguments: Sequence[str]) -> int:
    """Run a command; its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character gets a question mark, not a traceback.
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
        told: Any = error
        path = told.ctx.command_path if getattr(told, "ctx", None) else "foldmark"
        return _fail(f"{told.format_message().rstrip('.')} (see {path} --help)")
    return code if isinstance(code, int) else 0


def _fail(problem: str) -> int:
    sys.stderr.write(f"foldmark: {plain(problem, most=1_000)}\n")
    return FAILED


def _discard_output() -> None:
    """Let what is still buffered go nowhere, or Python complains once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
