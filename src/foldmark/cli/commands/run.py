"""`foldmark run`: an agent that works in a folder, at a terminal or as a part of a script."""

import signal
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from foldmark.errors import BadInput, FoldmarkError

from ..chat.context import RunContext, RunOptions
from ..chat.lines import ended_event, print_event
from ..chat.loop import TERMINATED, Shown, talk, work
from ..groups import argument
from ..text import error_line

_STANDARD_INPUT = "-"

Task = Annotated[
    str | None,
    argument(
        "TASK",
        "What is to be done; - reads it from standard input. At a terminal it may be left "
        "out: a prompt asks for it.",
        show_default=False,
    ),
]
AsEvents = Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print the last words alone.")]


def run(
    task: Task = None, *, options: RunOptions, json: AsEvents = False, quiet: Quiet = False
) -> None:
    """Let an agent work in a folder, however long it takes; its session is kept.

    At a terminal you can go on talking, and Ctrl-C stops it: /help tells what else there is.
    Without one it ends with 0 when it is done, with 1 where steps, dollars or the length of an
    answer ended it, with 2 after an error, with 130 after Ctrl-C.

    Example: foldmark run "make the tests pass" --model anthropic:claude-sonnet-4-5 --allow
    'shell:pytest *'
    """
    shown = _shown(json=json, quiet=quiet)
    context: RunContext | None = None
    try:
        said = _read_task(task)
        if said is None and not options.goes_on and shown != "terminal":
            raise BadInput('say what is to be done: foldmark run "TASK"; - reads standard input')
        with ExitStack() as stack:
            # SIGTERM ends a run as an exit does, so that its session is closed.
            before = signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
            stack.callback(signal.signal, signal.SIGTERM, before or signal.SIG_DFL)
            context = RunContext(options, stack)
            code = talk(context, said) if shown == "terminal" else work(context, said, shown)
    except (FoldmarkError, OSError) as error:
        if shown == "json" and not isinstance(error, BrokenPipeError):
            # A program that reads events is told of the error as the last one.
            line = error_line(error) if isinstance(error, FoldmarkError) else str(error)
            print_event(
                ended_event(
                    context.session_id if context else "", {"ended": "failed", "error": line}
                )
            )
        raise
    raise typer.Exit(code)


def _shown(*, json: bool, quiet: bool) -> Shown:
    if json and quiet:
        raise BadInput("--json and --quiet contradict each other; give one of them")
    if json or quiet:
        return "json" if json else "quiet"
    return "terminal" if sys.stdin.isatty() and sys.stdout.isatty() else "plain"


def _read_task(task: str | None) -> str | None:
    """What is to be done; - is standard input."""
    text = sys.stdin.read() if task == _STANDARD_INPUT else task
    if text is not None and not text.strip():
        raise BadInput("the task is empty; say what is to be done")
    return text
