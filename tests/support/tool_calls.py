"""Tools called in tests as a loop calls them."""

import asyncio
from pathlib import Path
from typing import Any

import foldmark
from foldmark.agent.file_changes import trees_around
from foldmark.agent.permissions import PermissionGate, Permissions
from foldmark.agent.tool import Context, Tool, ToolOutput
from foldmark.agent.tool_calls import Toolbox, call_tool
from foldmark.model.messages import Pending, ToolPart
from foldmark.model.operations import FileDiff
from foldmark.model.values import Json
from foldmark.snapshots.snapshots import Snapshots

OPEN = PermissionGate(Permissions([("*", "allow")]))


def context_of(session: foldmark.Session, folder: Path) -> Context:
    """What a call of the tools in these tests knows."""
    return Context(session, folder, "c1", "agent", asyncio.Event())


def asked(name: str, arguments: Json | None = None, raw: str = "") -> ToolPart:
    """A call as a model makes it."""
    return ToolPart(tool=name, call_id="c1", state=Pending(input=arguments or {}, raw=raw))


def run(
    tool: Tool, context: Context, gate: PermissionGate = OPEN, /, **arguments: Any
) -> ToolOutput:
    """What a tool gives for this input."""
    return asyncio.run(calling(tool, asked(tool.name, arguments), context, gate))


async def calling(
    tool: Tool, part: ToolPart, context: Context, gate: PermissionGate = OPEN
) -> ToolOutput:
    """What a call gives that is meant for this tool."""
    return await call_tool(Toolbox({part.tool: tool}, gate), part, context)


def session_diff(
    snapshots: Snapshots, session: foldmark.Session, message_id: str | None = None
) -> tuple[FileDiff, ...]:
    """What a session did to files, or one of its messages, as `foldmark diff` finds it."""
    trees = trees_around(session, message_id)
    return snapshots.diff(*trees) if trees else ()
