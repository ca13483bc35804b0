"""Counts the calls that one `result` of a warm session and the `messages` after it make.

A transition is a call of a function of the package in another file than the call before it: the
jumps that a reader makes who follows the code. Run it as `python scripts/trace_calls.py [--calls]`;
with `--calls` it lists each call as well.
"""

import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import foldmark

PACKAGE = str(Path(foldmark.__file__).parent)


class Trace(NamedTuple):
    """The calls of our functions in their order, each as its file and its name."""

    calls: list[tuple[str, str]]

    @property
    def transitions(self) -> int:
        """How often a call is in another file than the one before it."""
        files = [file for file, _ in self.calls]
        return sum(one != other for one, other in pairwise(files))

    @property
    def functions(self) -> int:
        """How many functions are called."""
        return len(set(self.calls))


def trace(work: Callable[[], object]) -> Trace:
    """The calls that some work makes in this thread."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            calls.append((file.removeprefix(PACKAGE + "/"), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return Trace(calls)


def call(number: int) -> dict[str, object]:
    """An answer of a model that calls a tool."""
    function = {"name": "read", "arguments": f'{{"path": "src/{number}.py"}}'}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def traces(folder: Path) -> dict[str, Trace]:
    """The traces on a session on which nothing is done for the first time."""
    with foldmark.open(folder / "trace.db", window=100_000) as session:
        session.user("Why does the login fail?")
        for number in range(3):
            session.record(call(number))
            session.result(f"call_{number}", "def login(): ...")
            session.messages()
        session.record(call(3))
        result = trace(lambda: session.result("call_3", "def login(): ..."))
        # What the result added is rendered here; nothing has to be pruned or folded.
        return {"result": result, "messages": trace(session.messages)}


def main() -> None:
    """Print the figures, and the calls if they are asked for."""
    with tempfile.TemporaryDirectory() as folder:
        found = traces(Path(folder))
    for name, held in found.items():
        print(f"{name}: {held.transitions} transitions, {held.functions} functions")
        for file, function in held.calls if "--calls" in sys.argv else ():
            print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
