"""A tool: a name, a schema, and a coroutine that takes an input and returns an output."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from foldmark.model.messages import FilePart
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.model.values import Frozen, Json
from foldmark.session.session import Session

from .permissions import PermissionGate

SECONDS = 120.0  # default time limit of a call
VISIBLE_TOKENS = 8_000  # of an output by default; the whole can be recalled by its handle


class ToolOutput(Frozen):
    """The output of a tool. The whole text is stored, however little of it is visible."""

    text: str
    title: str = ""  # short, for the screen
    files: tuple[FilePart, ...] = ()
    metadata: Mapping[str, object] = {}
    error: bool = False


class Context(NamedTuple):
    """The surroundings of a call, for functions that ask for them."""

    session: Session
    folder: Path  # the working folder
    call_id: str
    agent: str  # name of the calling agent
    aborted: asyncio.Event  # set when the turn stops
    gate: PermissionGate | None = None  # the gate that permitted the call


class ToolRefusal(Exception):
    """Raised inside a tool: the model gets its text as an error."""


class Tool(NamedTuple):
    """A tool of an agent."""

    name: str
    description: str
    schema: Json  # of the input object
    call: Callable[[Json, Context], Awaitable[ToolOutput]]
    seconds: float = SECONDS
    visible_tokens: int = VISIBLE_TOKENS
    changes_files: bool = True  # False for read-only tools: they need no snapshot
    # The files that a call with this input may change; None: any file.
    changed_paths: Callable[[Json], tuple[str, ...]] | None = None
    subject: Callable[[Json], str] = lambda _: ""  # text that permission patterns match

    @property
    def declaration(self) -> ToolDeclaration:
        """The tool as requests declare it."""
        return ToolDeclaration(name=self.name, description=self.description, schema=self.schema)
