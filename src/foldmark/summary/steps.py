"""One step of an agent: what its model tells while it answers, and what it answered in the end.

A step's model also summarises: whoever can step can be asked. Who sends the request, tries it
again and runs the tools that are called is told elsewhere.
"""

from collections.abc import Callable
from typing import Literal, Protocol

from foldmark.model.messages import ReasoningPart, TextPart, Tokens, ToolPart
from foldmark.model.values import Frozen

from .protocol import Finish, ModelFailure, ModelRequest, Summarizer

STEP = "step"  # the purpose of an ask whose tools may be called


class Words(Frozen):
    """Some more of a text or of a thought."""

    text: str
    kind: Literal["text", "reasoning"] = "text"


class Calling(Frozen):
    """A call of a tool begins; its input is still being written."""

    call_id: str
    tool: str


Piece = Words | Calling
Tell = Callable[[Piece], None]


class Stepped(Frozen):
    """What a model answered: words, thoughts and calls in their order, calls as pending.

    What its provider wants back of a part is in the part's metadata, where the wire's codec looks
    for it. An input that is no JSON object is kept as it came in `raw`.
    """

    parts: tuple[TextPart | ReasoningPart | ToolPart, ...]
    finish: Finish = "stop"
    tokens: Tokens | None = None  # as the provider measured them
    cost: float | None = None  # in dollars, where the price is known

    @property
    def calls(self) -> tuple[ToolPart, ...]:
        """The calls of tools."""
        return tuple(part for part in self.parts if isinstance(part, ToolPart))


class Model(Summarizer, Protocol):
    """Who answers an agent. It tells what goes wrong as `ModelFailure`."""

    async def step(self, ask: ModelRequest, tell: Tell) -> Stepped | ModelFailure:
        """The outcome of one ask; `tell` is told each piece of the answer as it comes."""
        ...
