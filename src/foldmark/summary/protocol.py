"""Requests to a model, its replies, and the protocols that summarizers and models implement.

A compaction is a generator that yields requests and receives their outcomes; it calls no model
itself. `providers.driver` sends the requests to a `Summarizer`. A `Model` also answers the steps
of an agent.
"""

from collections.abc import Callable, Generator
from typing import Literal, Protocol, TypeVar

from foldmark.model.messages import ReasoningPart, TextPart, Tokens, ToolPart
from foldmark.model.prompt_messages import PromptMessage, ToolDeclaration
from foldmark.model.values import Frozen

T = TypeVar("T")

Finish = Literal["stop", "length", "tool-calls", "other"]
Cause = Literal["overflow", "throttled", "timeout", "failed", "unavailable"]
TextHandler = Callable[[str], None]
MAX_PARALLEL_REQUESTS = 4  # further requests wait


class ModelRequest(Frozen):
    """One request to a model. Its last message is the user's."""

    messages: tuple[PromptMessage, ...]
    system: str = ""
    # Declared so that the request begins like the session's own; only a step may call them.
    tools: tuple[ToolDeclaration, ...] = ()
    max_tokens: int = 4_000  # of the reply
    seconds: float = 120.0  # the time limit
    delay: float = 0.0  # seconds to wait before sending
    purpose: str = "summary"


class ModelReply(Frozen):
    """A model's reply as text."""

    text: str
    finish: Finish = "stop"
    tokens: Tokens | None = None  # as measured by the provider
    cost: float | None = None  # in dollars, if the price is known
    calls: int = 0  # unwanted tool calls


class ModelFailure(Frozen):
    """Why there is no reply. A retry may help if it was throttled, failed or timed out."""

    cause: Cause
    message: str
    retry_after: float | None = None  # seconds, as requested by the provider


Outcome = ModelReply | ModelFailure
# Yields requests that may be sent in parallel, and receives as many outcomes.
ModelDialogue = Generator[tuple[ModelRequest, ...], tuple[Outcome, ...], T]


class Summarizer(Protocol):
    """Answers requests. A failed request is a `ModelFailure`; exceptions are bugs."""

    @property
    def name(self) -> str:
        """The model's name, as `provider:model`."""
        ...

    async def ask(self, request: ModelRequest, on_text: TextHandler) -> Outcome:
        """Return the outcome of a request; call `on_text` with each piece of streamed text."""
        ...


# --- one step of an agent ---------------------------------------------------------------------

STEP = "step"  # the purpose of a request whose tools may be called


class TextDelta(Frozen):
    """More text of a streamed reply or of its reasoning."""

    text: str
    kind: Literal["text", "reasoning"] = "text"


class CallDelta(Frozen):
    """The start of a streamed tool call, before its input is complete."""

    call_id: str
    tool: str


StreamDelta = TextDelta | CallDelta
DeltaHandler = Callable[[StreamDelta], None]


def text_only(on_text: TextHandler) -> DeltaHandler:
    """Return a callback that passes on text, but not reasoning or tool calls."""

    def on_delta(delta: StreamDelta) -> None:
        if isinstance(delta, TextDelta) and delta.kind == "text":
            on_text(delta.text)

    return on_delta


class StepReply(Frozen):
    """A model's reply to an agent: text, reasoning and pending tool calls in their order.

    Provider data that must be returned with a part is in the part's metadata, where the codec of
    the API format reads it. An input that is not a JSON object is kept unchanged in `raw`.
    """

    parts: tuple[TextPart | ReasoningPart | ToolPart, ...]
    finish: Finish = "stop"
    tokens: Tokens | None = None  # as measured by the provider
    cost: float | None = None  # in dollars, if the price is known

    @property
    def calls(self) -> tuple[ToolPart, ...]:
        """The tool calls."""
        return tuple(part for part in self.parts if isinstance(part, ToolPart))

    def reply(self) -> ModelReply:
        """The same reply as text."""
        return ModelReply(
            text="".join(part.text for part in self.parts if isinstance(part, TextPart)),
            finish=self.finish,
            tokens=self.tokens,
            cost=self.cost,
            calls=len(self.calls),
        )


class Model(Summarizer, Protocol):
    """Answers the steps of an agent, too. A failed step is a `ModelFailure`."""

    async def step(self, request: ModelRequest, on_delta: DeltaHandler) -> StepReply | ModelFailure:
        """Return the outcome of a step; call `on_delta` with each streamed piece of the reply."""
        ...


FIRST_PAUSE = 1.0  # seconds


def retry_pause(
    attempt: int, retry_after: float | None = None, *, first: float = FIRST_PAUSE
) -> float:
    """Return the seconds to wait after a failed attempt, counted from 1.

    Each pause is twice the one before, or `retry_after` if the provider asks for more.
    """
    return max(first * 2.0 ** (attempt - 1), retry_after or 0.0)
