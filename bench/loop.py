"""The agent's loop: what a step costs beside the model and the tools, early and late in a run.

The model answers at once and the tools do next to nothing, so that all that is measured is ours.
CPU time of the process, and apart from it that of its children, which are git's.
"""

import os
import resource
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import foldmark
from foldmark.agent.agent import Agent
from foldmark.agent.function_tools import tool
from foldmark.agent.tool import Tool
from foldmark.model.messages import Pending, TextPart, Tokens, ToolPart
from foldmark.summary.protocol import DeltaHandler, ModelReply, ModelRequest, StepReply, TextHandler
from foldmark.testing import plausible_reply

from .measure import millis

STEPS, WINDOW, FILES = 5_000, 16_000, 200
NEAR = 500  # steps, from the 10th on and to the last, that are looked at
Row = tuple[str, ...]


class Spent(NamedTuple):
    """CPU seconds until a step began."""

    own: float
    children: float


def spent() -> Spent:
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return Spent(own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime)


_BY_TOOLS = [0.0]  # CPU seconds that tools took themselves


class Hasty:
    """A model that calls one tool in each step, and notes when it was asked."""

    name = "bench:hasty"

    def __init__(self, call: str) -> None:
        self._call = call
        self.times: list[Spent] = []

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply:
        del request, on_delta
        now = spent()
        self.times.append(Spent(now.own - _BY_TOOLS[0], now.children))
        number = len(self.times)
        if number > STEPS:
            return StepReply(parts=(TextPart(text="Done."),))
        state = Pending(input={"number": number})
        call = ToolPart(tool=self._call, call_id=f"call_{number}", state=state)
        said = TextPart(text=f"I continue with file {number} of the logs, and read what it says.")
        return StepReply(parts=(said, call), finish="tool-calls", tokens=Tokens(input=1, output=20))

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> ModelReply:
        del on_text
        return ModelReply(text=plausible_reply(request))


@tool(changes_files=False)
async def look(number: int) -> str:
    """Read a log file."""
    return f"file {number}: " + "all requests served, no errors; " * 50


def tools_in(folder: Path) -> tuple[Tool, ...]:
    """Tools that write: one that names its file before it does, and two that do not."""

    @tool(changed_paths=lambda given: (_log_name(given["number"]),))
    async def put(number: int) -> str:
        """Write a log file."""
        return _write_log(folder / _log_name(number), number)

    @tool
    async def throw(number: int) -> str:
        """Write some log file."""
        return _write_log(folder / _log_name(number), number)

    @tool
    async def add(number: int) -> str:
        """Write one more log file in place of an old one."""
        (folder / f"new {number - FILES}.txt").unlink(missing_ok=True)
        return _write_log(folder / f"new {number}.txt", number)

    return put, throw, add


def _log_name(number: object) -> str:
    return f"log {int(str(number)) % FILES}.txt"


def _write_log(log: Path, number: int) -> str:
    before = spent().own
    log.write_text(f"{number}\n" * 20)
    _BY_TOOLS[0] += spent().own - before
    return f"file {number}: " + "written with all its lines now; " * 50


def steps() -> Iterator[Row]:
    """Runs of many steps: without a folder, with one that is read, with one that is written."""
    written = f"a folder of {FILES} files, one written per step"
    for name, folder, call in (
        ("without a folder", False, "look"),
        (f"a folder of {FILES} files, read only", True, "look"),
        (f"{written} by a tool that names it", True, "put"),
        (f"{written} by a tool that does not", True, "throw"),
        ("the same, each a new file", True, "add"),
    ):
        yield (name, *_row(*run(call, folder=folder)))


@contextmanager
def _data_in(place: Path) -> Generator[None]:
    """Keep the user's data elsewhere, for a while."""
    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(place)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_DATA_HOME"]
        else:
            os.environ["XDG_DATA_HOME"] = before


def run(call: str, *, folder: bool) -> tuple[list[Spent], int]:
    """What each step took, and how often the session was folded."""
    with tempfile.TemporaryDirectory(prefix="fm-loop-") as made, _data_in(Path(made) / "data"):
        place = Path(made)
        work = place / "work"
        work.mkdir()
        for number in range(FILES):
            (work / f"log {number}.txt").write_text("line\n" * number)
        model = Hasty(call)
        agent = Agent(
            model,
            tools=[look, *tools_in(work)],
            folder=work if folder else None,
            max_steps=STEPS + 1,
            titles=False,
        )
        with foldmark.open(place / "agent.db", window=WINDOW, durable=False) as session:
            agent.run("Read all logs of the service.", session)
            acts = len(session.operations())
        return model.times, acts


def _row(times: Sequence[Spent], acts: int) -> Row:
    took = [
        Spent(end.own - start.own, end.children - start.children) for start, end in pairwise(times)
    ]
    early, late = took[10 : 10 + NEAR], took[-NEAR:]
    usual = [median(one.own for one in part) for part in (early, late)]
    mean = [fmean(one.own for one in part) for part in (early, late)]
    children = [fmean(one.children for one in part) for part in (early, late)]
    return (
        *map(millis, usual),
        *map(millis, mean),
        f"{mean[1] / mean[0]:.2f}",
        *(millis(figure) if figure else "none" for figure in children),
        f"{acts:,}",
    )
