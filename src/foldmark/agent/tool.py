"""What a tool is: a name, a schema, and a coroutine that takes an input and gives an output."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from foldmark.model.messages import FilePart
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Frozen, Json
from foldmark.session.session import Session

from .permissions import Gate

SECONDS = 120.0  # that a call may take, unless its tool says otherwise
SHOWN = 8_000  # tokens of an output that are shown at most; the whole is recalled by its handle


class ToolOutput(Frozen):
    """What a tool gives back. The whole text is kept, however little of it is shown."""

    text: str
    title: str = ""  # a few words for people
    files: tuple[FilePart, ...] = ()
    metadata: Mapping[str, object] = {}
    error: bool = False


class Context(NamedTuple):
    """What a call can know of its surroundings."""

    session: Session
    folder: Path  # in which the agent works
    call_id: str
    agent: str  # the name of who called
    aborted: asyncio.Event  # set when the turn is to end
    gate: Gate | None = None  # that let the call through


class ToolRefusal(Exception):
    """Raised inside a tool: its text is told to the model as an error."""


class Tool(NamedTuple):
    """A tool of an agent."""

    name: str
    description: str
    schema: Json  # of the input, an object
    call: Callable[[Json, Context], Awaitable[ToolOutput]]
    seconds: float = SECONDS
    shown: int = SHOWN
    changes: bool = True  # whether it may change files: one that only reads needs no snapshot
    # The files that a call may change, where its input tells; None: any.
    touches: Callable[[Json], tuple[str, ...]] | None = None
    subject: Callable[[Json], str] = lambda _: ""  # of a call, held against permission patterns

    @property
    def declared(self) -> Declared:
        """The tool as requests declare it."""
        return Declared(name=self.name, description=self.description, schema=self.schema)
