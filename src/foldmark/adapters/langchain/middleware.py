"""The middleware for `create_agent`: each model call gets a view of the state that fits.

It reads the state and never changes it. Each request supplies what is counted besides the
messages: the system prompt, the tools and the schema of the response.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, takewhile
from operator import is_
from pathlib import Path
from typing import Annotated, Any, cast

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.runtime import Runtime

import foldmark
from foldmark.adapters.conversations import Conversations, check_settings
from foldmark.agent.tool import Context, ToolRefusal
from foldmark.agent.tools.memory import memory_tools as own_tools
from foldmark.errors import BadInput, FoldmarkError
from foldmark.model.prompt_messages import ToolDeclaration
from foldmark.model.values import Json
from foldmark.providers.background import run_sync, run_uninterrupted
from foldmark.session.closing import Closing
from foldmark.session.history_mirror import run_abortable
from foldmark.session.session import Session
from foldmark.summary.protocol import Summarizer
from foldmark.wire.tools import tool_declarations

from . import threads
from .model import ChatSummarizer, watch_stream
from .requests import RequestMessages, messages_after, split_request
from .threads import ThreadConversation

Request = ModelRequest[Any]
Response = ModelResponse[Any]
AGENT = "agent"  # as `summarizer`: the agent's own chat model
_MAX_OPEN = 64
_CHECKPOINTER = "__pregel_checkpointer"  # LangGraph has no public name for this key


class FoldmarkMiddleware(Closing, AgentMiddleware[AgentState[Any], Any, Any]):
    """Stores an agent's messages and sends its model a view of them that fits.

        agent = create_agent(model, tools, middleware=[FoldmarkMiddleware("agent.db")])

    `where` and the options are those of `foldmark.open`. The window defaults to that of the model's
    profile. `summarizer` is `digest`, a model's name, a chat model, `agent` for the agent's own
    model, or a summarizer object. With `memory`, the agent gets the tools `recall` and `search`
    over hidden messages. `prefix` is put before session ids, for agents that share a store and
    have the same thread ids.
    """

    def __init__(
        self,
        where: str | Path | None = None,
        *,
        summarizer: str | Summarizer | BaseChatModel | None = "digest",
        memory: bool = False,
        prefix: str = "",
        **options: Any,
    ) -> None:
        """Check the settings; sessions are opened when they are first needed."""
        super().__init__()
        if "session" in options:
            raise BadInput("session= is not accepted: thread ids name sessions; use prefix=")
        self._where = where
        self._use_agent_model = summarizer == AGENT
        if isinstance(summarizer, BaseChatModel):
            summarizer = ChatSummarizer(summarizer)
        self._options: dict[str, Any] = {
            **options,
            "summarizer": None if self._use_agent_model else summarizer,
        }
        check_settings(where, self._options)
        self._prefix = prefix
        self._pool = Conversations(self._open_conversation, _MAX_OPEN)
        self._cached_tools: tuple[tuple[object, ...], tuple[ToolDeclaration, ...]] = ((), ())
        self._from_agent: ChatSummarizer | None = None
        self.tools = memory_tools(self._tool_conversation) if memory else []

    # --- what LangChain calls ---

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """Call the model with a view that fits; after a refusal for length, with a shorter one."""
        messages, name, whole = self._read_request(request)
        names = self._names(name, messages.history)
        with self._pool.exclusive(names) as conversation:
            view = self._view(conversation, request, messages, whole=whole)
            with watch_stream() as watch:
                try:
                    response = handler(_with_view(request, messages, view))
                except Exception as error:
                    if watch.has_output or not conversation.mirror.can_shrink(error):
                        raise
                    view = conversation.shorter_view(error, messages.history, whole=whole)
                    response = handler(_with_view(request, messages, view))
            history = [*messages.history, *_response_messages(response)]
            conversation.record(history, whole=whole)
        return response

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Async form; a cancelled run leaves no thread behind that still writes."""
        messages, name, whole = self._read_request(request)
        names = self._names(name, messages.history)
        async with self._pool.aexclusive(names) as conversation:
            first = partial(self._view, conversation, request, messages, whole=whole)
            view = await run_abortable(conversation.session, first)
            with watch_stream() as watch:
                try:
                    response = await handler(_with_view(request, messages, view))
                except Exception as error:
                    if watch.has_output or not conversation.mirror.can_shrink(error):
                        raise
                    again = partial(conversation.shorter_view, error, messages.history)
                    view = await run_abortable(conversation.session, again, whole=whole)
                    response = await handler(_with_view(request, messages, view))
            history = [*messages.history, *_response_messages(response)]
            await run_uninterrupted(conversation.record, history, whole=whole)
        return response

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Store messages after the last model call: tool outputs that end the run."""
        messages = split_request(state["messages"], None)
        name, whole = self._thread(runtime, messages)
        names = threads.names_following(name, messages.history, self._pool)
        conversation = self._pool.acquire_exclusive(names)
        if conversation is None:
            return
        try:
            # The model may have seen fewer messages than the state has: store only what is new.
            if new := messages_after(conversation.last_history, messages.history):
                conversation.record([*conversation.last_history, *new], whole=whole)
        finally:
            self._pool.release_exclusive(conversation)

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Async form of `after_agent`."""
        await run_uninterrupted(self.after_agent, state, runtime)

    # --- sessions ---

    def session(self, thread_id: str) -> Session:
        """Open the session of a thread, to inspect it; the caller closes it."""
        return foldmark.open(
            self._where,
            session=self._prefix + threads.conversation_name(thread_id, "", None),
            **self._options,
        )

    def close(self) -> None:
        """Close all sessions; further use of the middleware opens them again."""
        self._pool.close()

    def _open_conversation(self, name: str) -> ThreadConversation:
        session = foldmark.open(self._where, session=name, **self._options)
        return ThreadConversation(name, session)

    def _names(self, name: str, history: Sequence[BaseMessage]) -> Iterator[str]:
        """Names of sessions for a call: those that know its history first, then any free one."""
        following = threads.names_following(name, history, self._pool)
        return chain(following, threads.candidate_names(name))

    def _thread(self, runtime: Runtime[Any] | None, messages: RequestMessages) -> tuple[str, bool]:
        """The name of a call's conversation, and whether the state contains all of it."""
        info = runtime.execution_info if runtime is not None else None
        thread, namespace = (info.thread_id, info.checkpoint_ns) if info is not None else (None, "")
        thread_id = None if thread is None else str(thread)
        first = next(iter((*messages.prompts, *messages.history)), None)
        name = threads.conversation_name(thread_id, namespace, first)
        is_whole = threads.uses_first_message(thread_id, namespace) or _has_checkpointer()
        return self._prefix + name, is_whole

    def _tool_conversation(self, runtime: Any) -> AbstractContextManager[ThreadConversation]:
        """The conversation of a call to one of our tools."""
        messages = split_request(runtime.state["messages"], None)
        return self._pool.shared(self._thread(runtime, messages)[0])

    # --- a request ---

    def _read_request(self, request: Request) -> tuple[RequestMessages, str, bool]:
        messages = split_request(request.messages, request.state.get("messages") or None)
        return messages, *self._thread(request.runtime, messages)

    def _view(
        self,
        thread: ThreadConversation,
        request: Request,
        messages: RequestMessages,
        *,
        whole: bool,
    ) -> list[BaseMessage]:
        """Update the session from a request, and return its view."""
        prompts: list[BaseMessage] = [request.system_message] if request.system_message else []
        system = "\n\n".join(str(message.text) for message in (*prompts, *messages.prompts))
        transient = messages.transient_contents()
        tools, summarizer = self._tools(request), self._summarizer(request.model)
        with thread.turn():
            thread.count_fixed(system, tools, transient=transient, summarizer=summarizer)
            thread.set_window(self._window(request.model))
            thread.take(messages.history, whole=whole)
            return thread.mirror.view()

    def _tools(self, request: Request) -> tuple[ToolDeclaration, ...]:
        """The tools and the response schema of a request; cached until they change."""
        sources = (*request.tools, request.response_format)
        cached, tools = self._cached_tools
        if len(cached) != len(sources) or not all(map(is_, cached, sources)):
            # Tools of a provider are dicts already.
            tools = tool_declarations(
                tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
                for tool in request.tools
            )
            tools += _response_schemas(request.response_format)
            self._cached_tools = (sources, tools)
        return tools

    def _summarizer(self, model: BaseChatModel) -> ChatSummarizer | None:
        """A summarizer with the agent's own model, if that was chosen."""
        if self._use_agent_model and (
            self._from_agent is None or self._from_agent.model is not model
        ):
            self._from_agent = ChatSummarizer(model)
        return self._from_agent

    def _window(self, model: BaseChatModel) -> int | None:
        """The window in a model's profile, unless the settings have a window or a model."""
        if self._options.get("window") or self._options.get("model"):
            return None
        return (model.profile or {}).get("max_input_tokens")


def _has_checkpointer() -> bool:
    """Whether LangGraph stores the state of this run."""
    try:
        settings: Any = get_config().get("configurable", {})
    except RuntimeError:  # outside a graph
        return False
    return isinstance(settings.get(_CHECKPOINTER), BaseCheckpointSaver)


def _response_messages(response: Response) -> list[BaseMessage]:
    """The messages of a response that have ids; the state will assign new ids to the others."""
    return list(takewhile(lambda message: message.id is not None, response.result))


def _with_view(request: Request, messages: RequestMessages, view: list[BaseMessage]) -> Request:
    return request.override(messages=cast("list[AnyMessage]", messages.with_view(view)))


def _response_schemas(strategy: object) -> tuple[ToolDeclaration, ...]:
    """The schemas of a response format, which are sent to providers like tools."""
    if strategy is None:
        return ()
    spec = getattr(strategy, "schema_spec", None)
    only = getattr(spec, "schema", None) or getattr(strategy, "schema", None) or strategy
    specs = getattr(strategy, "schema_specs", None)
    schemas: list[Any] = [item.schema for item in specs] if specs else [only]
    return tuple(
        ToolDeclaration(name="answer", description="", schema=_json_schema(one)) for one in schemas
    )


def _json_schema(schema: Any) -> Json:
    try:
        return convert_to_json_schema(schema)
    except (TypeError, ValueError):  # only LangChain knows it: count its name
        return {"title": str(schema)[:1_000]}


# --- tools over hidden messages ------------------------------------------------------------


def memory_tools(
    thread_of: Callable[[Any], AbstractContextManager[ThreadConversation]],
) -> list[BaseTool]:
    """The two tools; `thread_of` opens the conversation of a call from its runtime."""
    recalls, searches = own_tools()

    def recall(
        handle: Annotated[str, "As it stands in the placeholder, or as search tells it: h1f"],
        runtime: ToolRuntime[Any, Any],
        offset: Annotated[int, "The first character wanted; they count from 0."] = 0,
    ) -> str:
        return _run_tool(recalls.call, {"handle": handle, "offset": offset}, thread_of(runtime))

    def search(
        query: Annotated[str, "Words that must all be there."],
        runtime: ToolRuntime[Any, Any],
        most: Annotated[int, "How many finds are told."] = 10,
    ) -> str:
        return _run_tool(searches.call, {"query": query, "most": most}, thread_of(runtime))

    return [
        StructuredTool.from_function(function, description=tool.description, handle_tool_error=True)
        for function, tool in ((recall, recalls), (search, searches))
    ]


def _run_tool(call: Any, args: Json, opening: AbstractContextManager[ThreadConversation]) -> str:
    """Run one of our tools and return its output; the model sees errors as tool errors."""
    with opening as thread:
        context = Context(thread.session, Path(), call_id="", agent="", aborted=asyncio.Event())
        try:
            output = run_sync(call(args, context))
        except (ToolRefusal, FoldmarkError) as error:
            raise ToolException(str(error)) from None
    if output.error:
        raise ToolException(output.text)
    return output.text
