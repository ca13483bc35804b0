"""What a compaction asks of a model, what comes back, and what a model must be able to do.

The flow yields asks and is sent their outcomes; it never calls anybody. `providers.driver` sends
them, waits and retries; who talks to a provider is a summarizer, or a model that also steps for
an agent.
"""

from collections.abc import Callable, Generator
from typing import Literal, Protocol, TypeVar

from foldmark.model.messages import ReasoningPart, TextPart, Tokens, ToolPart
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


# --- one step of an agent ---------------------------------------------------------------------

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


def words_to(delta: Delta) -> Tell:
    """Tell of words alone, and neither of thoughts nor of calls."""

    def tell(piece: Piece) -> None:
        if isinstance(piece, Words) and piece.kind == "text":
            delta(piece.text)

    return tell


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

    def reply(self) -> ModelReply:
        """The same as an answer in words."""
        return ModelReply(
            text="".join(part.text for part in self.parts if isinstance(part, TextPart)),
            finish=self.finish,
            tokens=self.tokens,
            cost=self.cost,
            calls=len(self.calls),
        )


class Model(Summarizer, Protocol):
    """Who answers an agent. It tells what goes wrong as `ModelFailure`."""

    async def step(self, ask: ModelRequest, tell: Tell) -> Stepped | ModelFailure:
        """The outcome of one ask; `tell` is told each piece of the answer as it comes."""
        ...


FIRST_PAUSE = 1.0  # seconds


def retry_pause(
    attempt: int, retry_after: float | None = None, *, first: float = FIRST_PAUSE
) -> float:
    """Seconds to wait after the failed attempt of this number, counted from 1.

    Each pause is twice the one before; a longer wait that the provider asks for is respected.
    """
    return max(first * 2.0 ** (attempt - 1), retry_after or 0.0)
