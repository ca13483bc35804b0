"""What a compaction asks of a model, what comes back, and what a model must be able to do.

The flow yields asks and is sent their outcomes; it never calls anybody. Who waits, sends and
retries is a driver (`io.driving`); who talks to a provider is a summarizer (`io.models`).
"""

from collections.abc import Callable, Generator
from typing import Literal, Protocol, TypeVar

from foldmark.model.messages import Tokens
from foldmark.model.prompt_messages import Declared, PromptMessage
from foldmark.model.values import Frozen

T = TypeVar("T")

Finish = Literal["stop", "length", "tool-calls", "other"]
Cause = Literal["overflow", "throttled", "timeout", "failed", "unavailable"]
Delta = Callable[[str], None]
AT_ONCE = 4  # asks that are under way at the same time; the others wait for these


class ModelRequest(Frozen):
    """One request to a model. It ends with a message of the user."""

    messages: tuple[PromptMessage, ...]
    system: str = ""
    # Not to be called, unless it is a step: a request shall begin as the session's own do.
    tools: tuple[Declared, ...] = ()
    most: int = 4_000  # tokens that the answer may have
    seconds: float = 120.0  # that it may take
    after: float = 0.0  # seconds to wait before it is sent
    purpose: str = "summary"


class ModelReply(Frozen):
    """What a model answered."""

    text: str
    finish: Finish = "stop"
    tokens: Tokens | None = None  # as the provider measured them
    cost: float | None = None  # in dollars, where the price is known
    calls: int = 0  # of tools, which nobody asked for


class ModelFailure(Frozen):
    """Why no answer came. Another try may help where it was throttled, failed or too slow."""

    cause: Cause
    message: str
    retry_after: float | None = None  # seconds, as the provider said


Outcome = ModelReply | ModelFailure
# Yields asks that may be sent at the same time, and is sent as many outcomes.
ModelDialogue = Generator[tuple[ModelRequest, ...], tuple[Outcome, ...], T]


class Summarizer(Protocol):
    """Answers requests; returns a `ModelFailure` if one fails, and raises only for its own bugs."""

    @property
    def name(self) -> str:
        """Which model it is, as `provider:model`."""
        ...

    async def ask(self, ask: ModelRequest, delta: Delta) -> Outcome:
        """The outcome of one ask; `delta` is told each piece of the answer as it comes."""
        ...
