"""One call of a tool, from what a model asked for to an output: it always ends with one.

It checks the input, asks for permission, and minds the time. What is kept and shown of an output
is told elsewhere.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import cast

from msgspec.structs import replace

from foldmark.errors import BadInput
from foldmark.model.messages import SHOWN, Completed, FilePart, Pending, ToolPart
from foldmark.model.values import Json, decoder, encode, parsed

from .functions import failure
from .paths import printed
from .permissions import Gate
from .tool import Context, Output, Refusal, Tool

_KINDS = {"text": str, "title": str, "files": (tuple, list), "metadata": Mapping}
_LONGEST_CAUSE = 200  # characters of what is wrong with an output
_read = decoder(Completed)
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
            output = await _timed(tool, given, context._replace(gate=gate))
        else:
            output = Output(text=refusal, error=True)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the model is told, whatever it is
        output = failure(error)
    return _kept(replace(output, metadata={**output.metadata, SHOWN: tool.shown}))


def _unknown(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    if near := get_close_matches(name, known, n=3, cutoff=0.5):
        return f"there is no tool {printed(name)}; perhaps {' or '.join(near)} is meant"
    there = f"there are {', '.join(known[:40])}" if known else "there are no tools"
    return f"there is no tool {printed(name)}; {there}"


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
    task = asyncio.create_task(_contained(tool, given, context))
    try:
        done, _ = await asyncio.wait({task}, timeout=tool.seconds)
        if done:
            return _outcome(task)
    except asyncio.CancelledError:
        await _left(task)
        raise
    await _left(task)
    raise Refusal(f"timed out after {tool.seconds:g} s")


async def _contained(tool: Tool, given: Json, context: Context) -> Output:
    """What a tool gives; what it raises goes no further, as an exit would end the whole loop."""
    try:
        return await tool.call(given, context)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the model is told, whatever it is
        return failure(error)


def _outcome(task: asyncio.Future[Output]) -> Output:
    if task.cancelled():
        raise Refusal("the tool gave up: it was cancelled from within")
    output = task.result()
    if not isinstance(output, Output):  # pyright: ignore[reportUnnecessaryIsInstance] - a stranger's
        raise Refusal(f"the tool gave no output, but {type(output).__name__}")
    if wrong := _misfit(output):
        raise Refusal(f"the tool ran, but what it gave cannot be kept: {wrong}")
    return output


def _misfit(output: Output) -> str | None:
    """What is wrong with an output: nothing in it was checked when it was made."""
    for name, kind in _KINDS.items():
        held = getattr(output, name)
        if not isinstance(held, kind):
            return f"its {name} is {type(held).__name__}"
    for file in output.files:
        if not isinstance(file, FilePart):  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"one of its files is {type(file).__name__}"
    if not output.files and not output.metadata:
        return None
    try:
        kept = Completed(
            output="", input={}, attachments=tuple(output.files), metadata=dict(output.metadata)
        )
        _read(encode(kept))
    except (BadInput, TypeError, ValueError, RecursionError) as error:
        return f"its files or metadata are no JSON ({str(error)[:_LONGEST_CAUSE]})"
    return None


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
