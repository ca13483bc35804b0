"""Runs the tool calls of one answer concurrently and records each result when it arrives.

A call's input is checked, its permission and its time limit are enforced. Every call gets a
result, whatever happens; a call that was cut off says so in its result.
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
from foldmark.model.messages import (
    SHOWN_TOKENS,
    Completed,
    FilePart,
    Pending,
    Running,
    Time,
    ToolPart,
)
from foldmark.model.values import Json, decoder, encode, parse_json
from foldmark.providers.background import end_tasks, run_uninterrupted
from foldmark.session.session import Session
from foldmark.summary.protocol import StepReply

from .function_tools import failure
from .permissions import PermissionGate
from .tool import Context, Tool, ToolOutput, ToolRefusal
from .tools.paths import quote_path

T = TypeVar("T")
_log = logging.getLogger("foldmark")
CUT_OFF = "[Cut off: the turn was stopped while this ran. It may have done a part of its work.]"
TOO_LONG = "[Not run: the answer ended at its limit before the input of this call was written.]"
DIED = "[Cut off: the program ended while this ran. It may have done a part of its work.]"
_SHARE = 0.25  # of the window, for all outputs of one step
_MIN_VISIBLE = 50  # tokens of an output that are always visible
_MAX_DOLLARS = 1e9  # a larger cost in the metadata is an error
_MAX_ERROR = 200  # characters of an error in events
_GRACE = 5.0  # seconds for cancelled tools to end


_KINDS = {"text": str, "title": str, "files": (tuple, list), "metadata": Mapping}
_MAX_CAUSE = 200  # characters of the problem with an output
_read = decoder(Completed)
_HALVES = re.compile("[\ud800-\udfff]")
_REPLACED = "\N{REPLACEMENT CHARACTER}"


class Toolbox(NamedTuple):
    """The tools of an agent, and the gate that permits their calls."""

    tools: Mapping[str, Tool]
    gate: PermissionGate

    @property
    def changes_files(self) -> bool:
        """Whether one of the tools may change files."""
        return any(tool.changes_files for tool in self.tools.values())

    def may_change(self, parts: Sequence[ToolPart]) -> bool:
        """Whether one of these calls may change files."""
        return any(self.tools[part.tool].changes_files for part in parts if part.tool in self.tools)

    def named_paths(self, parts: Sequence[ToolPart]) -> list[str]:
        """The files that these calls may change, as far as their inputs name them."""
        calls = ((self.tools[part.tool], part) for part in parts if part.tool in self.tools)
        return [path for tool, part in calls for path in _changed_paths(tool, part)]


def _changed_paths(tool: Tool, part: ToolPart) -> Sequence[str]:
    if tool.changed_paths is None or not tool.changes_files:
        return ()
    try:
        return tool.changed_paths(part.state.input or {})
    except Exception as error:  # noqa: BLE001 - anybody's code, with a model's input
        _log.warning("changed_paths of the tool %s failed: %r", tool.name, error)
        return ()


def as_running(part: ToolPart, now: int) -> ToolPart:
    """The call as running; input that is not valid JSON stays as received."""
    state = part.state
    if getattr(state, "raw", None):
        return part
    running = Running(input=state.input or {}, time=Time(start=now))
    return replace(part, state=running)


class CallsOutcome(NamedTuple):
    """Cost and files of some calls."""

    cost: float = 0.0  # dollars
    files: tuple[str, ...] = ()  # files that they report as written


def truncated_call(reply: StepReply) -> str | None:
    """The id of the last call if the output limit cut off its input, else None.

    Only a missing input is meant: broken JSON is detected when the call runs.
    """
    match reply.parts[-1:]:
        case (ToolPart() as last,) if reply.finish == "length" and not last.state.input:
            return last.call_id or None
        case _:
            return None


async def run_calls(
    parts: Sequence[ToolPart], toolbox: Toolbox, context: Context, *, truncated: str | None = None
) -> CallsOutcome:
    """Run calls and record their results; the `truncated` one is not run."""
    session = context.session
    budget = int(session.usable * _SHARE) // max(len(parts), 1)
    tasks = [
        asyncio.create_task(_run(part, toolbox, context._replace(call_id=part.call_id), budget))
        for part in parts
        if part.call_id != truncated
    ]
    try:
        if tasks:
            with suppress(Aborted):
                await run_unless_stopped(asyncio.wait(tasks), context.aborted, _GRACE)
    finally:
        try:
            await end_tasks(tasks, _GRACE)
        finally:
            await _close(session, parts, tasks, truncated)
    outcomes = [task.result() for task in tasks if task.done() and not task.cancelled()]
    return CallsOutcome(
        sum(each.cost for each in outcomes), tuple(file for each in outcomes for file in each.files)
    )


async def _close(
    session: Session,
    parts: Sequence[ToolPart],
    tasks: list["asyncio.Task[CallsOutcome]"],
    truncated: str | None,
) -> None:
    """Give each call without a result one that says why."""
    if truncated is not None:
        await run_uninterrupted(close_open_calls, session, TOO_LONG, {truncated})
    if any(not task.done() or task.cancelled() or task.exception() for task in tasks):
        tools = {part.call_id or "": part.tool for part in parts}
        output = ToolOutput(text="", error=True)
        for call in await run_uninterrupted(close_open_calls, session, CUT_OFF, set(tools)):
            _publish_end(session, call, tools[call], output, error_line="stopped", seconds=0.0)


async def run_unless_stopped(
    work: Coroutine[Any, Any, T] | asyncio.Future[T], stop: asyncio.Event, grace: float
) -> T:
    """The result of some work; raises Aborted and cancels the work if `stop` is set first."""
    task, stopped = asyncio.ensure_future(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Aborted
    finally:
        stopped.cancel()
        await end_tasks((task,), grace)


async def _run(part: ToolPart, toolbox: Toolbox, context: Context, budget: int) -> CallsOutcome:
    session = context.session
    session.publish(
        events.TOOL_STARTED, call=part.call_id, tool=part.tool, input=part.state.input or {}
    )
    start = monotonic()
    output = await call_tool(toolbox, part, context)
    tool = toolbox.tools.get(part.tool)
    visible = tool.visible_tokens if tool else _MIN_VISIBLE
    if budget:
        visible = max(min(visible, budget), _MIN_VISIBLE)
    await run_uninterrupted(_write_result, session, part.call_id or "", output, visible)
    error_line = output.text.strip().partition("\n")[0][:_MAX_ERROR] if output.error else ""
    seconds = round(monotonic() - start, 3)
    _publish_end(
        session, part.call_id or "", part.tool, output, error_line=error_line, seconds=seconds
    )
    cost, files = output.metadata.get("cost"), output.metadata.get("files")
    paths = cast("list[object]", files) if isinstance(files, list) else []
    return CallsOutcome(
        float(cost) if isinstance(cost, int | float) and 0 <= cost < _MAX_DOLLARS else 0.0,
        tuple(file for file in paths if isinstance(file, str)),
    )


def _publish_end(
    session: Session, call: str, tool: str, output: ToolOutput, *, error_line: str, seconds: float
) -> None:
    session.publish(
        events.TOOL_FINISHED,
        call=call,
        tool=tool,
        title=output.title,
        error=output.error,
        told=error_line,
        characters=len(output.text),
        seconds=seconds,
        **({"exit": output.metadata["exit"]} if "exit" in output.metadata else {}),
    )


def _write_result(session: Session, call_id: str, output: ToolOutput, visible: int) -> None:
    metadata: dict[str, object] = {**output.metadata, SHOWN_TOKENS: visible}
    if output.title:
        metadata["title"] = output.title
    if output.error:
        # Recorded as an output, so that a long one can be truncated and pruned.
        metadata["is_error"] = True
    try:
        session.result(call_id, output.text, files=output.files, metadata=metadata)
    except BadInput as error:  # the call was closed meanwhile
        _log.warning("a tool result arrived after its call was closed: %s", error)


def close_open_calls(session: Session, text: str, among: set[str] | None = None) -> list[str]:
    """Close open calls with an error text; return their ids."""
    call_ids: list[str] = []
    for call in session.open_calls():
        if among is None or call.call_id in among:
            with suppress(BadInput):  # its own result arrived meanwhile
                session.result(call.call_id, text, error=True)
                call_ids.append(call.call_id)
    return call_ids


# --- one call ------------------------------------------------------------------------------


async def call_tool(toolbox: Toolbox, part: ToolPart, context: Context) -> ToolOutput:
    """Run one call; every failure becomes an output."""
    tool = toolbox.tools.get(part.tool)
    if tool is None:
        return _storable(ToolOutput(text=_unknown(part.tool, toolbox.tools), error=True))
    try:
        arguments = _input(part)
        refusal = await toolbox.gate.refusal(tool.name, tool.subject(arguments), arguments)
        if refusal is None:
            output = await _call_in_time(tool, arguments, context._replace(gate=toolbox.gate))
        else:
            output = ToolOutput(text=refusal, error=True)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the model is told, whatever it is
        output = failure(error)
    metadata = {**output.metadata, SHOWN_TOKENS: tool.visible_tokens}
    return _storable(replace(output, metadata=metadata))


def _unknown(name: str, names: Iterable[str]) -> str:
    tools = sorted(names)
    if near := get_close_matches(name, tools, n=3, cutoff=0.5):
        return f"there is no tool {quote_path(name)}; perhaps {' or '.join(near)} is meant"
    there = f"there are {', '.join(tools[:40])}" if tools else "there are no tools"
    return f"there is no tool {quote_path(name)}; {there}"


def _input(part: ToolPart) -> Json:
    """The input of a call; raises ToolRefusal if it is not a JSON object."""
    state = part.state
    raw = state.raw if isinstance(state, Pending) else None
    if state.input or not raw or not raw.strip():
        return state.input or {}
    try:
        value = parse_json(raw.encode("utf-8", "surrogatepass"))
    except BadInput as error:
        raise ToolRefusal(
            f"the input of {part.tool} is no JSON ({error.cause}); call it again"
        ) from None
    if not isinstance(value, dict):
        raise ToolRefusal(f"the input of {part.tool} is no JSON object; call it again with one")
    return cast("Json", value)


async def _call_in_time(tool: Tool, arguments: Json, context: Context) -> ToolOutput:
    """Run a tool with its time limit; a tool that ignores its cancellation is abandoned."""
    task = asyncio.create_task(_call_safely(tool, arguments, context))
    try:
        await asyncio.wait({task}, timeout=tool.seconds)
        if task.done():
            return _checked_output(task)
    finally:
        await end_tasks((task,), _GRACE)
    raise ToolRefusal(f"timed out after {tool.seconds:g} s")


async def _call_safely(tool: Tool, arguments: Json, context: Context) -> ToolOutput:
    """Run a tool and catch everything: even SystemExit must not end the loop."""
    try:
        return await tool.call(arguments, context)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the model is told, whatever it is
        return failure(error)


def _checked_output(task: asyncio.Future[ToolOutput]) -> ToolOutput:
    if task.cancelled():
        raise ToolRefusal("the tool gave up: it was cancelled from within")
    output = task.result()
    if not isinstance(output, ToolOutput):  # pyright: ignore[reportUnnecessaryIsInstance] - a stranger's
        raise ToolRefusal(f"the tool gave no output, but {type(output).__name__}")
    if problem := _problem(output):
        raise ToolRefusal(f"the tool ran, but what it gave cannot be kept: {problem}")
    return output


def _problem(output: ToolOutput) -> str | None:
    """The problem with an output, or None: tools can build outputs of any type."""
    for name, kind in _KINDS.items():
        value = getattr(output, name)
        if not isinstance(value, kind):
            return f"its {name} is {type(value).__name__}"
    for file in output.files:
        if not isinstance(file, FilePart):  # pyright: ignore[reportUnnecessaryIsInstance]
            return f"one of its files is {type(file).__name__}"
    if not output.files and not output.metadata:
        return None
    try:
        state = Completed(
            output="", input={}, attachments=tuple(output.files), metadata=dict(output.metadata)
        )
        _read(encode(state))
    except (BadInput, TypeError, ValueError, RecursionError) as error:
        return f"its files or metadata are no JSON ({str(error)[:_MAX_CAUSE]})"
    return None


def _storable(output: ToolOutput) -> ToolOutput:
    """The output without lone surrogates, which neither stores nor providers accept."""
    if not _HALVES.search(output.text) and not _HALVES.search(output.title):
        return output
    text, title = _HALVES.sub(_REPLACED, output.text), _HALVES.sub(_REPLACED, output.title)
    return replace(output, text=text, title=title)
