"""Wraps models of OpenAI's Agents SDK: they get a view that fits, and a shorter one if refused.

A refusal for length occurs inside the SDK's loop, out of reach of sessions and filters; only the
model itself can be retried. The wrapper also records the measured usage.
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
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.model.values import Json
from foldmark.providers.background import run_uninterrupted
from foldmark.wire.openai_responses import usage_tokens
from foldmark.wire.plain import plain, plain_object

from .items import ItemsMirror, item_name

# Events before any content of a response.
_OPENING = frozenset({"response.created", "response.queued", "response.in_progress"})
_SERVER_HISTORY = (
    "Foldmark stores the history, so the provider must not: "
    "remove previous_response_id, conversation_id and auto_previous_response_id"
)


class FixedInputs(NamedTuple):
    """The parts of a request besides its items."""

    system: str
    tools: list[ToolDeclaration]


class RequestView(NamedTuple):
    """A view for one request."""

    items: list[Any]
    history: list[Json]  # the full list
    mirror: ItemsMirror
    fixed: FixedInputs


class ViewSource(Protocol):
    """Returns views for requests, from the session that mirrors their items."""

    async def view_of(self, items: list[Json], fixed: FixedInputs) -> RequestView:
        """A view of the items to send; a view that the filter made is reused."""
        ...

    def shorter(self, view: RequestView, error: Exception) -> list[Any]:
        """A shorter view after a refusal for length."""
        ...


class FoldmarkModel(Model):
    """A model that receives views."""

    def __init__(self, model: Model, source: ViewSource) -> None:
        """Wrap this model."""
        self._model = model
        self._source = source

    def __getattr__(self, name: str) -> Any:
        """Pass on other attributes that the SDK may use."""
        return getattr(self._model, name)

    # Further arguments are passed on, by position or by keyword, as the SDK passes them.
    async def get_response(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002 - the SDK's name
        *args: Any,
        **keywords: Any,
    ) -> ModelResponse:
        """The model's response to a view of the input."""
        view = await self._view_of(system_instructions, input, args, keywords)
        ask = self._model.get_response
        try:
            response = await ask(system_instructions, view.items, *args, **keywords)
        except Exception as error:
            if not view.mirror.can_shrink(error):
                raise
            shorter = await run_uninterrupted(self._source.shorter, view, error)
            response = await ask(system_instructions, shorter, *args, **keywords)
        if response.output:
            fields = vars(response.usage).items()
            usage = {name: plain(value) for name, value in fields if "tokens" in name}
            record_usage(view.mirror, response.output[0], usage)
        return response

    async def stream_response(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        system_instructions: str | None,
        input: str | list[Any],  # noqa: A002 - the SDK's name
        *args: Any,
        **keywords: Any,
    ) -> AsyncGenerator[Any]:
        """The streamed form; a model that has started to respond is not called again."""
        view = await self._view_of(system_instructions, input, args, keywords)
        ask = self._model.stream_response

        def start(items: list[Any]) -> AsyncIterator[Any]:
            return ask(system_instructions, items, *args, **keywords)

        async with aclosing(_stream_with_retry(self._source, view, start)) as events:
            async for event in events:
                yield event

    async def _view_of(
        self, system: str | None, items: str | list[Any], args: tuple[Any, ...], keywords: Json
    ) -> RequestView:
        """A view of the input; instructions, tools and the output schema are counted."""
        if keywords.get("previous_response_id") or keywords.get("conversation_id"):
            raise BadInput(_SERVER_HISTORY)
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        tools = keywords["tools"] if "tools" in keywords else args[1]
        handoffs = keywords["handoffs"] if "handoffs" in keywords else args[3]
        schema: AgentOutputSchemaBase | None
        schema = keywords["output_schema"] if "output_schema" in keywords else args[2]
        declared = declared_tools(tools, handoffs)
        if schema is not None and not schema.is_plain_text():  # sent like a tool
            form = ToolDeclaration(name=schema.name(), description="", schema=schema.json_schema())
            declared.append(form)
        return await self._source.view_of(items, FixedInputs(system or "", declared))

    # --- the rest of the interface ---

    async def close(self) -> None:
        """Close the wrapped model."""
        await self._model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """The wrapped model's advice."""
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class FoldmarkProvider(ModelProvider):
    """Wraps the models of another provider."""

    def __init__(self, provider: ModelProvider, source: ViewSource) -> None:
        """Wrap the models of this provider."""
        self._provider = provider
        self._source = source
        # By id of the wrapped model, which its wrapper keeps alive; a provider may create many.
        self._models = WeakValueDictionary[int, FoldmarkModel]()

    def get_model(self, model_name: str | None) -> Model:
        """The wrapped model of this name."""
        model = self._provider.get_model(model_name)
        return self._models.setdefault(id(model), FoldmarkModel(model, self._source))

    async def aclose(self) -> None:
        """Close the wrapped provider."""
        await self._provider.aclose()


# --- tools and usage -----------------------------------------------------------------------


def declared_tools(tools: Sequence[Tool], handoffs: Sequence[object] = ()) -> list[ToolDeclaration]:
    """Declarations of tools, and of handoffs, which models see as tools."""
    result: list[ToolDeclaration] = []
    for tool in tools:
        if isinstance(tool, FunctionTool):
            text, schema = tool.description, tool.params_json_schema
            result.append(ToolDeclaration(name=tool.name, description=text, schema=schema))
        else:
            result.append(ToolDeclaration(name=tool.name, description="", schema={}))
    for handoff in handoffs:
        if isinstance(handoff, Handoff):
            typed = cast("Handoff[Any, Any]", handoff)
            name, text, schema = typed.tool_name, typed.tool_description, typed.input_json_schema
            result.append(ToolDeclaration(name=name, description=text, schema=schema))
    return result


def record_usage(mirror: ItemsMirror, first: object, usage: Json) -> None:
    """Remember the usage of the response that starts with the item `first`."""
    tokens = usage_tokens(usage)
    if tokens is not None and tokens.total:
        mirror.own.measured = (item_name(plain_object(first)), tokens)


# --- streams -------------------------------------------------------------------------------


class _StreamRefusal(Exception):
    """A refusal that arrived as a stream event."""

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        self.code = code


async def _stream_with_retry(
    source: ViewSource, view: RequestView, ask: Callable[[list[Any]], AsyncIterator[Any]]
) -> AsyncGenerator[Any]:
    """Stream the response to a view; if it is refused before any content, retry with less."""
    mirror = view.mirror
    opening: list[Any] | None = []  # events before any content; None after that
    try:
        async with aclosing(_with_usage(mirror, ask(view.items))) as events:
            async for event in events:
                pending = [*(opening or ()), event]
                if opening is not None and event.type in _OPENING:
                    opening = pending
                    continue
                if opening is not None:
                    _check(mirror, event)
                opening = None
                for waiting in pending:
                    yield waiting
    except Exception as error:
        if opening is None or not mirror.can_shrink(error):
            raise
        shorter = await run_uninterrupted(source.shorter, view, error)
    else:
        for waiting in opening or ():
            yield waiting
        return
    async with aclosing(_with_usage(mirror, ask(shorter))) as events:
        async for event in events:
            yield event


def _check(mirror: ItemsMirror, event: object) -> None:
    """Raise if an event reports a refusal for length."""
    details = getattr(getattr(event, "response", None), "error", None) or event
    refusal = _StreamRefusal(str(getattr(details, "message", "")), getattr(details, "code", None))
    if mirror.can_shrink(refusal):
        raise refusal


async def _with_usage(mirror: ItemsMirror, events: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    """Pass events on, and record the usage."""
    first: object = None
    try:
        async for event in events:
            if event.type == "response.output_item.done":
                first = first or event.item
            elif event.type == "response.completed":
                first = first or next(iter(event.response.output), None)
                if first is not None and event.response.usage is not None:
                    record_usage(mirror, first, plain_object(event.response.usage))
            yield event
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
