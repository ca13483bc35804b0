"""Scripted agents of LangChain for tests: a chat model that answers by a function, and checks."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from langchain import agents
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import BaseTool, ToolException, tool
from pydantic import Field

from foldmark.adapters.conversations import Conversations
from foldmark.adapters.langchain import FoldmarkMiddleware
from foldmark.adapters.langchain.dialect import LangChainDialect
from foldmark.model.messages import TextPart, ToolPart
from foldmark.session.session import Session
from foldmark.tokens.counters import counter
from foldmark.tokens.sizes import MESSAGE_OVERHEAD, part_size
from tests.support.adapter_contract import (
    OUTPUT,
    WINDOW,
    ContractAgent,
    Outcome,
    Script,
    file_text,
)

Talk = list[BaseMessage]
Said = AIMessage | Exception
_count = counter("classes")
_dialect = LangChainDialect()


class Scripted(BaseChatModel):
    """Answers what a function says, and keeps what it was asked."""

    reply: Callable[[int, Talk], Said]
    seen: list[Talk] = Field(default_factory=list[Talk])

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "Scripted":  # pyright: ignore[reportIncompatibleMethodOverride]
        return self

    def _said(self, messages: Talk) -> AIMessage:
        self.seen.append(messages)
        reply = self.reply(len(self.seen) - 1, messages)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _generate(self, messages: Talk, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._said(messages))])

    def _stream(self, messages: Talk, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        reply = self._said(messages)
        text = str(reply.text)
        for start in range(0, len(text), 4):
            piece = AIMessageChunk(content=text[start : start + 4], id=reply.id)
            yield ChatGenerationChunk(message=piece)
        calls: list[Any] = [
            {
                "name": call["name"],
                "args": json.dumps(call["args"]),
                "id": call["id"],
                "index": index,
            }
            for index, call in enumerate(reply.tool_calls)
        ]
        last = AIMessageChunk(content="", tool_call_chunks=calls, chunk_position="last")
        yield ChatGenerationChunk(message=last)


@tool
def read(path: str = "a") -> str:
    """Read a file."""
    return file_text(path)


@tool
def fail(path: str = "a") -> str:
    """Read a file that is not there."""
    raise ToolException(f"{path} is missing\n" * 40)


@tool
def crash(path: str = "a") -> str:
    """End the run in its middle."""
    raise RuntimeError(f"cut off at {path}")


fail.handle_tool_error = True
TOOLS: list[BaseTool] = [read, fail, crash]


def called(step: int, *names: str, text: str = "") -> AIMessage:
    """An answer that calls these tools."""
    calls = [
        {"name": name, "args": {"path": f"src/{step}/{index}.py"}, "id": f"c{step}.{index}"}
        for index, name in enumerate(names)
    ]
    return AIMessage(text, tool_calls=cast("Any", calls))


def agent_of(model: BaseChatModel, middleware: FoldmarkMiddleware, **more: Any) -> Any:
    """A real agent of LangChain; `before` are middlewares before ours."""
    middlewares = [*more.pop("before", ()), middleware]
    options: dict[str, Any] = {"system_prompt": "Be brief.", "tools": TOOLS, **more}
    return cast("Any", agents).create_agent(model, middleware=middlewares, **options)


def config(thread: str) -> Any:
    """The configuration of a run in a thread."""
    return {"configurable": {"thread_id": thread}, "recursion_limit": 2_000}


def opened(folder: Path, **more: Any) -> FoldmarkMiddleware:
    options: dict[str, Any] = {"window": WINDOW, "output": OUTPUT, "durable": False, **more}
    return FoldmarkMiddleware(folder / "agent.db", **options)


def asked(*texts: str) -> Any:
    return {"messages": [HumanMessage(text) for text in texts]}


def done(_number: int, _talk: Talk) -> Said:
    return AIMessage("Done.")


def steps(count: int, seed: int = 1, *, crashes: bool = False) -> Any:
    """A script of so many answers, with 1 to 4 calls each; the last one calls nothing."""
    rng = random.Random(seed)  # noqa: S311 - a script

    def reply(number: int, _: Talk) -> Said:
        if number >= count - 1:
            return AIMessage("Done.")
        names = [rng.choice(["read", "read", "read", "fail"]) for _ in range(rng.randint(1, 4))]
        if crashes and number % 23 == 22:
            names[-1] = "crash"
        return called(number, *names, text=rng.choice(["", "I look."]))

    return reply


def check_requests(requests: list[Talk], middleware: FoldmarkMiddleware, thread: str) -> None:
    with middleware.session(thread) as session:
        budget = session.usable
    for messages in requests:
        check_pairs(messages)
        assert tokens_of(messages) <= budget
        assert isinstance(messages[0], SystemMessage)


def pivots(middleware: FoldmarkMiddleware, thread: str) -> int:
    with middleware.session(thread) as session:
        return sum(operation.kind == "pivot" for operation in session.operations())


def check_whole(state: list[BaseMessage], model: Scripted) -> None:
    """The state has every answer, and every output as the tool gave it."""
    assert sum(isinstance(message, AIMessage) for message in state) == len(model.seen)
    results = [message for message in state if isinstance(message, ToolMessage)]
    assert results
    for result in results:
        assert len(str(result.content)) > 600
        assert "recall" not in str(result.content)


def words(session: Session) -> list[str]:
    """What users and models said in a session, markers and summaries left out."""
    return [
        part.text
        for message in session.export().messages
        for part in message.parts
        if isinstance(part, TextPart) and not part.ignored
        if not getattr(message.info, "summary", None)
    ]


def texts(talk: Talk) -> list[str]:
    """What a model was shown, in words."""
    return [str(message.text) for message in talk if not isinstance(message, SystemMessage)]


def counting(number: int, _talk: Talk) -> Said:
    return AIMessage(f"Answer {number}.")


# --- checks --------------------------------------------------------------------------------


def check_pairs(messages: Sequence[BaseMessage]) -> None:
    """Every call has its result right behind it, every result its call."""
    waiting: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting, f"{message.tool_call_id} is an orphan"
            waiting.remove(message.tool_call_id)
            continue
        assert not waiting, f"{waiting} have no results"
        if isinstance(message, AIMessage):
            waiting = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    assert not waiting, f"{waiting} have no results"


def tokens_of(messages: Sequence[BaseMessage]) -> int:
    """The tokens of messages by our own count."""
    total = 0
    for message in messages:
        read = _dialect.read(message)
        total += MESSAGE_OVERHEAD * (not read.results)
        for part in read.parts:
            # A call that waits is counted with room for its result, which is told by itself here.
            spare = 16 if isinstance(part, ToolPart) else 0
            total += part_size(part, _count).total - spare
        total += sum(_count(answer.output) for answer in read.results)
    return total


# --- the contract over adapters ------------------------------------------------------------


class FrameworkAgent(ContractAgent):
    modes = ("async", "sync", "stream")

    def __init__(self, folder: Path, script: Script, **settings: Any) -> None:
        super().__init__(folder, script)
        self.middleware = opened(folder, **settings)

        @tool
        async def wait(path: str = "a") -> str:
            """Wait forever."""
            self.waits.set()
            await asyncio.Event().wait()
            return path

        model = Scripted(reply=self._reply)
        self._agent = agent_of(model, self.middleware, tools=[*TOOLS, wait])

    def _reply(self, number: int, talk: Talk) -> AIMessage:
        check_pairs(talk)
        words = [str(one.text) for one in talk if isinstance(one, HumanMessage | AIMessage)]
        reply = self.reply([text for text in words if text], tokens_of(talk))
        return AIMessage(reply) if isinstance(reply, str) else called(number, *reply)

    async def run(self, text: str, conversation: str = "t", mode: str = "async") -> Outcome:
        request, settings = asked(text), config(conversation)
        if mode == "sync":
            state = self._agent.invoke(request, settings)
        elif mode == "async":
            state = await self._agent.ainvoke(request, settings)
        else:
            stream = self._agent.astream(request, settings, stream_mode=["messages", "values"])
            state = [chunk async for kind, chunk in stream if kind == "values"][-1]
        messages = state["messages"]
        outputs = [str(one.content) for one in messages if isinstance(one, ToolMessage)]
        return Outcome(str(messages[-1].text), outputs)

    async def close(self) -> None:
        self.middleware.close()

    @staticmethod
    def refusal() -> Exception:
        return ContextOverflowError("This model's maximum context length is 8192 tokens.")

    @property
    def pool(self) -> Conversations[Any]:
        return self.middleware._pool  # pyright: ignore[reportPrivateUsage]
