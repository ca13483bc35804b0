"""The calls of one answer: run at the same time, each result written when it is there.

A call's input is checked, permission asked for, its time minded. Whatever happens, every call
gets its result: one that was cut off says so.
"""

import asyncio
import logging
import re
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from time import monotonic
from typing import Any, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from foldmark.errors import Aborted, BadInput
from foldmark.model import events
from foldmark.model.messages import SHOWN, Completed, FilePart, Pending, Running, Time, ToolPart
from foldmark.model.values import Json, decoder, encode, parsed
from foldmark.providers.background import end_tasks, uncut
from foldmark.session.session import Session
from foldmark.summary.protocol import Stepped

from .function_tools import failure
from .permissions import Gate
from .tool import Context, Tool, ToolOutput, ToolRefusal
from .tools.paths import printed

T = TypeVar("T")
_log = logging.getLogger("foldmark")
CUT_OFF = "[Cut off: the turn was stopped while this ran. It may have done a part of its work.]"
TOO_LONG = "[Not run: the answer ended at its limit before the input of this call was written.]"
DIED = "[Cut off: the program ended while this ran. It may have done a part of its work.]"
_SHARE = 0.25  # of the window, for all outputs of one step together
_LEAST = 50  # tokens of an output that are shown in any case
_MOST_DOLLARS = 1e9  # more is no price, and neither is what is no number
_TOLD = 200  # characters of an error that are told
_GRACE = 5.0  # seconds that cancelled tools have to end


_KINDS = {"text": str, "title": str, "files": (tuple, list), "metadata": Mapping}
_LONGEST_CAUSE = 200  # characters of what is wrong with an output
_read = decoder(Completed)
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "\N{REPLACEMENT CHARACTER}"


class Toolbox(NamedTuple):
    """What an agent works with."""

    tools: Mapping[str, Tool]
    gate: Gate

    @property
    def changes(self) -> bool:
        """Whether one of the tools may change files."""
        return any(tool.changes for tool in self.tools.values())

    def may_change(self, parts: Sequence[ToolPart]) -> bool:
        """Whether one of these calls may change files."""
        return any(self.tools[part.tool].changes for part in parts if part.tool in self.tools)

    def named(self, parts: Sequence[ToolPart]) -> list[str]:
        """The files that these calls may change, as far as their tools can tell."""
        known = ((self.tools[part.tool], part) for part in parts if part.tool in self.tools)
        return [path for tool, part in known for path in _touched(tool, part)]


def _touched(tool: Tool, part: ToolPart) -> Sequence[str]:
    if tool.touches is None or not tool.changes:
        return ()
    try:
        return tool.touches(part.state.input or {})
    except Exception as error:  # noqa: BLE001 - anybody's code, with a model's input
        _log.warning("the tool %s cannot tell which files it touches: %r", tool.name, error)
        return ()


def begun(part: ToolPart, now: int) -> ToolPart:
    """A call as it is recorded before it runs; its input as it came, where it is no JSON."""
    state = part.state
    if getattr(state, "raw", None):
        return part
    running = Running(input=state.input or {}, time=Time(start=now))
    return replace(part, state=running)


class CallsOutcome(NamedTuple):
    """What calls came to."""

    cost: float = 0.0  # dollars
    files: tuple[str, ...] = ()  # that they say they wrote


def cut_call(stepped: Stepped) -> str | None:
    """The call whose input the answer's end cut off, by its id, if there is one.

    Broken JSON tells that by itself; no input at all does not.
    """
    match stepped.parts[-1:]:
        case (ToolPart() as last,) if stepped.finish == "length" and not last.state.input:
            return last.call_id or None
        case _:
            return None


async def done(
    parts: Sequence[ToolPart], hands: Toolbox, context: Context, *, cut: str | None = None
) -> CallsOutcome:
    """Run calls, and write their results; one that was `cut` is not run."""
    session = context.session
    room = int(session.room * _SHARE) // max(len(parts), 1)
    tasks = [
        asyncio.create_task(_done(part, hands, context._replace(call_id=part.call_id), room))
        for part in parts
        if part.call_id != cut
    ]
    try:
        if tasks:
            with suppress(Aborted):
                await unless_stopped(asyncio.wait(tasks), context.aborted, _GRACE)
    finally:
        try:
            await end_tasks(tasks, _GRACE)
        finally:
            await _close(session, parts, tasks, cut)
    did = [task.result() for task in tasks if task.done() and not task.cancelled()]
    return CallsOutcome(
        sum(each.cost for each in did), tuple(file for each in did for file in each.files)
    )


async def _close(
    session: Session,
    parts: Sequence[ToolPart],
    tasks: list["asyncio.Task[CallsOutcome]"],
    cut: str | None,
) -> None:
    """Give what has no result one that says why."""
    if cut is not None:
        await uncut(close_open, session, TOO_LONG, {cut})
    if any(not task.done() or task.cancelled() or task.exception() for task in tasks):
        named = {part.call_id or "": part.tool for part in parts}
        stopped = ToolOutput(text="", error=True)
        for call in await uncut(close_open, session, CUT_OFF, set(named)):
            _tell_end(session, call, named[call], stopped, told="stopped", seconds=0.0)


async def unless_stopped(
    work: Coroutine[Any, Any, T] | asyncio.Future[T], stop: asyncio.Event, grace: float
) -> T:
    """What some work gives; Aborted, and the work is cancelled, where it is to stop before."""
    task, stopped = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Aborted
    finally:
        stopped.cancel()
        await end_tasks((task,), grace)


async def _done(part: ToolPart, hands: Toolbox, context: Context, room: int) -> CallsOutcome:
    session = context.session
    session.publish(
        events.TOOL_STARTED, call=part.call_id, tool=part.tool, input=part.state.input or {}
    )
    start = monotonic()
    output = await called(hands, part, context)
    tool = hands.tools.get(part.tool)
    shown = tool.shown if tool else _LEAST
    if room:
        shown = max(min(shown, room), _LEAST)
    await uncut(_written, session, part.call_id or "", output, shown)
    told = output.text.strip().partition("\n")[0][:_TOLD] if output.error else ""
    seconds = round(monotonic() - start, 3)
    _tell_end(session, part.call_id or "", part.tool, output, told=told, seconds=seconds)
    cost, files = output.metadata.get("cost"), output.metadata.get("files")
    named = cast("list[object]", files) if isinstance(files, list) else []
    return CallsOutcome(
        float(cost) if isinstance(cost, int | float) and 0 <= cost < _MOST_DOLLARS else 0.0,
        tuple(file for file in named if isinstance(file, str)),
    )


def _tell_end(
    session: Session, call: str, tool: str, output: ToolOutput, *, told: str, seconds: float
) -> None:
    session.publish(
        events.TOOL_FINISHED,
        call=call,
        tool=tool,
        title=output.title,
        error=output.error,
        told=told,
        characters=len(output.text),
        seconds=seconds,
        **({"exit": output.metadata["exit"]} if "exit" in output.metadata else {}),
    )


def _written(session: Session, call_id: str, output: ToolOutput, shown: int) -> None:
    metadata: dict[str, object] = {**output.metadata, SHOWN: shown}
    if output.title:
        metadata["title"] = output.title
    if output.error:
        # It stays an output, so that it can be shown in part and pruned, however long it is.
        metadata["is_error"] = True
    try:
        session.result(call_id, output.text, files=output.files, metadata=metadata)
    except BadInput as error:  # whoever closed it meanwhile has the last word
        _log.warning("a result came too late: %s", error)


def close_open(session: Session, words: str, among: set[str] | None = None) -> list[str]:
    """Give calls that are still open a result that says why there is no other; their ids."""
    closed: list[str] = []
    for call in session.open_calls():
        if among is None or call.call_id in among:
            with suppress(BadInput):  # its own result came meanwhile
                session.result(call.call_id, words, error=True)
                closed.append(call.call_id)
    return closed


# --- one call ------------------------------------------------------------------------------


async def called(hands: Toolbox, part: ToolPart, context: Context) -> ToolOutput:
    """What a call gives, whatever happens."""
    tool = hands.tools.get(part.tool)
    if tool is None:
        return _kept(ToolOutput(text=_unknown(part.tool, hands.tools), error=True))
    try:
        given = _input(part)
        refusal = await hands.gate.refusal(tool.name, tool.subject(given), given)
        if refusal is None:
            output = await _timed(tool, given, context._replace(gate=hands.gate))
        else:
            output = ToolOutput(text=refusal, error=True)
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
        raise ToolRefusal(
            f"the input of {part.tool} is no JSON ({error.cause}); call it again"
        ) from None
    if not isinstance(given, dict):
        raise ToolRefusal(f"the input of {part.tool} is no JSON object; call it again with one")
    return cast("Json", given)


async def _timed(tool: Tool, given: Json, context: Context) -> ToolOutput:
    """What a tool gives within its time; what does not end when it is cancelled is left behind."""
    task = asyncio.create_task(_contained(tool, given, context))
    try:
        await asyncio.wait({task}, timeout=tool.seconds)
        if task.done():
            return _checked(task)
    finally:
        await end_tasks((task,), _GRACE)
    raise ToolRefusal(f"timed out after {tool.seconds:g} s")


async def _contained(tool: Tool, given: Json, context: Context) -> ToolOutput:
    """What a tool gives; what it raises goes no further, as an exit would end the whole loop."""
    try:
        return await tool.call(given, context)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the model is told, whatever it is
        return failure(error)


def _checked(task: asyncio.Future[ToolOutput]) -> ToolOutput:
    if task.cancelled():
        raise ToolRefusal("the tool gave up: it was cancelled from within")
    output = task.result()
    if not isinstance(output, ToolOutput):  # pyright: ignore[reportUnnecessaryIsInstance] - a stranger's
        raise ToolRefusal(f"the tool gave no output, but {type(output).__name__}")
    if wrong := _misfit(output):
        raise ToolRefusal(f"the tool ran, but what it gave cannot be kept: {wrong}")
    return output


def _misfit(output: ToolOutput) -> str | None:
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


def _kept(output: ToolOutput) -> ToolOutput:
    """An output as it can be kept and sent: half a character is no UTF-8, and no provider's."""
    if not _HALVES.search(output.text) and not _HALVES.search(output.title):
        return output
    text, title = _HALVES.sub(_REPLACED, output.text), _HALVES.sub(_REPLACED, output.title)
    return replace(output, text=text, title=title)
