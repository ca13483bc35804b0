"""Models of OpenAI's Agents SDK that are asked with a view that fits, and once more where refused.

A refusal for length comes inside the SDK's loop, where no session and no filter can answer it: so
the model itself is wrapped. What was measured is noted on the way back.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, cast
from weakref import WeakValueDictionary

from agents import (
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelProvider,
    ModelResponse,
    Tool,
)
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest

from foldmark.errors import BadInput
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Json
from foldmark.providers.background import uncut
from foldmark.wire.openai_responses import usage_tokens
from foldmark.wire.plain import plain, plain_object

from .items import ItemsMirror, item_name

# Events that say that an answer was begun, and nothing of it.
_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_KEPT_THERE = (
    "Foldmark keeps the history here, and the provider would keep another: "
    "leave out previous_response_id, conversation_id and auto_previous_response_id"
)


class BesideItems(NamedTuple):
    """What a request holds beside the items."""

    system: str
    tools: list[Declared]


class Shown(NamedTuple):
    """A view for one request."""

    view: list[Any]
    history: list[Json]  # that it is a view of
    followed: ItemsMirror
    beside: BesideItems


class Follower(Protocol):
    """Who knows which session follows what is about to be sent."""

    async def shown(self, given: list[Json], beside: BesideItems) -> Shown:
        """A view of what is about to be sent; where that is a view already, it stays."""
        ...

    def shorter(self, shown: Shown, error: Exception) -> list[Any]:
        """A view that is shorter than one that was refused."""
        ...


class FoldmarkModel(Model):
    """A model that is shown a view."""

    def __init__(self, model: Model, follower: Follower) -> None:
        """Take the model that is asked."""
        self._model = model
        self._follower = follower

    def __getattr__(self, name: str) -> Any:
        """What else the SDK may ask of a model of its own."""
        return getattr(self._model, name)

    # What follows is passed on as the SDK gives it, by position or by name.
    async def get_response(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002 - the SDK's name
        *rest: Any,
        **named: Any,
    ) -> ModelResponse:
        """The model's answer to a view of the input."""
        shown = await self._shown(system_instructions, input, rest, named)
        asked = self._model.get_response
        try:
            response = await asked(system_instructions, shown.view, *rest, **named)
        except Exception as error:
            if not shown.followed.can_shrink(error):
                raise
            shorter = await uncut(self._follower.shorter, shown, error)
            response = await asked(system_instructions, shorter, *rest, **named)
        if response.output:
            usage = {
                name: plain(held) for name, held in vars(response.usage).items() if "tokens" in name
            }
            note_usage(shown.followed, response.output[0], usage)
        return response

    async def stream_response(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002 - the SDK's name
        *rest: Any,
        **named: Any,
    ) -> AsyncGenerator[Any]:
        """The same, streamed: a model that has begun to answer is not asked again."""
        shown = await self._shown(system_instructions, input, rest, named)
        asked = self._model.stream_response
        stream = _recovered(
            self._follower,
            shown,
            lambda view: asked(system_instructions, view, *rest, **named),
        )
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    async def _shown(
        self, system: str | None, given: str | list[Any], rest: tuple[Any, ...], named: Json
    ) -> Shown:
        """A view of what is sent, with all counted that is sent beside it."""
        if named.get("previous_response_id") or named.get("conversation_id"):
            raise BadInput(_KEPT_THERE)
        items: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else given
        tools = named["tools"] if "tools" in named else rest[1]
        handoffs = named["handoffs"] if "handoffs" in named else rest[3]
        schema: AgentOutputSchemaBase | None
        schema = named["output_schema"] if "output_schema" in named else rest[2]
        declared = declared_tools(tools, handoffs)
        if schema is not None and not schema.is_plain_text():  # it is sent as tools are
            form = Declared(name=schema.name(), description="", schema=schema.json_schema())
            declared.append(form)
        return await self._follower.shown(items, BesideItems(system or "", declared))

    # --- the rest of the interface ---

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """What the model advises."""
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class FoldmarkProvider(ModelProvider):
    """Gives the models of another provider, wrapped."""

    def __init__(self, provider: ModelProvider, follower: Follower) -> None:
        """Take the provider that knows the models."""
        self._provider = provider
        self._follower = follower
        # By the model's id; who wraps it holds it. A provider may make a new one for each turn.
        self._made = WeakValueDictionary[int, FoldmarkModel]()

    def get_model(self, model_name: str | None) -> Model:
        """The model of this name."""
        model = self._provider.get_model(model_name)
        return self._made.setdefault(id(model), FoldmarkModel(model, self._follower))

    async def aclose(self) -> None:
        """Close the provider."""
        await self._provider.aclose()


# --- what is counted -----------------------------------------------------------------------


def declared_tools(tools: Sequence[Tool], handoffs: Sequence[object] = ()) -> list[Declared]:
    """Tools, and handoffs, which are tools to a model."""
    found: list[Declared] = []
    for tool in tools:
        if isinstance(tool, FunctionTool):
            schema = tool.params_json_schema
            found.append(Declared(name=tool.name, description=tool.description, schema=schema))
        else:
            found.append(Declared(name=tool.name, description="", schema={}))
    for handoff in handoffs:
        if isinstance(handoff, Handoff):
            held = cast("Handoff[Any, Any]", handoff)
            name, text, schema = held.tool_name, held.tool_description, held.input_json_schema
            found.append(Declared(name=name, description=text, schema=schema))
    return found


def note_usage(followed: ItemsMirror, first: object, usage: Json) -> None:
    """Remember what was measured, until the answer that `first` begins is told."""
    tokens = usage_tokens(usage)
    if tokens is not None and tokens.total:
        followed.own.measured = (item_name(plain_object(first)), tokens)


# --- streams -------------------------------------------------------------------------------


class _Refused(Exception):
    """A failure that came as an event of a stream."""

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        self.code = code


async def _recovered(
    follower: Follower, shown: Shown, ask: Callable[[list[Any]], AsyncIterator[Any]]
) -> AsyncGenerator[Any]:
    """The events of an answer to a view; where that is refused before a word, to a shorter one."""
    followed = shown.followed
    opening: list[Any] | None = []  # events that say nothing yet; None when something was said
    try:
        async with aclosing(_noted(followed, ask(shown.view))) as events:
            async for event in events:
                held = [*(opening or ()), event]
                if opening is not None and event.type in _OPENING:
                    opening = held
                    continue
                if opening is not None:
                    _check(followed, event)
                opening = None
                for one in held:
                    yield one
    except Exception as error:
        if opening is None or not followed.can_shrink(error):
            raise
        shorter = await uncut(follower.shorter, shown, error)
    else:
        for one in opening or ():
            yield one
        return
    async with aclosing(_noted(followed, ask(shorter))) as events:
        async for event in events:
            yield event


def _check(followed: ItemsMirror, event: object) -> None:
    """Raise where an event tells that the model refuses for length."""
    told = getattr(getattr(event, "response", None), "error", None) or event
    refused = _Refused(str(getattr(told, "message", "")), getattr(told, "code", None))
    if followed.can_shrink(refused):
        raise refused


async def _noted(followed: ItemsMirror, events: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    """The same events; what was measured is noted."""
    first: object = None
    try:
        async for event in events:
            if event.type == "response.output_item.done":
                first = first or event.item
            elif event.type == "response.completed":
                first = first or next(iter(event.response.output), None)
                if first is not None and event.response.usage is not None:
                    note_usage(followed, first, plain_object(event.response.usage))
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
