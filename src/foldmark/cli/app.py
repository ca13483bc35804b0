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
from .groups import Command, expanded
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
_COMMANDS: dict[str, tuple[tuple[str, Command, str], ...]] = {
    "An agent": (("run", run.run, run.EXAMPLE),),
    "One transcript": (
        ("inspect", inspect.inspect, inspect.EXAMPLE),
        ("plan", plan.plan, plan.EXAMPLE),
        ("compact", compact.compact, compact.EXAMPLE),
        ("convert", export.convert, export.CONVERT_EXAMPLE),
        ("formats", inspect.formats, inspect.FORMATS_EXAMPLE),
        ("demo", demo.demo, demo.EXAMPLE),
    ),
    "Sessions in a store": (
        ("import", import_.import_files, import_.EXAMPLE),
        ("sessions", sessions.sessions, sessions.EXAMPLE),
        ("show", show.show_session, show.EXAMPLE),
        ("search", search.search, search.SEARCH_EXAMPLE),
        ("recall", search.recall, search.RECALL_EXAMPLE),
        ("diff", diff.diff, diff.EXAMPLE),
        ("events", sessions.events, sessions.EVENTS_EXAMPLE),
        ("export", export.export, export.EXAMPLE),
    ),
    "For other agents": (("mcp", mcp.mcp, mcp.EXAMPLE),),
    "Going back": (
        ("undo", undo.undo, undo.UNDO_EXAMPLE),
        ("revert", undo.revert, undo.REVERT_EXAMPLE),
        ("fork", undo.fork, undo.FORK_EXAMPLE),
    ),
    "Keeping a store": (
        ("gc", maintain.gc, maintain.GC_EXAMPLE),
        ("backup", maintain.back_up, maintain.BACKUP_EXAMPLE),
    ),
}
for _panel, _held in _COMMANDS.items():
    for _name, _command, _example in _held:
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
        return _fail(_usage(error))
    return code if isinstance(code, int) else 0


def _usage(error: Any) -> str:
    context: Any = getattr(error, "ctx", None)
    path = context.command_path if context else "foldmark"
    return f"{error.format_message().rstrip('.')} (see {path} --help)"


def _fail(problem: str) -> int:
    sys.stderr.write(f"foldmark: {plain(problem, most=1_000)}\n")
    return FAILED


def _discard_output() -> None:
    """Let what is still buffered go nowhere, or Python complains once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
