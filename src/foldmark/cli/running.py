"""`foldmark run`: an agent that works in a folder, at a terminal or as a part of a script.

Here are its options. How it goes on is told in `run_working`, one turn in `run_turns`, what is
shown in `run_screen` and `run_lines`, what a prompt knows in `run_commands`.
"""

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from foldmark.agent.agent import STEPS
from foldmark.errors import BadInput

from .opening import store_settings
from .options import BaseUrl, StorePlace
from .plan import Window
from .run_opening import Wished, read_prompt, read_task, refuse_id
from .run_working import Bench, Failing, Shown, talk, terminable, work

EXAMPLE = (
    'Example: foldmark run "make the tests pass" --model anthropic:claude-sonnet-4-5 '
    "--allow 'shell:pytest *'"
)

Task = Annotated[
    str | None,
    typer.Argument(
        metavar="TASK",
        help="What is to be done; - reads it from standard input. At a terminal it may be left "
        "out: a prompt asks for it.",
        show_default=False,
    ),
]
RunModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER:NAME",
        help="Who does it; `local`, or local:FILE.gguf, runs on this machine.",
        show_default=False,
    ),
]
InSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        help="Work in this session, by its id or a beginning that only it has; `latest` is the "
        "newest one. A new one is made where this is left out.",
    ),
]
GoesOn = Annotated[
    bool,
    typer.Option(
        "-c",
        "--continue",
        help="Go on with the newest session of this folder, by its model unless --model is "
        "given; with another one: --session ID.",
    ),
]
InFolder = Annotated[
    Path, typer.Option("--folder", metavar="DIR", help="Where it works, and cannot leave.")
]
Allow = Annotated[
    list[str],
    typer.Option(
        "--allow",
        metavar="RULE",
        help="Tools to call without asking: shell, 'shell:git *'. --ask and --deny count more.",
    ),
]
Ask = Annotated[
    list[str],
    typer.Option(
        "--ask",
        metavar="RULE",
        help="Tools to ask about, whatever --allow says. --deny counts more.",
    ),
]
Deny = Annotated[
    list[str],
    typer.Option(
        "--deny",
        metavar="RULE",
        help="Tools never to call: 'write:src/*'. It counts most, whatever is narrower.",
    ),
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Requests of one turn, at most.")]
Cost = Annotated[
    float | None,
    typer.Option(
        "--cost", metavar="DOLLARS", help="What one turn may cost, where prices are known."
    ),
]
RunSummarizer = Annotated[
    str | None,
    typer.Option(
        "--summarizer", metavar="NAME", help="Who summarises: digest, or PROVIDER:MODEL; else it."
    ),
]
RunPolicy = Annotated[
    str | None, typer.Option("--policy", metavar="NAME", help="When to prune and compact.")
]
PromptFile = Annotated[
    Path | None,
    typer.Option("--prompt", metavar="FILE", help="A system prompt in place of the usual one."),
]
AsEvents = Annotated[bool, typer.Option("--json", help="Print every event as a line of JSON.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print the last words alone.")]


def run(  # noqa: PLR0913 - each is an option of the command
    task: Task = None,
    *,
    model: RunModel = None,
    base_url: BaseUrl = None,
    window: Window = None,
    session: InSession = None,
    goes_on: GoesOn = False,
    folder: InFolder = Path(),
    allow: Allow = [],  # noqa: B006 - typer copies it
    ask: Ask = [],  # noqa: B006 - the same
    deny: Deny = [],  # noqa: B006 - the same
    steps: Steps = STEPS,
    cost: Cost = None,
    summarizer: RunSummarizer = None,
    policy: RunPolicy = None,
    prompt: PromptFile = None,
    store: StorePlace = None,
    json: AsEvents = False,
    quiet: Quiet = False,
) -> None:
    """Let an agent work in a folder, however long it takes; its session is kept.

    At a terminal you can go on talking, and Ctrl-C stops it: /help tells what else there is.
    Without one it ends with 0 when it is done, with 1 where steps, dollars or the length of an
    answer ended it, with 2 after an error, with 130 after Ctrl-C.
    """
    shown = _shown(json=json, quiet=quiet)
    with Failing(shown) as failing:
        said = read_task(task)
        if said is None and not goes_on and shown != "terminal":
            raise BadInput('say what is to be done: foldmark run "TASK"; - reads standard input')
        if cost is not None and not (math.isfinite(cost) and cost > 0):
            raise BadInput(f"--cost is {cost:g}; give more than 0 dollars")
        wished = Wished(
            session=session,
            goes_on=goes_on,
            folder=folder.resolve(),
            prompt=read_prompt(prompt),
            steps=steps,
            cost=cost,
            given_folder=None if folder == Path() else folder,
            model=model,
            base_url=base_url,
            window=window,
            store=store,
            allow=tuple(allow),
            ask=tuple(ask),
            deny=tuple(deny),
        )
        settings = store_settings(
            store=store, model=model, window=window, policy=policy, summarizer=summarizer
        )
        refuse_id(settings, task, goes_on=goes_on)
        with terminable(), ExitStack() as stack:
            failing.bench = bench = Bench(wished, settings, stack)
            code = talk(bench, said) if shown == "terminal" else work(bench, said, shown)
    raise typer.Exit(code)


def _shown(*, json: bool, quiet: bool) -> Shown:
    if json and quiet:
        raise BadInput("--json and --quiet contradict each other; give one of them")
    if json or quiet:
        return "json" if json else "quiet"
    return "terminal" if sys.stdin.isatty() and sys.stdout.isatty() else "plain"
