"""The tools `recall` and `search` as tools of LangChain, over the session of whoever calls."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from foldmark.agent.tool import Context, ToolRefusal
from foldmark.agent.tools.memory import memory_tools as own_tools
from foldmark.errors import FoldmarkError
from foldmark.model.values import Json
from foldmark.providers.background import waited

from .threads import ThreadConversation

UsedFor = Callable[[Any], AbstractContextManager[ThreadConversation]]


def memory_tools(looked_at: UsedFor) -> list[BaseTool]:
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
