"""The middleware for `create_agent`: each model call is made with a view of the state that fits.

It reads the state and never writes to it. What is counted beside the messages (the system prompt,
the tools, the schema of an answer) it learns from each request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain.tools import ToolRuntime
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import (
    convert_to_json_schema,
    convert_to_openai_tool,
)
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.runtime import Runtime

import foldmark
from foldmark.adapters.conversations import Conversations, check_settings
from foldmark.agent.tool import Context, ToolRefusal
from foldmark.agent.tools.memory import memory_tools as own_tools
from foldmark.errors import BadInput, FoldmarkError
from foldmark.model.prompt_messages import Declared
from foldmark.model.values import Json
from foldmark.providers.background import uncut, waited
from foldmark.session.closing import Closing
from foldmark.session.history_mirror import aborting
from foldmark.session.session import Session
from foldmark.summary.protocol import Summarizer
from foldmark.wire.tools import declared

from .model import ChatSummarizer, watched
from .requests import RequestMessages, after_known, said_in
from .threads import (
    ThreadConversation,
    begins_by_itself,
    conversation_name,
    names_beside,
    names_of_known,
)

Request = ModelRequest[Any]
Response = ModelResponse[Any]
AGENT = "agent"  # in place of a model's name: the agent's own chat model summarises
_MOST_OPEN = 64
_CHECKPOINTER = "__pregel_checkpointer"  # LangGraph has no public name for it


class ThreadOfCall(NamedTuple):
    """Which conversation a call is of, and whether the state has all of it."""

    name: str
    is_whole: bool


class FoldmarkMiddleware(Closing, AgentMiddleware[AgentState[Any], Any, Any]):
    """Shows an agent's model a view of its messages that fits, and keeps them in a store.

        agent = create_agent(model, tools, middleware=[FoldmarkMiddleware("agent.db")])

    `where` and the options are those of `foldmark.open`. The window is the one of the model's
    profile, if none is given. `summarizer` is `digest`, a model's name, a chat model, `agent` for
    the agent's own one, or an object that answers. With `memory`, the agent gets the tools `recall`
    and `search` over what it is no longer shown. `prefix` is put before the ids of sessions, where
    agents with the same thread ids share a store.
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
        """Take where sessions are kept; they are opened when they are first needed."""
        super().__init__()
        if "session" in options:
            raise BadInput("sessions are named by their threads; `prefix` tells agents apart")
        self._where = where
        self._asks_agent = summarizer == AGENT
        if isinstance(summarizer, BaseChatModel):
            summarizer = ChatSummarizer(summarizer)
        self._options: dict[str, Any] = {
            **options,
            "summarizer": None if self._asks_agent else summarizer,
        }
        check_settings(where, self._options)
        self._prefix = prefix
        self._conversations = Conversations(self._opened, _MOST_OPEN)
        self._declared: tuple[tuple[object, ...], tuple[Declared, ...]] = ((), ())
        self._own: ChatSummarizer | None = None
        self.tools = memory_tools(self._looked_at) if memory else []

    # --- what LangChain calls ---

    def wrap_model_call(self, request: Request, handler: Callable[[Request], Response]) -> Response:
        """Ask the model with a view that fits; after a refusal for length, with a shorter one."""
        said, thread = self._read(request)
        with self._conversations.lent(self._names(thread.name, said.history)) as held:
            view = self._view(held, request, said, whole=thread.is_whole)
            with watched() as watch:
                try:
                    answer = handler(_with(request, said.shown(view)))
                except Exception as error:
                    if watch.heard or not held.mirror.can_shrink(error):
                        raise
                    view = held.shrunk(error, said.history, whole=thread.is_whole)
                    answer = handler(_with(request, said.shown(view)))
            held.record([*said.history, *_answered(answer)], whole=thread.is_whole)
        return answer

    async def awrap_model_call(
        self, request: Request, handler: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """The same, async; a run that is cancelled leaves no thread behind that still writes."""
        said, thread = self._read(request)
        async with self._conversations.alent(self._names(thread.name, said.history)) as held:
            first = partial(self._view, held, request, said, whole=thread.is_whole)
            view = await aborting(held.session, first)
            with watched() as watch:
                try:
                    answer = await handler(_with(request, said.shown(view)))
                except Exception as error:
                    if watch.heard or not held.mirror.can_shrink(error):
                        raise
                    again = partial(held.shrunk, error, said.history, whole=thread.is_whole)
                    view = await aborting(held.session, again)
                    answer = await handler(_with(request, said.shown(view)))
            answered = [*said.history, *_answered(answer)]
            await uncut(held.record, answered, whole=thread.is_whole)
        return answer

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """Take what came after the last model call: outputs that are answers by themselves."""
        said = said_in(state["messages"], None)
        thread = self._thread(runtime, said)
        known = names_of_known(thread.name, said.history, self._conversations)
        held = self._conversations.lend(known)
        if held is None:
            return
        try:
            # What was shown of earlier messages may be less than the state has: that stays so.
            if rest := after_known(held.known, said.history):
                held.record([*held.known, *rest], whole=thread.is_whole)
        finally:
            self._conversations.give_back(held)

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        """`after_agent`, async."""
        await uncut(self.after_agent, state, runtime)

    # --- sessions ---

    def session(self, thread: str) -> Session:
        """The session of a thread, opened anew, to look at what was kept and folded; close it."""
        return foldmark.open(
            self._where,
            session=self._prefix + conversation_name(thread, "", None),
            **self._options,
        )

    def close(self) -> None:
        """Close all sessions; the middleware can be used on, and opens them again."""
        self._conversations.close()

    def _opened(self, name: str) -> ThreadConversation:
        session = foldmark.open(self._where, session=name, **self._options)
        return ThreadConversation(name, session)

    def _names(self, name: str, history: Sequence[BaseMessage]) -> Iterator[str]:
        """The sessions that a call may use: one that knows its history, else the first free one."""
        return chain(names_of_known(name, history, self._conversations), names_beside(name))

    def _thread(self, runtime: Runtime[Any] | None, said: RequestMessages) -> ThreadOfCall:
        told = runtime.execution_info if runtime is not None else None
        thread, place = (told.thread_id, told.checkpoint_ns) if told is not None else (None, "")
        known = None if thread is None else str(thread)
        first = next(iter((*said.prompts, *said.history)), None)
        name = conversation_name(known, place, first)
        is_whole = begins_by_itself(known, place) or _has_checkpointer()
        return ThreadOfCall(self._prefix + name, is_whole)

    def _looked_at(self, runtime: Any) -> AbstractContextManager[ThreadConversation]:
        """The conversation over which a tool of ours is called."""
        said = said_in(runtime.state["messages"], None)
        return self._conversations.used(self._thread(runtime, said).name)

    # --- a request ---

    def _read(self, request: Request) -> tuple[RequestMessages, ThreadOfCall]:
        said = said_in(request.messages, request.state.get("messages") or None)
        return said, self._thread(request.runtime, said)

    def _view(
        self, held: ThreadConversation, request: Request, said: RequestMessages, *, whole: bool
    ) -> list[BaseMessage]:
        """A view for a request: its window, what is beside, and the history are taken first."""
        prompts: list[BaseMessage] = [request.system_message] if request.system_message else []
        system = "\n\n".join(str(message.text) for message in (*prompts, *said.prompts))
        passing = said.passing_reads()
        tools, summarizer = self._tools(request), self._summarizer(request.model)
        with held.turn():
            held.count_beside(system, tools, passing=passing, summarizer=summarizer)
            held.set_window(self._window(request.model))
            held.take(said.history, whole=whole)
            return held.mirror.view()

    def _tools(self, request: Request) -> tuple[Declared, ...]:
        """The tools of a request and the form of its answer, made anew only for other ones."""
        given = (*request.tools, request.response_format)
        known, found = self._declared
        if len(known) != len(given) or any(a is not b for a, b in zip(known, given, strict=True)):
            # A provider's own tools are dicts already.
            found = declared(
                tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
                for tool in request.tools
            )
            found += _answer_tools(request.response_format)
            self._declared = (given, found)
        return found

    def _summarizer(self, model: BaseChatModel) -> ChatSummarizer | None:
        """The agent's own model, if that is to summarise."""
        if self._asks_agent and (self._own is None or self._own.model is not model):
            self._own = ChatSummarizer(model)
        return self._own

    def _window(self, model: BaseChatModel) -> int | None:
        """The window that a model's profile tells, where the program has told none."""
        if self._options.get("window") or self._options.get("model"):
            return None
        return (model.profile or {}).get("max_input_tokens")


def _has_checkpointer() -> bool:
    """Whether LangGraph keeps the state of this run; only its configuration tells."""
    try:
        told: Any = get_config().get("configurable", {})
    except RuntimeError:  # outside of a graph
        return False
    return isinstance(told.get(_CHECKPOINTER), BaseCheckpointSaver)


def _answered(response: Response) -> list[BaseMessage]:
    """The messages of an answer, as the state will have them: it gives ids to those without."""
    return list(takewhile(lambda message: message.id is not None, response.result))


def _with(request: Request, shown: list[BaseMessage]) -> Request:
    return request.override(messages=cast("list[AnyMessage]", shown))


def _answer_tools(answer: object) -> tuple[Declared, ...]:
    """The form of an answer, which providers are told of as of a tool."""
    if answer is None:
        return ()
    spec = getattr(answer, "schema_spec", None)
    own = getattr(spec, "schema", None) or getattr(answer, "schema", None) or answer
    specs = getattr(answer, "schema_specs", None)
    schemas: list[Any] = [held.schema for held in specs] if specs else [own]
    return tuple(
        Declared(name="answer", description="", schema=_json_schema(schema)) for schema in schemas
    )


def _json_schema(schema: Any) -> Json:
    try:
        return convert_to_json_schema(schema)
    except (TypeError, ValueError):  # a form that LangChain alone knows: its name is counted
        return {"title": str(schema)[:1_000]}


# --- tools over what is no longer shown ----------------------------------------------------


def memory_tools(
    looked_at: Callable[[Any], AbstractContextManager[ThreadConversation]],
) -> list[BaseTool]:
    """The two tools; `looked_at` gives the session of a call, by its runtime."""
    recalling, searching = own_tools()

    def recall(
        handle: Annotated[str, "As it stands in the placeholder, or as search tells it: h1f"],
        runtime: ToolRuntime[Any, Any],
        offset: Annotated[int, "The first character wanted; they count from 0."] = 0,
    ) -> str:
        return _called(recalling.call, {"handle": handle, "offset": offset}, looked_at(runtime))

    def search(
        query: Annotated[str, "Words that must all be there."],
        runtime: ToolRuntime[Any, Any],
        most: Annotated[int, "How many finds are told."] = 10,
    ) -> str:
        return _called(searching.call, {"query": query, "most": most}, looked_at(runtime))

    return [
        StructuredTool.from_function(function, description=tool.description, handle_tool_error=True)
        for function, tool in ((recall, recalling), (search, searching))
    ]


def _called(call: Any, given: Json, looked_at: AbstractContextManager[ThreadConversation]) -> str:
    """What a tool of ours gives back; what went wrong is told to the model."""
    with looked_at as conversation:
        context = Context(
            conversation.session, Path(), call_id="", agent="", aborted=asyncio.Event()
        )
        try:
            output = waited(call(given, context))
        except (ToolRefusal, FoldmarkError) as error:
            raise ToolException(str(error)) from None
    if output.error:
        raise ToolException(output.text)
    return output.text
