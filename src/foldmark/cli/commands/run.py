"""`foldmark run`: an agent that works in a folder, interactively or in a script."""

import signal
import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from foldmark.errors import BadInput, FoldmarkError

from ..chat.context import RunContext, RunOptions
from ..chat.lines import ended_event, print_event
from ..chat.loop import TERMINATED, OutputMode, run_chat, run_once
from ..groups import argument, switch
from ..text import error_line

_STANDARD_INPUT = "-"

Task = Annotated[
    str | None,
    argument(
        "TASK",
        "Task for the agent; - reads it from standard input. On a terminal it may be left out: a "
        "prompt asks for it.",
        show_default=False,
    ),
]
AsEvents = Annotated[bool, switch("--json", "Print each event as a line of JSON.")]
Quiet = Annotated[bool, switch("-q --quiet", "Print only the final reply.")]


def run(
    task: Task = None, *, options: RunOptions, json: AsEvents = False, quiet: Quiet = False
) -> None:
    """Let an agent work in a directory, and keep its session in a store.

    On a terminal, a prompt follows each turn, and Ctrl-C stops a turn; /help lists the commands.
    Otherwise the exit code is 0 when the task is done, 1 if a limit of steps, cost or reply length
    was reached, 2 after an error, and 130 after Ctrl-C.

    Example: foldmark run "make the tests pass" -m anthropic:claude-sonnet-4-5 --allow
    'shell:pytest *'
    """
    mode = _output_mode(json=json, quiet=quiet)
    context: RunContext | None = None
    try:
        text = _read_task(task)
        if text is None and not options.resume and mode != "terminal":
            raise BadInput('there is no task; give one: foldmark run "TASK"')
        with ExitStack() as stack:
            # SIGTERM ends a run like an exit, so that its session is closed.
            before = signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
            stack.callback(signal.signal, signal.SIGTERM, before or signal.SIG_DFL)
            context = RunContext(options, stack)
            code = run_chat(context, text) if mode == "terminal" else run_once(context, text, mode)
    except (FoldmarkError, OSError) as error:
        if mode == "json" and not isinstance(error, BrokenPipeError):
            # Programs that read events get the error as the last event.
            line = error_line(error) if isinstance(error, FoldmarkError) else str(error)
            session = context.session_id if context else ""
            print_event(ended_event(session, {"ended": "failed", "error": line}))
        raise
    raise typer.Exit(code)


def _output_mode(*, json: bool, quiet: bool) -> OutputMode:
    if json and quiet:
        raise BadInput("--json and --quiet exclude each other; give one of them")
    if json or quiet:
        return "json" if json else "quiet"
    return "terminal" if sys.stdin.isatty() and sys.stdout.isatty() else "plain"


def _read_task(task: str | None) -> str | None:
    """The task, from standard input if it is `-`."""
    text = sys.stdin.read() if task == _STANDARD_INPUT else task
    if text is not None and not text.strip():
        raise BadInput("the task is empty; describe what to do")
    return text
