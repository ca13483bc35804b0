"""`foldmark compact`: a transcript made to fit a window, and where each token of it went."""

import os
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from foldmark.errors import BadInput
from foldmark.files import MOST_BYTES, harmless
from foldmark.log.log import handle
from foldmark.model.values import Json, encode
from foldmark.providers.models import summarizer as named_summarizer
from foldmark.session.means import DIGEST
from foldmark.summary.protocol import Summarizer
from foldmark.tokens.budget import pressure
from foldmark.wire.codec import WIRES, wire_named

from .compacted import report
from .exporting import STANDARD_OUTPUT, Force, check_output, write_file, write_json
from .fitting import Compacted, Goal, compacted
from .options import (
    DEFAULT_POLICY,
    AsJson,
    BaseUrl,
    File,
    FormatName,
    Lenient,
    MaxSize,
    Pick,
    PolicyName,
    Wanted,
    opened,
    policy_named,
)
from .plan import Window
from .tables import show, show_json

EXAMPLE = "Example: foldmark compact session.jsonl --window 64000 --output messages.json"
_LEAST_TARGET = 50

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER:NAME",
        help="The model whose window it shall fit; the newest one in the session unless given.",
    ),
]
Target = Annotated[
    int | None,
    typer.Option(
        "--target",
        min=_LEAST_TARGET,
        help="Tokens that the messages shall have at most, beside a system prompt.",
    ),
]
SummarizerName = Annotated[
    str,
    typer.Option(
        "--summarizer",
        metavar="NAME",
        help="Who summarises: digest, which asks nobody and costs nothing, or PROVIDER:MODEL.",
    ),
]
WireName = Annotated[
    str | None,
    typer.Option(
        "--wire",
        metavar="NAME",
        help=f"One of {', '.join(WIRES)}; the transcript's own unless given.",
    ),
]
Instructions = Annotated[
    str, typer.Option("--instructions", metavar="TEXT", help="What the summary shall look at most.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the messages to a file that only you may read; - is standard output.",
        show_default=False,
    ),
]
# What --output was called before; scripts may say so still.
Out = Annotated[str | None, typer.Option("--out", metavar="FILE", hidden=True)]


def compact(  # noqa: PLR0913 - each is an option of the command
    file: File,
    *,
    window: Window = None,
    target: Target = None,
    summarizer: SummarizerName = DIGEST,
    base_url: BaseUrl = None,
    wire: WireName = None,
    policy: PolicyName = DEFAULT_POLICY,
    model: ModelName = None,
    instructions: Instructions = "",
    output: Output = None,
    out: Out = None,
    force: Force = False,
    json: AsJson = False,
    format: FormatName = None,
    pick: Pick = None,
    lenient: Lenient = False,
    max_size: MaxSize = MOST_BYTES,
) -> None:
    """Make a session fit a window, and show where each token went. The file is not changed.

    Old tool outputs are pruned where that is enough; else the older part is folded into a summary.
    """
    _check_target(target, window)
    if output is not None and out is not None:
        raise BadInput("--out is another name of --output; give one of them")
    output = out if output is None else output
    if output is not None:
        _check_output(output, file, force=force, json=json)
    goal = Goal(
        policy=policy_named(policy),
        window=window,
        target=target,
        model=model,
        wire=None if wire is None else wire_named(wire).name,
        instructions=instructions,
        summarizer=_reached(summarizer, base_url),
    )
    wanted = Wanted(format=format, pick=pick, lenient=lenient, max_size=max_size)
    transcript, log = opened(file, goal.policy, wanted)
    made = compacted(transcript, log, goal, file=harmless(file))
    _tell(made, output, json=json)


def _check_target(target: int | None, window: int | None) -> None:
    """Refuse what no view could meet, before anything is read."""
    if target is not None and window is not None and target > window:
        raise BadInput(
            f"--target {target} is more than --window {window} holds; give a smaller target"
        )


def _check_output(output: str, file: str, *, force: bool, json: bool) -> None:
    """Refuse, before any work is done, what could not be written in the end."""
    if output == STANDARD_OUTPUT:
        if json:
            raise BadInput("--json and --output - both print; --json has the messages, too")
        return
    check_output(output, force=force)
    here, there = Path(file), Path(output)
    # A model may have been paid by the time of writing.
    if not os.access(there.parent, os.W_OK | os.X_OK):
        raise BadInput("its folder is not there, or not yours to write", source=harmless(output))
    if here.exists() and there.exists() and here.samefile(there):
        raise BadInput("this is the transcript itself; give another file", source=harmless(output))


def _reached(name: str, base_url: str | None) -> Summarizer | None:
    """The model that summarises; None for a digest, which needs none."""
    if name != DIGEST:
        if ":" not in name:
            raise BadInput(f"--summarizer is {DIGEST} or PROVIDER:MODEL, not {name!r}")
        return named_summarizer(name, base_url=base_url)
    if base_url:
        raise BadInput("--base-url is for a model that summarises; give --summarizer, too")
    return None


def _tell(made: Compacted, output: str | None, *, json: bool) -> None:
    messages = made.messages()
    if output == STANDARD_OUTPUT:
        write_json(encode(messages))
        return
    if output is not None:
        write_file(output, encode(messages))
    if json:
        show_json(as_json(made, output, messages))
    else:
        show(*report(made, output))


def as_json(made: Compacted, output: str | None, messages: list[Json]) -> Json:
    """What was done, as `--json` prints it."""
    fitted = made.fitted
    spent = made.spent
    summarizer = made.goal.summarizer
    return {
        "policy": made.goal.policy.name,
        "model": made.model or None,
        "window": made.limit.context or None,
        "usable": made.usable,
        "target": made.goal.target,
        "wire": made.wire,
        "fixed": made.fixed,
        "used": made.used,
        "before": structs.asdict(fitted.before),
        "after": structs.asdict(fitted.after),
        "pressure": pressure(fitted.after.tokens + made.fixed, made.usable),
        "summary": made.summary,
        "how": fitted.folded[-1].how if fitted.folded else None,
        "summarizer": summarizer.name if summarizer else DIGEST,
        "calls": spent.calls,
        "spent": spent.tokens,
        "cost": spent.cost,
        "flaws": list(spent.flaws),
        "pruned": [_pruned(made, ordinal) for ordinal in fitted.pruned],
        "folded": _folded(made),
        "tail_start": fitted.folded[-1].fold.tail_start if fitted.folded else None,
        "tokens": {"before": made.gone, "after": made.shares},
        "out": output,
        "messages": messages,
    }


def _pruned(made: Compacted, ordinal: int) -> Json:
    tool = made.viewer.log.calls[ordinal]
    name = tool.part.id or handle(ordinal)
    tokens = tool.tokens + tool.attached
    return {"part": name, "handle": handle(ordinal), "tool": tool.part.tool, "tokens": tokens}


def _folded(made: Compacted) -> list[Json]:
    """The messages that were folded, by their ids and numbers."""
    entries = made.viewer.log.entries
    return [
        {"message": entries[place].message.id, "number": place + 1} for place in made.folded_places
    ]
