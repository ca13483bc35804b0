"""One call of a tool, from what a model asked for to an output: it always ends with one.

It checks the input, asks for permission, and minds the time. What is kept and shown of an output
is told elsewhere.
"""

import asyncio
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import cast

from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.messages import SHOWN, Pending, ToolPart
from foldmark.values import Json, parsed

from .functions import failure
from .paths import printed
from .permissions import Gate
from .tool import Context, Output, Refusal, Tool

_GRACE = 5.0  # seconds that a cancelled call has to end what it started
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "\N{REPLACEMENT CHARACTER}"


async def called(
    tool: Tool | None,
    part: ToolPart,
    context: Context,
    gate: Gate,
    *,
    names: Iterable[str] = (),
) -> Output:
    """What a call gives, whatever happens; `names` are those of the tools that there are."""
    if tool is None:
        return _kept(Output(text=_unknown(part.tool, names), error=True))
    try:
        given = _input(part)
        refusal = await gate.refusal(tool.name, tool.subject(given), given)
        if refusal is None:
            output = await _timed(tool, given, context)
        else:
            output = Output(text=refusal, error=True)
    except Exception as error:  # noqa: BLE001 - the model is told, whatever it is
        output = failure(error)
    return _kept(replace(output, metadata={**output.metadata, SHOWN: tool.shown}))


def _unknown(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    near = get_close_matches(name, known, n=3, cutoff=0.5) or known[:20]
    there = f"; there are {', '.join(near)}" if near else "; there are no tools"
    return f"there is no tool {printed(name)}{there}"


def _input(part: ToolPart) -> Json:
    """The input of a call; what is no JSON object was kept as it came."""
    state = part.state
    raw = state.raw if isinstance(state, Pending) else None
    if state.input or not raw or not raw.strip():
        return state.input or {}
    try:
        given = parsed(raw.encode("utf-8", "surrogatepass"))
    except BadInput as error:
        raise Refusal(
            f"the input of {part.tool} is no JSON ({error.cause}); call it again"
        ) from None
    if not isinstance(given, dict):
        raise Refusal(f"the input of {part.tool} is no JSON object; call it again with one")
    return cast("Json", given)


async def _timed(tool: Tool, given: Json, context: Context) -> Output:
    """What a tool gives within its time; what does not end when it is cancelled is left behind."""
    task = asyncio.ensure_future(tool.call(given, context))
    try:
        done, _ = await asyncio.wait({task}, timeout=tool.seconds)
        if done:
            return _outcome(task)
    except asyncio.CancelledError:
        await _left(task)
        raise
    await _left(task)
    raise Refusal(f"timed out after {tool.seconds:g} s")


def _outcome(task: asyncio.Future[Output]) -> Output:
    if task.cancelled():
        raise Refusal("the tool gave up: it was cancelled from within")
    output = task.result()
    if not isinstance(output, Output):  # pyright: ignore[reportUnnecessaryIsInstance] - a stranger's
        raise Refusal(f"the tool gave no output, but {type(output).__name__}")
    return output


async def _left(task: asyncio.Future[Output]) -> None:
    """Cancel a call, and give it a moment to clear up."""
    task.cancel()
    task.add_done_callback(_heard)
    await asyncio.wait({task}, timeout=_GRACE)


def _heard(task: asyncio.Future[Output]) -> None:
    if not task.cancelled():
        task.exception()  # an error that nobody asks for would be complained of


def _kept(output: Output) -> Output:
    """An output as it can be kept and sent: half a character is no UTF-8, and no provider's."""
    if not _HALVES.search(output.text) and not _HALVES.search(output.title):
        return output
    text, title = _HALVES.sub(_REPLACED, output.text), _HALVES.sub(_REPLACED, output.title)
    return replace(output, text=text, title=title)
